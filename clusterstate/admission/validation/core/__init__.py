"""Rules that all kinds share, and those of nodes, namespaces, quotas, storage and devices.

::

    field, formats, metadata, conditions    how an error is made; names; metadata; conditions
    options, pod_context                    what old pods may keep; the pod around a container
    resources, scheduling, ports            amounts; affinity, tolerations, spreading; ports
    nodes, namespaces, quotas               also LimitRanges
    storage, devices                        storage.k8s.io and resource.k8s.io
    signers                                 names of signers
"""
