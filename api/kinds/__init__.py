"""Kubernetes' kinds over HTTP: every kind of the registry by one viewset.

::

    views        what all views share: the way of a request
    viewsets     objects of all kinds, single ones and collections. Reads with ``?at=`` ask
                 ``clusterstate.queries.past`` which revision that was
    subresources  ... and their subresources: the viewset of all kinds, whole
    routers      which action serves which path
    deletions    what a client is told of a deletion, and of one that it did not spell out
    own          resources that no kind of the registry has: the base of ``api.stowage``
    bindings     binding pods, one or many
    scale        the subresource ``scale``
    mixed_lists  a ``List`` of objects of any kinds, created together
    containers   logs, processes and ports of containers: each request refused with a reason
    component_statuses  whether the components work, for ``kubectl get cs``
    reviews      questions about who a user is and what the user may do
    foretelling  the warnings of a dry run of a pod's creation: where the pod would be placed
"""
