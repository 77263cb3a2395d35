"""The terms of a pod behind a reason of the scheduler, as kubectl writes them.

"node(s) didn't match Pod's node affinity/selector" does not name the selector: pods with one reason
may need different labels. The reasons are those of nodeaffinity, interpodaffinity,
podtopologyspread and nodeports (pkg/scheduler/framework/plugins, v1.36). Taints are not included:
they are found on the nodes.
"""

from collections.abc import Callable, Iterable, Iterator
from typing import Final

from clusterstate.objects.rules.matching import NODE_SELECTOR_OPERATORS
from clusterstate.objects.values.labels import EQUALS, IN, Requirement
from clusterstate.objects.values.pod import (
    LabelSelector,
    NodeSelector,
    PodAffinityTerm,
    PodSpec,
    SelectorRequirement,
)

_HARD: Final = "DoNotSchedule"


def terms_for(spec: PodSpec, reason: str) -> tuple[str, ...]:
    """Return the terms of a pod that a reason is about, sorted; empty where the reason says all."""
    find = _ABOUT.get(reason)
    return () if find is None else tuple(sorted(set(find(spec))))


def _of_nodes(spec: PodSpec) -> Iterator[str]:
    for key, text in spec.node_selector.items():
        yield f"{key}={text}"
    affinity = spec.affinity.node_affinity if spec.affinity else None
    if affinity is not None:
        yield from _any_of(affinity.required_during_scheduling_ignored_during_execution)
        yield from _any_of(affinity.required_during_scheduling_required_during_execution)


def _any_of(selector: NodeSelector | None) -> Iterator[str]:
    """Yield the terms of a node selector, which are ORed, as one text.

    A term without requirements matches no node, so that it is left out beside others. Each pod of a
    DaemonSet names its own node: the name is left out, so that they stay together.
    """
    if selector is None:
        return
    terms = []
    for term in selector.node_selector_terms:
        requirements = [*map(_requirement, term.match_expressions)]
        requirements += ["one node by its name"] if term.match_fields else []
        if requirements:
            terms.append(" and ".join(sorted(requirements)))
    yield " or ".join(dict.fromkeys(terms)) or "no node"


def _requirement(one: SelectorRequirement) -> str:
    operator = NODE_SELECTOR_OPERATORS[one.operator]
    if operator == IN and len(one.values) == 1:
        operator = EQUALS
    return str(Requirement(one.key, operator, one.values))


def _selected(selector: LabelSelector | None, everything: str = "all pods") -> str:
    if selector is None:
        return "no pods"
    requirements = [f"{key}={text}" for key, text in selector.match_labels.items()]
    requirements += map(_requirement, selector.match_expressions)
    return ",".join(sorted(requirements)) or everything


def _of_pods(terms: Iterable[PodAffinityTerm]) -> Iterator[str]:
    for one in terms:
        spaces = sorted(one.namespaces)
        if one.namespace_selector is not None:
            chosen = _selected(one.namespace_selector, "")
            spaces.append(f"namespaces with {chosen}" if chosen else "all namespaces")
        within = f" in {','.join(spaces)}" if spaces else ""
        yield f"{_selected(one.label_selector)}{within} by {one.topology_key}"


def _affinity(spec: PodSpec) -> Iterator[str]:
    rules = spec.affinity.pod_affinity if spec.affinity else None
    yield from _of_pods(rules.required_during_scheduling_ignored_during_execution if rules else ())


def _anti_affinity(spec: PodSpec) -> Iterator[str]:
    rules = spec.affinity.pod_anti_affinity if spec.affinity else None
    yield from _of_pods(rules.required_during_scheduling_ignored_during_execution if rules else ())


def _spread(spec: PodSpec) -> Iterator[str]:
    for one in spec.topology_spread_constraints:
        if one.when_unsatisfiable == _HARD:
            chosen = _selected(one.label_selector)
            yield f"{chosen} by {one.topology_key}, at most {one.max_skew} apart"


def _host_ports(spec: PodSpec) -> Iterator[str]:
    for container in (*spec.init_containers, *spec.containers):
        for port in container.ports:
            if port.host_port:
                yield f"{port.host_port}/{port.protocol}"


_ABOUT: Final[dict[str, Callable[[PodSpec], Iterator[str]]]] = {
    "node(s) didn't match Pod's node affinity/selector": _of_nodes,
    "node(s) didn't match pod affinity rules": _affinity,
    "node(s) didn't match pod anti-affinity rules": _anti_affinity,
    "node(s) didn't match pod topology spread constraints": _spread,
    "node(s) didn't match pod topology spread constraints (missing required label)": _spread,
    "node(s) didn't have free ports for the requested pod ports": _host_ports,
}
