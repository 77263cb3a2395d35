"""The group ``stowage.dev``: what Kubernetes does not have, each resource a viewset of its own.

::

    decisions, why                 what was decided about a pod; why it waits or is where it is
    decision_search                decisions across pods, listed and exported
    trail, story, audit_view       what happened to an object and who did it; the audit log
    plans                          what a change will do, and the operation that makes it;
                                   brakes, and approving one
    simulations, selections        questions about placing that store nothing; what selects what
    canaries                       another scheduler configuration on trial
    evictions, permits             who must leave and when; pods that Permit plugins keep waiting
    waiting_times                  how long pods wait, against a goal
    webhooks                       programs that are told of events
"""
