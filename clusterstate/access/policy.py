"""All roles and bindings of a cluster at one moment, and what they allow each user.

Pure: made of manifests, it queries nothing. Rules: plugin/pkg/auth/authorizer/rbac/rbac.go,
pkg/registry/rbac/validation/rule.go, pkg/controller/clusterroleaggregation, v1.36.
"""

import hashlib
from collections.abc import Iterable, Mapping
from functools import cached_property
from typing import Any, Final

import msgspec

from clusterstate.access.rules import Attributes, Rule, rules_of
from clusterstate.objects.values.labels import (
    NOTHING,
    Selector,
    SelectorError,
    selector_from_label_selector,
)
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.pod import LabelSelector

ACCOUNT_PREFIX: Final = "system:serviceaccount:"
_MOST_REMEMBERED: Final = 4096
"""The most subjects, and answers to one subject, in the cache; then it is emptied."""


class AccessDecision(msgspec.Struct, frozen=True):
    """Whether a request is allowed, and by which binding; or why it could not be judged."""

    allowed: bool
    reason: str = ""


DENIED: Final = AccessDecision(allowed=False)


class Grant(msgspec.Struct, frozen=True):
    """A role bound to a subject: in one namespace, or (``namespace`` empty) everywhere."""

    namespace: str
    rules: tuple[Rule, ...]
    reason: str
    problem: str = ""


class Holder(msgspec.Struct, frozen=True):
    """A subject with a right, and its binding; ``names``: for these objects only, if not empty.

    ``kind`` is User or Group; a service account is a User.
    """

    kind: str
    name: str
    reason: str
    names: tuple[str, ...]


class _Answer(msgspec.Struct, frozen=True):
    """The decision for objects of any name, and decisions that hold for certain names only."""

    always: AccessDecision
    named: Mapping[str, AccessDecision]


class _Subject:
    """The grants of one user with certain groups, and a cache of decisions by them."""

    def __init__(self, grants: tuple[Grant, ...]) -> None:
        self.grants = grants
        self.answers: dict[tuple[str, str, str, str, str, str], _Answer] = {}

    @cached_property
    def rights(self) -> str:
        grants = {repr((one.namespace, one.rules, one.problem)) for one in self.grants}
        return hashlib.sha256("\n".join(sorted(grants)).encode()).hexdigest()

    def answer(self, wants: Attributes) -> _Answer:
        named: dict[str, AccessDecision] = {}
        problems = []
        for grant in self.grants:
            if grant.namespace and grant.namespace != wants.namespace:
                continue
            if grant.problem:
                problems.append(grant.problem)
            for rule in grant.rules:
                if not rule.reaches(wants):
                    continue
                decision = AccessDecision(allowed=True, reason=grant.reason)
                if not rule.names:
                    return _Answer(decision, {})
                for name in rule.names:
                    named.setdefault(name, decision)
        reason = f"RBAC: {'; '.join(dict.fromkeys(problems))}" if problems else ""
        return _Answer(AccessDecision(allowed=False, reason=reason), named)


class Policy:
    """The roles and bindings of a cluster. Safe for threads; never changed once made."""

    def __init__(self, objects: Mapping[str, Iterable[Manifest]]) -> None:
        """Take the manifests of Role, ClusterRole, RoleBinding and ClusterRoleBinding."""
        self._roles = {
            (one["metadata"]["namespace"], one["metadata"]["name"]): rules_of(one.get("rules"))
            for one in objects.get("Role", ())
        }
        cluster_roles = list(objects.get("ClusterRole", ()))
        self._cluster_roles = _aggregated(cluster_roles)
        self.aggregated: Mapping[str, tuple[Rule, ...]] = {
            name: self._cluster_roles[name]
            for one in cluster_roles
            if one.get("aggregationRule") is not None and (name := one["metadata"]["name"])
        }
        """The rules of aggregating ClusterRoles, by name."""
        self._grants: dict[tuple[str, str], list[Grant]] = {}
        # Bindings of the cluster first, as they are looked at first.
        for kind in ("ClusterRoleBinding", "RoleBinding"):
            for binding in objects.get(kind, ()):
                self._add(kind, binding)
        self._subjects: dict[tuple[str, tuple[str, ...]], _Subject] = {}

    def _add(self, kind: str, binding: Manifest) -> None:
        metadata, role = binding["metadata"], binding.get("roleRef") or {}
        namespace = metadata.get("namespace") or ""
        role_kind, role_name = role.get("kind") or "", role.get("name") or ""
        rules = self.rules_of_role(role_kind, namespace, role_name)
        problem = ""
        if rules is None:
            problem = f'{role_kind.lower()}.rbac.authorization.k8s.io "{role_name}" not found'
        name = f"{metadata['name']}/{namespace}" if namespace else metadata["name"]
        for subject in binding.get("subjects") or ():
            who = subject_of(subject, namespace)
            if who is None:
                continue
            shown = subject.get("name") or ""
            if subject.get("kind") == "ServiceAccount":
                shown = f"{shown}/{subject.get('namespace') or namespace}"
            reason = (
                f'RBAC: allowed by {kind} "{name}" of {role_kind} "{role_name}" to'
                f' {subject.get("kind")} "{shown}"'
            )
            self._grants.setdefault(who, []).append(Grant(namespace, rules or (), reason, problem))

    def rules_of_role(self, kind: str, namespace: str, name: str) -> tuple[Rule, ...] | None:
        """Return a role's rules, with those that it aggregates; None if there is no such role."""
        if kind == "ClusterRole":
            return self._cluster_roles.get(name)
        return self._roles.get((namespace, name))

    def holders(self, wants: Attributes) -> list[Holder]:
        """Return the subjects of all bindings that allow ``wants``, by kind and name.

        Users that need no binding are left out: ``system:masters``, and nodes.
        """
        found: dict[tuple[str, str, str], set[str] | None] = {}
        for (kind, name), grants in self._grants.items():
            for grant in grants:
                if grant.namespace and grant.namespace != wants.namespace:
                    continue
                for rule in grant.rules:
                    if not rule.reaches(wants):
                        continue
                    if wants.name and rule.names and wants.name not in rule.names:
                        continue
                    key = (kind, name, grant.reason)
                    object_names = found.setdefault(key, set())
                    if not rule.names:
                        found[key] = None
                    elif object_names is not None:
                        object_names.update(rule.names)
        return [
            Holder(kind, name, reason, tuple(sorted(names or ())))
            for (kind, name, reason), names in sorted(found.items(), key=lambda one: one[0])
        ]

    def decide(self, user: str, groups: tuple[str, ...], wants: Attributes) -> AccessDecision:
        """Return whether a binding allows ``wants`` to a user with these groups."""
        subject = self._subject(user, groups)
        key = (
            wants.verb, wants.group, wants.resource, wants.subresource, wants.namespace, wants.path
        )  # fmt: skip
        answer = subject.answers.get(key)
        if answer is None:
            answer = subject.answer(wants)
            if len(subject.answers) >= _MOST_REMEMBERED:
                subject.answers.clear()
            subject.answers[key] = answer
        if answer.always.allowed or not answer.named:
            return answer.always
        return answer.named.get(wants.name, answer.always)

    def rights(self, user: str, groups: tuple[str, ...]) -> str:
        """Return a text that is equal for all users to whom bindings give the same rights."""
        return self._subject(user, groups).rights

    def _subject(self, user: str, groups: tuple[str, ...]) -> _Subject:
        found = self._subjects.get((user, groups))
        if found is None:
            grants = list(self._grants.get(("User", user), ()))
            for group in dict.fromkeys(groups):
                grants += self._grants.get(("Group", group), ())
            grants.sort(key=lambda grant: bool(grant.namespace))
            found = _Subject(tuple(grants))
            if len(self._subjects) >= _MOST_REMEMBERED:
                self._subjects.clear()
            self._subjects[user, groups] = found
        return found

    def namespaces(self, user: str, groups: tuple[str, ...], wants: Attributes) -> list[str]:
        """Return the namespaces whose RoleBindings allow ``wants`` for objects of any name, sorted.

        ClusterRoleBindings are left out; ``decide`` answers for all namespaces.
        """
        return sorted(
            {
                grant.namespace
                for grant in self._subject(user, groups).grants
                if grant.namespace
                and any(rule.reaches(wants) and not rule.names for rule in grant.rules)
            }
        )

    def rules_for(self, user: str, groups: tuple[str, ...], namespace: str) -> list[Rule]:
        """Return the rules that bindings give a user everywhere and, if given, in a namespace."""
        return [
            rule
            for grant in self._subject(user, groups).grants
            if not grant.namespace or grant.namespace == namespace
            for rule in grant.rules
        ]


def subject_of(subject: Mapping[str, Any], namespace: str) -> tuple[str, str] | None:
    """Return a binding's subject as ("User", name) or ("Group", name), ``None`` if invalid."""
    kind, name = subject.get("kind"), subject.get("name") or ""
    if kind == "ServiceAccount":
        place = subject.get("namespace") or namespace
        return ("User", f"{ACCOUNT_PREFIX}{place}:{name}") if place else None
    return (str(kind), name) if kind in ("User", "Group") else None


def _selector(manifest: Any) -> Selector:
    """Return a label selector, one that matches nothing if the manifest is invalid."""
    try:
        return selector_from_label_selector(msgspec.convert(manifest, LabelSelector))
    except (SelectorError, msgspec.ValidationError):
        return NOTHING


def _aggregated(roles: Iterable[Manifest]) -> dict[str, tuple[Rule, ...]]:
    """Return the rules of all ClusterRoles by name. One that aggregates has no rules of its own.

    Aggregated roles may aggregate others: ``admin`` has ``edit``, and ``edit`` has ``view``.
    """
    by_name = {one["metadata"]["name"]: one for one in roles}
    chosen: dict[str, list[str]] = {}
    for name, role in by_name.items():
        aggregation = role.get("aggregationRule")
        if aggregation is None:
            continue
        selectors = [_selector(one) for one in aggregation.get("clusterRoleSelectors") or ()]
        chosen[name] = sorted(
            other
            for other, found in by_name.items()
            if other != name
            and any(one.matches(found["metadata"].get("labels") or {}) for one in selectors)
        )
    result = {}
    for name in by_name:
        seen: dict[str, None] = {}
        waiting = [name]
        while waiting:
            one = waiting.pop()
            if one not in seen:
                seen[one] = None
                waiting += reversed(chosen.get(one, ()))
        rules = [
            rule
            for one in seen
            if one not in chosen
            for rule in rules_of(by_name[one].get("rules"))
        ]
        result[name] = tuple(dict.fromkeys(rules))
    return result
