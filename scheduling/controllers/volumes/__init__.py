"""Volumes and claims: bound to each other, provisioned by a hollow driver, released, resized.

::

    follower     processes claims and volumes when something changed, or a due time has come
    binding      rules for the next state of a claim or a volume (``pv_controller.go``); pure
    hollow       the driver ``stowage.dev/hollow``: volumes that exist on paper; pure

A claim and its volume are bound in one transaction; kube-controller-manager needs four writes, and
each of the two finishes what the other left half done. A claim whose class waits for its first
consumer is left to the scheduler, which names the node (``scheduling.plugins.volume_binding``) or
the volume. Other provisioners than the hollow one get their task by Kubernetes' annotations.
"""
