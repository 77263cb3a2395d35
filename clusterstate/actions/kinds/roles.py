"""Writing roles and bindings: users cannot give away rights that they do not have.

The writer of a role must hold its rules, or have the verb ``escalate`` on it; the writer of a
binding must hold the rules of the role, or have the verb ``bind`` on the role. Rules:
pkg/registry/rbac/{role,clusterrole,rolebinding,clusterrolebinding}/policybased/storage.go,
pkg/registry/rbac/escalation_check.go, v1.36.
"""

from collections.abc import Iterable, Mapping
from typing import Final

from clusterstate.access import authorizer
from clusterstate.access.rules import Attributes, Rule, rules_of, uncovered
from clusterstate.actions.writing import Writer
from clusterstate.admission.request import NOBODY, User
from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.values.errors import Forbidden, NotFound
from clusterstate.objects.values.meta import Manifest

GROUP: Final = "rbac.authorization.k8s.io"
_PLURALS: Final = {"Role": "roles", "ClusterRole": "clusterroles"}
_EVERYTHING: Final = (
    Rule(verbs=("*",), groups=("*",), resources=("*",)),
    Rule(verbs=("*",), urls=("*",)),
)
_UNIMPORTANT: Final = frozenset(
    {"finalizers", "managedFields", "ownerReferences", "resourceVersion", "generation"}
)


class RoleWriter(Writer):
    """Roles, of a namespace and of the cluster."""

    def permit(
        self, kind: Kind, new: Manifest, old: Manifest | None, user: User, subresource: str = ""
    ) -> None:
        """Raise Forbidden where a user would grant rights that they do not have."""
        if _is_open(new, old, user):
            return
        metadata = new["metadata"]
        namespace, name = metadata.get("namespace") or "", metadata["name"]
        if _has_verb(user, "escalate", kind.plural, namespace, name):
            return
        _require_held(kind, name, namespace, rules_of(new.get("rules")), user)
        if new.get("aggregationRule") is not None and uncovered(
            _EVERYTHING, authorizer.rules_for(user, "")
        ):
            raise _forbidden(
                kind, name, "must have cluster-admin privileges to use an aggregationRule"
            )


class BindingWriter(Writer):
    """Bindings of roles, of a namespace and of the cluster."""

    def permit(
        self, kind: Kind, new: Manifest, old: Manifest | None, user: User, subresource: str = ""
    ) -> None:
        """Raise Forbidden where a user would grant rights that they do not have."""
        if _is_open(new, old, user):
            return
        metadata, role = new["metadata"], new["roleRef"]
        namespace, name = metadata.get("namespace") or "", metadata["name"]
        plural = _PLURALS[role["kind"]]
        if _has_verb(user, "bind", plural, namespace, role["name"]):
            return
        rules = authorizer.rules_of_role(role["kind"], namespace, role["name"])
        if rules is None:
            raise NotFound(
                f'{plural}.{GROUP} "{role["name"]}" not found',
                {"group": GROUP, "kind": plural, "name": role["name"]},
            )
        _require_held(kind, name, namespace, rules, user)


def _is_open(new: Manifest, old: Manifest | None, user: User) -> bool:
    """Return whether a write needs no check: the service's own, or one that grants nothing new."""
    authorizer.note_write()
    if user == NOBODY or authorizer.MASTERS in user.groups:
        return True
    return old is not None and _substance(new) == _substance(old)


def _substance(manifest: Manifest) -> Manifest:
    """Return an object without metadata that does not affect rights."""
    metadata: Mapping[str, object] = manifest["metadata"]
    substantial = {key: value for key, value in metadata.items() if key not in _UNIMPORTANT}
    return {**manifest, "metadata": substantial}


def _has_verb(user: User, verb: str, plural: str, namespace: str, name: str) -> bool:
    wants = Attributes(verb, GROUP, plural, namespace=namespace, name=name)
    return authorizer.decide(user, wants).allowed


def _require_held(
    kind: Kind, name: str, namespace: str, granted: Iterable[Rule], user: User
) -> None:
    missing = uncovered(granted, authorizer.rules_for(user, namespace))
    if missing:
        groups = " ".join(f'"{group}"' for group in user.groups)
        rules = "\n".join(sorted(str(rule) for rule in missing))
        raise _forbidden(
            kind,
            name,
            f'user "{user.name}" (groups=[{groups}]) is attempting to grant RBAC permissions not'
            f" currently held:\n{rules}",
        )


def _forbidden(kind: Kind, name: str, reason: str) -> Forbidden:
    details = {"group": kind.group, "kind": kind.plural, "name": name}
    return Forbidden(f'{kind.resource} "{name}" is forbidden: {reason}', details)
