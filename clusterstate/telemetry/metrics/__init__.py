"""Metrics of this process, and their sums over all processes.

::

    families   counters in memory: adding to one costs a fraction of a microsecond
    scheduler, apiserver, audit
               the families by kube-scheduler's and kube-apiserver's names, and our own
    (actions.loops.metrics)   each process adds its counts to the totals, every two seconds
    (queries.loops.metrics)   the totals, and the gauges of the processes that are alive

The totals are rows of PostgreSQL, one for each combination of labels, to which processes add
(`figures + counts since the last addition`). So any web process on any host answers for the whole
service, and a total neither falls nor disappears with a process. A scrape first adds its own
process's counts and then reads the stored totals. Counts of other processes in the last two seconds
may be missing. The counts since its last addition are lost when a process is killed; no scrape has
shown them.

Nothing here queries, and counting never waits for anything but a lock of a few instructions.
"""
