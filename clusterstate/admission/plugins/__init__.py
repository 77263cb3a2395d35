"""Admission plugins: one module each, with the name and the rule of Kubernetes' plugin.

A plugin is a function of a `Request`; it edits ``request.manifest`` or raises. `chain.admit` calls
the plugins in Kubernetes' order::

    namespace_lifecycle                        the namespace exists and is not going away
    limit_ranger, resource_quota               LimitRanges; quotas
    service_account                            which account a pod runs as
    priority, runtime_class                    integers and overhead from classes
    default_classes                            DefaultIngressClass, DefaultStorageClass
    default_toleration_seconds                 five minutes on a node that fails
    pod_toleration_restriction                 tolerations that a namespace adds and allows
    extended_resource_toleration               tolerations for special hardware
    dedicated_nodes                            namespaces that own nodes (R124)
    limit_pod_hard_anti_affinity_topology      required anti-affinity by host only
    match_label_keys                           matchLabelKeys become part of selectors
    taint_nodes_by_condition                   a new node is not ready
    node_restriction                           what the credential of a node may change
    pod_resize                                 a resize stays below the size of the node
    device_access                              claims with adminAccess
    storage_object_in_use_protection           finalizers of volumes and claims
    persistent_volume_claim_resize             claims that grow, where their class allows it
    certificate_requests                       who asks for a certificate
"""
