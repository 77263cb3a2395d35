"""Which nodes to add for the pods that wait: a ``NodeAdvice`` document in, the answer out."""

import sys
from collections import Counter
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
from scheduling.answers.live import LiveWorld
from scheduling.answers.present import Present
from scheduling.framework.configuration import reading
from scheduling.framework.outcomes import PluginFailed
from scheduling.framework.types import group_key
from scheduling.simulation.document import API_VERSION, GROUP, type_error
from scheduling.simulation.node_advice import (
    DEFAULT_NODES,
    LARGEST_NODES,
    MOST_SHAPES,
    Advice,
    Offer,
    advise,
)

KIND: Final = "NodeAdvice"
_DEFAULT_PROFILE: Final = "default-scheduler"
_USUAL_PODS: Final = "110"
"""Pods that a node of the catalogue takes where it does not say (kubelet's default)."""


class Spec(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The question: the waiting pods, the catalogue of node types, and the most nodes to add.

    ``namespace``: only its pods; empty for all. ``catalogue``: ``{name, price, node}`` each, and
    ``limit`` where only this many of a shape can be had. ``nominate``: whether pods will be held to
    the nodes that the answer tells; else the scheduler must find them by itself.
    """

    catalogue: list[Any] = []
    namespace: str = ""
    scheduler_name: str = _DEFAULT_PROFILE
    most_nodes: int = DEFAULT_NODES
    nominate: bool = True


def node_advice(world: LiveWorld, document: object) -> Manifest:
    """Return the cheapest nodes found with which the most waiting pods find room.

    ``status``: ``nodes`` (``name``, ``count``, ``price``), ``price``, ``pods`` (that find room with
    them), ``places`` (on which new node each), ``frees``, ``of``, ``bound``, ``schedulerAlone``.
    Queries four times and more.

    Raises:
        Invalid: with every wrong field.
    """
    spec, offers = _read(document)
    present = Present(world)
    framework = present.framework(spec.scheduler_name)
    if framework is None:
        wrong = FieldError(
            INVALID, "spec.schedulerName", spec.scheduler_name, "no profile has this name"
        )
        raise Invalid(KIND, "", [wrong], GROUP)
    rows = waiting(spec.namespace)
    pods = present.queue(spec.scheduler_name, rows)
    try:
        found = advise(
            present.snapshot, framework, pods, offers,
            most=spec.most_nodes, nominate=spec.nominate, go_on=world.go_on,
        )  # fmt: skip
    except PluginFailed as failure:
        raise StatusError(failure.status.message) from failure
    # The new nodes are gone from the copy again: who is on a node that it lacks is on one of them.
    placed = [(key, name) for key, name in found.placed if present.snapshot.row_of(name) is None]
    status = _status(found, offers, placed, {row.id: row for row in rows})
    status["revision"] = str(world.revision)
    members = sum(group_key(pod.info.pod) is not None for pod in pods[: found.waiting])
    if members and framework.schedules_groups:
        text = f"{members} of the pods are of PodGroups: here each is counted by itself"
        status["warnings"] = [text]
    return {"apiVersion": API_VERSION, "kind": KIND, "status": status}


def _status(
    found: Advice,
    offers: list[Offer],
    on_new: list[tuple[object, str]],
    rows: dict[int, Waiting],
) -> Manifest:
    """Return the answer; ``on_new``: pods that are on new nodes, with the names of these."""
    per_node = Counter(name for _, name in on_new)
    return {
        "nodes": [
            {"name": offer.name, "count": count, "price": round(offer.price * count, 6)}
            for offer, count in zip(offers, found.counts, strict=True)
            if count
        ],
        "price": found.price,
        "frees": len(found.placed) - found.before,
        "of": found.waiting,
        "fitAnyway": found.before,
        "podsByNode": dict(sorted(per_node.items())),
        "pods": [_named(rows[key]) for key, _ in on_new if isinstance(key, int)],
        "places": [
            {"pod": _named(rows[key]), "nodeName": name}
            for key, name in sorted(on_new, key=lambda one: one[1])
            if isinstance(key, int)
        ],
        "newNodes": {name: offers[number].name for name, number in found.names},
        "schedulerAlone": found.alone - found.before,
        "bound": _bound(found),
        "method": _GREEDY if found.least is None else _SOLVED,
    }


_GREEDY: Final = "greedy: a cheaper set may exist; proved by placing the pods"
_SOLVED: Final = "solver: proved by giving each pod the node that places tells"


def _bound(found: Advice) -> Manifest:
    """Return what no set of nodes goes below, and how far the advice is above that at most."""
    if found.least is None:
        return {"verdict": "Unknown"}
    gap = 100 * (found.price - found.least) / found.least if found.least else 0.0
    is_best = found.price <= found.least * (1 + 1e-6)
    return {
        "verdict": "ProvedBest" if is_best else "Within",
        "atLeast": round(found.least, 6),
        "gapPercent": round(gap, 3),
    }


def _named(row: Waiting) -> str:
    return f"{row.namespace}/{row.name}"


def _read(document: object) -> tuple[Spec, list[Offer]]:
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
    return spec, offers


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
