"""`make mutants`: rules are changed at random, and what no test notices is printed."""

import ast
import subprocess
from pathlib import Path

import pytest

from tests import mutants
from tests.mutants import AREAS, Area, Change, Copy, changes, draw, importing

RULE = """
def fits(free: int, wanted: int = 1, *, closed: bool = False) -> bool:
    if closed:
        return False
    return wanted <= free and not is_odd(free) or max(free, 0) > 100
"""


def made(text: str) -> list[str]:
    """Return what each change of a module makes of it, as the text of its last function's lines."""
    return [change.apply(text.encode()).decode() for change in changes("rule.py", text.encode())]


def test_each_kind_of_change_is_made_and_nothing_else() -> None:
    found = {(change.before, change.after) for change in changes("rule.py", RULE.encode())}
    first, second = "wanted <= free and not is_odd(free)", "max(free, 0) > 100"
    assert found == {
        ("1", "2"), ("False", "True"), ("closed", "False"), ("<=", "<"), (">", ">="), ("0", "1"),
        ("max", "min"), ("100", "101"), ("not is_odd(free)", "bool(is_odd(free))"),
        (first, "(wanted <= free)"), (first, "(not is_odd(free))"),
        (f"{first} or {second}", f"({first})"), (f"{first} or {second}", f"({second})"),
    }  # fmt: skip
    assert all(ast.parse(text) for text in made(RULE))


@pytest.mark.parametrize(
    "text",
    [
        "def f(x):\n    assert x > 1\n",
        "def f(x):\n    log.info('so', count=1)\n",
        "@cache(size=8)\ndef f(x: Literal[3]) -> Literal[4]: ...\n",
        "def f(x):\n    return x or ()\n",
    ],
)
def test_what_makes_no_rule_is_left_alone(text: str) -> None:
    assert [change for change in changes("rule.py", text.encode()) if change.after != "(())"] == []


def test_every_change_that_can_be_drawn_is_a_program_and_a_seed_draws_the_same() -> None:
    drawn = list(draw(AREAS, 60, seed=1))
    assert drawn == list(draw(AREAS, 60, seed=1))
    assert drawn != list(draw(AREAS, 60, seed=2))
    assert {name for name, _ in drawn} == set(AREAS)
    for _, change in drawn:
        ast.parse(change.apply((mutants.ROOT / change.module).read_bytes()))


def test_the_tests_of_a_module_are_those_that_import_it() -> None:
    found = importing("clusterstate/objects/rules/matching.py")
    assert "tests/objects/test_matching.py" in found
    assert "tests/objects/test_cron.py" not in found


def test_a_change_that_no_test_notices_survives_and_the_copy_is_as_before(tmp_path: Path) -> None:
    project, folder = tmp_path / "project", tmp_path / "copy"
    (project / "tests").mkdir(parents=True)
    folder.mkdir()
    (project / "rule.py").write_text(RULE + "def is_odd(number):\n    return number % 2 == 1\n")
    (project / "pyproject.toml").write_text('[tool.pytest.ini_options]\npythonpath = ["."]\n')
    (project / "tests" / "test_rule.py").write_text(
        "import rule\n\n\ndef test_rule():\n    assert rule.fits(2, 2)\n"
    )
    subprocess.run(["git", "init", "-q"], cwd=project, check=True)
    copy = Copy(folder, project)
    area = Area(("rule.py",), ("tests",))
    by_name = {
        (change.before, change.after): change
        for change in changes("rule.py", (project / "rule.py").read_bytes())
    }
    assert copy.passes(["tests"], area.marks, 60)
    assert not copy.survives(by_name["<=", "<"], area, seconds=60)
    unnoticed: Change = by_name["100", "101"]
    assert copy.survives(unnoticed, area, seconds=60)
    assert (folder / "rule.py").read_text() == (project / "rule.py").read_text()
