"""What is remembered of texts of clients stays small, however long these are."""

import ast
from collections.abc import Iterator

import pytest

from clusterstate.objects.values.remembered import remembered
from tests.live import ROOT

OURS = {
    "_insert_statement": "names of kinds", "_lock_statements": "names of kinds, columns",
    "_lock_many_statement": "names of kinds, columns", "_update_statement": "names of kinds",
    "_update_many_statement": "names of kinds", "_renew_statement": "names of kinds",
    "_delete_statement": "names of kinds", "_count_statement": "names of kinds",
    "_get_statement": "tables", "_present": "names of kinds", "_plain": "names of kinds",
    "_fields": "names of types", "_framework": "names of profiles", "_of_kind": "names of kinds",
    "_by_tag": "names of types", "_by_name": "names of types", "page": "what OpenAPI describes",
    "_body": "what OpenAPI describes", "_etag": "two documents", "_redis_client": "a setting",
    "compile_selector": "selectors of devices, of 10 KiB at most by validation",
    "_known_object": "specs and statuses, of 8 KiB at most",
    "_like": "specs of pods, of 8 KiB at most",
    "_known_item": "items of lists, of 2 KiB at most",
    "_pair": "headers of answers, a few hundred", "_true_since": "numbers that are counted here",
}  # fmt: skip
"""Functions whose texts no client makes up."""


def _is_cache(node: ast.AST) -> bool:
    called = node.func if isinstance(node, ast.Call) else node
    return isinstance(called, ast.Name) and called.id in ("lru_cache", "cache")


def cached() -> Iterator[tuple[str, ast.FunctionDef]]:
    for package in ("api", "clusterstate", "scheduling"):
        for path in (ROOT / package).rglob("*.py"):
            text = path.read_text()
            for node in ast.walk(ast.parse(text)) if "cache" in text else ():
                if isinstance(node, ast.FunctionDef) and any(map(_is_cache, node.decorator_list)):
                    yield str(path.relative_to(ROOT)), node


def takes_text(function: ast.FunctionDef) -> bool:
    arguments = [*function.args.args, *function.args.kwonlyargs]
    written = [ast.unparse(one.annotation) for one in arguments if one.annotation is not None]
    return any(word in text for text in written for word in ("str", "bytes", "Any", "Text"))


def test_what_is_kept_by_text_is_kept_of_short_texts_alone():
    wrong = [
        f"{path}: {function.name}"
        for path, function in cached()
        if takes_text(function) and function.name not in OURS
    ]
    assert not wrong


def test_the_exceptions_are_there():
    assert OURS.keys() <= {function.name for _, function in cached()}


def test_a_short_text_is_asked_for_once_and_a_long_one_each_time():
    asked = []

    @remembered(2, longest=4)
    def length(text):
        asked.append(text)
        return len(text)

    for text in ("abc", "abc", "abcde", "abcde", b"ab", b"ab"):
        assert length(text) == len(text)
    assert asked == ["abc", "abcde", "abcde", b"ab"]
    assert length("x") == 1
    assert length("abc") == 3
    assert asked[4:] == ["x", "abc"]  # two are kept


def test_numbers_and_failures_are_not_remembered():
    asked = []

    @remembered(8)
    def read(value):
        asked.append(value)
        return int(value)

    assert [read(1), read(True), read(1)] == [1, 1, 1]
    for _ in range(2):
        with pytest.raises(ValueError, match="invalid literal"):
            read("x")
    assert asked == [1, True, 1, "x", "x"]
