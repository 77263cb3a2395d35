"""Hollow nodes: agents without machines, over the public HTTP API.

::

    fleet        nodes that register, send heartbeats, look after their pods, are lost and come back
    pods         what the agent of a node reports of a pod, and when that changes by itself
    resizes      how a pod that runs is resized: what fits, what waits
    commands     what a container does: how long it runs, how it ends, what it leaves
    directories  what is in a node's directories that its pods mount
    probes       what the probes of a container find: when it is ready, when it is killed
    shell        what comes of a small shell script
    devices      what devices nodes have, and the ResourceSlices that say so
    addresses    which address a node has, and which its pods have
    connection   HTTP/1.1 on kept connections, and watches

A fleet is a client like any other: one token, a few connections, one watch for all nodes. What can
be asked of hollow nodes and pods is in docs/hollow-nodes.md.
"""
