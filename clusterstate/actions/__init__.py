"""The only writers: one function for each thing that can happen, one transaction each.

REST, admin, scheduler and controllers all come through here. Time is an argument. Every action
takes revisions and appends to the change log as `clusterstate.change_log.changes` says, and
announces them after the commit.

::

    objects, writing       an object of any kind: ``objects`` is called, a ``Writer`` writes
    pods                   pods: created, bound, refused, deleted
    certificates, events, nodes, quota_writer, roles, services    writers of single kinds
    object_meta, stored, stored_rows                              what writers share
    deletion, collection, namespaces                              how things are deleted
    transactions, deadlocks, partitions                           how tables are written

    scheduler_configuration, canaries, decisions, seals, reservations    what the scheduler keeps
    evictions, eviction_warnings, brakes, paces    who must leave, and what holds that back
    node_heartbeats, usage what nodes' agents report
    quotas, jobs, plans, webhooks                  what is counted, carried out, told
    controller_state, aside, progress, metrics     what loops and controllers keep of themselves

    past, history          the change log is packed, then trimmed; ``past`` is what ``?at=`` reads
    audit_log, archives, housekeeping              what is kept of requests; copies; leftovers
    bootstrap, default_roles                       what every cluster has
    users, people, codes, tokens, account_tokens, agent_tokens, signing_keys
                           who signs in, and with what
"""
