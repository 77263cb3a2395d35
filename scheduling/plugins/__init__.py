"""The default plugins, one judgement per module; ``catalogue`` makes them from a profile.

Each is vectorised: it judges the rows of the node table that it is given, with Kubernetes' integer
arithmetic. ``tests.reference`` states the same rules once more, node by node, and the tests compare
both. Plugins import no other plugin and nothing of the engine; what they share is in
``framework.vectors`` and ``framework.tables``.
"""
