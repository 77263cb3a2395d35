"""PodDisruptionBudgets: ``statuses`` follows pods and budgets, ``rules`` computes a status.

Evictions are charged elsewhere: by ``clusterstate.actions.pods.evict``, in the transaction of the
eviction, with the rule of ``clusterstate.objects.rules.disruption``.
"""
