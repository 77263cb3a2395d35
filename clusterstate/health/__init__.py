"""How the processes of the service see one another.

::

    heartbeats    until when the silence of a loop is no cause for worry
    progress      how far the loops are, and what holds up the log
    aside         objects that followers of the log set aside
"""
