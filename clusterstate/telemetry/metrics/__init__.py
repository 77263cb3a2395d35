"""Metrics of this process, and their sums over all processes.

::

    families   what is counted, in memory: adding to a counter costs a fraction of a microsecond
    scheduler, apiserver, audit
               the families by kube-scheduler's and kube-apiserver's names, and our own
    (actions.metrics)   each process adds what it counted to the totals, every two seconds
    (queries.metrics)   the totals, and the gauges of the processes that are alive

The totals are rows of PostgreSQL, one for each combination of labels, and processes add to them
(`figures + what I counted since`). So the answer of any web process on any host is the whole
service's, a process that ends takes nothing with it, and no number ever runs backwards: a scrape
first adds what its own process counted, and tells only what is stored. What other processes counted
in the last two seconds may be missing; what a process counted since its last addition is lost when
it is killed, and nobody was ever told of it.

Nothing here queries, and counting never waits for anything but a lock of a few instructions.
"""
