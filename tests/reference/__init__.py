"""Every scheduling rule as a plain statement about one pod and one node.

This package is what a person reads to understand a rule, and what the property tests and the
conformance cases hold the vectorised engine against. It is written for clarity: no arrays, no
caches, no shared state. One module per plugin of Kubernetes v1.36; ``cluster`` is the world they
look at; ``scheduler`` runs them in order for one pod and makes the decision, ``default_preemption``
says whom a pod may displace.

Each plugin is a small class over ``rule.Rule`` with the extension points that it has. The live
scheduler uses nothing of this package.
"""
