"""Area nodeselector_helpers: node selectors, node affinity and preferred terms (R1-R21).

Empty terms match nothing here, as in Kubernetes (ruling C1).
"""

from collections.abc import Sequence
from typing import Any

import msgspec

from clusterstate.objects.rules import matching
from clusterstate.objects.values.errors import FieldError
from clusterstate.objects.values.node import Node
from clusterstate.objects.values.pod import (
    NodeSelector,
    Pod,
    PreferredSchedulingTerm,
    SelectorRequirement,
)


def check(case: dict[str, Any]) -> str | None:
    """Return what differs, None if nothing does."""
    judge = _KINDS.get(case["kind"])
    return judge(case) if judge else f"unknown kind {case['kind']!r}"


def _node(case: dict[str, Any]) -> tuple[dict[str, str], dict[str, str]]:
    node = msgspec.convert(case["node"] or {}, Node)
    return node.metadata.labels, matching.node_fields(node.metadata.name)


def _errors(found: Sequence[FieldError], case: dict[str, Any]) -> str | None:
    shown = sorted({(e.field, e.type, e.detail) for e in found})
    wanted = sorted({(e["field"], e["type"], e.get("detail", "")) for e in case["errors"] or ()})
    return None if shown == wanted else f"{shown}, wanted {wanted}"


def _matched(found: tuple[bool, list[FieldError]], case: dict[str, Any]) -> str | None:
    matched, errors = found
    if matched != case["match"]:
        return f"match {matched}, wanted {case['match']}"
    return _errors(errors, case)


def _pod_match(case: dict[str, Any]) -> str | None:
    pod = msgspec.convert(case["pod"], Pod)
    required = matching.RequiredNodeAffinity(pod, empty_term="none")
    return _matched(required.match(*_node(case)), case)


def _matcher(case: dict[str, Any]) -> matching.NodeSelectorMatcher:
    selector = msgspec.convert(case["nodeSelector"] or {}, NodeSelector)
    return matching.NodeSelectorMatcher(selector, empty_term="none")


def _match(case: dict[str, Any]) -> str | None:
    if case["node"] is None:
        return None if not case["match"] else "no node matches nothing"
    return _matched(_matcher(case).match(*_node(case)), case)


def _parse(case: dict[str, Any]) -> str | None:
    return _errors(_matcher(case).errors, case)


def _preferred(case: dict[str, Any]) -> matching.PreferredTerms:
    return matching.PreferredTerms(
        msgspec.convert(case["terms"] or [], list[PreferredSchedulingTerm])
    )


def _preferred_parse(case: dict[str, Any]) -> str | None:
    return _errors(_preferred(case).errors, case)


def _preferred_score(case: dict[str, Any]) -> str | None:
    found = _preferred(case).score(*_node(case))
    return None if found == case["score"] else f"score {found}, wanted {case['score']}"


def _requirements(case: dict[str, Any]) -> str | None:
    requirements = msgspec.convert(case.get("requirements") or [], list[SelectorRequirement])
    selector, errors = matching.node_selector_requirements(requirements)
    if errors or case.get("errors"):
        return _same_problems(errors, case.get("errors") or ())
    found = (str(selector), selector.nothing)
    expected = (case["selector"], case["nothing"])
    return None if found == expected else f"{found}, wanted {expected}"


def _same_problems(found: Sequence[FieldError], recorded: Sequence[dict[str, Any]]) -> str | None:
    """Compare errors whose recorded paths begin with whatever path the caller had.

    An ``error`` is the text of all problems of one requirement.
    """
    texts = [e.get("error") or f"{e['field']}: {e.get('detail', '')}" for e in recorded]
    whole = " ".join(texts)
    missed = [e for e in found if not (e.field in whole and e.detail in whole)]
    indexes = {error.field.partition("]")[0] for error in found}
    same = not missed and len(indexes) == len(texts)
    return None if same else f"{list(found)}, wanted {texts}"


_KINDS = {
    "podMatch": _pod_match,
    "match": _match,
    "parse": _parse,
    "preferredParse": _preferred_parse,
    "preferredScore": _preferred_score,
    "requirements": _requirements,
}
