"""One module per command of ``manage.py``.

::

    simulate      where would these pods go?
    pack          where do these pods fit if they are placed together?
    rebalance     which pods to move, and carries it out if asked to
    replay        what would have happened under another configuration?
    headroom      how many more pods fit, and why the next one does not
    waitingtimes  how long pods wait and waited, compared with a goal
    canary        tries another configuration beside the one in force
"""
