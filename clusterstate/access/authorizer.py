"""The one function that decides, and the policy that this process remembers.

The policy is compared with the tables by how many roles and bindings there are and by the sum of a
hash of their revisions. A revision is never given twice, so every write changes one of the two, in
whatever order transactions commit.
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
"""The group that may do everything, whatever the roles say."""
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
    """The policy that this process remembers, and until when (monotonic seconds) it is fresh.

    Besides, the policy that a transaction read which had written roles. It may be rolled back, but
    tables that look like that hold the same roles again.
    """

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.policy: Policy | None = None
        self.glance: _Seen = (0, Decimal(0))
        self.until = 0.0
        self.uncommitted: tuple[_Seen, Policy] | None = None


_memory = _Memory()


def decide(user: User, wants: Attributes, policy: Policy | None = None) -> AccessDecision:
    """Return whether a user may do that, and by which rule.

    Queries when the remembered policy may be out of date, and for the credential of a node, to see
    what its pods refer to; not if a policy is given.
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
    """Return whether an agent of a node may do that if a pod of its own refers to the object.

    With a policy, ``decide`` does not ask for such references, since that takes queries.
    """
    is_agent = bool(nodes.name_of(user.name, user.groups))
    return is_agent and nodes.asks_references(wants)


def reads_own_pods_only(user: User, namespace: str, name: str, verb: str = "get") -> bool:
    """Return whether a user may read that pod only if it is on the user's own node."""
    if MASTERS in user.groups or not nodes.name_of(user.name, user.groups):
        return False
    wants = Attributes(verb, resource="pods", namespace=namespace, name=name)
    return not current().decide(user.name, user.groups, wants).allowed


def rights(user: User) -> str:
    """Return a text that two users have in common if whatever one may do the other may, too.

    Queries when the remembered policy must be compared.
    """
    if MASTERS in user.groups:
        return MASTERS
    if not user.name or nodes.name_of(user.name, user.groups):
        return f"as {user.name}"
    return current().rights(user.name, user.groups)


def rules_for(user: User, namespace: str) -> list[Rule]:
    """Return the rules that bindings give to a user, in a namespace if it is given."""
    if MASTERS in user.groups:
        return list(_EVERYTHING)
    return _of_transaction().rules_for(user.name, user.groups, namespace)


def rules_of_role(kind: str, namespace: str, name: str) -> tuple[Rule, ...] | None:
    """Return the rules of a role as the open transaction sees it; None: there is none."""
    return _of_transaction().rules_of_role(kind, namespace, name)


def fresh() -> Policy | None:
    """Return the remembered policy if it need not be compared now. Never queries."""
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
    """Return the policy with what the open transaction wrote, which is not remembered."""
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
    """Return the policy as the tables have it now, and do not remember it. Queries once."""
    return _read()[1]


def _read() -> tuple[_Seen, Policy]:
    """Return the policy, and what a glance at these very rows would have seen."""
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
    """Forget the policy: the rows are another history's."""
    with _memory.lock:
        _memory.policy, _memory.until, _memory.uncommitted = None, 0.0, None


def _committed(kinds: Collection[str] = (), **_: Any) -> None:
    if not frozenset(ROLE_KINDS).isdisjoint(kinds):
        _memory.until = 0.0


changes.committed.connect(_committed, dispatch_uid="clusterstate.access")


def note_write() -> None:
    """Note that the open transaction writes a role or a binding, and may be rolled back."""
    if connection.in_atomic_block:
        transaction.on_commit(_written)


def _written() -> None:
    """Do nothing: an on-commit callback that shows that this transaction wrote roles."""


def _wrote_here() -> bool:
    return any(entry[1] is _written for entry in connection.run_on_commit)
