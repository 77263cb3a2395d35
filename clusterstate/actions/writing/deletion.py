"""Shared by deleting one object and many: the options, and the outcome.

Many are deleted in one transaction: their rows are locked together, in the order of their ids, then
each is judged by itself, then one statement writes the new versions of those that stay, and one
removes the others. Each request has its own result; a failing one does not affect the others.
"""

from collections.abc import Callable, Sequence

import msgspec

from clusterstate.actions.writing import transactions
from clusterstate.actions.writing.stored import DeletedObject, LockedRow
from clusterstate.admission.request import NOBODY, User
from clusterstate.change_log import changes
from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.rules.ownership import Policy
from clusterstate.objects.values import document
from clusterstate.objects.values.document import Overlay
from clusterstate.objects.values.errors import StatusError
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.objects import not_found


class Deletion(msgspec.Struct, frozen=True, kw_only=True):
    """One object to delete; ``namespace`` is empty for kinds without.

    ``uid`` and ``resource_version`` are preconditions, empty for none. ``grace_seconds`` and
    ``condition`` (why it is disrupted) are for pods: see `pods.delete.delete_pod`.
    """

    namespace: str
    name: str
    user: User = NOBODY
    grace_seconds: int | None = None
    uid: str = ""
    resource_version: str = ""
    propagation: Policy | None = None
    condition: Manifest | None = None


class DeleteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to delete: the parts of meta/v1 DeleteOptions that have an effect here."""

    grace_period_seconds: int | None = None
    uid: str = ""
    resource_version: str = ""
    dry_run: bool = False
    propagation: Policy | None = None

    @classmethod
    def of(cls, options: "DeleteOptions | Manifest | None") -> "DeleteOptions":
        """Convert a DeleteOptions manifest (``dryRun`` already a boolean)."""
        if isinstance(options, DeleteOptions):
            return options
        options = options or {}
        preconditions = options.get("preconditions") or {}
        return cls(
            grace_period_seconds=options.get("gracePeriodSeconds"),
            uid=preconditions.get("uid") or "",
            resource_version=preconditions.get("resourceVersion") or "",
            dry_run=bool(options.get("dryRun")),
            propagation=Policy(policy) if (policy := options.get("propagationPolicy")) else None,
        )

    def about(self, namespace: str, name: str, user: User) -> Deletion:
        """Return the deletion of one object with these options."""
        return Deletion(
            namespace=namespace,
            name=name,
            user=user,
            grace_seconds=self.grace_period_seconds,
            uid=self.uid,
            resource_version=self.resource_version,
            propagation=self.propagation,
        )


class Outcome(msgspec.Struct, frozen=True):
    """The effect of a deletion on a locked object.

    ``manifest``, with its ``text`` and ``overlay``, is a version to write first; ``None``: none.
    ``gone``: the row is removed then. Neither: the object stays as it is.
    """

    manifest: Manifest | None
    text: str
    overlay: Overlay
    gone: bool


UNCHANGED = Outcome(None, "", document.EMPTY, gone=False)


def removal(row: LockedRow) -> Outcome:
    """Return the outcome that removes an object at once, in its last version."""
    return Outcome(None, row.text, row.overlay, gone=True)


Lock = Callable[[Sequence[tuple[str, str]]], list[LockedRow]]
Judge = Callable[[LockedRow, Deletion], Outcome]
WriteVersions = Callable[[Sequence[tuple[LockedRow, Outcome]]], list[int]]
Remove = Callable[[Sequence[LockedRow]], list[int]]


def delete_each(
    kind: Kind,
    deletions: Sequence[Deletion],
    *,
    lock: Lock,
    judge: Judge,
    write: WriteVersions,
    remove: Remove,
) -> list[DeletedObject | StatusError]:
    """Delete objects of one kind in the caller's transaction; return each one's result, in order.

    ``lock`` returns the existing rows. ``judge`` returns the effect on a locked object, or raises;
    ``write`` and ``remove`` return the revisions. An object that is named twice is deleted once
    more after the others, as if its second request had come later. If anything else is raised,
    nothing was deleted.
    """
    results: dict[int, DeletedObject | StatusError] = {}
    remaining = list(range(len(deletions)))
    while remaining:
        turn: dict[tuple[str, str], int] = {}
        for place in remaining:
            turn.setdefault((deletions[place].namespace, deletions[place].name), place)
        results.update(_delete_turn(kind, deletions, turn, lock, judge, write, remove))
        remaining = [place for place in remaining if place not in results]
    return [results[place] for place in range(len(deletions))]


def _delete_turn(
    kind: Kind,
    deletions: Sequence[Deletion],
    turn: dict[tuple[str, str], int],
    lock: Lock,
    judge: Judge,
    write: WriteVersions,
    remove: Remove,
) -> dict[int, DeletedObject | StatusError]:
    """Delete distinct objects; return the results by position."""
    results: dict[int, DeletedObject | StatusError] = {}
    outcomes: dict[int, tuple[LockedRow, Outcome]] = {}
    rows = {(row.namespace, row.name): row for row in lock(list(turn))}
    for key, place in turn.items():
        row = rows.get(key)
        if row is None:
            results[place] = not_found(kind, key[1])
            continue
        row.actor = deletions[place].user.actor
        try:
            outcomes[place] = row, judge(row, deletions[place])
        except StatusError as error:
            results[place] = error
    written = [place for place, (_, one) in outcomes.items() if one.manifest is not None]
    gone = [place for place, (_, one) in outcomes.items() if one.gone]
    revisions: dict[int, int] = {}
    if written:
        revisions.update(zip(written, write([outcomes[p] for p in written]), strict=True))
    if gone:
        revisions.update(zip(gone, remove([outcomes[p][0] for p in gone]), strict=True))
    if revisions:
        changes.announce(max(revisions.values()), (kind.name,), leaving=True)
    for place, (row, one) in outcomes.items():
        revision = revisions.get(place)
        if revision is None:
            results[place] = DeletedObject(row.composed(), row.revision, row.uid, gone=False)
        else:
            composed = transactions.written_json(
                one.text, revision, one.overlay, before=row.revision
            )
            results[place] = DeletedObject(composed, revision, row.uid, gone=one.gone)
    return results


def only(results: Sequence[DeletedObject | StatusError]) -> DeletedObject:
    """Return the result of the only deletion.

    Raises:
        StatusError: it failed.
    """
    (result,) = results
    if isinstance(result, StatusError):
        raise result
    return result
