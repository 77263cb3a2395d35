"""Changes of many objects at once, and the initial objects of every cluster.

::

    bootstrap, default_roles    namespaces, classes, roles and bindings of a new cluster
    namespaces                  deleting a namespace with its content
    collection                  deleting all objects that selectors match
    jobs                        counting the pods of Jobs that ended
"""
