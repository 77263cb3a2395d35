"""Keeps the EndpointSlices and Endpoints of Services as their pods are.

A follower of the change log with a cursor in a row, called every second: in a namespace in which a
pod, a Service or endpoints changed, the endpoints of all Services are worked out again, and what
differs is written. Documents of pods are remembered by their ids, since they never change; one
without an address, as pods have that no agent reported, is not even read. A namespace whose
Services select thousands of pods is looked at less often, so that a rollout there costs a few
hundredths of a core. Rules: pkg/controller/endpointslice/endpointslice_controller.go and
pkg/controller/endpoint/endpoints_controller.go, v1.36.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
import structlog
from django.conf import settings

from clusterstate import changes, locks, memory
from clusterstate.actions import aside, controller_state, events, objects
from clusterstate.actions.aside import Which
from clusterstate.actions.events import Occurrence
from clusterstate.objects import document
from clusterstate.objects.actor import acting, controller
from clusterstate.objects.errors import AlreadyExists, Conflict, Forbidden, NotFound, StatusError
from clusterstate.objects.labels import selector_from_set
from clusterstate.objects.meta import Manifest
from clusterstate.queries.controllers import PendingWork, stored_state
from clusterstate.queries.namespaces import changed_namespaces
from clusterstate.queries.workloads import (
    documents_with_addresses,
    labels_of_classes_in,
    namespaces_with,
    objects_in,
    pods_of_classes,
)
from scheduling.controllers.endpoints import legacy, slices
from scheduling.controllers.endpoints.targets import PodPort, Target, families, is_served
from scheduling.controllers.workloads.world import daemon_nodes, manifests

logger = structlog.get_logger(__name__)

NAME: Final = "endpoints"
SLICES: Final = "endpointslice"
LEGACY: Final = "endpoint"
"""What the two are called in ``STOWAGE_CONTROLLERS``."""
ZONE: Final = "topology.kubernetes.io/zone"
_SERVICE, _SLICE, _ENDPOINTS = "Service", "EndpointSlice", "Endpoints"
_ACCOUNTS: Final = {SLICES: "endpointslice-controller", LEGACY: "endpoint-controller"}
_CLUSTER: Final = ""
"""The namespace, in the log, of objects that have none."""
_RETRY: Final = timedelta(seconds=15)
_LONGEST_REST: Final = timedelta(seconds=60)
_MOST: Final = 200_000
"""Pods that are remembered; beyond it all are forgotten, and read when they are met again."""
_AT_ONCE: Final = 2_000
"""For each so many pods of its Services a namespace is looked at a second later."""


class _Address(msgspec.Struct, frozen=True):
    ip: str = ""


class _Condition(msgspec.Struct, frozen=True):
    type: str = ""
    status: str = ""


class _Port(msgspec.Struct, frozen=True, rename="camel"):
    container_port: int
    name: str = ""
    protocol: str = "TCP"


class _Container(msgspec.Struct, frozen=True, rename="camel"):
    ports: tuple[_Port, ...] = ()
    restart_policy: str = ""


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    containers: tuple[_Container, ...] = ()
    init_containers: tuple[_Container, ...] = ()
    hostname: str = ""
    subdomain: str = ""


class _Status(msgspec.Struct, frozen=True):
    conditions: tuple[_Condition, ...] = ()
    pod_ip: str = msgspec.field(default="", name="podIP")
    pod_ips: tuple[_Address, ...] = msgspec.field(default=(), name="podIPs")


class _Pod(msgspec.Struct, frozen=True):
    spec: _Spec = _Spec()
    status: _Status = _Status()


_WITHOUT_ADDRESS: Final = _Pod()
_decode = msgspec.json.Decoder(_Pod).decode
_decode_labels = msgspec.json.Decoder(dict[str, str]).decode

_pods: dict[int, _Pod] = {}
"""What documents of pods say, by id."""
_resting: dict[str, datetime] = {}
"""Until when large namespaces are left alone."""
memory.when_replaced(_resting.clear)
_zones: list[dict[str, str]] = []
"""The zones of nodes as the Services have seen them: none, or one mapping."""
memory.when_replaced(_pods.clear)
memory.when_replaced(_zones.clear)


def is_on() -> bool:
    """Return whether endpoints are this service's work."""
    return SLICES in settings.CONTROLLERS or LEGACY in settings.CONTROLLERS


def has_work(seen: PendingWork, now: datetime) -> bool:
    """Return whether anything was written, or something that was refused is due again."""
    return is_on() and (seen.is_behind(NAME) or bool(_due(seen.states.get(NAME, {}), now)))


def _due(kept: Mapping[str, str], now: datetime) -> list[str]:
    return [name for name, at in kept.items() if document.parse_time(at) <= now]


def follow(now: datetime) -> int:
    """Bring endpoints up to date with the log; return how many objects were written."""
    if not is_on():
        return 0
    with locks.alone(locks.ENDPOINTS) as mine:
        return _pass(now) if mine else 0


def _pass(now: datetime) -> int:
    cursor = controller_state.cursor(NAME)
    kept: dict[str, Any] = stored_state(NAME)
    before = dict(kept)
    mark = changes.watermark()
    followed = ("Pod", "Node", _SERVICE, _SLICE, _ENDPOINTS)
    found = None if cursor is None else changed_namespaces(cursor, mark, followed)
    present = set(namespaces_with([_SERVICE, _ENDPOINTS]))
    chosen = present if found is None else present & {*found, *_due(kept, now)}
    if present and (found is None or _CLUSTER in found) and _are_zones_others():
        chosen = present
    written = 0
    for namespace in sorted(chosen):
        until = _resting.get(namespace)
        if until is not None and now < until <= now + _LONGEST_REST:
            kept[namespace] = until.isoformat()
            continue
        done = aside.each(
            NAME,
            [namespace],
            lambda names: _Namespace(names[0], now).sync(),
            which=lambda name: Which("Namespace", name=name),
            now=now,
        )
        kept.pop(namespace, None)
        if done:
            count, due_at = done[0]
            written += count
            if due_at is not None:
                kept[namespace] = due_at.isoformat()
    kept = {name: at for name, at in kept.items() if name in present}
    if kept != before:
        controller_state.set_state(NAME, kept)
    if cursor is None or mark > cursor:
        controller_state.set_cursor(NAME, mark)
    return written


def _are_zones_others() -> bool:
    """Return whether nodes came, went or moved, since this process last asked."""
    found = {one.name: one.labels.get(ZONE, "") for one in daemon_nodes()}
    if _zones == [found]:
        return False
    _zones[:] = [found]
    return True


class _Namespace:
    """A namespace, the pods that its Services may select, and the events to record about it."""

    def __init__(self, name: str, now: datetime) -> None:
        self._name, self._now = name, now
        self._written = 0
        self._due_at: datetime | None = None
        self._classes = {
            class_id: _decode_labels(labels)
            for class_id, labels in labels_of_classes_in(name).items()
        }
        if not _zones:
            _are_zones_others()

    def sync(self) -> tuple[int, datetime | None]:
        """Bring all endpoints here up to date; return how many were written, when to try again."""
        services = manifests(objects_in(_SERVICE, self._name))
        served = [
            one
            for one in services
            if is_served(one) and not one["metadata"].get("deletionTimestamp")
        ]
        chosen = {one["metadata"]["uid"]: self._classes_of(one) for one in served}
        targets = self._targets(sorted({id_ for some in chosen.values() for id_ in some}))
        _rest(self._name, len(targets), self._now)
        present = manifests(objects_in(_SLICE, self._name))
        legacies = manifests(objects_in(_ENDPOINTS, self._name))

        def work(service: Manifest) -> None:
            ids = chosen[service["metadata"]["uid"]]
            mine = [target for class_id, target in targets if class_id in ids]
            self._as(SLICES, service, lambda: self._slices(service, present, mine))
            self._as(LEGACY, service, lambda: self._legacy(service, legacies, mine))

        for service in served:
            metadata = service["metadata"]
            which = Which(_SERVICE, namespace=self._name, name=metadata["name"])
            aside.each(
                NAME,
                [service],
                lambda some: work(some[0]),
                which=lambda one, which=which: which,  # type: ignore[misc]  # bound now
                now=self._now,
            )
        if LEGACY in settings.CONTROLLERS:
            with acting(controller(_ACCOUNTS[LEGACY])):
                self._remove_forsaken(legacies, {one["metadata"]["name"] for one in services})
        return self._written, self._due_at

    def _classes_of(self, service: Manifest) -> set[int]:
        selector = selector_from_set(service["spec"]["selector"])
        return {id_ for id_, labels in self._classes.items() if selector.matches(labels)}

    def _targets(self, class_ids: Sequence[int]) -> list[tuple[int, Target]]:
        """Return the pods of these classes, with their class. Queries once or twice."""
        rows = pods_of_classes(self._name, class_ids) if class_ids else []
        rows = [row for row in rows if row.node_name]
        _read([row.document_id for row in rows])
        found = []
        for row in rows:
            pod = _pods.get(row.document_id)
            if pod is None or pod is _WITHOUT_ADDRESS:
                continue  # removed meanwhile, or nothing that a Service could send anything to
            target = Target(
                uid=row.uid,
                name=row.name,
                phase=row.phase,
                node_name=row.node_name,
                is_ready=any(
                    one.type == "Ready" and one.status == "True" for one in pod.status.conditions
                ),
                is_leaving=row.is_leaving,
                addresses=_addresses(pod.status),
                hostname=pod.spec.hostname,
                subdomain=pod.spec.subdomain,
                ports=tuple(_ports(pod.spec)),
            )
            found.append((row.class_id, target))
        return found

    def _as(self, which: str, service: Manifest, work: Callable[[], None]) -> None:
        """Do one controller's work on a Service; record a refusal as an event, and try again."""
        if which not in settings.CONTROLLERS:
            return
        with acting(controller(_ACCOUNTS[which])):
            try:
                work()
            except StatusError as error:
                if _is_ending(error):
                    return
                self._due_at = self._now + _RETRY
                self._tell(which, service, error.message)

    def _tell(self, which: str, service: Manifest, why: str) -> None:
        plural = "EndpointSlices" if which == SLICES else "Endpoints"
        metadata = service["metadata"]
        news = Occurrence(
            kind=_SERVICE,
            namespace=self._name,
            name=metadata["name"],
            uid=metadata["uid"],
            type="Warning",
            reason=f"FailedToUpdate{plural}",
            message=f"Error updating {plural} for Service {self._name}/{metadata['name']}: {why}",
            component=_ACCOUNTS[which],
        )
        events.record_many([news], now=self._now)
        logger.warning("endpoints_refused", service=metadata["name"], error=why)

    # Writing --------------------------------------------------------------------------------------

    def _slices(
        self, service: Manifest, present: Sequence[Manifest], targets: Sequence[Target]
    ) -> None:
        mine = [one for one in present if slices.is_mine(one, service["metadata"]["name"])]
        wanted = families(service)
        for family in wanted:
            plan = slices.plan(service, mine, targets, _zones[0], family)
            for one, made in plan.update:
                labels = slices.labels_of(service)
                self._update(_SLICE, one, lambda old, labels=labels, made=made: {  # type: ignore[misc]  # bound now
                    **old, **made, "metadata": {**old["metadata"], "labels": labels},
                })  # fmt: skip
            for made in plan.create:
                self._create(_SLICE, slices.new_slice(service, family, made))
            for one in plan.delete:
                self._delete(_SLICE, one)
        for one in mine:
            if one.get("addressType") not in wanted:
                self._delete(_SLICE, one)

    def _legacy(
        self, service: Manifest, present: Iterable[Manifest], targets: Sequence[Target]
    ) -> None:
        name = service["metadata"]["name"]
        subsets, too_many = legacy.subsets(service, targets, _zones[0])
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

        there = next((one for one in present if one["metadata"]["name"] == name), None)
        if there is None:
            bare = {"metadata": {"name": name, "namespace": self._name}}
            self._create(_ENDPOINTS, {"apiVersion": "v1", "kind": _ENDPOINTS, **changed(bare)})
        elif changed(there) != there:
            self._update(_ENDPOINTS, there, changed)

    def _remove_forsaken(self, present: Iterable[Manifest], services: set[str]) -> None:
        """Remove Endpoints of Services that are gone: they have no owner that takes them along."""
        for one in present:
            if one["metadata"]["name"] not in services and legacy.is_mine(one):
                self._delete(_ENDPOINTS, one)

    def _create(self, kind: str, manifest: Manifest) -> None:
        try:
            objects.create(kind, self._name, manifest, now=self._now)
        except AlreadyExists:
            return  # made meanwhile; the log says so, and the next pass looks at it
        self._written += 1

    def _update(self, kind: str, one: Manifest, change: Callable[[Manifest], Manifest]) -> None:
        uid = one["metadata"]["uid"]

        def changed(old: Manifest) -> Manifest:
            return change(old) if old["metadata"]["uid"] == uid else old

        try:
            name = one["metadata"]["name"]
            stored = objects.update(kind, self._name, name, changed, now=self._now)
        except NotFound:
            return
        self._written += int(stored.changed)

    def _delete(self, kind: str, one: Manifest) -> None:
        metadata = one["metadata"]
        options = {"preconditions": {"uid": metadata["uid"]}}
        try:
            objects.delete(kind, self._name, metadata["name"], options, now=self._now)
        except (NotFound, Conflict):
            return
        self._written += 1


def _is_ending(error: StatusError) -> bool:
    """Return whether a creation was refused because its namespace ends."""
    if isinstance(error, NotFound):
        return True
    causes = error.details.get("causes") or ()
    return isinstance(error, Forbidden) and any(
        one.get("reason") == "NamespaceTerminating" for one in causes
    )


def _rest(namespace: str, pods: int, now: datetime) -> None:
    """Leave a namespace with very many pods alone for a while."""
    seconds = pods // _AT_ONCE
    if seconds:
        _resting[namespace] = now + min(timedelta(seconds=seconds), _LONGEST_REST)
    else:
        _resting.pop(namespace, None)


def _read(ids: Sequence[int]) -> None:
    """Read what is not known yet of these documents."""
    fresh = documents_with_addresses([one for one in ids if one not in _pods])
    if len(_pods) + len(fresh) > _MOST:
        _pods.clear()
        fresh = documents_with_addresses(ids)
    for key, text in fresh.items():
        if text is None:
            _pods[key] = _WITHOUT_ADDRESS
        else:
            _pods[key] = _decode(text.replace(document.SLOT, ""))


def _addresses(status: _Status) -> tuple[str, ...]:
    found = [status.pod_ip, *(one.ip for one in status.pod_ips)]
    return tuple(dict.fromkeys(one for one in found if one))


def _ports(spec: _Spec) -> Iterable[PodPort]:
    """Yield the ports with names of containers that run along with the pod."""
    beside = (one for one in spec.init_containers if one.restart_policy == "Always")
    for container in (*spec.containers, *beside):
        for port in container.ports:
            if port.name:
                yield PodPort(port.name, port.protocol, port.container_port)
