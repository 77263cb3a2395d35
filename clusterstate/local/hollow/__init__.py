"""Hollow nodes: agents without machines, over the public HTTP API.

::

    fleet        nodes that register, send heartbeats, report pods, are lost and come back
    pods         the status that a node's agent reports of a pod, and when it changes
    resizes      resizes of running pods: whether they fit or wait
    commands     simulated containers: how long they run, how they end, their files
    directories  the content of node directories that pods mount
    probes       results of a container's probes: when it is ready, when it is killed
    shell        the outcome of a small shell script
    devices      devices of nodes, and their ResourceSlices
    addresses    addresses of nodes and of pods
    connection   HTTP/1.1 on kept connections, and watches

A fleet is a client like any other: one token, a few connections, one watch for all nodes.
docs/hollow-nodes.md describes how to use hollow nodes and pods.
"""
