"""No regular expression of the product takes more than linear time, whatever a client sends.

``re`` tries one way to match after the other and holds up all threads of the process meanwhile. A
pattern in which a text can be divided among two repeats in many ways takes time that grows with the
square of the text, or doubles with each character of it. Each pattern gets texts that are made of
its own parts: what stands before a repeat, then what the repeat takes, very often, then something
that no way of matching ends with.
"""

import ast
import functools
import gc
import importlib
import itertools
import pkgutil
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import api
import clusterstate
import scheduling
from tests.live import ROOT

_parser: Any = re._parser  # type: ignore[attr-defined]

PACKAGES = (api, clusterstate, scheduling)
SIZES = (12, 18, 24, 10_000)
"""Repeats, first so few that a pattern of exponential time comes to an end, though late."""
MOST_SECONDS = 0.05
"""Of one match. A linear one takes less than a millisecond, a quadratic one of this size 300."""
ENDINGS = ("\0", "\n")
"""Hardly any pattern takes both of them."""
SEARCHING = ("search", "sub", "subn", "findall", "finditer", "split")
METHODS = ("match", "fullmatch", *SEARCHING)


# The patterns ---------------------------------------------------------------------------------


def _modules() -> Iterator[Any]:
    for package in PACKAGES:
        for found in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
            parts = found.name.split(".")
            if not {"migrations", "__main__", "settings"} & set(parts):
                yield importlib.import_module(found.name)


def _within(value: Any, depth: int = 3) -> Iterator[re.Pattern[Any]]:
    if isinstance(value, re.Pattern):
        yield value
    elif depth and isinstance(value, dict):
        for item in value.values():
            yield from _within(item, depth - 1)
    elif depth and isinstance(value, list | tuple | set | frozenset):
        for item in value:
            yield from _within(item, depth - 1)
    elif depth and isinstance(value, type):
        yield from _within(dict(vars(value)), depth - 1)


def _compiled() -> Iterator[tuple[str, re.Pattern[Any]]]:
    """Yield the patterns that modules and classes hold, with the names of their modules."""
    for module in _modules():
        for name, value in vars(module).items():
            if not isinstance(value, type) or value.__module__ == module.__name__:
                for pattern in _within(value):
                    yield f"{module.__name__}.{name}", pattern


@functools.cache
def _calls() -> list[tuple[str, ast.expr, str, ast.Call]]:
    """Return each call of a method: the module, of what, which method, and the call."""
    return [
        (
            ".".join(path.relative_to(ROOT).with_suffix("").parts),
            node.func.value,
            node.func.attr,
            node,
        )
        for package in PACKAGES
        for path in Path(package.__path__[0]).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    ]


@pytest.fixture(scope="module", autouse=True)
def _forgotten() -> Iterator[None]:
    """Forget the syntax trees, which Python's collector would look through in other tests."""
    yield
    _calls.cache_clear()


def _written_in_calls() -> Iterator[tuple[str, re.Pattern[str]]]:
    """Yield the patterns that are given to ``re.fullmatch`` and its like."""
    for module, of, method, call in _calls():
        if isinstance(of, ast.Name) and of.id == "re" and method in METHODS and call.args:
            first = call.args[0]
            if isinstance(first, ast.Constant) and isinstance(first.value, str):
                yield f"{module}.{method}", re.compile(first.value)


def _searched() -> set[str]:
    """Return the patterns that are looked for within texts, as ``_compiled`` names them."""
    return {
        f"{module}.{of.id}"
        for module, of, method, _ in _calls()
        if method in SEARCHING and isinstance(of, ast.Name)
    }


# Texts for them -------------------------------------------------------------------------------


def _sample(tree: Any) -> str:
    """Return a text that the pattern takes, as far as its parts say."""
    return "".join(_one(operator, argument) for operator, argument in tree)


def _one(operator: Any, argument: Any) -> str:
    name = str(operator)
    if name == "LITERAL":
        return chr(argument)
    if name == "NOT_LITERAL":
        return "a" if argument != ord("a") else "b"
    if name == "ANY":
        return "a"
    if name == "IN":
        return _members(argument)[0]
    if name == "BRANCH":
        return _sample(argument[1][0])
    if name == "SUBPATTERN":
        return _sample(argument[-1])
    if name == "ATOMIC_GROUP":
        return _sample(argument)
    if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
        return _sample(argument[2]) * max(1, argument[0])
    return ""


def _members(argument: Any) -> list[str]:
    """Return a few characters of a class; of one that says what is not in it, one that is not."""
    excluded, found = False, []
    for operator, value in argument:
        name = str(operator)
        if name == "NEGATE":
            excluded = True
        elif name == "LITERAL":
            found.append(chr(value))
        elif name == "RANGE":
            found += [chr(value[0]), chr(value[1])]
        elif name == "CATEGORY":
            found.append({"SPACE": " ", "DIGIT": "1", "WORD": "a"}[str(value).split("_")[-1]])
    if excluded:
        return [one for one in "ab1 ~\u00e9" if one not in found][:2]
    return found


def _repeats(tree: Any, before: str = "") -> Iterator[tuple[str, list[str]]]:
    """Yield what stands before each repeat, and texts that it takes."""
    for operator, argument in tree:
        name = str(operator)
        if name in ("MAX_REPEAT", "MIN_REPEAT", "POSSESSIVE_REPEAT"):
            yield before, _pumps(argument[2])
            yield from _repeats(argument[2], before)
        elif name == "BRANCH":
            for branch in argument[1]:
                yield from _repeats(branch, before)
        elif name == "SUBPATTERN":
            yield from _repeats(argument[-1], before)
        elif name == "ATOMIC_GROUP":
            yield from _repeats(argument, before)
        before += _one(operator, argument)


def _pumps(tree: Any) -> list[str]:
    found = [_sample(tree)]
    for operator, argument in tree:
        if str(operator) == "IN":
            found += _members(argument)
    return [one for one in dict.fromkeys(found) if one]


def hostile(pattern: str) -> Iterator[tuple[str, str, str]]:
    """Yield beginnings, repeated parts and endings of texts for a pattern."""
    tree = _parser.parse(pattern)
    places = list(_repeats(tree))
    parts = list(dict.fromkeys(pump for _, pumps in places for pump in pumps))
    pumps = [*parts, *(f"{one}{other}" for one, other in itertools.permutations(parts[:5], 2))]
    beginnings = list(dict.fromkeys(["", *(before for before, _ in places)]))
    return itertools.product(beginnings, pumps, ENDINGS)


# The time they take ---------------------------------------------------------------------------


@pytest.fixture(autouse=True)
def _no_collections() -> Iterator[None]:
    """Let Python's collector, which takes a tenth of a second here, come in between no match."""
    gc.disable()
    yield
    gc.enable()


def _seconds(pattern: re.Pattern[Any], method: str, text: Any) -> float:
    """Return the CPU time of one match; of three where the first took a little too long.

    Not the clock's: other processes may take the core meanwhile.
    """
    best = float("inf")
    for _ in range(3):
        began = time.thread_time()
        getattr(pattern, method)(text)
        best = min(best, time.thread_time() - began)
        if not MOST_SECONDS < best < 4 * MOST_SECONDS:
            break
    return best


def too_slow(pattern: re.Pattern[Any], method: str) -> str:
    """Return the text on which a pattern takes too long, shortened; empty where there is none."""
    written = pattern.pattern
    is_bytes = isinstance(written, bytes)
    for before, pump, after in hostile(written.decode("latin-1") if is_bytes else written):
        for size in SIZES:
            text: Any = before + pump * size + after
            if is_bytes:
                text = text.encode("latin-1", "replace")
            taken = _seconds(pattern, method, text)
            if taken > MOST_SECONDS:
                return f"{before!r} + {pump!r} * {size} + {after!r}: {taken:.2f} s"
    return ""


def test_no_pattern_takes_more_than_linear_time() -> None:
    searched = _searched()
    wrong, seen = [], set()
    for name, pattern in [*_compiled(), *_written_in_calls()]:
        methods = {"fullmatch"}
        if name in searched or name.rpartition(".")[2] in SEARCHING:
            methods.add("search")
        for method in methods:
            if (pattern, method) in seen:
                continue
            seen.add((pattern, method))
            if found := too_slow(pattern, method):
                wrong.append(f"{name} ({method}): {pattern.pattern!r}: {found}")
    assert len(seen) > 60
    assert not wrong, "\n".join(wrong)


@pytest.mark.parametrize(
    "pattern",
    [
        r"([+-]?)([0-9]*)(?:\.([0-9]*))?([eEinumkKMGTP]*[-+]?[0-9]*)",
        r"(a+)+b",
        r"(?:a|a)*b",
        r"x[0-9a-f]+[a-z0-9]+",
        r"([a-z]+\.?)+",
        r"(?:[a-z]+-*)*:",
    ],
)
def test_patterns_of_more_than_linear_time_are_found(pattern: str) -> None:
    assert too_slow(re.compile(pattern), "fullmatch")


@pytest.mark.parametrize(
    "pattern", [r"([+-]?)([0-9]*+)(?:\.([0-9]*+))?", r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"]
)
def test_patterns_of_linear_time_are_not(pattern: str) -> None:
    assert not too_slow(re.compile(pattern), "fullmatch")


def test_every_pattern_that_is_compiled_is_looked_at() -> None:
    known = {pattern.pattern for _, pattern in _compiled()}
    for module, of, method, call in _calls():
        if isinstance(of, ast.Name) and (of.id, method) == ("re", "compile"):
            first = call.args[0]
            assert not isinstance(first, ast.Constant) or first.value in known, module
