"""Queueing hints: which events may make a pod schedulable that a default plugin rejected.

``engine.queue`` calls ``registrations``; each hint below judges one event for one plugin. A hint
may return True too often: that costs one attempt. If it returned False for an event that helps, the
pod would wait for the periodic flush. Some hints of Kubernetes ignore facts on which the rule
depends; the hints here include them: which nodes count under ``nodeAffinityPolicy``, the
anti-affinity of placed pods, and that the first of several pods with affinity to each other needs
no other pod. Sources: ``EventsToRegister`` of each plugin and its hints
(``isSchedulableAfter...``), v1.36.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from clusterstate.objects.rules.matching import (
    HARD_EFFECTS,
    NO_SCHEDULE,
    EmptyTerm,
    NodeSelectorMatcher,
    RequiredNodeAffinity,
    find_untolerated,
    node_fields,
    tolerated,
)
from clusterstate.objects.rules.resources import current_requests, pod_requests
from clusterstate.objects.values.labels import (
    EQUALS,
    Requirement,
    Selector,
    selector_from_label_selector,
)
from clusterstate.objects.values.labels import NOTHING as NO_PODS
from clusterstate.objects.values.node import Node, Taint
from clusterstate.objects.values.pod import (
    Container,
    NodeSelector,
    Pod,
    PodAffinity,
    PodAffinityTerm,
    TopologySpreadConstraint,
)
from clusterstate.objects.values.pod_group import PodGroup
from clusterstate.objects.values.quantity import Quantity
from scheduling.framework import device_hints, volume_hints
from scheduling.framework.configuration import Profile
from scheduling.framework.configuration.plugin_args import NodeAffinityArgs, PodTopologySpreadArgs
from scheduling.framework.events import (
    ANYTHING,
    EVERY_EVENT,
    Action,
    ClusterEvent,
    Registration,
    Resource,
)
from scheduling.framework.formulas import never
from scheduling.framework.types import AffinityTerm, group_key

_UNSCHEDULABLE_TAINT = Taint(key="node.kubernetes.io/unschedulable", effect=NO_SCHEDULE)
_POD_CHANGES = Action.ADD | Action.DELETE | Action.UPDATE_POD_LABEL


def registrations(
    profile: Profile, registered: Mapping[str, Sequence[Registration]] | None = None
) -> dict[str, Sequence[Registration]]:
    """Return the events that each plugin of a profile waits for.

    Args:
        profile: the profile, for its plugins and their arguments.
        registered: the events of plugins with ``events_to_register``, by name
            (``Framework.events``).
    """
    by_plugin = registered or {}
    found: dict[str, Sequence[Registration]] = {}
    for name in profile.all_plugins():
        if name in by_plugin:
            found[name] = by_plugin[name]
        elif name in _BUILT_IN:
            found[name] = _BUILT_IN[name](profile)
        else:
            found[name] = EVERY_EVENT
    return found


def _node(actions: Action, hint: Callable[[Pod, ClusterEvent], bool] | None) -> Registration:
    return Registration(resource=Resource.NODE, actions=actions, hint=hint)


def _pod(actions: Action, hint: Callable[[Pod, ClusterEvent], bool] | None) -> Registration:
    return Registration(resource=Resource.ASSIGNED_POD, actions=actions, hint=hint)


def _itself(
    actions: Action, hint: Callable[[Pod, ClusterEvent], bool] | None = None
) -> Registration:
    return Registration(resource=Resource.PENDING_POD, actions=actions, hint=hint)


# --- nodes: name, taints, affinity ---------------------------------------------------------------


def _node_name(pod: Pod, event: ClusterEvent) -> bool:
    return isinstance(event.new, Node) and event.new.metadata.name == pod.spec.node_name


def _node_unschedulable(pod: Pod, event: ClusterEvent) -> bool:
    if isinstance(event.old, Node) and not event.old.spec.unschedulable:
        return False
    if not isinstance(event.new, Node):
        return False
    return not event.new.spec.unschedulable or tolerated(_UNSCHEDULABLE_TAINT, pod.spec.tolerations)


def _tolerates_unschedulable(_pod: Pod, event: ClusterEvent) -> bool:
    """Return whether the pod itself now tolerates the unschedulable taint."""
    if not isinstance(event.new, Pod):
        return True
    return tolerated(_UNSCHEDULABLE_TAINT, event.new.spec.tolerations)


def _taint_toleration(pod: Pod, event: ClusterEvent) -> bool:
    """Return whether the pod tolerates all hard taints of the node now, and did not before."""

    def keeps_off(node: Node) -> bool:
        found = find_untolerated(node.spec.taints, pod.spec.tolerations, HARD_EFFECTS)
        return found is not None

    if not isinstance(event.new, Node) or keeps_off(event.new):
        return False
    return not isinstance(event.old, Node) or keeps_off(event.old)


def _node_declares_others(pod: Pod, event: ClusterEvent) -> bool:
    if not isinstance(event.old, Node) or not isinstance(event.new, Node):
        return True
    return event.old.status.declared_features != event.new.status.declared_features


def _node_affinity_args(profile: Profile) -> NodeAffinityArgs:
    args = profile.args.get("NodeAffinity")
    return args if isinstance(args, NodeAffinityArgs) else NodeAffinityArgs()


def _empty_term(args: NodeAffinityArgs) -> EmptyTerm:
    return "none" if args.empty_node_selector_term == "none" else "all"


class _NodeAffinityHint:
    """Returns whether a node matches now and did not before; parses selectors once per class."""

    def __init__(self, args: NodeAffinityArgs) -> None:
        self._empty = _empty_term(args)
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
    hint = _NodeAffinityHint(_node_affinity_args(profile))
    return (_node(Action.ADD | Action.UPDATE_NODE_LABEL, hint), _itself(Action.UPDATE_POD_OTHER))


# --- what pods use: ports, resources -------------------------------------------------------------


def _host_ports(pod: Pod) -> list[tuple[str, str, int]]:
    containers: tuple[Container, ...] = (*pod.spec.containers, *pod.spec.init_containers)
    return [
        (port.host_ip or "0.0.0.0", port.protocol or "TCP", port.host_port)  # noqa: S104 any address
        for container in containers
        for port in container.ports
        if port.host_port > 0
    ]


def _node_ports(pod: Pod, event: ClusterEvent) -> bool:
    """Return whether the pod that left had a host port in conflict with this pod's."""
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


_NEVER_DEVICES: Final = ("cpu", "memory", "ephemeral-storage", "pods")


def _node_grew(pod: Pod, event: ClusterEvent) -> bool:
    """Return whether a node has more of a needed resource, and fits the pod if it were empty.

    If the node lacks a resource that devices provide, DynamicResources judges it; here it counts as
    sufficient and as grown (``shouldDelegateResourceToDRA``).
    """
    if not isinstance(event.new, Node):
        return False
    now = _allocatable(event.new)
    requests = _requests(pod)
    required = {
        name: quantity
        for name, quantity in requests.items()
        if name in _NEVER_DEVICES or now.get(name, _ZERO).sign > 0 or not _serve(event, name)
    }
    required["pods"] = Quantity.of(1)
    if any(never(quantity, now.get(name, _ZERO)) for name, quantity in required.items()):
        return False
    if not isinstance(event.old, Node) or not requests.keys() <= required.keys():
        return True
    before = _allocatable(event.old)
    return any(now.get(name, _ZERO) > before.get(name, _ZERO) for name in required)


def _requests(pod: Pod) -> dict[str, Quantity]:
    return {name: quantity for name, quantity in pod_requests(pod).items() if quantity.sign > 0}


def _serve(event: ClusterEvent, resource: str) -> bool:
    """Return whether devices provide an extended resource; True if no devices are known."""
    return event.devices is None or event.devices.class_of(resource) is not None


def _pod_shrank(pod: Pod, event: ClusterEvent) -> bool:
    """Return whether the other pod requests less of a resource that this pod needs."""
    if not isinstance(event.old, Pod) or not isinstance(event.new, Pod):
        return True
    before, after = current_requests(event.old), current_requests(event.new)
    return any(after.get(name, _ZERO) < before.get(name, _ZERO) for name in _requests(pod))


def _asks_for_less(_pod: Pod, event: ClusterEvent) -> bool:
    """Return whether the waiting pod itself now requests less of a resource."""
    if not isinstance(event.old, Pod) or not isinstance(event.new, Pod):
        return True
    before, after = pod_requests(event.old), pod_requests(event.new)
    return any(after.get(name, _ZERO) < quantity for name, quantity in before.items())


_IMPLICIT = "deviceclass.resource.kubernetes.io/"


def _serves(pod: Pod, event: ClusterEvent) -> bool:
    """Return whether a device class now provides an extended resource that the pod requests."""
    new = event.new
    if not isinstance(new, dict):
        return True
    requests = pod_requests(pod)
    named = (new.get("spec") or {}).get("extendedResourceName")
    if isinstance(event.old, dict):
        before = (event.old.get("spec") or {}).get("extendedResourceName")
        return named != before and named in requests
    return named in requests or f"{_IMPLICIT}{new['metadata']['name']}" in requests


# --- topology ------------------------------------------------------------------------------------


class _SpreadHints:
    """Hints of PodTopologySpread about nodes, pods and workloads (podtopologyspread/plugin.go).

    ``args``: with the default constraints. ``empty_term``: whether an empty term of required node
    affinity matches all nodes or none.
    """

    def __init__(self, args: PodTopologySpreadArgs, empty_term: EmptyTerm) -> None:
        self._empty_term = empty_term
        self._default_keys = tuple(
            constraint.topology_key
            for constraint in args.default_constraints
            if constraint.when_unsatisfiable == _HARD
        )

    @property
    def has_hard_defaults(self) -> bool:
        """Whether the default constraints can reject a pod."""
        return bool(self._default_keys)

    def nodes(self, pod: Pod, event: ClusterEvent) -> bool:
        """Return whether the node joins, leaves or changes a domain, or its pods' counting changed.

        Only a node with all the topology keys is in a domain.
        """
        constraints = _hard_constraints(pod)
        own = pod.spec.topology_spread_constraints
        keys = [one.topology_key for one in constraints] if own else self._default_keys
        old, new = _node_of(event.old), _node_of(event.new)
        was, is_in = _has_keys(old, keys), _has_keys(new, keys)
        if was != is_in:
            return True
        if not is_in or old is None or new is None:
            return is_in
        if old.spec.taints != new.spec.taints:
            return True
        before, after = old.metadata.labels, new.metadata.labels
        if any(before[key] != after[key] for key in keys):
            return True
        by_affinity = not own or any(
            one.node_affinity_policy in (None, "", "Honor") for one in constraints
        )
        return by_affinity and before != after and self._affinity_flips(pod, old, new)

    def _affinity_flips(self, pod: Pod, old: Node, new: Node) -> bool:
        """Return whether the pod's required node affinity matches only one of two node versions."""
        required = RequiredNodeAffinity(pod, empty_term=self._empty_term)
        fields = node_fields(new.metadata.name)
        return required.matches(old.metadata.labels, fields) != required.matches(
            new.metadata.labels, fields
        )

    @staticmethod
    def pods(pod: Pod, event: ClusterEvent) -> bool:
        """Return whether the event changes which pods a constraint of this pod counts.

        A terminating pod is not counted any more, although it still has its room.
        """
        other = event.new or event.old
        if not isinstance(other, Pod) or other.metadata.namespace != pod.metadata.namespace:
            return False
        if not pod.spec.topology_spread_constraints:
            # The profile's default constraints select by what owns the pod.
            return True
        sides = [side.metadata.labels for side in (event.old, event.new) if isinstance(side, Pod)]
        ends = Action.UPDATE_POD_TERMINATING in event.action
        for constraint in _hard_constraints(pod):
            selector = _counted_by(constraint, pod)
            counted = [selector.matches(labels) for labels in sides]
            if counted == [True] or len(set(counted)) == 2 or (ends and any(counted)):
                return True
        return False

    @staticmethod
    def workloads(pod: Pod, _event: ClusterEvent) -> bool:
        """Return whether the pod has default constraints, which use the workload's selector."""
        return not pod.spec.topology_spread_constraints

    @classmethod
    def itself(cls, pod: Pod, event: ClusterEvent) -> bool:
        """Return whether the pod's tolerations changed, or its constraints now count it."""
        old, new = event.old, event.new
        if not isinstance(old, Pod) or not isinstance(new, Pod):
            return True
        if old.spec.tolerations != new.spec.tolerations and any(
            constraint.node_taints_policy == "Honor" for constraint in _hard_constraints(pod)
        ):
            return True
        return old.metadata.labels != new.metadata.labels and cls.pods(pod, event)


_HARD = "DoNotSchedule"


def _hard_constraints(pod: Pod) -> list[TopologySpreadConstraint]:
    constraints = pod.spec.topology_spread_constraints
    return [constraint for constraint in constraints if constraint.when_unsatisfiable == _HARD]


def _counted_by(constraint: TopologySpreadConstraint, pod: Pod) -> Selector:
    """Return a constraint's selector, with the pod's values of ``matchLabelKeys``."""
    selector = selector_from_label_selector(constraint.label_selector)
    labels = pod.metadata.labels
    keys = sorted({key for key in constraint.match_label_keys if key in labels})
    if not keys:
        return selector
    base = Selector() if selector == NO_PODS else selector
    return base.add([Requirement(key, EQUALS, (labels[key],)) for key in keys])


def _node_of(side: object) -> Node | None:
    return side if isinstance(side, Node) else None


def _has_keys(node: Node | None, keys: Sequence[str]) -> bool:
    return node is not None and all(key in node.metadata.labels for key in keys)


def _spread(profile: Profile) -> Sequence[Registration]:
    args = profile.args.get("PodTopologySpread")
    hints = _SpreadHints(
        args if isinstance(args, PodTopologySpreadArgs) else PodTopologySpreadArgs(),
        _empty_term(_node_affinity_args(profile)),
    )
    node_changes = Action.ADD | Action.DELETE | Action.UPDATE_NODE_LABEL | Action.UPDATE_NODE_TAINT
    found = (
        _node(node_changes, hints.nodes),
        _pod(_POD_CHANGES | Action.UPDATE_POD_TERMINATING, hints.pods),
        _itself(Action.UPDATE_POD_LABEL | Action.UPDATE_POD_TOLERATION, hints.itself),
    )
    if not hints.has_hard_defaults:
        return found
    by_default = Registration(resource=Resource.WORKLOAD, actions=ANYTHING, hint=hints.workloads)
    return (*found, by_default)


def _terms(affinity: PodAffinity | None) -> tuple[PodAffinityTerm, ...]:
    return affinity.required_during_scheduling_ignored_during_execution if affinity else ()


def _affinity_terms(pod: Pod) -> tuple[PodAffinityTerm, ...]:
    return _terms(pod.spec.affinity.pod_affinity) if pod.spec.affinity else ()


def _anti_affinity_terms(pod: Pod) -> tuple[PodAffinityTerm, ...]:
    return _terms(pod.spec.affinity.pod_anti_affinity) if pod.spec.affinity else ()


def _means(
    term: PodAffinityTerm, owner: Pod, other: Pod, namespace_labels: Mapping[str, str] | None
) -> bool:
    """Return whether ``owner``'s term may match ``other``; unknown namespace labels match.

    ``matchLabelKeys`` only narrow a term, so they are ignored.
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


def _first_of_its_kind(pod: Pod) -> bool:
    """Return whether the pod may match all its own affinity terms, so that it may be the first pod.

    Its namespace's labels are unknown here, so every namespace selector counts as a match.
    """
    terms = _affinity_terms(pod)
    return bool(terms) and all(_means(term, pod, pod, None) for term in terms)


def _affinity_pods(pod: Pod, event: ClusterEvent) -> bool:
    """Return whether a pod that this one's affinity needs came, or one that excludes it went.

    The pod that came must match all affinity terms. The end of the last such pod may help a pod
    that matches its own terms. A relabelled pod counts as one that came and one that went.
    """
    labels = event.namespace_labels
    old, new = (one if isinstance(one, Pod) else None for one in (event.old, event.new))

    def selects(term: PodAffinityTerm, other: Pod | None) -> bool:
        return other is not None and _means(term, pod, other, labels)

    near = _affinity_terms(pod)
    was, is_near = (bool(near) and all(selects(term, side) for term in near) for side in (old, new))
    if is_near and not was:
        return True
    if was and not is_near and _first_of_its_kind(pod):
        return True
    if any(selects(term, old) and not selects(term, new) for term in _anti_affinity_terms(pod)):
        return True
    if old is None or new is not None:
        return False
    # The labels given are those of the other pod's namespace; this pod's are not known.
    return any(_means(term, old, pod, None) for term in _anti_affinity_terms(old))


def _affinity_nodes(pod: Pod, event: ClusterEvent) -> bool:
    """Return whether a node event may help a pod with affinity or anti-affinity.

    So it is if a new node is in a domain of an affinity term, or if a node went, whose pods are
    then in no domain. A changed topology label moves the node and its pods to another domain: this
    may help a pod with affinity to the domain that the node joins. It may help a pod with
    anti-affinity, or one that the anti-affinity of placed pods excludes, in the domain that it
    leaves.
    """
    near = [term.topology_key for term in _affinity_terms(pod)]
    new = event.new
    after = new.metadata.labels if isinstance(new, Node) else {}
    if not isinstance(event.old, Node):
        return not near or any(key in after for key in near)
    before = event.old.metadata.labels
    if any(key in after and before.get(key) != after[key] for key in near):
        return True
    gone = {key for key, value in before.items() if after.get(key) != value}
    if any(key in gone for key in near) and _first_of_its_kind(pod):
        return True
    if any(term.topology_key in gone for term in _anti_affinity_terms(pod)):
        return True
    repelling = event.repelling
    if repelling is None:
        return bool(gone)
    return any(term.topology_key in gone and _repels(term, pod) for term in repelling)


def _repels(term: AffinityTerm, pod: Pod) -> bool:
    """Return whether another pod's term may match this pod, whatever labels its namespace has."""
    inside = pod.metadata.namespace in term.namespaces or not term.namespace_selector.nothing
    return inside and term.selector.matches(pod.metadata.labels)


def _affinity_namespaces(pod: Pod, _event: ClusterEvent) -> bool:
    """Return True: terms of this pod or of others may select namespaces by labels."""
    return True


# --- by plugin -----------------------------------------------------------------------------------


def _fixed(*found: Registration) -> Callable[[Profile], Sequence[Registration]]:
    return lambda _profile: found


def _in_group(
    resource: Resource, actions: Action, hint: Callable[[Pod, ClusterEvent], bool]
) -> Registration:
    return Registration(resource=resource, actions=actions, hint=hint, own=True)


def _same_group(pod: Pod, event: ClusterEvent) -> bool:
    """Return whether the event is about another pod of the pod's group."""
    key = group_key(pod)
    return key is not None and isinstance(event.new, Pod) and group_key(event.new) == key


def _its_group(pod: Pod, event: ClusterEvent) -> bool:
    """Return whether the pod's group is new or its ``minCount`` was lowered (possible in v1.37)."""
    old, new = event.old, event.new
    if not isinstance(new, PodGroup) or new.key != group_key(pod):
        return False
    if not isinstance(old, PodGroup) or old.metadata.uid != new.metadata.uid:
        return True
    before, after = old.spec.scheduling_policy.gang, new.spec.scheduling_policy.gang
    return before is not None and after is not None and after.min_count < before.min_count


_BUILT_IN: dict[str, Callable[[Profile], Sequence[Registration]]] = {
    "SchedulingGates": _fixed(_itself(Action.UPDATE_POD_GATES_ELIMINATED)),
    "NodeName": _fixed(_node(Action.ADD, _node_name)),
    "NodeUnschedulable": _fixed(
        _node(Action.ADD | Action.UPDATE_NODE_TAINT, _node_unschedulable),
        _itself(Action.UPDATE_POD_TOLERATION, _tolerates_unschedulable),
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
        _itself(Action.UPDATE_POD_SCALE_DOWN, _asks_for_less),
        Registration(
            resource=Resource.DEVICE_CLASS, actions=Action.ADD | Action.UPDATE, hint=_serves
        ),
    ),
    "NodeDeclaredFeatures": _fixed(
        # The fields that this plugin reads are immutable, so changes of the pod itself never help.
        _node(Action.ADD | Action.UPDATE_NODE_DECLARED_FEATURE, _node_declares_others)
    ),
    "DynamicResources": _fixed(*device_hints.DYNAMIC_RESOURCES),
    "GangScheduling": _fixed(
        _in_group(Resource.UNASSIGNED_POD, Action.ADD, _same_group),
        _in_group(Resource.ASSIGNED_POD, Action.ADD, _same_group),
        _in_group(Resource.POD_GROUP, Action.ADD | Action.UPDATE, _its_group),
    ),
    "VolumeRestrictions": _fixed(*volume_hints.VOLUME_RESTRICTIONS),
    "NodeVolumeLimits": _fixed(*volume_hints.NODE_VOLUME_LIMITS),
    "VolumeBinding": _fixed(*volume_hints.VOLUME_BINDING),
    "VolumeZone": _fixed(*volume_hints.VOLUME_ZONE),
    "PodTopologySpread": _spread,
    "InterPodAffinity": _fixed(
        _node(Action.ADD | Action.DELETE | Action.UPDATE_NODE_LABEL, _affinity_nodes),
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
