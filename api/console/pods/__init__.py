"""Pods: listed, created, followed, and why they wait.

::

    pod_list     the list of pods
    pod          a pod: its timeline, decisions, events and YAML
    pod_group    a PodGroup: its pods by level of topology, and what it lacks
    submit       a new pod, by a form, by YAML or by example
    first_run    an empty cluster: example nodes and a pod at the press of a button
    reasons      groups of waiting pods, and a pod's verdicts node by node
"""
