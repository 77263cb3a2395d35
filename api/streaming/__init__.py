"""Answers that stay open, served on the event loop without a view.

::

    hub              one reader of the change log for all of a process: changes become events,
                     in the order of their revisions
    watch            ``?watch=true``: an open answer with one line for each event
    waiting          ``?waitFor=PodScheduled``: answered when the pod has been decided on
    streams          server-sent events: what every such stream shares
    events_stream    what happens, as server-sent events
    state_metrics    ``/metrics/state``, written while it is read
    rights           such an answer ends when its client may not have it any more
"""
