"""Shared by all long-lived processes.

::

    shards           names by a scheduler's number
    memory           what the process remembers of the database's rows
    collector        Python's garbage collector
    priority         threads that yield processors
    steady_clock     the time by which what is due is done, which no clock change hurries
    private_files    files that hold secrets
"""
