"""The ``Plan`` document: which changes are asked about, and everything that is wrong with one.

``spec.changes`` is a list; each entry has one member that says what to do::

    {cordon: {nodes: [n1, n2]}}                       {uncordon: {selector: "zone=a"}}
    {taint: {nodes: [n1], taints: [{key: k, value: v, effect: NoExecute}]}}   {untaint: ...}
    {label: {nodes: [n1], set: {disk: ssd}, remove: [old]}}
    {resize: {nodes: [n1], amounts: {cpu: "8"}}}
    {drain: {nodes: [n1], force: false, deleteEmptyDirData: false, gracePeriodSeconds: 30}}
    {evict: {pods: [NAMESPACE/NAME], disableEviction: false, gracePeriodSeconds: 30}}
    {delete: {nodes: [n1]}}                           {add: {objects: [NODE, ...]}}
    {pods: {objects: [POD, ...]}}                     {configuration: {...}}
"""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from clusterstate.objects import node_edits
from clusterstate.objects.errors import (
    INVALID,
    NOT_SUPPORTED,
    REQUIRED,
    TYPE_INVALID,
    FieldError,
    Invalid,
)
from clusterstate.objects.labels import Selector, SelectorError, parse_selector
from clusterstate.objects.meta import Manifest
from clusterstate.objects.quantity import QuantityError, value
from scheduling.framework import reading
from scheduling.framework.configuration import KubeSchedulerConfiguration
from scheduling.framework.reading import Errors, Field
from scheduling.plugins.catalogue import load_configuration
from scheduling.simulation.document import API_VERSION, GROUP, type_error

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
EVICT: Final = "evict"
OF_NODES: Final = (CORDON, UNCORDON, TAINT, UNTAINT, LABEL, RESIZE, DRAIN, DELETE)
KNOWN: Final = (*OF_NODES, EVICT, ADD, PODS, CONFIGURATION)
_NOT_YET: Final = {
    "scale": "change the workload's replicas; what its new pods would do, ask with pods",
    "import": "give nodes in add and pods in pods",
}
_EFFECTS: Final = ("NoSchedule", "PreferNoSchedule", "NoExecute")
_LONGEST_HORIZON: Final = 10 * 365 * 86400


class Change(msgspec.Struct, frozen=True, kw_only=True):
    """One entry of ``spec.changes``.

    ``nodes`` are names, ``selector`` chooses more; ``objects`` are manifests of nodes or pods.
    ``pods``: namespaces and names. ``ignores_budgets``: they are deleted and not evicted.
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
    pods: tuple[tuple[str, str], ...] = ()
    ignores_budgets: bool = False
    force: bool = False
    delete_local_data: bool = False
    grace_seconds: int | None = None
    configuration: Manifest | None = None


class Plan(msgspec.Struct, frozen=True, kw_only=True):
    """A document that was read; ``horizon``: so many seconds are foreseen."""

    metadata: Manifest
    changes: tuple[Change, ...]
    seed: int
    horizon: float
    configuration: KubeSchedulerConfiguration | None
    warnings: tuple[str, ...] = ()


def read(document: object) -> Plan:
    """Return what a ``Plan`` document asks about.

    Raises:
        Invalid: with every wrong field; unknown fields are named too.
        BadRequest: the document is nested too deeply.
    """
    errors: Errors = []
    head = reading.document(document, api_version=API_VERSION, kind=KIND, errors=errors)
    spec = head.spec
    entries = spec.objects("changes")
    if not entries:
        errors.append(FieldError(REQUIRED, "spec.changes", None, "say what is to change"))
    changes = [change for entry in entries if (change := _change(entry)) is not None]
    configurations = [one.configuration for one in changes if one.configuration is not None]
    horizon = spec.integer("horizonSeconds", 86400)
    if not 0 <= horizon <= _LONGEST_HORIZON:
        spec.error("horizonSeconds", None, "must be between 0 and ten years")
        horizon = 0
    found = Plan(
        metadata=head.metadata,
        changes=tuple(changes),
        seed=spec.integer("seed", 0),
        horizon=float(horizon),
        configuration=_configuration(configurations[-1]) if configurations else None,
    )
    if found.seed < 0:
        spec.error("seed", found.seed, "must not be negative")
    head.finish()
    if errors:
        raise Invalid(KIND, "", errors, GROUP)
    return found


def change_of(entry: Manifest) -> Change:
    """Return one entry of ``spec.changes``.

    Raises:
        Invalid: with every wrong field.
    """
    return read({"spec": {"changes": [entry]}}).changes[0]


def edited(change: Change, node: Manifest) -> Manifest:
    """Return what a change makes of a node."""
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


def _configuration(given: Manifest) -> KubeSchedulerConfiguration | None:
    try:
        return load_configuration(given)
    except Invalid:  # noted where it was read
        return None


def _change(entry: Field) -> Change | None:
    named = [name for name in (*KNOWN, *_NOT_YET) if entry.has(name)]
    if len(named) != 1:
        entry.rest()
        detail = f"must have exactly one of {', '.join(KNOWN)}"
        entry.errors.append(FieldError(INVALID, entry.path, None, detail))
        return None
    what = named[0]
    if what in _NOT_YET:
        entry.rest()
        detail = f"is not planned yet: {_NOT_YET[what]}"
        entry.errors.append(FieldError(NOT_SUPPORTED, entry.child(what), None, detail))
        return None
    body = entry.object(what)
    entry.finish()
    if body is None:
        return None
    found = _read(what, body)
    body.finish()
    return found


def _read(what: str, body: Field) -> Change:
    if what == CONFIGURATION:
        given = body.rest()
        try:
            load_configuration(given)
        except Invalid as invalid:
            for error in invalid.errors:
                path = f"{body.path}.{error.field}" if error.field else body.path
                body.errors.append(FieldError(error.type, path, error.bad_value, error.detail))
        return Change(what=what, path=body.path, configuration=given)
    if what in (ADD, PODS):
        kind = "Node" if what == ADD else "Pod"
        return Change(what=what, path=body.path, objects=tuple(_objects(body, kind)))
    if what == EVICT:
        return Change(
            what=what,
            path=body.path,
            pods=tuple(_named_pods(body)),
            ignores_budgets=body.boolean("disableEviction", default=False),
            grace_seconds=_grace(body),
        )
    nodes, selector = _chosen(body)
    if what in (TAINT, UNTAINT):
        taints = tuple(_taints(body, exact=what == TAINT))
        return Change(what=what, path=body.path, nodes=nodes, selector=selector, taints=taints)
    if what == LABEL:
        wanted = _texts(body, "set")
        gone = tuple(body.texts("remove"))
        if not wanted and not gone:
            body.errors.append(FieldError(REQUIRED, body.child("set")))
        return Change(
            what=what, path=body.path, nodes=nodes, selector=selector, labels=wanted, gone=gone
        )
    if what == RESIZE:
        amounts = _texts(body, "amounts")
        for name, amount in amounts.items():
            try:
                if value(amount) < 0:
                    raise QuantityError("must not be negative")
            except QuantityError as error:
                body.error(f"amounts[{name}]", amount, str(error))
        if not amounts:
            body.errors.append(FieldError(REQUIRED, body.child("amounts")))
        return Change(what=what, path=body.path, nodes=nodes, selector=selector, amounts=amounts)
    if what == DRAIN:
        return Change(
            what=what,
            path=body.path,
            nodes=nodes,
            selector=selector,
            force=body.boolean("force", default=False),
            delete_local_data=body.boolean("deleteEmptyDirData", default=False),
            grace_seconds=_grace(body),
        )
    return Change(what=what, path=body.path, nodes=nodes, selector=selector)


def _grace(body: Field) -> int | None:
    """Return the grace period that is asked for, ``None`` for the pods' own."""
    grace = body.integer("gracePeriodSeconds", -1)
    if grace > _LONGEST_HORIZON:
        body.error("gracePeriodSeconds", None, "must be at most ten years")
        return None
    return None if grace < 0 else grace


def _named_pods(body: Field) -> Iterable[tuple[str, str]]:
    texts = dict.fromkeys(body.texts("pods"))
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
    nodes, text = tuple(dict.fromkeys(body.texts("nodes"))), body.text("selector")
    selector = None
    if text:
        try:
            selector = parse_selector(text)
        except SelectorError as error:
            body.error("selector", text, str(error))
    elif not nodes:
        body.errors.append(FieldError(REQUIRED, body.child("nodes"), None, "or selector"))
    return nodes, selector


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
        given = {"key": key, "effect": effect, "value": text}
        yield {name: one for name, one in given.items() if one}


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


def _objects(body: Field, kind: str) -> Iterable[Manifest]:
    entries = body.items("objects")
    if not entries:
        body.errors.append(FieldError(REQUIRED, body.child("objects")))
    for number, given in enumerate(entries):
        path = f"{body.child('objects')}[{number}]"
        listed: list[Any] = [given]
        if isinstance(given, dict) and str(given.get("kind") or "").endswith("List"):
            items = given.get("items")
            if items is not None and not isinstance(items, list):
                detail = "must be a list"
                body.errors.append(FieldError(TYPE_INVALID, f"{path}.items", None, detail))
                continue
            listed = items or []
        for one in listed:
            if not isinstance(one, dict) or one.get("kind", kind) != kind:
                detail = f"must be a {kind}"
                body.errors.append(FieldError(TYPE_INVALID, path, None, detail))
                continue
            problem = type_error(kind, one)
            if problem is not None:
                where = f"{path}.{problem.field}" if problem.field else path
                body.errors.append(FieldError(problem.type, where, None, problem.detail))
                continue
            if kind == "Node" and not (one.get("metadata") or {}).get("name"):
                body.errors.append(FieldError(REQUIRED, f"{path}.metadata.name"))
                continue
            yield {"apiVersion": "v1", "kind": kind, **one}
