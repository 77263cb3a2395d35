"""Reads: functions that return rows as plain values, one module for each noun. Nothing here writes.

Objects are returned as JSON bytes: the stored document with its slots filled, unparsed. Lists are
*exact as of a revision*: ``lists.list_page`` returns the state at the low watermark, so that a
watch from the page's revision misses nothing and repeats nothing, and later pages of the same list
show the same state. For rows written after that revision the change log has the previous version,
which is why every change includes it.

::

    objects      objects by name, lists, events, selections
    pods         pods, the queue, waiting and terminating pods
    nodes        nodes, the fleet, reports of agents
    scheduler    decisions, plans, canaries, reservations
    evictions    timers and brakes
    past         versions before now, trails, causes of changes
    loops        what followers and controllers load and store
    people       tokens, audit log, notices, webhooks
"""
