"""The garbage collector: deletes, frees or keeps the dependents of deleted owners, of any kind.

A follower of the change log. It keeps in memory which objects name which owners
(``clusterstate.queries.objects.dependents``); when an owner is deleted, or an object appears whose
owners do not exist, it reads the rows, and ``objects.rules.ownership`` decides about each
dependent. An owner that was deleted with *Orphan* or *Foreground* stays until its dependents are
freed, or until those that block it are gone.

    delete, Background   -> owner gone -> dependents deleted -> theirs in turn
    delete, Orphan       -> finalizer  -> references removed from dependents -> finalizer removed
    delete, Foreground   -> finalizer  -> dependents deleted -> none blocks any more -> removed

Objects that own each other in a circle would wait for each other for ever: so an object that waits
for its own dependents no longer blocks its owners.

A claim, a volume or a group of pods has a finalizer that keeps it while it is used
(``ownership.PROTECTIONS``). The collector removes the finalizer from a terminating one as soon as
nothing uses it.

The graph in memory only serves to find dependents. Each process builds its own from the rows when
it starts. Before acting, the collector reads the rows again, with the uid as precondition, so
acting twice, or after a crash, does no harm. Source: pkg/controller/garbagecollector, v1.36.
"""

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from functools import partial

import structlog

from clusterstate.actions import objects
from clusterstate.actions.loops import aside, controller_state
from clusterstate.actions.loops.aside import ObjectRef
from clusterstate.change_log import changes
from clusterstate.database import locks
from clusterstate.objects.rules.ownership import (
    FOREGROUND,
    ORPHAN,
    PROTECTIONS,
    Owner,
    Reference,
    State,
    Verdict,
    judge,
    references,
)
from clusterstate.objects.values.errors import Conflict, NotFound, StatusError
from clusterstate.objects.values.meta import Manifest
from clusterstate.processes import memory
from clusterstate.queries.loops.controllers import PendingWork
from clusterstate.queries.objects import decode_object, dependents, find_object
from clusterstate.queries.objects.dependents import Dependent, Key
from clusterstate.queries.pods import claim_users, member_of, pod_manifests, present

logger = structlog.get_logger(__name__)

NAME = "garbage"
BURST = 500
"""Dependents of one owner that are looked at in a pass; the next passes look at the others."""
_ROUNDS = 8
"""Rounds of a pass: what a round deletes may own other objects, which the next round looks at."""

_Item = int | Key
"""A dependent as it is remembered: an object, or the class of some pods."""


class _Graph:
    """The graph of owner references, as of ``cursor`` of the log."""

    def __init__(self) -> None:
        self.cursor = -1
        self.owned: dict[Owner, set[_Item]] = defaultdict(set)
        self.named: dict[Key, set[Owner]] = defaultdict(set)
        self.owners: dict[_Item, set[Owner]] = {}
        self.unfinished: set[Owner] = set()
        """Owners to look at: they may be gone, or have more dependents than one pass looks at.

        An object in this list stays until it was looked at, whatever fails meanwhile.
        """
        self.ending: set[Key] = set()
        """Objects that are being deleted and wait for this collector, or may."""
        self.users: dict[Key, int] = {}
        """Claims of ``ending`` that are used: the id of a pod that uses each."""
        self.claims: dict[str, dict[str, int]] = {}
        """The results of ``claim_users`` in this pass, by namespace."""

    def add(self, item: _Item, refs: Iterable[Reference]) -> set[Owner]:
        """Add an item's owners to those known; return the owners in ``refs``."""
        found = {reference.owner for reference in refs}
        for owner in found:
            self.owned[owner].add(item)
            self.named[owner.kind, owner.namespace, owner.name].add(owner)
        self.owners[item] = self.owners.get(item, set()) | found
        return found

    def drop(self, item: _Item) -> None:
        """Remove an item from the graph."""
        for owner in self.owners.pop(item, ()):
            self.owned[owner].discard(item)
            self._forget_if_alone(owner)

    def forget(self, owner: Owner) -> None:
        """Remove an owner that nothing names any more."""
        for item in self.owned.pop(owner, ()):
            self.owners[item].discard(owner)
        self._forget_if_alone(owner)

    def _forget_if_alone(self, owner: Owner) -> None:
        if self.owned.get(owner):
            return
        self.owned.pop(owner, None)
        key = (owner.kind, owner.namespace, owner.name)
        self.named[key].discard(owner)
        if not self.named[key]:
            del self.named[key]

    def read(self, dependent: Dependent) -> set[Owner]:
        """Apply an object of the log; return the owners to check."""
        suspects = set(self.named.get(dependent.key, ())) if dependent.deleted else set()
        self.drop(dependent.key)
        if dependent.deleted:
            self.ending.discard(dependent.key)
        elif dependent.terminating:
            self.ending.add(dependent.key)
        if dependent.manifest is not None:
            refs = references(dependent.key[0], dependent.manifest)
            if refs:
                suspects |= self.add(dependent.key, refs)
        return suspects


_MetadataChange = Callable[[Manifest], Manifest]

_graphs: list[_Graph] = []
"""This process's memory: none, or one."""
memory.when_replaced(_graphs.clear)


def has_work(pending: PendingWork) -> bool:
    """Return whether the log has changes, work is unfinished, or the graph is not built."""
    graph = _remembered()
    if graph is None or pending.is_behind(NAME):
        return True
    return bool(graph.unfinished or graph.ending)


def follow(now: datetime) -> int:
    """Process changes and collect; return how many objects were deleted, freed or released.

    Does nothing while another pass runs.
    """
    with locks.alone(locks.GARBAGE) as mine:
        if not mine:
            return 0
        total = 0
        for _ in range(_ROUNDS):
            done = _pass(now)
            total += done
            if not done:
                break
        if (graph := _remembered()) is not None:
            controller_state.set_cursor(NAME, graph.cursor)
        if total:
            logger.info("garbage_collected", count=total)
        return total


def _pass(now: datetime) -> int:
    graph = _remembered()
    if graph is None or not _read_news(graph):
        graph = _load()
    states = dependents.states(graph.unfinished)
    done = 0
    for owner in sorted(states, key=_order):
        graph.unfinished.discard(owner)
        if states[owner] is State.ABSENT:
            which = ObjectRef(owner.kind, namespace=owner.namespace, name=owner.name)
            try:
                done += _alone(which, partial(_collect, graph, owner, states, now), now)
            except BaseException:
                graph.unfinished.add(owner)  # the database failed: the next pass tries again
                raise
    graph.claims = {}
    there = present(graph.users.values())
    graph.users = {
        key: user for key, user in graph.users.items() if user in there and key in graph.ending
    }
    for key in sorted(graph.ending):
        kind, namespace, name = key
        which = ObjectRef(kind, namespace=namespace, name=name)
        done += _alone(which, partial(_end, graph, key, now), now)
    return done


def _alone(which: ObjectRef, work: Callable[[], int], now: datetime) -> int:
    """Work on one owner or object; 0 if it was set aside."""
    return aside.one(NAME, which, work, now=now, instead=lambda: 0)


def _order(owner: Owner) -> tuple[str, str, str, str]:
    return owner.kind, owner.namespace, owner.name, owner.uid


def _remembered() -> _Graph | None:
    """Return the graph, None if there is none; another thread may drop it at any time."""
    return next(iter(_graphs), None)


def _load() -> _Graph:
    """Build the graph from the rows, and cache it; all owners must be checked."""
    graph = _Graph()
    graph.cursor = changes.watermark()
    found, pods = dependents.everything()
    for dependent in found:
        graph.read(dependent)
    for one in pods:
        graph.add(one.class_id, one.references)
    graph.ending |= set(dependents.ending_pods())
    graph.unfinished |= set(graph.owned)
    _graphs[:] = [graph]
    return graph


def _read_news(graph: _Graph) -> bool:
    """Follow the log and collect the owners to check; False if the log was trimmed too far."""
    while True:
        pod_owners = [key for key in graph.named if key[0] == "Pod"]
        news = dependents.news(graph.cursor, pod_owners=pod_owners)
        if news is None:
            return False
        for dependent in news.objects:
            graph.unfinished |= graph.read(dependent)
        for one in news.pods:
            graph.unfinished |= graph.add(one.class_id, one.references)
        for key in news.deleted_pods:
            graph.unfinished |= graph.named.get(key, set())
        graph.ending |= set(news.terminating_pods)
        if news.cursor == graph.cursor:
            return True
        graph.cursor = news.cursor


# Dependents -----------------------------------------------------------------------------------


def _dependents(
    graph: _Graph, owner: Owner, now: datetime, *, live: bool = False
) -> Iterator[tuple[str, Manifest, list[Reference]]]:
    """Yield kind, manifest and owners of objects that name the owner now; at most ``BURST``.

    ``live``: of pods only those that are not being deleted.
    """
    items = graph.owned.get(owner, set())
    class_ids = sorted(item for item in items if isinstance(item, int))
    found: list[tuple[ObjectRef, bytes | None]] = [
        (ObjectRef(key[0], namespace=key[1], name=key[2]), find_object(*key))
        for key in sorted(item for item in items if not isinstance(item, int))
    ]
    if class_ids:
        ids = dependents.pods_of(owner, class_ids, graph.cursor, live=live, limit=BURST)
        manifests = pod_manifests(ids)
        found += [(aside.pod(pod_id), manifests.get(pod_id)) for pod_id in ids]
    for which, text in found[:BURST]:
        if text is None:
            continue
        for manifest, refs in aside.each(
            NAME,
            [(which, text)],
            lambda some: _read(*some[0]),
            which=lambda one: one[0],
            now=now,
        ):
            if refs and any(reference.owner == owner for reference in refs):
                yield which.kind, manifest, refs


def _read(which: ObjectRef, text: bytes) -> tuple[Manifest, list[Reference] | None]:
    manifest = decode_object(text)
    return manifest, references(which.kind, manifest)


def _collect(graph: _Graph, owner: Owner, states: dict[Owner, State], now: datetime) -> int:
    """Process the dependents of an owner that is gone or waits; return how many changed."""
    done = looked = 0
    for kind, manifest, refs in _dependents(graph, owner, now, live=True):
        looked += 1
        work = partial(_judge, graph, kind, manifest, refs, states, now)
        done += _alone(_which(kind, manifest), work, now)
    if looked >= BURST:
        graph.unfinished.add(owner)
    elif not looked and states.get(owner) is State.ABSENT:
        graph.forget(owner)
    return done


def _judge(
    graph: _Graph,
    kind: str,
    manifest: Manifest,
    refs: list[Reference],
    states: dict[Owner, State],
    now: datetime,
) -> int:
    metadata = manifest["metadata"]
    if metadata.get("deletionTimestamp"):
        return 0  # it is being deleted; programs remove its finalizers
    states |= dependents.states(one.owner for one in refs if one.owner not in states)
    own = _identity(kind, manifest)
    has_dependents = bool(graph.owned.get(own))
    is_waited_for = any(states[one.owner] is State.WAITING for one in refs)
    verdict = judge(
        [(one, states[one.owner]) for one in refs],
        finalizers=metadata.get("finalizers") or (),
        has_dependents=has_dependents,
        dependents_wait=has_dependents and is_waited_for and _dependents_wait(graph, own),
    )
    return _act(own, verdict, now)


def _dependents_wait(graph: _Graph, own: Owner) -> bool:
    """Return whether a dependent of an object waits for dependents of its own."""
    items = graph.owned.get(own, set())
    for key in sorted(item for item in items if not isinstance(item, int)):
        text = find_object(*key) if key in graph.ending else None
        if text is not None and FOREGROUND in (
            decode_object(text)["metadata"].get("finalizers") or ()
        ):
            return True
    class_ids = sorted(item for item in items if isinstance(item, int))
    return bool(class_ids) and dependents.is_a_pod_of_it_waiting(own, class_ids, graph.cursor)


def _free(kind: str, manifest: Manifest, owner: Owner, now: datetime) -> int:
    """Remove an owner from the references of a dependent."""
    return _act(_identity(kind, manifest), Verdict(release=frozenset({owner.uid})), now)


def _identity(kind: str, manifest: Manifest) -> Owner:
    metadata = manifest["metadata"]
    return Owner(kind, metadata.get("namespace") or "", metadata["name"], metadata["uid"])


def _which(kind: str, manifest: Manifest) -> ObjectRef:
    metadata = manifest["metadata"]
    return ObjectRef(kind, namespace=metadata.get("namespace") or "", name=metadata["name"])


def _act(own: Owner, verdict: Verdict, now: datetime) -> int:
    try:
        if verdict.unblock:
            _change(own, _unblocking, now)
        if verdict.delete is not None:
            options = {
                "preconditions": {"uid": own.uid},
                "propagationPolicy": verdict.delete.value,
            }
            objects.delete(own.kind, own.namespace, own.name, options, now=now)
            return 1
        if verdict.release:
            return _change(own, lambda meta: _released(meta, verdict.release), now)
    except (NotFound, Conflict):
        return 0
    except StatusError as error:
        logger.warning("garbage_stays", kind=own.kind, name=own.name, error=error.message)
    return 0


def _released(metadata: Manifest, uids: frozenset[str]) -> Manifest:
    remaining = [one for one in metadata.get("ownerReferences") or () if one.get("uid") not in uids]
    rest = {key: value for key, value in metadata.items() if key != "ownerReferences"}
    return {**rest, "ownerReferences": remaining} if remaining else rest


def _unblocking(metadata: Manifest) -> Manifest:
    """Return the metadata without ``blockOwnerDeletion``."""
    owners = metadata.get("ownerReferences") or ()
    freed = [
        {**one, "blockOwnerDeletion": False} if one.get("blockOwnerDeletion") else one
        for one in owners
    ]
    return {**metadata, "ownerReferences": freed}


def _change(own: Owner, change: _MetadataChange, now: datetime) -> int:
    """Change an object's metadata if its uid is still the same."""

    def changed(manifest: Manifest) -> Manifest:
        if manifest["metadata"]["uid"] != own.uid:
            return manifest
        return {**manifest, "metadata": change(manifest["metadata"])}

    return int(objects.update(own.kind, own.namespace, own.name, changed, now=now).changed)


# Owners that wait -----------------------------------------------------------------------------


def _end(graph: _Graph, key: Key, now: datetime) -> int:
    """Do what a terminating object's finalizers require; return how much was done."""
    text = find_object(*key)
    manifest = {"metadata": {}} if text is None else decode_object(text)
    metadata = manifest["metadata"]
    finalizers = metadata.get("finalizers") or ()
    protection = PROTECTIONS.get(key[0], "")
    ours = {ORPHAN, FOREGROUND, protection}
    if not metadata.get("deletionTimestamp") or not ours & set(finalizers):
        graph.ending.discard(key)
        return 0
    own = Owner(*key, metadata["uid"])
    done = 0
    try:
        if protection in finalizers and not _is_used(graph, key, manifest):
            done += _let_go(own, protection, now)
        if ORPHAN in finalizers:
            freed = [
                _alone(_which(kind, one), partial(_free, kind, one, own, now), now)
                for kind, one, _ in _dependents(graph, own, now)
            ]
            done += sum(freed)
            if not freed:
                done += _let_go(own, ORPHAN, now)
        elif FOREGROUND in finalizers:
            done += _collect(graph, own, {own: State.WAITING}, now)
            blocked = any(
                reference.blocks and reference.owner == own
                for _, _, refs in _dependents(graph, own, now)
                for reference in refs
            )
            if not blocked:
                done += _let_go(own, FOREGROUND, now)
    except StatusError as error:
        logger.warning("garbage_stays", kind=own.kind, name=own.name, error=error.message)
    return done


def _is_used(graph: _Graph, key: Key, manifest: Manifest) -> bool:
    """Return whether a pod uses a claim or belongs to a group, or a claim has a volume.

    Rules: pkg/controller/volume/pvcprotection and pvprotection, and
    pkg/controller/scheduling/podgroup, v1.36. A finished pod no longer belongs to its group, so for
    a group its members are read each time.
    """
    kind, namespace, name = key
    if kind == "PersistentVolume":
        return (manifest.get("status") or {}).get("phase") == "Bound"
    if kind == "PodGroup":
        return member_of(namespace, name) is not None
    if key in graph.users:
        return True
    if namespace not in graph.claims:
        graph.claims[namespace] = claim_users(namespace)
    user = graph.claims[namespace].get(name)
    if user is not None:
        graph.users[key] = user
    return user is not None


def _let_go(own: Owner, finalizer: str, now: datetime) -> int:
    def without(metadata: Manifest) -> Manifest:
        remaining = [one for one in metadata.get("finalizers") or () if one != finalizer]
        rest = {key: value for key, value in metadata.items() if key != "finalizers"}
        return {**rest, "finalizers": remaining} if remaining else rest

    return _change(own, without, now)
