"""The zones at a past revision: their state, their eviction rate, and the nodes that waited.

The node lifecycle keeps of its zones only how they are (``controllers.nodes``). State and rate
follow from the nodes alone, and whose NoExecute taint waited is seen in them; how many taints were
left at once is not. The limits are those that are set now.
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
    """State and rate of taints by zone, and ``waiting``: nodes that still lack a due taint."""

    zones: dict[str, tuple[ZoneState, float]]
    waiting: list[str]


def zones_at(revision: int) -> PastZones:
    """Return the state of the zones at a revision. Queries once.

    Raises:
        Expired: that is no longer known.
    """
    nodes = [observe(_decode_node(text)) for text in list_at("Node", revision)]
    zones, all_disrupted = zone_rates(nodes, lifecycle_settings())
    waiting = [one.node.metadata.name for one in nodes if not all_disrupted and awaits_taint(one)]
    return PastZones(zones, waiting)
