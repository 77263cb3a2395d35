"""Nodes: which are alive, and which run out of memory, disk or processes.

Who puts which taint on a node:

* ``not-ready:NoSchedule`` on a new node: the admission plugin ``taint_nodes_by_condition``;
* NoSchedule for a condition or a cordon: ``clusterstate.objects.rules.node_taints``, with the write
  that changes it, and ``lifecycle_rules`` for every node at each pass;
* NoExecute for a node that is not ready or silent: ``lifecycle_rules``, as fast as the zone's rate
  allows; when a node changes from one to the other, ``node_taints`` replaces the taint.

``lifecycle`` sets conditions of silent nodes and taints for conditions; ``pressure`` ranks and
fails pods of nodes under pressure. ``lifecycle_rules`` and ``pressure_rules`` are pure;
``lifecycle_settings`` reads the grace periods and rates from the settings.
"""
