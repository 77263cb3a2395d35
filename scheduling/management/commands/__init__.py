"""One module per command of ``manage.py``.

::

    simulate      where would these pods go?
    pack          what fits if all pods are looked at together
    replay        what would have happened under another configuration?
    headroom      how many more pods fit, and what blocks the next one
    waitingtimes  how long pods wait and waited, against a goal
    canary        another configuration beside the one in force
"""
