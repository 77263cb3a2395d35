"""Changes of a pod or of a node that may let the pod fit nodes: the new object, and the text.

An edit is a guess. Whether it helps is found by running the filters on the changed object
(``remedies``), never here.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec

from clusterstate.objects.values.labels import (
    DOES_NOT_EXIST,
    DOUBLE_EQUALS,
    EQUALS,
    EXISTS,
    GREATER_THAN,
    IN,
    LESS_THAN,
    NOT_EQUALS,
    NOT_IN,
    Requirement,
)
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.node import Node, Taint
from clusterstate.objects.values.pod import NodeSelector, Pod, PodAffinity, PodSpec, Toleration
from clusterstate.objects.values.quantity import milli_value, value

_MEBI: Final = 2**20
_NOTHING: Final[tuple[object, ...]] = (None, "", [], {})
_UNSCHEDULABLE_TAINT: Final = "node.kubernetes.io/unschedulable"
HARD, SOFT = "DoNotSchedule", "ScheduleAnyway"

Thing = TypeVar("Thing", Pod, Node)


class Edit(msgspec.Struct, frozen=True):
    """One change: ``action`` and ``about`` for programs, ``text`` for people."""

    action: str
    text: str
    about: Manifest


class PodEdit(Edit, frozen=True):
    """A change of the pod; ``change`` returns ``None`` if it does not apply to the pod."""

    change: Callable[[Pod], Pod | None]


class NodeEdit(Edit, frozen=True):
    """A change that can be applied to any node."""

    change: Callable[[Node], Node]


def patch(before: Thing, after: Thing) -> Manifest:
    """Return the difference as a merge patch: members of spec, labels, amounts of status."""
    old: Manifest = msgspec.to_builtins(before)
    new: Manifest = msgspec.to_builtins(after)
    found: Manifest = {}
    spec = _changed(old["spec"], new["spec"])
    if spec:
        found["spec"] = spec
    labels = _changed(old["metadata"]["labels"], new["metadata"]["labels"])
    if labels:
        found["metadata"] = {"labels": labels}
    if isinstance(after, Node):
        amounts = _changed(old["status"]["allocatable"], new["status"]["allocatable"])
        if amounts:
            found["status"] = {"allocatable": amounts}
    return found


def patch_of(stored: Manifest, way: Sequence[PodEdit]) -> Manifest | None:
    """Return the merge patch for edits of a stored pod; ``None`` if one does not apply.

    A merge patch replaces lists as a whole, so containers, ports and terms have all fields of the
    manifest in it, not only those of ``Pod``.
    """
    before = msgspec.convert(stored, Pod)
    after: Pod | None = before
    for edit in way:
        after = None if after is None else edit.change(after)
    if after is None:
        return None
    found = patch(before, after)
    spec = found.get("spec") or {}
    old, new = (msgspec.to_builtins(one)["spec"] for one in (before, after))
    for name in spec:
        if name in stored["spec"] and new[name] not in _NOTHING:
            whole = _carried_over(stored["spec"][name], old[name], new[name])
            was = stored["spec"][name]
            spec[name] = _differs(was, whole) if isinstance(was, dict) else whole
    return found


def _carried_over(stored: Any, old: Any, new: Any) -> Any:
    """Return ``stored`` with the change from ``old`` to ``new``; its other members stay."""
    if old == new:
        return stored
    if isinstance(new, dict) and isinstance(old, dict) and isinstance(stored, dict):
        names = (*stored, *(name for name in new if name not in stored))
        found = {
            name: _carried_over(stored.get(name), old.get(name), new[name])
            if name in new
            else stored[name]
            for name in names
            if name in new or name not in old
        }
        return {name: one for name, one in found.items() if name in stored or one not in _NOTHING}
    if isinstance(new, list | tuple) and isinstance(old, list | tuple) and stored:
        if len(new) == len(old):
            return [_carried_over(*parts) for parts in zip(stored, old, new, strict=True)]
        return [
            stored[old.index(one)] if one in old else _pruned(one) for one in new
        ]  # some were dropped, or one was added
    return _pruned(new)


def _differs(stored: Manifest, whole: Manifest) -> Manifest:
    """Return the JSON merge patch that turns ``stored`` into ``whole``."""
    found: Manifest = {name: None for name in stored if name not in whole}
    for name, one in whole.items():
        was = stored.get(name)
        if isinstance(one, dict) and isinstance(was, dict):
            if inner := _differs(was, one):
                found[name] = inner
        elif one != was:
            found[name] = None if one in _NOTHING else one
    return found


def _changed(old: Mapping[str, Any], new: Mapping[str, Any]) -> Manifest:
    found: Manifest = {}
    for key in (*old, *(key for key in new if key not in old)):
        before, after = old.get(key), new.get(key)
        if before == after:
            continue
        if isinstance(before, dict) and isinstance(after, dict):
            found[key] = _changed(before, after)
        else:
            pruned = _pruned(after)
            found[key] = None if pruned in _NOTHING else pruned
    return found


def _pruned(value: Any) -> Any:
    """Return a JSON value without empty members, as in hand-written manifests."""
    if isinstance(value, dict):
        members = {key: _pruned(one) for key, one in value.items()}
        return {key: one for key, one in members.items() if one not in _NOTHING}
    return [_pruned(one) for one in value] if isinstance(value, list | tuple) else value


def _with_spec(pod: Pod, **members: Any) -> Pod:
    spec: PodSpec = msgspec.structs.replace(pod.spec, **members)
    return msgspec.structs.replace(pod, spec=spec)


# --- taints --------------------------------------------------------------------------------------


def tolerate(taint: Taint) -> PodEdit:
    """Return the edit that adds a toleration of exactly this taint to the pod."""
    if taint.value:
        toleration = Toleration(
            key=taint.key, operator="Equal", value=taint.value, effect=taint.effect
        )
    else:
        toleration = Toleration(key=taint.key, operator="Exists", effect=taint.effect)

    def change(pod: Pod) -> Pod:
        return _with_spec(pod, tolerations=(*pod.spec.tolerations, toleration))

    return PodEdit(
        "Tolerate",
        f"tolerate {taint_text(taint)}",
        {"toleration": _pruned(msgspec.to_builtins(toleration))},
        change,
    )


def untaint(taint: Taint) -> NodeEdit:
    """Return the edit that removes a taint from nodes."""

    def change(node: Node) -> Node:
        remaining = tuple(
            one
            for one in node.spec.taints
            if (one.key, one.value, one.effect) != (taint.key, taint.value, taint.effect)
        )
        spec = msgspec.structs.replace(node.spec, taints=remaining)
        return msgspec.structs.replace(node, spec=spec)

    about = {"key": taint.key, "value": taint.value, "effect": taint.effect}
    return NodeEdit(
        "Untaint", f"remove the taint {taint_text(taint)} from", {"taint": _pruned(about)}, change
    )


def uncordon() -> NodeEdit:
    """Return the edit that uncordons nodes, and removes the unschedulable taint."""

    def change(node: Node) -> Node:
        remaining = tuple(one for one in node.spec.taints if one.key != _UNSCHEDULABLE_TAINT)
        spec = msgspec.structs.replace(node.spec, taints=remaining, unschedulable=False)
        return msgspec.structs.replace(node, spec=spec)

    return NodeEdit("Uncordon", "uncordon", {}, change)


def is_cordon(taint: Taint) -> bool:
    """Return whether a taint is the one that a cordon adds."""
    return taint.key == _UNSCHEDULABLE_TAINT


def taint_text(taint: Taint) -> str:
    """Return a taint as kubectl writes it."""
    return (
        f"{taint.key}={taint.value}:{taint.effect}"
        if taint.value
        else f"{taint.key}:{taint.effect}"
    )


# --- labels --------------------------------------------------------------------------------------


def label(requirements: tuple[Requirement, ...]) -> NodeEdit | None:
    """Return the edit that adds labels which satisfy requirements, ``None`` if none can."""
    values: dict[str, str | None] = {}
    for one in requirements:
        if one.operator in (IN, EQUALS, DOUBLE_EQUALS):
            values[one.key] = min(one.values, default="")
        elif one.operator == EXISTS:
            values.setdefault(one.key, "true")
        elif one.operator in (NOT_IN, NOT_EQUALS, DOES_NOT_EXIST):
            values[one.key] = None
        elif one.operator in (GREATER_THAN, LESS_THAN) and one.number is not None:
            values[one.key] = str(one.number + (1 if one.operator == GREATER_THAN else -1))
        else:
            return None
    if not values:
        return None

    def change(node: Node) -> Node:
        labels = {key: text for key, text in node.metadata.labels.items() if key not in values}
        labels |= {key: text for key, text in values.items() if text is not None}
        metadata = msgspec.structs.replace(node.metadata, labels=labels)
        return msgspec.structs.replace(node, metadata=metadata)

    args = [f"{key}-" if text is None else f"{key}={text}" for key, text in sorted(values.items())]
    return NodeEdit("Label", f"label {','.join(args)} on", {"labels": values}, change)


def drop_selector(keys: frozenset[str]) -> PodEdit:
    """Return the edit that removes keys from the pod's nodeSelector."""

    def change(pod: Pod) -> Pod | None:
        before = pod.spec.node_selector
        remaining = {key: text for key, text in before.items() if key not in keys}
        return None if len(remaining) == len(before) else _with_spec(pod, node_selector=remaining)

    listed = sorted(keys)
    return PodEdit(
        "DropNodeSelector", f"drop {', '.join(listed)} from the node selector",
        {"keys": listed}, change,
    )  # fmt: skip


def drop_node_requirements(
    requirements: frozenset[Requirement], keys: frozenset[str] = frozenset()
) -> PodEdit:
    """Return the edit that removes requirements from the pod's required node affinity.

    ``keys``: keys of the nodeSelector that are removed as well.
    """
    unwanted = {one.key for one in requirements}

    def trimmed(selector: NodeSelector | None) -> NodeSelector | None:
        if selector is None:
            return None
        terms = []
        for term in selector.node_selector_terms:
            expressions = tuple(one for one in term.match_expressions if one.key not in unwanted)
            if not expressions and not term.match_fields:
                return None  # a term without requirements asks for nothing
            terms.append(msgspec.structs.replace(term, match_expressions=expressions))
        return msgspec.structs.replace(selector, node_selector_terms=tuple(terms))

    def change(pod: Pod) -> Pod | None:
        affinity = pod.spec.affinity
        rules = affinity.node_affinity if affinity else None
        if affinity is None or rules is None:
            return None
        after = msgspec.structs.replace(
            rules,
            required_during_scheduling_required_during_execution=trimmed(
                rules.required_during_scheduling_required_during_execution
            ),
            required_during_scheduling_ignored_during_execution=trimmed(
                rules.required_during_scheduling_ignored_during_execution
            ),
        )
        remaining = {key: text for key, text in pod.spec.node_selector.items() if key not in keys}
        return _with_spec(
            pod,
            affinity=msgspec.structs.replace(affinity, node_affinity=after),
            node_selector=remaining,
        )

    names = sorted({*unwanted, *keys})
    return PodEdit(
        "DropNodeAffinity", f"do not require {', '.join(names)} of nodes", {"keys": names}, change
    )


# --- resources -----------------------------------------------------------------------------------


def amount_text(resource: str, amount: int, *, up: bool) -> str:
    """Return an amount as a quantity; bytes in whole MiB, rounded ``up`` or down."""
    if resource == "cpu":
        return f"{amount}m" if amount % 1000 else str(amount // 1000)
    if resource in ("memory", "ephemeral-storage") or resource.startswith("hugepages-"):
        if amount < _MEBI:
            return str(amount)
        mebi = -(-amount // _MEBI) if up else amount // _MEBI
        return f"{mebi // 1024}Gi" if mebi % 1024 == 0 else f"{mebi}Mi"
    return str(amount)


def _in_words(amounts: Mapping[str, str], between: str) -> str:
    """Return amounts by resource as words of a sentence; CPU in cores, 63.5 for 63500m."""
    found = []
    for name, amount in sorted(amounts.items()):
        cores, rest = divmod(milli_value(amount), 1000) if name == "cpu" else (0, 0)
        shown = f"{cores}.{rest:03}".rstrip("0") if cores and rest else amount
        found.append(f"{shown}{between}{name}")
    return " and ".join(found)


def add_capacity(lacking: Mapping[str, int]) -> NodeEdit:
    """Return the edit that adds these amounts to nodes' allocatable."""
    texts = {name: amount_text(name, amount, up=True) for name, amount in lacking.items()}

    def change(node: Node) -> Node:
        amounts = dict(node.status.allocatable)
        for name, text in texts.items():
            if name == "cpu":
                amounts[name] = f"{milli_value(amounts.get(name, 0)) + milli_value(text)}m"
            else:
                amounts[name] = str(value(amounts.get(name, 0)) + value(text))
        status = msgspec.structs.replace(node.status, allocatable=amounts)
        return msgspec.structs.replace(node, status=status)

    text = _in_words(texts, " more ")
    return NodeEdit("AddCapacity", f"{text} on", {"resources": texts}, change)


def ask_less(lacking: Mapping[str, int], pod_requests: Mapping[str, int]) -> PodEdit | None:
    """Return the edit that lowers the pod's requests by ``lacking``, ``None`` if impossible.

    It lowers the container with the largest request, whose request must stay above 0.

    Args:
        lacking: amounts to lower, by resource.
        pod_requests: the pod's requests, by resource.
    """
    lowered = {name: pod_requests.get(name, 0) - amount for name, amount in lacking.items()}
    if any(amount <= 0 for amount in lowered.values()):
        return None

    def change(pod: Pod) -> Pod | None:
        containers = list(pod.spec.containers)
        for name, by in lacking.items():
            amounts = [_amount(one.resources.requests.get(name, 0), name) for one in containers]
            most = max(amounts, default=0)
            if most <= by:
                return None
            at = amounts.index(most)
            requests = {
                **containers[at].resources.requests,
                name: amount_text(name, most - by, up=False),
            }
            resources = msgspec.structs.replace(containers[at].resources, requests=requests)
            containers[at] = msgspec.structs.replace(containers[at], resources=resources)
        return _with_spec(pod, containers=tuple(containers))

    texts = {name: amount_text(name, amount, up=False) for name, amount in lowered.items()}
    text = _in_words(texts, " ")
    return PodEdit("Request", f"ask for at most {text}", {"resources": texts}, change)


def _amount(text: str | float, resource: str) -> int:
    return milli_value(text) if resource == "cpu" else value(text)


# --- other pods ----------------------------------------------------------------------------------


def drop_host_ports() -> PodEdit:
    """Return the edit that removes the pod's host ports."""

    def change(pod: Pod) -> Pod:
        def without(containers: tuple[Any, ...]) -> tuple[Any, ...]:
            return tuple(
                msgspec.structs.replace(
                    one, ports=tuple(msgspec.structs.replace(p, host_port=0) for p in one.ports)
                )
                for one in containers
            )

        return _with_spec(
            pod,
            containers=without(pod.spec.containers),
            init_containers=without(pod.spec.init_containers),
        )

    return PodEdit("DropHostPorts", "do without the host ports", {}, change)


def drop_affinity_term(number: int | None, *, anti: bool) -> PodEdit:
    """Return the edit that drops one required term of pod affinity, or all (``None``)."""
    member = "pod_anti_affinity" if anti else "pod_affinity"

    def change(pod: Pod) -> Pod | None:
        affinity = pod.spec.affinity
        rules: PodAffinity | None = getattr(affinity, member) if affinity else None
        if affinity is None or rules is None:
            return None
        terms = rules.required_during_scheduling_ignored_during_execution
        if not terms or (number is not None and number >= len(terms)):
            return None
        remaining = () if number is None else tuple(t for at, t in enumerate(terms) if at != number)
        after = msgspec.structs.replace(
            rules, required_during_scheduling_ignored_during_execution=remaining
        )
        return _with_spec(pod, affinity=msgspec.structs.replace(affinity, **{member: after}))

    which = "the required" if number is None else f"required term {number + 1} of the"
    name = "pod anti-affinity" if anti else "pod affinity"
    about: Manifest = {} if number is None else {"term": number}
    action = "DropPodAntiAffinity" if anti else "DropPodAffinity"
    return PodEdit(action, f"drop {which} {name}", about, change)


def relax_spread(number: int | None) -> PodEdit:
    """Return the edit that makes one spread constraint, or all (``None``), ScheduleAnyway."""

    def change(pod: Pod) -> Pod | None:
        found = list(pod.spec.topology_spread_constraints)
        hard = [at for at, one in enumerate(found) if one.when_unsatisfiable == HARD]
        chosen = hard if number is None else hard[number : number + 1]
        if not chosen:
            return None
        for at in chosen:
            found[at] = msgspec.structs.replace(
                found[at], when_unsatisfiable=SOFT, min_domains=None
            )
        return _with_spec(pod, topology_spread_constraints=tuple(found))

    which = "the spread constraints" if number is None else f"spread constraint {number + 1}"
    about: Manifest = {} if number is None else {"constraint": number}
    return PodEdit("RelaxSpread", f"make {which} ScheduleAnyway", about, change)


def raise_priority(to: int, name: str) -> PodEdit:
    """Return the edit that sets the pod's priority class and lets it preempt."""

    def change(pod: Pod) -> Pod | None:
        if (pod.spec.priority or 0) >= to:
            return None
        return _with_spec(
            pod, priority=to, priority_class_name=name, preemption_policy="PreemptLowerPriority"
        )

    return PodEdit(
        "RaisePriority", f"use the priority class {name} ({to})",
        {"priorityClassName": name, "priority": to}, change,
    )  # fmt: skip
