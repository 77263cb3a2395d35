"""HTTPExtender: calls an HTTP service, by the protocol of kube-scheduler's extenders.

* Filter posts the pod and the nodes that passed all other filters to ``urlPrefix/filterVerb`` and
  rejects the nodes that the answer does not name.
* Score posts the feasible nodes to ``prioritizeVerb`` and takes a score from 0 to 10 for each.
* Preemption posts the candidates with their victims to ``preemptVerb``, and keeps those in the
  answer (``process_preemption``, called by plugins.default_preemption).
* Bind posts the pod's name and node to ``bindVerb``, for pods that request a managed resource.
* ``batchVerb`` is Stowage's own: one call about all classes of pods of a batch and all nodes
  replaces a call of ``filterVerb`` and ``prioritizeVerb`` for each pod.

With ``nodeCacheCapable`` only names of nodes and uids of victims are sent. Source:
pkg/scheduler/extender.go, v1.36.

A call ends at its deadline, whatever the service does (``framework.http_calls``). After
``FAILURES`` failed calls in a row no more are made for ``REST`` seconds (a circuit breaker); then
one call tries again. A failed or omitted call is an error of the attempt, or has no effect if the
extender is ``ignorable``.

This plugin is the exception to the rule that plugins read no clock: a timeout needs one.
"""

import http.client
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, TypeVar

import msgspec
import numpy as np

from scheduling.framework import extender_protocol as protocol
from scheduling.framework.arrays import Int64
from scheduling.framework.configuration.extenders import ExtenderArgs
from scheduling.framework.extender_protocol import ExtenderFailed, Judgement
from scheduling.framework.handles import StoredPods
from scheduling.framework.http_calls import HTTPCaller
from scheduling.framework.interface import CycleState, FilterResult
from scheduling.framework.node_table import NodeTable, Rows
from scheduling.framework.status import SUCCESS, Code, Status
from scheduling.framework.types import Candidate, PodInfo, PodRecord

T = TypeVar("T")

FAILURES: Final = 3
REST: Final = 30.0
_SCALE: Final = 10
"""Factor from extenders' scores, which go to 10, to nodes' scores, which go to 100."""


class HTTPExtender:
    """One extender of a configuration."""

    def __init__(self, args: ExtenderArgs, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = args.name
        self._args = args
        self._clock = clock
        self._caller = HTTPCaller(args.url_prefix, args.seconds, _context(args))
        self._pods: StoredPods | None = None
        self._lock = threading.Lock()
        self._failures = 0
        self._rests_until = 0.0
        # The answers of one batch, by class; they hold as long as the nodes are what they were.
        self._batch: dict[bytes, Judgement | ExtenderFailed] = {}
        self._batch_nodes: tuple[NodeTable, int] | None = None

    @property
    def filters_nodes(self) -> bool:
        """Whether Filter calls the service."""
        return bool(self._args.filter_verb or self._args.batch_verb)

    def use_stored_pods(self, pods: StoredPods) -> None:
        """Send stored pods, with names and annotations, to the service (``handles.StoredPods``)."""
        self._pods = pods

    # --- extension points ------------------------------------------------------------------------

    def filter(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable, rows: Rows
    ) -> FilterResult | None:
        """Reject the rows that the service rejects.

        Raises:
            ExtenderFailed: the call failed, and the extender is not ``ignorable``.
        """
        if not self.filters_nodes or not len(rows) or not self._cares_about(pod):
            return None
        names = [snapshot.node_name(row) for row in rows.tolist()]
        try:
            if self._args.batch_verb:
                return protocol.result_of(self._judgement(pod, snapshot), names)
            body = self._body(state, pod, snapshot, rows, names)
            return self._ask(
                self._args.filter_verb,
                body,
                lambda answer: protocol.result_of(
                    protocol.filtered(answer, names, only_names=self._args.node_cache_capable),
                    names,
                ),
            )
        except ExtenderFailed:
            if self._args.ignorable:
                return None
            raise

    def score(self, state: CycleState, pod: PodInfo, snapshot: NodeTable, rows: Rows) -> Int64:
        """Return 0 to 100 for each row; 0 for nodes that the service does not name.

        If the service fails, all score 0, as in kube-scheduler: scores are only preferences.
        """
        found = np.zeros(len(rows), np.int64)
        if not self._cares_about(pod):
            return found
        names = [snapshot.node_name(row) for row in rows.tolist()]
        try:
            if self._args.batch_verb:
                scores = self._judgement(pod, snapshot).scores
            else:
                body = self._body(state, pod, snapshot, rows, names)
                scores = self._ask(self._args.prioritize_verb, body, protocol.scores_of)
        except ExtenderFailed:
            return found
        for position, name in enumerate(names):
            found[position] = scores.get(name, 0) * _SCALE
        return found

    def process_preemption(
        self,
        state: CycleState,
        pod: PodInfo,
        snapshot: NodeTable,
        candidates: Sequence[Candidate],
    ) -> Sequence[Candidate]:
        """Return the candidates that the service accepts, with the victims that it names.

        Rule: extender.go ``ProcessPreemption`` and preemption.go ``callExtenders``.

        Raises:
            ExtenderFailed: the call failed, or names a pod that is not on the node, and the
                extender is not ``ignorable``.
        """
        if not self._args.preempt_verb or not candidates or not self._cares_about(pod):
            return candidates
        try:
            return self._preempted(state, pod, snapshot, candidates)
        except ExtenderFailed:
            if self._args.ignorable:
                return candidates
            raise

    def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Let the service bind the pod; Skip if the pod requests no managed resource."""
        if not self._args.bind_verb or not self._cares_about(pod):
            return Status(Code.SKIP)
        namespace, _, name = state.pod_name.partition("/")
        body = {
            "PodName": name,
            "PodNamespace": namespace,
            "PodUID": state.pod_uid,
            "Node": node_name,
        }
        try:
            self._ask(self._args.bind_verb, msgspec.json.encode(body), protocol.check_bound)
        except ExtenderFailed as failure:
            if self._args.ignorable:
                return Status(Code.SKIP)
            return Status(Code.ERROR, (str(failure),))
        return SUCCESS

    # --- many pods at once -----------------------------------------------------------------------

    def prepare(self, pods: Sequence[PodInfo], snapshot: NodeTable) -> None:
        """Call the service once for all classes of a batch; cache its answers for Filter, Score."""
        if not self._args.batch_verb:
            return
        self._batch, self._batch_nodes = {}, (snapshot, snapshot.node_version)
        counts = Counter(pod for pod in pods if self._cares_about(pod))
        if counts and snapshot.node_count:
            self._ask_about(counts, snapshot)

    def _judgement(self, pod: PodInfo, snapshot: NodeTable) -> Judgement:
        """Return the cached answer about a class; calls the service if there is none."""
        if self._batch_nodes != (snapshot, snapshot.node_version):
            self._batch, self._batch_nodes = {}, (snapshot, snapshot.node_version)
        found = self._batch.get(pod.digest)
        if found is None:
            self._ask_about({pod: 1}, snapshot)
            found = self._batch[pod.digest]
        if isinstance(found, ExtenderFailed):
            raise ExtenderFailed(str(found))  # one object would keep every traceback
        return found

    def _ask_about(self, counts: Mapping[PodInfo, int], snapshot: NodeTable) -> None:
        rows = snapshot.rows()
        names = [snapshot.node_name(row) for row in rows.tolist()]
        pods = [(pod.pod, count) for pod, count in counts.items()]
        body = protocol.batch_body(self._nodes(snapshot, rows, names), pods)
        found: Sequence[Judgement | ExtenderFailed]
        try:
            found = self._ask(
                self._args.batch_verb,
                body,
                lambda answer: protocol.batch_of(answer, names, len(pods)),
            )
        except ExtenderFailed as failure:
            found = [failure] * len(pods)
        self._batch.update(zip((pod.digest for pod in counts), found, strict=True))

    # --- questions -------------------------------------------------------------------------------

    def _cares_about(self, pod: PodInfo) -> bool:
        """Return whether the pod names a managed resource (``IsInterested``)."""
        managed = self._args.managed
        if not managed:
            return True
        return any(
            not managed.isdisjoint(names)
            for container in (*pod.pod.spec.containers, *pod.pod.spec.init_containers)
            for names in (container.resources.requests, container.resources.limits)
        )

    def _pod(self, state: CycleState, pod: PodInfo) -> Any:
        """Return the stored pod; if there is none, the fields that all pods of its class share."""
        if self._pods is not None and state.pod_key is not None:
            found = self._pods.manifests([state.pod_key]).get(state.pod_key)
            if found is not None:
                return found
        return pod.pod

    def _nodes(self, snapshot: NodeTable, rows: Rows, names: Sequence[str]) -> dict[str, Any]:
        if self._args.node_cache_capable:
            return {"Nodes": None, "NodeNames": names}
        items = [snapshot.node(row) for row in rows.tolist()]
        return {
            "Nodes": {"kind": "NodeList", "apiVersion": "v1", "items": items},
            "NodeNames": None,
        }

    def _body(
        self,
        state: CycleState,
        pod: PodInfo,
        snapshot: NodeTable,
        rows: Rows,
        names: Sequence[str],
    ) -> bytes:
        nodes = self._nodes(snapshot, rows, names)
        return msgspec.json.encode({"Pod": self._pod(state, pod), **nodes})

    def _preempted(
        self,
        state: CycleState,
        pod: PodInfo,
        snapshot: NodeTable,
        candidates: Sequence[Candidate],
    ) -> Sequence[Candidate]:
        rows = [snapshot.row_of(one.node_name) for one in candidates]
        there = {
            one.node_name: snapshot.pods_on(row)
            for one, row in zip(candidates, rows, strict=True)
            if row is not None
        }
        records = [record for found in there.values() for record in found]
        uids, victims = self._victims(records, candidates)
        member = "NodeNameToMetaVictims" if self._args.node_cache_capable else "NodeNameToVictims"
        empty = {"NodeNameToVictims": None, "NodeNameToMetaVictims": None}
        body = msgspec.json.encode({"Pod": self._pod(state, pod), **empty, member: victims})
        answered = self._ask(self._args.preempt_verb, body, protocol.victims_of)
        remaining: list[Candidate] = []
        for name, (named, violations) in answered.items():
            if name not in there:
                raise ExtenderFailed(
                    f"the answer names node {name!r:.253}, which is not a candidate"
                )
            if not named and self._args.ignorable:
                continue
            if not named:
                raise ExtenderFailed(f'expected at least one victim pod on node "{name}"')
            by_uid = {uids[record.key]: record for record in there[name]}
            for uid in named:
                if uid not in by_uid:
                    raise ExtenderFailed(
                        f"{self._args.url_prefix} claims to preempt pod (UID: {uid:.64}) on node:"
                        f" {name}, but the pod is not found on that node"
                    )
            chosen = tuple(by_uid[uid] for uid in dict.fromkeys(named))
            remaining.append(Candidate(node_name=name, victims=chosen, pdb_violations=violations))
        return remaining

    def _victims(
        self, records: Sequence[PodRecord], candidates: Sequence[Candidate]
    ) -> tuple[dict[Any, str], dict[str, Any]]:
        """Return the uids of pods by key, and the candidates' victims in the protocol's form."""
        manifests = {} if self._pods is None else self._pods.manifests([one.key for one in records])
        uids = {
            one.key: str(manifests[one.key]["metadata"]["uid"])
            if one.key in manifests
            else str(one.key)
            for one in records
        }

        def shown(record: PodRecord) -> Any:
            if self._args.node_cache_capable:
                return {"UID": uids[record.key]}
            if record.key in manifests:
                return manifests[record.key]
            meta = {
                "name": record.name,
                "namespace": record.info.namespace,
                "uid": uids[record.key],
                "labels": record.info.labels,
            }
            return {"metadata": meta, "spec": record.info.pod.spec}

        return uids, {
            one.node_name: {
                "Pods": [shown(record) for record in one.victims],
                "NumPDBViolations": one.pdb_violations,
            }
            for one in candidates
        }

    def _ask(self, verb: str, body: bytes, read: Callable[[Any], T]) -> T:
        """Return the result of ``read`` for the answer to one call.

        Raises:
            ExtenderFailed: the call failed, was omitted, or its answer is invalid.
        """
        if self._clock() < self._rests_until:
            raise ExtenderFailed(
                f"{self._args.url_prefix} failed {FAILURES} times in a row and is not called"
                " for a while"
            )
        try:
            found = read(protocol.decoded(self._caller.post(verb, body)))
        except (OSError, http.client.HTTPException, ExtenderFailed) as error:
            self._note_failure()
            name = "" if isinstance(error, ExtenderFailed) else f"{type(error).__name__}: "
            text = f"{name}{error}".rstrip(": ")
            raise ExtenderFailed(f"{self._args.url_prefix}/{verb}: {text}") from error
        with self._lock:
            self._failures = 0
        return found

    def _note_failure(self) -> None:
        with self._lock:
            self._failures += 1
            if self._failures >= FAILURES:
                self._rests_until = self._clock() + REST


def _context(args: ExtenderArgs) -> ssl.SSLContext | None:
    """Return the TLS settings for calls of the service, ``None`` for plain HTTP.

    Raises:
        OSError: a file of ``tlsConfig`` cannot be read.
    """
    if not args.url_prefix.startswith("https:"):
        return None
    context = ssl.create_default_context(cafile=args.ca_file or None)
    if args.insecure:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    if args.cert_file:
        context.load_cert_chain(args.cert_file, args.key_file or None)
    return context
