"""NodeVolumeLimits: a node takes only this many volumes of a CSI driver, as its CSINode says.

Rule: plugins/nodevolumelimits/csi.go, v1.36. A volume counts once on a node, whoever uses it there.
What is attached where is kept from pod to pod (``_AttachedVolumes``), and followed by the rows and
the objects that changed.
"""

from collections import Counter
from collections.abc import Hashable, Iterable, Iterator

import numpy as np
import numpy.typing as npt

from clusterstate.objects.rules.csi_migration import (
    csi_source,
    driver_of,
    inline_driver,
    is_in_tree,
    is_migratable,
)
from clusterstate.objects.rules.volume_matching import not_for_pod
from clusterstate.objects.values.storage import CSINode, PersistentVolumeClaim
from scheduling.framework.configuration.plugin_args import NodeVolumeLimitsArgs
from scheduling.framework.interface import CycleState, FilterResult, Locality, PreFilterResult
from scheduling.framework.node_table import NodeTable, Rows
from scheduling.framework.status import SKIP, SUCCESS, Code, Status
from scheduling.framework.types import PodInfo
from scheduling.framework.volume_binder import claim_name, meta_of
from scheduling.framework.volume_table import ClaimKey, VolumeTable

NAME = "NodeVolumeLimits"
REASON = "node(s) exceed max volume count"
_UNBOUND = "\0unbound "
"""Begins the handle of a volume that is not made yet."""
Handles = dict[str, str]
"""Drivers by ``driver/handle``."""


class LimitError(ValueError):
    """The claim of an ephemeral volume is not its pod's: the attempt ends."""


class MissingClaim(ValueError):
    """A claim does not exist."""


def is_attachable(pod: PodInfo) -> bool:
    """Return whether a pod may bring volumes of CSI drivers."""
    return any(
        one.persistent_volume_claim is not None
        or one.ephemeral is not None
        or bool(inline_driver(one))
        for one in pod.volumes
    )


def attached_by(table: VolumeTable, pod: PodInfo, node: CSINode | None, *, is_new: bool) -> Handles:
    """Return the volumes that a pod has attached to its node.

    Raises:
        LimitError: an ephemeral volume's claim is another pod's.
        MissingClaim: a claim of a new pod does not exist.
    """
    found: Handles = {}
    meta = meta_of(pod)
    for volume in pod.volumes:
        name = claim_name(meta, volume)
        if name is None:
            source = csi_source(volume, node) if is_migratable(volume) else None
            if source is not None:
                found[f"{source.driver}/{source.volume_handle}"] = source.driver
            continue
        if not name:
            raise LimitError("PersistentVolumeClaim had no name")
        claim = table.claim(pod.namespace, name)
        if claim is None:
            if is_new:
                full = f"{pod.namespace}/{name}"
                raise MissingClaim(
                    f'looking up PVC {full}: persistentvolumeclaims "{name}" not found'
                )
            continue
        if volume.ephemeral is not None and (problem := not_for_pod(claim, meta)):
            raise LimitError(problem)
        driver, handle = _served_by(table, claim, node)
        if driver and handle:
            found[f"{driver}/{handle}"] = driver
    return found


def _served_by(
    table: VolumeTable, claim: PersistentVolumeClaim, node: CSINode | None
) -> tuple[str, str]:
    """Return the CSI driver and the handle of a claim's volume on a node, empty for none."""
    volume = table.volume(claim.spec.volume_name) if claim.spec.volume_name else None
    if volume is not None:
        source = csi_source(volume, node)
        return ("", "") if source is None else (source.driver, source.volume_handle)
    of = table.storage_class(claim.class_name) if claim.class_name else None
    if of is None:
        return "", ""
    return driver_of(of.provisioner, node), f"{_UNBOUND}{claim.full_name}"


Column = npt.NDArray[np.int64]
_ANY = 2**62
"""A limit that nobody reaches."""


class _AttachedVolumes:
    """Volumes attached to the nodes of one snapshot, by row.

    ``used``, ``limits``: by driver how many volumes a row has, and takes; int64 (rows,). ``at``:
    the rows where pods use a volume.
    """

    def __init__(self) -> None:
        self._seen: tuple[int, int] | None = None
        self._begin(0)

    def _begin(self, capacity: int) -> None:
        self.capacity = capacity
        self.used: dict[str, Column] = {}
        self.limits: dict[str, Column] = {}
        self.at: dict[str, set[int]] = {}
        self._on: dict[int, Handles] = {}
        # The rows to look at again when an object changes.
        self._watched: dict[tuple[str, ClaimKey], set[int]] = {}

    def follow(self, snapshot: NodeTable) -> None:
        """Take in what changed since the last call."""
        table, capacity = snapshot.volumes, len(snapshot.alive)
        touched = None if self._seen is None else snapshot.touched_since(self._seen[0])
        changes = None if self._seen is None else table.changes_since(self._seen[1])
        self._seen = snapshot.log_end, table.end
        if touched is None or changes is None or self.capacity != capacity:
            self._begin(capacity)
            rows = set(snapshot.rows().tolist())
        else:
            rows = set(touched.tolist())
            for change in changes:
                rows |= self._watched.get(change, set())
        for row in rows:
            self._recount(snapshot, row)

    def _recount(self, snapshot: NodeTable, row: int) -> None:
        """Work out again what is attached to a row."""
        for handle, driver in self._on.pop(row, {}).items():
            self.used[driver][row] -= 1
            self.at.get(handle, set()).discard(row)
        for column in self.limits.values():
            column[row] = _ANY
        if not snapshot.alive[row]:
            return
        table, name = snapshot.volumes, snapshot.node_name(row)
        node = table.csi_node(name)
        for one in node.spec.drivers if node is not None else ():
            if one.limit is not None:
                self._column(self.limits, one.name, _ANY)[row] = one.limit
        pods = [one for one in snapshot.counted_on(row) if one.volumes]
        by_pods, self._on[row] = on_node(table, pods, name)
        for driver in self._on[row].values():
            self._column(self.used, driver, 0)[row] += 1
        for handle in by_pods:
            self.at.setdefault(handle, set()).add(row)
        for change in _looked_at(table, pods, name):
            self._watched.setdefault(change, set()).add(row)

    def _column(self, columns: dict[str, Column], driver: str, value: int) -> Column:
        found = columns.get(driver)
        if found is None:
            found = columns[driver] = np.full(self.capacity, value, np.int64)
        return found


def on_node(table: VolumeTable, pods: Iterable[PodInfo], name: str) -> tuple[Handles, Handles]:
    """Return what the pods of a node have attached, and that with VolumeAttachments beside.

    A volume that is attached and that no pod there uses counts against the pod that brings it, too.
    """
    node, by_pods = table.csi_node(name), Handles()
    for pod in pods:
        by_pods |= attached_by(table, pod, node, is_new=False)
    found = dict(by_pods)
    for attachment in table.attachments(name):
        spec = attachment.spec
        volume = table.volume(spec.source.persistent_volume_name or "")
        if spec.attacher and volume is not None and volume.spec.csi is not None:
            found.setdefault(f"{spec.attacher}/{volume.spec.csi.volume_handle}", spec.attacher)
    return by_pods, found


def _looked_at(
    table: VolumeTable, pods: Iterable[PodInfo], name: str
) -> Iterator[tuple[str, ClaimKey]]:
    """Yield the objects that decide what is attached to a node."""
    yield "CSINode", ("", name)
    yield "VolumeAttachment", ("", name)
    for attachment in table.attachments(name):
        yield "PersistentVolume", ("", attachment.spec.source.persistent_volume_name or "")
    for pod in pods:
        for claim in pod.claims:
            yield "PersistentVolumeClaim", (pod.namespace, claim)
            known = table.claim(pod.namespace, claim)
            if known is not None:
                yield "PersistentVolume", ("", known.spec.volume_name)
                yield "StorageClass", ("", known.class_name)


class NodeVolumeLimits:
    """Filter on the number of attached volumes.

    Args:
        args: whether nodes without a driver are passed over (the alpha gate VolumeLimitScaling).
    """

    name = NAME
    filter_locality = Locality.PODS
    score_locality = Locality.NODE

    def __init__(self, args: NodeVolumeLimitsArgs) -> None:
        self._scaling = args.volume_limit_scaling

    def aspect(self, pod: PodInfo, snapshot: NodeTable) -> Hashable | None:
        """Return nothing for pods that no limit can concern."""
        if not pod.volumes or not is_attachable(pod):
            return ()
        return None if self._may_reject(pod, snapshot) else ()

    def pre_filter(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable
    ) -> tuple[PreFilterResult | None, Status]:
        """Skip where the pod brings nothing to attach."""
        if not is_attachable(pod):
            return None, SKIP
        if not self._may_reject(pod, snapshot):
            state.skip_filter.add(NAME)
        return None, SUCCESS

    def filter(
        self, state: CycleState, pod: PodInfo, snapshot: NodeTable, rows: Rows
    ) -> FilterResult | None:
        """Reject nodes that would have more volumes of a driver than they take."""
        table = snapshot.volumes
        try:
            if snapshot.is_trying or _has_in_tree(pod, table):
                return self._one_by_one(pod, snapshot, rows)
            brought = attached_by(table, pod, None, is_new=True)
        except MissingClaim as missing:
            everywhere = np.ones(len(rows), np.bool_)
            code = Code.UNSCHEDULABLE_AND_UNRESOLVABLE
            return FilterResult.rejecting(everywhere, code, str(missing))
        attached = table.memo.get(NAME)
        if not isinstance(attached, _AttachedVolumes):
            attached = table.memo[NAME] = _AttachedVolumes()
        attached.follow(snapshot)
        exceeded = np.zeros(len(rows), np.bool_)
        for driver in sorted(set(brought.values())):
            limits = attached.limits.get(driver)
            if limits is None:
                continue
            new: Column = np.zeros(attached.capacity, np.int64)
            for handle in (handle for handle, of in brought.items() if of == driver):
                new += 1
                new[list(attached.at.get(handle, ()))] -= 1
            used = attached.used.get(driver)
            total = new if used is None else used + new
            # A pod that brings no new volume does not make it worse.
            exceeded |= ((total > limits) & (new > 0))[rows]
        missing_driver = self._not_installed(snapshot, rows, brought.values())
        reasons = [*((text,) for text in missing_driver), (REASON,)]
        codes = np.where(exceeded, Code.UNSCHEDULABLE, Code.SUCCESS).astype(np.uint8)
        reason = np.full(len(rows), len(reasons) - 1, np.int32)
        for number, unfit in enumerate(missing_driver.values()):
            codes[unfit], reason[unfit] = Code.UNSCHEDULABLE, number
        return FilterResult(codes, reason, tuple(reasons)) if codes.any() else None

    def _one_by_one(self, pod: PodInfo, snapshot: NodeTable, rows: Rows) -> FilterResult | None:
        """Judge each node by itself: in a dry run, and where drivers differ from node to node."""
        table = snapshot.volumes
        codes, reason = np.zeros(len(rows), np.uint8), np.zeros(len(rows), np.int32)
        reasons: dict[tuple[str, ...], int] = {}
        for place, row in enumerate(rows.tolist()):
            name = snapshot.node_name(row)
            node = table.csi_node(name)
            brought = attached_by(table, pod, node, is_new=True)
            if not brought:
                continue
            text = self._missing(table, node, brought.values())
            if not text and node is not None and table.is_limited(name):
                text = _exceeded(node, brought, *on_node(table, snapshot.counted_on(row), name))
            if text:
                codes[place] = Code.UNSCHEDULABLE
                reason[place] = reasons.setdefault((text,), len(reasons))
        return FilterResult(codes, reason, tuple(reasons)) if reasons else None

    def _may_reject(self, pod: PodInfo, snapshot: NodeTable) -> bool:
        """Return whether some node has a limit, or the pod a claim that is not there."""
        table = snapshot.volumes
        if self._scaling or table.has_limits:
            return True
        return any(table.claim(pod.namespace, name) is None for name in pod.claims)

    def _missing(self, table: VolumeTable, node: CSINode | None, drivers: Iterable[str]) -> str:
        if not self._scaling or node is None:
            return ""
        installed = {one.name for one in node.spec.drivers}
        for driver in sorted(set(drivers) - installed):
            known = table.csi_driver(driver)
            if known is not None and known.spec.prevent_pod_scheduling_if_missing:
                return f"{driver} CSI driver is not installed on the node"
        return ""

    def _not_installed(
        self, snapshot: NodeTable, rows: Rows, drivers: Iterable[str]
    ) -> dict[str, list[int]]:
        """Return, by reason, the positions in ``rows`` of nodes that lack a required driver."""
        found: dict[str, list[int]] = {}
        if self._scaling:
            table, wanted = snapshot.volumes, list(drivers)
            for place, row in enumerate(rows.tolist()):
                text = self._missing(table, table.csi_node(snapshot.node_name(row)), wanted)
                if text:
                    found.setdefault(text, []).append(place)
        return found


def _has_in_tree(pod: PodInfo, table: VolumeTable) -> bool:
    """Return whether which driver serves a volume of the pod differs from node to node."""
    if any(map(is_migratable, pod.volumes)):
        return True
    for name in pod.claims:
        claim = table.claim(pod.namespace, name)
        if claim is None:
            continue
        volume = table.volume(claim.spec.volume_name) if claim.spec.volume_name else None
        if volume is not None and is_migratable(volume):
            return True
        of = table.storage_class(claim.class_name) if claim.class_name else None
        if of is not None and is_in_tree(of.provisioner):
            return True
    return False


def _exceeded(node: CSINode, brought: Handles, by_pods: Handles, there: Handles) -> str:
    """Return why a node does not take the volumes, empty if it does."""
    limits = {one.name: one.limit for one in node.spec.drivers}
    new = Counter(driver for handle, driver in brought.items() if handle not in by_pods)
    used = Counter(there.values())
    for driver, count in new.items():
        limit = limits.get(driver)
        if limit is not None and used[driver] + count > limit:
            return REASON
    return ""
