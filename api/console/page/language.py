"""The query language of lists of nodes: the text of the search box.

Terms are separated by spaces, and a node must match all. A term after ``-`` must not match::

    web                      part of the name
    zone=a  zone!=a  gpu=*   a label; of a key with a slash, the part after it is enough
    taint:dedicated          a taint's key; taint:dedicated=gpu:NoSchedule in full; taint:* any
    cpu>80%  pods<10  memory>=64Gi  free.cpu>4
                             requested share, requested amount, or free amount, of any resource
    is:cordoned              ready notready cordoned tainted leaving terminating full empty
    condition:MemoryPressure a condition that is True
"""

import re
from collections.abc import Callable, Iterable
from typing import Final

from clusterstate.objects.values import quantity
from clusterstate.queries.nodes.fleet import FleetNode

Test = Callable[[FleetNode], bool]
_COMPARES: Final = re.compile(r"(free\.)?([A-Za-z0-9./_-]+?)(>=|<=|>|<)(.+)")
_LABEL: Final = re.compile(r"([^=!<>]+)(!?=)(.*)")
_STATES: Final[dict[str, Test]] = {
    "ready": lambda node: node.ready == "True",
    "notready": lambda node: node.ready != "True",
    "cordoned": lambda node: node.cordoned,
    "tainted": lambda node: bool(node.taints),
    "leaving": lambda node: node.leaving > 0,
    "terminating": lambda node: node.terminating,
    "full": lambda node: fullness(node) >= 0.95,
    "empty": lambda node: not node.requested.get("pods"),
}
_SHORT: Final = {"mem": "memory", "disk": "ephemeral-storage", "ephemeral": "ephemeral-storage"}


class QueryError(ValueError):
    """A term is invalid; the message names it and valid ones."""


def fullness(node: FleetNode) -> float:
    """Return the largest requested share of any resource of the node."""
    return max((node.share(resource) for resource in node.offered), default=0.0)


def parse(text: str) -> list[Test]:
    """Return the tests of a query, all of which a node must pass.

    Raises:
        QueryError: a term is invalid.
    """
    return [_term(term) for term in text.split()]


def matching(nodes: Iterable[FleetNode], text: str) -> list[FleetNode]:
    """Return the nodes that match a query, in their order.

    Raises:
        QueryError: a term is invalid.
    """
    tests = parse(text)
    return [node for node in nodes if all(test(node) for test in tests)] if tests else list(nodes)


def _term(term: str) -> Test:
    bare = term.lstrip("-")
    if bare and bare != term:  # however many: a loop of its own for each would exhaust the stack
        inner = _term(bare)
        return inner if (len(term) - len(bare)) % 2 == 0 else lambda node: not inner(node)
    head, colon, rest = term.partition(":")
    if colon and head == "is":
        if rest not in _STATES:
            raise QueryError(f"{term}: after is: comes one of {', '.join(_STATES)}")
        return _STATES[rest]
    if colon and head == "taint":
        return _tainted(rest)
    if colon and head == "condition":
        return lambda node: rest in node.conditions
    if found := _COMPARES.fullmatch(term):
        return _compared(term, *found.groups())
    if found := _LABEL.fullmatch(term):
        return _labelled(*found.groups())
    part = term.casefold()
    return lambda node: part in node.name.casefold()


def _tainted(text: str) -> Test:
    if text in ("", "*"):
        return lambda node: bool(node.taints)
    pair, _, effect = text.partition(":")
    key, has_value, value = pair.partition("=")
    return lambda node: any(
        one[0] == key and (not has_value or one[1] == value) and (not effect or one[2] == effect)
        for one in node.taints
    )


def label_of(node: FleetNode, key: str) -> str | None:
    """Return a label by its key, or by the part of its key after the slash."""
    found = node.labels.get(key)
    if found is None and "/" not in key:
        ending = f"/{key}"
        found = next((value for name, value in node.labels.items() if name.endswith(ending)), None)
    return found


def _labelled(key: str, sign: str, value: str) -> Test:
    if sign == "!=":
        return lambda node: label_of(node, key) != value
    if value == "*":
        return lambda node: label_of(node, key) is not None
    return lambda node: label_of(node, key) == value


_SIGNS: Final[dict[str, Callable[[float, float], bool]]] = {
    ">": lambda one, other: one > other,
    ">=": lambda one, other: one >= other,
    "<": lambda one, other: one < other,
    "<=": lambda one, other: one <= other,
}


def _compared(term: str, free: str | None, name: str, sign: str, bound: str) -> Test:
    resource = _SHORT.get(name, name)
    holds = _SIGNS[sign]
    if bound.endswith("%"):
        try:
            limit = float(bound[:-1]) / 100
        except ValueError:
            raise QueryError(f"{term}: {bound} is no percentage") from None
        if free:
            return lambda node: holds(1 - node.share(_resource(node, resource)), limit)
        return lambda node: holds(node.share(_resource(node, resource)), limit)
    try:
        number = float(quantity.milli_value(bound))
    except quantity.QuantityError:
        raise QueryError(
            f"{term}: {bound!r} is not a quantity; write it like 4, 500m, 64Gi or 80%"
        ) from None
    if resource != "cpu":
        number /= 1000

    def test(node: FleetNode) -> bool:
        name_ = _resource(node, resource)
        requested = node.requested.get(name_, 0)
        return holds(node.offered.get(name_, 0) - requested if free else requested, number)

    return test


def _resource(node: FleetNode, name: str) -> str:
    """Return a resource by its name, or by the part of its name after the slash (``gpu``)."""
    if name in node.offered or "/" in name:
        return name
    ending = f"/{name}"
    return next((one for one in node.offered if one.endswith(ending)), name)
