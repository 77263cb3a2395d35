"""Which pod may go to which node, as far as taints and node selectors decide it.

Tolerations answer taints (R112-R121); node selectors and node affinity answer node labels and
fields (R1-R22). All functions are pure and read the lenses of ``pod`` and ``node``.

Rules: component-helpers ``scheduling/corev1`` and ``nodeaffinity``, ``pkg/util/tolerations``,
v1.36. Two differences are deliberate: an empty node selector term matches everything unless the
caller asks for ``empty_term="none"`` (R9, ruling C1), and
``requiredDuringSchedulingRequiredDuringExecution`` counts at scheduling like its ``Ignored`` sister
(R2, ruling C5).
"""

import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, Literal

import msgspec

from clusterstate.objects.values.errors import INVALID, NOT_SUPPORTED, FieldError
from clusterstate.objects.values.labels import (
    DOES_NOT_EXIST,
    EXISTS,
    GREATER_THAN,
    IN,
    LESS_THAN,
    NOT_IN,
    NOTHING,
    Requirement,
    Selector,
    new_requirement,
    parse_int64,
    selector_from_set,
)
from clusterstate.objects.values.node import Taint
from clusterstate.objects.values.pod import (
    NodeSelector,
    NodeSelectorTerm,
    Pod,
    PreferredSchedulingTerm,
    SelectorRequirement,
    Toleration,
)

NO_SCHEDULE: Final = "NoSchedule"
PREFER_NO_SCHEDULE: Final = "PreferNoSchedule"
NO_EXECUTE: Final = "NoExecute"
EFFECTS: Final = (NO_SCHEDULE, PREFER_NO_SCHEDULE, NO_EXECUTE)
HARD_EFFECTS: Final = (NO_SCHEDULE, NO_EXECUTE)
"""The effects that keep a pod off a node; ``PreferNoSchedule`` only costs score (R119, R120)."""

EmptyTerm = Literal["all", "none"]
"""What an empty node selector term matches: everything (the default) or nothing (ruling C1)."""

_CANONICAL_INTEGER: Final = re.compile(r"0|-?[1-9][0-9]*")

# Tolerations ----------------------------------------------------------------------------------


def tolerates(toleration: Toleration, taint: Taint, *, comparison_operators: bool = False) -> bool:
    """Return whether the toleration tolerates the taint (R114-R118).

    ``Gt`` and ``Lt`` compare the taint's value with the toleration's as integers, only if
    ``comparison_operators`` (the feature gate TaintTolerationComparisonOperators) is on. Rule:
    ``core/v1/toleration.go``.
    """
    if toleration.effect and toleration.effect != taint.effect:
        return False
    if toleration.key and toleration.key != taint.key:
        return False
    operator = toleration.operator
    if operator in ("", "Equal"):
        return toleration.value == taint.value
    if operator == "Exists":
        return True
    if operator in ("Gt", "Lt") and comparison_operators:
        bound, found = _canonical(toleration.value), _canonical(taint.value)
        if bound is None or found is None:
            return False
        return found > bound if operator == "Gt" else found < bound
    return False


def _canonical(text: str) -> int | None:
    return parse_int64(text) if _CANONICAL_INTEGER.fullmatch(text) else None


def tolerated(
    taint: Taint, tolerations: Iterable[Toleration], *, comparison_operators: bool = False
) -> bool:
    """Return whether any of the tolerations tolerates the taint."""
    return any(
        tolerates(toleration, taint, comparison_operators=comparison_operators)
        for toleration in tolerations
    )


def find_untolerated(
    taints: Iterable[Taint],
    tolerations: Sequence[Toleration],
    effects: Collection[str] | None = None,
    *,
    comparison_operators: bool = False,
) -> Taint | None:
    """Return the first taint with one of ``effects`` that nothing tolerates, or ``None``.

    ``effects=None`` looks at all of them. Rule: ``FindMatchingUntoleratedTaint``.
    """
    for taint in taints:
        if effects is not None and taint.effect not in effects:
            continue
        if not tolerated(taint, tolerations, comparison_operators=comparison_operators):
            return taint
    return None


def is_superset(wider: Toleration, narrower: Toleration) -> bool:
    """Return whether ``wider`` tolerates at least what ``narrower`` does."""
    if wider == narrower:
        return True
    if narrower.key != wider.key and (wider.key or wider.operator != "Exists"):
        return False
    if narrower.effect != wider.effect and wider.effect:
        return False
    if wider.effect == NO_EXECUTE and wider.toleration_seconds is not None:
        seconds = narrower.toleration_seconds
        if seconds is None or seconds > wider.toleration_seconds:
            return False
    if wider.operator in ("", "Equal"):
        return narrower.operator == "Equal" and narrower.value == wider.value
    return wider.operator == "Exists"


def verify_whitelist(tolerations: Sequence[Toleration], whitelist: Sequence[Toleration]) -> bool:
    """Return whether the whitelist covers every toleration; an empty whitelist covers all."""
    if not whitelist:
        return True
    return all(any(is_superset(allowed, t) for allowed in whitelist) for t in tolerations)


def merge_tolerations(
    first: Sequence[Toleration], second: Sequence[Toleration]
) -> list[Toleration]:
    """Return the union without those that another one covers (R49)."""
    everything = [*first, *second]
    merged: list[Toleration] = []
    for index, toleration in enumerate(everything):
        if any(is_superset(other, toleration) for other in merged):
            continue
        if any(
            later != toleration and is_superset(later, toleration)
            for later in everything[index + 1 :]
        ):
            continue
        merged.append(toleration)
    return merged


# Taints ---------------------------------------------------------------------------------------


def same_taint(one: Taint, other: Taint) -> bool:
    """Return whether two taints have the same key and effect; their values do not matter."""
    return one.key == other.key and one.effect == other.effect


def taint_exists(taints: Iterable[Taint], taint: Taint) -> bool:
    """Return whether a taint of this key and effect is among ``taints``."""
    return any(same_taint(taint, candidate) for candidate in taints)


# Node selectors -------------------------------------------------------------------------------

NODE_SELECTOR_OPERATORS: Final = {
    "In": IN, "NotIn": NOT_IN, "Exists": EXISTS, "DoesNotExist": DOES_NOT_EXIST,
    "Gt": GREATER_THAN, "Lt": LESS_THAN,
}  # fmt: skip


def _not_supported(path: str, value: str, supported: Iterable[str]) -> FieldError:
    listed = ", ".join(f'"{name}"' for name in supported)
    return FieldError(NOT_SUPPORTED, path, value, f"supported values: {listed}")


def node_selector_requirements(
    requirements: Sequence[SelectorRequirement], path: str = ""
) -> tuple[Selector, list[FieldError]]:
    """Return the selector of ``matchExpressions`` and what does not parse; none select nothing.

    Rule: ``nodeSelectorRequirementsAsSelector`` (R11-R14).
    """
    if not requirements:
        return NOTHING, []
    errors: list[FieldError] = []
    parsed: list[Requirement] = []
    for index, expression in enumerate(requirements):
        where = f"{path}[{index}]"
        operator = NODE_SELECTOR_OPERATORS.get(expression.operator)
        if operator is None:
            errors.append(
                _not_supported(f"{where}.operator", expression.operator, NODE_SELECTOR_OPERATORS)
            )
            continue
        requirement, problems = new_requirement(
            expression.key, operator, expression.values, path=where
        )
        errors += problems
        parsed.append(requirement)
    return Selector().add(parsed), errors


class _FieldTerm(msgspec.Struct, frozen=True):
    key: str
    value: str
    equal: bool


def _field_terms(
    requirements: Sequence[SelectorRequirement], path: str
) -> tuple[tuple[_FieldTerm, ...], list[FieldError]]:
    errors: list[FieldError] = []
    terms: list[_FieldTerm] = []
    for index, expression in enumerate(requirements):
        where = f"{path}[{index}]"
        if expression.operator not in ("In", "NotIn"):
            errors.append(_not_supported(f"{where}.operator", expression.operator, ("In", "NotIn")))
        elif len(expression.values) != 1:
            errors.append(
                FieldError(
                    INVALID, f"{where}.values", list(expression.values), "must have one element"
                )
            )
        else:
            terms.append(
                _FieldTerm(expression.key, expression.values[0], expression.operator == "In")
            )
    return tuple(terms), errors


class TermMatcher(msgspec.Struct, frozen=True):
    """One parsed term: requirements on labels and fields that are ANDed (R10).

    ``labels`` is ``None`` and ``fields`` empty where the term does not speak of them, so a term
    without either matches everything.
    """

    labels: Selector | None
    fields: tuple[_FieldTerm, ...]
    errors: tuple[FieldError, ...]

    def matches(self, labels: Mapping[str, str], fields: Mapping[str, str]) -> bool:
        """Return whether a node matches; a term that did not parse matches nothing.

        With no ``fields`` at all (a node without a name) the field requirements are not tested.
        """
        if self.errors or (self.labels is not None and not self.labels.matches(labels)):
            return False
        return not fields or all(
            (fields.get(term.key, "") == term.value) == term.equal for term in self.fields
        )


def parse_term(term: NodeSelectorTerm, path: str = "") -> TermMatcher:
    """Return the parsed term; ``path`` prefixes the fields of its errors."""
    prefix = f"{path}." if path else ""
    selector: Selector | None = None
    errors: list[FieldError] = []
    if term.match_expressions:
        selector, errors = node_selector_requirements(
            term.match_expressions, f"{prefix}matchExpressions"
        )
    fields, field_errors = _field_terms(term.match_fields, f"{prefix}matchFields")
    return TermMatcher(selector, fields, (*errors, *field_errors))


def is_empty_term(term: NodeSelectorTerm) -> bool:
    """Return whether the term has neither expressions nor fields."""
    return not term.match_expressions and not term.match_fields


def node_fields(name: str) -> dict[str, str]:
    """Return the fields that ``matchFields`` can see of a node of this name."""
    return {"metadata.name": name} if name else {}


class NodeSelectorMatcher:
    """A parsed node selector: terms that are ORed (R8, R37); no terms match nothing."""

    __slots__ = ("errors", "terms")

    def __init__(
        self, selector: NodeSelector, *, empty_term: EmptyTerm = "all", path: str = ""
    ) -> None:
        prefix = f"{path}." if path else ""
        self.terms: tuple[TermMatcher, ...] = tuple(
            parse_term(term, f"{prefix}nodeSelectorTerms[{index}]")
            for index, term in enumerate(selector.node_selector_terms)
            if empty_term == "all" or not is_empty_term(term)
        )
        self.errors: list[FieldError] = [error for term in self.terms for error in term.errors]

    def matches(self, labels: Mapping[str, str], fields: Mapping[str, str]) -> bool:
        """Return whether any term matches; terms that did not parse are passed over."""
        return any(term.matches(labels, fields) for term in self.terms)

    def match(
        self, labels: Mapping[str, str], fields: Mapping[str, str]
    ) -> tuple[bool, list[FieldError]]:
        """Return whether any term matches, and the parse errors if none does."""
        matched = self.matches(labels, fields)
        return matched, [] if matched else self.errors


class RequiredNodeAffinity:
    """A pod's ``nodeSelector`` and required node affinity, parsed once; all must hold (R21).

    ``selectors`` are the parsed required fields, ``RequiredDuringExecution`` first.
    """

    __slots__ = ("node_selector", "selectors")

    def __init__(self, pod: Pod, *, empty_term: EmptyTerm = "all") -> None:
        self.node_selector: Selector = selector_from_set(pod.spec.node_selector)
        affinity = pod.spec.affinity.node_affinity if pod.spec.affinity else None
        required = (
            (
                affinity.required_during_scheduling_required_during_execution,
                affinity.required_during_scheduling_ignored_during_execution,
            )
            if affinity
            else ()
        )
        self.selectors: tuple[NodeSelectorMatcher, ...] = tuple(
            NodeSelectorMatcher(selector, empty_term=empty_term)
            for selector in required
            if selector is not None
        )

    def matches(self, labels: Mapping[str, str], fields: Mapping[str, str]) -> bool:
        """Return whether a node satisfies everything that is required."""
        return self.node_selector.matches(labels) and all(
            selector.matches(labels, fields) for selector in self.selectors
        )

    def match(
        self, labels: Mapping[str, str], fields: Mapping[str, str]
    ) -> tuple[bool, list[FieldError]]:
        """Return whether a node satisfies everything, and what does not parse if it does not."""
        if not self.node_selector.matches(labels):
            return False, []
        for selector in self.selectors:
            matched, errors = selector.match(labels, fields)
            if not matched:
                return False, errors
        return True, []


class PreferredTerms:
    """Parsed preferred terms; empty ones and those of weight 0 add nothing (R18, ruling C3)."""

    __slots__ = ("errors", "terms")

    def __init__(self, terms: Sequence[PreferredSchedulingTerm], path: str = "") -> None:
        parsed = [
            (term.weight, parse_term(term.preference, f"{path}[{index}]"))
            for index, term in enumerate(terms)
            if term.weight and not is_empty_term(term.preference)
        ]
        self.terms: tuple[tuple[int, TermMatcher], ...] = tuple(parsed)
        self.errors: list[FieldError] = [error for _, term in parsed for error in term.errors]

    def score(self, labels: Mapping[str, str], fields: Mapping[str, str]) -> int:
        """Return the sum of the weights of the terms that match (R6)."""
        return sum(weight for weight, term in self.terms if term.matches(labels, fields))
