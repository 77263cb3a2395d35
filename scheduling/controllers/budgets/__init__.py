"""PodDisruptionBudgets: ``statuses`` follows pods and budgets, ``rules`` computes a status."""
