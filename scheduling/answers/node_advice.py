"""Answers a ``NodeAdvice``: which nodes to add for waiting pods of the live cluster."""

from collections.abc import Callable, Hashable
from typing import Final

from clusterstate.objects.values.errors import INVALID, FieldError, Invalid, StatusError
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.pods.waiting import waiting
from scheduling.answers.live import LiveBase, LiveWorld
from scheduling.answers.present import Present
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.outcomes import PluginFailed
from scheduling.framework.types import group_key
from scheduling.packing.facts import Seeker
from scheduling.simulation.document import API_VERSION, GROUP
from scheduling.simulation.node_advice import MOST_PODS, Advice, Offer, advise
from scheduling.simulation.node_advice_document import (
    KIND,
    SOLVED,
    bound_answer,
    frontier_answer,
    nodes_answer,
    read,
)
from scheduling.simulation.node_exchange import frontier


def node_advice(world: LiveWorld, document: object) -> Manifest:
    """Return the cheapest nodes found with which the most waiting pods fit.

    ``status``: ``nodes`` (``name``, ``count``, ``price``), ``price``, ``pods`` (that fit then),
    ``places`` (each one's new node), ``frees``, ``of``, ``bound``, ``schedulerAlone``. If the
    question has prices of existing nodes, also ``remove``, ``moves``, ``cost``, ``frontier`` and
    ``map``. Queries four times and more.

    Raises:
        Invalid: with every wrong field.
        ServiceUnavailable: nodes may be removed, and the solver is not installed.
    """
    spec, offers, prices = read(document)
    present = Present(world)
    framework = present.framework(spec.scheduler_name)
    if framework is None:
        wrong = FieldError(
            INVALID, "spec.schedulerName", spec.scheduler_name, "no profile has this name"
        )
        raise Invalid(KIND, "", [wrong], GROUP)
    rows = waiting(spec.namespace)
    pods = present.queue(spec.scheduler_name, rows)[:MOST_PODS]
    names: dict[Hashable, str] = {row.id: f"{row.namespace}/{row.name}" for row in rows}
    snapshot = present.snapshot
    try:
        if prices is None:
            bought = advise(
                snapshot, framework, pods, offers,
                most=spec.most_nodes, nominate=spec.nominate, go_on=world.go_on,
            )  # fmt: skip
            status = _bought(bought, offers, snapshot, names.__getitem__)
        else:
            found = frontier(
                snapshot,
                [Seeker(pod.key, pod.info, framework) for pod in pods],
                offers,
                frameworks=present.frameworks(),
                prices=prices,
                most=spec.most_nodes,
                most_moves=spec.most_moves,
                go_on=world.go_on,
            )
            moving = [move.key for move in found.exchanges[found.chosen].packing.moves]
            names |= LiveBase(world, snapshot).pod_names(moving)
            status = frontier_answer(found, offers, len(pods), lambda key: names.get(key, ""))
    except PluginFailed as failure:
        raise StatusError(failure.status.message) from failure
    status["revision"] = str(world.revision)
    members = sum(group_key(pod.info.pod) is not None for pod in pods)
    if members and framework.schedules_groups:
        text = f"{members} pods belong to PodGroups, but each is placed by itself here"
        status["warnings"] = [text]
    return {"apiVersion": API_VERSION, "kind": KIND, "status": status}


def _bought(
    found: Advice, offers: list[Offer], snapshot: Snapshot, title: Callable[[Hashable], str]
) -> Manifest:
    """Return the answer if nodes are only added; ``snapshot``: the cluster without them."""
    placed = [(title(key), name) for key, name in found.placed if snapshot.row_of(name) is None]
    return {
        **nodes_answer(placed, offers, found.names),
        "frees": len(found.placed) - found.before,
        "of": found.waiting,
        "fitAnyway": found.before,
        "schedulerAlone": found.alone - found.before,
        "bound": bound_answer(found.price, found.least),
        "method": _GREEDY if found.least is None else SOLVED,
    }


_GREEDY: Final = "greedy: a cheaper choice of nodes may exist; proved by placing the pods"
