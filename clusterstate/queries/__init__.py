"""Reads: rows in, plain values out, one module for each noun. Nothing here writes.

Objects come out as JSON bytes: the stored document with its slots filled, unparsed. Lists are
*exact as of a revision*: ``lists.list_page`` answers with the state at the low watermark, so that a
watch from the page's revision misses nothing and repeats nothing, and later pages of the same list
show the same state. Rows written after that revision are replaced by what the change log says they
were before, which is why every change carries the previous version.

::

    objects      objects by name, lists, events, what selects what
    pods         pods, the queue, who waits, who is terminating
    nodes        nodes, the fleet, what agents report
    scheduler    decisions, plans, canaries, reservations
    evictions    timers and brakes
    past         versions before now, trails, who caused what
    loops        what followers and controllers load and keep
    people       tokens, audit log, notices, webhooks
"""
