"""Workloads: Deployments, ReplicaSets, DaemonSets and the like are brought to what they ask for.

One follower of the change log looks at every namespace in which a workload or a pod changed, or in
which something is due by the time. Each controller has its rules, which are pure (what there is in,
what is wanted out), and a module that carries them out::

    follower           which namespaces to look at, in which order, and when again
    deployments        deployment_rules      ReplicaSets by template: roll out, scale, forget
                       deployment_status     counts and conditions of a Deployment
                       deployment_records    what both read of a Deployment and its ReplicaSets
    replica_sets       replica_set_rules     as many pods as asked for; ReplicationControllers too
    daemon_sets        daemon_set_rules      a pod on each node where it belongs
    stateful_sets      stateful_set_rules    pods with names and an order
    jobs               job_rules             pods that end, as often as asked for
                       job_policy_rules      what a failure means, and when enough is done
                       job_scheduling        the Workload and the PodGroup of a Job
                       job_indexes           sets of completion indexes, as a status writes them
    cron_jobs          cron_job_rules        Jobs, whenever a schedule comes round
    autoscalers        autoscaler_rules      targets within their bounds; nobody measures
    promptly           the revision of a changed template, before the change is answered
    revisions          revision_rules        former templates, kept to be brought back
    claims             what a workload owns besides pods: adopted and let go by its selector
    control            what all of them do: create and delete pods, adopt, write statuses and events
    world              a namespace's workloads and their pods, as they are now
    pods               what a pod is to its owner: active, ready, available, worth keeping

Pods on nodes without an agent
------------------------------
A pod becomes Running and Ready when the agent of its node says so; nothing here says it. A node
that was only described over the API has no agent (no Lease in ``kube-node-lease``, no heartbeat in
its status), and no agent would ever report for its pods. They count as ready from the moment they
are bound, as long as no client writes their status, so that a rollout goes on in a world without
agents; the condition *Available* says how many pods are counted like this, and how many wait for
what.

Who takes part
--------------
``STOWAGE_CONTROLLERS`` names who works, as kube-controller-manager's ``--controllers`` does. What
is left out here can be done by a stock kube-controller-manager: the objects are the same.
"""
