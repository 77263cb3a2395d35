"""The plugin contract: what plugins are called with, what they may answer, and in which order.

    status     codes and reasons            types       pods as requirements, records; FitError
    tables     label columns and counts     node_table  what plugins may read of a snapshot
    formulas   arithmetic of requests       vectors     judgements over rows that plugins share
    interface  extension points, locality   terms       rules stated in numbers for the fast path
    runtime    running plugins: filter_point, binding_points, per_node, answers, outcomes
    configuration                                    profiles as values, read from documents
    events, sampling                                 which events wake pods; how many nodes are read
    reach, footprints                                index from pods to counters; what a bind uses
    volume_table, volume_binder                      claims and volumes; their rules about nodes
    attached_volumes                                 volumes attached to nodes, counted by driver
    volume_hints, device_hints                       which events about them wake which pods
    device_claims                                    claims of devices, and which devices they hold
    group_points                                     running plugins that place groups
    pod_groups                                       the rules of groups: cycle, placements, victims
    handles, v1                                      what plugins may use and may import
    extender_protocol, http_calls                    HTTP services that take part in decisions
    arrays                                           names of the core's array types

``runtime.Framework`` is the main entry: the plugins of one profile. ``engine.reference.cycle``,
``engine.deciding`` and the binder call it. It reads no clock and no database, talks to the network
only for extenders, and reads a snapshot only through ``node_table.NodeTable``.
"""
