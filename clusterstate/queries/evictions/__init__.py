"""Reads of evictions.

::

    eviction_timers    timers that wait or are due; how many were late
    eviction_news      changes in the log that may set, move or end a timer
    brakes             shares of pods that are about to leave, and brakes
"""
