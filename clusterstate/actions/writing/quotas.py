"""Keeps the status of quotas: charges creations, counts ended objects, recounts.

``status.used`` of a ResourceQuota is the only place where usage is stored, so that it is exact at
every revision. Three functions write it, all with the quotas of a namespace locked, in one order::

    charge    a creation, or a change that counts for more: in its own transaction, before the rows
              are written. Creators in a namespace with quotas take turns, batch by batch. A batch
              waits for the database three times: for the books, for its rows together with the
              statuses, for its commit.
    settle    objects that ended or were removed. The database adds a row of `UsageChange` for each,
              so that ending a pod never waits for a quota, and no way of ending one is missed.
              Every charge settles first; the quota controller does it where nothing is created.
    recount   everything in the namespace, when a quota is new or its spec changes.

Nothing is counted twice and nothing is missed. Each object is counted when it is stored or by a
recount that sees it, never by both: creators hold the admission lock shared and compare the epoch
(`clusterstate.catalogue`), a recount holds it exclusively. And each end is either seen by a recount
or adds its row afterwards: a transaction that removes something holds the quota lock shared from
before it looks for quotas until it has committed, and a recount holds that lock exclusively.

Locks are taken in the order of `actions.objects`: admission, the quota lock, rows, revision.
Namespaces without a quota that counts the kind cost a look-up in the catalogue.
"""

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from datetime import datetime
from functools import lru_cache
from typing import Any, Final, TypeVar

from django.db import IntegrityError, transaction

from clusterstate import catalogue
from clusterstate.actions.writing import stored_rows
from clusterstate.actions.writing.stored import LockedRow
from clusterstate.admission.plugins import resource_quota
from clusterstate.admission.plugins.resource_quota import Account, Charge
from clusterstate.change_log import changes
from clusterstate.database import locks, sql
from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.registry.kinds import ALL_KINDS, KINDS, NAMES
from clusterstate.objects.rules import usage
from clusterstate.objects.rules.usage import NOTHING, Extras, Usage
from clusterstate.objects.values import document
from clusterstate.objects.values.meta import Manifest

QUOTA: Final = KINDS["ResourceQuota"]
POD: Final = KINDS["Pod"]
COUNT_AGAIN: Final = 0
"""The kind of a `UsageChange` that says that everything has to be counted again."""

_LOCK = (
    "SELECT t.id FROM resource_quota t WHERE t.namespace = ANY(%s) ORDER BY t.id FOR NO KEY UPDATE"
)
_READ = """
    SELECT t.id, t.uid::text, t.namespace, t.name, t.document_id, t.revision, d.text
    FROM resource_quota t JOIN document d ON d.id = t.document_id
    WHERE t.namespace = ANY(%s) ORDER BY t.name
"""
# Rows about one change are merged (``note_change``). Documents are read only if an object's usage
# needs them; quotas that do not look into pods cost none. Equal rows are sent once, with their
# number.
_ENDED = """
    WITH taken AS (
        {taken}),
    looked AS MATERIALIZED (
        SELECT EXISTS (SELECT FROM resource_quota q JOIN document d ON d.id = q.document_id
                       WHERE q.namespace = ANY(%s)
                         AND d.text ~ 'Terminating|PriorityClass') AS into_pods),
    one AS (
        SELECT DISTINCT t.namespace, t.kind, t.before_document_id, t.before_class_id,
               t.before_finished, t.after_document_id, t.after_class_id, t.after_finished
        FROM taken t),
    ended AS (
        SELECT o.namespace, o.kind, o.before_document_id IS NOT NULL AS was, o.before_class_id,
               o.before_finished,
               CASE WHEN o.kind = ANY(%s) OR (o.kind = 1 AND l.into_pods) THEN
                   (SELECT d.text FROM document d WHERE d.id = o.before_document_id)
               END AS before_text,
               o.after_document_id IS NOT NULL AS remains, o.after_class_id, o.after_finished,
               CASE WHEN o.kind = ANY(%s) OR (o.kind = 1 AND l.into_pods) THEN
                   (SELECT d.text FROM document d WHERE d.id = o.after_document_id)
               END AS after_text, l.into_pods
        FROM one o CROSS JOIN looked l),
    counted AS (
        SELECT t.*, count(*) AS number FROM ended t
        GROUP BY t.namespace, t.kind, t.was, t.before_class_id, t.before_finished, t.before_text,
                 t.remains, t.after_class_id, t.after_finished, t.after_text, t.into_pods)
    SELECT c.namespace, c.kind, c.number, c.into_pods,
           c.was, (SELECT s.spec FROM scheduling_class s WHERE s.id = c.before_class_id),
           c.before_finished, c.before_text,
           c.remains, (SELECT s.spec FROM scheduling_class s WHERE s.id = c.after_class_id),
           c.after_finished, c.after_text
    FROM counted c
"""
_WHERE_NOTED = "usage_change u WHERE u.namespace = ANY(%s) AND u.kind <> 0"
_TAKE = " ".join(_ENDED.format(taken=f"DELETE FROM {_WHERE_NOTED} RETURNING u.*").split())
_LOOK = " ".join(_ENDED.format(taken=f"SELECT u.* FROM {_WHERE_NOTED}").split())


def limited(context: catalogue.Catalogue, kind: Kind, namespaces: Iterable[str]) -> set[str]:
    """Return the namespaces that have a quota which counts objects of the kind. Queries nothing."""
    if not context.has_quotas:
        return set()
    return {one for one in set(namespaces) if kind.name in context.counted_kinds(one)}


Opened = TypeVar("Opened")


class ChargeRefused(Exception):  # a signal to retry, not an error
    """A constraint refused the charge, and the transaction is aborted: start it again."""


def with_books(
    kind: Kind,
    namespaces: Iterable[str],
    limited_now: Collection[str],
    now: datetime,
    work: Callable[["Books | None"], Opened],
) -> Opened:
    """Run ``work`` in a transaction with the books of those namespaces that have quotas.

    ``limited_now``: these namespaces, by the cached catalogue. If another epoch has begun since,
    all starts again with a new catalogue; ``work`` gets no books, and no transaction, if no
    namespace has quotas any more. Otherwise it may rely on the catalogue.
    """
    spaces = set(namespaces)
    limited_spaces = set(limited_now)
    hopeful = True
    while limited_spaces:
        try:
            with transaction.atomic():
                books, epoch = open_books(limited_spaces)
                books.is_hopeful = hopeful
                if catalogue.current().epoch == epoch:
                    done = work(books)
                    books.write(now)
                    return done
                transaction.set_rollback(True)
        except ChargeRefused:
            hopeful = False
            continue
        limited_spaces = limited(catalogue.reload(), kind, spaces)
    return work(None)


class Books:
    """The quotas of some namespaces, locked until the transaction ends, and their usage."""

    is_hopeful = False
    """Optimistic: charges and statuses are stored in one statement without a savepoint. On a name
    collision ``ChargeRefused`` is raised and the caller retries."""

    def __init__(self, rows: Sequence[LockedRow]) -> None:
        self._rows = rows
        self._manifests = [row.manifest() for row in rows]
        self._all = [Account(manifest) for manifest in self._manifests]
        self._accounts: dict[str, list[Account]] = {}
        for row, account in zip(rows, self._all, strict=True):
            self._accounts.setdefault(row.namespace, []).append(account)

    def of(self, namespace: str) -> Sequence[Account]:
        """Return the accounts of a namespace, in the order of the quotas' names."""
        return self._accounts.get(namespace, ())

    def look_into_pods(self, namespace: str) -> bool:
        """Return whether a quota of the namespace reads more of pods than their class."""
        return any(account.looks_into_pods for account in self.of(namespace))

    def charge(
        self, kind: Kind, namespace: str, name: str, counts: Usage, before: Usage = NOTHING,
        *, containers: Callable[[], Sequence[str]] = list,
    ) -> Charge:  # fmt: skip
        """Charge an object; see `resource_quota.charge`.

        Raises:
            Forbidden: it does not fit; nothing is charged.
        """
        return resource_quota.charge(
            self.of(namespace), kind, name, counts, before, containers=containers
        )

    def take_back(self, namespace: str, charged: Charge) -> None:
        """Undo the charge of an object that was not stored."""
        resource_quota.take_back(self.of(namespace), charged)

    def change(self, namespace: str, before: Usage, after: Usage, number: int = 1) -> None:
        """Change the counted usage for ``number`` like objects, even beyond a quota's limit."""
        for account in self.of(namespace):
            more, less = account.counts(after), account.counts(before)
            account.change(
                {name: amount.mul(number) for name, amount in more.items()},
                {name: amount.mul(number) for name, amount in less.items()},
            )

    def fetch(self, statement: str, parameters: Sequence[Any], now: datetime) -> list[sql.Row]:
        """Execute a statement that stores charged objects; return its rows.

        If ``is_hopeful``, the statuses are stored with it, in the same round trip.

        Raises:
            ChargeRefused: a constraint refused it, or it stored nothing.
        """
        if not self.is_hopeful:
            return sql.fetch(statement, parameters)
        rows, updates = self._updates(now)
        try:
            stored, *revisions = sql.fetch_together((statement, parameters), *updates)
        except IntegrityError as error:
            raise ChargeRefused from error
        if not stored:
            raise ChargeRefused
        self._note_written(rows, revisions)
        return stored

    def write(self, now: datetime) -> None:
        """Store the statuses that differ."""
        rows, updates = self._updates(now)
        if updates:
            self._note_written(rows, sql.fetch_together(*updates))

    def _note_written(
        self, rows: Sequence[LockedRow], revisions: Sequence[Sequence[sql.Row]]
    ) -> None:
        for row, ((revision,),) in zip(rows, revisions, strict=True):
            row.revision = revision
            changes.announce(revision, (QUOTA.name,))

    def _updates(self, now: datetime) -> tuple[list[LockedRow], list[tuple[str, list[Any]]]]:
        """Return the rows whose status differs, and the statements that store it."""
        rows, updates = [], []
        for row, manifest, account in zip(self._rows, self._manifests, self._all, strict=True):
            status = account.status()
            if status == manifest.get("status"):
                continue
            manifest["status"] = status
            row.text, _ = document.encode(QUOTA.name, manifest)
            rows.append(row)
            updates.append(stored_rows.update_of(QUOTA, row, manifest, row.text, now=now))
        return rows, updates


def open_books(namespaces: Collection[str]) -> tuple[Books, int]:
    """Lock the quotas of namespaces and count ended objects; return books and admission epoch.

    Must be called in a transaction. One round trip. The quotas are those of the epoch, which cannot
    change before the transaction ends.
    """
    spaces, special = sql.Texts(sorted(namespaces)), _special()
    epochs, _, found, ended = sql.fetch_together(
        (f"SELECT {catalogue.EPOCH}", ()),
        (_LOCK, (spaces,)),
        # A statement of its own: after waiting for the lock it sees the latest rows.
        (_READ, (spaces,)),
        (_TAKE, (spaces, spaces, special, special)),
    )
    books = Books([LockedRow(*one) for one in found])
    for namespace in sorted(_count_ended(books, ended)):
        count_again(namespace)
    return books, epochs[0][0]


def _special() -> sql.Int4s:
    return sql.Int4s([kind.code for kind in ALL_KINDS if usage.needs_document(kind)])


def _count_ended(books: Books, ended: Sequence[sql.Row]) -> set[str]:
    """Count ended objects; return the namespaces in which an object's usage cannot be computed."""
    unreadable = set()
    for namespace, code, number, into_pods, *both in ended:
        kind = KINDS[NAMES[code]] if code in NAMES else None
        resources_of = resources_of_device_classes(kind)
        before, after = (
            _usage(kind, *side, looks=into_pods, resources_of=resources_of)
            for side in (both[:4], both[4:])
        )
        if before is None or after is None:
            unreadable.add(namespace)
        else:
            books.change(namespace, before, after, number)
    return unreadable


def _usage(
    kind: Kind | None, there: object, spec: str | None, finished: object, text: str | None,
    *, looks: bool, resources_of: Mapping[str, str],
) -> Usage | None:  # fmt: skip
    """Return an object's usage on one side of a change; ``None`` if it cannot be computed.

    ``looks``: a quota reads more of pods than their class. ``resources_of``: see `object_usage`.
    """
    if not there:
        return NOTHING
    if kind is None:
        return None
    if kind.name == POD.name:
        if spec is None or (looks and text is None):
            return None
        extras = usage.NO_EXTRAS if text is None else usage.extras_of(document.compose(text, 0))
        return usage.pod_usage(spec, finished=bool(finished), extras=extras)
    if not usage.needs_document(kind):
        return usage.plain_usage(kind)
    if text is None:
        return None
    return usage.object_usage(kind, document.decode(text, 0), resources_of)


def count_again(namespace: str) -> None:
    """Have the quota controller recount a namespace."""
    sql.run(
        "INSERT INTO usage_change (namespace, kind) VALUES (%s::text, %s::smallint)",
        (namespace, COUNT_AGAIN),
    )


def count_all_again() -> None:
    """Have the quota controller recount each namespace that has a quota.

    For changes of what stored objects count for. Transactions that counted by the former rule hold
    the admission lock shared until their commit, and a recount waits for that.
    """
    sql.run(
        "INSERT INTO usage_change (namespace, kind)"
        " SELECT DISTINCT namespace, %s::smallint FROM resource_quota",
        (COUNT_AGAIN,),
    )


def resources_of_device_classes(kind: Kind | None) -> Mapping[str, str]:
    """Return the extended resource of each device class that has one.

    Queries once for a kind whose usage depends on it, else returns nothing without a query.
    """
    if kind is None or not usage.looks_into_device_classes(kind):
        return {}
    classes = KINDS["DeviceClass"]
    found = {}
    for name, text in sql.fetch(
        f"SELECT t.name, d.text FROM {classes.rows} t JOIN document d ON d.id = t.document_id"
    ):
        resource = (document.decode(text, 0).get("spec") or {}).get("extendedResourceName")
        if resource:
            found[name] = resource
    return found


def note_change(pod_id: int, before_document: int, before_class: int, *, finished: bool) -> None:
    """Record that a pod's usage differs from that of its former version.

    The database notes it itself where the pod's phase or class changed, too.
    """
    sql.run(
        """
        INSERT INTO usage_change (namespace, kind, before_document_id, before_class_id,
                                  before_finished, after_document_id, after_class_id,
                                  after_finished)
        SELECT p.namespace, 1, %s::bigint, %s::bigint, %s::boolean, p.document_id, p.class_id,
               p.phase IN ('Succeeded', 'Failed')
        FROM pod p WHERE p.id = %s::bigint
        """,
        (before_document, before_class, finished, pod_id),
    )


def settle(namespace: str, *, now: datetime) -> None:
    """Count objects that ended in a namespace, or everything if a recount is due."""
    with transaction.atomic():
        again = sql.fetch_one(
            "SELECT 1 FROM usage_change WHERE namespace = %s AND kind = %s::smallint LIMIT 1",
            (namespace, COUNT_AGAIN),
        )
        if again is None:
            books, _ = open_books([namespace])
            books.write(now)
        else:
            catalogue.lock_for_writing()
            recount(namespace, now=now)


# Counting everything --------------------------------------------------------------------------


def recount(namespace: str, *, now: datetime) -> None:
    """Recount everything in a namespace, for all of its quotas.

    In the caller's transaction, which holds the admission lock exclusively
    (`catalogue.lock_for_writing`), so that nothing is created meanwhile. The quota lock, which is
    taken here, waits for transactions that end objects, and blocks new ones.
    """
    sql.fetch("SELECT pg_advisory_xact_lock(%s::bigint)", (locks.QUOTAS,))
    sql.run(
        "DELETE FROM usage_change WHERE namespace = %s AND kind = %s::smallint",
        (namespace, COUNT_AGAIN),
    )
    books, _ = open_books([namespace])
    count(books, namespace)
    books.write(now)


def count(books: Books, namespace: str) -> None:
    """Set the accounts of a namespace to its present usage. Queries once or twice."""
    specs = [account.spec for account in books.of(namespace)]
    for account in books.of(namespace):
        account.reset()
    into_pods = books.look_into_pods(namespace)
    counted = tuple(kind.name for kind in resource_quota.kinds_of(specs))
    statement = _count_statement(counted, into_pods=into_pods)
    resources_of: Mapping[str, str] = {}
    for name in counted:
        resources_of = resources_of or resources_of_device_classes(KINDS[name])
    for code, spec, finished, terminating, priority_class, text, number in sql.fetch(
        statement, [namespace] * len(counted)
    ):
        kind = KINDS[NAMES[code]]
        if kind.name == POD.name:
            extras = Extras(terminating, priority_class)
            counts = usage.pod_usage(spec, finished=finished, extras=extras)
        elif text is not None:
            counts = usage.object_usage(kind, document.decode(text, 0), resources_of)
        else:
            counts = usage.plain_usage(kind)
        books.change(namespace, NOTHING, counts, number)


@lru_cache(maxsize=64)
def _count_statement(kinds: tuple[str, ...], *, into_pods: bool) -> str:
    """Return the statement that counts objects of some kinds; each takes the namespace."""
    parts = [_count_of(KINDS[name], into_pods=into_pods) for name in kinds]
    empty = "SELECT 0::smallint, NULL::bigint, false, false, '', NULL::text, 0::bigint WHERE false"
    statement = f"""
    WITH counted (code, class_id, finished, terminating, priority_class, text, number) AS (
        {" UNION ALL ".join(parts) or empty})
    SELECT c.code, s.spec, c.finished, c.terminating, c.priority_class, c.text, c.number
    FROM counted c LEFT JOIN scheduling_class s ON s.id = c.class_id
    """
    return " ".join(statement.split())


def _count_of(kind: Kind, *, into_pods: bool) -> str:
    code = f"{kind.code}::smallint"
    if kind.name != POD.name:
        if not usage.needs_document(kind):
            return (
                f"SELECT {code}, NULL::bigint, false, false, '', NULL::text, count(*)"
                f" FROM {kind.rows} t WHERE t.namespace = %s"
            )
        return (
            f"SELECT {code}, NULL::bigint, false, false, '', d.text, 1::bigint"
            f" FROM {kind.rows} t JOIN document d ON d.id = t.document_id WHERE t.namespace = %s"
        )
    finished = "p.phase IN ('Succeeded', 'Failed')"
    if not into_pods:
        return (
            f"SELECT {code}, p.class_id, {finished}, false, '', NULL::text, count(*)"
            " FROM pod p WHERE p.namespace = %s GROUP BY p.class_id, 3"
        )
    # Without its slots a document is the pod's JSON, except for the members in the slots.
    return f"""
        SELECT {code}, x.class_id, x.finished, coalesce(x.deadline >= 0, false),
               coalesce(x.priority_class, ''), NULL::text, count(*)
        FROM (SELECT p.class_id, {finished} AS finished,
                     (j.spec ->> 'activeDeadlineSeconds')::bigint AS deadline,
                     j.spec ->> 'priorityClassName' AS priority_class
              FROM pod p JOIN document d ON d.id = p.document_id
              CROSS JOIN LATERAL (
                  SELECT replace(d.text, chr(1), '')::json -> 'spec' AS spec) j
              WHERE p.namespace = %s) x
        GROUP BY x.class_id, x.finished, 4, 5"""


# Looking --------------------------------------------------------------------------------------


def wrong_accounts(namespace: str) -> list[tuple[str, Manifest, Manifest]]:
    """Return the quotas of a namespace whose status differs from the result of a recount.

    Name, status and right status of each. Usage that is recorded as ended, and not subtracted yet,
    is no difference. For a transaction that reads one snapshot. Queries five times, writes nothing.
    """
    spaces = sql.Texts([namespace])
    again = "SELECT 1 FROM usage_change WHERE namespace = %s AND kind = %s::smallint"
    if sql.fetch_one(again, (namespace, COUNT_AGAIN)) is not None:
        return []
    rows = [LockedRow(*one) for one in sql.fetch(_READ, (spaces,))]
    stored, counted = Books(rows), Books(rows)
    ended = sql.fetch(_LOOK, (spaces, spaces, _special(), _special()))
    if _count_ended(stored, ended):
        return []
    count(counted, namespace)
    return [
        (one.name, one.status(), other.status())
        for one, other in zip(stored.of(namespace), counted.of(namespace), strict=True)
        if one.status() != other.status()
    ]


__all__ = [
    "Books",
    "count_again",
    "count_all_again",
    "limited",
    "note_change",
    "open_books",
    "recount",
    "resources_of_device_classes",
    "settle",
    "with_books",
    "wrong_accounts",
]
