"""Taints, tolerations, node selectors (R1-R21, R112-R121)."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterstate.objects.rules import matching
from clusterstate.objects.rules.matching import NodeSelectorMatcher, PreferredTerms
from clusterstate.objects.values.meta import ObjectMeta
from clusterstate.objects.values.node import Node, Taint
from clusterstate.objects.values.pod import (
    Affinity,
    NodeAffinity,
    NodeSelector,
    NodeSelectorTerm,
    Pod,
    PodSpec,
    PreferredSchedulingTerm,
    SelectorRequirement,
    Toleration,
)
from tests.reference.node_affinity import required_match

KEYS = st.sampled_from(["", "k1", "k2"])
VALUES = st.sampled_from(["", "v1", "v2"])
EFFECTS = st.sampled_from(list(matching.EFFECTS))
TAINTS = st.builds(Taint, key=KEYS.filter(bool), value=VALUES, effect=EFFECTS)
TOLERATIONS = st.builds(
    Toleration,
    key=KEYS,
    operator=st.sampled_from(["", "Equal", "Exists"]),
    value=VALUES,
    effect=EFFECTS | st.just(""),
    toleration_seconds=st.none() | st.integers(0, 5),
).filter(lambda t: t.operator != "Exists" or not t.value)


def req(key, operator, *values):
    return SelectorRequirement(key=key, operator=operator, values=values)


def term(*expressions, fields=()):
    return NodeSelectorTerm(match_expressions=expressions, match_fields=fields)


def select(*terms):
    return NodeSelector(node_selector_terms=terms)


def node(name="n", **labels):
    return Node(metadata=ObjectMeta(name=name, labels=labels))


def pod(*, node_selector=None, required=None, executing=None):
    affinity = NodeAffinity(
        required_during_scheduling_ignored_during_execution=required,
        required_during_scheduling_required_during_execution=executing,
    )
    return Pod(
        spec=PodSpec(node_selector=node_selector or {}, affinity=Affinity(node_affinity=affinity))
    )


ALL_FIELDS = Toleration(key="key1", operator="Equal", value="value1", effect="NoSchedule")


def matches_selector(selector, labels, fields, empty_term="all"):
    return NodeSelectorMatcher(selector, empty_term=empty_term).matches(labels, fields)


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        pytest.param({}, True, id="R114-equal"),
        pytest.param({"operator": "Exists", "value": ""}, True, id="R114-exists"),
        pytest.param({"operator": ""}, True, id="R115-default-operator"),
        pytest.param({"value": "other"}, False, id="R116-value"),
        pytest.param({"key": "key2", "operator": "Exists"}, False, id="R116-key"),
        pytest.param({"operator": "Exists", "effect": "NoExecute"}, False, id="R116-effect"),
        pytest.param({"key": "", "operator": "Exists", "effect": ""}, True, id="R117-everything"),
        pytest.param({"operator": "Exists", "effect": ""}, True, id="R118-all-effects"),
        pytest.param({"operator": "Near"}, False, id="unknown-operator"),
    ],
)
def test_what_tolerates_a_taint(changes, expected):
    toleration = msgspec.structs.replace(ALL_FIELDS, **changes)
    taint = Taint(key="key1", value="value1", effect="NoSchedule")
    assert matching.tolerates(toleration, taint) == expected


@pytest.mark.parametrize(
    ("operator", "wanted", "found", "expected"),
    [
        ("Gt", "750", "800", True),
        ("Gt", "800", "800", False),
        ("Lt", "800", "750", True),
        ("Lt", "800", "800", False),
        ("Lt", "-5", "-10", True),
        ("Gt", "0750", "800", False),
        ("Gt", "750", "high", False),
        ("Gt", "750", "99999999999999999999", False),
    ],
)
def test_numeric_tolerations_need_the_gate(operator, wanted, found, expected):
    toleration = Toleration(key="sla", operator=operator, value=wanted)
    taint = Taint(key="sla", value=found, effect="NoSchedule")
    assert matching.tolerates(toleration, taint, comparison_operators=True) == expected
    assert not matching.tolerates(toleration, taint)


def test_three_taints_and_two_tolerations():
    """R120, R121: what is left after dropping tolerated taints decides."""
    taints = [
        Taint(key="key1", value="value1", effect="NoSchedule"),
        Taint(key="key1", value="value1", effect="NoExecute"),
        Taint(key="key2", value="value2", effect="NoSchedule"),
    ]
    tolerations = [
        Toleration(key="key1", operator="Equal", value="value1", effect="NoSchedule"),
        Toleration(key="key1", operator="Equal", value="value1", effect="NoExecute"),
    ]
    assert matching.find_untolerated(taints, tolerations, matching.HARD_EFFECTS) == taints[2]
    assert matching.find_untolerated(taints, tolerations, ["NoExecute"]) is None


@pytest.mark.parametrize("effect", ["NoSchedule", "PreferNoSchedule", "NoExecute"])
@pytest.mark.parametrize("key", ["key1", ""])
def test_no_effect_means_every_effect(key, effect):
    """R118."""
    toleration = Toleration(key=key, operator="Exists")
    taint = Taint(key="key1", value="value1", effect=effect)
    assert matching.tolerates(toleration, taint)
    assert matching.find_untolerated([taint], [toleration]) is None


def test_a_soft_taint_is_not_a_hard_one():
    """R119."""
    taints = [Taint(key="a", effect="PreferNoSchedule")]
    assert matching.find_untolerated(taints, [], matching.HARD_EFFECTS) is None
    assert matching.find_untolerated(taints, []) == taints[0]


@given(TOLERATIONS, TOLERATIONS, TAINTS)
def test_a_superset_tolerates_what_the_other_does(wider, narrower, taint):
    if matching.is_superset(wider, narrower) and matching.tolerates(narrower, taint):
        assert matching.tolerates(wider, taint)


@pytest.mark.parametrize(
    ("allowed", "asked", "covered"),
    [(300, 299, True), (300, 300, True), (300, 301, False), (300, None, False), (None, 300, True)],
)
@pytest.mark.parametrize("operator", ["Exists", "Equal"])
def test_who_tolerates_longer_covers_who_tolerates_as_long(operator, allowed, asked, covered):
    value = "v" if operator == "Equal" else ""

    def toleration(seconds, key):
        return Toleration(
            key=key, operator=operator, value=value, effect="NoExecute", toleration_seconds=seconds
        )

    assert matching.is_superset(toleration(allowed, "k"), toleration(asked, "k")) == covered
    if operator == "Exists":  # a toleration of everything, which is another one of as many seconds
        assert matching.is_superset(toleration(allowed, ""), toleration(asked, "k")) == covered


@given(st.lists(TOLERATIONS, max_size=4), st.lists(TOLERATIONS, max_size=4), TAINTS)
def test_merging_tolerates_exactly_what_either_side_does(first, second, taint):
    """R49."""
    merged = matching.merge_tolerations(first, second)
    either = matching.tolerated(taint, [*first, *second])
    assert matching.tolerated(taint, merged) == either
    assert matching.merge_tolerations(merged, []) == merged


@pytest.mark.parametrize(
    ("requirement", "labels", "expected"),
    [
        (req("cpu", "In", "intel", "amd"), {"cpu": "amd"}, True),
        (req("cpu", "In", "intel"), {}, False),
        (req("cpu", "NotIn", "intel"), {}, True),
        (req("gpu", "DoesNotExist"), {"gpu": ""}, False),
        (req("fuse", "Exists"), {"fuse": ""}, True),
        (req("kernel", "Gt", "5"), {"kernel": "6"}, True),
        (req("kernel", "Gt", "5"), {}, False),
        (req("kernel", "Lt", "5"), {"kernel": "five"}, False),
        (req("kernel", "Lt", "5"), {"kernel": "+4"}, True),
        (req("kernel", "Gt", "5"), {"kernel": "010"}, True),
    ],
)
def test_requirements_on_nodes(requirement, labels, expected):
    """R11, R28, R82."""
    assert matches_selector(select(term(requirement)), labels, {}) == expected


@pytest.mark.parametrize(
    ("requirement", "field"),
    [
        pytest.param(req("a", "Near", "b"), "operator", id="R11"),
        pytest.param(req("a", "In"), "values", id="R12"),
        pytest.param(req("a", "NotIn"), "values", id="R12-notin"),
        pytest.param(req("a", "Exists", "b"), "values", id="R13"),
        pytest.param(req("a", "DoesNotExist", "b"), "values", id="R13-not"),
        pytest.param(req("a", "Gt", "1", "2"), "values", id="R14-count"),
        pytest.param(req("a", "Lt", "x"), "values[0]", id="R14-integer"),
    ],
)
def test_requirements_that_do_not_parse(requirement, field):
    matcher = NodeSelectorMatcher(select(term(requirement)), path="spec")
    assert {e.field for e in matcher.errors} == {
        f"spec.nodeSelectorTerms[0].matchExpressions[0].{field}"
    }
    assert matcher.match({"a": "b"}, {}) == (False, matcher.errors)


def test_terms_are_ored_and_expressions_anded():
    """R8, R10, R37; a term that does not parse is passed over."""
    selector = select(
        term(req("a", "Near")),
        term(req("a", "Exists"), req("b", "Exists")),
        term(req("c", "Exists")),
    )
    matcher = NodeSelectorMatcher(selector)
    assert matcher.match({"a": "", "b": ""}, {}) == (True, [])
    assert matcher.matches({"c": ""}, {})
    assert matcher.match({"a": ""}, {})[0] is False


def test_an_empty_term_matches_all_by_default_and_nothing_on_request():
    """R9, C1."""
    assert matches_selector(select(term()), {}, {})
    assert not matches_selector(select(term()), {}, {}, empty_term="none")
    assert not matches_selector(select(), {"a": "b"}, {})


def test_fields_select_by_name():
    """R40."""
    by_name = select(term(fields=(req("metadata.name", "In", "n1"),)))
    assert matches_selector(by_name, {}, matching.node_fields("n1"))
    assert not matches_selector(by_name, {}, matching.node_fields("n2"))
    two = NodeSelectorMatcher(select(term(fields=(req("metadata.name", "In", "a", "b"),))))
    assert [e.detail for e in two.errors] == ["must have one element"]


def test_node_selector_and_affinity_must_both_hold():
    """R21, R83."""
    wanted = pod(node_selector={"gpu": "yes"}, required=select(term(req("os", "In", "linux"))))
    assert required_match(wanted, node(gpu="yes", os="linux"))
    assert not required_match(wanted, node(gpu="yes"))
    assert not required_match(wanted, node(os="linux"))


def test_required_during_execution_counts_at_scheduling():
    """R2, C5."""
    wanted = pod(executing=select(term(req("zone", "In", "a"))))
    assert required_match(wanted, node(zone="a"))
    assert not required_match(wanted, node(zone="b"))
    both = pod(
        executing=select(term(req("zone", "In", "a"))), required=select(term(req("ssd", "Exists")))
    )
    assert not required_match(both, node(zone="a"))


def test_shared_pool_with_kernel_gpu_and_fuse():
    """R29."""
    wanted = select(
        term(
            req("pool", "In", "shared"),
            req("kernel", "Gt", "3"),
            req("gpu", "DoesNotExist"),
            req("fuse", "Exists"),
        )
    )
    assert matches_selector(wanted, {"pool": "shared", "kernel": "4", "fuse": ""}, {})
    assert not matches_selector(wanted, {"pool": "shared", "kernel": "3", "fuse": ""}, {})


def test_the_preference_score_is_the_sum_of_matching_weights():
    """R6, R18, C3."""
    terms = PreferredTerms(
        [
            PreferredSchedulingTerm(weight=5, preference=term(req("a", "Exists"))),
            PreferredSchedulingTerm(weight=7, preference=term(req("b", "Exists"))),
            PreferredSchedulingTerm(weight=11, preference=term(req("a", "In", "x"))),
            PreferredSchedulingTerm(weight=50, preference=term()),
        ]
    )
    assert terms.score({"a": "x"}, {}) == 16
    assert terms.score({}, {}) == 0
