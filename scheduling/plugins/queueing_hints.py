"""Which events may make a pod schedulable that a default plugin rejected.

``registrations`` is what ``engine.queue`` asks; each hint below looks at one event for one plugin.
A hint may say yes too often: that costs one attempt. It must never say no when the event helps, or
the pod waits for the flush; where Kubernetes' hint looks at less than the rule depends on (labels
under ``nodeAffinityPolicy``, anti-affinity of existing pods), this one says yes. Sources:
``EventsToRegister`` of each plugin, v1.36.
"""

from collections.abc import Callable, Mapping, Sequence

from clusterstate.objects.labels import Selector, selector_from_label_selector
from clusterstate.objects.matching import (
    HARD_EFFECTS,
    NO_SCHEDULE,
    EmptyTerm,
    NodeSelectorMatcher,
    RequiredNodeAffinity,
    find_untolerated,
    node_fields,
    tolerated,
)
from clusterstate.objects.node import Node, Taint
from clusterstate.objects.pod import Container, NodeSelector, Pod, PodAffinity, PodAffinityTerm
from clusterstate.objects.quantity import Quantity
from clusterstate.objects.resources import current_requests, pod_requests
from scheduling.framework.configuration import Profile
from scheduling.framework.events import (
    EVERY_EVENT,
    Action,
    ClusterEvent,
    EventsToRegister,
    Registration,
    Resource,
)
from scheduling.framework.formulas import never
from scheduling.framework.plugin_args import NodeAffinityArgs

_UNSCHEDULABLE_TAINT = Taint(key="node.kubernetes.io/unschedulable", effect=NO_SCHEDULE)
_POD_CHANGES = Action.ADD | Action.DELETE | Action.UPDATE_POD_LABEL


def registrations(
    profile: Profile, plugins: Mapping[str, object] | None = None
) -> dict[str, Sequence[Registration]]:
    """Return the events by plugin for the plugins of a profile.

    Args:
        profile: whose plugins and arguments count.
        plugins: the plugin objects by name; one with ``events_to_register`` speaks for itself.
    """
    given = plugins or {}
    found: dict[str, Sequence[Registration]] = {}
    for name in profile.all_plugins():
        plugin = given.get(name)
        if isinstance(plugin, EventsToRegister):
            found[name] = plugin.events_to_register()
        elif name in _BUILT_IN:
            found[name] = _BUILT_IN[name](profile)
        else:
            found[name] = EVERY_EVENT
    return found


def _node(actions: Action, hint: Callable[[Pod, ClusterEvent], bool] | None) -> Registration:
    return Registration(resource=Resource.NODE, actions=actions, hint=hint)


def _pod(actions: Action, hint: Callable[[Pod, ClusterEvent], bool] | None) -> Registration:
    return Registration(resource=Resource.ASSIGNED_POD, actions=actions, hint=hint)


def _itself(actions: Action) -> Registration:
    return Registration(resource=Resource.PENDING_POD, actions=actions)


# --- nodes: name, taints, affinity ---------------------------------------------------------------


def _node_name(pod: Pod, event: ClusterEvent) -> bool:
    return isinstance(event.new, Node) and event.new.metadata.name == pod.spec.node_name


def _node_unschedulable(pod: Pod, event: ClusterEvent) -> bool:
    if isinstance(event.old, Node) and not event.old.spec.unschedulable:
        return False
    if not isinstance(event.new, Node):
        return False
    return not event.new.spec.unschedulable or tolerated(_UNSCHEDULABLE_TAINT, pod.spec.tolerations)


def _taint_toleration(pod: Pod, event: ClusterEvent) -> bool:
    """Only a node whose taints kept the pod off before and do not now."""

    def keeps_off(node: Node) -> bool:
        found = find_untolerated(node.spec.taints, pod.spec.tolerations, HARD_EFFECTS)
        return found is not None

    if not isinstance(event.new, Node) or keeps_off(event.new):
        return False
    return not isinstance(event.old, Node) or keeps_off(event.old)


class _NodeAffinityHint:
    """Only a node that matches now and did not before; selectors are parsed once per class."""

    def __init__(self, args: NodeAffinityArgs) -> None:
        self._empty: EmptyTerm = "none" if args.empty_node_selector_term == "none" else "all"
        added = args.added_affinity
        selectors: tuple[NodeSelector | None, ...] = (
            ()
            if added is None
            else (
                added.required_during_scheduling_required_during_execution,
                added.required_during_scheduling_ignored_during_execution,
            )
        )
        self._added = [NodeSelectorMatcher(s, empty_term=self._empty) for s in selectors if s]
        self._parsed: dict[int, tuple[Pod, RequiredNodeAffinity]] = {}

    def __call__(self, pod: Pod, event: ClusterEvent) -> bool:
        if not isinstance(event.new, Node) or not self._matches(pod, event.new):
            return False
        return not isinstance(event.old, Node) or not self._matches(pod, event.old)

    def _matches(self, pod: Pod, node: Node) -> bool:
        # The key is the identity of a value that the entry itself keeps alive.
        entry = self._parsed.get(id(pod))
        if entry is None:
            if len(self._parsed) >= 10_000:
                self._parsed.clear()
            entry = self._parsed[id(pod)] = pod, RequiredNodeAffinity(pod, empty_term=self._empty)
        labels, fields = node.metadata.labels, node_fields(node.metadata.name)
        return entry[1].matches(labels, fields) and all(
            selector.matches(labels, fields) for selector in self._added
        )


def _node_affinity(profile: Profile) -> Sequence[Registration]:
    args = profile.args.get("NodeAffinity")
    hint = _NodeAffinityHint(args if isinstance(args, NodeAffinityArgs) else NodeAffinityArgs())
    return (_node(Action.ADD | Action.UPDATE_NODE_LABEL, hint), _itself(Action.UPDATE_POD_OTHER))


# --- what pods hold: ports, resources ------------------------------------------------------------


def _host_ports(pod: Pod) -> list[tuple[str, str, int]]:
    containers: tuple[Container, ...] = (*pod.spec.containers, *pod.spec.init_containers)
    return [
        (port.host_ip or "0.0.0.0", port.protocol or "TCP", port.host_port)  # noqa: S104 any address
        for container in containers
        for port in container.ports
        if port.host_port > 0
    ]


def _node_ports(pod: Pod, event: ClusterEvent) -> bool:
    """The pod that went held a port that this one wants."""
    if not isinstance(event.old, Pod):
        return False
    held = _host_ports(event.old)
    everywhere = "0.0.0.0"  # noqa: S104 the address that stands for all
    return any(
        protocol == other_protocol
        and number == other_number
        and (address == other or everywhere in (address, other))
        for address, protocol, number in _host_ports(pod)
        for other, other_protocol, other_number in held
    )


def _allocatable(node: Node) -> dict[str, Quantity]:
    return {name: Quantity.parse(text) for name, text in node.status.allocatable.items()}


_ZERO = Quantity.of(0)


def _node_grew(pod: Pod, event: ClusterEvent) -> bool:
    """The empty node would hold the pod, and has more than before of something it needs."""
    if not isinstance(event.new, Node):
        return False
    now = _allocatable(event.new)
    wanted = {name: q for name, q in pod_requests(pod).items() if q.sign > 0}
    wanted["pods"] = Quantity.of(1)
    if any(never(quantity, now.get(name, _ZERO)) for name, quantity in wanted.items()):
        return False
    if not isinstance(event.old, Node):
        return True
    before = _allocatable(event.old)
    return any(now.get(name, _ZERO) > before.get(name, _ZERO) for name in wanted)


def _pod_shrank(pod: Pod, event: ClusterEvent) -> bool:
    """The other pod asks for less of something that this one needs."""
    if not isinstance(event.old, Pod) or not isinstance(event.new, Pod):
        return True
    before, after = current_requests(event.old), current_requests(event.new)
    return any(after.get(name, _ZERO) < before.get(name, _ZERO) for name in pod_requests(pod))


# --- topology ------------------------------------------------------------------------------------


def _has_keys(node: Node | Pod | None, keys: Sequence[str]) -> bool:
    return isinstance(node, Node) and all(key in node.metadata.labels for key in keys)


def _spread_nodes(pod: Pod, event: ClusterEvent) -> bool:
    """The node is or was in a domain of every constraint."""
    keys = [
        constraint.topology_key
        for constraint in pod.spec.topology_spread_constraints
        if constraint.when_unsatisfiable == "DoNotSchedule"
    ]
    return _has_keys(event.new, keys) or _has_keys(event.old, keys)


def _spread_pods(pod: Pod, event: ClusterEvent) -> bool:
    """The other pod is or was counted by one of the constraints."""
    other = event.new or event.old
    if not isinstance(other, Pod) or other.metadata.namespace != pod.metadata.namespace:
        return False
    constraints = pod.spec.topology_spread_constraints
    if not constraints:
        # The profile's default constraints select by what owns the pod.
        return True
    for constraint in constraints:
        if constraint.when_unsatisfiable != "DoNotSchedule":
            continue
        selector = selector_from_label_selector(constraint.label_selector)
        sides = [
            selector.matches(side.metadata.labels)
            for side in (event.old, event.new)
            if isinstance(side, Pod)
        ]
        if (len(sides) == 1 and sides[0]) or (len(sides) == 2 and any(sides)):
            return True
    return False


def _terms(affinity: PodAffinity | None) -> tuple[PodAffinityTerm, ...]:
    return affinity.required_during_scheduling_ignored_during_execution if affinity else ()


def _affinity_terms(pod: Pod) -> tuple[PodAffinityTerm, ...]:
    return _terms(pod.spec.affinity.pod_affinity) if pod.spec.affinity else ()


def _anti_affinity_terms(pod: Pod) -> tuple[PodAffinityTerm, ...]:
    return _terms(pod.spec.affinity.pod_anti_affinity) if pod.spec.affinity else ()


def _means(
    term: PodAffinityTerm, owner: Pod, other: Pod, namespace_labels: Mapping[str, str] | None
) -> bool:
    """Tell whether ``owner``'s term may select ``other``; unknown namespaces match a selector.

    ``matchLabelKeys`` only narrow a term, so they are passed over.
    """
    namespace = other.metadata.namespace
    own = term.namespaces
    if not own and term.namespace_selector is None:
        own = (owner.metadata.namespace,)
    inside = namespace in own
    if not inside and term.namespace_selector is not None:
        selector: Selector = selector_from_label_selector(term.namespace_selector)
        inside = namespace_labels is None or selector.matches(namespace_labels)
    return inside and selector_from_label_selector(term.label_selector).matches(
        other.metadata.labels
    )


def _affinity_pods(pod: Pod, event: ClusterEvent) -> bool:
    """A pod that this one wants came or went, or one went that it, or that did not want it.

    That the last one goes which this one wants may help, where it wants itself, too. One that is
    relabelled comes to some terms and leaves others.
    """
    labels = event.namespace_labels
    old, new = (one if isinstance(one, Pod) else None for one in (event.old, event.new))

    def selects(term: PodAffinityTerm, other: Pod | None) -> bool:
        return other is not None and _means(term, pod, other, labels)

    if any(selects(term, old) != selects(term, new) for term in _affinity_terms(pod)):
        return True
    if any(selects(term, old) and not selects(term, new) for term in _anti_affinity_terms(pod)):
        return True
    if old is None or new is not None:
        return False
    # The labels given are those of the other pod's namespace; this pod's are not known.
    return any(_means(term, old, pod, None) for term in _anti_affinity_terms(old))


def _affinity_nodes(pod: Pod, event: ClusterEvent) -> bool:
    """A node came that is in a domain of an affinity term, or the labels of one changed.

    A label that changes takes pods out of a domain, or brings them into one, and may so help on any
    other node: by the terms of this pod, and by the anti-affinity of others, which is not known.
    """
    if isinstance(event.old, Node):
        return True
    keys = [term.topology_key for term in _affinity_terms(pod)]
    return not keys or any(_has_keys(event.new, [key]) for key in keys)


def _affinity_namespaces(pod: Pod, _event: ClusterEvent) -> bool:
    """Terms of this pod or of others may select namespaces by labels."""
    return True


# --- by plugin -----------------------------------------------------------------------------------


def _fixed(*found: Registration) -> Callable[[Profile], Sequence[Registration]]:
    return lambda _profile: found


_BUILT_IN: dict[str, Callable[[Profile], Sequence[Registration]]] = {
    "SchedulingGates": _fixed(_itself(Action.UPDATE_POD_GATES_ELIMINATED)),
    "NodeName": _fixed(_node(Action.ADD, _node_name)),
    "NodeUnschedulable": _fixed(
        _node(Action.ADD | Action.UPDATE_NODE_TAINT, _node_unschedulable),
        _itself(Action.UPDATE_POD_TOLERATION),
    ),
    "TaintToleration": _fixed(
        _node(Action.ADD | Action.UPDATE_NODE_TAINT, _taint_toleration),
        _itself(Action.UPDATE_POD_TOLERATION),
    ),
    "NodeAffinity": _node_affinity,
    "NodePorts": _fixed(_node(Action.ADD, None), _pod(Action.DELETE, _node_ports)),
    "NodeResourcesFit": _fixed(
        _node(Action.ADD | Action.UPDATE_NODE_ALLOCATABLE, _node_grew),
        _pod(Action.DELETE, None),
        _pod(Action.UPDATE_POD_SCALE_DOWN, _pod_shrank),
        _itself(Action.UPDATE_POD_SCALE_DOWN),
    ),
    "PodTopologySpread": _fixed(
        _node(
            Action.ADD | Action.DELETE | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_TAINT,
            _spread_nodes,
        ),
        _pod(_POD_CHANGES, _spread_pods),
        _itself(Action.UPDATE_POD_LABEL | Action.UPDATE_POD_TOLERATION),
    ),
    "InterPodAffinity": _fixed(
        _node(Action.ADD | Action.UPDATE_NODE_LABEL, _affinity_nodes),
        _pod(_POD_CHANGES, _affinity_pods),
        _itself(Action.UPDATE_POD_LABEL),
        Registration(
            resource=Resource.NAMESPACE,
            actions=Action.UPDATE_NAMESPACE_LABEL | Action.ADD,
            hint=_affinity_namespaces,
        ),
    ),
    "PrioritySort": _fixed(),
    "DefaultPreemption": _fixed(),
    "NodeResourcesBalancedAllocation": _fixed(),
    "ImageLocality": _fixed(),
    "DefaultBinder": _fixed(),
}
