"""May this pod be on this node? Hard rules only, judged plainly, pod by pod and node by node."""

from collections import Counter
from collections.abc import Iterator, Mapping
from typing import Any

from tests.faults import arithmetic
from tests.faults.replay import Object, State, finished, labels_of, leaving, node_of, uid_of


def node_refuses(state: State, pod: Object, node: Object) -> list[str]:
    """Return what of the node itself keeps the pod away: cordon, taints, labels."""
    spec = pod["spec"]
    reasons = [
        f"taint {name}" for name in arithmetic.repelled(spec, node["spec"].get("taints") or ())
    ]
    if node["spec"].get("unschedulable") and not any(
        arithmetic.tolerates(one, _CORDON) for one in spec.get("tolerations") or ()
    ):
        reasons.append("cordoned")
    if not arithmetic.matches_node(spec, node):
        reasons.append("node selector")
    return reasons


_CORDON = {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"}


def free(state: State, node: Object) -> arithmetic.Amounts:
    """Return what nobody takes of a node's offer; negative where it is overcommitted."""
    left = arithmetic.amounts(node["status"].get("allocatable") or {})
    for pod in state.on_node(node["metadata"]["name"]):
        arithmetic.add(left, arithmetic.requests(pod), -1)
    return left


def missing(state: State, node: Object) -> dict[str, int]:
    """Return by how much a node is overcommitted, by resource; empty when it is not."""
    return {name: -amount for name, amount in free(state, node).items() if amount < 0}


def has_room(left: arithmetic.Amounts, pod: Object) -> bool:
    """Return whether what is free is enough for one more pod."""
    return all(wanted <= max(0, left.get(name, 0)) or not wanted
               for name, wanted in arithmetic.requests(pod).items())  # fmt: skip


def neighbours_refuse(state: State, pod: Object, node: Object) -> list[str]:
    """Return what of the other pods keeps the pod away: affinity, anti-affinity, spreading."""
    reasons = []
    others = [one for one in state.pods.values() if node_of(one) and uid_of(one) != uid_of(pod)]
    for term in _terms(pod, "podAntiAffinity"):
        if any(_touches(state, term, pod, other, node) for other in others):
            reasons.append("its anti-affinity")
    for other in others:
        if any(
            _meant(term, other, pod) and _same_domain(state, term, other, node)
            for term in _terms(other, "podAntiAffinity")
        ):
            reasons.append("anti-affinity of another")
            break
    for term in _terms(pod, "podAffinity"):
        if any(_touches(state, term, pod, other, node) for other in others):
            continue
        # The first of a group that wants its own kind may start anywhere. Who is on a node that
        # went does not count.
        nobody = not any(
            _meant(term, pod, other) and node_of(other) in state.nodes for other in others
        )
        if not (nobody and _meant(term, pod, pod) and term["topologyKey"] in labels_of(node)):
            reasons.append("its affinity")
    crowds = (_crowd(state, one, pod, node) for one in _spread(pod))
    return reasons + [crowd for crowd in crowds if crowd]


def refuses(state: State, pod: Object, node: Object) -> bool:
    """Return whether anything keeps the unbound pod off the node."""
    return bool(
        node_refuses(state, pod, node)
        or not has_room(free(state, node), pod)
        or neighbours_refuse(state, pod, node)
    )


def _terms(pod: Object, kind: str) -> list[Mapping[str, Any]]:
    affinity = (pod["spec"].get("affinity") or {}).get(kind) or {}
    return affinity.get("requiredDuringSchedulingIgnoredDuringExecution") or []


def _spread(pod: Object) -> Iterator[Mapping[str, Any]]:
    for one in pod["spec"].get("topologySpreadConstraints") or ():
        if one["whenUnsatisfiable"] == "DoNotSchedule":
            yield one


def _space(pod: Object) -> str:
    return str(pod["metadata"]["namespace"])


def _meant(term: Mapping[str, Any], owner: Object, other: Object) -> bool:
    spaces = term.get("namespaces") or [_space(owner)]
    return _space(other) in spaces and arithmetic.selects(
        term.get("labelSelector"), labels_of(other)
    )


def _same_domain(state: State, term: Mapping[str, Any], other: Object, node: Object) -> bool:
    its = state.nodes.get(node_of(other))
    key = term["topologyKey"]
    domain = labels_of(node).get(key)
    return its is not None and domain is not None and labels_of(its).get(key) == domain


def _touches(
    state: State, term: Mapping[str, Any], pod: Object, other: Object, node: Object
) -> bool:
    return _meant(term, pod, other) and _same_domain(state, term, other, node)


def _crowd(state: State, rule: Mapping[str, Any], pod: Object, node: Object) -> str:
    """Return how a rule of spreading is broken, empty when it is not."""
    key = rule["topologyKey"]
    domain = labels_of(node).get(key)
    if domain is None:
        return f"spreading: no {key}"
    counts: Counter[str] = Counter()
    keys = [one["topologyKey"] for one in _spread(pod)]
    eligible = {
        name: labels_of(one)[key]
        for name, one in state.nodes.items()
        if all(other in labels_of(one) for other in keys)
        and arithmetic.matches_node(pod["spec"], one)
    }
    for name in eligible.values():
        counts[name] += 0
    selector = rule.get("labelSelector")
    for other in state.pods.values():
        if (
            node_of(other) in eligible
            and uid_of(other) != uid_of(pod)
            and _space(other) == _space(pod)
            and not leaving(other)
            and not finished(other)
            and arithmetic.selects(selector, labels_of(other))
        ):
            counts[eligible[node_of(other)]] += 1
    own = 1 if arithmetic.selects(selector, labels_of(pod)) else 0
    fewest = min(counts.values(), default=0)
    if len(counts) < (rule.get("minDomains") or 1):
        fewest = 0
    if counts[domain] + own - fewest <= rule["maxSkew"]:
        return ""
    return f"spreading: {dict(counts)} before, {domain} chosen, skew {rule['maxSkew']}"
