"""The function that authorizes requests, and this process's cache of the roles and bindings.

The cached policy is current if the number of roles and bindings, and the sum of a hash of their
revisions, are as in the tables. A revision is never given twice, so every write changes one of the
two, in whatever order transactions commit.
"""

import threading
import time
from collections.abc import Collection
from decimal import Decimal
from typing import Any, Final

from django.db import connection, transaction

from clusterstate.access import nodes
from clusterstate.access.policy import DENIED, AccessDecision, Policy
from clusterstate.access.rules import Attributes, Rule
from clusterstate.admission.request import User
from clusterstate.change_log import changes
from clusterstate.database import sql
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.values import document
from clusterstate.objects.values.meta import Manifest
from clusterstate.processes import memory
from clusterstate.queries.nodes import node_references

MASTERS: Final = "system:masters"
"""The group that may do everything, independent of roles."""
AUTHENTICATED: Final = "system:authenticated"

FRESH_SECONDS: Final = 1.0
"""How long a policy is used before it is compared with the tables again."""

ROLE_KINDS: Final = ("Role", "ClusterRole", "RoleBinding", "ClusterRoleBinding")
_CODES: Final = [KINDS[name].code for name in ROLE_KINDS]
_NAMES: Final = dict(zip(_CODES, ROLE_KINDS, strict=True))

_ALLOWED: Final = AccessDecision(allowed=True)
_EVERYTHING: Final = (
    Rule(verbs=("*",), groups=("*",), resources=("*",)),
    Rule(verbs=("*",), urls=("*",)),
)

_Seen = tuple[int, Decimal]


class _Memory:
    """The cached policy, and until when (monotonic seconds) it is used without a query.

    ``uncommitted`` is the policy that a transaction read after it wrote roles, with the count and
    hash of the rows. If the transaction commits, the tables have the same count and hash.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.policy: Policy | None = None
        self.glance: _Seen = (0, Decimal(0))
        self.until = 0.0
        self.uncommitted: tuple[_Seen, Policy] | None = None


_memory = _Memory()


def decide(user: User, wants: Attributes, policy: Policy | None = None) -> AccessDecision:
    """Return whether a user may do what ``wants`` describes, and by which rule.

    Queries if the cached policy may be out of date, and for a node's agent, to find what its pods
    refer to. With a ``policy`` it queries nothing.
    """
    if MASTERS in user.groups:
        return _ALLOWED
    node = nodes.name_of(user.name, user.groups)
    if node and nodes.allows(node, wants):
        return _ALLOWED
    if (
        policy is None
        and depends_on_references(user, wants)
        and node_references.belongs(node, wants.resource, wants.namespace, wants.name)
    ):
        return _ALLOWED
    if not user.name:
        return DENIED
    return (policy or current()).decide(user.name, user.groups, wants)


def depends_on_references(user: User, wants: Attributes) -> bool:
    """Return whether a node's agent has a right only if one of its pods refers to the object.

    ``decide`` does not check such references if it is given a policy, since the check queries.
    """
    is_agent = bool(nodes.name_of(user.name, user.groups))
    return is_agent and nodes.asks_references(wants)


def reads_own_pods_only(user: User, namespace: str, name: str, verb: str = "get") -> bool:
    """Return whether a user may read this pod only if the pod is on the user's own node."""
    if MASTERS in user.groups or not nodes.name_of(user.name, user.groups):
        return False
    wants = Attributes(verb, resource="pods", namespace=namespace, name=name)
    return not current().decide(user.name, user.groups, wants).allowed


def rights(user: User) -> str:
    """Return a text that is equal for two users only if both may do the same.

    Queries when the cached policy must be compared with the tables.
    """
    if MASTERS in user.groups:
        return MASTERS
    if not user.name or nodes.name_of(user.name, user.groups):
        return f"as {user.name}"
    return current().rights(user.name, user.groups)


def rules_for(user: User, namespace: str) -> list[Rule]:
    """Return the rules that bindings give a user everywhere and, if given, in a namespace."""
    if MASTERS in user.groups:
        return list(_EVERYTHING)
    return _of_transaction().rules_for(user.name, user.groups, namespace)


def rules_of_role(kind: str, namespace: str, name: str) -> tuple[Rule, ...] | None:
    """Return the rules of a role as the open transaction sees it, ``None`` if there is no role."""
    return _of_transaction().rules_of_role(kind, namespace, name)


def fresh() -> Policy | None:
    """Return the cached policy, ``None`` if it must be compared with the tables. Never queries."""
    return _memory.policy if time.monotonic() < _memory.until else None


def current() -> Policy:
    """Return the policy, at most ``FRESH_SECONDS`` old and with all writes of this process.

    Queries when it has to be compared with the tables.
    """
    remembered = fresh()
    if remembered is not None:
        return remembered
    with _memory.lock:
        remembered = fresh()
        if remembered is not None:
            return remembered
        # Set first: a write that is committed while this reads sets it back to 0.
        _memory.until = time.monotonic() + FRESH_SECONDS
        try:
            glance = _glance()
            if _memory.policy is None or glance != _memory.glance:
                found = _memory.uncommitted
                if found is None or found[0] != glance:
                    found = _read()
                if _wrote_here():
                    _memory.until = 0.0
                    _memory.uncommitted = found
                    return found[1]
                _memory.glance, _memory.policy = found
                _memory.uncommitted = None
        except BaseException:
            _memory.until = 0.0
            raise
        return _memory.policy


def _of_transaction() -> Policy:
    """Return the policy, with the roles that the open transaction wrote; these are not cached."""
    return read() if _wrote_here() else current()


def _glance() -> _Seen:
    row = sql.fetch_one(
        "SELECT count(*), coalesce(sum(hashint8extended(revision, 0)), 0)"
        " FROM generic_object WHERE kind = ANY(%s)",
        (_CODES,),
    )
    assert row is not None
    return row[0], row[1]


def read() -> Policy:
    """Return the policy as the tables have it now, without caching it. Queries once."""
    return _read()[1]


def _read() -> tuple[_Seen, Policy]:
    """Return the number and hash of the roles and bindings, and the policy. Queries once."""
    found: dict[str, list[Manifest]] = {name: [] for name in ROLE_KINDS}
    rows = sql.fetch(
        "SELECT t.kind, d.text, t.revision, hashint8extended(t.revision, 0) FROM generic_object t"
        " JOIN document d ON d.id = t.document_id WHERE t.kind = ANY(%s) ORDER BY t.id",
        (_CODES,),
    )
    for code, text, revision, _ in rows:
        found[_NAMES[code]].append(document.decode(text, revision))
    return (len(rows), Decimal(sum(row[3] for row in rows))), Policy(found)


@memory.when_replaced
def forget() -> None:
    """Drop the cached policy, because the database was replaced."""
    with _memory.lock:
        _memory.policy, _memory.until, _memory.uncommitted = None, 0.0, None


def _committed(kinds: Collection[str] = (), **_: Any) -> None:
    if not frozenset(ROLE_KINDS).isdisjoint(kinds):
        _memory.until = 0.0


changes.committed.connect(_committed, dispatch_uid="clusterstate.access")


def note_write() -> None:
    """Note that the open transaction writes a role or binding; it may still be rolled back."""
    if connection.in_atomic_block:
        transaction.on_commit(_written)


def _written() -> None:
    """Do nothing: registered on commit as the mark of a transaction that wrote roles."""


def _wrote_here() -> bool:
    return any(entry[1] is _written for entry in connection.run_on_commit)
