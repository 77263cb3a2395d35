"""Answers that stay open, served on the event loop without a view.

::

    hub              one reader of the change log for all of a process: changes become events,
                     in the order of their revisions
    watch            ``?watch=true``: an open answer with one line for each event
    waiting          ``?waitFor=PodScheduled``: answered when the pod has been decided on
    streams          base of all streams of server-sent events
    events_stream    events of the cluster as server-sent events
    state_metrics    ``/metrics/state``, produced while the client reads
    rights           ends an open answer if its client loses a right
"""
