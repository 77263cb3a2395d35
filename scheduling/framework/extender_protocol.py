"""The protocol of extenders: request bodies and answers.

The shapes are those of ``k8s.io/kube-scheduler/extender/v1``, v1.36; ``batch_body`` and
``batch_of`` are this service's own. Member names are read in any case, as Go's decoder does. Any
unusable answer raises ``ExtenderFailed``: an extender is not trusted.
"""

from collections.abc import Mapping, Sequence
from typing import Any, Final

import msgspec
import numpy as np

from scheduling.framework.interface import FilterResult
from scheduling.framework.status import Code

HIGHEST_SCORE: Final = 10
"""``MaxExtenderPriority``."""
BATCH_VERSION: Final = "extender.stowage.dev/v1"
_NOT_NAMED: Final = "node(s) were rejected by an extender"
_LONGEST_REASON: Final = 1024


class ExtenderFailed(Exception):
    """A call gave no usable answer; the message says why."""


class Judgement(msgspec.Struct, frozen=True):
    """An extender's verdicts on nodes for one pod.

    ``passed``: names of the nodes that pass; ``None``: all that it does not report as failed.
    ``failed``, ``unresolvable``: reasons by node. ``scores``: 0 to 10 by node.
    """

    passed: frozenset[str] | None
    failed: dict[str, str] = {}
    unresolvable: dict[str, str] = {}
    scores: dict[str, int] = {}


def decoded(text: bytes) -> Any:
    """Decode the JSON answer of an extender.

    Raises:
        ExtenderFailed: it is not JSON.
    """
    try:
        return msgspec.json.decode(text)
    except (msgspec.DecodeError, RecursionError, ValueError) as error:
        raise ExtenderFailed(f"the answer is not JSON: {error}") from error


def filtered(answer: Any, names: Sequence[str], *, only_names: bool) -> Judgement:
    """Return the answer to ``filterVerb`` about nodes.

    Rule: extender.go ``Filter``: without ``NodeNames`` and ``Nodes`` no node passes. ``NodeNames``
    counts only where the extender has a cache of nodes (``only_names``).

    Raises:
        ExtenderFailed: it reports an error, names a node that was not in the request, or is not an
            answer to a filter.
    """
    members = _members(answer)
    _check_error(members)
    node_names, nodes = members.get("nodenames"), members.get("nodes")
    if only_names and node_names is not None:
        passed = _texts(node_names, "NodeNames")
    elif nodes is not None:
        passed = _names_of(nodes)
    else:
        passed = []
    return Judgement(
        _asked_about(passed, names),
        _reasons(members, "failednodes"),
        _reasons(members, "failedandunresolvablenodes"),
    )


def result_of(judgement: Judgement, names: Sequence[str]) -> FilterResult | None:
    """Return a judgement as codes over the nodes, ``None`` where all of them pass.

    A node that neither passes nor has a reason is unresolvable, so no pods are preempted there
    (schedule_one.go ``findNodesThatPassExtenders``).
    """
    codes = np.zeros(len(names), np.uint8)
    reason = np.zeros(len(names), np.int32)
    reasons: dict[str, int] = {}
    for position, name in enumerate(names):
        if judgement.passed is None:
            if name not in judgement.unresolvable and name not in judgement.failed:
                continue
        elif name in judgement.passed:
            continue
        code, text = Code.UNSCHEDULABLE_AND_UNRESOLVABLE, judgement.unresolvable.get(name)
        if text is None and name in judgement.failed:
            code, text = Code.UNSCHEDULABLE, judgement.failed[name]
        codes[position] = code
        reason[position] = reasons.setdefault(text or _NOT_NAMED, len(reasons))
    if not reasons:
        return None
    return FilterResult(codes, reason, tuple((text,) for text in reasons))


def scores_of(answer: Any) -> dict[str, int]:
    """Return the answer to ``prioritizeVerb``: scores by node name.

    Raises:
        ExtenderFailed: it is not a list of hosts with scores from 0 to 10.
    """
    if not isinstance(answer, list):
        raise ExtenderFailed("the answer is not a list of hosts with scores")
    found: dict[str, int] = {}
    for one in answer:
        members = _members(one)
        score = members.get("score")
        if not isinstance(score, int) or isinstance(score, bool) or not 0 <= score <= HIGHEST_SCORE:
            raise ExtenderFailed(
                f"a score must be a number from 0 to {HIGHEST_SCORE}: {score!r:.50}"
            )
        found[str(members.get("host"))] = score
    return found


def check_bound(answer: Any) -> None:
    """Check the answer to ``bindVerb``.

    Raises:
        ExtenderFailed: it reports an error.
    """
    _check_error(_members(answer))


def victims_of(answer: Any) -> dict[str, tuple[list[str], int]]:
    """Return the answer to ``preemptVerb``: by node, victims' uids and number of violated budgets.

    Raises:
        ExtenderFailed: it is not such an answer.
    """
    found = _members(answer).get("nodenametometavictims")
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise ExtenderFailed("NodeNameToMetaVictims is not an object")
    result: dict[str, tuple[list[str], int]] = {}
    for name, one in found.items():
        members = _members({} if one is None else one)
        pods, violations = members.get("pods") or [], members.get("numpdbviolations") or 0
        if not isinstance(pods, list):
            raise ExtenderFailed(f"the victims on {name:.253} are not a list")
        if not isinstance(violations, int) or isinstance(violations, bool):
            raise ExtenderFailed(f"NumPDBViolations of {name:.253} is not a number")
        result[name] = [str(_members(pod).get("uid")) for pod in pods], violations
    return result


def batch_body(nodes: Mapping[str, Any], pods: Sequence[tuple[Any, int]]) -> bytes:
    """Return one request about many pods: each scheduling class once, with its number of pods.

    ``nodes``: ``Nodes`` and ``NodeNames``, one of which is ``None``.
    """
    items = [{"Pod": pod, "Count": count} for pod, count in pods]
    return msgspec.json.encode(
        {"apiVersion": BATCH_VERSION, "kind": "BatchArgs", **nodes, "Items": items}
    )


def batch_of(answer: Any, names: Sequence[str], count: int) -> "list[Judgement | ExtenderFailed]":
    """Return the judgement of each item in a batched answer, in the order of the request.

    An item may report an error of its own. Without ``NodeNames`` all nodes pass that are not
    reported as failed.

    Raises:
        ExtenderFailed: it is not an answer about this many items.
    """
    items = _members(answer).get("items")
    if not isinstance(items, list) or len(items) != count:
        raise ExtenderFailed(f"the answer must have {count} Items, in the order of the request")
    found: list[Judgement | ExtenderFailed] = []
    for one in items:
        try:
            found.append(_batch_item(_members(one), names))
        except ExtenderFailed as failure:
            found.append(failure)
    return found


def _batch_item(members: Mapping[str, Any], names: Sequence[str]) -> Judgement:
    _check_error(members)
    node_names, scores = members.get("nodenames"), members.get("scores")
    return Judgement(
        None if node_names is None else _asked_about(_texts(node_names, "NodeNames"), names),
        _reasons(members, "failednodes"),
        _reasons(members, "failedandunresolvablenodes"),
        {} if scores is None else scores_of(scores),
    )


def _check_error(members: Mapping[str, Any]) -> None:
    if members.get("error"):
        raise ExtenderFailed(str(members["error"])[:_LONGEST_REASON])


def _members(answer: Any) -> dict[str, Any]:
    """Return an object's members by name in lower case.

    Raises:
        ExtenderFailed: it is not an object.
    """
    if not isinstance(answer, dict):
        raise ExtenderFailed("a value of the answer should be a JSON object, and is not")
    return {str(key).lower(): value for key, value in answer.items()}


def _texts(value: Any, member: str) -> list[str]:
    if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
        raise ExtenderFailed(f"{member} is not a list of names")
    return value


def _names_of(nodes: Any) -> list[str]:
    """Return the names of a NodeList."""
    items = _members(nodes).get("items")
    if items is None:
        return []
    if not isinstance(items, list):
        raise ExtenderFailed("Nodes has no list of items")
    return [str(_members(_members(one).get("metadata")).get("name")) for one in items]


def _asked_about(answered: Sequence[str], names: Sequence[str]) -> frozenset[str]:
    found = frozenset(answered)
    others = found.difference(names)
    if others:
        raise ExtenderFailed(f"the answer names node {min(others)!r:.253}, which was not asked for")
    return found


def _reasons(members: Mapping[str, Any], member: str) -> dict[str, str]:
    found = members.get(member)
    if found is None:
        return {}
    if not isinstance(found, dict):
        raise ExtenderFailed(f"{member} is not an object of reasons")
    return {name: str(text)[:_LONGEST_REASON] or _NOT_NAMED for name, text in found.items()}
