"""Updates the EndpointSlices and Endpoints of Services from their pods.

A follower of the change log with a cursor in a row, called every second: in a namespace in which a
pod, a Service or endpoints changed, the endpoints of all Services are recomputed, and differences
are written. A namespace whose Services select thousands of pods is processed less often, so that a
rollout there costs a few hundredths of a core. Rules:
pkg/controller/endpointslice/endpointslice_controller.go,
pkg/controller/endpoint/endpoints_controller.go and
pkg/controller/endpointslicemirroring/endpointslicemirroring_controller.go, v1.36.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import structlog
from django.conf import settings

from clusterstate.actions import objects
from clusterstate.actions.kinds import events
from clusterstate.actions.kinds.events import Occurrence
from clusterstate.actions.loops import aside
from clusterstate.actions.loops.aside import ObjectRef
from clusterstate.database import locks
from clusterstate.objects.values.actor import acting, controller
from clusterstate.objects.values.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    NotFound,
    StatusError,
)
from clusterstate.objects.values.meta import Manifest
from clusterstate.processes import memory
from clusterstate.queries.loops.controllers import PendingWork
from clusterstate.queries.objects.workloads import namespaces_with, objects_in
from scheduling.controllers import by_namespace
from scheduling.controllers.endpoints import legacy, mirrors, slices
from scheduling.controllers.endpoints.pods import Pods
from scheduling.controllers.endpoints.targets import FAMILIES, Target, families, is_served
from scheduling.controllers.workloads.world import daemon_nodes, manifests

logger = structlog.get_logger(__name__)

NAME: Final = "endpoints"
SLICES: Final = "endpointslice"
LEGACY: Final = "endpoint"
MIRRORS: Final = "endpointslicemirroring"
"""What the three are called in ``STOWAGE_CONTROLLERS``."""
ZONE: Final = "topology.kubernetes.io/zone"
_SERVICE, _SLICE, _ENDPOINTS = "Service", "EndpointSlice", "Endpoints"
_ACCOUNTS: Final = {
    SLICES: "endpointslice-controller",
    LEGACY: "endpoint-controller",
    MIRRORS: "endpointslicemirroring-controller",
}
_RETRY: Final = timedelta(seconds=15)
_LONGEST_REST: Final = timedelta(seconds=60)
_AT_ONCE: Final = 2_000
"""For each this many pods of its Services a namespace is looked at a second later."""


_resting: dict[str, datetime] = {}
"""Until when large namespaces are left alone."""
memory.when_replaced(_resting.clear)


def is_on() -> bool:
    """Return whether this service maintains endpoints."""
    return not _ACCOUNTS.keys().isdisjoint(settings.CONTROLLERS)


def has_work(pending: PendingWork, now: datetime) -> bool:
    """Return whether the log has new changes, or a refused write is due again."""
    return is_on() and (pending.is_behind(NAME) or by_namespace.is_due(NAME, pending, now))


def follow(now: datetime) -> int:
    """Update endpoints up to the end of the log; return how many objects were written."""
    if not is_on():
        return 0
    with locks.alone(locks.ENDPOINTS) as mine:
        return _pass(now) if mine else 0


def _pass(now: datetime) -> int:
    written = 0
    read: list[dict[str, str]] = []

    def zones() -> dict[str, str]:
        if not read:
            read.append({one.name: one.labels.get(ZONE, "") for one in daemon_nodes()})
        return read[0]

    def present(cursor: int | None, mark: int) -> set[str]:
        del cursor, mark
        return set(namespaces_with([_SERVICE, _ENDPOINTS]))

    def sync(namespace: str) -> datetime | None:
        nonlocal written
        until = _resting.get(namespace)
        if until is not None and now < until <= now + _LONGEST_REST:
            return until
        one = _Namespace(namespace, zones(), now)
        one.sync()
        written += one.written
        return one.due_at

    by_namespace.follow(
        NAME,
        now,
        kinds=("Pod", "Node", _SERVICE, _SLICE, _ENDPOINTS),
        present=present,
        sync=sync,
        around=by_namespace.Around(zones, lambda: set(namespaces_with([_SERVICE]))),
    )
    return written


class _Namespace:
    """A namespace whose endpoints are updated.

    ``zones`` are those of the nodes, by name, empty for none. ``written``: how many objects were
    written. ``due_at``: when to retry refused writes.
    """

    def __init__(self, name: str, zones: Mapping[str, str], now: datetime) -> None:
        self._name, self._zones, self._now = name, zones, now
        self.written = 0
        self.due_at: datetime | None = None

    def sync(self) -> None:
        """Update all endpoints of the namespace."""
        services = manifests(objects_in(_SERVICE, self._name))
        served = [
            one
            for one in services
            if is_served(one) and not one["metadata"].get("deletionTimestamp")
        ]
        pods = Pods(self._name, [one["spec"]["selector"] for one in served])
        _rest(self._name, pods.count, self._now)
        present = slices.by_service(manifests(objects_in(_SLICE, self._name)))
        legacies = {
            one["metadata"]["name"]: one for one in manifests(objects_in(_ENDPOINTS, self._name))
        }

        def work(service: Manifest) -> None:
            name = service["metadata"]["name"]
            mine = pods.chosen_by(service["spec"]["selector"])
            self._as(SLICES, service, lambda: self._slices(service, present.get(name, []), mine))
            self._as(LEGACY, service, lambda: self._legacy(service, legacies.get(name), mine))

        for service in served:
            self._alone(service, work)
        if LEGACY in settings.CONTROLLERS:
            with acting(controller(_ACCOUNTS[LEGACY])):
                self._remove_forsaken(
                    legacies.values(), {one["metadata"]["name"] for one in services}
                )
        if MIRRORS in settings.CONTROLLERS:
            by_hand = {
                one["metadata"]["name"]
                for one in services
                if mirrors.is_by_hand(one) and not one["metadata"].get("deletionTimestamp")
            }
            for name in sorted({*by_hand & legacies.keys(), *present}):
                endpoints = legacies.get(name) if name in by_hand else None
                if endpoints is not None or mirrors.of_mine(present.get(name, ())):
                    self._mirror(endpoints, present.get(name, []))

    def _alone(self, one: Manifest, work: Callable[[Manifest], None]) -> None:
        """Work on one object; if it fails it is set aside for a while, and the others continue."""
        which = ObjectRef(one["kind"], namespace=self._name, name=one["metadata"]["name"])
        aside.one(
            NAME,
            which,
            lambda: work(one),
            now=self._now,
            instead=lambda: self._look_again(by_namespace.AGAIN),
        )

    def _look_again(self, after: timedelta) -> None:
        at = self._now + after
        self.due_at = at if self.due_at is None else min(self.due_at, at)

    def _as(self, which: str, about: Manifest, work: Callable[[], None]) -> None:
        """Do one controller's work on an object; record a refusal as an event, and retry later."""
        if which not in settings.CONTROLLERS:
            return
        with acting(controller(_ACCOUNTS[which])):
            try:
                work()
            except StatusError as error:
                if _is_ending(error):
                    return
                self._look_again(_RETRY)
                self._record_refusal(which, about, error.message)

    def _record_refusal(self, which: str, about: Manifest, why: str) -> None:
        plural = "Endpoints" if which == LEGACY else "EndpointSlices"
        metadata, kind = about["metadata"], about["kind"]
        news = Occurrence(
            kind=kind,
            namespace=self._name,
            name=metadata["name"],
            uid=metadata["uid"],
            type="Warning",
            reason=f"FailedToUpdate{plural}",
            message=f"Error updating {plural} for {kind} {self._name}/{metadata['name']}: {why}",
            component=_ACCOUNTS[which],
        )
        events.record_many([news], now=self._now)
        logger.warning("endpoints_refused", kind=kind, name=metadata["name"], error=why)

    # Writing --------------------------------------------------------------------------------------

    def _slices(
        self, service: Manifest, present: Sequence[Manifest], targets: Sequence[Target]
    ) -> None:
        mine = [one for one in present if slices.is_mine(one)]
        served = families(service)
        for family in served:
            actions = slices.reconcile(service, mine, targets, self._zones, family)
            self._carry_out(actions, slices.marks_of(service), family)
        for one in mine:
            if one.get("addressType") not in served:
                self._delete(_SLICE, one)

    def _mirror(self, endpoints: Manifest | None, present: Sequence[Manifest]) -> None:
        """Update the slices that mirror Endpoints which a client wrote."""
        mine = mirrors.of_mine(present)
        if endpoints is None or not mirrors.is_mirrored(endpoints):
            with acting(controller(_ACCOUNTS[MIRRORS])):
                for one in mine:
                    self._delete(_SLICE, one)
            return
        marks = mirrors.marks_of(endpoints)

        def work(endpoints: Manifest) -> None:
            for family in FAMILIES:
                self._carry_out(mirrors.reconcile(endpoints, mine, family), marks, family)

        self._alone(endpoints, lambda one: self._as(MIRRORS, one, lambda: work(one)))

    def _carry_out(self, actions: slices.SliceWrites, marks: slices.Marks, family: str) -> None:
        for one, content in actions.update:
            change = partial(slices.changed, content=content, marks=marks)
            self._update(_SLICE, one, change)
        for content in actions.create:
            self._create(_SLICE, slices.new_slice(self._name, marks, family, content))
        for one in actions.delete:
            self._delete(_SLICE, one)

    def _legacy(self, service: Manifest, there: Manifest | None, targets: Sequence[Target]) -> None:
        name = service["metadata"]["name"]
        subsets, too_many = legacy.subsets(service, targets, self._zones)
        labels = legacy.labels_of(service)

        def changed(old: Manifest) -> Manifest:
            metadata = {**old["metadata"], "labels": labels}
            marks = dict(metadata.get("annotations") or {})
            marks.pop(legacy.OVER_CAPACITY, None)
            if too_many:
                marks[legacy.OVER_CAPACITY] = "truncated"
            metadata.pop("annotations", None)
            metadata |= {"annotations": marks} if marks else {}
            rest = {key: value for key, value in old.items() if key != "subsets"}
            return {**rest, "metadata": metadata, **({"subsets": subsets} if subsets else {})}

        if there is None:
            bare = {"metadata": {"name": name, "namespace": self._name}}
            self._create(_ENDPOINTS, {"apiVersion": "v1", "kind": _ENDPOINTS, **changed(bare)})
        elif changed(there) != there:
            self._update(_ENDPOINTS, there, changed)

    def _remove_forsaken(self, present: Iterable[Manifest], services: set[str]) -> None:
        """Delete Endpoints of deleted Services, since they have no owner reference."""
        for one in present:
            if one["metadata"]["name"] not in services and legacy.is_mine(one):
                self._delete(_ENDPOINTS, one)

    def _create(self, kind: str, manifest: Manifest) -> None:
        try:
            objects.create(kind, self._name, manifest, now=self._now)
        except AlreadyExists:
            return  # it exists already; the log has it, so the next pass processes it
        self.written += 1

    def _update(self, kind: str, one: Manifest, change: Callable[[Manifest], Manifest]) -> None:
        uid = one["metadata"]["uid"]

        def changed(old: Manifest) -> Manifest:
            return change(old) if old["metadata"]["uid"] == uid else old

        try:
            name = one["metadata"]["name"]
            stored = objects.update(kind, self._name, name, changed, now=self._now)
        except NotFound:
            return
        self.written += int(stored.changed)

    def _delete(self, kind: str, one: Manifest) -> None:
        metadata = one["metadata"]
        options = {"preconditions": {"uid": metadata["uid"]}}
        try:
            objects.delete(kind, self._name, metadata["name"], options, now=self._now)
        except (NotFound, Conflict):
            return
        self.written += 1


def _is_ending(error: StatusError) -> bool:
    """Return whether a creation was refused because its namespace ends."""
    if isinstance(error, NotFound):
        return True
    causes = error.details.get("causes") or ()
    return isinstance(error, Forbidden) and any(
        one.get("reason") == "NamespaceTerminating" for one in causes
    )


def _rest(namespace: str, pods: int, now: datetime) -> None:
    """Pause a namespace with very many pods for a while."""
    seconds = pods // _AT_ONCE
    if seconds:
        _resting[namespace] = now + min(timedelta(seconds=seconds), _LONGEST_REST)
    else:
        _resting.pop(namespace, None)
