"""Processes claims and volumes when something changed, by the rules of ``binding``.

A follower of the log with a cursor in a row; ``due`` beside it is when to run again without a
change: a volume takes its time, or is retried. Each pass processes all claims and volumes, since a
claim may suit any volume; they are cached, and only objects in the log are read again
(``_StorageCache``). A change of pods without claims causes no pass.
"""

import hashlib
from collections.abc import Callable, Iterable
from datetime import datetime, timedelta
from functools import partial
from typing import Final

import msgspec
import structlog
from django.conf import settings
from django.db import transaction

from clusterstate.actions import objects
from clusterstate.actions.kinds import events
from clusterstate.actions.kinds.events import Occurrence
from clusterstate.actions.loops import aside, controller_state
from clusterstate.actions.loops.aside import ObjectRef
from clusterstate.change_log import changes, wake
from clusterstate.database import locks
from clusterstate.objects.rules.csi_migration import HOLLOW_DRIVER, HOLLOW_PROVISIONER
from clusterstate.objects.rules.own_annotations import FAILED, SINCE
from clusterstate.objects.rules.volume_matching import (
    ephemeral_claim,
    ephemeral_claim_name,
    quantity_of,
    with_annotation,
)
from clusterstate.objects.values import document
from clusterstate.objects.values.errors import AlreadyExists, Expired, NotFound, StatusError
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.storage import (
    PENDING,
    PROVISIONED_BY,
    RELEASED,
    SELECTED_NODE,
    STORAGE,
    WAIT_FOR_FIRST_CONSUMER,
    PersistentVolume,
    PersistentVolumeClaim,
    StorageClass,
)
from clusterstate.processes import memory
from clusterstate.queries.loops.controllers import PendingWork, stored_state
from clusterstate.queries.objects import decode_object, find_object
from clusterstate.queries.objects.lists import list_page
from clusterstate.queries.objects.namespaces import changed_namespaces
from clusterstate.queries.pods import pod_manifests
from clusterstate.queries.pods.claims import ClaimingPod, pods_with_claims
from scheduling.controllers import by_namespace
from scheduling.controllers.volumes import binding, hollow
from scheduling.controllers.volumes.binding import ClaimAction, ClaimKey

logger = structlog.get_logger(__name__)

NAME: Final = "volumes"
BINDER: Final = "persistentvolume-binder"
EPHEMERAL: Final = "ephemeral-volume"
EXPANDER: Final = "persistentvolume-expander"
ATTACHER: Final = "attachdetach"
HOLLOW: Final = "hollow-csi"
"""What they are called in ``STOWAGE_CONTROLLERS``."""
NAMES: Final = (BINDER, EPHEMERAL, EXPANDER, ATTACHER, HOLLOW)
_CLAIM, _VOLUME, _CLASS = "PersistentVolumeClaim", "PersistentVolume", "StorageClass"
_KEPT: Final = (_CLAIM, _VOLUME, _CLASS)
_FOLLOWED: Final = (*_KEPT, "Node", "CSIDriver", "VolumeAttachment")
_MOST_READ_AGAIN: Final = 200
"""Changed objects that are read one by one; of more than these all are read."""
_DUE: Final = "due"
_CAPACITY_NAMESPACE: Final = "kube-system"
_OWN_LABEL: Final = "stowage.dev/driver"
_told: dict[str, str] = {}
"""By uid the last event about a claim, so that each is recorded once."""
memory.when_replaced(_told.clear)

Change = Callable[[Manifest], Manifest]
Named = dict[ClaimKey, Manifest]


class _StorageCache:
    """Claims, volumes and classes as stored at a revision or later, and the pods of the last pass.

    The log includes the writes of a pass, so they are read again; a pass that fails leaves nothing
    here.
    """

    def __init__(self) -> None:
        self.forget()

    def forget(self) -> None:
        """Empty the cache, so that everything is read again."""
        self._mark: int | None = None
        self.found: dict[str, Named] = {}
        self.pods: list[ClaimingPod] | None = None

    def follow(self, mark: int) -> None:
        """Read the changes up to a revision."""
        try:
            changed = None if self._mark is None else self._changed(self._mark, mark)
        except Expired:
            changed = None
        self._mark = None
        if changed is None:
            self.found = {kind: _named(kind) for kind in _KEPT}
        else:
            for kind, *key in changed:
                place = key[0], key[1]
                if (text := find_object(kind, *place)) is None:
                    self.found[kind].pop(place, None)
                else:
                    self.found[kind][place] = decode_object(text)
        self._mark = mark

    @staticmethod
    def _changed(cursor: int, mark: int) -> set[tuple[str, str, str]] | None:
        """Return kind, namespace and name of changed objects; ``None``: too many."""
        read = changes.read_since(cursor, mark=mark, kinds=_KEPT, limit=4 * _MOST_READ_AGAIN)
        found = {(one.kind, one.namespace, one.name) for one in read.items}
        return None if read.more or len(found) > _MOST_READ_AGAIN else found


_kept = _StorageCache()
memory.when_replaced(_kept.forget)


def is_on(name: str) -> bool:
    """Return whether this service runs a controller (``STOWAGE_CONTROLLERS``)."""
    return name in settings.CONTROLLERS


def has_work(pending: PendingWork, now: datetime) -> bool:
    """Return whether the log has changes, or a due time has come."""
    if not any(map(is_on, NAMES)):
        return False
    due = pending.states.get(NAME, {}).get(_DUE)
    return pending.is_behind(NAME) or (due is not None and document.parse_time(due) <= now)


def follow(now: datetime) -> int:
    """Update claims and volumes up to the end of the log; return how many objects were written."""
    with locks.alone(locks.VOLUMES) as mine:
        return _run_pass(now) if mine else 0


def _run_pass(now: datetime) -> int:
    cursor, stored = controller_state.cursor(NAME), stored_state(NAME)
    mark = changes.watermark()
    due = stored.get(_DUE)
    waits = due is None or document.parse_time(due) > now
    written = 0
    if cursor is None:
        _kept.forget()
    pods = pods_with_claims()
    if (
        cursor is None
        or not waits
        or pods != _kept.pods
        or changed_namespaces(cursor, mark, _FOLLOWED) != []
    ):
        _kept.follow(mark)
        _kept.pods = None  # until the pass is complete
        one = _Pass(now, _kept, pods)
        one.run()
        written, _kept.pods = one.written, pods
        state = {} if one.due_at is None else {_DUE: one.due_at.isoformat()}
        if state != stored:
            controller_state.set_state(NAME, state)
    if cursor is None or mark > cursor:
        controller_state.set_cursor(NAME, mark)
    if written:
        wake.send_binding()  # a placed pod may wait for its claims
    return written


def _named(kind: str) -> Named:
    found = [decode_object(item) for item in list_page(kind).items]
    return {(one["metadata"].get("namespace") or "", one["metadata"]["name"]): one for one in found}


class _Pass:
    """One pass over all claims and volumes."""

    def __init__(self, now: datetime, cache: _StorageCache, pods: list[ClaimingPod]) -> None:
        self.now = now
        self._pods = pods
        self.written = 0
        self.due_at: datetime | None = None
        self.occurrences: list[Occurrence] = []
        self.claims = dict(cache.found[_CLAIM])
        self.volumes = {name: one for (_, name), one in cache.found[_VOLUME].items()}
        self.classes = {name: one for (_, name), one in cache.found[_CLASS].items()}
        self.world = binding.VolumeState(
            binding.index(self.claims),
            {name: msgspec.convert(one, PersistentVolume) for name, one in self.volumes.items()},
            {name: msgspec.convert(one, StorageClass) for name, one in self.classes.items()},
        )
        self._nodes: dict[str, dict[str, str]] | None = None

    def run(self) -> None:
        """Do the work of each controller that is on."""
        if is_on(EPHEMERAL):
            self._make_ephemeral(self._pods)
        if is_on(BINDER) or is_on(HOLLOW):
            for key in sorted(self.claims, key=self._age):
                self._each(_CLAIM, *key, partial(self._settle_claim, key))
            for name in sorted(self.volumes):
                self._each(_VOLUME, "", name, partial(self._settle_volume, name))
        if is_on(EXPANDER):
            for key in self.claims:
                self._each(_CLAIM, *key, partial(self._grow, key))
        if is_on(HOLLOW):
            self._publish_capacities()
        if is_on(ATTACHER):
            self._attach(self._pods)
        events.record_many(self.occurrences, now=self.now)

    # --- writing ---------------------------------------------------------------------------------

    def _each(self, kind: str, namespace: str, name: str, work: Callable[[], None]) -> None:
        """Work on one object; if it fails it is set aside, and the others continue."""
        which = ObjectRef(kind, namespace=namespace, name=name)
        later = partial(self._again, self.now + by_namespace.AGAIN)
        aside.one(NAME, which, work, now=self.now, instead=later)

    def _write(self, kind: str, manifest: Manifest, change: Change) -> Manifest | None:
        """Change spec and status of an object if its uid is still the same.

        ``None``: it needs no change, or is gone.
        """
        meta = manifest["metadata"]
        if change(manifest) == manifest:
            return None

        def changed(stored: Manifest) -> Manifest:
            same = stored["metadata"]["uid"] == meta["uid"]
            return change(stored) if same else stored

        try:
            with transaction.atomic():
                place = kind, meta.get("namespace") or "", meta["name"]
                first = objects.update(*place, changed, now=self.now)
                last = objects.update(*place, changed, now=self.now, subresource="status")
        except NotFound:
            return None
        self.written += first.changed or last.changed
        return decode_object(last.manifest)

    def _write_claim(self, key: ClaimKey, change: Change) -> None:
        written = self._write(_CLAIM, self.claims[key], change)
        if written is not None:
            self.claims[key] = written
            self.world.claims[key] = msgspec.convert(written, PersistentVolumeClaim)

    def _write_volume(self, name: str, change: Change) -> None:
        written = self._write(_VOLUME, self.volumes[name], change)
        if written is not None:
            self._know(written)

    def _know(self, volume: Manifest) -> None:
        name = volume["metadata"]["name"]
        self.volumes[name] = volume
        self.world.volumes[name] = msgspec.convert(volume, PersistentVolume)

    def _tell(self, claim: Manifest, type_: str, reason: str, message: str) -> None:
        meta, text = claim["metadata"], f"{reason} {message}"
        if not reason or _told.get(meta["uid"]) == text:
            return
        if len(_told) > 100_000:
            _told.clear()
        _told[meta["uid"]] = text
        self.occurrences.append(
            Occurrence(
                kind=_CLAIM, namespace=meta["namespace"], name=meta["name"], uid=meta["uid"],
                type=type_, reason=reason, message=message,
                component="persistentvolume-controller",
            )
        )  # fmt: skip

    def _again(self, at: datetime) -> None:
        self.due_at = at if self.due_at is None else min(self.due_at, at)

    def _age(self, key: ClaimKey) -> tuple[str, ClaimKey]:
        return self.claims[key]["metadata"].get("creationTimestamp") or "", key

    # --- claims ----------------------------------------------------------------------------------

    def _settle_claim(self, key: ClaimKey) -> None:
        fate = binding.fate_of(self.world.claims[key], self.world)
        if fate.provisioner == HOLLOW_PROVISIONER and is_on(HOLLOW):
            self._provision(key)
        elif not is_on(BINDER):
            return
        elif fate.volume is not None:
            self._bind(key, fate.volume.metadata.name)
        else:
            self._leave_unbound(key, fate)

    def _bind(self, key: ClaimKey, name: str) -> None:
        with transaction.atomic():
            self._write_volume(name, lambda one: binding.bound_volume(one, self.claims[key]))
            self._write_claim(key, lambda one: binding.bound_claim(one, self.volumes[name]))

    def _leave_unbound(self, key: ClaimKey, fate: ClaimAction) -> None:
        def left(claim: Manifest) -> Manifest:
            if fate.provisioner:
                claim = binding.with_provisioner(claim, fate.provisioner)
            return binding.with_phase(claim, fate.phase)

        self._write_claim(key, left)
        reason, message = fate.reason, fate.message
        if fate.provisioner:
            reason = "ExternalProvisioning"
            message = (
                "Waiting for a volume to be created either by the external provisioner "
                f"'{fate.provisioner}' or manually by the system administrator. If volume creation "
                "is delayed, please verify that the provisioner is running and correctly "
                "registered."
            )
        self._tell(self.claims[key], fate.type, reason, message)

    # --- the hollow driver -----------------------------------------------------------------------

    def _provision(self, key: ClaimKey) -> None:
        claim, of = self.claims[key], self.classes[self.world.claims[key].class_name]
        existing = self._of_class(of["metadata"]["name"])
        found = hollow.attempt(claim, of, self._segments(claim, of), existing, self.now)
        if found.due_at is not None:
            self._again(found.due_at)
            self._write_claim(key, self._begun)
        elif found.volume is not None:
            with transaction.atomic():
                try:
                    stored = objects.create(_VOLUME, "", found.volume, now=self.now)
                    self._know(decode_object(stored.manifest))
                except AlreadyExists:
                    return  # the next pass reads it
                self._bind(key, found.volume["metadata"]["name"])
            name = found.volume["metadata"]["name"]
            text = f"Successfully provisioned volume {name}"
            self._tell(claim, binding.NORMAL, "ProvisioningSucceeded", text)
        else:
            self._write_claim(key, partial(self._failed, hollow.failures(claim) + 1))
            self._again(self.now + timedelta(seconds=hollow.RETRY_SECONDS))
            text = f'failed to provision volume with StorageClass "{of["metadata"]["name"]}": '
            self._tell(claim, binding.WARNING, "ProvisioningFailed", text + found.failure)

    def _begun(self, claim: Manifest) -> Manifest:
        if SINCE in (claim["metadata"].get("annotations") or {}):
            return claim
        return with_annotation(claim, SINCE, self.now.isoformat())

    @staticmethod
    def _failed(count: int, claim: Manifest) -> Manifest:
        """Return a claim after ``count`` failures, without its node: the scheduler chooses anew."""
        new = with_annotation(claim, FAILED, str(count))
        new = with_annotation(new, SINCE, None)
        return binding.with_phase(with_annotation(new, SELECTED_NODE, None), PENDING)

    def _of_class(self, name: str) -> list[Manifest]:
        return [
            one
            for one in self.volumes.values()
            if one["spec"].get("storageClassName") == name
            and (one["metadata"].get("annotations") or {}).get(PROVISIONED_BY) == HOLLOW_DRIVER
        ]

    def _segments(self, claim: Manifest, of: Manifest) -> list[str]:
        """Return the segments in which a claim's volume may be created."""
        key = hollow.read(of.get("parameters") or {}).topology_key
        if not key:
            return [""]
        lens = self.world.classes[of["metadata"]["name"]]
        if lens.volume_binding_mode == WAIT_FOR_FIRST_CONSUMER:
            node = (claim["metadata"].get("annotations") or {}).get(SELECTED_NODE, "")
            labels = self.nodes.get(node, {})
            return [labels[key]] if key in labels else []
        return sorted(
            {labels[key] for labels in self.nodes.values() if key in labels and lens.allows(labels)}
        )

    @property
    def nodes(self) -> dict[str, dict[str, str]]:
        """The labels of the nodes."""
        if self._nodes is None:
            found = _named("Node").values()
            self._nodes = {
                one["metadata"]["name"]: one["metadata"].get("labels") or {} for one in found
            }
        return self._nodes

    def _publish_capacities(self) -> None:
        """Write the CSIStorageCapacity objects of the hollow driver."""
        desired: dict[ClaimKey, Manifest] = {}
        of_driver = [
            one for one in self.classes.values() if one.get("provisioner") == HOLLOW_PROVISIONER
        ]
        for of in of_driver:
            label = hollow.read(of.get("parameters") or {}).topology_key
            existing = self._of_class(of["metadata"]["name"])
            segments = {labels[label] for labels in self.nodes.values() if label in labels}
            for segment in sorted(segments) if label else [""]:
                new = hollow.capacity_of(of, segment, existing, _CAPACITY_NAMESPACE)
                desired[_CAPACITY_NAMESPACE, new["metadata"]["name"]] = new
        if of_driver:
            self._create("CSIDriver", "", _DRIVER)
        kind = "CSIStorageCapacity"
        stored = {
            key: one
            for key, one in _named(kind).items()
            if _OWN_LABEL in (one["metadata"].get("labels") or {})
        }
        for key, new in desired.items():
            old = stored.get(key)
            if old is None:
                self._create(kind, _CAPACITY_NAMESPACE, new)
            elif any(old.get(name) != new.get(name) for name in _CAPACITY_FIELDS):
                self._write(kind, old, partial(_with_capacity, new))
        for namespace, name in stored.keys() - desired.keys():
            self._delete(kind, namespace, name)

    def _create(self, kind: str, namespace: str, manifest: Manifest) -> None:
        try:
            objects.create(kind, namespace, manifest, now=self.now)
        except AlreadyExists:
            return
        except StatusError as error:
            name = manifest["metadata"]["name"]
            logger.warning("volume_object_refused", kind=kind, name=name, error=error.message)
            self._again(self.now + timedelta(seconds=hollow.RETRY_SECONDS))
            return
        self.written += 1

    def _delete(self, kind: str, namespace: str, name: str) -> None:
        try:
            objects.delete(kind, namespace, name, now=self.now)
        except NotFound:
            return
        self.written += 1

    # --- volumes ---------------------------------------------------------------------------------

    def _settle_volume(self, name: str) -> None:
        volume = self.volumes[name]
        fate = binding.fate_of_volume(self.world.volumes[name], self.world)

        def settled(one: Manifest) -> Manifest:
            return binding.with_phase(binding.forgotten(one, fate.forget), fate.phase)

        if is_on(BINDER):
            self._write_volume(name, settled)
        spec, meta = volume["spec"], volume["metadata"]
        made_here = (meta.get("annotations") or {}).get(PROVISIONED_BY) == HOLLOW_DRIVER
        if (
            fate.phase == RELEASED
            and made_here
            and is_on(HOLLOW)
            and spec.get("persistentVolumeReclaimPolicy") == "Delete"
            and not meta.get("deletionTimestamp")
        ):
            self._delete(_VOLUME, "", name)

    def _grow(self, key: ClaimKey) -> None:
        """Resize a bound claim of the hollow driver to its request."""
        claim = self.claims[key]
        spec, status = claim["spec"], claim.get("status") or {}
        volume = self.volumes.get(spec.get("volumeName") or "")
        has = (status.get("capacity") or {}).get(STORAGE)
        wants = ((spec.get("resources") or {}).get("requests") or {}).get(STORAGE)
        if volume is None or has is None or wants is None or quantity_of(wants) <= quantity_of(has):
            return
        of = self.classes.get(self.world.claims[key].class_name) or {}
        driver = (volume["spec"].get("csi") or {}).get("driver")
        if driver != HOLLOW_DRIVER or not of.get("allowVolumeExpansion"):
            return
        with transaction.atomic():
            self._write_volume(
                volume["metadata"]["name"],
                lambda one: {**one, "spec": {**one["spec"], "capacity": {STORAGE: wants}}},
            )
            self._write_claim(
                key,
                lambda one: {
                    **one,
                    "status": {**(one.get("status") or {}), "capacity": {STORAGE: wants}},
                },
            )
        self._tell(claim, binding.NORMAL, "VolumeResizeSuccessful", f"Resized to {wants}")

    # --- pods ------------------------------------------------------------------------------------

    def _make_ephemeral(self, pods: Iterable[ClaimingPod]) -> None:
        """Create the claims of generic ephemeral volumes. Rule: volume/ephemeral/controller.go."""
        lacking = [
            pod
            for pod in pods
            if any(
                one.ephemeral is not None
                and (pod.namespace, ephemeral_claim_name(pod.name, one.name)) not in self.claims
                for one in pod.volumes
            )
        ]
        for text in pod_manifests([pod.id for pod in lacking]).values():
            pod = msgspec.json.decode(text)
            if pod["metadata"].get("deletionTimestamp"):
                continue
            for volume in pod["spec"].get("volumes") or ():
                template = (volume.get("ephemeral") or {}).get("volumeClaimTemplate")
                if template is not None:
                    claim = ephemeral_claim(pod, volume["name"], template)
                    self._create(_CLAIM, pod["metadata"]["namespace"], claim)

    def _attach(self, pods: Iterable[ClaimingPod]) -> None:
        """Create VolumeAttachments where pods use volumes (volume/attachdetach, pkg/volume/csi)."""
        kind = "VolumeAttachment"
        drivers = {name: one for (_, name), one in _named("CSIDriver").items()}
        desired: dict[str, Manifest] = {}
        for pod in pods:
            if not pod.node_name or pod.node_name not in self.nodes:
                continue
            for volume in pod.volumes:
                source = volume.persistent_volume_claim
                name = source.claim_name if source else ephemeral_claim_name(pod.name, volume.name)
                claim = self.claims.get((pod.namespace, name)) or {}
                bound_to = self.volumes.get((claim.get("spec") or {}).get("volumeName") or "")
                csi = None if bound_to is None else bound_to["spec"].get("csi")
                if bound_to is None or csi is None:
                    continue
                driver = drivers.get(csi["driver"]) or {}
                if (driver.get("spec") or {}).get("attachRequired", True):
                    new = _attachment(csi, bound_to["metadata"]["name"], pod.node_name)
                    desired[new["metadata"]["name"]] = new
        stored = {name: one for (_, name), one in _named(kind).items()}
        for name, new in desired.items():
            if name not in stored:
                self._create(kind, "", new)
        for name, one in stored.items():
            if one["spec"]["attacher"] == HOLLOW_DRIVER and is_on(HOLLOW) and name in desired:
                self._write(kind, one, _attached)
            if name not in desired and name.startswith(_ATTACHMENT):
                self._delete(kind, "", name)


_ATTACHMENT: Final = "csi-"
_CAPACITY_FIELDS: Final = ("capacity", "maximumVolumeSize")
_DRIVER: Final[Manifest] = {
    "apiVersion": "storage.k8s.io/v1",
    "kind": "CSIDriver",
    "metadata": {"name": HOLLOW_DRIVER},
    "spec": {"attachRequired": True, "storageCapacity": True},
}


def _with_capacity(new: Manifest, stored: Manifest) -> Manifest:
    others = {key: value for key, value in stored.items() if key not in _CAPACITY_FIELDS}
    return others | {name: new[name] for name in _CAPACITY_FIELDS if name in new}


def _attached(attachment: Manifest) -> Manifest:
    return {**attachment, "status": {**(attachment.get("status") or {}), "attached": True}}


def _attachment(csi: Manifest, volume: str, node_name: str) -> Manifest:
    text = f"{csi.get('volumeHandle', '')}{csi['driver']}{node_name}"
    return {
        "apiVersion": "storage.k8s.io/v1",
        "kind": "VolumeAttachment",
        "metadata": {"name": _ATTACHMENT + hashlib.sha256(text.encode()).hexdigest()},
        "spec": {
            "attacher": csi["driver"],
            "nodeName": node_name,
            "source": {"persistentVolumeName": volume},
        },
    }
