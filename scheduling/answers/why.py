"""Why a pod waits, or has its node: the results of every filter for every node, and the scores.

A waiting pod is filtered in the present cluster. For a pod with a node, the decision is repeated in
the cluster of its time (``replay``). If history does not reach back so far, or ``world`` is
``now``, the pod is filtered now as if it were new. The filters and scorers are those of the pod's
profile.
"""

import base64
import binascii
import itertools
import secrets
import threading
from collections import OrderedDict
from collections.abc import Sequence
from typing import Any, Final, Literal

import msgspec
import numpy as np

from clusterstate.admission.plugins.service_account import without_token
from clusterstate.objects.values.document import format_time
from clusterstate.objects.values.errors import BadRequest, Expired, NotFound, StatusError
from clusterstate.objects.values.meta import Manifest
from clusterstate.processes import memory, steady_clock
from clusterstate.queries.objects import decode_object, find_object, not_found
from clusterstate.queries.pods import waiting_members
from clusterstate.queries.pods.waiting import Subject, subject
from clusterstate.queries.scheduler import decisions
from clusterstate.queries.scheduler.decisions import Record
from scheduling.answers import replay
from scheduling.answers.live import LiveWorld
from scheduling.answers.present import Present, priorities
from scheduling.engine.reference.cycle import Options, PodToPlace, schedule_pod
from scheduling.engine.reference.decision import Decision
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.node_table import Rows
from scheduling.framework.outcomes import PluginFailed
from scheduling.framework.runtime import Framework
from scheduling.framework.types import PodInfo, group_key
from scheduling.simulation import explanation, making_room, plan_document
from scheduling.simulation.document import API_VERSION
from scheduling.simulation.explanation import Explanation
from scheduling.simulation.gang_remedies import gang_remedies
from scheduling.simulation.gangs import Shortfall, shortfall
from scheduling.simulation.remedies import Question, Remedy, remedies
from scheduling.simulation.shortages import shortages
from scheduling.simulation.verdicts import judge, scores_of

KIND: Final = "Explanation"
NOW, THEN = "now", "then"
DEFAULT_LIMIT: Final = 500
MOST: Final = 10_000

_LOOKED_AT: Final = 5_000
"""The most waiting pods, the first of the queue, that are placed to count a remedy's effect."""
_MOST_KEPT: Final = 8
_MOST_MADE_ROOM: Final = 20
"""The most nodes on which moves of pods are tried so that another one fits."""
_kept: OrderedDict[str, tuple[Manifest, Explanation]] = OrderedDict()
_lock = threading.Lock()


def _forget() -> None:
    with _lock:
        _kept.clear()


memory.when_replaced(_forget)


class WhyQuestion(msgspec.Struct, frozen=True, rename="camel", forbid_unknown_fields=True):
    """The question ``why`` as JSON.

    ``world``: ``now``, ``then`` (the latest decision about the pod), or empty: ``now`` for a
    waiting pod, ``then`` for one with a node. ``limit``: the most nodes of the page; 0 for none.
    ``token``: ``metadata.continue`` of the page before. ``rejected_by``: only nodes that this
    filter rejects. ``remedies``: whether to search remedies for a waiting pod. ``patches``: whether
    the user has the right to get the pod, since a remedy's patch repeats its containers.
    """

    namespace: str
    name: str
    world: Literal["", "now", "then"] = ""
    limit: int = DEFAULT_LIMIT
    token: str = ""
    rejected_by: str = ""
    remedies: bool = True
    patches: bool = True


def why(world: LiveWorld, document: object) -> Manifest:
    """Return an ``Explanation`` of a pod with one page of the nodes. Queries four times and more.

    The table is cached in this process for further pages; if it is gone, the next page is about the
    present state. ``document``: a ``WhyQuestion``.

    Raises:
        NotFound: there is no such pod, or ``then`` and no decision about it.
        Expired: ``then``, and history does not reach back so far.
        BadRequest: the token is malformed.
    """
    query = msgspec.convert(document, WhyQuestion)
    key, offset = _read(query.token)
    with _lock:
        cached = _kept.get(key)
    if cached is None or _named(cached[0]) != (query.namespace, query.name):
        key = secrets.token_hex(6)
        cached = _explained(world, query)
        with _lock:
            _kept[key] = cached
            while len(_kept) > _MOST_KEPT:
                _kept.popitem(last=False)
    whole, explained = cached
    limit = min(query.limit, MOST)
    table = explanation.page(explained, offset=offset, limit=limit, rejected_by=query.rejected_by)
    metadata = dict(whole["metadata"])
    end = offset + len(table["name"])
    if limit and end < table["count"]:
        metadata["continue"] = _write(key, end)
        metadata["remainingItemCount"] = table["count"] - end
    status = {**whole["status"], "table": table} if limit else whole["status"]
    return {**whole, "metadata": metadata, "status": status}


def _named(whole: Manifest) -> tuple[str, str]:
    return whole["metadata"]["namespace"], whole["metadata"]["name"]


def _explained(world: LiveWorld, question: WhyQuestion) -> tuple[Manifest, Explanation]:
    """Return the answer without nodes, and the ``Explanation`` for its pages of nodes."""
    namespace, name = question.namespace, question.name
    pod = subject(namespace, name)
    if pod is None:
        raise not_found("Pod", name)
    world_ = question.world or (THEN if pod.node_name else NOW)
    try:
        if world_ == THEN:
            record = next(iter(decisions.of_pod(namespace, name, limit=1)), None)
            if record is not None and record.pod_uid == pod.uid:
                try:
                    return _past_explanation(namespace, name, pod, record)
                except Expired:
                    if question.world:
                        raise
            elif question.world:
                raise NotFound(
                    f'there is no decision about the pod "{name}"', {"name": name, "kind": "pods"}
                )
        return _now(Present(world), pod, question)
    except PluginFailed as failure:
        raise StatusError(failure.status.message) from failure


def _now(present: Present, pod: Subject, question_: WhyQuestion) -> tuple[Manifest, Explanation]:
    snapshot, info = present.snapshot, present.info(pod.class_id)
    framework = present.framework(pod.scheduler_name)
    if framework is None:
        text = f'no profile is named "{pod.scheduler_name}": the scheduler ignores the pod'
        raise NotFound(text)
    group, of_group = _group(present, framework, pod, info, helped=question_.remedies)
    snapshot.remove_pod(pod.id)
    to_place = PodToPlace(pod.id, info, snapshot.nominated_node_of(pod.id))
    decision = schedule_pod(snapshot, framework, to_place, Options())
    verdicts = judge(snapshot, framework, to_place)
    scores = scores_of(snapshot, framework, info, verdicts)
    chosen = pod.node_name or decision.node_name
    explained = explanation.explain(
        snapshot, verdicts, scores, chosen=chosen, weights=framework.weights
    )
    status: dict[str, Any] = {"state": _state(pod), "world": NOW, "message": decision.message}
    if group is not None:
        status["podGroup"] = msgspec.to_builtins(group)
    if pod.since is not None:
        status |= {"since": format_time(pod.since), "attempts": pod.attempts}
    status |= explanation.head(explained)
    if not decision.scheduled:
        status["preemption"] = preemption(decision)
        if lacks := shortages(snapshot, info):
            status["shortages"] = lacks
        if question_.remedies and not of_group:
            queue = present.queue(pod.scheduler_name, most=_LOOKED_AT)
            stored = stored_pod(question_.namespace, question_.name) if question_.patches else None
            question = Question(to_place, queue, priorities(), present.world.go_on, stored)
            found = remedies(snapshot, framework, question, verdicts)
            found += moving(present, to_place, f"{question_.namespace}/{question_.name}", queue)
            status["remedies"] = [described(one, stored) for one in found]
    if of_group:
        status["remedies"] = [described(one, None) for one in of_group]
    return _document(question_.namespace, question_.name, pod, snapshot.revision, status), explained


def _group(
    present: Present, framework: Framework, pod: Subject, info: PodInfo, *, helped: bool
) -> tuple[Shortfall | None, list[Remedy]]:
    """Return what the PodGroup of a waiting pod lacks, and its remedies if ``helped``.

    Queries once if the pod is of a group.
    """
    key = group_key(info.pod)
    if key is None or pod.node_name or not framework.schedules_groups:
        return None, []
    pods = [
        PodToPlace(pod_id, present.info(class_id))
        for pod_id, class_id in waiting_members(*key)
        if not present.snapshot.knows(pod_id)
    ]
    now = steady_clock.now().timestamp()
    lacks = shortfall(present.snapshot, framework, key, pods, now)
    if lacks is None or not helped:
        return lacks, []
    go_on = present.world.go_on
    return lacks, gang_remedies(present.snapshot, framework, key, pods, lacks, go_on)


def stored_pod(namespace: str, name: str) -> Manifest | None:
    """Return the manifest of a pod, ``None`` if it was deleted. Queries once.

    The token volume that admission added is left out, since templates do not have it.
    """
    text = find_object("Pod", namespace, name)
    return None if text is None else without_token(decode_object(text))


def described(remedy: Remedy, stored: Manifest | None) -> Manifest:
    """Return a remedy as JSON; its patch of a pod only if the pod's manifest is ``stored``."""
    found: Manifest = msgspec.to_builtins(remedy)
    for name in ("preempts", "moves", "plan"):
        if not found[name]:
            del found[name]
    if not remedy.patch or (remedy.target == "Pod" and stored is None):
        del found["patch"]
    return found


def moving(
    present: Present, pod: PodToPlace, title: str, queue: Sequence[PodToPlace]
) -> list[Remedy]:
    """Return a remedy that moves as few pods as found necessary so that a waiting pod fits.

    The remedy is a plan that finds the pods again when it is predicted. It does not name the pods,
    since the user may lack the right to get them. Empty for pods of groups and pods with claims:
    room on one node is not enough for these.

    Args:
        present: the present cluster.
        pod: the pod that fits nowhere.
        title: its namespace and name.
        queue: pods of its profile in queue order; those before it must not lose their room.
    """
    if pod.info.claims or group_key(pod.info.pod) is not None:
        return []
    snapshot = present.snapshot
    before = itertools.takewhile(lambda one: one.key != pod.key, queue)
    ahead = [one for one in before if one.info is not pod.info]
    found = making_room.ways(
        snapshot, present.frameworks(), pod, present.world.go_on,
        most=_MOST_MADE_ROOM, ahead=ahead,
    )  # fmt: skip
    if not found:
        return []
    many, node = len(found[0]), snapshot.node_of(found[0][0]) or ""
    plan = plan_document.of([{plan_document.REBALANCE: {"roomFor": title}}])
    pods = "a pod" if many == 1 else f"{many} pods"
    return [
        Remedy(
            "Plan",
            f"move {pods} of {node} to other nodes, where there is room for {_them(many)}",
            (),
            opens=1,
            tried=1,
            nodes=1,
            names=(node,),
            frees=1,
            of=1,
            patch={},
            moves=many,
            plan=plan,
        )
    ]


def _them(many: int) -> str:
    return "it" if many == 1 else "them"


def _past_explanation(
    namespace: str, name: str, pod: Subject, record: Record
) -> tuple[Manifest, Explanation]:
    replayed = replay.make_again(record, full=False)
    snapshot, info = replayed.snapshot, replayed.info
    framework = replay.framework_of(record)
    to_place = PodToPlace(record.pod_id, info, snapshot.nominated_node_of(record.pod_id))
    verdicts = judge(snapshot, framework, to_place)
    examined = _examined(record, snapshot, to_place)
    scores = scores_of(snapshot, framework, info, verdicts, among=examined)
    explained = explanation.explain(
        snapshot, verdicts, scores, chosen=record.node_name, weights=framework.weights
    )
    status: dict[str, Any] = {
        "state": _state(pod),
        "world": THEN,
        "at": format_time(record.at),
        "decision": str(record.id),
        "message": record.message,
        "verified": not replayed.differences,
        "differences": list(replayed.differences),
    }
    found = explanation.head(explained)
    found["nodes"] |= {"evaluated": record.evaluated, "feasibleOfEvaluated": record.feasible}
    status |= found
    if record.outcome != "scheduled":
        status["preemption"] = preemption(replayed.decision)
    return _document(namespace, name, pod, record.snapshot_revision, status), explained


def _examined(record: Record, snapshot: Snapshot, pod: PodToPlace) -> Rows | None:
    """Return the rows of the nodes that the decision evaluated, ``None`` for all nodes.

    They are not all nodes if the profile samples nodes, or if the pod had preempted on one node.
    """
    if record.evaluated >= record.node_count:
        return None
    row = snapshot.row_of(pod.nominated_node) if pod.nominated_node else None
    if row is not None and record.evaluated == 1 and record.node_name == pod.nominated_node:
        return np.array([row], np.intp)
    order = snapshot.ordered_rows()
    return np.roll(order, -(record.start % max(len(order), 1)))[: record.evaluated]


def preemption(decision: Decision) -> Manifest:
    """Return a pod's nomination as JSON: the node, and how many pods must be preempted."""
    nomination = decision.nomination
    if nomination is None or not nomination.node_name:
        return {"nominatedNode": "", "victims": 0}
    return {
        "nominatedNode": nomination.node_name,
        "victims": len(nomination.victims),
        "budgetsViolated": nomination.pdb_violations,
    }


def _state(pod: Subject) -> str:
    if pod.node_name:
        return "Finished" if pod.phase in ("Succeeded", "Failed") else "Placed"
    if pod.stage == "gated":
        return "Gated"
    return "Nominated" if pod.nominated_node_name else "Waiting"


def _document(namespace: str, name: str, pod: Subject, revision: int, status: Manifest) -> Manifest:
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {
            "name": name,
            "namespace": namespace,
            "uid": pod.uid,
            "resourceVersion": str(revision),
        },
        "spec": {
            "schedulerName": pod.scheduler_name,
            "priority": pod.priority,
            "nodeName": pod.node_name,
        },
        "status": status,
    }


def _write(key: str, offset: int) -> str:
    return base64.urlsafe_b64encode(msgspec.json.encode([key, offset])).decode()


def _read(token: str) -> tuple[str, int]:
    if not token:
        return "", 0
    try:
        key, offset = msgspec.json.decode(
            base64.urlsafe_b64decode(token.encode()), type=tuple[str, int]
        )
    except (ValueError, binascii.Error, msgspec.DecodeError):
        raise BadRequest("continue key is not valid: it was not given out by this server") from None
    if offset < 0:
        raise BadRequest("continue key is not valid: it was not given out by this server")
    return key, offset
