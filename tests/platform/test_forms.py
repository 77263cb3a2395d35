"""The two forms of the tests: nothing is left out of the suite that is not written down."""

import ast
import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests import forms
from tests.forms import LONG, SUITE, few, runs
from tests.live import ROOT

TABLE = re.compile(r"^\| `(tests/[\w/]+\.py)`(.*?)\|(.*)\|$", re.MULTILINE)
NAME = re.compile(r"`(test_\w+)`")
FILE = re.compile(r"`((?:tests/)[\w/]+(?:\.py)?)`")


def is_mark(node: ast.AST) -> bool:
    """Return whether a node says `pytest.mark.long`, or that of some variants by `few`."""
    if isinstance(node, ast.Attribute) and node.attr == "long":
        return isinstance(node.value, ast.Attribute) and node.value.attr == "mark"
    return isinstance(node, ast.Name) and node.id == few.__name__


def marked(file: Path) -> set[str]:
    """Return the tests of a file that the long form has alone, or some variants of; "" for all."""
    found = set()
    for statement in ast.parse(file.read_text()).body:
        if isinstance(statement, ast.FunctionDef):
            for decorator in statement.decorator_list:
                if any(map(is_mark, ast.walk(decorator))):
                    found.add(statement.name)
        elif any(map(is_mark, ast.walk(statement))):
            assert isinstance(statement, ast.Assign), f"{file}: mark tests, or the whole file"
            assert [ast.unparse(one) for one in statement.targets] == ["pytestmark"]
            found.add("")
    return found


def all_marked() -> dict[str, set[str]]:
    files = (ROOT / "tests").rglob("test_*.py")
    found = {str(file.relative_to(ROOT)): marked(file) for file in files}
    return {file: names for file, names in found.items() if names}


def written() -> dict[str, tuple[set[str], str]]:
    """Return what CONTRIBUTING.md lists: of each file its tests, and what the suite keeps."""
    text = (ROOT / "CONTRIBUTING.md").read_text()
    return {
        file: (set(NAME.findall(tests)) or {""}, kept) for file, tests, kept in TABLE.findall(text)
    }


def test_what_the_suite_leaves_out_is_written_down() -> None:
    assert {file: tests for file, (tests, _) in written().items()} == all_marked()


def test_of_everything_that_is_left_out_the_suite_keeps_something() -> None:
    left_out = all_marked()
    for file, (_, kept) in written().items():
        places = FILE.findall(kept)
        for place in places or [file]:
            assert any(_has_short_tests(one, left_out) for one in _files(place)), (file, place)
        if not places:  # others of the file, or the first variants
            assert left_out[file] != {""}, f"{file}: say which file the suite has instead"


def _files(place: str) -> Iterator[Path]:
    path = ROOT / place
    assert path.exists(), place
    yield from path.rglob("test_*.py") if path.is_dir() else [path]


def _has_short_tests(file: Path, left_out: dict[str, set[str]]) -> bool:
    text = file.read_text()
    return "" not in left_out.get(str(file.relative_to(ROOT)), ()) and "def test_" in text


@pytest.mark.parametrize(
    ("marks", "forms"),
    [
        ([], {SUITE}),
        (["db"], {SUITE}),
        (["long", "db"], {LONG}),
        (["drawn"], {SUITE, LONG}),
        (["drawn", "long"], {LONG}),
    ],
)
def test_every_test_is_in_a_form(marks: list[str], forms: set[str]) -> None:
    assert {form for form in (SUITE, LONG) if runs(marks, form)} == forms


def test_the_first_variants_are_in_the_suite() -> None:
    first, *others = few([("a", 1), ("b", 2), ("c", 3)])
    assert first == ("a", 1)
    assert [one.values for one in others] == [("b", 2), ("c", 3)]
    assert {mark.name for one in others for mark in one.marks} == {"long"}
    assert few("ab", 2) == ["a", "b"]


def test_another_form_than_these_is_refused() -> None:
    with pytest.raises(pytest.UsageError, match="TEST_FORM: short is neither suite nor long"):
        forms._read("short")


def test_what_cannot_be_tested_on_a_machine_is_told(tmp_path: Path) -> None:
    done = subprocess.run(
        ["/bin/sh", ROOT / ".ci/test-deps"],
        env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    assert done.stderr.startswith("NOT TESTED here: what needs chromium chromium-driver")
    for name in ("chromium", "chromedriver", "kubectl", "cc"):
        os.symlink("/bin/true", tmp_path / name)
    assert (
        subprocess.run(
            ["/bin/sh", ROOT / ".ci/test-deps"], env={"PATH": str(tmp_path)}, check=False
        ).returncode
        == 0
    )


APT_GET = """#!/bin/sh
echo "$@" >>{asked}
case "$*" in *chromium*) exit 100 ;; esac
"""


def test_a_package_that_cannot_be_had_keeps_no_other_away(tmp_path: Path) -> None:
    for name in ("mktemp", "rm", "date", "timeout", "tail"):
        (tmp_path / name).symlink_to(shutil.which(name) or "")
    asked = tmp_path / "asked"
    for name, text in (("id", "#!/bin/sh\necho 0\n"), ("apt-get", APT_GET.format(asked=asked))):
        (tmp_path / name).write_text(text)
        (tmp_path / name).chmod(0o755)
    done = subprocess.run(
        ["/bin/sh", ROOT / ".ci/test-deps"],
        env={"PATH": str(tmp_path)}, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 1
    told = "NOT TESTED here: what needs chromium chromium-driver. They cannot be had: see above.\n"
    assert done.stderr == told
    installed = [line.split(" install ")[1] for line in asked.read_text().splitlines()[1:]]
    assert [installed[0], *installed[-2:]] == ["chromium chromium-driver", *["gcc libc6-dev"] * 2]
