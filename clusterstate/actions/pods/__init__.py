"""Pods: create, bind, fail to place, update, delete; single ones and thousands at a time.

The statements that a scheduling service runs all day. Each is one statement for one pod or a
thousand: arrays are sent in binary and unnested, CTEs write documents, rows, queue and log, and the
answer takes one round trip.

::

    writer      the ``Writer`` of pods, for requests of the API
    create      new pods, ``preparing`` (through admission) -> one statement
    bind        pods to nodes: the scheduler's batches, a client's Binding
    queue       why pods were not placed, nominated nodes, places in the queue
    delete      gracefully, and for good; ``evict`` asks the disruption budget first
    places      held for pods that move, handed over to their replacements
    together    groups whose pods leave together
    resize      requests of pods, changed in place; nodes without an agent
    rewrite     the service's own changes of a manifest; ``status`` of a status
    versions    locking pods, writing new versions, removing rows
    classes     scheduling classes, found or created
    clauses     parts that the statements share

Who else places pods, and when a bind is refused
------------------------------------------------

The scheduler decides on a snapshot and binds in batches. Clients place pods too: a pod may be
created with ``spec.nodeName``, a client may POST a Binding, a node may change what it offers. These
*foreign placements* take the placement lock shared and set the node's ``placement_revision``.
``bind_pods`` takes the lock exclusively *in a statement before* the one that binds, so that the
latter's snapshot contains every foreign placement that is not waiting, and binds only to nodes
whose ``placement_revision`` its snapshot included. Two schedulers guard against each other in the
same way by the first row of ``binder``: a scheduler that did not bind last must have followed the
last bind. Several schedulers at work have weaker conditions (``bind``).
"""
