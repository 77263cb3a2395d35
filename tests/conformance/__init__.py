"""Conformance with Kubernetes: recorded inputs and outputs of its own tests, by area."""


class Skip(Exception):
    """The case cannot be judged; the message says why."""
