"""Kubernetes' kinds over HTTP: one viewset serves every kind of the registry.

::

    views        base of all views: the steps of a request
    viewsets     objects of all kinds, single ones and collections. Reads with ``?at=`` find the
                 revision by ``clusterstate.queries.past``
    subresources  the complete viewset of all kinds, with subresources
    routers      which action serves which path
    deletions    answers and warnings of deletions
    own          base of ``api.stowage``: resources without a kind in the registry
    bindings     binding pods, one or many
    scale        the subresource ``scale``
    mixed_lists  a ``List`` of objects of any kinds, created together
    containers   logs, processes and ports of containers: each request refused with a reason
    component_statuses  the state of the components, for ``kubectl get cs``
    reviews      reviews: the user of a token, and the rights of users
    foretelling  dry runs of a pod's creation: the node where the pod would be placed
"""
