"""The only writers: one function for each write, one transaction each.

REST, admin, scheduler and controllers all call these. Time is an argument. Every action takes
revisions and appends to the change log as described in `clusterstate.change_log.changes`, and
announces them after the commit.

::

    objects       create, update and delete an object of any kind: called by REST and the admin
    model_rows    ... and by Django's save() and delete() of rows of objects
    writing       the ``Writer`` behind it, and what all writers share
    kinds         writers of single kinds; pods have a package of their own
    pods          pods: created, bound, refused, deleted
    evictions     eviction timers: set, moved, fired
    brakes        hold evictions back
    plans         plans: stored, applied, carried out
    scheduler     the scheduler's state: configuration, canaries, decisions, reservations
    cluster       changes of many objects, and the initial objects of every cluster
    people        users, their tokens and one-time codes
    agents        reports of node agents
    webhooks      subscriptions to events
    loops         state of loops and controllers
    past          the change log packed and trimmed; backup, audit log, housekeeping
"""
