"""Shapes of pods in a line of text."""

import pytest

from clusterstate.objects.values.shapes import Shape, ShapeError, parse


def test_shapes_are_names_with_amounts():
    assert parse("small=cpu:500m memory:1Gi, gpu=example.com/gpu:1") == (
        Shape("small", {"cpu": "500m", "memory": "1Gi"}),
        Shape("gpu", {"example.com/gpu": "1"}),
    )
    assert parse("") == parse(" , ") == ()


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("cpu:1", "begin with a name"),
        ("Big=cpu:1", "begin with a name"),
        ("a=cpu:1, a=cpu:2", "twice"),
        ("a=cpu", "resource:amount"),
        ("a=", "requests no resources"),
        ("a=cpu:much", "not a quantity"),
    ],
)
def test_a_wrong_text_says_what_is_wrong(text, told):
    with pytest.raises(ShapeError, match=told):
        parse(text)
