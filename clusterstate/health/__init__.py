"""Health of the processes and loops of the service.

::

    heartbeats    until when each loop of a process may be silent
    progress      the progress of the loops, and open transactions that delay the log
    aside         objects that followers of the log set aside
"""
