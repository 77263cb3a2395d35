"""On which nodes a DaemonSet's pods belong, which to create and delete now, and its status.

Pure. Rules: pkg/controller/daemon (``daemon_controller.go``, ``update.go``,
``util/daemonset_util.go``), v1.36; the toleration of out-of-disk for critical pods is older (R134).
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from datetime import datetime
from typing import Any, Final

import msgspec

from clusterstate.objects.rules.matching import (
    HARD_EFFECTS,
    NO_EXECUTE,
    RequiredNodeAffinity,
    find_untolerated,
    node_fields,
)
from clusterstate.objects.values.int_or_percent import scaled
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.node import Taint
from clusterstate.objects.values.pod import Pod
from scheduling.controllers.workloads.pods import OwnedPod, next_available
from scheduling.controllers.workloads.revision_rules import HASH_LABEL

BURST: Final = 500
"""Pods that are created or deleted for one DaemonSet in a pass."""
_PREFIX: Final = "node.kubernetes.io/"
_CRITICAL: Final = ("system-node-critical", "system-cluster-critical")


class DaemonNode(msgspec.Struct, frozen=True):
    """The facts of a node that decide whether a daemon pod belongs on it."""

    name: str
    labels: Mapping[str, str]
    taints: tuple[Taint, ...]


class Verdict(msgspec.Struct, frozen=True):
    """Whether a pod should be started on a node, and whether a present one may stay."""

    runs: bool
    stays: bool


class DaemonSetActions(msgspec.Struct, kw_only=True):
    """Actions for a DaemonSet.

    ``create``: a node for each new pod. ``events``: type, reason, message. ``failed``: the nodes
    whose pods are deleted because they ended.
    """

    create: list[str]
    delete: list[OwnedPod]
    events: list[tuple[str, str, str]]
    failed: list[str]


def tolerations(spec: Manifest) -> list[Manifest]:
    """Return the tolerations of a template, with those that every daemon has (R132, R134)."""
    added = [
        ("not-ready", "NoExecute"),
        ("unreachable", "NoExecute"),
        ("disk-pressure", "NoSchedule"),
        ("memory-pressure", "NoSchedule"),
        ("pid-pressure", "NoSchedule"),
        ("unschedulable", "NoSchedule"),
    ]
    if spec.get("hostNetwork"):
        added.append(("network-unavailable", "NoSchedule"))
    if spec.get("priorityClassName") in _CRITICAL:
        added.append(("out-of-disk", "NoSchedule"))
    result = list(spec.get("tolerations") or ())
    for key, effect in added:
        one = {"key": _PREFIX + key, "operator": "Exists", "effect": effect}
        same = [
            index
            for index, toleration in enumerate(result)
            if all(toleration.get(field) == value for field, value in one.items())
            and not toleration.get("value")
        ]
        if same:
            result[same[0]] = one  # without tolerationSeconds, whatever the template has
        else:
            result.append(one)
    return result


def pinned(spec: Manifest, node: str) -> Manifest:
    """Return a template's spec for a pod that can only be scheduled to this node."""
    affinity: Manifest = spec.get("affinity") or {}
    node_affinity: Manifest = affinity.get("nodeAffinity") or {}
    field = {"key": "metadata.name", "operator": "In", "values": [node]}
    required = {"nodeSelectorTerms": [{"matchFields": [field]}]}
    return {
        **spec,
        "affinity": {
            **affinity,
            "nodeAffinity": {
                **node_affinity,
                "requiredDuringSchedulingIgnoredDuringExecution": required,
            },
        },
    }


class Daemon:
    """A DaemonSet's template, parsed once for all nodes."""

    def __init__(self, template: Manifest) -> None:
        spec = template.get("spec") or {}
        pod_spec = {**spec, "tolerations": tolerations(spec)}
        self._pod = msgspec.convert({"spec": pod_spec}, Pod)
        self._node_name: str = spec.get("nodeName") or ""
        self._affinity = RequiredNodeAffinity(self._pod)

    def judge(self, node: DaemonNode) -> Verdict:
        """Return whether a daemon belongs on a node (``NodeShouldRunDaemonPod``)."""
        if self._node_name and self._node_name != node.name:
            return Verdict(runs=False, stays=False)
        if not self._affinity.matches(node.labels, node_fields(node.name)):
            return Verdict(runs=False, stays=False)
        tolerated = self._pod.spec.tolerations
        if find_untolerated(node.taints, tolerated, HARD_EFFECTS) is None:
            return Verdict(runs=True, stays=True)
        harsh = find_untolerated(node.taints, tolerated, (NO_EXECUTE,))
        return Verdict(runs=False, stays=harsh is None)


def place_of(pod: OwnedPod) -> str:
    """Return the node of a daemon pod, or the one that its affinity names."""
    return pod.node_name or pod.target


def by_node(pods: Iterable[OwnedPod]) -> dict[str, list[OwnedPod]]:
    """Return the daemons of each node, the oldest first, without ended ones that are deleted."""
    found: dict[str, list[OwnedPod]] = defaultdict(list)
    for pod in sorted(pods, key=lambda one: (one.created_at, one.id)):
        if not (pod.is_leaving and pod.phase in ("Succeeded", "Failed")):
            found[place_of(pod)].append(pod)
    return found


def fenceposts(daemon_set: Manifest, desired: int) -> tuple[int, int]:
    """Return maxSurge and maxUnavailable of an update, as numbers of nodes."""
    rolling = (daemon_set["spec"].get("updateStrategy") or {}).get("rollingUpdate") or {}
    surge = scaled(rolling.get("maxSurge"), desired, round_up=True)
    unavailable = scaled(rolling.get("maxUnavailable", 1), desired, round_up=True)
    if surge == 0 and unavailable == 0:
        unavailable = 1
    return surge, unavailable


def _strategy(daemon_set: Manifest) -> str:
    strategy: Any = (daemon_set["spec"].get("updateStrategy") or {}).get("type")
    return str(strategy or "RollingUpdate")


def _patience(daemon_set: Manifest) -> int:
    return int(daemon_set["spec"].get("minReadySeconds") or 0)


def manage(
    daemon_set: Manifest,
    verdicts: Mapping[str, Verdict],
    pods: Iterable[OwnedPod],
    *,
    hash_: str,
    resting: Collection[str],
    now: datetime,
) -> DaemonSetActions:
    """Return which daemon pods are missing, and which are too many, have ended or do not belong.

    Args:
        daemon_set: as stored.
        verdicts: for each node.
        pods: the DaemonSet's own.
        hash_: of the present template.
        resting: nodes whose failed daemon pods are in backoff, and not deleted yet.
        now: the time.
    """
    placed = by_node(pods)
    actions = DaemonSetActions(create=[], delete=[], events=[], failed=[])
    surges = _strategy(daemon_set) == "RollingUpdate" and fenceposts(daemon_set, len(verdicts))[0]
    for node, verdict in verdicts.items():
        there = placed.get(node, [])
        if verdict.runs and not there:
            actions.create.append(node)
        elif verdict.stays:
            running = _without_ended(actions, node, there, resting)
            if len(running) > 1:
                actions.delete += (
                    _beside_surge(daemon_set, running, hash_, now) if surges else running[1:]
                )
        else:
            actions.delete += [one for one in there if not one.is_leaving]
    for node, there in placed.items():
        if node not in verdicts:
            actions.delete += [one for one in there if not one.node_name and not one.is_leaving]
    return actions


def _without_ended(
    actions: DaemonSetActions, node: str, there: Sequence[OwnedPod], resting: Collection[str]
) -> list[OwnedPod]:
    running = []
    for pod in there:
        if pod.is_leaving:
            continue
        if pod.phase not in ("Succeeded", "Failed"):
            running.append(pod)
        elif node not in resting:
            actions.delete.append(pod)
            actions.failed.append(node)
            type_ = "Warning" if pod.phase == "Failed" else "Normal"
            text = f"Found {pod.phase.lower()} daemon pod {pod.name} on node {node}, will delete it"
            actions.events.append((type_, f"{pod.phase}DaemonPod", text))
    return running


def _beside_surge(
    daemon_set: Manifest, running: Sequence[OwnedPod], hash_: str, now: datetime
) -> list[OwnedPod]:
    """Return the pods to delete on a node where updates start new pods before old ones end."""
    new = [one for one in running if one.labels.get(HASH_LABEL) == hash_]
    old = [one for one in running if one.labels.get(HASH_LABEL) != hash_]
    gone = [*new[1:], *old[1:]]
    if new and old:
        replaced = new[0].is_available(_patience(daemon_set), now)
        if not old[0].is_ready or replaced:
            gone.append(old[0])
    return gone


def roll(
    daemon_set: Manifest,
    verdicts: Mapping[str, Verdict],
    pods: Iterable[OwnedPod],
    *,
    hash_: str,
    managed: DaemonSetActions,
    now: datetime,
) -> DaemonSetActions:
    """Return which daemon pods of former templates to replace now.

    ``managed``: the result of ``manage``: its nodes count as changing, and are left to it.
    """
    actions = DaemonSetActions(create=[], delete=[], events=[], failed=[])
    if _strategy(daemon_set) != "RollingUpdate":
        return actions
    desired = sum(one.runs for one in verdicts.values())
    surge, unavailable = fenceposts(daemon_set, desired)
    patience = _patience(daemon_set)
    changing = {*managed.create, *map(place_of, managed.delete)} & verdicts.keys()
    placed = {
        node: _pair(there, hash_)
        for node, there in by_node(pods).items()
        if node in verdicts and node not in changing
    }
    if surge:
        _surge(actions, placed, verdicts, surge, lambda one: one.is_available(patience, now))
    else:
        most = unavailable - len(changing)
        _replace(actions, placed, most, lambda one: one.is_available(patience, now))
    return actions


_Pair = tuple[OwnedPod | None, OwnedPod | None] | None
"""A node's daemon of the present template, and of a former one; ``None``: there are several."""


def _pair(there: Sequence[OwnedPod], hash_: str) -> _Pair:
    live = [one for one in there if not one.is_leaving]
    new = [one for one in live if one.labels.get(HASH_LABEL) == hash_]
    old = [one for one in live if one.labels.get(HASH_LABEL) != hash_]
    if len(new) > 1 or len(old) > 1:
        return None
    return (new[0] if new else None, old[0] if old else None)


def _replace(
    actions: DaemonSetActions, placed: Mapping[str, _Pair], most: int, is_available: Any
) -> None:
    """Delete old daemon pods while at most ``most`` nodes lack one."""
    lacking = 0
    ailing: list[OwnedPod] = []
    healthy: list[OwnedPod] = []
    for pair in placed.values():
        new, old = pair or (None, None)
        if (new is None) == (old is None):
            lacking += 1  # ``manage`` changes this node
        elif old is None:
            lacking += not is_available(new)
        elif is_available(old):
            healthy.append(old)
        else:
            ailing.append(old)
            lacking += 1
    actions.delete += ailing
    actions.delete += healthy[: max(0, most - lacking)]


def _surge(
    actions: DaemonSetActions,
    placed: Mapping[str, _Pair],
    verdicts: Mapping[str, Verdict],
    most: int,
    is_available: Any,
) -> None:
    """Start new daemon pods before old ones end, and delete old ones whose successor is available.

    A node where no daemon pod should run any more gets no successor. Its old one is deleted at once
    if it is not available, else when the other nodes have as many available ones as desired.
    """
    started = available = 0
    ailing: list[str] = []
    healthy: list[str] = []
    retiring: list[OwnedPod] = []
    for node, pair in placed.items():
        if pair is None:
            started += 1
            continue
        new, old = pair
        serves = is_available(old or new) if old or new else False
        available += serves
        if old is None:
            continue
        if new is not None and not new.node_name and not verdicts[node].runs:
            actions.delete.append(new)  # started before the node excluded it: it would stay pending
            new = None
        if new is not None:
            if is_available(new):
                actions.delete.append(old)
            else:
                started += 1
        elif verdicts[node].runs:
            (healthy if serves else ailing).append(node)
        elif serves:
            retiring.append(old)
        else:
            actions.delete.append(old)
    actions.create += ailing
    actions.create += healthy[: max(0, most - started)]
    actions.delete += retiring[: max(0, available - sum(one.runs for one in verdicts.values()))]


def status(
    daemon_set: Manifest,
    verdicts: Mapping[str, Verdict],
    pods: Iterable[OwnedPod],
    *,
    hash_: str,
    now: datetime,
) -> tuple[Manifest, datetime | None]:
    """Return the status, and when it changes next although no object changes (``None``: never)."""
    placed, patience = by_node(pods), _patience(daemon_set)
    desired = scheduled = misplaced = updated = 0
    ready: list[OwnedPod] = []
    for node, verdict in verdicts.items():
        there = placed.get(node)
        if not verdict.runs:
            misplaced += bool(there)
            continue
        desired += 1
        if not there:
            continue
        scheduled += 1
        first = there[0]
        updated += first.labels.get(HASH_LABEL) == hash_
        if first.is_ready:
            ready.append(first)
    available = sum(one.is_available(patience, now) for one in ready)
    counts = {
        "currentNumberScheduled": scheduled,
        "numberMisscheduled": misplaced,
        "desiredNumberScheduled": desired,
        "numberReady": len(ready),
    }
    optional = {
        "observedGeneration": daemon_set["metadata"].get("generation") or 0,
        "updatedNumberScheduled": updated,
        "numberAvailable": available,
        "numberUnavailable": desired - available,
        "collisionCount": (daemon_set.get("status") or {}).get("collisionCount") or 0,
        "conditions": (daemon_set.get("status") or {}).get("conditions"),  # written by clients only
    }
    result = counts | {key: value for key, value in optional.items() if value}
    return result, next_available(ready, patience, now) if patience else None
