"""The registry of kinds: what is stored and served, with the types and fields of each kind.

::

    kinds, stored_kinds    the registry: one entry for each kind
    kind                   what an entry says: names, rows, how the kind is written
    strategies             what a write does to the manifests of one kind
    columns                the values of a kind's own columns
    wire_types             Kubernetes' types as Structs (generated: wire_types.json)
    inspected              the fields of these types, by msgspec's inspection
    schema                 whether the fields of a manifest exist and have the right JSON type
    fields                 field selectors
    quantity_places        where amounts stand in the objects of each kind
    silent_fields          fields that are stored and have no effect, with the warning for each
    first_autoscalers      HorizontalPodAutoscalers of autoscaling/v1
    older_pod_groups       PodGroups and Workloads of scheduling.k8s.io/v1alpha3 and v1alpha2
    devices                how the devices of a ResourceClaim's status are told apart
"""
