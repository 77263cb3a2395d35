"""What the import contracts cannot see."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("api", "scheduling", "clusterstate")
# The only writers: actions, and the change log that they append to.
WRITERS = ("clusterstate/actions/", "clusterstate/changes.py")
WRITING_METHODS = {
    "save",
    "asave",
    "bulk_create",
    "bulk_update",
    "get_or_create",
    "update_or_create",
    "create_user",
    "create_superuser",
}
# On a manager or a query set these write; on a dict or a set they do not.
QUERY_SET_METHODS = {"create", "update", "delete", "acreate", "aupdate", "adelete"}
WRITING_SQL = ("INSERT INTO", "UPDATE ", "DELETE FROM", "TRUNCATE", "COPY ")


def sources() -> Iterator[Path]:
    for package in PACKAGES:
        yield from sorted((ROOT / package).rglob("*.py"))


def managed(node: ast.expr) -> bool:
    """Return whether a chain such as ``Pod.objects.filter(...)`` starts at a model's manager.

    The module ``actions.objects`` is none: what stands before it is no class.
    """
    while True:
        if isinstance(node, ast.Attribute):
            before = node.value
            owner = getattr(before, "attr", getattr(before, "id", ""))
            if node.attr == "_default_manager" or (
                node.attr == "objects" and (owner[:1].isupper() or owner == "model")
            ):
                return True
            node = before
        elif isinstance(node, ast.Call):
            node = node.func
        else:
            return False


def is_super(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and getattr(node.func, "id", "") == "super"


def docstrings(tree: ast.Module) -> set[int]:
    return {
        id(node.value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant)
    }


def writes(tree: ast.Module) -> Iterator[tuple[int, str]]:
    """Yield the line and the text of everything in a module that writes to the database."""
    prose = docstrings(tree)
    for node in ast.walk(tree):
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute):
            method = node.func.attr
            called_on = node.func.value
            if (method in WRITING_METHODS and not is_super(called_on)) or (
                method in QUERY_SET_METHODS and managed(called_on)
            ):
                yield node.lineno, method
        elif (
            isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in prose
        ):
            statement = node.value.strip().upper()
            if statement.startswith(WRITING_SQL) and not statement.startswith("COPY ("):
                yield node.lineno, node.value.strip()[:40]


def test_only_actions_and_the_change_log_write() -> None:
    found = [
        f"{path.relative_to(ROOT)}:{line} {what}"
        for path in sources()
        if not str(path.relative_to(ROOT)).startswith(WRITERS)
        for line, what in writes(ast.parse(path.read_text()))
    ]
    assert found == []


@pytest.mark.parametrize(
    "code",
    [
        "Pod.objects.filter(name='a').update(phase='x')",
        "Node.objects.create(name='a')",
        "pod.save()",
        "cursor.execute('DELETE FROM pod')",
        "cursor.execute('''\n  insert into pod values (1)''')",
    ],
)
def test_a_write_is_recognised(code: str) -> None:
    assert list(writes(ast.parse(code)))


@pytest.mark.parametrize(
    "code",
    [
        "{}.update({})",
        "cache.delete('x')",
        "'''UPDATE is a word'''",
        "super().save(x)",
        "objects.create(k)",
    ],
)
def test_what_is_no_write_is_not_taken_for_one(code: str) -> None:
    assert not list(writes(ast.parse(code)))


@pytest.mark.parametrize(
    "package",
    [
        "clusterstate.objects",
        "clusterstate.admission",
        "scheduling.framework",
        "scheduling.engine",
        "scheduling.plugins",
    ],
)
def test_the_decision_core_imports_without_django(package: str) -> None:
    """Import every module of the package in a fresh interpreter and look what came along."""
    code = (
        "import importlib, pkgutil, sys\n"
        "package = importlib.import_module(sys.argv[1])\n"
        "for found in pkgutil.walk_packages(package.__path__, package.__name__ + '.'):\n"
        "    importlib.import_module(found.name)\n"
        "outside = {'django', 'rest_framework', 'celery', 'psycopg', 'redis'}\n"
        "print(*sorted(outside & {name.partition('.')[0] for name in sys.modules}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, package], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == ""
