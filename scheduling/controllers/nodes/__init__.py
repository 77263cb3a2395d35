"""Nodes: which are alive, and which run out of memory, disk or processes.

``lifecycle`` turns silence into conditions and conditions into taints; ``pressure`` ranks and fails
pods of nodes under pressure. ``lifecycle_rules`` and ``pressure_rules`` are pure; ``limits`` are
the grace periods and rates from the settings.
"""
