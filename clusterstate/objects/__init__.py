"""Plain values: what Kubernetes objects mean, without any storage.

This package plays the role of ``k8s.io/api`` plus ``component-helpers``. It imports no Django, no
database driver and no scheduler, so that admission, the decision core, the API and the tests all
share one meaning of a quantity, a selector or a toleration.

Two views of an object exist. The *manifest* is the JSON document as a ``dict``: it is stored as
received and defaulted, with canonical amounts and without unknown fields. The *lens* is a frozen
``msgspec.Struct`` (``pod.Pod``, ``node.Node``, ...) over the part that decisions need:
``msgspec.convert(manifest, Pod)`` or ``msgspec.json.decode(text, type=Pod)``. A lens is never
written back.

::

    kinds, stored_kinds, kind, columns, strategies    the registry: what is stored and served
    wire_types, inspected          the types of JSON documents, and what they consist of
    schema, fields, silent_fields  the fields of each kind
    pod, node, workloads, meta     lenses
    node_taints, node_edits, pod_references, shapes    rules about nodes and pods
    templates                      which templates of pods are equal
    quantity, quantity_places, resources, usage    amounts; where they stand; what a pod asks for;
                                   what counts in a quota
    labels, matching, selections   selectors; taints and tolerations; what selects what
    resizing                       what a node has set aside for a pod that is resized
    scheduling_class, footprint    what matters of a pod to where it goes; what a bind relies on
    glances                        what a version of a pod tells of the fleet
    eviction, ending, disruption   who must leave by when, and why; what a budget is charged
    document, reading              stored JSON; texts from outside
    protobuf, protobuf_fields, protobuf_meta, protobuf_values    the same objects in protobuf
    patching, managed_fields, field_sets        patches, apply, and who wrote which field
    ownership, actor, causes       who owns an object; who changed it, and what for
    addresses, cron, first_autoscalers          rules of Services, CronJobs, autoscalers
    int_or_percent                 bounds of budgets and rollouts: numbers or percentages
    devices, default_classes                    of device claims; which class is the default
    event_names, event_rules, audit_policy, webhook_targets    Events, the audit log, webhooks
    errors, moments                what can be wrong; times that never overflow
    remembered, numbers            results of functions of short texts; numbers that are texts
"""
