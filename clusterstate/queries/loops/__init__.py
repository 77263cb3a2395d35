"""Reads of loops and controllers: their own state, and what they load at the start.

::

    controllers                     state of controllers between passes
    loading                         what followers of the change log load first
    metrics                         totals and gauges of all processes
    state_metrics, state_families   metrics of objects by kube-state-metrics' names
"""
