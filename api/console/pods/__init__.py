"""Pods: listed, created, followed, and why they wait.

::

    pod_list     the list of pods
    pod          a pod: its timeline, decisions, events and YAML
    pod_group    a PodGroup: its pods by level of topology, and why it cannot be placed
    submit       a new pod, by a form, by YAML or by example
    first_run    an empty cluster: a button that creates example nodes and a pod
    reasons      groups of pending pods, and a pod's verdicts node by node
"""
