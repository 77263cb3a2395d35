"""Outcomes for the pods that a plan evicts: how many find a node, and in which zones."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from clusterstate.objects.values.meta import Manifest

_TEXTS: Final = {
    "lands": "find a node",
    "unknown": "replaced after the time that the preview covers",
    "held": "held back by a disruption budget",
    "nowhere": "find no node",
    "lost": "not recreated: no controller owns them",
}
"""Possible outcomes for a pod: draw order and label."""


class OutcomeCount(msgspec.Struct, frozen=True):
    """The number of pods with an outcome, and its text.

    ``kind``: lands (on a node), nowhere (no node fits), held (by a budget or brake), lost (nothing
    replaces the pod) or unknown.
    """

    kind: str
    pods: int
    text: str


class ZoneCount(msgspec.Struct, frozen=True):
    """A zone (empty: none), the number of pods that land there, and on how many nodes."""

    zone: str
    pods: int
    nodes: int


def kind_of(entry: Manifest) -> str:
    """Return the outcome's kind of an entry of a plan's ``leaving``."""
    if entry.get("blockedBy"):
        return "held"
    if entry.get("replaced") == "never":
        return "lost"
    landing = entry.get("landing")
    if not landing:
        return "unknown"
    return "lands" if landing.get("nodeName") else "nowhere"


def outcome_counts(leaving: Iterable[Manifest]) -> list[OutcomeCount]:
    """Return the number of pods for each outcome in a plan's ``leaving``."""
    found = Counter(map(kind_of, leaving))
    return [OutcomeCount(kind, found[kind], text) for kind, text in _TEXTS.items() if found[kind]]


def zone_counts(leaving: Iterable[Manifest], zones: Mapping[str, str]) -> Sequence[ZoneCount]:
    """Return the zones where pods land, those with most pods first.

    ``zones``: the nodes' zones, by node name.
    """
    nodes = Counter(one["landing"]["nodeName"] for one in leaving if kind_of(one) == "lands")
    pods: Counter[str] = Counter()
    wide: Counter[str] = Counter()
    for name, many in nodes.items():
        pods[zones.get(name, "")] += many
        wide[zones.get(name, "")] += 1
    order = sorted(pods, key=lambda zone: (-pods[zone], zone))
    return [ZoneCount(zone, pods[zone], wide[zone]) for zone in order]
