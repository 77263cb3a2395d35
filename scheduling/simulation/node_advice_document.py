"""A ``NodeAdvice`` document: a catalogue with prices, options, and the answer."""

import sys
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from clusterstate.admission.defaults import set_defaults
from clusterstate.objects.values.errors import INVALID, REQUIRED, FieldError, Invalid, StatusError
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.node import Node, with_pods
from clusterstate.objects.values.quantity import QuantityError, value
from scheduling.framework.configuration import reading
from scheduling.framework.outcomes import PluginFailed
from scheduling.simulation.document import API_VERSION, GROUP, type_error
from scheduling.simulation.moves import Prices, read_prices
from scheduling.simulation.node_advice import DEFAULT_NODES, LARGEST_NODES, MOST_SHAPES, Offer
from scheduling.simulation.node_exchange import Frontier, frontier
from scheduling.simulation.packing import Question, gathered, moves_answer
from scheduling.simulation.world import Base

KIND: Final = "NodeAdvice"
SOLVED: Final = "solver: proved by placing each pod on its node in places"
_DEFAULT_PROFILE: Final = "default-scheduler"


class Spec(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The question: the waiting pods, the catalogue of node types, and the most nodes to add.

    ``namespace``: only its pods; empty for all. ``catalogue``: entries ``{name, price, node}``,
    with ``limit`` if only this many can be bought. ``nominate``: whether pods will be nominated for
    the nodes in the answer; else the scheduler must place them by itself. ``prices`` (of existing
    nodes), ``movePrice``, ``movePrices``, ``lostWorkPrice``: with these, nodes may be removed as
    well (``moves.read_prices``); ``mostMoves``: the most pods to move.
    """

    catalogue: list[Any] = []
    namespace: str = ""
    scheduler_name: str = _DEFAULT_PROFILE
    most_nodes: int = DEFAULT_NODES
    nominate: bool = True
    prices: list[Any] = []
    move_price: Any = 0
    move_prices: list[Any] = []
    lost_work_price: Any = 0
    most_moves: int | None = None


def read(document: object) -> tuple[Spec, list[Offer], Prices | None]:
    """Return the checked question, its catalogue, and its prices if nodes may be removed.

    Raises:
        Invalid: with every wrong field.
    """
    errors: list[FieldError] = []
    head = reading.document(document, api_version=API_VERSION, kind=KIND, errors=errors)
    raw_spec = head.spec.rest()
    head.finish()
    try:
        spec = msgspec.convert(raw_spec, Spec)
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
    prices = read_prices(raw_spec, errors)
    if prices is not None and not spec.nominate:
        detail = "must be true when nodes may be removed (prices are given)"
        errors.append(FieldError(INVALID, "spec.nominate", spec.nominate, detail))
    if spec.most_moves is not None and (prices is None or spec.most_moves < 0):
        detail = "must be at least 0, and needs prices"
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
    """Return an entry of the catalogue; ``None`` if it is wrong, with its errors added."""
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
    manifest: Manifest = msgspec.json.decode(msgspec.json.encode(with_pods(node)))
    manifest.setdefault("metadata", {})
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


def nodes_answer(
    on_new: Iterable[tuple[str, str]], offers: Sequence[Offer], names: Iterable[tuple[str, int]]
) -> Manifest:
    """Return the nodes to buy, and the waiting pods that are placed on them.

    Args:
        on_new: pods as ``namespace/name`` with their new nodes.
        offers: the catalogue.
        names: names of the new nodes, with the index of their offer.
    """
    named, pods = list(names), list(on_new)
    counts = Counter(number for _, number in named)
    return {
        "nodes": [
            {"name": offer.name, "count": counts[at], "price": round(offer.price * counts[at], 6)}
            for at, offer in enumerate(offers)
            if counts[at]
        ],
        "price": round(sum(offers[number].price for _, number in named), 6),
        "podsByNode": dict(sorted(Counter(name for _, name in pods).items())),
        "pods": [pod for pod, _ in pods],
        "places": [
            {"pod": pod, "nodeName": name} for pod, name in sorted(pods, key=lambda one: one[1])
        ],
        "newNodes": {name: offers[number].name for name, number in named},
    }


def frontier_answer(
    found: Frontier, offers: Sequence[Offer], waiting: int, title: Callable[[Hashable], str]
) -> Manifest:
    """Return the ``status`` of an answer in which nodes may be removed as well.

    Args:
        found: the sets of nodes to choose from.
        offers: the catalogue.
        waiting: how many pods waited.
        title: returns ``namespace/name`` of a pod.
    """
    best = found.exchanges[found.chosen]
    names = [(node.metadata.name, number) for node, number in best.buy]
    new = {name for name, _ in names}
    placed = best.packing.placed.items()
    return {
        **nodes_answer(((title(key), name) for key, name in placed if name in new), offers, names),
        "frees": len(placed) - best.packing.alone,
        "of": waiting,
        "fitAnyway": best.packing.alone,
        "remove": list(best.remove),
        "moves": moves_answer(best.packing.moves, title),
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
        "bound": bound_answer(best.after, min(found.least, best.after)),
        "method": SOLVED,
    }


def _share(shares: Mapping[str, float], name: str) -> float | None:
    """Return a node's share by its name, to 3 places; ``None`` if there is none."""
    return round(shares[name], 3) if name in shares else None


def bound_answer(price: float, least: float | None) -> Manifest:
    """Return the lower bound of the price, and how far the price may be above it, in percent."""
    if least is None:
        return {"verdict": "Unknown"}
    is_best = price <= least * (1 + 1e-6)
    if not least and not is_best:
        return {"verdict": "Within", "atLeast": 0.0}
    gap = 100 * (price - least) / least if least else 0.0
    return {
        "verdict": "ProvedBest" if is_best else "Within",
        "atLeast": round(least, 6),
        "gapPercent": round(gap, 3),
    }


def run_node_advice(document: object, world: Question, base: Base) -> Manifest:
    """Return the answer of a ``NodeAdvice`` document about a world read from files.

    All pods without a node count as waiting; without prices no pod moves and no node is removed.

    Raises:
        Invalid: with every wrong field of document and world, and fields that only the live service
            supports.
        ServiceUnavailable: the solver is not installed.
    """
    spec, offers, prices = read(document)
    for_live = (
        ("namespace", spec.namespace, ""),
        ("schedulerName", spec.scheduler_name, _DEFAULT_PROFILE),
        ("nominate", spec.nominate, True),
    )
    if wrong := [
        FieldError(INVALID, f"spec.{name}", value, "must be left out when pods come from files")
        for name, value, usual in for_live
        if value != usual
    ]:
        raise Invalid(KIND, "", wrong, GROUP)
    found_world, frameworks, pods, refused = gathered(world.simulation, base)
    try:
        found = frontier(
            found_world.snapshot,
            pods,
            offers,
            frameworks=frameworks,
            prices=prices or Prices((), 0.0),
            most=spec.most_nodes,
            most_moves=spec.most_moves,
            may_move=prices is not None,
            go_on=base.go_on,
        )
    except PluginFailed as failure:
        raise StatusError(failure.status.message) from failure
    best = found.exchanges[found.chosen]
    names = found_world.full_names([move.key for move in best.packing.moves])
    waiting = {pod.key for pod in pods}
    status = frontier_answer(
        found, offers, len(pods), lambda key: str(key) if key in waiting else names(key)
    )
    if best.packing.left:
        status["left"] = [
            {"pod": str(one.key), "message": one.message} for one in best.packing.left
        ]
    if refused:
        status["skipped"] = refused
    return {"apiVersion": API_VERSION, "kind": KIND, "status": status}
