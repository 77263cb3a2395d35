"""Which pods must leave their node, and by when: the rules applied to many pods at once.

``departures`` and ``broken`` judge by the taints and labels in the rows, for the timers;
``departures_under`` and ``broken_under`` judge by taints and labels in their arguments, which a
plan predicts (``scheduling.answers.plans``). The rules (``objects.rules.eviction``) are applied
once for each pair of node and scheduling class, not for each pod.
"""

from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta

import msgspec
from django.conf import settings

from clusterstate.actions.evictions import Departure
from clusterstate.objects.rules import eviction
from clusterstate.objects.rules.eviction import Countdown, Rules
from clusterstate.objects.values.node import Taint
from clusterstate.objects.values.pod import Pod
from clusterstate.processes import memory
from clusterstate.queries.nodes import no_execute_taints, node_labels
from clusterstate.queries.pods.stays import ClassOnNode, Stay, class_specs

_CLASSES = 100_000
_decode_pod = msgspec.json.Decoder(Pod).decode


_classes: dict[int, Rules] = {}
memory.when_replaced(_classes.clear)


def rules_by_class(class_ids: Iterable[int]) -> Mapping[int, Rules]:
    """Return the classes' rules; queries for those not cached."""
    ids = set(class_ids)
    rules_of = {id_: rules for id_ in ids if (rules := _classes.get(id_)) is not None}
    missing = ids - rules_of.keys()
    if missing:
        specs = class_specs(sorted(missing))
        found = {id_: eviction.rules_of(_decode_pod(spec)) for id_, spec in specs.items()}
        rules_of |= found
        if len(_classes) > _CLASSES:
            _classes.clear()
        _classes.update(found)
    return rules_of


def departures(stays: Sequence[Stay]) -> list[Departure]:
    """Return by when pods must leave their nodes because of taints. Queries 1-2 times.

    The rules are applied once for all pods of a class on a node.
    """
    if not stays:
        return []
    taints = no_execute_taints(sorted({stay.node_name for stay in stays}))
    rules = rules_by_class(stay.class_id for stay in stays if stay.node_name in taints)
    return departures_under(stays, taints, rules)


def departures_under(
    stays: Sequence[Stay],
    taints: Mapping[str, Sequence[Taint]],
    rules: Mapping[int, Rules],
) -> list[Departure]:
    """Return by when pods must leave their nodes if these are the nodes' taints.

    Args:
        stays: pods on their nodes.
        taints: by node, of nodes that have some; taints other than NoExecute are ignored.
        rules: by class; pods of other classes are ignored.
    """
    counted: dict[ClassOnNode, tuple[Countdown, ...]] = {}
    result = []
    for stay in stays:
        on_node = taints.get(stay.node_name)
        if on_node is None or stay.class_id not in rules:
            continue
        place = stay.place
        if place not in counted:
            counted[place] = eviction.countdowns(
                rules[place.class_id].tolerations, on_node, added_at=_LONG_AGO
            )
        found = eviction.deadline(counted[place], stay.bound_at)
        if found is not None:
            result.append(
                Departure(
                    place=place,
                    pod_id=stay.pod_id,
                    started_at=found.started_at,
                    due_at=found.due_at,
                    seconds=found.seconds,
                    taint_key=found.taint.key,
                    taint_effect=found.taint.effect,
                )
            )
    return result


# Every NoExecute taint gets a time when it is written; one without counts as very old.
_LONG_AGO = datetime(1970, 1, 1, tzinfo=UTC)


def broken(places: Sequence[ClassOnNode]) -> set[ClassOnNode]:
    """Return the places whose node exists and no longer matches the class' terms (R3).

    Queries 1-2 times. Pods of missing nodes are left to ``podgc``.
    """
    if not places:
        return set()
    labels = node_labels(sorted({place.node_name for place in places}))
    return broken_under(places, labels, rules_by_class(place.class_id for place in places))


def broken_under(
    places: Iterable[ClassOnNode],
    labels: Mapping[str, Mapping[str, str]],
    rules: Mapping[int, Rules],
) -> set[ClassOnNode]:
    """Return the places whose affinity terms do not match nodes with these labels."""
    return {
        place
        for place in places
        if place.class_id in rules
        and place.node_name in labels
        and eviction.is_broken(rules[place.class_id], place.node_name, labels[place.node_name])
    }


def _grace() -> timedelta:
    return timedelta(seconds=settings.REQUIRED_DURING_EXECUTION_GRACE_SECONDS)


def departures_by_labels(
    places: Sequence[ClassOnNode], at: Mapping[str, datetime], now: datetime
) -> list[Departure]:
    """Return departures from places whose terms no longer match, from when the labels changed."""
    grace = _grace()
    result = []
    for place in sorted(broken(places), key=lambda one: (one.node_name, one.class_id)):
        started_at = at.get(place.node_name, now)
        result.append(
            Departure(
                place=place,
                started_at=started_at,
                due_at=started_at + grace,
                seconds=int(grace.total_seconds()),
            )
        )
    return result
