"""The group ``stowage.dev``: resources that Kubernetes does not have, each a viewset of its own.

::

    decisions, why                 decisions about a pod; why it waits or is where it is
    decision_search                decisions across pods, listed and exported
    trail, story, audit_view       changes of an object and their authors; the audit log
    plans                          the effects of a change, and the operation that makes it;
                                   brakes, and their approval
    simulations, selections        questions about placement; selectors and their objects
    canaries                       another scheduler configuration on trial
    evictions, permits             eviction timers; pods that wait for Permit plugins
    waiting_times                  how long pods wait, against a goal
    webhooks                       events, sent to programs
"""
