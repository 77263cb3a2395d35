"""Reads the ``Plan`` document with its changes, and collects all errors in one.

``spec.changes`` is a list; each entry has one member, the kind of change::

    {cordon: {nodes: [n1, n2]}}                       {uncordon: {selector: "zone=a"}}
    {taint: {nodes: [n1], taints: [{key: k, value: v, effect: NoExecute}]}}   {untaint: ...}
    {label: {nodes: [n1], set: {disk: ssd}, remove: [old]}}
    {resize: {nodes: [n1], amounts: {cpu: "8"}}}
    {drain: {nodes: [n1], force: false, deleteEmptyDirData: false, gracePeriodSeconds: 30}}
    {evict: {pods: [NAMESPACE/NAME], disableEviction: false, gracePeriodSeconds: 30,
             places: {NAMESPACE/NAME: NODE}}}
    {delete: {nodes: [n1]}}                           {add: {objects: [NODE, ...]}}
    {pods: {objects: [POD, ...]}}                     {configuration: {...}}
    {scale: {kind: Deployment, namespace: default, name: web, replicas: 5}}
    {import: {objects: [NODE, POD, PRIORITY CLASS, BUDGET, LIST ...]}}
    {rebalance: {selector: "pool=spot", mostNodes: 10}}
    {rebalance: {objective: ToBalanceZones, topologyKey: rack, mostPods: 50, movePrice: 1,
                 movePrices: [{selector: "app=db", price: 9}], lostWorkPrice: 5}}
    {rebalance: {roomFor: NAMESPACE/NAME}}            {rebalance: {roomForGroup: NAMESPACE/NAME}}

An import is read as several changes: other objects, then added nodes, then pods. A rebalance is the
only change of its plan; it becomes a drain, or an eviction of the pods that must move
(``answers.plan_rebalancing``).
"""

from collections.abc import Iterable, Sequence
from typing import Any, Final

import msgspec

from clusterstate.admission.validation.workloads.jobs import is_zone, schedule_problem
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.rules import node_edits
from clusterstate.objects.values.errors import (
    DUPLICATE,
    FORBIDDEN,
    INVALID,
    NOT_SUPPORTED,
    REQUIRED,
    TYPE_INVALID,
    FieldError,
    Invalid,
)
from clusterstate.objects.values.labels import (
    Selector,
    SelectorError,
    is_qualified_name,
    parse_selector,
)
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.quantity import QuantityError, value
from scheduling.framework.configuration import KubeSchedulerConfiguration, reading
from scheduling.framework.configuration.reading import Errors, Field
from scheduling.plugins.catalogue import load_configuration
from scheduling.simulation.document import API_VERSION, GROUP, below, type_error
from scheduling.simulation.improving import TERMS, TO_BALANCE, ZONE
from scheduling.simulation.moves import OF_MOVES, TO_EMPTY, Prices, read_move_prices

KIND: Final = "Plan"
CORDON, UNCORDON, TAINT, UNTAINT, LABEL, RESIZE = (
    "cordon",
    "uncordon",
    "taint",
    "untaint",
    "label",
    "resize",
)
DRAIN, DELETE, ADD, PODS, CONFIGURATION = "drain", "delete", "add", "pods", "configuration"
EVICT, SCALE, IMPORT, REBALANCE = "evict", "scale", "import", "rebalance"
OF_NODES: Final = (CORDON, UNCORDON, TAINT, UNTAINT, LABEL, RESIZE, DRAIN, DELETE)
KNOWN: Final = (*OF_NODES, EVICT, SCALE, ADD, PODS, IMPORT, CONFIGURATION, REBALANCE)
SCALED: Final = ("Deployment", "ReplicaSet", "StatefulSet")
_OTHERS: Final = (
    "Namespace",
    "PriorityClass",
    "RuntimeClass",
    "LimitRange",
    "PodDisruptionBudget",
    "Service",
    "StorageClass",
    "PersistentVolume",
    "DeviceClass",
    "ResourceSlice",
    "ResourceClaimTemplate",
    "ResourceClaim",
)
"""The kinds of an import besides nodes and pods, in the order of creation."""
_LISTS: Final = frozenset({"List", *(f"{kind}List" for kind in ("Node", "Pod", *_OTHERS))})
_MOST_REPLICAS: Final = 100_000
_MOST_EMPTIED: Final = 1_000
_MOST_MOVED: Final = 10_000
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_MOST_CPU: Final = 10**6
_MOST_AMOUNT: Final = 2**60
"""The most that a node may have; sums over many nodes stay below 64 bits."""
_LONGEST_HORIZON: Final = 10 * 365 * 86400


class PlanChange(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of ``spec.changes``.

    ``nodes`` are names, ``selector`` adds more; ``objects`` are manifests, ``places`` their paths.
    ``pods``: namespaces and names. ``ignores_budgets``: delete pods instead of evicting them.
    ``workload``: kind, namespace and name of the object to scale to ``replicas``. ``targets``: the
    nodes for the replacements of ``pods``, by title. ``objective``: of a rebalance; ``prices`` and
    ``topology_key`` belong to it, and ``most``: the most nodes to empty, or pods to move.
    ``makes_room``: for the pod in ``pods``, or the group of this name.
    """

    what: str
    path: str
    nodes: tuple[str, ...] = ()
    selector: Selector | None = None
    taints: tuple[Manifest, ...] = ()
    labels: dict[str, str] = {}
    gone: tuple[str, ...] = ()
    amounts: dict[str, str] = {}
    objects: tuple[Manifest, ...] = ()
    places: tuple[str, ...] = ()
    workload: tuple[str, str, str] = ("", "", "")
    replicas: int = 0
    pods: tuple[tuple[str, str], ...] = ()
    ignores_budgets: bool = False
    force: bool = False
    delete_local_data: bool = False
    grace_seconds: int | None = None
    configuration: Manifest | None = None
    targets: dict[str, str] = {}
    objective: str = ""
    prices: Prices = Prices()
    topology_key: str = ZONE
    most: int = 0
    makes_room: str = ""


class PlanDocument(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed document; ``horizon``: how many seconds are predicted.

    ``seed``: ``None`` for that of the live scheduler. ``holds_places``: evict a pod only after the
    room of its replacement is reserved. ``pods_per_hour``: the most evictions, 0 for no limit.
    """

    metadata: Manifest
    changes: tuple[PlanChange, ...]
    seed: int | None
    horizon: float
    configuration: KubeSchedulerConfiguration | None
    holds_places: bool = False
    pods_per_hour: int = 0
    warnings: tuple[str, ...] = ()


def read(document: object) -> PlanDocument:
    """Return a parsed ``Plan`` document.

    Raises:
        Invalid: with every wrong field; also every unknown one.
        BadRequest: the document is nested too deeply.
    """
    errors: Errors = []
    head = reading.document(document, api_version=API_VERSION, kind=KIND, errors=errors)
    spec = head.spec
    for field in ("name", "generateName"):
        if field in head.metadata:
            detail = "must be left out: the service names the plan when it stores it"
            errors.append(FieldError(FORBIDDEN, f"metadata.{field}", None, detail))
    entries = spec.objects("changes")
    if not entries:
        errors.append(FieldError(REQUIRED, "spec.changes", None, "name at least one change"))
    changes = [change for entry in entries for change in _changes(entry)]
    rebalances = any(one.what == REBALANCE for one in changes)
    if len(changes) > 1 and rebalances:
        detail = f"{REBALANCE} must be the only change"
        errors.append(FieldError(FORBIDDEN, "spec.changes", None, detail))
    pods_per_hour = spec.integer("podsPerHour", 0)
    if spec.has("podsPerHour") and pods_per_hour < 1:
        spec.error("podsPerHour", pods_per_hour, "must be at least 1")
    holds_places = spec.boolean("holdPlaces", default=rebalances)
    if not holds_places and any(one.targets or one.objective in TERMS for one in changes):
        spec.error("holdPlaces", None, "must be true where a plan says to which nodes pods move")
    _check_schedule(spec, repeats=rebalances and pods_per_hour > 0)
    configurations = [one.configuration for one in changes if one.configuration is not None]
    horizon = spec.integer("horizonSeconds", 86400)
    if not 0 <= horizon <= _LONGEST_HORIZON:
        spec.error("horizonSeconds", None, "must be between 0 and ten years")
        horizon = 0
    found = PlanDocument(
        metadata=head.metadata,
        changes=tuple(changes),
        seed=spec.integer("seed", 0) if spec.has("seed") else None,
        horizon=float(horizon),
        configuration=_configuration(configurations[-1]) if configurations else None,
        holds_places=holds_places,
        pods_per_hour=pods_per_hour,
    )
    if found.seed is not None and found.seed < 0:
        spec.error("seed", found.seed, "must not be negative")
    head.finish()
    if errors:
        raise Invalid(KIND, "", errors, GROUP)
    return found


def _check_schedule(spec: Field, *, repeats: bool) -> None:
    """Check ``schedule`` and ``timeZone``; ``repeats``: whether the plan may have them."""
    schedule, zone = spec.text("schedule"), spec.text("timeZone")
    if schedule and (problem := schedule_problem(schedule)):
        spec.error("schedule", schedule, problem)
    elif spec.has("schedule") and not repeats:
        detail = "needs a rebalance, and podsPerHour"
        spec.errors.append(FieldError(FORBIDDEN, spec.child("schedule"), None, detail))
    if zone and (not schedule or not is_zone(zone)):
        detail = f"unknown time zone {zone}" if schedule else "needs a schedule"
        spec.error("timeZone", zone, detail)


def of(changes: Sequence[Manifest]) -> Manifest:
    """Return a ``Plan`` document with these entries of ``spec.changes``."""
    return {"apiVersion": API_VERSION, "kind": KIND, "spec": {"changes": [*changes]}}


def change_of(entry: Manifest) -> PlanChange:
    """Return one entry of ``spec.changes``.

    Raises:
        Invalid: with every wrong field.
    """
    return read({"spec": {"changes": [entry]}}).changes[0]


def edited(change: PlanChange, node: Manifest) -> Manifest:
    """Return a node as the change leaves it: cordoned, tainted, labelled or resized."""
    if change.what in (CORDON, UNCORDON, DRAIN):
        return node_edits.cordon(node, closed=change.what != UNCORDON)
    if change.what == TAINT:
        return node_edits.taint(node, change.taints)
    if change.what == UNTAINT:
        return node_edits.untaint(node, change.taints)
    if change.what == LABEL:
        return node_edits.label(node, change.labels, change.gone)
    assert change.what == RESIZE, change.what
    return node_edits.resize(node, change.amounts)


def _configuration(document: Manifest) -> KubeSchedulerConfiguration | None:
    try:
        return load_configuration(document)
    except Invalid:  # its errors are already collected
        return None


def _changes(entry: Field) -> Sequence[PlanChange]:
    """Return the changes of one entry: one, or the parts of an import."""
    named = [name for name in KNOWN if entry.has(name)]
    if len(named) != 1:
        entry.rest()
        detail = f"must have exactly one of {', '.join(KNOWN)}"
        entry.errors.append(FieldError(INVALID, entry.path, None, detail))
        return ()
    what = named[0]
    body = entry.object(what)
    entry.finish()
    if body is None:
        return ()
    found = _imported(body) if what == IMPORT else [_read(what, body)]
    body.finish()
    return found


def _imported(body: Field) -> list[PlanChange]:
    """Return the parts of an import: other objects, nodes, pods."""
    objects = list(_objects(body, ("Node", "Pod", *_OTHERS)))
    order = {kind: number for number, kind in enumerate(_OTHERS)}
    others = [one for one in objects if one[1]["kind"] in order]
    parts = (
        (IMPORT, sorted(others, key=lambda one: order[one[1]["kind"]])),
        (ADD, [one for one in objects if one[1]["kind"] == "Node"]),
        (PODS, [one for one in objects if one[1]["kind"] == "Pod"]),
    )
    return [_of_objects(what, body.path, part) for what, part in parts if part]


def _of_objects(what: str, path: str, found: Sequence[tuple[str, Manifest]]) -> PlanChange:
    return PlanChange(
        what=what,
        path=path,
        objects=tuple(manifest for _, manifest in found),
        places=tuple(place for place, _ in found),
    )


def _read(what: str, body: Field) -> PlanChange:
    if what == CONFIGURATION:
        configuration = body.rest()
        try:
            load_configuration(configuration)
        except Invalid as invalid:
            for error in invalid.errors:
                path = f"{body.path}.{error.field}" if error.field else body.path
                body.errors.append(FieldError(error.type, path, error.bad_value, error.detail))
        return PlanChange(what=what, path=body.path, configuration=configuration)
    if what in (ADD, PODS):
        kind = "Node" if what == ADD else "Pod"
        return _of_objects(what, body.path, list(_objects(body, (kind,))))
    if what == SCALE:
        return _scaled(body)
    if what == EVICT:
        pods, targets = tuple(_named_pods(body)), _texts(body, "places")
        for title in targets.keys() - {"/".join(pod) for pod in pods}:
            body.error("places", title, "is not one of the pods")
        return PlanChange(
            what=what,
            path=body.path,
            pods=pods,
            targets=targets,
            ignores_budgets=body.boolean("disableEviction", default=False),
            grace_seconds=_grace(body),
        )
    if what == REBALANCE:
        return _rebalanced(body)
    nodes, selector = _chosen(body)
    if what in (TAINT, UNTAINT):
        taints = tuple(_taints(body, exact=what == TAINT))
        return PlanChange(what=what, path=body.path, nodes=nodes, selector=selector, taints=taints)
    if what == LABEL:
        new_labels = _texts(body, "set")
        gone = tuple(body.texts("remove"))
        if not new_labels and not gone:
            body.errors.append(FieldError(REQUIRED, body.child("set")))
        return PlanChange(
            what=what, path=body.path, nodes=nodes, selector=selector, labels=new_labels, gone=gone
        )
    if what == RESIZE:
        amounts = _texts(body, "amounts")
        for name, amount in amounts.items():
            _check_amount(body, name, amount)
        if not amounts:
            body.errors.append(FieldError(REQUIRED, body.child("amounts")))
        return PlanChange(
            what=what, path=body.path, nodes=nodes, selector=selector, amounts=amounts
        )
    if what == DRAIN:
        return PlanChange(
            what=what,
            path=body.path,
            nodes=nodes,
            selector=selector,
            force=body.boolean("force", default=False),
            delete_local_data=body.boolean("deleteEmptyDirData", default=False),
            grace_seconds=_grace(body),
        )
    return PlanChange(what=what, path=body.path, nodes=nodes, selector=selector)


def _scaled(body: Field) -> PlanChange:
    kind, namespace = body.text("kind", SCALED[0]), body.text("namespace", "default")
    name, replicas = body.text("name"), body.integer("replicas", -1)
    if kind not in SCALED:
        listed = ", ".join(f'"{one}"' for one in SCALED)
        error = FieldError(NOT_SUPPORTED, body.child("kind"), kind, f"supported values: {listed}")
        body.errors.append(error)
    if not name:
        body.errors.append(FieldError(REQUIRED, body.child("name")))
    if not body.has("replicas"):
        body.errors.append(FieldError(REQUIRED, body.child("replicas")))
    elif not 0 <= replicas <= _MOST_REPLICAS:
        body.error("replicas", replicas, f"must be between 0 and {_MOST_REPLICAS}")
    return PlanChange(
        what=SCALE, path=body.path, workload=(kind, namespace, name), replicas=replicas
    )


def _rebalanced(body: Field) -> PlanChange:
    for field, makes_room in (("roomFor", "Pod"), ("roomForGroup", "PodGroup")):
        if body.has(field):
            text = body.text(field)
            namespace, _, name = text.partition("/")
            if not namespace or not name or "/" in name:
                body.error(field, text, "must be a namespace and a name: default/web-1")
            return PlanChange(
                what=REBALANCE, path=body.path, pods=((namespace, name),), makes_room=makes_room,
                prices=_prices(body),
            )  # fmt: skip
    objective = body.text("objective", TO_EMPTY)
    if objective not in (TO_EMPTY, *TERMS):
        listed = ", ".join(f'"{one}"' for one in (TO_EMPTY, *TERMS))
        body.error("objective", objective, f"supported values: {listed}")
    field, limit = "mostNodes", _MOST_EMPTIED
    if objective in TERMS:
        field, limit = "mostPods", _MOST_MOVED
    most = body.integer(field, limit)
    if not 1 <= most <= limit:
        body.error(field, most, f"must be between 1 and {limit}")
    return PlanChange(
        what=REBALANCE, path=body.path, selector=_selector(body, body.text("selector")), most=most,
        objective=objective, prices=_prices(body),
        topology_key=body.text("topologyKey", ZONE) if objective == TO_BALANCE else ZONE,
    )  # fmt: skip


def _prices(body: Field) -> Prices:
    given = {name: body.take(name) for name in OF_MOVES if body.has(name)}
    return read_move_prices(given, body.path, body.errors, 1.0)


def _grace(body: Field) -> int | None:
    """Return the requested grace period in seconds, ``None`` for the pods' own."""
    grace = body.integer("gracePeriodSeconds", -1)
    if grace > _LONGEST_HORIZON:
        body.error("gracePeriodSeconds", None, "must be at most ten years")
        return None
    return None if grace < 0 else grace


def _named_pods(body: Field) -> Iterable[tuple[str, str]]:
    texts = dict.fromkeys(_once(body, "pods"))
    if not texts:
        body.errors.append(FieldError(REQUIRED, body.child("pods")))
    for text in texts:
        namespace, _, name = text.partition("/")
        if namespace and name and "/" not in name:
            yield namespace, name
        else:
            detail = "must be a namespace and a name: default/web-1"
            body.errors.append(FieldError(INVALID, body.child("pods"), text, detail))


def _chosen(body: Field) -> tuple[tuple[str, ...], Selector | None]:
    nodes, text = tuple(dict.fromkeys(_once(body, "nodes"))), body.text("selector")
    if not nodes and not text:
        body.errors.append(FieldError(REQUIRED, body.child("nodes"), None, "or selector"))
    return nodes, _selector(body, text)


def _selector(body: Field, text: str) -> Selector | None:
    if text:
        try:
            return parse_selector(text)
        except SelectorError as error:
            body.error("selector", text, str(error))
    return None


def _check_amount(body: Field, name: str, amount: str) -> None:
    """Add errors of a node's amount: its name, its size, fractions of whole units."""
    path = f"amounts[{name}]"
    for problem in is_qualified_name(name):
        body.error(path, amount, problem)
    try:
        found = value(amount)
    except QuantityError as error:
        body.error(path, amount, str(error))
        return
    if found < 0:
        body.error(path, amount, "must not be negative")
    elif found > (_MOST_CPU if name == "cpu" else _MOST_AMOUNT):
        body.error(path, amount, "is more than any node has")


def _once(body: Field, name: str) -> Iterable[str]:
    """Yield the names of a list; add an error for each duplicate."""
    seen: set[str] = set()
    for number, one in enumerate(body.texts(name)):
        if one in seen:
            body.errors.append(FieldError(DUPLICATE, f"{body.child(name)}[{number}]", one))
        seen.add(one)
        yield one


def _taints(body: Field, *, exact: bool) -> Iterable[Manifest]:
    entries = body.objects("taints")
    if not entries:
        body.errors.append(FieldError(REQUIRED, body.child("taints")))
    for entry in entries:
        key, effect, text = entry.text("key"), entry.text("effect"), entry.text("value")
        entry.finish()
        if not key:
            entry.errors.append(FieldError(REQUIRED, entry.child("key")))
        if effect not in _EFFECTS and (exact or effect):
            listed = ", ".join(f'"{one}"' for one in _EFFECTS)
            error = FieldError(
                NOT_SUPPORTED, entry.child("effect"), effect, f"supported values: {listed}"
            )
            entry.errors.append(error)
        taint = {"key": key, "effect": effect, "value": text}
        yield {name: one for name, one in taint.items() if one}


def _texts(body: Field, name: str) -> dict[str, str]:
    entry = body.object(name)
    found: dict[str, str] = {}
    for key, one in (entry.rest() if entry is not None else {}).items():
        if isinstance(one, str | int) and not isinstance(one, bool):
            found[key] = str(one)
        else:
            path = f"{body.child(name)}[{key}]"
            body.errors.append(FieldError(TYPE_INVALID, path, None, "must be a string"))
    return found


def _objects(body: Field, kinds: Sequence[str]) -> Iterable[tuple[str, Manifest]]:
    """Yield objects of the given kinds with their paths; an object without a kind has the first."""
    entries = body.items("objects")
    if not entries:
        body.errors.append(FieldError(REQUIRED, body.child("objects")))
    for number, one_ in enumerate(entries):
        path = f"{body.child('objects')}[{number}]"
        listed: list[tuple[str, Any]] = [(path, one_)]
        if isinstance(one_, dict) and one_.get("kind") in _LISTS:
            items = one_.get("items")
            if items is not None and not isinstance(items, list):
                detail = "must be a list"
                body.errors.append(FieldError(TYPE_INVALID, f"{path}.items", None, detail))
                continue
            of = str(one_["kind"]).removesuffix("List")
            inner = [
                {"kind": of, **one} if of and isinstance(one, dict) else one for one in items or ()
            ]
            listed = [(f"{path}.items[{at}]", one) for at, one in enumerate(inner)]
        for where, one in listed:
            problem = _problem(one, kinds)
            if problem is not None:
                body.errors.append(below(where, problem))
                continue
            kind = one.get("kind", kinds[0])
            yield where, {"apiVersion": KINDS[kind].api_version, "kind": kind, **one}


def _problem(one: Any, kinds: Sequence[str]) -> FieldError | None:
    """Return the first error of an object's kind or field types, ``None`` if there is none."""
    kind = one.get("kind", kinds[0]) if isinstance(one, dict) else None
    if not isinstance(kind, str) or kind not in kinds:
        if len(kinds) == 1:
            return FieldError(TYPE_INVALID, "", None, f"must be a {kinds[0]}")
        listed = ", ".join(f'"{name}"' for name in kinds)
        return FieldError(NOT_SUPPORTED, "kind", kind, f"supported values: {listed}")
    problem = type_error(kind, one)
    if problem is None and kind != "Pod" and not (one.get("metadata") or {}).get("name"):
        problem = FieldError(REQUIRED, "metadata.name")
    return problem
