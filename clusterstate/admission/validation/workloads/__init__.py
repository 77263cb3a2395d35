"""Kinds that are made of pod templates, or lead traffic and configuration to pods.

::

    jobs, job_policies      Jobs, CronJobs, HorizontalPodAutoscalers
    job_status              a Job's status that is written by itself
    pod_groups              PodGroups and Workloads
    statuses                counts in a status that is written by itself
    services, networking    Services; Endpoints, Ingresses, NetworkPolicies, addresses
    configuration           ConfigMaps, Secrets, PodTemplates, ControllerRevisions
"""
