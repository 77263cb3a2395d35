"""Creates the default roles and bindings, and restores missing parts of them.

In existing ones, missing rules, subjects and labels are added; what administrators added stays, and
an object whose annotation ``autoupdate`` is ``false`` is not touched. A binding to another role
than the default is replaced, since its role cannot change. Rule: pkg/registry/rbac/reconciliation,
v1.36.
"""

from collections.abc import Iterable
from datetime import datetime
from typing import Any

from django.db import transaction

from clusterstate.access import default_roles
from clusterstate.access.rules import rules_of, uncovered
from clusterstate.actions import objects
from clusterstate.objects.values.errors import NotFound
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.objects import decode_object
from clusterstate.queries.objects.lists import list_page


def reconcile(*, now: datetime) -> list[str]:
    """Create missing objects and complete existing ones; return the names of the created ones."""
    created: list[str] = []
    for kind, defaults in (
        ("ClusterRole", default_roles.cluster_roles()),
        ("ClusterRoleBinding", default_roles.cluster_role_bindings()),
        ("Role", default_roles.roles()),
        ("RoleBinding", default_roles.role_bindings()),
    ):
        created += _reconcile(kind, defaults, now)
    return created


def _reconcile(kind: str, defaults: list[Manifest], now: datetime) -> list[str]:
    present = {}
    for item in list_page(kind).items:
        found = decode_object(item)
        present[found["metadata"].get("namespace", ""), found["metadata"]["name"]] = found
    missing = []
    for manifest in defaults:
        metadata = manifest["metadata"]
        key = (metadata.get("namespace", ""), metadata["name"])
        if key not in present:
            missing.append((key[0], manifest))
        elif _lacks(present[key], manifest):
            _complete(kind, key, manifest, now)
    return objects.create_missing(kind, missing, now=now)


def _complete(kind: str, key: tuple[str, str], default: Manifest, now: datetime) -> None:
    """Add to a stored object the parts of the default that it lacks."""
    namespace, name = key
    try:
        with transaction.atomic():
            objects.update(
                kind, namespace, name, lambda current: _completed(current, default), now=now
            )
    except NotFound:
        objects.create_missing(kind, [(namespace, default)], now=now)
    except _OtherRole:
        with transaction.atomic():
            objects.delete(kind, namespace, name, now=now)
            objects.create(kind, namespace, default, now=now)


class _OtherRole(Exception):
    """A default binding refers to another role."""


def _lacks(found: Manifest, default: Manifest) -> bool:
    """Return whether a stored object has to be completed, and may be."""
    annotations = found["metadata"].get("annotations") or {}
    if annotations.get(default_roles.AUTO_UPDATE) == "false":
        return False
    try:
        return _completed(found, default) != found
    except _OtherRole:
        return True


def _completed(found: Manifest, default: Manifest) -> Manifest:
    """Return the stored object with the missing parts of the default.

    Raises:
        _OtherRole: it is a binding to another role.
    """
    result = {**found, "metadata": dict(found["metadata"])}
    for part in ("labels", "annotations"):
        present = found["metadata"].get(part) or {}
        result["metadata"][part] = {**present, **default["metadata"][part]}
    if "roleRef" in default:
        if found.get("roleRef") != default["roleRef"]:
            raise _OtherRole
        subjects = found.get("subjects") or []
        lacking = [one for one in default["subjects"] if one not in subjects]
        if lacking:
            result["subjects"] = [*subjects, *lacking]
        return result
    if "aggregationRule" in default:
        result["aggregationRule"] = _merged(found.get("aggregationRule"), default)
        return result
    lacking = uncovered(rules_of(default["rules"]), rules_of(found.get("rules")))
    if lacking:
        result["rules"] = [*(found.get("rules") or ()), *_manifests(lacking)]
    return result


def _merged(found: Any, default: Manifest) -> Manifest:
    selectors = list((found or {}).get("clusterRoleSelectors") or ())
    selectors += [
        one for one in default["aggregationRule"]["clusterRoleSelectors"] if one not in selectors
    ]
    return {"clusterRoleSelectors": selectors}


def _manifests(rules: Iterable[Any]) -> list[Manifest]:
    return [rule.manifest() for rule in rules]
