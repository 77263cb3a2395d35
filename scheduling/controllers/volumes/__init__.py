"""Volumes and claims: bound to each other, made by a hollow driver, given back, grown.

::

    follower     looks at claims and volumes when something changed, or a time has come
    binding      the fate of a claim or a volume (``pv_controller.go``); pure
    hollow       the driver ``stowage.dev/hollow``: volumes that exist on paper; pure

A claim and its volume are bound in one transaction; kube-controller-manager needs four writes, and
what it leaves half done this one finishes, and the other way round. A claim whose class waits for
its first consumer is left to the scheduler, which names the node (``scheduling.plugins.
volume_binding``) or the volume. Provisioners other than the hollow one are told what they are to
make by Kubernetes' annotations, and make it themselves.
"""
