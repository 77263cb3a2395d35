"""Controllers: each follows the change log and corrects what it finds, as Kubernetes' ones do.

::

    evictions          pods that NoExecute taints or broken labels send away, and when; how long
                       a taint is tolerated is ``clusterstate.objects.rules.eviction``
    nodes              which nodes are alive; which run out of memory, disk or processes
    budgets            the status of PodDisruptionBudgets
    pods               pods that no agent ends, and pods of nodes that are gone
    workloads          Deployments, ReplicaSets and the like, brought to what they ask for
    endpoints          EndpointSlices and Endpoints of Services, as their pods are
    volumes            claims and their volumes: bound, made by a hollow driver, attached
    garbage            dependents of owners that are gone
    namespace_defaults what every namespace has: an account, the certificate authority
    cluster_roles      the rules of ClusterRoles that aggregate others
    runtime_classes    the gate of pods that wait for their RuntimeClass
    quotas             the status of ResourceQuotas
    resizes            resizes that wait for room on nodes without an agent
    operations         plans that were applied, carried out step by step
    held_places        places that pods which move have before they are asked to leave
    held_steps         which budget, brake or rate a held step of an operation waits for
    canaries           a configuration on trial, given back when its scheduler is silent
    webhooks           the cluster's events, sent to programs over HTTP
    by_namespace       the pass of controllers that work namespace by namespace
    manager            runs the controllers that need a look once a second

A ``rules`` module is pure: state and time in, verdict out, with the Kubernetes file that it
follows. The other modules read the log and rows, ask the rules and call actions. A controller keeps
nothing in memory that a restart could lose: cursors, timers and token buckets are rows.
"""
