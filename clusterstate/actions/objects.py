"""Create, update and delete objects of any kind: what the REST API and the admin call.

Pods and events have modules of their own, to which this one hands over; nodes, namespaces and
leases differ from the rest in a few lines each. An update is a function from the stored manifest
to the wanted one, run under the row lock, so that a patch never works on an old version.

Locks are taken in this order, by everybody: admission, placement, rows, revision.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Final

import msgspec

from clusterstate import admission, catalogue, changes, sql
from clusterstate.actions import events, eviction_warnings, nodes, storing
from clusterstate.actions.pods.create import create_pod, create_pods, create_pods_each
from clusterstate.actions.pods.delete import delete_pod
from clusterstate.actions.pods.update import update_pod
from clusterstate.actions.storing import Deleted, Row, Stored
from clusterstate.admission.request import CREATE, DELETE, NOBODY, UPDATE, User
from clusterstate.objects import document
from clusterstate.objects.errors import AlreadyExists, NotFound, StatusError, TooManyRequests
from clusterstate.objects.kinds import Kind
from clusterstate.objects.meta import Manifest
from clusterstate.objects.ownership import Policy, finalizers_for
from clusterstate.queries.lists import list_page
from clusterstate.queries.objects import decode_object, kind_of


class DeleteOptions(msgspec.Struct, frozen=True, kw_only=True):
    """How to delete: the parts of meta/v1 DeleteOptions that have an effect here."""

    grace_period_seconds: int | None = None
    uid: str = ""
    resource_version: str = ""
    dry_run: bool = False
    propagation: Policy | None = None

    @classmethod
    def of(cls, options: "DeleteOptions | Manifest | None") -> "DeleteOptions":
        """Return options given as a manifest (``dryRun`` already a boolean) as values."""
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


_MAX_TRIES = 20
_PLACEMENT_FIELDS: Final = ("capacity", "allocatable", "images", "declaredFeatures")


def create(
    kind: Kind | str,
    namespace: str,
    manifest: Manifest,
    *,
    now: datetime,
    user: User = NOBODY,
    dry_run: bool = False,
) -> Stored:
    """Create an object; ``namespace`` is empty for kinds without. One transaction.

    Raises:
        StatusError: what admission says; AlreadyExists; NotFound for a missing namespace.
    """
    kind = kind_of(kind)
    if kind.name == "Pod":
        return create_pod(manifest, namespace=namespace, now=now, user=user, dry_run=dry_run)
    if kind.name == "Event":
        with storing.work(dry_run=dry_run):
            return events.create_event(namespace, manifest, now=now, user=user)
    if dry_run or kind.in_catalogue:
        with storing.work(dry_run=dry_run):
            return _create(kind, [(namespace, manifest)], now, user)[0]
    return _create(kind, [(namespace, manifest)], now, user)[0]


def create_all(
    wanted: Sequence[tuple[Kind | str, str, Manifest]],
    *,
    now: datetime,
    user: User = NOBODY,
    dry_run: bool = False,
) -> list[Stored]:
    """Create objects of any kinds in order, all or none, in one transaction.

    Neighbours of one kind are inserted by one statement; pods alone need no other.
    """
    groups = _groups(wanted)
    if len(groups) == 1 and groups[0][0].name == "Pod":
        return _create_pods(groups[0][1], now, user, dry_run=dry_run)
    with storing.work(dry_run=dry_run):
        if any(kind.in_catalogue for kind, _ in groups):
            catalogue.lock_for_writing()
        result: list[Stored] = []
        for kind, items in groups:
            if kind.name == "Pod":
                result += _create_pods(items, now, user, dry_run=False)
            elif kind.name == "Event":
                result += [
                    events.create_event(namespace, manifest, now=now, user=user)
                    for namespace, manifest in items
                ]
            else:
                result += _create(kind, items, now, user)
    return result


def _groups(
    wanted: Sequence[tuple[Kind | str, str, Manifest]],
) -> list[tuple[Kind, list[tuple[str, Manifest]]]]:
    groups: list[tuple[Kind, list[tuple[str, Manifest]]]] = []
    for named, namespace, manifest in wanted:
        kind = kind_of(named)
        if not groups or groups[-1][0].name != kind.name:
            groups.append((kind, []))
        groups[-1][1].append((namespace, manifest))
    return groups


def _create_pods(
    items: list[tuple[str, Manifest]], now: datetime, user: User, *, dry_run: bool
) -> list[Stored]:
    manifests = [_placed(namespace, manifest) for namespace, manifest in items]
    stored = create_pods(manifests, now=now, user=user, dry_run=dry_run)
    return [one for one in stored if isinstance(one, Stored)]


def _placed(namespace: str, manifest: Manifest) -> Manifest:
    """Return the manifest with the namespace it is created in, if that is given."""
    metadata = manifest.get("metadata") or {}
    if not namespace or metadata.get("namespace") == namespace:
        return manifest
    return {**manifest, "metadata": {**metadata, "namespace": namespace}}


def is_batched(kind: Kind) -> bool:
    """Return whether objects of the kind are created by one statement for many (``create_each``).

    Those that admission looks up are written under its lock, and events count their repetitions.
    """
    return not kind.in_catalogue and kind.name != "Event"


def create_each(
    kind: Kind, wanted: Sequence[tuple[str, Manifest, User]], *, now: datetime
) -> list[Stored | StatusError]:
    """Create objects of a kind that ``is_batched``: namespace, manifest, and who wants it.

    Returns each one's result, in order. What fails has its error there and spoils nothing for the
    others, which are inserted by one statement, in the order of the list; by a second one when a
    name turns out to be taken. Whatever else is raised, nothing was stored.
    """
    if kind.name == "Pod":
        return create_pods_each(wanted, now=now)
    return _create_each(kind, wanted, now, all_or_nothing=False)


def _create(
    kind: Kind, items: Sequence[tuple[str, Manifest]], now: datetime, user: User
) -> list[Stored]:
    """Create objects of one kind by one statement, all or none."""
    if kind.in_catalogue:
        catalogue.lock_for_writing()
    wanted = [(namespace, manifest, user) for namespace, manifest in items]
    stored = _create_each(kind, wanted, now, all_or_nothing=True)
    return [one for one in stored if isinstance(one, Stored)]


def _create_each(
    kind: Kind,
    wanted: Sequence[tuple[str, Manifest, User]],
    now: datetime,
    *,
    all_or_nothing: bool,
) -> list[Stored | StatusError]:
    """Create objects of one kind; with ``all_or_nothing`` the first error is raised instead."""
    writes_catalogue = kind.in_catalogue
    context = catalogue.current()
    results: list[Stored | StatusError | None] = [None] * len(wanted)
    remaining: Sequence[int] = range(len(wanted))
    for attempt in range(_MAX_TRIES):
        prepared, refused = _admit_new(kind, wanted, remaining, now, context)
        # A rule that is out of date may refuse what the current one admits.
        if refused and not catalogue.is_current(context):
            context = catalogue.reload()
            continue
        if refused and all_or_nothing:
            raise next(iter(refused.values()))
        for place, error in refused.items():
            results[place] = error
        if not prepared:
            break
        try:
            inserted = storing.insert_rows(
                kind,
                [one.admitted.manifest for one in prepared],
                now=now,
                epoch=None if writes_catalogue else context.epoch,
            )
        except AlreadyExists as error:
            taken = storing.taken_names(kind, [one.admitted.manifest for one in prepared])
            last = attempt == _MAX_TRIES - 1
            for position, one in enumerate(prepared):
                if position in taken and (last or not one.generated):
                    name = one.admitted.manifest["metadata"]["name"]
                    error = storing.already_exists(kind, name)
                    if all_or_nothing:
                        raise error from None
                    results[one.place] = error
            if last and all_or_nothing:
                raise
            remaining = [place for place in remaining if results[place] is None]
            continue
        if inserted is None:
            context = catalogue.reload()
            continue
        if writes_catalogue:
            catalogue.advance()
        changes.announce(inserted[-1].revision, (kind.name,))
        for row, one in zip(inserted, prepared, strict=True):
            results[one.place] = Stored(
                document.compose(row.text, row.revision),
                row.revision,
                one.admitted.warnings,
                one.admitted.manifest["metadata"]["uid"],
            )
        break
    late = TooManyRequests("namespaces and classes change too quickly; try again")
    if all_or_nothing and None in results:
        raise late
    return [late if result is None else result for result in results]


class _New(msgspec.Struct, frozen=True):
    """An admitted object, and the place in the list of the request for it."""

    place: int
    admitted: admission.Admitted
    generated: bool


def _admit_new(
    kind: Kind,
    wanted: Sequence[tuple[str, Manifest, User]],
    places: Sequence[int],
    now: datetime,
    context: catalogue.Catalogue,
) -> tuple[list[_New], dict[int, StatusError]]:
    """Return what admission makes of new objects, and what it refuses, by place."""
    prepared: list[_New] = []
    refused: dict[int, StatusError] = {}
    for place in places:
        namespace, manifest, user = wanted[place]
        try:
            new, generated = storing.prepare(
                kind, namespace, manifest, now=now, uid=storing.new_uid()
            )
            admitted = admission.admit(kind.name, CREATE, new, None, "", context, user)
        except StatusError as error:
            refused[place] = error
            continue
        if kind.name == "Node":
            settled = nodes.settle_taints(admitted.manifest, None, now)
            admitted = admission.Admitted(settled, admitted.warnings)
        prepared.append(_New(place, admitted, generated))
    return prepared, refused


def update(
    kind: Kind | str,
    namespace: str,
    name: str,
    change: Callable[[Manifest], Manifest],
    *,
    now: datetime,
    user: User = NOBODY,
    subresource: str | None = "",
    dry_run: bool = False,
) -> Stored:
    """Replace an object by what ``change`` makes of it; only its part through a subresource.

    ``change`` receives the stored manifest and returns the wanted one; it may be called again with
    a newer version. A resourceVersion in its result must be the stored one. A result that
    differs in nothing writes nothing. An object that is being deleted and loses its last finalizer
    is removed. One transaction.

    Raises:
        NotFound: there is none. Conflict: a precondition does not hold.
        StatusError: what admission says, or ``change`` raises.
    """
    kind = kind_of(kind)
    subresource = subresource or ""
    if kind.name == "Pod":
        return update_pod(
            namespace, name, change, now=now, user=user, subresource=subresource, dry_run=dry_run
        )
    if kind.name == "Event":
        with storing.work(dry_run=dry_run):
            return events.update_event(namespace, name, change, now=now, user=user)
    with storing.work(dry_run=dry_run):
        if kind.in_catalogue:
            catalogue.lock_for_writing()
        context = catalogue.current()
        if kind.name == "Node":
            # Before the row lock: see the order above. A bind that waits sees this change.
            sql.run(f"SELECT pg_advisory_xact_lock_shared({changes.PLACEMENT_LOCK})")
        row = storing.lock_row(kind, namespace, name)
        old = row.manifest()
        new = storing.merge_update(kind, old, change(row.manifest()), subresource)
        admitted = admission.admit(kind.name, UPDATE, new, old, subresource, context, user)
        new = admitted.manifest
        if kind.name == "Node":
            new = nodes.settle_taints(new, old, now)
        text, _ = document.encode(kind.name, new)
        if storing.same(kind, row, old, new, text, document.EMPTY):
            return Stored(row.composed(), row.revision, admitted.warnings, row.uid, changed=False)
        if not subresource and kind.counts_generation:
            storing.bump_generation(kind, old, new)
            text, _ = document.encode(kind.name, new)
        warnings = admitted.warnings
        if kind.name == "Node" and storing.is_rehearsal():
            warnings = [*warnings, *eviction_warnings.for_node(old, new, now)]
        revision = _write(kind, row, old, new, text, now)
        return Stored(document.compose(text, revision), revision, warnings, row.uid)


def _write(kind: Kind, row: Row, old: Manifest, new: Manifest, text: str, now: datetime) -> int:
    """Write the new version of a locked row, or remove it if nothing keeps it any more."""
    if new["metadata"].get("deletionTimestamp") and not _is_kept(kind, new):
        revision = storing.delete_row(kind, row, now=now)
    else:
        placement = kind.name == "Node" and _offers_differ(old, new)
        logged = kind.name != "Lease" or not _is_renewal(old, new)
        revision = storing.update_row(
            kind, row, new, text, now=now, placement=placement, logged=logged
        )
        if kind.name == "Node":
            nodes.rewrite_taints(row.id, old, new)
        if not logged:
            return revision
    if kind.in_catalogue:
        catalogue.advance()
    changes.announce(revision, (kind.name,))
    return revision


def _is_kept(kind: Kind, manifest: Manifest) -> bool:
    if manifest["metadata"].get("finalizers"):
        return True
    return kind.name == "Namespace" and bool((manifest.get("spec") or {}).get("finalizers"))


def _offers_differ(old: Manifest, new: Manifest) -> bool:
    """Return whether a node's change can matter to a placement decided before it.

    Conditions are heartbeats and do not (taints speak for them).
    """
    if old.get("spec") != new.get("spec"):
        return True
    if old["metadata"].get("labels") != new["metadata"].get("labels"):
        return True
    before, after = old.get("status") or {}, new.get("status") or {}
    return any(before.get(field) != after.get(field) for field in _PLACEMENT_FIELDS)


def _is_renewal(old: Manifest, new: Manifest) -> bool:
    """Return whether a lease differs in nothing but its renewal time."""

    def without(manifest: Manifest) -> Manifest:
        spec = {k: v for k, v in (manifest.get("spec") or {}).items() if k != "renewTime"}
        metadata = {k: v for k, v in manifest["metadata"].items() if k != "managedFields"}
        metadata.pop("resourceVersion", None)
        return {**manifest, "metadata": metadata, "spec": spec}

    return without(old) == without(new)


def delete(
    kind: Kind | str,
    namespace: str,
    name: str,
    options: DeleteOptions | Manifest | None = None,
    *,
    now: datetime,
    user: User = NOBODY,
    dry_run: bool = False,
) -> Deleted:
    """Delete an object, or begin to: pods gracefully, namespaces by their content, others at once.

    ``options`` may be a checked DeleteOptions manifest; the grace period is for pods only. Objects
    with finalizers stay until these are gone; the propagation policy adds one, or takes it away,
    for the garbage collector to answer.

    Raises:
        NotFound: there is none. Conflict: a precondition does not hold.
        Forbidden: a namespace that may not be deleted.
    """
    kind = kind_of(kind)
    chosen = DeleteOptions.of(options)
    uid, version = chosen.uid, chosen.resource_version
    dry_run = dry_run or chosen.dry_run
    if kind.name == "Pod":
        return delete_pod(
            namespace,
            name,
            now=now,
            grace_seconds=chosen.grace_period_seconds,
            uid=uid,
            resource_version=version,
            user=user,
            dry_run=dry_run,
            propagation=chosen.propagation,
        )
    if kind.name == "Event":
        with storing.work(dry_run=dry_run):
            return events.delete_event(namespace, name, now=now)
    with storing.work(dry_run=dry_run):
        if kind.in_catalogue:
            catalogue.lock_for_writing()
        context = catalogue.current()
        row = storing.lock_row(kind, namespace, name)
        old = row.manifest()
        storing.check_preconditions(kind, old["metadata"], uid=uid, resource_version=version)
        admission.admit(kind.name, DELETE, None, old, "", context, user)
        kept = {**old, "metadata": dict(old["metadata"])}
        finalizers = old["metadata"].get("finalizers") or []
        wanted = finalizers_for(kind.name, finalizers, chosen.propagation)
        if wanted != finalizers:
            kept["metadata"]["finalizers"] = wanted
            if not wanted:
                del kept["metadata"]["finalizers"]
        if not _is_kept(kind, kept):
            revision = storing.delete_row(kind, row, now=now)
            if kind.in_catalogue:
                catalogue.advance()
            changes.announce(revision, (kind.name,))
            return Deleted(document.compose(row.text, revision), revision, row.uid, gone=True)
        new = kept
        if old["metadata"].get("deletionTimestamp"):
            if wanted == finalizers:
                return Deleted(row.composed(), row.revision, row.uid, gone=False)
        else:
            new["metadata"]["deletionTimestamp"] = document.format_time(now)
            if kind.name == "Namespace":
                new["status"] = {**(old.get("status") or {}), "phase": "Terminating"}
            else:
                new["metadata"]["deletionGracePeriodSeconds"] = 0
        text, _ = document.encode(kind.name, new)
        revision = _write(kind, row, old, new, text, now)
        return Deleted(document.compose(text, revision), revision, row.uid, gone=False)


def delete_collection(
    kind: Kind | str,
    namespace: str,
    options: DeleteOptions | Manifest | None = None,
    *,
    label_selector: str = "",
    field_selector: str = "",
    now: datetime,
    user: User = NOBODY,
) -> list[Deleted]:
    """Delete what the selectors match, one transaction for each object; return the answers.

    Objects that vanish meanwhile are passed over.
    """
    kind = kind_of(kind)
    chosen = DeleteOptions.of(options)
    page = list_page(
        kind,
        namespace,
        label_selector=label_selector,
        field_selector=field_selector,
        acknowledged=True,
    )
    result = []
    for item in page.items:
        metadata = decode_object(item)["metadata"]
        try:
            result.append(
                delete(
                    kind,
                    metadata.get("namespace", ""),
                    metadata["name"],
                    msgspec.structs.replace(chosen, uid=metadata["uid"]),
                    now=now,
                    user=user,
                )
            )
        except NotFound:
            continue
    return result


__all__ = [
    "DeleteOptions",
    "create",
    "create_all",
    "create_each",
    "delete",
    "delete_collection",
    "is_batched",
    "update",
]
