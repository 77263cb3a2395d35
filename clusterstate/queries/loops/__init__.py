"""What loops and controllers read about themselves and when they begin.

::

    controllers                     what controllers keep between passes
    loading                         what followers of the change log load first
    metrics                         totals and gauges of all processes
    state_metrics, state_families   metrics of objects by kube-state-metrics' names
"""
