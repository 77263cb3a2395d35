"""The default plugins, one judgement per module; ``catalogue`` makes them from a profile.

Each is vectorised: it judges the rows of the node table that it is given, with Kubernetes' integer
arithmetic. ``tests.reference`` states the same rules once more, node by node, and the tests compare
both. Plugins import no other plugin and nothing of the engine; what they share is in
``framework.vectors`` and ``framework.tables``. Which are on by default, and their weights, is in
``framework.configuration``.

::

    priority_sort, scheduling_gates            which pod is next; which may be tried
    gang_scheduling                            which pods are tried as a group, and when
    node_name, node_unschedulable, node_affinity, taint_toleration, image_locality,
    node_declared_features                     what the node alone says
    node_ports, node_resources_fit, node_resources_balanced_allocation
                                               what is free on the node
    volume_binding, volume_zone, volume_restrictions, node_volume_limits
                                               what the pod's volumes allow
    dynamic_resources                          where devices for the pod's claims are free
    inter_pod_affinity, pod_topology_spread    what other pods say
    default_preemption, default_binder         who would have to leave; how a pod is bound
    held_profile       in place of all plugins of a profile that cannot be used any more
    http_extender      the extenders of a profile, as one plugin
    queueing_hints     for each plugin which events wake a pod that it rejected
    catalogue          makes the plugins of a profile
    installed          plugins of other packages; ``shipped`` has those that come along

A new one: CONTRIBUTING.md for this package, ``docs/plugins.md`` for another.
"""
