"""DynamicResources: a pod fits nodes with free devices for its claims.

The rules themselves are in ``clusterstate.objects.dra.attempt``; this plugin applies them to rows
of the node table. A pod with claims is decided by the reference path. When it is assumed, the
snapshot marks its devices as taken (``DeviceTable``), so that the next pod cannot get them. Reserve
notes these allocations, which are written together with the binding. PostFilter notes a claim to be
released (``Decision.released``); the worker writes it. If devices have binding conditions, PreBind
writes the claims before, and waits until the conditions are met.

Rules: pkg/scheduler/framework/plugins/dynamicresources, v1.36.
"""

from collections.abc import Hashable, Sequence
from typing import Any, Final

import numpy as np
import numpy.typing as npt

from clusterstate.objects.dra import scoring
from clusterstate.objects.dra.attempt import (
    ERROR,
    NO_DEVICES,
    NOTHING_TO_RELEASE,
    Attempt,
    Verdict,
)
from scheduling.framework.configuration.plugin_args import DynamicResourcesArgs
from scheduling.framework.device_claims import (
    DYNAMIC_RESOURCES,
    RELEASED,
    TAKEN,
    concerns,
    counted_claims,
    new_attempt,
    waits_for_devices,
)
from scheduling.framework.handles import DeviceStore, NotReady
from scheduling.framework.interface import (
    CycleState,
    FilterResult,
    Handle,
    Locality,
    PreFilterResult,
    Scores,
)
from scheduling.framework.node_table import NodeTable, Rows
from scheduling.framework.status import SKIP, SUCCESS, Code, Status
from scheduling.framework.terms import ColumnRequest, Rejection
from scheduling.framework.types import Diagnosis, PodInfo

NAME: Final = DYNAMIC_RESOURCES
_ANSWERS: Final = "DynamicResources/answers"


_CODES: Final = {
    "Success": Code.SUCCESS,
    "Unschedulable": Code.UNSCHEDULABLE,
    "UnschedulableAndUnresolvable": Code.UNSCHEDULABLE_AND_UNRESOLVABLE,
    "Error": Code.ERROR,
}
_MOST_ANSWERS: Final = 256
_COUNTED: Final = ("counted",)
_NOT_ASKED: Final = Status(Code.ERROR, ("not found",))


class Answers:
    """Cached results of Filter and Score, by row, for claims with equal requests.

    ``codes`` uint8, ``reason`` int32 (index into ``reasons``) and ``scores`` int64, (capacity,).
    ``known`` bool (capacity,): rows with a result. All nodes without ResourceSlices share one
    result.
    """

    def __init__(self) -> None:
        self.reasons: list[tuple[str, ...]] = []
        self._begin(0)

    def _begin(self, capacity: int) -> None:
        self.codes = np.zeros(capacity, np.uint8)
        self.reason = np.zeros(capacity, np.int32)
        self.scores = np.zeros(capacity, np.int64)
        self.known = np.zeros(capacity, np.bool_)
        self._bare: dict[tuple[bool, ...], Verdict] = {}
        self._offered = np.zeros((capacity, 0), np.bool_)
        self._position = self._nodes = -1

    def judge(self, attempt: Attempt, snapshot: NodeTable, rows: Rows) -> Verdict | None:
        """Compute missing results of rows; return the error that ended the attempt, if any."""
        self._follow(snapshot, () if attempt.special is None else tuple(attempt.resources))
        devices = snapshot.devices
        for row in rows[~self.known[rows]].tolist():
            node = snapshot.node(row)
            name = node.metadata.name
            bare = not devices.has_slices(name)
            offers = tuple(self._offered[row].tolist())
            verdict = self._bare.get(offers) if bare else None
            if verdict is None:
                verdict = devices.judge(attempt, node)
            if verdict.code == ERROR:
                return verdict  # the verdict's text may name the claim
            if bare:
                self._bare[offers] = verdict
            self.known[row] = True
            self.codes[row] = _CODES[verdict.code]
            self.scores[row] = attempt.score(name)
            if not verdict.ok:
                reason = (verdict.reason,)
                if reason not in self.reasons:
                    self.reasons.append(reason)
                self.reason[row] = self.reasons.index(reason)
        return None

    def _follow(self, snapshot: NodeTable, extended: Sequence[str]) -> None:
        """Drop the results of nodes whose devices, name or labels have changed.

        ``extended``: resources for which it matters whether a node itself has some.
        """
        columns = [snapshot.resource(name) for name in extended]
        offered = snapshot.allocatable[:, columns] > 0
        devices = snapshot.devices
        for key in devices.label_keys():
            snapshot.label_column(key)  # from now on a change of the label raises node_version
        touched = devices.touched_since(self._position) if self._position >= 0 else None
        moved = snapshot.changed_since(self._nodes) if self._nodes >= 0 else None
        if touched is None or moved is None or len(self.known) != snapshot.capacity:
            self._begin(snapshot.capacity)
        else:
            self.known[list(moved)] = False
            self.known[[row for name in touched if (row := snapshot.row_of(name)) is not None]] = (
                False
            )
            self.known[(offered != self._offered).any(axis=1)] = False
        self._offered = offered
        self._position, self._nodes = devices.position, snapshot.node_version


class DynamicResources:
    """Filters on claims of devices, and on extended resources that device classes provide.

    Args:
        args: how long binding waits until devices are ready, seconds.
    """

    name = NAME
    filter_locality = Locality.PODS
    score_locality = Locality.NODE  # all pods of the fast path score 0
    column_rejection: Rejection = (Code.UNSCHEDULABLE_AND_UNRESOLVABLE, (NO_DEVICES,))
    counts_nominated = False
    _store: DeviceStore | None = None

    def __init__(self, args: DynamicResourcesArgs | None = None) -> None:
        self._timeout = (args or DynamicResourcesArgs()).binding_timeout

    def aspect(self, pod: PodInfo, snapshot: NodeTable) -> Hashable | None:
        """Return ``()`` for pods without claims, and one value for all pods that count devices.

        ``None`` for other pods: the filter must run for each node.
        """
        if not pod.may_claim or not concerns(pod, snapshot.devices):
            return ()
        return None if self.column_request(pod, snapshot) is None else _COUNTED

    def column_request(self, pod: PodInfo, snapshot: NodeTable) -> ColumnRequest | None:
        """Return the number of devices that the pod's claims request, with their device column."""
        counted = counted_claims(pod, snapshot.devices)
        column = -1 if counted is None else snapshot.device_column(counted.kind)
        if counted is None or column < 0:
            return None
        return ColumnRequest(((column, counted.count),), counted.uids)

    def group_keys(
        self, pod: PodInfo, snapshot: NodeTable, rows: Rows
    ) -> list[npt.NDArray[np.int64]]:
        """Return ``[]``: all nodes score 0 for the pods that the fast path decides."""
        return []

    def concerns(self, pod: PodInfo, snapshot: NodeTable) -> bool:
        """Return whether the pod claims devices."""
        return concerns(pod, snapshot.devices)

    def pre_filter(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable
    ) -> tuple[PreFilterResult | None, Status]:
        """Parse and check the pod's claims; Skip if it has none."""
        if not concerns(pod, snapshot.devices):
            return None, SKIP
        attempt = new_attempt(pod, snapshot.devices)
        verdict = attempt.pre_filter(pod.requests)
        if verdict.code == "Skip":
            return None, SKIP
        state.write(NAME, attempt)
        return None, _status(verdict)

    def filter(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable, rows: Rows
    ) -> FilterResult | None:
        """Reject nodes without free devices; all nodes without slices are checked once."""
        attempt = state.get(NAME, Attempt)
        if attempt is None:
            return None
        devices = snapshot.devices
        answers = _answers_of(attempt, snapshot)
        if answers is not None:
            failure = answers.judge(attempt, snapshot, rows)
            if failure is None:
                state.write(_ANSWERS, answers)
                codes = answers.codes[rows]
                if not codes.any():
                    return None
                return FilterResult(codes, answers.reason[rows], tuple(answers.reasons))
        codes, reason = np.zeros(len(rows), np.uint8), np.zeros(len(rows), np.int32)
        reasons: dict[tuple[str, ...], int] = {}
        bare: Verdict | None = None
        for place, row in enumerate(rows.tolist()):
            node = snapshot.node(row)
            alike = attempt.is_plain and not devices.has_slices(node.metadata.name)
            if alike and bare is not None:
                verdict = bare
            else:
                verdict = devices.judge(attempt, node)
                bare = verdict if alike else bare
            if verdict.ok:
                continue
            codes[place] = _CODES[verdict.code]
            reason[place] = reasons.setdefault((verdict.reason,), len(reasons))
            if verdict.code == "Error":
                break
        return FilterResult(codes, reason, tuple(reasons)) if reasons else None

    def post_filter(
        self,
        state: CycleState,
        pod: PodInfo,
        snapshot: NodeTable,
        diagnosis: Diagnosis,
        handle: Handle,
    ) -> tuple[None, Status]:
        """Choose a claim of the pod to be released, because the pod fits nowhere.

        No other pod uses that claim, and its allocation keeps the pod off a node. If
        another plugin ended PreFilter before this one was called, this method fails, as upstream:
        the message ends in "not found", and no later plugin is called.
        """
        attempt = state.get(NAME, Attempt)
        if attempt is None:
            known = NAME in state.skip_filter
            return None, _status(NOTHING_TO_RELEASE) if known else _NOT_ASKED
        verdict, release = attempt.post_filter()
        if release is not None:
            state.write(RELEASED, release)
        return None, _status(verdict)

    def pre_score(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable, rows: Rows, multiplicity: object
    ) -> Status:
        """Skip pods without claims."""
        return SKIP if state.get(NAME, Attempt) is None else SUCCESS

    def score(self, state: CycleState, pod: PodInfo, snapshot: NodeTable, rows: Rows) -> Scores:
        """Return higher scores for nodes that can satisfy earlier alternatives of the requests."""
        attempt = state.get(NAME, Attempt)
        if attempt is None:
            return np.zeros(len(rows), np.int64)
        if (answers := state.get(_ANSWERS, Answers)) is not None:
            return answers.scores[rows]
        names = (snapshot.node_name(row) for row in rows.tolist())
        return np.array([attempt.score(name) for name in names], np.int64)

    def normalize(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable, rows: Rows, scores: Scores
    ) -> Scores:
        """Return scores scaled so that the highest is 100."""
        if not scores.any():
            return scores
        names = [snapshot.node_name(row) for row in rows.tolist()]
        made = scoring.normalize(dict(zip(names, scores.tolist(), strict=True)))
        return np.array([made[name] for name in names], np.int64)

    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Note the devices that the snapshot allocated to the pod; the binding writes them."""
        devices = state.devices
        if devices is None:
            return SUCCESS
        known = state.get(TAKEN, list)
        if known is not None:  # noted before a restart
            devices.assume(state.pod_key, known)
            return SUCCESS
        taken: list[dict[str, Any]] | None = devices.assumed(state.pod_key)
        if taken is None:
            if concerns(pod, devices):
                return Status(Code.ERROR, ("claim allocation not found for node",))
            return SUCCESS
        state.write(TAKEN, taken)
        return SUCCESS

    def use_device_store(self, store: DeviceStore) -> None:
        """Set the store to which PreBind writes."""
        self._store = store

    def has_work(self, pod: PodInfo, snapshot: NodeTable) -> bool:
        """Return whether the pod may get devices with binding conditions."""
        return snapshot.devices.has_conditions and concerns(pod, snapshot.devices)

    def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Write claims of devices with binding conditions; return Success once these are met.

        Called repeatedly: Wait means that a condition is not met yet.
        """
        taken = state.get(TAKEN, list)
        if not taken or self._store is None or not any(map(waits_for_devices, taken)):
            return SUCCESS
        try:
            ready = self._store.bind(state, taken, timeout=self._timeout)
            return SUCCESS if ready else Status(Code.WAIT)
        except NotReady as failed:
            return Status(Code.ERROR, (str(failed),))

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> None:
        """Release the devices that ``reserve`` noted."""
        if state.devices is not None:
            state.devices.forget(state.pod_key)
        state.delete(TAKEN)


def _answers_of(attempt: Attempt, snapshot: NodeTable) -> Answers | None:
    """Return the cached results for claims like the attempt's; ``None``: they cannot be shared."""
    signature = attempt.signature
    if signature is None:
        return None
    kept = snapshot.devices.memo.setdefault(NAME, {})
    assert isinstance(kept, dict)
    found: Answers = kept.pop(signature, None) or Answers()
    if len(kept) >= _MOST_ANSWERS:
        del kept[next(iter(kept))]
    kept[signature] = found
    return found


def _status(verdict: Verdict) -> Status:
    return Status(_CODES[verdict.code], (verdict.reason,) if verdict.reason else ())
