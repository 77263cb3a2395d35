"""The fleet and its nodes.

::

    fleet_map     all nodes on one map; waiting and leaving pods, decisions
    node_list     the list of nodes
    node          a node: its pods, conditions, timers and history, and the editors
    devices       pools of devices, who has each, and the claims of a pod
    throughput    latency and throughput of the last hour, drawn on the server
"""
