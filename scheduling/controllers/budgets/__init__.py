"""PodDisruptionBudgets: ``statuses`` follows pods and budgets, ``rules`` computes a status.

Nothing is charged here: ``clusterstate.actions.pods.evict`` does that, in the transaction of the
eviction, by ``clusterstate.objects.rules.disruption``.
"""
