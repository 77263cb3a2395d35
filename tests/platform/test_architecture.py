"""What the import contracts cannot see."""

import ast
import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

from clusterstate.database import locks
from clusterstate.processes import shards

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("api", "scheduling", "clusterstate", "stowage")
# The only writers: actions, and the change log that they append to, with its ceiling and actors.
WRITERS = (
    "clusterstate/actions/",
    "clusterstate/change_log/actors.py",
    "clusterstate/change_log/changes.py",
    "clusterstate/change_log/lineage.py",
    "clusterstate/models/rows.py",
)
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
WRITING_SQL = re.compile(
    r"""\b(
        INSERT\s+INTO\b | DELETE\s+FROM\b | MERGE\s+INTO\b | TRUNCATE\s+(TABLE\s+)?[\w"]
        | UPDATE\s+(ONLY\s+)?[\w".]+(\s+(AS\s+)?\w+)?\s+SET\b
        | COPY\s+[\w".]+(\s*\([^)]*\))?\s+FROM\b
        | (CREATE|ALTER|DROP)\s+(UNLOGGED\s+|TEMP\s+)?(TABLE|SEQUENCE|INDEX)\b
        | (nextval|setval)\s*\(
    )""",
    re.IGNORECASE | re.VERBOSE,
)
"""What writes, wherever it stands in a statement: also in a CTE or behind another statement."""


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
        elif id(node) not in prose and (found := WRITING_SQL.search(_text(node))):
            yield node.lineno, " ".join(found.string[found.start() :].split())[:40]


def _text(node: ast.AST) -> str:
    """Return the text of a literal or an f-string; what an f-string inserts counts as one name.

    Empty for every other node.
    """
    if isinstance(node, ast.Constant) and isinstance(node.value, str):
        return node.value
    if isinstance(node, ast.JoinedStr):
        parts = (part.value if isinstance(part, ast.Constant) else "x" for part in node.values)
        return "".join(map(str, parts))
    return ""


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
        "sql.fetch('WITH x AS (INSERT INTO pod VALUES (1) RETURNING id) SELECT id FROM x')",
        "sql.fetch(f'WITH gate AS (SELECT {OPEN}) UPDATE {table} t SET phase = 1')",
        "sql.run('SELECT 1; DELETE FROM pod')",
        "sql.run('MERGE INTO pod USING x ON true WHEN MATCHED THEN DELETE')",
        "sql.run('TRUNCATE pod')",
        "sql.run('COPY pod (id) FROM STDIN')",
        "sql.run(\"SELECT setval('change_revision', 7)\")",
        "sql.run('DROP TABLE pod')",
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
        "sql.fetch('SELECT 1 FROM pod FOR UPDATE SKIP LOCKED')",
        "print('the update of the pod set nothing')",
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
    assert outside_of(package, ROOT) == []


def test_a_module_that_brings_django_along_is_found(tmp_path: Path) -> None:
    inner = tmp_path / "planted" / "deep"
    inner.mkdir(parents=True)
    (tmp_path / "planted" / "__init__.py").write_text("")
    (inner / "__init__.py").write_text("")
    (inner / "late.py").write_text("import psycopg\nfrom django.db import models\n")
    assert outside_of("planted", tmp_path) == ["django", "psycopg"]


def outside_of(package: str, place: Path) -> list[str]:
    """Import every module of a package in a fresh interpreter; return what came along."""
    code = (
        "import importlib, pkgutil, sys\n"
        "package = importlib.import_module(sys.argv[1])\n"
        "for found in pkgutil.walk_packages(package.__path__, package.__name__ + '.'):\n"
        "    importlib.import_module(found.name)\n"
        "outside = {'django', 'rest_framework', 'celery', 'psycopg', 'redis'}\n"
        "print(*sorted(outside & {name.partition('.')[0] for name in sys.modules}))\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code, package], cwd=place, capture_output=True, text=True, check=True
    )
    return done.stdout.split()


PLANTED = {
    "clusterstate/objects/planted.py": "import clusterstate.models\nimport scheduling.tasks\n",
    "scheduling/framework/planted.py": "import scheduling.worker.scheduler\n",
    "scheduling/engine/planted.py": "import django\nimport clusterstate.database.sql\n",
    "scheduling/simulation/planted.py": "import clusterstate.queries.objects\n",
    "scheduling/answers/planted.py": (
        "import scheduling.worker.binder, clusterstate.local, clusterstate.actions\n"
    ),
    "scheduling/controllers/planted.py": "import scheduling.controllers.manager\n",
    "scheduling/controllers/endpoints/planted.py": "",
    "scheduling/controllers/evictions/planted.py": "",
    "scheduling/controllers/workloads/planted.py": "",
    "scheduling/controllers/volumes/planted.py": "",
    "scheduling/worker/planted.py": "import scheduling.worker.scheduler\n",
    "scheduling/scenarios/planted.py": "",
    "scheduling/packing/planted.py": "",
    "scheduling/plugins/shipped/planted.py": "import scheduling.engine.reference.cycle\n",
    "scheduling/plugins/planted.py": "import scheduling.plugins.node_name\n",
    "stowage/planted.py": "import scheduling.worker.scheduler\n",
    "api/console/live/planted.py": "import api.console.page.layout\n",
    "api/planted.py": "import clusterstate.models, scheduling.worker.binder, api.planted_too\n",
    "api/planted_too.py": (
        "from typing import TYPE_CHECKING\nif TYPE_CHECKING:\n    import api.planted\n"
    ),
}
"""Modules that break every import contract at least once."""


def test_every_import_contract_finds_a_planted_violation(tmp_path: Path) -> None:
    for package in PACKAGES:
        shutil.copytree(
            ROOT / package, tmp_path / package, ignore=shutil.ignore_patterns("__pycache__")
        )
    shutil.copy(ROOT / "pyproject.toml", tmp_path)
    for name, text in PLANTED.items():
        (tmp_path / name).write_text(text)
    code = (
        "from importlinter.cli import lint_imports_command\n"
        "lint_imports_command(['--no-cache'], standalone_mode=False)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True, check=False,
        env={"PATH": os.environ["PATH"], "PYTHONPATH": str(tmp_path), "COLUMNS": "200"},
    )  # fmt: skip
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    contracts = settings["tool"]["importlinter"]["contracts"]
    unseen = [one["name"] for one in contracts if f"{one['name']} BROKEN" not in done.stdout]
    assert unseen == [], done.stdout + done.stderr


def key_literals(text: str) -> list[str]:
    """Return the literals that look like a tag of advisory locks."""
    return re.findall(r"0x535[789]\b", text, re.IGNORECASE)


def test_advisory_locks_have_their_keys_in_one_module() -> None:
    places = [path for path in sources() if key_literals(path.read_text())]
    assert [str(path.relative_to(ROOT)) for path in places] == ["clusterstate/database/locks.py"]
    assert key_literals("LOCK = (0x5358 << 48) + 3")  # planted


def test_no_two_advisory_locks_share_a_key() -> None:
    """Whoever takes a lock that means something else waits for a stranger, or lets one in."""
    keys = [
        value
        for name, value in vars(locks).items()
        if name.isupper() and isinstance(value, int) and not name.endswith("TAG")
    ]
    keys += [locks.cycle(shard) for shard in range(3)]
    keys += [locks.binding_cycle(pod_id) for pod_id in (1, 2**40)]
    assert len(keys) > 17
    assert len(set(keys)) == len(keys)
    assert {key >> 48 for key in keys} <= {locks.LAST_TAG, locks.LAST_TAG - 1}
    assert max(keys) < 2**63


def test_what_a_scheduler_holds_and_reports_under_has_its_number() -> None:
    """Two schedulers would otherwise wake, count or lock each other out."""
    named = (shards.loop, shards.standby, shards.channel, shards.queue, locks.cycle)
    for name in named:
        assert len({name(shard) for shard in range(3)}) == 3, name
    assert shards.holder(1, "a") != shards.holder(2, "a")
    # During an upgrade the first scheduler of both versions must be the same.
    assert (shards.loop(0), shards.channel(0)) == ("scheduler", "stowage:scheduler")
    assert locks.cycle(0) == (0x5358 << 48) + 3
    unnumbered = re.compile(r'stowage:scheduler|("queue":|"-Q",) "scheduling"')
    places = [path for path in sources() if unnumbered.search(path.read_text())]
    assert [str(path.relative_to(ROOT)) for path in places] == ["clusterstate/processes/shards.py"]


def test_what_the_web_server_imports_first_needs_no_models() -> None:
    """uvicorn imports the protocol and the loop before the application, which sets Django up."""
    settings = {"DJANGO_SETTINGS_MODULE": "clusterstate.settings"}
    subprocess.run(
        [sys.executable, "-c", "import api.server.protocol"],
        cwd=ROOT, env={**os.environ, **settings}, check=True, timeout=120,
    )  # fmt: skip


def missing_from_maps(root: Path) -> dict[str, set[str]]:
    """Return the modules that the docstring of their package does not name, by package."""
    missing: dict[str, set[str]] = {}
    for package in PACKAGES:
        for init in sorted((root / package).rglob("__init__.py")):
            docstring = ast.get_docstring(ast.parse(init.read_text()), clean=True) or ""
            modules = {path.stem for path in init.parent.glob("*.py")} - {"__init__"}
            modules |= {path.parent.name for path in init.parent.glob("*/__init__.py")}
            if left := modules - set(re.findall(r"[\w-]+", docstring)):
                missing[init.parent.relative_to(root).as_posix()] = left
    return missing


def test_the_map_of_a_package_has_all_of_its_modules():
    assert missing_from_maps(ROOT) == {}


def test_a_module_that_a_map_leaves_out_is_found(tmp_path: Path):
    package = tmp_path / "api"
    package.mkdir()
    (package / "__init__.py").write_text(
        '"""A room.\n\n::\n\n    one    first\n    two    next\n"""\n'
    )
    for name in ("one", "two", "planted"):
        (package / f"{name}.py").touch()
    assert missing_from_maps(tmp_path) == {"api": {"planted"}}
    room = package / "chamber"
    room.mkdir()
    (room / "__init__.py").write_text('"""A room without a map; others are not named."""\n')
    for number in range(5):
        (room / f"module{number}.py").touch()
    assert missing_from_maps(tmp_path) == {
        "api": {"planted", "chamber"},
        "api/chamber": {f"module{number}" for number in range(5)},
    }
