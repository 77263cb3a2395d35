"""Judgements over rows of the node table that several plugins share.

Node selectors and taints are evaluated once per distinct label value or taint set, never once per
node; the results are spread over the rows by indexing.
"""

from collections.abc import Callable, Sequence

import numpy as np
import numpy.typing as npt

from clusterstate.objects.rules.matching import (
    NodeSelectorMatcher,
    PreferredTerms,
    RequiredNodeAffinity,
    TermMatcher,
)
from clusterstate.objects.values.labels import (
    DOES_NOT_EXIST,
    EQUALS,
    EXISTS,
    IN,
    Requirement,
    Selector,
)
from clusterstate.objects.values.node import Taint
from scheduling.framework.arrays import Mask, numbered
from scheduling.framework.interface import MAX_NODE_SCORE, Scores
from scheduling.framework.node_table import NodeTable, Rows
from scheduling.framework.types import PodInfo


def requirement_mask(table: NodeTable, requirement: Requirement, rows: Rows) -> Mask:
    """Return a mask over ``rows``: the nodes whose labels satisfy the requirement."""
    column = table.label_column(requirement.key)
    ids = column.ids[rows]
    operator = requirement.operator
    if operator == EXISTS:
        return ids >= 0
    if operator == DOES_NOT_EXIST:
        return ids < 0
    # One more entry than there are values: index -1, "label absent", selects it.
    verdicts = np.zeros(len(column.values) + 1, np.bool_)
    if operator in (IN, EQUALS):
        for value in requirement.values:
            number = column.find(value)
            if number is not None:
                verdicts[number] = True
    else:
        key = requirement.key
        verdicts[:-1] = [requirement.matches({key: value}) for value in column.values]
        verdicts[-1] = requirement.matches({})
    return verdicts[ids]


def selector_mask(table: NodeTable, selector: Selector, rows: Rows) -> Mask:
    """Return a mask over ``rows``: the nodes whose labels satisfy all requirements."""
    if selector.nothing:
        return np.zeros(len(rows), np.bool_)
    mask = np.ones(len(rows), np.bool_)
    for requirement in selector.requirements:
        mask &= requirement_mask(table, requirement, rows)
    return mask


def term_mask(table: NodeTable, term: TermMatcher, rows: Rows) -> Mask:
    """Return a mask over ``rows``: the nodes that match a term, none if it did not parse."""
    if term.errors:
        return np.zeros(len(rows), np.bool_)
    if term.labels is None:
        mask = np.ones(len(rows), np.bool_)
    else:
        mask = selector_mask(table, term.labels, rows)
    for field in term.fields:
        if field.key == "metadata.name":
            row = table.row_of(field.value)
            named = rows == (-1 if row is None else row)
        else:  # no other field exists: its value is empty
            named = np.full(len(rows), field.value == "")
        mask &= named if field.equal else ~named
    return mask


def node_selector_mask(table: NodeTable, selector: NodeSelectorMatcher, rows: Rows) -> Mask:
    """Return a mask over ``rows``: the nodes that match any term (R8)."""
    mask = np.zeros(len(rows), np.bool_)
    for term in selector.terms:
        mask |= term_mask(table, term, rows)
    return mask


def required_affinity_mask(table: NodeTable, required: RequiredNodeAffinity, rows: Rows) -> Mask:
    """Return a mask over ``rows``: those that satisfy node selector and required affinity (R21)."""
    mask = selector_mask(table, required.node_selector, rows)
    for selector in required.selectors:
        mask &= node_selector_mask(table, selector, rows)
    return mask


def preferred_score(table: NodeTable, preferred: PreferredTerms, rows: Rows) -> Scores:
    """Return the sum of the weights of matching terms (R6), int64 over ``rows``."""
    score = np.zeros(len(rows), np.int64)
    for weight, term in preferred.terms:
        score += weight * term_mask(table, term, rows)
    return score


def by_taint_set(
    table: NodeTable, rows: Rows, judge: Callable[[tuple[Taint, ...]], int]
) -> npt.NDArray[np.int64]:
    """Return ``judge(taints)`` of each node, int64 over ``rows``; called once per taint set."""
    sets = table.taint_set[rows]
    if len(rows) == 1:
        return np.array([judge(table.taint_sets[sets[0]])], np.int64)
    found, place = numbered(sets)
    return np.array([judge(table.taint_sets[number]) for number in found.tolist()], np.int64)[place]


def resource_columns(
    table: NodeTable, pod: PodInfo, resource: str, *, nonzero: bool
) -> tuple[int, Scores, Scores] | None:
    """Return (requested by the pod, allocatable, requested) of a resource, columns over all rows.

    ``None``: the resource is ignored, because the pod does not request this extended resource or
    the scheduler does not count it. ``nonzero``: cpu and memory with defaults for containers that
    request none. Rule: noderesources/resource_allocation.go
    ``calculateResourceAllocatableRequest``, v1.36.
    """
    found = asked_for(table, pod, resource, nonzero=nonzero)
    if found is None:
        return None
    request, column = found
    if nonzero and column < 2:
        return request, table.allocatable[:, column], table.nonzero_requested[:, column]
    return request, table.allocatable[:, column], table.requested[:, column]


def asked_for(
    table: NodeTable, pod: PodInfo, resource: str, *, nonzero: bool
) -> tuple[int, int] | None:
    """Return the amount of a resource that the pod requests, and its column.

    ``None``: see ``resource_columns``.
    """
    request = (pod.scored_requests if nonzero else pod.requests).get(resource, 0)
    if resource == "cpu":
        return request, 0
    if resource == "memory":
        return request, 1
    if resource != "ephemeral-storage" and (request == 0 or not table.is_counted(resource)):
        return None
    return request, table.resource(resource)


def scored_resources(
    table: NodeTable,
    pod: PodInfo,
    names: Sequence[str],
    weights: Sequence[int],
    *,
    nonzero: bool,
) -> list[int]:
    """Return column, weight and amount of each resource that is not ignored, as one flat list.

    A flat list, since this runs for every class. See ``resource_columns``.
    """
    found: list[int] = []
    requests = pod.scored_requests if nonzero else pod.requests
    for name, weight in zip(names, weights, strict=True):
        if name == "cpu":
            found += (0, weight, requests.get(name, 0))
        elif name == "memory":
            found += (1, weight, requests.get(name, 0))
        else:
            request = asked_for(table, pod, name, nonzero=nonzero)
            if request is not None:
                found += (request[1], weight, request[0])
    return found


def default_normalize(scores: Scores, *, reverse: bool) -> Scores:
    """Return scores scaled so that the highest is 100; ``reverse``: 100 minus that.

    All zero: all 0, or all 100 when reversed. Integer division truncates. Rule:
    plugins/helper/normalize_score.go ``DefaultNormalizeScore``, v1.36.
    """
    highest = int(scores.max(initial=0))
    if highest == 0:
        return np.full_like(scores, MAX_NODE_SCORE) if reverse else scores
    scaled = MAX_NODE_SCORE * scores // highest
    return MAX_NODE_SCORE - scaled if reverse else scaled
