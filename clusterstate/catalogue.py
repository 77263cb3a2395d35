"""An exact cache of what admission looks up: namespaces, classes, limits, rules of quotas.

These objects change rarely and are needed for every pod, so each process keeps them, together with
the *admission epoch* at which it read them. The epoch is a sequence that every write of such an
object advances. A statement that creates something compares the epoch again, while it holds the
admission lock shared::

    writer of a class   lock exclusive -> nextval(epoch) -> write -> commit, unlock
    creator of a pod    lock shared    -> last_value(epoch) as cached? -> insert -> commit, unlock

A sequence is read as it is, not as of the statement's snapshot, and the lock is taken before it is
read. So a creator that sees its cached epoch runs wholly before the next writer, and one that does
not inserts nothing, reads the catalogue again and is admitted again. No extra round trip, no lookup
per pod, and no pod ever slips into a namespace that is already being deleted.
"""

import threading
import uuid
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final

import msgspec
from django.conf import settings
from django.db import connection, transaction

from clusterstate.admission.plugins.resource_quota import kinds_of
from clusterstate.admission.request import AdmissionSettings
from clusterstate.change_log import changes
from clusterstate.database import locks, sql
from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.registry.kinds import ALL_KINDS, KINDS
from clusterstate.objects.values import document
from clusterstate.objects.values.meta import Manifest
from clusterstate.processes import memory
from clusterstate.queries.objects import find_object
from clusterstate.queries.scheduler import decisions

EPOCH = (
    f"CASE WHEN pg_advisory_xact_lock_shared({locks.ADMISSION}) IS NOT NULL"
    " THEN pg_sequence_last_value('admission_epoch') END AS epoch"
)
"""Column of the gate CTE: the current epoch, read under the shared lock."""


_NONE: Final[dict[str, tuple[str, int]]] = {}


class _Objects:
    """Objects of one kind by namespace and name, decoded when first asked for."""

    def __init__(self, rows: list[sql.Row]) -> None:
        self._stored: dict[str, dict[str, tuple[str, int]]] = {}
        for namespace, name, text, revision in rows:
            self._stored.setdefault(namespace, {})[name] = (text, revision)
        self._decoded: dict[tuple[str, str], Manifest] = {}

    def get(self, name: str, namespace: str = "") -> Manifest | None:
        """Return the manifest; it must not be changed."""
        found = self._decoded.get((namespace, name))
        if found is None:
            stored = self._stored.get(namespace, _NONE).get(name)
            if stored is not None:
                found = self._decoded[namespace, name] = document.decode(*stored)
        return found

    def __bool__(self) -> bool:
        """Whether there are any objects of the kind."""
        return bool(self._stored)

    def of(self, namespace: str) -> Sequence[Manifest]:
        """Return the manifests of a namespace, ordered by name; they must not be changed."""
        if namespace not in self._stored:
            return ()
        found = (self.get(name, namespace) for name in sorted(self._stored[namespace]))
        return [one for one in found if one is not None]


class Catalogue:
    """The admission `Context`: an immutable picture of the catalogue at one epoch."""

    def __init__(
        self,
        epoch: int,
        objects: Mapping[str, list[sql.Row]],
        default_priority_class: str | None,
        admission_settings: AdmissionSettings,
    ) -> None:
        self.epoch = epoch
        self._objects = {kind: _Objects(rows) for kind, rows in objects.items()}
        self._counted: dict[str, frozenset[str]] = {}
        self._default = default_priority_class
        self._settings = admission_settings
        self.remembered: dict[bytes, Any] = {}
        """What the pods' actions derived under these rules; gone with them."""

    @property
    def settings(self) -> AdmissionSettings:
        """Return the settings of admission, such as which plugins are on."""
        return self._settings

    def runtime_class(self, name: str) -> Manifest | None:
        """Return the RuntimeClass called ``name``."""
        return self._objects["RuntimeClass"].get(name)

    def priority_class(self, name: str) -> Manifest | None:
        """Return the PriorityClass called ``name``."""
        return self._objects["PriorityClass"].get(name)

    def default_priority_class(self) -> Manifest | None:
        """Return the PriorityClass with ``globalDefault``; of several the one of lowest value."""
        return None if self._default is None else self.priority_class(self._default)

    def namespace(self, name: str) -> Manifest | None:
        """Return the Namespace called ``name``."""
        return self._objects["Namespace"].get(name)

    def limit_ranges(self, namespace: str) -> Sequence[Manifest]:
        """Return the LimitRanges of a namespace, ordered by name."""
        return self._objects["LimitRange"].of(namespace)

    @property
    def has_quotas(self) -> bool:
        """Whether there are quotas anywhere, and they are in force."""
        return self._settings.resource_quota and bool(self._objects["ResourceQuota"])

    def counted_kinds(self, namespace: str) -> frozenset[str]:
        """Return the names of the kinds that the quotas of a namespace count."""
        found = self._counted.get(namespace)
        if found is None:
            quotas = self._objects["ResourceQuota"].of(namespace)
            kinds = kinds_of([quota.get("spec") or {} for quota in quotas])
            found = self._counted[namespace] = frozenset(kind.name for kind in kinds)
        return found

    def node(self, name: str) -> Manifest | None:
        """Return the Node called ``name``. Queries once."""
        return self._find("Node", "", name)

    def pod(self, namespace: str, name: str) -> Manifest | None:
        """Return the Pod ``namespace/name``. Queries once."""
        return self._find("Pod", namespace, name)

    def classes(self, kind: str) -> Sequence[Manifest]:
        """Return all objects of a kind without namespaces. Queries once."""
        rows = sql.fetch(
            "SELECT d.text, t.revision FROM generic_object t"
            " JOIN document d ON d.id = t.document_id WHERE t.kind = %s",
            (KINDS[kind].code,),
        )
        return [document.decode(text, revision) for text, revision in rows]

    def service_account(self, namespace: str, name: str) -> Manifest | None:
        """Return the ServiceAccount ``namespace/name``. Queries once."""
        return self._find("ServiceAccount", namespace, name)

    @staticmethod
    def _find(kind: str, namespace: str, name: str) -> Manifest | None:
        found = find_object(kind, namespace, name)
        return None if found is None else msgspec.json.decode(found)


class _Memory:
    """This process's cache of the catalogue."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.catalogue: Catalogue | None = None
        self.learned_at: tuple[uuid.UUID | None, int] | None = None
        self.ids: list[Callable[[], None]] = []

    def belongs_to(self, history: uuid.UUID | None, epoch: int) -> None:
        """Clear the caches if the history changed, and cached ids also if the epoch changed.

        Rows may have been deleted since: `actions.past.housekeeping`.
        """
        memory.belongs_to(history)
        with self.lock:
            previous, self.learned_at = self.learned_at, (history, epoch)
        if previous not in (None, (history, epoch)):
            for forget_ids in self.ids:
                forget_ids()


_memory = _Memory()


def current() -> Catalogue:
    """Return the cached catalogue, which may be out of date; reads it if none is cached."""
    written = _written_here()
    remembered = _memory.catalogue if written is None else written.remembered()
    return remembered or reload()


def fresh() -> Catalogue:
    """Return the catalogue with all that was committed before this. Queries once or, to read, more.

    By this updates are judged, which compare no epoch as they write: what was made or deleted
    before the request came is asked. Deletions look nothing up. To be called before rows are
    locked.
    """
    remembered = current()
    return remembered if is_current(remembered) else reload()


def is_current(context: Catalogue) -> bool:
    """Return whether nothing was written since ``context`` was read. Queries once, without lock."""
    row = sql.fetch_one("SELECT pg_sequence_last_value('admission_epoch')")
    return row is not None and row[0] == context.epoch


def reload() -> Catalogue:
    """Read the catalogue and remember it. Queries once for each kind in it, and thrice more.

    What is read may be newer than the epoch read before it, never older: too new costs one reload
    more, too old would let a stale rule through.
    """
    row = sql.fetch_one(f"SELECT {EPOCH}, (SELECT uid FROM history WHERE id = 1)")
    assert row is not None
    _memory.belongs_to(row[1], row[0])
    objects = {
        kind.name: sql.fetch(
            f"SELECT {_namespace(kind)}, t.name, d.text, t.revision"
            f" FROM {kind.rows} t JOIN document d ON d.id = t.document_id"
        )
        for kind in ALL_KINDS
        if kind.in_catalogue
    }
    default = sql.fetch_one(
        "SELECT name FROM priority_class WHERE global_default ORDER BY value, name LIMIT 1"
    )
    rules = decisions.admission_rules()
    switches = msgspec.structs.replace(
        admission_settings(), compatibility=rules.compatibility, profiles=rules.profiles
    )
    found = Catalogue(row[0], objects, default[0] if default else None, switches)
    written = _written_here()
    if written is None:
        remember(found)
    else:
        written.remember(found)
    return found


def _namespace(kind: Kind) -> str:
    return "t.namespace" if kind.namespaced else "''"


def admission_settings() -> AdmissionSettings:
    """Return the settings of admission from ``settings.ADMISSION``."""
    configured: dict[str, object] = getattr(settings, "ADMISSION", {})
    return msgspec.convert(configured, AdmissionSettings)


def remember(found: Catalogue) -> None:
    """Cache a catalogue, unless the cached one is newer."""
    with _memory.lock:
        cached = _memory.catalogue
        if cached is None or cached.epoch <= found.epoch:
            _memory.catalogue = found


@memory.when_replaced
def _forget() -> None:
    with _memory.lock:
        _memory.catalogue = None


def with_epoch(forget_ids: Callable[[], None]) -> None:
    """Register a function that forgets remembered ids.

    It is called whenever a catalogue of another epoch is read. An action that deletes rows with
    such ids (scheduling classes) advances the epoch.
    """
    _memory.ids.append(forget_ids)


def lock_for_writing() -> None:
    """Take the admission lock exclusively until the transaction ends, before any row lock."""
    sql.run("SELECT pg_advisory_xact_lock(%s::bigint)", (locks.ADMISSION,))


def advance() -> None:
    """Advance the epoch; the caller holds the lock and writes in the same transaction."""
    changes.advance_admission_epoch()
    transaction.on_commit(_Written())


class _Written:
    """A write of the catalogue in the open transaction, and the catalogue as read after it.

    It waits as a callback of Django's, so it lasts exactly as long as the transaction or savepoint
    in which it was written. What was read inside a later savepoint is of no use once that has
    ended, since it may have been rolled back.
    """

    def __init__(self) -> None:
        self._catalogue: Catalogue | None = None
        self._savepoints: list[str | None] = []

    def __call__(self) -> None:
        """Do nothing when the transaction commits."""

    def remember(self, found: Catalogue) -> None:
        """Remember a catalogue that was read now."""
        self._catalogue = found
        self._savepoints = list(connection.savepoint_ids)

    def remembered(self) -> Catalogue | None:
        """Return the catalogue that this transaction read, unless that was rolled back."""
        inside = connection.savepoint_ids[: len(self._savepoints)] == self._savepoints
        return self._catalogue if inside else None


def _written_here() -> _Written | None:
    """Return the last write of the catalogue in the open transaction.

    What it reads is its own and may be rolled back, so other transactions must not meet it.
    """
    return next(
        (one[1] for one in reversed(connection.run_on_commit) if isinstance(one[1], _Written)), None
    )
