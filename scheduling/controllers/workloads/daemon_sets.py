"""DaemonSets: a pod on each node where it belongs, placed by the scheduler."""

from datetime import datetime, timedelta
from functools import partial
from typing import Final

import msgspec

from clusterstate.objects.registry.strategies import TEMPLATE_GENERATION
from clusterstate.objects.values.meta import Manifest
from clusterstate.processes import memory
from scheduling.controllers.workloads import daemon_set_rules as rules
from scheduling.controllers.workloads import revisions
from scheduling.controllers.workloads.control import NamespaceControl, pod_of
from scheduling.controllers.workloads.pods import OwnedPod
from scheduling.controllers.workloads.revision_rules import HASH_LABEL, hash_of

GENERATION_LABEL: Final = "pod-template-generation"
_LONGEST_REST: Final = 900.0


class _Rest(msgspec.Struct, frozen=True):
    """The backoff of a DaemonSet on a node.

    ``times``: how many of its pods failed there in a row; the last one is kept until ``until``, so
    that it is not replaced at once.
    """

    times: int
    until: datetime


_rests: dict[tuple[str, str], _Rest] = {}
"""By uid of the DaemonSet and name of the node."""
memory.when_replaced(_rests.clear)


def sync(control: NamespaceControl, daemon_set: Manifest) -> None:
    """Create, delete and update a DaemonSet's pods on their nodes, and write its status."""
    if daemon_set["metadata"].get("deletionTimestamp"):
        return
    pods = control.claim(daemon_set)
    history = revisions.trace(control, daemon_set)
    if history is None:
        return
    hash_ = hash_of(history.current)
    if history.equal:
        pods = _relabelled(control, pods, {hash_of(one) for one in history.equal}, hash_)
        history = revisions.merge(
            control, history, {one.labels.get(HASH_LABEL, "") for one in pods}
        )
    daemon = rules.Daemon(daemon_set["spec"]["template"])
    verdicts = {one.name: daemon.judge(one) for one in control.world.nodes()}
    actions = rules.manage(
        daemon_set,
        verdicts,
        pods,
        hash_=hash_,
        resting=_resting(control, daemon_set),
        now=control.now,
    )
    rolled = rules.roll(daemon_set, verdicts, pods, hash_=hash_, managed=actions, now=control.now)
    actions.create += rolled.create
    actions.delete += rolled.delete
    _note_ended(daemon_set, actions.failed, control.now)
    for type_, reason, message in actions.events:
        control.record_event(daemon_set, type_, reason, message)
    remaining = _carry_out(control, daemon_set, actions, pods, hash_)
    live = {one.labels.get(HASH_LABEL, "") for one in remaining}
    revisions.truncate(control, daemon_set, history, live)
    status, due_at = rules.status(daemon_set, verdicts, remaining, hash_=hash_, now=control.now)
    control.write_status(daemon_set, status)
    control.look_again(due_at)


def _carry_out(
    control: NamespaceControl,
    daemon_set: Manifest,
    actions: rules.DaemonSetActions,
    pods: list[OwnedPod],
    hash_: str,
) -> list[OwnedPod]:
    """Create and delete the pods in ``actions``; return the pods without the deleted ones."""
    template = daemon_set["spec"]["template"]
    spec = template.get("spec") or {}
    base = {**template, "spec": {**spec, "tolerations": rules.tolerations(spec)}}
    labels = {HASH_LABEL: hash_}
    generation = (daemon_set["metadata"].get("annotations") or {}).get(TEMPLATE_GENERATION)
    if generation:
        labels[GENERATION_LABEL] = generation
    new_pods = [
        pod_of(
            daemon_set,
            {**base, "spec": rules.pinned(base["spec"], node)},
            labels=labels,
        )
        for node in actions.create[: rules.BURST]
    ]
    control.create(daemon_set, new_pods)
    gone = actions.delete[: rules.BURST]
    if control.remove(daemon_set, gone):
        return pods
    going = {one.id for one in gone}
    return [one for one in pods if one.id not in going]


def _relabelled(
    control: NamespaceControl, pods: list[OwnedPod], same: set[str], hash_: str
) -> list[OwnedPod]:
    """Set the hash label of pods of equal revisions to that of the one that is kept.

    They are up to date, and would be replaced otherwise (daemon/update.go ``dedupCurHistories``).
    Pods that could not be changed keep their hash.
    """

    def relabelled(pod: OwnedPod, manifest: Manifest) -> Manifest:
        metadata = manifest["metadata"]
        if metadata["uid"] != pod.uid:
            return manifest
        labels = {**(metadata.get("labels") or {}), HASH_LABEL: hash_}
        return {**manifest, "metadata": {**metadata, "labels": labels}}

    return [
        msgspec.structs.replace(one, labels={**one.labels, HASH_LABEL: hash_})
        if one.labels.get(HASH_LABEL) in same and control.change_pod(one, partial(relabelled, one))
        else one
        for one in pods
    ]


def _resting(control: NamespaceControl, daemon_set: Manifest) -> set[str]:
    uid = daemon_set["metadata"]["uid"]
    found = set()
    for (owner, node), rest in list(_rests.items()):
        if owner == uid and control.now < rest.until <= control.now + timedelta(
            seconds=_LONGEST_REST
        ):
            found.add(node)
            control.look_again(rest.until)
    return found


def _note_ended(daemon_set: Manifest, nodes: list[str], now: datetime) -> None:
    uid = daemon_set["metadata"]["uid"]
    for node in nodes:
        before = _rests.get((uid, node))
        # As client-go's back-off: after twice the longest rest without failure it starts anew.
        fresh = before is None or now - before.until > timedelta(seconds=2 * _LONGEST_REST)
        times = 1 if before is None or fresh else before.times + 1
        rest = min(_LONGEST_REST, 2.0 ** (times - 1))
        _rests[uid, node] = _Rest(times, now + timedelta(seconds=rest))
