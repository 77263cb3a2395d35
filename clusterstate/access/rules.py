"""Rules of roles, and whether they allow a request or cover other rules.

Rules: pkg/apis/rbac/v1/evaluation_helpers.go, pkg/registry/rbac/validation/policy_comparator.go,
v1.36.
"""

from collections.abc import Iterable, Iterator
from itertools import product
from typing import Any, Final

import msgspec

ALL: Final = "*"


class Attributes(msgspec.Struct, frozen=True):
    """The attributes of a request on which authorization depends.

    ``fields``: the field selector of a list or watch. ``path`` is set if the request is for no
    resource.
    """

    verb: str
    group: str = ""
    resource: str = ""
    subresource: str = ""
    namespace: str = ""
    name: str = ""
    path: str = ""
    fields: str = ""


class Rule(msgspec.Struct, frozen=True):
    """A PolicyRule: verbs on resources (of those ``names`` only, if there are any) or on paths."""

    verbs: tuple[str, ...]
    groups: tuple[str, ...] = ()
    resources: tuple[str, ...] = ()
    names: tuple[str, ...] = ()
    urls: tuple[str, ...] = ()

    def reaches(self, wants: Attributes) -> bool:
        """Return whether the rule allows ``wants``, at least for the object names in the rule."""
        if ALL not in self.verbs and wants.verb not in self.verbs:
            return False
        if wants.path:
            return any(_matches_path(url, wants.path) for url in self.urls)
        if ALL not in self.groups and wants.group not in self.groups:
            return False
        return _has_resource(self.resources, wants.resource, wants.subresource)

    def manifest(self) -> dict[str, Any]:
        """Return the rule as an RBAC manifest has it."""
        named = (
            ("verbs", self.verbs),
            ("apiGroups", self.groups),
            ("resources", self.resources),
            ("resourceNames", self.names),
            ("nonResourceURLs", self.urls),
        )
        return {field: list(values) for field, values in named if values}

    def __str__(self) -> str:
        """Return the rule in the words of Kubernetes' messages: ``{APIGroups:[""], ...}``."""
        named = (
            ("APIGroups", self.groups),
            ("Resources", self.resources),
            ("ResourceNames", self.names),
            ("NonResourceURLs", self.urls),
            ("Verbs", self.verbs),
        )
        parts = []
        for title, values in named:
            if values:
                quoted = " ".join(f'"{value}"' for value in values)
                parts.append(f"{title}:[{quoted}]")
        return "{" + ", ".join(parts) + "}"


def rules_of(manifests: Iterable[Any] | None) -> tuple[Rule, ...]:
    """Return the rules of a role's manifest."""
    return tuple(
        Rule(
            verbs=tuple(one.get("verbs") or ()),
            groups=tuple(one.get("apiGroups") or ()),
            resources=tuple(one.get("resources") or ()),
            names=tuple(one.get("resourceNames") or ()),
            urls=tuple(one.get("nonResourceURLs") or ()),
        )
        for one in manifests or ()
    )


def _has_resource(resources: tuple[str, ...], resource: str, subresource: str) -> bool:
    if ALL in resources:
        return True
    if not subresource:
        return resource in resources
    return f"{resource}/{subresource}" in resources or f"*/{subresource}" in resources


def _matches_path(url: str, path: str) -> bool:
    if url in (ALL, path):
        return True
    return url.endswith(ALL) and path.startswith(url.rstrip(ALL))


def uncovered(rules: Iterable[Rule], held: Iterable[Rule]) -> list[Rule]:
    """Return the rules, split into single permissions, that no rule in ``held`` covers."""
    owned = tuple(held)
    return [
        part
        for rule in rules
        for part in _parts(rule)
        if not any(_covers(one, part) for one in owned)
    ]


def _parts(rule: Rule) -> Iterator[Rule]:
    """Yield the rule as rules with one verb on one resource or path each."""
    for verb, url in product(rule.verbs, rule.urls):
        yield Rule(verbs=(verb,), urls=(url,))
    for group, resource, verb in product(rule.groups, rule.resources, rule.verbs):
        if not rule.names:
            yield Rule(verbs=(verb,), groups=(group,), resources=(resource,))
        for name in rule.names:
            yield Rule(verbs=(verb,), groups=(group,), resources=(resource,), names=(name,))


def _covers(rule: Rule, part: Rule) -> bool:
    if ALL not in rule.verbs and part.verbs[0] not in rule.verbs:
        return False
    if part.urls:
        return any(_matches_path(url, part.urls[0]) for url in rule.urls)
    if ALL not in rule.groups and part.groups[0] not in rule.groups:
        return False
    resource, _, subresource = part.resources[0].partition("/")
    if not _has_resource(rule.resources, resource, subresource):
        return False
    return not rule.names or (bool(part.names) and part.names[0] in rule.names)
