"""Shared by all long-lived processes.

::

    shards           names by a scheduler's number
    memory           the process's caches of database rows
    collector        Python's garbage collector
    priority         threads that yield processors
    steady_clock     the time of day, safe against clocks that are set
    private_files    files with secrets
"""
