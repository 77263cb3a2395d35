"""The only writers: one function for each thing that can happen, one transaction each.

REST, admin, scheduler and controllers all come through here. Time is an argument. Every action
takes revisions and appends to the change log as `clusterstate.change_log.changes` says, and
announces them after the commit.

::

    objects       create, update and delete an object of any kind: what REST and the admin call
    model_rows    ... and what Django's methods on rows of objects do
    writing       the ``Writer`` behind it, and what all writers share
    kinds         writers of single kinds; pods have a room of their own
    pods          pods: created, bound, refused, deleted
    evictions     eviction timers: set, moved, fired
    brakes        what holds evictions back
    plans         plans: stored, applied, carried out
    scheduler     what the scheduler keeps: configuration, canaries, decisions, reservations
    cluster       changes of many objects, and what every cluster has from the start
    people        who signs in, and with what
    agents        what the agents of nodes report
    webhooks      subscriptions to events
    loops         what loops and controllers keep of themselves
    past          the change log packed and trimmed; backup, audit log, housekeeping
"""
