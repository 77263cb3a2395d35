"""Rules for all kinds, and those of nodes, namespaces, quotas, storage and devices.

::

    field, formats, metadata, conditions    constructors of errors; names; metadata; conditions
    options, pod_context                    exceptions for old pods; the pod of a container
    resources, scheduling, ports            amounts; affinity, tolerations, spreading; ports
    nodes, namespaces, quotas               also LimitRanges
    storage, devices                        storage.k8s.io and resource.k8s.io
    signers                                 names of signers
"""
