"""Which nodes to add for the pods that wait: a ``NodeAdvice`` document in, the answer out."""

import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from clusterstate.admission.defaults import set_defaults
from clusterstate.objects.values.errors import (
    INVALID,
    REQUIRED,
    FieldError,
    Invalid,
    StatusError,
)
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.node import Node
from clusterstate.objects.values.quantity import QuantityError, value
from clusterstate.queries.pods.waiting import Waiting, waiting
from scheduling.answers.live import LiveBase, LiveWorld
from scheduling.answers.present import Present
from scheduling.engine.reference.cycle import PodToPlace
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.configuration import reading
from scheduling.framework.outcomes import PluginFailed
from scheduling.framework.types import group_key
from scheduling.packing.facts import Seeker
from scheduling.simulation import packing
from scheduling.simulation.document import API_VERSION, GROUP, type_error
from scheduling.simulation.node_advice import (
    DEFAULT_NODES,
    LARGEST_NODES,
    MOST_PODS,
    MOST_SHAPES,
    Advice,
    Offer,
    advise,
)
from scheduling.simulation.node_exchange import frontier
from scheduling.simulation.packing import Prices

KIND: Final = "NodeAdvice"
_DEFAULT_PROFILE: Final = "default-scheduler"
_USUAL_PODS: Final = "110"
"""Pods that a node of the catalogue takes where it does not say (kubelet's default)."""


class Spec(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The question: the waiting pods, the catalogue of node types, and the most nodes to add.

    ``namespace``: only its pods; empty for all. ``catalogue``: ``{name, price, node}`` each, and
    ``limit`` where only this many of a shape can be had. ``nominate``: whether pods will be held to
    the nodes that the answer tells; else the scheduler must find them by itself. ``prices`` (of the
    nodes there are), ``movePrice``, ``movePrices``: with these, nodes may be removed as well
    (``packing.read_prices``); ``mostMoves``: pods that move at most.
    """

    catalogue: list[Any] = []
    namespace: str = ""
    scheduler_name: str = _DEFAULT_PROFILE
    most_nodes: int = DEFAULT_NODES
    nominate: bool = True
    prices: list[Any] = []
    move_price: Any = 0
    move_prices: list[Any] = []
    most_moves: int | None = None


def node_advice(world: LiveWorld, document: object) -> Manifest:
    """Return the cheapest nodes found with which the most waiting pods find room.

    ``status``: ``nodes`` (``name``, ``count``, ``price``), ``price``, ``pods`` (that find room with
    them), ``places`` (on which new node each), ``frees``, ``of``, ``bound``, ``schedulerAlone``.
    With prices of the nodes there are also ``remove``, ``moves``, ``cost``, ``frontier`` and
    ``map``.
    Queries four times and more.

    Raises:
        Invalid: with every wrong field.
        ServiceUnavailable: nodes may be removed, and there is no solver.
    """
    spec, offers, prices = _read(document)
    present = Present(world)
    framework = present.framework(spec.scheduler_name)
    if framework is None:
        wrong = FieldError(
            INVALID, "spec.schedulerName", spec.scheduler_name, "no profile has this name"
        )
        raise Invalid(KIND, "", [wrong], GROUP)
    rows = waiting(spec.namespace)
    pods = present.queue(spec.scheduler_name, rows)[:MOST_PODS]
    try:
        if prices is not None:
            status = _exchanged(world, present, spec, offers, prices, pods, rows)
        else:
            found = advise(
                present.snapshot, framework, pods, offers,
                most=spec.most_nodes, nominate=spec.nominate, go_on=world.go_on,
            )  # fmt: skip
            status = _status(found, offers, present.snapshot, {row.id: row for row in rows})
    except PluginFailed as failure:
        raise StatusError(failure.status.message) from failure
    status["revision"] = str(world.revision)
    members = sum(group_key(pod.info.pod) is not None for pod in pods)
    if members and framework.schedules_groups:
        text = f"{members} of the pods are of PodGroups: here each is counted by itself"
        status["warnings"] = [text]
    return {"apiVersion": API_VERSION, "kind": KIND, "status": status}


def _status(
    found: Advice, offers: list[Offer], snapshot: Snapshot, rows: dict[int, Waiting]
) -> Manifest:
    """Return the answer where nodes are bought alone; ``snapshot``: the cluster without these."""
    return {
        **_bought(found.placed, offers, found.counts, found.names, snapshot, rows),
        "price": found.price,
        "frees": len(found.placed) - found.before,
        "of": found.waiting,
        "fitAnyway": found.before,
        "schedulerAlone": found.alone - found.before,
        "bound": _bound(found.price, found.least),
        "method": _GREEDY if found.least is None else _SOLVED,
    }


def _bought(
    placed: Iterable[tuple[object, str]],
    offers: list[Offer],
    counts: Sequence[int],
    names: Iterable[tuple[str, int]],
    snapshot: Snapshot,
    rows: dict[int, Waiting],
) -> Manifest:
    """Return which nodes are bought, and the waiting pods that are placed on them.

    Args:
        placed: waiting pods with their nodes.
        offers: the catalogue.
        counts: how many of each offer.
        names: of the new nodes, with the position of their offer.
        snapshot: the cluster without them.
        rows: the waiting pods by id.
    """
    on_new = [(key, name) for key, name in placed if snapshot.row_of(name) is None]
    return {
        "nodes": [
            {"name": offer.name, "count": count, "price": round(offer.price * count, 6)}
            for offer, count in zip(offers, counts, strict=True)
            if count
        ],
        "podsByNode": dict(sorted(Counter(name for _, name in on_new).items())),
        "pods": [_named(rows[key]) for key, _ in on_new if isinstance(key, int)],
        "places": [
            {"pod": _named(rows[key]), "nodeName": name}
            for key, name in sorted(on_new, key=lambda one: one[1])
            if isinstance(key, int)
        ],
        "newNodes": {name: offers[number].name for name, number in names},
    }


def _exchanged(
    world: LiveWorld,
    present: Present,
    spec: Spec,
    offers: list[Offer],
    prices: Prices,
    pods: Sequence[PodToPlace],
    rows: Sequence[Waiting],
) -> Manifest:
    """Return the answer where nodes may be removed as well."""
    frameworks, snapshot = present.frameworks(), present.snapshot
    framework = frameworks[spec.scheduler_name]
    found = frontier(
        snapshot,
        [Seeker(pod.key, pod.info, framework) for pod in pods],
        offers,
        frameworks=frameworks,
        prices=prices,
        most=spec.most_nodes,
        most_moves=spec.most_moves,
        go_on=world.go_on,
    )
    best = found.exchanges[found.chosen]
    numbers = [number for _, number in best.buy]
    counts = [numbers.count(number) for number in range(len(offers))]
    price = sum(offers[number].price for number in numbers)
    names = LiveBase(world, snapshot).pod_names([move.key for move in best.packing.moves])
    return {
        **_bought(
            best.packing.placed.items(),
            offers,
            counts,
            [(node.metadata.name, number) for node, number in best.buy],
            snapshot,
            {row.id: row for row in rows},
        ),
        "price": round(price, 6),
        "frees": len(best.packing.placed) - best.packing.alone,
        "of": len(pods),
        "fitAnyway": best.packing.alone,
        "remove": list(best.remove),
        "moves": packing.told_moves(best.packing.moves, lambda key: names.get(key, "")),
        "cost": {
            "today": round(found.today, 6),
            "after": round(best.after, 6),
            "moves": round(best.moves_cost, 6),
        },
        "frontier": [
            {
                "moves": len(one.packing.moves),
                "movesCost": round(one.moves_cost, 6),
                "remove": len(one.remove),
                "buy": len(one.buy),
                "after": round(one.after, 6),
                "chosen": at == found.chosen,
            }
            for at, one in enumerate(found.exchanges)
        ],
        "map": [
            {"node": name, "today": _share(found.shares, name), "after": _share(best.shares, name)}
            for name in sorted({*found.shares, *best.shares})
        ],
        "bound": _bound(best.after, min(found.least, best.after)),
        "method": _SOLVED,
    }


_GREEDY: Final = "greedy: a cheaper set may exist; proved by placing the pods"
_SOLVED: Final = "solver: proved by giving each pod the node that places tells"


def _share(shares: Mapping[str, float], name: str) -> float | None:
    """Return how full a node is, ``None`` where it is not there."""
    return round(shares[name], 3) if name in shares else None


def _bound(price: float, least: float | None) -> Manifest:
    """Return what no set of nodes goes below, and how far the price is above that at most."""
    if least is None:
        return {"verdict": "Unknown"}
    gap = 100 * (price - least) / least if least else 0.0
    is_best = price <= least * (1 + 1e-6)
    return {
        "verdict": "ProvedBest" if is_best else "Within",
        "atLeast": round(least, 6),
        "gapPercent": round(gap, 3),
    }


def _named(row: Waiting) -> str:
    return f"{row.namespace}/{row.name}"


def _read(document: object) -> tuple[Spec, list[Offer], Prices | None]:
    """Return what is asked, checked.

    Raises:
        Invalid: with every wrong field.
    """
    errors: list[FieldError] = []
    head = reading.document(document, api_version=API_VERSION, kind=KIND, errors=errors)
    given = head.spec.rest()
    head.finish()
    try:
        spec = msgspec.convert(given, Spec)
    except msgspec.ValidationError as error:
        text, _, where = str(error).partition(" - at `$")
        path = f"spec{where.rstrip('`')}"
        errors.append(FieldError(INVALID, path, None, text))
        raise Invalid(KIND, head.name, errors, GROUP) from error
    if not spec.catalogue:
        errors.append(FieldError(REQUIRED, "spec.catalogue"))
    if len(spec.catalogue) > MOST_SHAPES:
        detail = f"must have at most {MOST_SHAPES} entries"
        errors.append(FieldError(INVALID, "spec.catalogue", len(spec.catalogue), detail))
    prices = packing.read_prices(given, errors)
    if prices is not None and not spec.prices:
        errors.append(FieldError(REQUIRED, "spec.prices"))
    if prices is not None and not spec.nominate:
        detail = "must be true where nodes are removed"
        errors.append(FieldError(INVALID, "spec.nominate", spec.nominate, detail))
    if spec.most_moves is not None and (prices is None or spec.most_moves < 0):
        detail = "must be at least 0, and there must be prices"
        errors.append(FieldError(INVALID, "spec.mostMoves", spec.most_moves, detail))
    if not 1 <= spec.most_nodes <= LARGEST_NODES:
        detail = f"must be between 1 and {LARGEST_NODES}"
        errors.append(FieldError(INVALID, "spec.mostNodes", spec.most_nodes, detail))
    offers = [
        offer
        for number, entry in enumerate(spec.catalogue[:MOST_SHAPES])
        if (offer := _offer(f"spec.catalogue[{number}]", entry, errors)) is not None
    ]
    names = Counter(offer.name for offer in offers)
    errors += [
        FieldError(INVALID, "spec.catalogue", name, "is there twice")
        for name, times in names.items()
        if times > 1
    ]
    if errors:
        raise Invalid(KIND, "", errors, GROUP)
    return spec, offers, prices


def _offer(path: str, entry: Any, errors: list[FieldError]) -> Offer | None:
    """Return an entry of the catalogue, ``None`` where it is wrong."""
    before = len(errors)
    if not isinstance(entry, dict):
        errors.append(FieldError(INVALID, path, None, "must be an object"))
        return None
    errors += [
        FieldError(INVALID, f"{path}.{name}", None, "unknown field")
        for name in entry
        if name not in ("name", "price", "node", "limit")
    ]
    name, price, node = entry.get("name"), entry.get("price"), entry.get("node")
    if not isinstance(name, str) or not name:
        errors.append(FieldError(REQUIRED, f"{path}.name"))
    if isinstance(price, bool) or not isinstance(price, int | float) or not _is_price(price):
        errors.append(FieldError(INVALID, f"{path}.price", None, "must be a number of at least 0"))
    limit = entry.get("limit", LARGEST_NODES)
    if isinstance(limit, bool) or not isinstance(limit, int) or limit < 0:
        detail = "must be a whole number of at least 0"
        errors.append(FieldError(INVALID, f"{path}.limit", limit, detail))
    if not isinstance(node, dict):
        errors.append(FieldError(REQUIRED, f"{path}.node"))
    else:
        problem = type_error("Node", node)
        if problem is not None:
            errors.append(msgspec.structs.replace(problem, field=f"{path}.node.{problem.field}"))
    if len(errors) > before or not isinstance(node, dict):
        return None
    manifest: Manifest = msgspec.json.decode(msgspec.json.encode(node))
    manifest.setdefault("metadata", {})
    status = manifest.setdefault("status", {})
    if "pods" not in (status.get("allocatable") or {}):
        status.setdefault("capacity", {}).setdefault("pods", _USUAL_PODS)
    set_defaults("Node", manifest)
    found = msgspec.convert(manifest, Node)
    try:
        for amount in found.status.allocatable.values():
            value(amount)
    except QuantityError as error:
        errors.append(FieldError(INVALID, f"{path}.node.status.allocatable", None, str(error)))
        return None
    return Offer(str(name), float(price or 0), found, min(limit, LARGEST_NODES))


def _is_price(price: float) -> bool:
    return 0 <= price <= sys.float_info.max  # an integer may be too large for a float
