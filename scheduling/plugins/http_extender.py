"""HTTPExtender: asks an HTTP service about nodes, by the protocol of kube-scheduler's extenders.

Filter posts the pod and the nodes that passed all other filters to ``urlPrefix/filterVerb`` and
takes away those that the answer does not name; Score posts the feasible ones to
``urlPrefix/prioritizeVerb`` and takes a score from 0 to 10 for each. One call asks about all nodes.
With ``nodeCacheCapable`` only their names are sent. The pod is what all pods of its scheduling
class have in common, so it has no name. Protocol: ``k8s.io/kube-scheduler/extender/v1``.

An extender that fails does not keep everybody waiting: after ``FAILURES`` failed calls in a row no
more are made for ``REST`` seconds (a circuit breaker); then one call tries again. What fails, or
rests, is an error of the attempt, or counts for nothing where the extender is ``ignorable``.

This plugin is the exception to the rule that plugins read no clock: a timeout needs one.
"""

import http.client
import ssl
import time
from collections.abc import Callable, Mapping
from typing import Any, Final
from urllib.parse import urlsplit

import msgspec
import numpy as np

from clusterstate.objects.node import Node
from scheduling.framework.arrays import Int64
from scheduling.framework.extenders import ExtenderArgs
from scheduling.framework.interface import CycleState, FilterResult
from scheduling.framework.node_table import NodeTable, Rows
from scheduling.framework.status import Code
from scheduling.framework.types import PodInfo

FAILURES: Final = 3
REST: Final = 30.0
_LARGEST_ANSWER: Final = 64 * 2**20
_HIGHEST: Final = 10
_SCALE: Final = 10
"""Scores of extenders go to 10, those of nodes to 100."""


class ExtenderFailed(Exception):
    """A call did not give an answer that can be used; the message says why."""


class _Resting(ExtenderFailed):
    """No call was made, since the last ones failed."""


class HTTPExtender:
    """One extender of a configuration."""

    def __init__(self, args: ExtenderArgs, clock: Callable[[], float] = time.monotonic) -> None:
        self.name = args.name
        self._args = args
        self._clock = clock
        self._failures = 0
        self._rests_until = 0.0

    def filter(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable, rows: Rows
    ) -> FilterResult | None:
        """Return which rows the service takes away.

        Raises:
            ExtenderFailed: the service does not answer, and it may not be ignored.
        """
        if not self._args.filter_verb or not self._cares_about(pod) or not len(rows):
            return None
        names = [snapshot.node_name(row) for row in rows.tolist()]
        try:
            answer = self._ask(self._args.filter_verb, pod, snapshot, rows, names)
            return _judged(answer, names)
        except ExtenderFailed:
            if self._args.ignorable:
                return None
            raise

    def score(self, state: CycleState, pod: PodInfo, snapshot: NodeTable, rows: Rows) -> Int64:
        """Return 0 to 100 for each row; of nodes that the service does not name 0.

        A service that cannot be asked scores nothing, as in kube-scheduler: scores are wishes.
        """
        found = np.zeros(len(rows), np.int64)
        if not self._cares_about(pod):
            return found
        names = [snapshot.node_name(row) for row in rows.tolist()]
        try:
            answer = self._ask(self._args.prioritize_verb, pod, snapshot, rows, names)
            scores = _scores(answer)
        except ExtenderFailed:
            return found
        for position, name in enumerate(names):
            found[position] = scores.get(name, 0) * _SCALE
        return found

    def _cares_about(self, pod: PodInfo) -> bool:
        managed = self._args.managed
        return not managed or any(pod.requests.get(name, 0) > 0 for name in managed)

    def _ask(
        self, verb: str, pod: PodInfo, snapshot: NodeTable, rows: Rows, names: list[str]
    ) -> Any:
        body: dict[str, Any] = {"Pod": pod.pod, "Nodes": None, "NodeNames": None}
        if self._args.node_cache_capable:
            body["NodeNames"] = names
        else:
            nodes: list[Node] = [snapshot.node(row) for row in rows.tolist()]
            body["Nodes"] = {"kind": "NodeList", "apiVersion": "v1", "items": nodes}
        if self._clock() < self._rests_until:
            raise _Resting(f"{self._args.url_prefix} failed {FAILURES} times and is left alone")
        try:
            answer = self._post(verb, msgspec.json.encode(body))
        except (OSError, http.client.HTTPException, msgspec.DecodeError) as error:
            self._failures += 1
            if self._failures >= FAILURES:
                self._rests_until = self._clock() + REST
            text = f"{type(error).__name__}: {error}".rstrip(": ")
            raise ExtenderFailed(f"{self._args.url_prefix}/{verb}: {text}") from error
        self._failures = 0
        return answer

    def _post(self, verb: str, body: bytes) -> Any:
        """Return the answer to one call.

        Raises:
            OSError, HTTPException: the service cannot be reached, is too slow, or says no.
            msgspec.DecodeError: the answer is not JSON.
        """
        parts = urlsplit(self._args.url_prefix)
        assert parts.hostname is not None
        connection: http.client.HTTPConnection
        if parts.scheme == "https":
            connection = http.client.HTTPSConnection(
                parts.hostname, parts.port, timeout=self._args.seconds, context=self._context()
            )
        else:
            connection = http.client.HTTPConnection(
                parts.hostname, parts.port, timeout=self._args.seconds
            )
        try:
            path = f"{parts.path.rstrip('/')}/{verb}"
            connection.request("POST", path, body, {"Content-Type": "application/json"})
            response = connection.getresponse()
            text = response.read(_LARGEST_ANSWER)
            if response.status != http.client.OK:
                raise http.client.HTTPException(f"status {response.status}")
            return msgspec.json.decode(text)
        finally:
            connection.close()

    def _context(self) -> ssl.SSLContext:
        args = self._args
        context = ssl.create_default_context(cafile=args.ca_file or None)
        if args.insecure:
            context.check_hostname = False
            context.verify_mode = ssl.CERT_NONE
        if args.cert_file:
            context.load_cert_chain(args.cert_file, args.key_file or None)
        return context


def _judged(answer: Any, names: list[str]) -> FilterResult | None:
    """Return a filter's answer as codes and reasons.

    Raises:
        ExtenderFailed: it reports an error, or is not an answer to a filter.
    """
    told = _members(answer)
    if told.get("error"):
        raise ExtenderFailed(str(told["error"]))
    kept = _kept(told)
    failed, hopeless = _reasons(told, "failednodes"), _reasons(told, "failedandunresolvablenodes")
    codes = np.zeros(len(names), np.uint8)
    reason = np.zeros(len(names), np.int32)
    reasons: dict[str, int] = {}
    for position, name in enumerate(names):
        if name in hopeless:
            codes[position], text = Code.UNSCHEDULABLE_AND_UNRESOLVABLE, hopeless[name]
        elif name not in kept:
            codes[position] = Code.UNSCHEDULABLE
            text = failed.get(name) or "node(s) were rejected by an extender"
        else:
            continue
        reason[position] = reasons.setdefault(text, len(reasons))
    if not reasons:
        return None
    return FilterResult(codes, reason, tuple((text,) for text in reasons))


def _members(answer: Any) -> dict[str, Any]:
    """Return an answer's members by name in lower case: Go's decoder does not look at case."""
    if not isinstance(answer, dict):
        raise ExtenderFailed("the answer is not a JSON object")
    return {str(key).lower(): value for key, value in answer.items()}


def _kept(told: Mapping[str, Any]) -> frozenset[str]:
    names = told.get("nodenames")
    if isinstance(names, list):
        return frozenset(map(str, names))
    nodes = told.get("nodes")
    items = nodes.get("items") if isinstance(nodes, dict) else None
    if isinstance(items, list):
        return frozenset(
            str((one.get("metadata") or {}).get("name")) for one in items if isinstance(one, dict)
        )
    raise ExtenderFailed("the answer names neither NodeNames nor Nodes")


def _reasons(told: Mapping[str, Any], member: str) -> dict[str, str]:
    found = told.get(member)
    if not isinstance(found, dict):
        return {}
    return {str(name): str(text)[:1024] or "rejected" for name, text in found.items()}


def _scores(answer: Any) -> dict[str, int]:
    """Return scores by node name.

    Raises:
        ExtenderFailed: the answer is not a list of hosts with scores from 0 to 10.
    """
    if not isinstance(answer, list):
        raise ExtenderFailed("the answer is not a list of hosts with scores")
    found: dict[str, int] = {}
    for one in answer:
        told = _members(one)
        score = told.get("score")
        if not isinstance(score, int) or isinstance(score, bool) or not 0 <= score <= _HIGHEST:
            raise ExtenderFailed(f"a score must be a number from 0 to {_HIGHEST}: {score!r:.50}")
        found[str(told.get("host"))] = score
    return found
