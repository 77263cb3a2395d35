"""Reads the ``Scenario`` document: a world, and steps by time; collects all errors in one."""

from collections.abc import Iterable
from typing import Any, Final

import msgspec

from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.values.errors import (
    NOT_SUPPORTED,
    REQUIRED,
    TYPE_INVALID,
    FieldError,
    Invalid,
)
from clusterstate.objects.values.meta import Manifest
from scheduling.engine.reference.cycle import draw_below, mix
from scheduling.framework.configuration import KubeSchedulerConfiguration, reading
from scheduling.framework.configuration.reading import Errors, Field
from scheduling.plugins.catalogue import load_configuration
from scheduling.scenarios import durations
from scheduling.scenarios.script import Arrival, Gone, NodeChange, Script, Step
from scheduling.simulation.document import API_VERSION, GROUP, below, type_error

KIND: Final = "Scenario"
_UNREACHABLE: Final = "node.kubernetes.io/unreachable"
_MOST_ARRIVALS: Final = 1_000_000
"""The most arrivals of a scenario: each takes about a kilobyte of memory."""
_EFFECTS: Final = frozenset({"NoSchedule", "PreferNoSchedule", "NoExecute"})
_CHANGES: Final = ("cordon", "uncordon", "fail", "recover", "taint", "untaint")
_LISTS: Final = frozenset({"List", *(f"{kind}List" for kind in KINDS)})


def read(document: object) -> Script:
    """Return the script of a ``Scenario`` document.

    Raises:
        Invalid: with every wrong field; also every unknown one.
        BadRequest: the document is nested too deeply.
    """
    errors: Errors = []
    head = reading.document(document, api_version=API_VERSION, kind=KIND, errors=errors)
    spec = head.spec
    seed = spec.integer("seed", 0)
    if not 0 <= seed < 2**63:
        spec.error("seed", seed, f"must be between 0 and {2**63 - 1}")
    steps: list[Step] = []
    for number, entry in enumerate(spec.objects("steps")):
        remaining = _MOST_ARRIVALS - sum(len(step.arrivals) for step in steps)
        steps += _steps(entry, seed=seed + number, most=remaining, errors=errors)
    scored = spec.texts("measure")
    script = Script(
        title=head.name or "scenario",
        objects=_objects(spec, "objects", errors),
        steps=sorted(steps, key=lambda step: step.at),
        until=_duration(spec, "until", None),
        grace=_duration(spec, "grace", 0.0) or 0.0,
        seed=seed,
        admission=spec.boolean("admission", default=True),
        configuration=_configuration(spec),
        scored=tuple(scored) or ("cpu", "memory"),
        is_typed=True,
    )
    head.finish()
    if errors:
        raise Invalid(KIND, script.title, errors, GROUP)
    return script


def _duration(field: Field, name: str, default: float | None) -> float | None:
    if not field.has(name):
        return default
    value = field.take(name)
    seconds = durations.read(value)
    if seconds is None:
        shown = value if isinstance(value, str | int | float | bool) else None
        field.error(name, shown, 'must be a duration such as "90s", "10m" or "1h30m"')
    return seconds


def _configuration(spec: Field) -> KubeSchedulerConfiguration | None:
    field = spec.object("configuration")
    if field is None:
        return None
    try:
        return load_configuration(field.rest())
    except Invalid as invalid:
        spec.errors += [below(field.path, error) for error in invalid.errors]
        return None


def _objects(field: Field, name: str, errors: Errors) -> tuple[Manifest, ...]:
    return tuple(_checked(field.items(name), field.child(name), errors))


def _checked(items: list[Any], path: str, errors: Errors) -> Iterable[Manifest]:
    """Yield the objects of known kinds that have names; those of a list one by one."""
    for number, item in enumerate(items):
        where = f"{path}[{number}]"
        if not isinstance(item, dict):
            errors.append(FieldError(TYPE_INVALID, where, None, "must be an object"))
            continue
        kind = item.get("kind")
        if kind in _LISTS and isinstance(item.get("items"), list):
            of = {"kind": kind.removesuffix("List")} if kind != "List" else {}
            inner = [{**of, **one} if isinstance(one, dict) else one for one in item["items"]]
            yield from _checked(inner, f"{where}.items", errors)
            continue
        if not isinstance(kind, str) or not isinstance(KINDS.get(kind), msgspec.Struct):
            detail = "no such kind is known here"
            errors.append(FieldError(NOT_SUPPORTED, f"{where}.kind", kind, detail))
            continue
        problem = type_error(kind, item)
        if problem is not None:
            errors.append(below(where, problem))
            continue
        meta = item.get("metadata") or {}
        if not meta.get("name") and not meta.get("generateName"):
            errors.append(FieldError(REQUIRED, f"{where}.metadata.name"))
            continue
        yield item


def _steps(entry: Field, *, seed: int, most: int, errors: Errors) -> Iterable[Step]:
    """Return the steps of one entry of ``steps``, one for each repetition and each arrival.

    ``most``: how many arrivals are still allowed, in all repetitions together.
    """
    at = _duration(entry, "at", 0.0) or 0.0
    times = entry.integer("times", 1)
    every = _duration(entry, "every", None)
    if not 1 <= times <= 100_000:
        entry.error("times", times, "must be between 1 and 100000")
        times = 1
    if times > 1 and every is None:
        errors.append(FieldError(REQUIRED, entry.child("every")))
    objects = _objects(entry, "create", errors)
    gone = tuple(_gone(entry))
    changes = tuple(_node_changes(entry))
    coming: list[tuple[float, Arrival]] = []
    for number, one in enumerate(entry.objects("arrivals")):
        # Each template draws its own times, so that pods of two templates do not arrive in pairs.
        own_seed = mix(seed, number) if number else seed
        coming += _arrivals(one, own_seed, most // times - len(coming))
    entry.finish()
    for turn in range(times):
        start = at + turn * (every or 0.0)
        first = _numbered(objects, turn) if times > 1 else objects
        if first or gone or changes:
            yield Step(start, gone, first, changes)
        for after, arrival in coming:
            again = arrival
            if times > 1:
                again = msgspec.structs.replace(
                    arrival, manifest=_numbered((arrival.manifest,), turn)[0]
                )
            yield Step(start + after, arrivals=(again,))


def _numbered(objects: Iterable[Manifest], turn: int) -> tuple[Manifest, ...]:
    """Return the objects, with ``turn`` added to pods' names to make them unique."""
    return tuple(
        {**one, "metadata": {**one["metadata"], "name": f"{one['metadata']['name']}-{turn}"}}
        if one.get("kind", "Pod") == "Pod" and one["metadata"].get("name")
        else one
        for one in objects
    )


def _gone(entry: Field) -> Iterable[Gone]:
    for one in entry.objects("delete"):
        one.take("apiVersion")
        kind, name = one.text("kind"), one.text("name")
        namespace = one.text("namespace")
        one.finish()
        if kind not in KINDS:
            detail = "no such kind is known here"
            one.errors.append(FieldError(NOT_SUPPORTED, one.child("kind"), kind, detail))
        elif not name:
            one.errors.append(FieldError(REQUIRED, one.child("name")))
        else:
            yield Gone(kind, (namespace or "default") if KINDS[kind].namespaced else "", name)


def _node_changes(entry: Field) -> Iterable[NodeChange]:
    for name in _CHANGES:
        for one in entry.objects(name):
            names = tuple(one.texts("nodes"))
            labels = one.object("matchLabels")
            chosen = {} if labels is None else labels.rest()
            for key, value in chosen.items():
                if not isinstance(value, str):
                    path = f"{one.child('matchLabels')}.{key}"
                    one.errors.append(FieldError(TYPE_INVALID, path, None, "must be a text"))
            if not names and not chosen:
                detail = "name nodes, or give matchLabels"
                one.errors.append(FieldError(REQUIRED, one.child("nodes"), None, detail))
            change = NodeChange(names, chosen)
            replace = msgspec.structs.replace
            if name in ("cordon", "uncordon"):
                change = replace(change, unschedulable=name == "cordon")
            elif name == "fail":
                taints = [{"key": _UNREACHABLE, "effect": e} for e in ("NoSchedule", "NoExecute")]
                change = replace(change, add=tuple(taints))
            elif name == "recover":
                change = replace(change, remove=({"key": _UNREACHABLE},))
            else:
                taints = list(_taints(one, needs_effect=name == "taint"))
                change = replace(change, **{"add" if name == "taint" else "remove": tuple(taints)})
            one.finish()
            yield change


def _taints(one: Field, *, needs_effect: bool) -> Iterable[Manifest]:
    for taint in one.objects("taints"):
        key, effect = taint.text("key"), taint.text("effect")
        found: Manifest = {"key": key}
        if taint.has("value"):
            found["value"] = taint.text("value")
        taint.finish()
        if not key:
            taint.errors.append(FieldError(REQUIRED, taint.child("key")))
        if effect:
            found["effect"] = effect
        if effect not in _EFFECTS and (effect or needs_effect):
            detail = 'supported values: "NoSchedule", "PreferNoSchedule", "NoExecute"'
            path = taint.child("effect")
            taint.errors.append(FieldError(NOT_SUPPORTED, path, effect, detail))
        yield found


def _arrivals(one: Field, seed: int, most: int) -> list[tuple[float, Arrival]]:
    """Return at most ``most`` pods of a template, with seconds from the step's moment."""
    template = one.object("pod")
    count = one.integer("count", 1)
    over = _duration(one, "over", 0.0) or 0.0
    runs = _duration(one, "runs", None)
    at_random = one.boolean("random", default=False)
    comes_back = one.boolean("comesBack", default=False)
    one.finish()
    if not 0 <= count <= most:
        detail = f"must not be negative; all arrivals together have at most {_MOST_ARRIVALS} pods"
        one.error("count", count, detail)
        return []
    if template is None:
        one.errors.append(FieldError(REQUIRED, one.child("pod")))
        return []
    manifest: Manifest = {"apiVersion": "v1", "kind": "Pod", **template.rest()}
    problem = type_error("Pod", manifest)
    if problem is not None:
        one.errors.append(below(template.path, problem))
        return []
    meta = dict(manifest.get("metadata") or {})
    stem = meta.get("generateName") or f"{meta.get('name') or ''}-"
    if stem == "-":
        one.errors.append(FieldError(REQUIRED, f"{template.path}.metadata.name"))
        return []
    meta.pop("generateName", None)
    found = []
    for number in range(count):
        after = over * number / count if count else 0.0
        if at_random:
            after = over * draw_below(seed, number, 2**30) / 2**30
        name = f"{stem}{number}" if count > 1 else stem.removesuffix("-")
        pod = {**manifest, "metadata": {**meta, "name": name}}
        found.append((after, Arrival(pod, runs=runs, comes_back=comes_back)))
    return found
