"""The default plugins, one per module; ``catalogue`` builds those of a profile.

Each is vectorised: it filters or scores many rows of the node table at once, with Kubernetes'
integer arithmetic. ``tests.reference`` states the same rules once more, node by node, and the tests
compare both. Plugins import no other plugin and nothing of the engine; what they share is in
``framework.vectors`` and ``framework.tables``. Which are on by default, and their weights, is in
``framework.configuration``.

::

    priority_sort, scheduling_gates            the order of the queue; which pods may enter it
    gang_scheduling                            which pods are tried as a group, and when
    node_name, node_unschedulable, node_affinity, taint_toleration, image_locality,
    node_declared_features                     rules about the node alone
    node_ports, node_resources_fit, node_resources_balanced_allocation
                                               what is free on the node
    volume_binding, volume_zone, volume_restrictions, node_volume_limits
                                               rules about the pod's volumes
    dynamic_resources                          which nodes have free devices for the pod's claims
    inter_pod_affinity, pod_topology_spread    rules about other pods
    default_preemption, default_binder         which pods to preempt; how a pod is bound
    held_profile       in place of all plugins of a profile that cannot be used any more
    http_extender      the extenders of a profile, as one plugin
    queueing_hints     for each plugin which events wake a pod that it rejected
    catalogue          makes the plugins of a profile
    installed          plugins of other packages; ``shipped`` has those in this distribution

A new one: CONTRIBUTING.md for this package, ``docs/plugins.md`` for another.
"""
