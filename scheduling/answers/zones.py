"""The zones at a past revision: their state, their eviction rate, and the nodes that waited.

The node lifecycle stores only the present state of zones (``controllers.nodes``). Past state and
rate are computed from the past nodes, and so are the nodes whose NoExecute taint was delayed. How
many taints could be added at once is unknown. The limits are the present settings.
"""

import msgspec

from clusterstate.objects.values.node import Node
from clusterstate.queries.objects.lists import list_at
from scheduling.controllers.nodes.lifecycle_rules import (
    ZoneState,
    awaits_taint,
    observe,
    zone_rates,
)
from scheduling.controllers.nodes.lifecycle_settings import lifecycle_settings

_decode_node = msgspec.json.Decoder(Node).decode


class PastZones(msgspec.Struct, frozen=True):
    """State and taint rate by zone, and ``waiting``: nodes whose due taint was not added yet."""

    zones: dict[str, tuple[ZoneState, float]]
    waiting: list[str]


def zones_at(revision: int) -> PastZones:
    """Return the state of the zones at a revision. Queries once.

    Raises:
        Expired: the change log does not reach back to the revision.
    """
    nodes = [observe(_decode_node(text)) for text in list_at("Node", revision)]
    zones, all_disrupted = zone_rates(nodes, lifecycle_settings())
    waiting = [one.node.metadata.name for one in nodes if not all_disrupted and awaits_taint(one)]
    return PastZones(zones, waiting)
