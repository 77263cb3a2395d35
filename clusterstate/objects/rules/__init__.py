"""Rules about objects: where pods may go, their requests, evictions, ownership.

::

    matching, selections          taints and tolerations, node selectors; selected objects
    resources, resizing, usage    requests of a pod; resizes in place; usage in quotas
    scheduling_class, footprint   what of a pod decides where it goes; what a bind relies on
    stated_terms                  the terms of a pod behind a reason of the scheduler
    glances                       a summary of one pod version, for the fleet's past
    eviction, disruption          when a pod must leave a node; charges of disruption budgets
    node_taints, node_edits       taints for a node's state; cordon, taint, label, resize
    declared_features             features that a node must declare to take a pod
    pod_references                objects that a pod or a volume names
    volume_matching               which volume suits a claim
    csi_migration                 in-tree volumes as volumes of CSI drivers
    job_groups                    Jobs for which no group is made
    ownership, templates          owners and garbage collection; which templates are equal
    default_classes               which IngressClass or StorageClass is the default
    own_annotations               annotations of this service, and warnings about useless ones
    event_names, event_rules      Events as events.k8s.io names and checks them
    audit_policy, webhook_targets what is audited; where webhooks may send
"""
