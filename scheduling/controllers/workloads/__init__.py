"""Workloads: Deployments, ReplicaSets, DaemonSets and the like, reconciled with their specs.

One follower of the change log processes every namespace in which a workload or a pod changed, or
whose due time has come. Each controller has its rules, which are pure (objects in, actions or
writes out), and a module that carries them out::

    follower           which namespaces to process, in which order, and when again
    deployments        deployment_rules      ReplicaSets by template: roll out, scale, prune
                       deployment_status     counts and conditions of a Deployment
                       deployment_records    read by both: ReplicaSets by template; maxSurge, ...
    replica_sets       replica_set_rules     the number of pods; ReplicationControllers too
    daemon_sets        daemon_set_rules      a pod on each node where it belongs
    stateful_sets      stateful_set_rules    pods with names and an order
    jobs               job_rules             pods that end, up to a number of completions
                       job_policy_rules      the effect of a failure, and when a Job is complete
                       job_scheduling        the Workload and the PodGroup of a Job
                       job_indexes           sets of completion indexes, as a status writes them
    cron_jobs          cron_job_rules        creates Jobs by schedule
    autoscalers        autoscaler_rules      keeps targets within bounds; without metrics
    promptly           the revision of a changed template, before the change is answered
    revisions          revision_rules        former templates, kept for rollbacks
    claims             what a workload owns besides pods: adopted and released by its selector
    control            shared: create and delete pods, adopt, write statuses and events
    world              a namespace's workloads and their pods, as they are now
    pods               a pod as its owner sees it: active, ready, available, worth keeping

Pods on nodes without an agent
------------------------------

A pod becomes Running and Ready when the agent of its node reports it. A node that was only
described over the API has no agent (no Lease in ``kube-node-lease``, no heartbeat in its status),
so none would ever report for its pods. They count as ready as soon as they are bound, unless a
client writes their status, so that a rollout continues without agents; the condition *Available*
says how many pods are counted like this, and how many wait for what.

Which controllers run
---------------------

``STOWAGE_CONTROLLERS`` names them, as kube-controller-manager's ``--controllers`` does. A stock
kube-controller-manager can run the others: the objects are the same.
"""
