"""Area nodeports: NodePorts, filter and score."""

from tests.conformance.plugin_cases import check

__all__ = ["check"]
