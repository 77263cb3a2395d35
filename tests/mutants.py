"""Change one rule at a time and print the changes that no test notices: ``make mutants``.

A mutant is a copy of the project with one change: ``<`` became ``<=``, an operand of ``and`` is
gone, a branch is never taken, a number is one more. The tests that import the changed module run
first, then those of its area; a mutant that passes all of them survives. A survivor is a missing
test, or a change that makes no difference: read the line.

The seed decides which changes are made, so that a run can be repeated. Nothing of the working tree
is changed.
"""

import argparse
import ast
import os
import random
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Final

ROOT: Final = Path(__file__).parents[1]
_NO_DATABASE: Final = "not db and not slow"
_NOT_PASSED_ON: Final = {"PYTHONDONTWRITEBYTECODE", "DJANGO_SETTINGS_MODULE"}
_OPTIONS: Final = ("-x", "-n0", "-p", "no:cacheprovider")


@dataclass(frozen=True)
class Area:
    """Modules whose rules are changed, and the tests of the whole area."""

    modules: tuple[str, ...]
    tests: tuple[str, ...]
    marks: str = _NO_DATABASE


AREAS: Final = {
    "objects": Area(
        ("clusterstate/objects/rules", "clusterstate/objects/values", "clusterstate/objects/wire"),
        ("tests/objects", "tests/admission", "tests/controllers", "tests/conformance"),
    ),
    "plugins": Area(
        ("scheduling/plugins",),
        ("tests/plugins", "tests/engine", "tests/properties", "tests/conformance"),
    ),
    "queue": Area(("scheduling/engine/queue",), ("tests/engine", "tests/worker")),
    "actions": Area(("clusterstate/actions",), ("tests/clusterstate", "tests/api"), "not slow"),
}
_SKIPPED: Final = {"catalogue.py"}  # a table, which has tests of its own
_COMPARISONS: Final[dict[type[ast.cmpop], tuple[str, str]]] = {
    ast.Lt: ("<", "<="),
    ast.LtE: ("<=", "<"),
    ast.Gt: (">", ">="),
    ast.GtE: (">=", ">"),
    ast.Eq: ("==", "!="),
    ast.NotEq: ("!=", "=="),
    ast.In: ("in", "not in"),
    ast.NotIn: ("not in", "in"),
    ast.Is: ("is", "is not"),
    ast.IsNot: ("is not", "is"),
}
_SIGNS: Final[dict[type[ast.operator], tuple[str, str]]] = {
    ast.Add: ("+", "-"),
    ast.Sub: ("-", "+"),
}


@dataclass(frozen=True)
class Change:
    """One replacement in a module's text, between two offsets in its bytes."""

    module: str
    line: int
    start: int
    end: int
    before: str
    after: str

    def apply(self, text: bytes) -> bytes:
        """Return the module's text with the change."""
        return text[: self.start] + self.after.encode() + text[self.end :]

    def __str__(self) -> str:
        before, after = (" ".join(part.split()) for part in (self.before, self.after))
        return f"{self.module}:{self.line}: {before} -> {after}"


class _Finder(ast.NodeVisitor):
    """Collects the changes that can be made in one module."""

    def __init__(self, module: str, text: bytes) -> None:
        self.module = module
        self.text = text
        self.found: list[Change] = []
        self._starts = [0]
        for line in text.splitlines(keepends=True):
            self._starts.append(self._starts[-1] + len(line))

    def _at(self, line: int, column: int) -> int:
        return self._starts[line - 1] + column

    def _span(self, node: ast.expr) -> tuple[int, int]:
        assert node.end_lineno is not None
        assert node.end_col_offset is not None
        return (
            self._at(node.lineno, node.col_offset),
            self._at(node.end_lineno, node.end_col_offset),
        )

    def _source(self, node: ast.expr) -> str:
        start, end = self._span(node)
        return self.text[start:end].decode()

    def _add(self, node: ast.expr, after: str) -> None:
        start, end = self._span(node)
        self.found.append(
            Change(self.module, node.lineno, start, end, self.text[start:end].decode(), after)
        )

    def _between(self, left: ast.expr, right: ast.expr, before: str, after: str) -> None:
        """Replace an operator, which stands between its operands."""
        start, end = self._span(left)[1], self._span(right)[0]
        at = self.text.find(before.encode(), start, end)
        if at >= 0 and b"#" not in self.text[start:end]:
            line = self.text.count(b"\n", 0, at) + 1
            self.found.append(Change(self.module, line, at, at + len(before), before, after))

    def visit_Compare(self, node: ast.Compare) -> None:
        left = node.left
        for operator, right in zip(node.ops, node.comparators, strict=True):
            self._between(left, right, *_COMPARISONS[type(operator)])
            left = right
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        word = " and " if isinstance(node.op, ast.And) else " or "
        for left_out in node.values:
            if self._source(left_out) in ("()", "[]", "{}", '""'):
                continue  # a default, which only saves a case
            others = [self._source(each) for each in node.values if each is not left_out]
            self._add(node, f"({word.join(others)})")
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, ast.Not):
            self._add(node, f"bool({self._source(node.operand)})")
        self.generic_visit(node)

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if type(node.op) in _SIGNS:
            self._between(node.left, node.right, *_SIGNS[type(node.op)])
        self.generic_visit(node)

    def visit_If(self, node: ast.If) -> None:
        if self._source(node.test) != "TYPE_CHECKING":
            self._add(node.test, "False")
            self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        if isinstance(node.value, bool):
            self._add(node, str(not node.value))
        elif isinstance(node.value, int):
            self._add(node, str(node.value + 1))

    def visit_Call(self, node: ast.Call) -> None:
        name = self._source(node.func)
        if name.startswith("log."):
            return
        if name in ("min", "max"):
            self._add(node.func, "max" if name == "min" else "min")
        self.generic_visit(node)

    def visit_FunctionDef(self, node: ast.FunctionDef) -> None:
        if node.name != "__repr__":  # neither decorators nor annotations
            for part in (*node.args.defaults, *node.args.kw_defaults, *node.body):
                if part is not None:
                    self.visit(part)

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None:
            self.visit(node.value)

    def visit_Assert(self, node: ast.Assert) -> None:
        """An assertion states what cannot be otherwise."""

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Positions inside of f-strings are unknown before Python 3.12."""


def changes(module: str, text: bytes) -> list[Change]:
    """Return all changes that can be made in a module, given its path and its text."""
    finder = _Finder(module, text)
    finder.visit(ast.parse(text))
    return sorted(finder.found, key=lambda one: (one.start, one.end, one.after))


def draw(
    areas: Iterable[str], count: int, seed: int, root: Path = ROOT
) -> Iterator[tuple[str, Change]]:
    """Yield an area's name and a change, from one area after another."""
    chance = random.Random(seed)
    pools = {}
    for name in areas:
        modules = sorted(
            path
            for folder in AREAS[name].modules
            for path in (root / folder).rglob("*.py")
            if path.name not in _SKIPPED
        )
        pool = [
            change
            for path in modules
            for change in changes(str(path.relative_to(root)), path.read_bytes())
        ]
        pools[name] = chance.sample(pool, min(count, len(pool)))
    for place in range(count):
        name = list(pools)[place % len(pools)]
        if pools[name]:
            yield name, pools[name].pop()


def importing(module: str, root: Path = ROOT) -> list[str]:
    """Return the test files that import a module by its name."""
    dotted = module.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    package, _, name = dotted.rpartition(".")
    found = []
    for path in sorted((root / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_bytes())):
            if isinstance(node, ast.ImportFrom) and (
                node.module == dotted
                or (node.module == package and any(each.name == name for each in node.names))
            ):
                found.append(str(path.relative_to(root)))
                break
    return found


class Copy:
    """A copy of the project in which modules are changed and tests run."""

    def __init__(self, folder: Path, root: Path = ROOT) -> None:
        self.folder = folder
        self._changes = 0
        listed = subprocess.run(
            ["git", "ls-files", "-z", "-co", "--exclude-standard"],
            cwd=root, capture_output=True, text=True, check=True,
        ).stdout  # fmt: skip
        for name in filter(None, listed.split("\0")):
            if (root / name).is_file():
                (folder / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(root / name, folder / name)
        if (root / ".venv").exists():
            (folder / ".venv").symlink_to((root / ".venv").resolve())

    def passes(self, tests: list[str], marks: str, seconds: float) -> bool:
        """Run tests until the first failure; true if none fails in time, or if there are none."""
        if not tests:
            return True
        try:
            done = subprocess.run(
                [sys.executable, "-m", "pytest", *_OPTIONS, "-m", marks, *tests],
                cwd=self.folder, capture_output=True, timeout=seconds, check=False,
                env={name: text for name, text in os.environ.items() if name not in _NOT_PASSED_ON},
            )  # fmt: skip
        except subprocess.TimeoutExpired:
            return False
        return done.returncode in (0, 5)

    def survives(self, change: Change, area: Area, seconds: float) -> bool:
        """Return whether no test notices the change; the copy is as before afterwards."""
        file = self.folder / change.module
        original = file.read_bytes()
        self._write(file, change.apply(original))
        try:
            return self.passes(importing(change.module, self.folder), area.marks, seconds) and (
                self.passes(list(area.tests), area.marks, seconds)
            )
        finally:
            self._write(file, original)

    def _write(self, file: Path, text: bytes) -> None:
        """Bytecode is taken for that of a text with the same time in seconds: each has its own."""
        file.write_bytes(text)
        self._changes += 1
        moment = time.time() + self._changes
        os.utime(file, (moment, moment))


def main() -> None:
    """Read the arguments, make the changes and print each one's fate and the count."""
    parser = argparse.ArgumentParser(prog="tests.mutants", description=__doc__.split("\n", 1)[0])
    parser.add_argument("areas", nargs="*", default=list(AREAS), help=", ".join(AREAS))
    parser.add_argument("--count", type=int, default=20, help="changes in all (20)")
    parser.add_argument("--seed", type=int, default=0, help="decides which changes are made (0)")
    parser.add_argument(
        "--seconds", type=float, default=600, help="tests that run longer fail (600)"
    )
    given = parser.parse_args()
    if unknown := set(given.areas) - set(AREAS):
        parser.error(f"{', '.join(sorted(unknown))}: the areas are {', '.join(AREAS)}")
    survivors = 0
    made = 0
    with tempfile.TemporaryDirectory(prefix="stowage-mutants-") as folder:
        copy = Copy(Path(folder))
        for name in given.areas:
            if not copy.passes(list(AREAS[name].tests), AREAS[name].marks, given.seconds):
                parser.exit(2, f"{name}: its tests fail without a change, or take too long\n")
        for name, change in draw(given.areas, given.count, given.seed):
            made += 1
            lives = copy.survives(change, AREAS[name], given.seconds)
            survivors += lives
            print("SURVIVED" if lives else "noticed ", change, flush=True)
    print(f"{survivors} of {made} changes were noticed by no test (seed {given.seed})")


if __name__ == "__main__":
    main()
