"""`requirements.md` of docs/development says which tests show a statement; these say so, too."""

import ast
import re
from collections import defaultdict
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from tests.live import ROOT

ROW = re.compile(r"^\| R(\d+) \| (\S.*\S) \| (.*) \|$", re.MULTILINE)
NUMBERS = re.compile(r"\bR(\d{1,3})(?:-R(\d{1,3}))?\b")
TESTS = ROOT / "tests"


def texts_of(test: ast.FunctionDef | ast.AsyncFunctionDef) -> Iterator[str]:
    """Yield the docstring of a test, and the texts of its decorators: the ids of its cases."""
    yield ast.get_docstring(test) or ""
    for decorator in test.decorator_list:
        for part in ast.walk(decorator):
            if isinstance(part, ast.Constant) and isinstance(part.value, str):
                yield part.value


def named_by(path: Path) -> set[int]:
    """Return the numbers of the statements that tests in a file name, each by itself."""
    text = path.read_text()
    if not NUMBERS.search(text):
        return set()
    return {
        number
        for function in ast.walk(ast.parse(text))
        if isinstance(function, ast.FunctionDef | ast.AsyncFunctionDef)
        and function.name.startswith("test_")
        for text in texts_of(function)
        for first, last in NUMBERS.findall(text)
        for number in range(int(first), int(last or first) + 1)
    }


def unshown(shown: dict[int, list[str]], named: Mapping[int, set[str]]) -> dict[str, Any]:
    """Return the statements whose row names no test, or one that does not name the statement."""
    return {
        f"R{number}": files or "no test"
        for number, files in shown.items()
        if not set(files) <= named.get(number, set()) or not files
    }


def test_a_row_without_a_test_that_names_its_statement_is_found() -> None:
    named = {1: {"a.py"}, 2: {"a.py", "b.py"}}
    assert unshown({1: ["a.py"], 2: ["b.py"]}, named) == {}
    assert unshown({1: ["b.py"], 2: [], 3: ["a.py"]}, named) == {
        "R1": ["b.py"], "R2": "no test", "R3": ["a.py"],
    }  # fmt: skip


def test_every_statement_has_a_row_and_tests_and_the_tests_name_it() -> None:
    """R63."""
    named: defaultdict[int, set[str]] = defaultdict(set)
    for path in TESTS.rglob("test_*.py"):
        for number in named_by(path):
            named[number].add(str(path.relative_to(TESTS)))
    page = (ROOT / "docs/development/requirements.md").read_text()
    shown = {int(n): re.findall(r"`([^`]+)`", cell) for n, _, cell in ROW.findall(page)}
    assert list(shown) == list(range(1, 181))
    assert sorted(set(named) - set(shown)) == []
    assert unshown(shown, named) == {}
