"""What a pod asks for that the cluster as it is does not have: accepted, and worth a warning.

An anti-affinity over a label that nodes lack keeps nothing apart there (R98); a toleration for a
taint that no node has, and a selector that no node satisfies, are mostly misspelt. Kubernetes
accepts these in silence. What nodes have is asked of the database and remembered for a few seconds,
so that creating many pods asks once; a warning may be that much out of date. Said only while there
are nodes at all.
"""

from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

import msgspec

from clusterstate.database import sql
from clusterstate.objects.rules.matching import tolerates
from clusterstate.objects.values.labels import SelectorError, selector_from_label_selector
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.node import Taint
from clusterstate.objects.values.pod import LabelSelector, Toleration
from clusterstate.processes import memory
from clusterstate.queries.objects.lists import list_page

REMEMBER_SECONDS: Final = 5.0
_MOST: Final = 1024
_LONGEST: Final = 512
"""Characters of a label's key and value, or of a taint, that are worth remembering."""
_ASKING: Final = frozenset({"nodeSelector", "affinity", "tolerations", "topologySpreadConstraints"})
_SYSTEM: Final = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
_WELL_KNOWN: Final = frozenset(
    {
        "node-role.kubernetes.io/control-plane",
        "node-role.kubernetes.io/master",
        "CriticalAddonsOnly",
    }
)
"""Taints that the add-ons of most clusters tolerate, whether a node has them or not."""
_OPERATORS: Final = frozenset({"In", "NotIn", "Exists", "DoesNotExist"})
_REQUIRED: Final = "requiredDuringSchedulingIgnoredDuringExecution"
_DURING: Final = "requiredDuringSchedulingRequiredDuringExecution"
_PREFERRED: Final = "preferredDuringSchedulingIgnoredDuringExecution"

Known = TypeVar("Known")
_remembered: dict[tuple[str, str], tuple[float, Any]] = {}
memory.when_replaced(_remembered.clear)


def about(kind: str, manifest: Manifest, now: float) -> list[str]:
    """Return warnings about a pod, or a workload's pods, as asked for; the manifest is typed.

    ``now``: seconds from any start. Queries nothing for pods that ask for nothing special.
    """
    spec, path = manifest.get("spec") or {}, "spec"
    if kind != "Pod":
        template = spec.get("template")
        if not isinstance(template, dict):
            return []
        spec, path = template.get("spec") or {}, "spec.template.spec"
    if _ASKING.isdisjoint(spec):
        return []
    found = [
        *_selectors(spec, path, now),
        # Daemons tolerate whatever a node may bring that comes later.
        *(_tolerations(spec, path, now) if kind != "DaemonSet" else ()),
        *_topologies(spec, path, now),
    ]
    return found if found and _node_count(now) else []


def _remember(what: str, key: str, now: float, ask: Callable[[], Known]) -> Known:
    entry = _remembered.get((what, key))
    if entry is not None and now < entry[0]:
        value: Known = entry[1]
        return value
    value = ask()
    if len(key) > _LONGEST:  # nobody has checked the manifest: a key may be as long as a body
        return value
    if len(_remembered) >= _MOST:
        _remembered.clear()
    _remembered[what, key] = now + REMEMBER_SECONDS, value
    return value


def _node_count(now: float) -> int:
    return _remember("nodes", "", now, lambda: _number("SELECT count(*) FROM node"))


def _number(statement: str, *parameters: str) -> int:
    row = sql.fetch_one(statement, parameters)
    assert row is not None
    number: int = row[0]
    return number


# Selectors ------------------------------------------------------------------------------------


def _selectors(spec: Manifest, path: str, now: float) -> Iterator[str]:
    labels: dict[str, str] = spec.get("nodeSelector") or {}
    if labels and not _somewhere(labels, [], now):
        yield f"{path}.nodeSelector: no node has these labels now"
        return
    affinity = (spec.get("affinity") or {}).get("nodeAffinity") or {}
    for name in (_REQUIRED, _DURING):
        terms = (affinity.get(name) or {}).get("nodeSelectorTerms") or []
        if terms and not any(_term_matches(labels, term, now) for term in terms):
            yield f"{path}.affinity.nodeAffinity.{name}: no node matches it now"


def _term_matches(labels: dict[str, str], term: Manifest, now: float) -> bool:
    """Return whether a node matches; True for terms that labels alone do not decide."""
    expressions = term.get("matchExpressions") or []
    if term.get("matchFields") or not expressions:
        return True
    if any(one.get("operator") not in _OPERATORS for one in expressions):
        return True
    return _somewhere(labels, expressions, now)


def _somewhere(labels: dict[str, str], expressions: list[Manifest], now: float) -> bool:
    selector_ = {"matchLabels": labels, "matchExpressions": expressions}
    key = msgspec.json.encode(selector_, order="sorted").decode()

    def ask() -> bool:
        try:
            selector = selector_from_label_selector(msgspec.convert(selector_, LabelSelector))
        except (SelectorError, msgspec.ValidationError):
            return True  # admission says what is wrong with it
        return bool(list_page("Node", label_selector=selector, limit=1).items)

    return _remember("selector", key, now, ask)


# Tolerations ----------------------------------------------------------------------------------


def _tolerations(spec: Manifest, path: str, now: float) -> Iterator[str]:
    tolerations = spec.get("tolerations") or []
    if not tolerations:
        return
    taints = _remember("taints", "", now, _taints)
    for index, one in enumerate(tolerations):
        key = one.get("key") or ""
        if not key or key.startswith(_SYSTEM) or key in _WELL_KNOWN:
            continue
        try:
            toleration = msgspec.convert(one, Toleration)
        except msgspec.ValidationError:
            continue
        if not any(tolerates(toleration, taint) for taint in taints):
            yield f'{path}.tolerations[{index}]: no node has a taint "{key}" that it tolerates now'


def _taints() -> list[Taint]:
    rows = sql.fetch("SELECT DISTINCT key, value, effect FROM taint")
    return [Taint(key=key, value=value, effect=effect) for key, value, effect in rows]


# Topologies -----------------------------------------------------------------------------------


def _topologies(spec: Manifest, path: str, now: float) -> Iterator[str]:
    affinity = spec.get("affinity") or {}
    for name in ("podAffinity", "podAntiAffinity"):
        part = affinity.get(name) or {}
        where = f"{path}.affinity.{name}"
        terms = [(f"{where}.{_REQUIRED}[{i}]", t) for i, t in enumerate(part.get(_REQUIRED) or [])]
        terms += [
            (f"{where}.{_PREFERRED}[{i}].podAffinityTerm", one.get("podAffinityTerm") or {})
            for i, one in enumerate(part.get(_PREFERRED) or [])
        ]
        for at, term in terms:
            key = term.get("topologyKey") or ""
            missing, every = _lacking(key, now)
            if missing == every > 0:
                yield f'{at}.topologyKey: no node has the label "{key}" now'
            elif missing and name == "podAntiAffinity":
                yield (
                    f'{at}.topologyKey: {missing} of {every} nodes have no label "{key}": pods'
                    " there are not kept apart"
                )
    for index, constraint in enumerate(spec.get("topologySpreadConstraints") or []):
        key = constraint.get("topologyKey") or ""
        missing, every = _lacking(key, now)
        if missing == every > 0:
            at = f"{path}.topologySpreadConstraints[{index}]"
            yield f'{at}.topologyKey: no node has the label "{key}" now'


def _lacking(key: str, now: float) -> tuple[int, int]:
    """Return how many nodes lack a label, and how many nodes there are."""
    every = _node_count(now)
    if not key:
        return 0, every

    def ask() -> int:
        return _number("SELECT count(*) FROM node WHERE jsonb_exists(labels, %s)", key)

    return every - min(_remember("label", key, now, ask), every), every
