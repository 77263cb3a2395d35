"""Selectors of devices: what is an error, what is absorbed, and what a selector may cost."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterstate.objects.cel.devices import (
    CompileError,
    Device,
    EvaluationError,
    compile_selector,
)

GPU = Device(
    "gpu.example.com",
    {
        "name": "gpu-0",
        "attributes": {
            "model": {"string": "a100"},
            "driver": {"version": "1.2.3"},
            "index": {"int": 3},
            "rdma.example.com/lanes": {"int": 4},
        },
        "capacity": {"memory": {"value": "40Gi"}},
    },
)
A = 'device.attributes["gpu.example.com"]'


def matches(expression):
    return compile_selector(expression).matches(GPU)[0]


@pytest.mark.parametrize(
    ("expression", "expected"),
    [
        (f'{A}.model == "a100" && device.driver.endsWith("example.com")', True),
        (f'"none" in {A} || {A}.index in [1, 2, 3]', True),
        (f'{A}.none == 1 || {A}.index == 3', True),
        (f'{A}.index == 3 || {A}.none == 1', True),
        (f'!({A}.none == 1 && {A}.index == 4)', True),
        ('[1, 0].exists(x, 1 / x == 1)', True),
        ('[0, 1].exists(x, 1 / x == 1)', True),
        (f'{A}.?none.orValue("x") == "x"', True),
        (f'has({A}.model) && !has({A}.none)', True),
        ('"none" in device.attributes', False),
        ('device.attributes["rdma.example.com"].lanes == 4.0', True),
        ('device.capacity["gpu.example.com"].memory.compareTo(quantity("40Gi")) == 0', True),
        ('device.capacity["gpu.example.com"].memory == quantity("41943040Ki")', True),
        (f'{A}.driver.isLessThan(semver("1.2.10")) && {A}.driver.minor() == 2', True),
        (f'{A}.driver == semver("1.2.3+build") && semver("v1", true) == semver("1.0.0")', True),
        (f'{A}.model.find("[0-9]+") == "100" && {A}.model.matches("^a(1)0+$")', True),
        ('cel.bind(x, [3, 1, 2], x.max() + x.sum() == 9 && !x.isSorted())', True),
        ('{"a": 1}.all(k, v, k == "a" && v == 1)', True),
        ('sets.contains([1, 2], [2]) && "a,b".split(",") == ["a", "b"]', True),
    ],
)  # fmt: skip
def test_what_matches(expression, expected):
    assert matches(expression) is expected


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        (f"{A}.none", "no such key: none"),
        (f'{A}.none || {A}.index == 4', "no such key: none"),
        (f'{A}.driver == "1.2.3"', "no such overload"),
        (f"{A}.model > 3", "no such overload"),
        ("1 / 0 == 1", "division by zero"),
        ("9223372036854775807 + 1 > 0", "integer overflow"),
        (f"{A}.index", "of type int could .* unsupported type conversion from 'int' to bool"),
        (f"{A}.model", "of type string could .* native conversion from string to 'bool'"),
        (f"{A}.driver", "Semver could .* type conversion error from 'Semver' to 'bool'"),
        ("dyn([1])", "of type list could .* type conversion error from list to 'bool'"),
    ],
)  # fmt: skip
def test_a_failed_evaluation_is_an_error_and_no_answer(expression, error):
    """Of results that are no booleans: cel-go v0.26, common/types (``ConvertToNative``)."""
    with pytest.raises(EvaluationError, match=error):
        matches(expression)


def test_a_list_longer_than_a_device_can_have_is_not_searched_to_its_end():
    """cel/compile.go (``includesFunc``), v1.36."""
    long = Device("gpu.example.com", {"attributes": {"ids": {"ints": list(range(49))}}})

    def ask(number):
        return compile_selector(f"{A}.ids.includes({number})", lists=True).matches(long)[0]

    assert ask(47)
    with pytest.raises(EvaluationError, match="applied to lists longer than 48 values"):
        ask(48)


@pytest.mark.parametrize(
    ("expression", "error"),
    [
        ("device.nothing", "undefined field 'nothing'"),
        ("driver", "undeclared reference to 'driver'"),
        ("1", "must evaluate to bool or the unknown type, not int"),
        ("true &&", "Syntax error"),
        ('device.driver == 1', "found no matching overload for '_==_'"),
        ('timestamp("2026-01-01T00:00:00Z") != null', "is not available for devices"),
    ],
)  # fmt: skip
def test_what_does_not_compile(expression, error):
    with pytest.raises(CompileError, match=error):
        compile_selector(expression)


def test_without_lists_an_attribute_is_no_range():
    """cel/compile.go, v1.36: attributes are ``any`` unless DRAListTypeAttributes is on."""
    assert compile_selector(f"{A}.index.exists(x, x > 0)", lists=True)
    with pytest.raises(CompileError, match="type 'any' cannot be range of a comprehension"):
        compile_selector(f"{A}.index.exists(x, x > 0)", lists=False)


def test_a_pattern_cannot_run_away_and_a_loop_ends_at_the_limit():
    slow = Device("d", {"attributes": {"text": {"string": "a" * 64}}})
    hostile = 'device.attributes["d"].text.matches("^(a+)+$") && "%s".findAll("(a+)+b") == []'
    assert compile_selector(hostile % ("a" * 64)).matches(slow)[0]
    ten = "[0, 1, 2, 3, 4, 5, 6, 7, 8, 9]"
    loop = "true"
    for name in "abcdef":
        loop = f"{ten}.all({name}, {loop})"
    selector = compile_selector(loop)
    assert selector.max_cost > 1_000_000
    with pytest.raises(EvaluationError, match="actual cost limit exceeded"):
        selector.matches(slow)


@given(
    st.recursive(
        st.sampled_from(
            [f"{A}.index > 2", f'{A}.model == "a100"', f"{A}.none", 'device.driver == ""',
             f'"model" in {A}', f'{A}.model.split("1").size() == 2']
        ),
        lambda inner: st.one_of(
            st.tuples(inner, st.sampled_from(["&&", "||"]), inner).map(
                lambda p: f"({p[0]}) {p[1]} ({p[2]})"
            ),
            inner.map(lambda e: f"!({e})"),
            inner.map(lambda e: f"[1, 2].all(x, x < 2 || ({e}))"),
            st.tuples(inner, inner, inner).map(lambda p: "(({}) ? ({}) : ({})) == true".format(*p)),
        ),
        max_leaves=6,
    )
)  # fmt: skip
def test_no_evaluation_costs_more_than_its_estimate(expression):
    selector = compile_selector(expression)
    try:
        assert selector.matches(GPU)[1] <= selector.max_cost
    except EvaluationError as error:
        if "no such key" not in str(error):
            raise
