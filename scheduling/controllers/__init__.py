"""Controllers: each follows the change log and corrects objects, as kube-controller-manager does.

::

    evictions          evicts pods because of NoExecute taints or changed labels; how long a taint
                       is tolerated is in ``clusterstate.objects.rules.eviction``
    nodes              which nodes are alive; which run out of memory, disk or processes
    budgets            the status of PodDisruptionBudgets
    pods               pods that no agent ends, and pods of nodes that are gone
    workloads          Deployments, ReplicaSets and the like: creates and deletes their pods
    endpoints          EndpointSlices and Endpoints of Services
    volumes            claims and volumes: binding, a hollow provisioner, attachments
    garbage            dependents of deleted owners
    namespace_defaults what every namespace has: an account, the certificate authority
    cluster_roles      the rules of ClusterRoles that aggregate others
    runtime_classes    the gate of pods that wait for their RuntimeClass
    quotas             the status of ResourceQuotas
    resizes            resizes that wait for room on nodes without an agent
    operations         applied plans, carried out step by step
    held_places        reserves the new places of pods that a plan moves, before their eviction
    held_steps         which budget, brake or rate holds back a step of an operation
    canaries           rolls back a configuration on trial when its scheduler is silent
    webhooks           the cluster's events, sent to programs over HTTP
    by_namespace       the pass of controllers that work namespace by namespace
    manager            runs the controllers that check for work once a second

A ``rules`` module is pure: it takes state and time, returns a verdict, and names the Kubernetes
file with the rule. The other modules read the log and rows, apply the rules and call actions. A
controller keeps nothing in memory that a restart could lose: cursors, timers and token buckets are
rows.
"""
