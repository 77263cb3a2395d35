"""The two forms of the tests, the suite and the long form; ``-p tests.forms``.

The suite runs for each change (``make test``). Of each kind of thing it has one: each process is
killed, each client is used, a fault of each kind is met. The long form (``make long``, before a
release) repeats what the suite shows once: more variants, longer lives, more random examples.
Together they are all tests. ``TEST_FORM=long`` chooses it, for a single test as well.

A test is in the long form alone if it says so: ``@pytest.mark.long``, also as the mark of one of
its variants (``few`` marks all but the first). CONTRIBUTING.md lists all of them and
what the suite keeps in their place; tests/platform/test_forms.py holds the list against the marks.
A test that draws at random is in both forms and has more examples in the long one: Hypothesis'
tests by themselves, others with ``@pytest.mark.drawn`` and a number from ``many``.
"""

import os
from collections.abc import Iterable
from typing import Any, Final

import pytest

VARIABLE: Final = "TEST_FORM"
SUITE: Final = "suite"
LONG: Final = "long"


def _read(text: str) -> str:
    if text not in (SUITE, LONG):
        raise pytest.UsageError(f"{VARIABLE}: {text} is neither {SUITE} nor {LONG}")
    return text


FORM: Final = _read(os.environ.get(VARIABLE) or SUITE)


def many(in_suite: int, at_length: int) -> int:
    """Return how many random examples a test draws in this form."""
    return at_length if FORM == LONG else in_suite


def few(values: Iterable[Any], count: int = 1) -> list[Any]:
    """Return parameters of a test; all but the first so many are in the long form alone."""
    return [
        value if place < count else pytest.param(*_together(value), marks=pytest.mark.long)
        for place, value in enumerate(values)
    ]


def _together(value: Any) -> tuple[Any, ...]:
    return value if isinstance(value, tuple) else (value,)


def runs(marks: Iterable[str], form: str) -> bool:
    """Return whether a test with these marks belongs to a form."""
    found = set(marks)
    if form == LONG:
        return bool(found & {"long", "drawn"})
    return "long" not in found


def pytest_configure(config: pytest.Config) -> None:
    config.addinivalue_line("markers", "long: runs in the long form alone; CONTRIBUTING.md")
    config.addinivalue_line("markers", "drawn: draws at random, more in the long form")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    left_out = []
    kept = []
    for item in items:
        if getattr(getattr(item, "obj", None), "is_hypothesis_test", False):
            item.add_marker("drawn")
        belongs = runs((mark.name for mark in item.iter_markers()), FORM)
        (kept if belongs else left_out).append(item)
    items[:] = kept
    config.hook.pytest_deselected(items=left_out)
