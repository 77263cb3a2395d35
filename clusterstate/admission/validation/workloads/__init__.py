"""Kinds with pod templates, and kinds for traffic and configuration of pods.

::

    jobs, job_policies      Jobs, CronJobs, HorizontalPodAutoscalers
    job_status              a Job's status, in a write of the subresource
    pod_groups              PodGroups and Workloads
    statuses                counts in a write of the subresource ``status``
    services, networking    Services; Endpoints, Ingresses, NetworkPolicies, addresses
    configuration           ConfigMaps, Secrets, PodTemplates, ControllerRevisions
"""
