"""Rules about objects: which pod may go where, what it asks for, who must leave, who owns what.

::

    matching, selections          taints and tolerations, node selectors; what selectors select
    resources, resizing, usage    what a pod asks for; resizes in place; what a quota counts
    scheduling_class, footprint   what of a pod decides where it goes; what a bind relies on
    stated_terms                  what of a pod a reason of the scheduler is about
    glances                       a summary of one pod version, for the fleet's past
    eviction, disruption          when a pod must leave a node; what a disruption budget is charged
    node_taints, node_edits       taints for a node's state; cordon, taint, label, resize
    declared_features             what a node must have declared to take a pod
    pod_references                objects that a pod or a volume names
    volume_matching               which volume suits a claim
    csi_migration                 in-tree volumes as volumes of CSI drivers
    job_groups                    of which Jobs no group is made
    ownership, templates          owners and garbage collection; which templates are equal
    default_classes               which IngressClass or StorageClass is the default
    own_annotations               annotations of this service, and which of them mean nothing
    event_names, event_rules      Events as events.k8s.io names and checks them
    audit_policy, webhook_targets what is audited; where webhooks may send
"""
