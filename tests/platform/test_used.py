"""What no code of the product uses is dead, even if a test calls it."""

import ast
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = ("api", "scheduling", "clusterstate", "stowage")

CALLED_BY_NOBODY_HERE = {
    "urlpatterns": "Django reads it",
    "app_name": "Django reads it",
    "handler403": "Django reads it",
    "handler400": "Django reads it",
    "handler404": "Django reads it",
    "handler500": "Django reads it",
    "check_plugin": "for authors of plugins, in docs/plugins.md",
    "__version__": "the package's version",
    "__all__": "Python reads it",
    "ClusterstateConfig": "Django finds it by its base",
    "SchedulingConfig": "Django finds it by its base",
    "process_exception": "Django calls it on a middleware",
    "get_full_name": "the admin's history asks its entries",
    "get_change_message": "the admin's history asks its entries",
    "verify_token": "the SDK of the Model Context Protocol calls it",
    "on_body": "the parser of HTTP answers calls it",
    "pods_to_activate": "plugins append to it (framework.CycleState)",
    "pending_plugins": "plugins ask a waiting pod (framework.WaitingPod)",
    "Command": "Django's management commands",
    "Meta": "Django's models and forms",
    "_const": "found by the name of a kind of expression (objects.cel.evaluation)",
    "_ident": "found by the name of a kind of expression (objects.cel.evaluation)",
    "allocated_state": "a rule of devices that recorded worlds are judged by",
    "bound_claims": "a rule of devices that recorded worlds are judged by",
    "binding_verdict": "a rule of devices that recorded worlds are judged by",
    "status_equal": "a rule of devices that recorded worlds are judged by",
    "patched_slices": "a rule of devices that recorded worlds are judged by",
    "pod_leaves": "a rule of devices that recorded worlds are judged by",
    "extended_on": "a rule of devices that recorded worlds are judged by",
    "DECLARED": "to name the modules is what imports them",
}
"""Names that somebody outside looks for, and who."""

CALLED_BY_PROGRAMS = ("stowage/client/", "stowage/library.py")
"""What programs of others import: nothing here has to call it."""

READ_BY_DJANGO = {"clusterstate/settings.py", "clusterstate/formats/en/formats.py"}
"""Modules of which Django reads all names."""

SILENT = {
    "ABC", "Enum", "Exception", "Generic", "IntEnum", "IntFlag", "NamedTuple", "Protocol",
    "RuntimeError", "Sequence", "StrEnum", "Struct", "TypedDict", "ValueError", "object",
}  # fmt: skip
"""Bases from outside that call no method by a name of their own, but for dunder methods."""


class Module(NamedTuple):
    """A module's tree, and all nodes of it: to walk through it takes as long as to parse it."""

    tree: ast.Module
    nodes: list[ast.AST]


def parsed(text: str) -> Module:
    tree = ast.parse(text)
    return Module(tree, list(ast.walk(tree)))


def used_names(modules: Iterable[Module]) -> Counter[str]:
    """Return how often modules use each name: read, called, passed, or named in a short string."""
    found: Counter[str] = Counter()
    for module in modules:
        prose = {id(node.value) for node in module.nodes if isinstance(node, ast.Expr)}
        for node in module.nodes:
            if isinstance(node, ast.Name) and isinstance(node.ctx, ast.Load):
                found[node.id] += 1
            elif isinstance(node, ast.Attribute):
                found[node.attr] += 1
            elif isinstance(node, ast.keyword) and node.arg:
                found[node.arg] += 1
            elif isinstance(node, ast.Constant) and isinstance(node.value, str):
                named = id(node) not in prose and len(node.value) < 200
                found.update(re.findall(r"\w+", node.value) if named else ())
    return found


def called_from_outside(modules: Iterable[Module]) -> set[str]:
    """Return the classes whose methods a framework calls: a base of theirs is not of this house."""
    bases: dict[str, set[str]] = {}
    for module in modules:
        for node in module.nodes:
            if isinstance(node, ast.ClassDef):
                names = bases.setdefault(node.name, set())
                for base in node.bases:
                    named = base.value if isinstance(base, ast.Subscript) else base
                    names.add(getattr(named, "attr", getattr(named, "id", "")))
    outside: set[str] = set()
    while True:
        more = {
            name
            for name, above in bases.items()
            if any(one in outside | {name} or one not in bases.keys() | SILENT for one in above)
        } - outside
        if not more:
            return outside
        outside |= more


def defined(module: Module, outside: set[str]) -> Iterator[tuple[int, str]]:
    """Yield line and name of what a module defines, but for what a framework or decorator calls."""
    called = {
        id(one)
        for node in module.nodes
        if isinstance(node, ast.ClassDef) and node.name in outside
        for one in node.body
    }
    for node in module.nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            registers = any(not is_plain(one) for one in node.decorator_list)
            if id(node) not in called and not registers and not node.name.startswith("__"):
                yield node.lineno, node.name
    for node in module.tree.body:
        targets = node.targets if isinstance(node, ast.Assign) else []
        if isinstance(node, ast.AnnAssign):
            targets = [node.target]
        for target in targets:
            if isinstance(target, ast.Name):
                yield node.lineno, target.id


def is_plain(decorator: ast.expr) -> bool:
    """Return whether a decorator leaves it to others to call what it decorates."""
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    name = getattr(called, "attr", getattr(called, "id", ""))
    return name in {
        "cache", "cached_property", "classmethod", "contextmanager", "inlined", "inner",
        "lru_cache", "outer", "property", "runtime_checkable", "staticmethod",
    }  # fmt: skip


def dead(modules: Mapping[str, Module], templates: str = "") -> list[str]:
    """Return what modules define and neither they nor the templates use."""
    names = used_names(modules.values())
    names.update(re.findall(r"\w+", templates))
    outside = called_from_outside(modules.values())
    return [
        f"{path}:{line} {name}"
        for path, module in modules.items()
        if path not in READ_BY_DJANGO and not path.startswith(CALLED_BY_PROGRAMS)
        for line, name in defined(module, outside)
        if not names[name] and name not in CALLED_BY_NOBODY_HERE
    ]


@pytest.fixture(scope="module")
def product() -> dict[str, Module]:
    paths = [path for package in PACKAGES for path in sorted((ROOT / package).rglob("*.py"))]
    return {
        str(path.relative_to(ROOT)): parsed(path.read_text())
        for path in (ROOT / "manage.py", *paths)
    }


def test_no_definition_is_used_by_tests_alone(product: dict[str, Module]) -> None:
    templates = [
        path.read_text() for name in PACKAGES for path in sorted((ROOT / name).rglob("*.html"))
    ]
    assert dead(product, "".join(templates)) == []


def test_what_stands_outside_is_still_there(product: dict[str, Module]) -> None:
    """Each name that is excused is defined somewhere, so that the list does not outlive it."""
    there = {name for module in product.values() for _, name in defined(module, set())}
    assert CALLED_BY_NOBODY_HERE.keys() - there == set()


def test_a_planted_definition_is_found() -> None:
    text = """
UNUSED = 1
def unused(): "unused is named here, and that is no use"
class Used:
    @property
    def idle(self): return 1
    def called(self): return 2
class Screen(admin.ModelAdmin):
    def get_queryset(self): ...
class Nested(Screen):
    def has_permission(self): ...
@register
def registered(): ...
Used().called()
"""
    found = dead({"api/planted.py": parsed(text)})
    assert [one.partition(" ")[2] for one in found] == ["unused", "Nested", "idle", "UNUSED"]
