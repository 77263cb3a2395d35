"""Label selectors against their plain meaning, and the syntax of names (R33-R37)."""

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterstate.admission.validation.core.metadata import validate_label_selector
from clusterstate.objects.values import labels
from clusterstate.objects.values.errors import INVALID, FieldError
from clusterstate.objects.values.pod import LabelSelector, SelectorRequirement

KEYS = st.sampled_from(["app", "tier", "example.com/zone"])
VALUES = st.sampled_from(["", "a", "b", "c", "7", "010", "10"])
LABELS = st.dictionaries(KEYS, VALUES)
EXPRESSIONS = st.one_of(
    st.builds(
        SelectorRequirement,
        key=KEYS,
        operator=st.sampled_from(["In", "NotIn"]),
        values=st.lists(VALUES, min_size=1, max_size=3, unique=True).map(tuple),
    ),
    st.builds(SelectorRequirement, key=KEYS, operator=st.sampled_from(["Exists", "DoesNotExist"])),
)
SELECTORS = st.builds(
    LabelSelector,
    match_labels=LABELS,
    match_expressions=st.lists(EXPRESSIONS, max_size=3).map(tuple),
)


def means(selector: LabelSelector, found: dict[str, str]) -> bool:
    """Say what a label selector means, in the words of the documentation."""
    for key, value in selector.match_labels.items():
        if found.get(key) != value:
            return False
    for e in selector.match_expressions:
        holds = {
            "In": e.key in found and found[e.key] in e.values,
            "NotIn": e.key not in found or found[e.key] not in e.values,
            "Exists": e.key in found,
            "DoesNotExist": e.key not in found,
        }[e.operator]
        if not holds:
            return False
    return True


MANY = ",".join(f"v{number}" for number in range(1000))


@given(SELECTORS, LABELS)
def test_a_label_selector_matches_what_it_says(selector, found):
    """R33: all pairs and all expressions are ANDed."""
    assert labels.selector_from_label_selector(selector).matches(found) == means(selector, found)


@given(SELECTORS, LABELS)
def test_the_text_of_a_selector_parses_to_the_same_selector(selector, found):
    compiled = labels.selector_from_label_selector(selector)
    again = labels.parse_selector(str(compiled))
    assert str(again) == str(compiled)
    assert again.matches(found) == compiled.matches(found)


@given(st.text(max_size=30) | st.text("ab in(),!=<>\t", max_size=30))
def test_any_text_parses_or_is_refused(text):
    try:
        selector = labels.parse_selector(text)
    except labels.SelectorError:
        return
    assert str(labels.parse_selector(str(selector))) == str(selector)


def test_an_empty_selector_matches_all_and_a_null_one_nothing():
    """R34."""
    assert labels.selector_from_label_selector(LabelSelector()).matches({})
    assert not labels.selector_from_label_selector(None).matches({"a": "b"})
    assert labels.selector_from_set({}).everything


@pytest.mark.parametrize("operator", ["Gt", "Lt", "in", "", "Matches"])
def test_other_operators_are_refused_in_label_selectors(operator):
    """R35."""
    selector = LabelSelector(
        match_expressions=(SelectorRequirement(key="a", operator=operator, values=("1",)),)
    )
    (error,) = validate_label_selector(msgspec.to_builtins(selector), "spec.selector")
    assert error.field == "spec.selector.matchExpressions[0].operator"
    assert error.detail == "not a valid selector operator"
    with pytest.raises(labels.SelectorError, match="not a valid label selector operator"):
        labels.selector_from_label_selector(selector)


@pytest.mark.parametrize(
    ("operator", "values", "problem"),
    [
        ("In", (), "FieldValueRequired"),
        ("NotIn", (), "FieldValueRequired"),
        ("Exists", ("a",), "FieldValueForbidden"),
        ("DoesNotExist", ("a",), "FieldValueForbidden"),
        ("In", ("a", "b"), None),
        ("Exists", (), None),
    ],
)
def test_operators_and_their_number_of_values(operator, values, problem):
    """R36."""
    selector = LabelSelector(
        match_expressions=(SelectorRequirement(key="a", operator=operator, values=values),)
    )
    found = [error.type for error in validate_label_selector(msgspec.to_builtins(selector), "s")]
    assert found == ([problem] if problem else [])


@pytest.mark.parametrize(
    ("text", "matching", "other"),
    [
        ("a=b", {"a": "b"}, {"a": "c"}),
        ("a==b,c!=d", {"a": "b"}, {"a": "b", "c": "d"}),
        ("a in (b, c)", {"a": "c"}, {}),
        ("a notin (b)", {}, {"a": "b"}),
        ("a", {"a": ""}, {"b": ""}),
        ("!a", {"b": ""}, {"a": ""}),
        ("a>3", {"a": "4"}, {"a": "3"}),
        ("a<3", {"a": "-4"}, {"a": "x"}),
        ("in in (in,notin)", {"in": "notin"}, {"in": "x"}),
        (f"a in ({MANY})", {"a": "v999"}, {"a": "v1000"}),
        (f"a notin ({MANY})", {"a": "v1000"}, {"a": "v999"}),
        ("a=", {"a": ""}, {"a": "b"}),
        ("", {}, None),
    ],
)
def test_the_text_form(text, matching, other):
    selector = labels.parse_selector(text)
    assert selector.matches(matching)
    assert other is None or not selector.matches(other)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("a=b,", "found '', expected: identifier after ','"),
        ("=b", "found '=', expected: !, identifier, or 'end of string'"),
        ("a in b", "unable to parse requirement: found 'b' expected: '('"),
        ("a in (b", "unable to parse requirement: found '', expected: ',' or ')'"),
        ("a===b", "unable to parse requirement: found '=', expected: identifier"),
        (
            "a b=c",
            "unable to parse requirement: found 'b', expected: in, notin, =, ==, !=, gt, lt",
        ),
        (
            "-a=b",
            "unable to parse requirement: <nil>: "
            + FieldError(INVALID, "", "-a", labels.is_qualified_name("-a")[0]).message(),
        ),
    ],
)
def test_messages_of_the_parser(text, message):
    with pytest.raises(labels.SelectorError) as raised:
        labels.parse_selector(text)
    assert str(raised.value) == message


@pytest.mark.parametrize(
    ("check", "good", "bad"),
    [
        (labels.is_dns1123_label, ["a", "a-1", "0", "x" * 63], ["", "A", "-a", "a.b", "x" * 64]),
        (
            labels.is_dns1123_subdomain,
            ["a.b-c.d", "x" * 253],
            ["", "a..b", "a_b", "x" * 254, "a\n"],
        ),
        (
            labels.is_qualified_name,
            ["a", "A.b_c-d", "example.com/A", "x" * 63],
            ["", "/a", "a/", "a/b/c", "A.com/b", "-a", "x" * 64, "a b"],
        ),
        (labels.is_valid_label_value, ["", "a", "A_b.c-9"], ["-a", "a ", "x" * 64, "ä"]),
    ],
)
def test_name_syntax(check, good, bad):
    assert {name: check(name) for name in good if check(name)} == {}
    assert [name for name in bad if not check(name)] == []


def test_the_first_wrong_part_of_a_label_selector_is_told():
    wrong = SelectorRequirement(key="a", operator="Near", values=("b",))
    empty = SelectorRequirement(key="a", operator="In")
    for selector, message in (
        (LabelSelector(match_labels={"a": "-"}, match_expressions=(wrong,)), r"values\[0\]\[a\]"),
        (LabelSelector(match_expressions=(empty, wrong)), "values set can't be empty"),
        (LabelSelector(match_expressions=(wrong, empty)), '"Near" is not a valid'),
    ):
        with pytest.raises(labels.SelectorError, match=message):
            labels.selector_from_label_selector(selector)


@pytest.mark.parametrize("values", [(), ("1", "2"), ("x",)])
def test_without_one_bound_nothing_is_above_or_below_it(values):
    for operator in (labels.GREATER_THAN, labels.LESS_THAN):
        requirement, errors = labels.new_requirement("n", operator, values)
        assert errors
        assert not requirement.matches({"n": "0"})
        assert not requirement.matches({"n": "5"})


@pytest.mark.parametrize(
    ("text", "same"), [("a\0", "a"), ("a=\0b", "a=b"), ("a,\0b", "a,b"), ("\0b", "")]
)
def test_a_zero_byte_ends_what_stands_before_it(text, same):
    assert labels.parse_selector(text) == labels.parse_selector(same)


def test_what_stands_behind_a_word_and_a_zero_byte_is_not_overlooked():
    with pytest.raises(labels.SelectorError, match="found 'b'"):
        labels.parse_selector("a\0b")
