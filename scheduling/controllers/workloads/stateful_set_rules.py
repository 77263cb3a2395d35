"""Rules of StatefulSets: pods to create or delete, by ordinal, and the status.

Pure. Rules: pkg/controller/statefulset (``stateful_set_control.go``, ``stateful_set_utils.go``),
v1.36, with later changes: ``maxUnavailable`` counts (1.37, kubernetes#139466), ``currentRevision``
follows the pods of a set that is updated OnDelete, too (1.37, #136833), and a Parallel set shrinks
although some of its pods cannot be created (1.38, #141057).

Claims are created from templates. ``persistentVolumeClaimRetentionPolicy`` decides their owner,
with which the garbage collector deletes them: the set, a pod that is scaled away, or none.
"""

from collections.abc import Sequence
from datetime import datetime
from typing import Final

import msgspec

from clusterstate.objects.values.compatibility import NEWEST, Compatibility
from clusterstate.objects.values.int_or_percent import scaled
from clusterstate.objects.values.meta import Manifest
from scheduling.controllers.workloads.pods import OwnedPod, next_available
from scheduling.controllers.workloads.revision_rules import HASH_LABEL, template_of

BURST: Final = 500
"""Pods that are created or deleted for one StatefulSet in a pass."""
NAME_LABEL: Final = "statefulset.kubernetes.io/pod-name"
INDEX_LABEL: Final = "apps.kubernetes.io/pod-index"


class StatefulSetActions(msgspec.Struct, kw_only=True):
    """Actions for a StatefulSet. ``create``: ordinal and name of the revision of each new pod."""

    status: Manifest
    create: list[tuple[int, str]]
    delete: list[OwnedPod]
    events: list[tuple[str, str, str]]
    due_at: datetime | None = None


def ordinal_of(owner: Manifest, pod: OwnedPod) -> int | None:
    """Return the ordinal in a pod's name, ``None`` if the name is not one of the owner's."""
    base, _, number = pod.name.rpartition("-")
    if base != owner["metadata"]["name"] or not number.isdecimal():
        return None
    return int(number)


def first_ordinal(owner: Manifest) -> int:
    """Return ``spec.ordinals.start``, 0 without it."""
    return int((owner["spec"].get("ordinals") or {}).get("start") or 0)


def reconcile(
    owner: Manifest,
    pods: Sequence[OwnedPod],
    *,
    current: str,
    update: str,
    now: datetime,
    version: Compatibility = NEWEST,
) -> StatefulSetActions:
    """Return the next step of a StatefulSet.

    Args:
        owner: as stored.
        pods: those that it owns.
        current: the name of the revision before the update.
        update: the name of the revision of the present template.
        now: the time, for ``minReadySeconds``.
        version: of Kubernetes.
    """
    return _Reconciler(owner, pods, current, update, now, version).reconcile()


class _Reconciler:
    def __init__(
        self,
        owner: Manifest,
        pods: Sequence[OwnedPod],
        current: str,
        update: str,
        now: datetime,
        version: Compatibility,
    ) -> None:
        self._version = version
        spec = owner["spec"]
        self._owner, self._spec, self._now = owner, spec, now
        self._current, self._update = current, update
        replicas = spec.get("replicas")
        self._replicas = 1 if replicas is None else int(replicas)
        self._start = first_ordinal(owner)
        self._patience = int(spec.get("minReadySeconds") or 0)
        self._ordered = spec.get("podManagementPolicy") != "Parallel"
        self._strategy: Manifest = spec.get("updateStrategy") or {}
        found = {ordinal_of(owner, one): one for one in pods}
        self._by_ordinal = {key: one for key, one in found.items() if key is not None}
        ordinals = range(self._start, self._start + self._replicas)
        self._slots = [(ordinal, self._by_ordinal.get(ordinal)) for ordinal in ordinals]
        self._condemned = [
            one
            for ordinal, one in sorted(self._by_ordinal.items(), reverse=True)
            if ordinal not in ordinals
        ]
        self._actions = StatefulSetActions(status={}, create=[], delete=[], events=[])

    def reconcile(self) -> StatefulSetActions:
        if not self._owner["metadata"].get("deletionTimestamp"):
            filled = self._fill()
            goes_on = not self._ordered and self._version >= Compatibility.V1_38
            shrunk = (filled or goes_on) and self._shrink()
            if filled and shrunk and self._strategy.get("type") != "OnDelete":
                self._roll()
        self._count()
        return self._actions

    def _is_fit(self, pod: OwnedPod) -> bool:
        return pod.is_active and pod.is_ready and pod.is_available(self._patience, self._now)

    def _fill(self) -> bool:
        """Create missing pods and replace ended ones; False: the later steps must wait."""
        for ordinal, pod in self._slots:
            if pod is None:
                self._actions.create.append((ordinal, self._revision_for(ordinal)))
                if self._ordered:
                    return False
            elif pod.phase_is_final and not pod.is_leaving:
                text = f"StatefulSet {pod.name} is recreating {pod.phase.lower()} Pod"
                self._actions.events.append(("Warning", "RecreatingFailedPod", text))
                self._actions.delete.append(pod)
                if self._ordered:
                    return False
            elif self._ordered and not self._is_fit(pod):
                return False
        return not self._actions.create and not self._actions.delete

    def _revision_for(self, ordinal: int) -> str:
        """Return the revision of a new pod: below the partition the former one."""
        rolling = self._strategy.get("rollingUpdate")
        if self._strategy.get("type") == "RollingUpdate" and rolling is not None:
            below = ordinal < self._start + int(rolling.get("partition") or 0)
            return self._current if below else self._update
        return self._update

    def _shrink(self) -> bool:
        """Delete pods beyond the replicas, the highest ordinal first; False: that continues."""
        everybody = [pod for _, pod in self._slots if pod is not None] + self._condemned[::-1]
        unfit = next((one for one in everybody if not self._is_fit(one)), None)
        for pod in self._condemned:
            if pod.is_leaving:
                if self._ordered:
                    return False
                continue
            if self._ordered and pod is not unfit and not self._is_fit(pod):
                return False
            self._actions.delete.append(pod)
            if self._ordered:
                return False
        return not self._actions.delete

    def _roll(self) -> None:
        """Delete pods of other revisions from the highest ordinal on, up to maxUnavailable."""
        rolling = self._strategy.get("rollingUpdate") or {}
        partition = int(rolling.get("partition") or 0)
        most = 1
        counts = self._version >= Compatibility.V1_37
        if counts and rolling.get("maxUnavailable") is not None:
            most = max(1, scaled(rolling["maxUnavailable"], self._replicas, round_up=True))
        lacking = 0
        for ordinal, pod in reversed(self._slots):
            if ordinal < self._start + partition or lacking >= most:
                return
            assert pod is not None  # ``_fill`` ran before
            if pod.labels.get(HASH_LABEL) != self._update and not pod.is_leaving:
                self._actions.delete.append(pod)
                lacking += 1
            elif not self._is_fit(pod):
                lacking += 1

    def _count(self) -> None:
        deleted = {one.id for one in self._actions.delete}
        there = [one for one in self._by_ordinal.values() if one.id not in deleted]
        ready = [one for one in there if one.is_active and one.is_ready]
        live = [one for one in there if not one.is_leaving]
        revisions = [one.labels.get(HASH_LABEL) for one in live]
        updated = revisions.count(self._update)
        current, following = self._current, revisions.count(self._current)
        done = (
            (self._strategy.get("type") == "RollingUpdate" or self._version >= Compatibility.V1_37)
            and updated == self._replicas
            and len(ready) == self._replicas
            and len(there) == self._replicas
        )
        if done:
            current, following = self._update, updated
        counts = {
            "observedGeneration": self._owner["metadata"].get("generation") or 0,
            "readyReplicas": len(ready),
            "currentReplicas": following,
            "updatedReplicas": updated,
            "currentRevision": current,
            "updateRevision": self._update,
            "conditions": (self._owner.get("status") or {}).get("conditions"),  # by clients only
        }
        self._actions.status = {
            "replicas": len(there),
            "availableReplicas": sum(self._is_fit(one) for one in ready),
            "collisionCount": (self._owner.get("status") or {}).get("collisionCount") or 0,
            **{key: value for key, value in counts.items() if value},
        }
        if self._patience:
            self._actions.due_at = next_available(ready, self._patience, self._now)


def template_for(owner: Manifest, revision: Manifest, ordinal: int) -> Manifest:
    """Return the template of the pod of an ordinal: with its name, host name and claims."""
    template = template_of(revision)
    name = f"{owner['metadata']['name']}-{ordinal}"
    metadata, spec = template.get("metadata") or {}, template.get("spec") or {}
    labels = {
        **(metadata.get("labels") or {}),
        NAME_LABEL: name,
        INDEX_LABEL: str(ordinal),
        HASH_LABEL: revision["metadata"]["name"],
    }
    claims = {
        _name_of(claim): {
            "name": _name_of(claim),
            "persistentVolumeClaim": {"claimName": claim_name(owner, claim, ordinal)},
        }
        for claim in owner["spec"].get("volumeClaimTemplates") or ()
    }
    volumes = [
        *claims.values(),
        *(one for one in spec.get("volumes") or () if one.get("name") not in claims),
    ]
    service = owner["spec"].get("serviceName")
    return {
        **template,
        "metadata": {**metadata, "labels": labels},
        "spec": {
            **spec,
            "hostname": name,
            **({"subdomain": service} if service else {}),
            **({"volumes": volumes} if volumes else {}),
        },
    }


def claim_name(owner: Manifest, claim: Manifest, ordinal: int) -> str:
    """Return the name of the claim of an ordinal's pod from a template."""
    return f"{_name_of(claim)}-{owner['metadata']['name']}-{ordinal}"


def _name_of(claim: Manifest) -> str:
    """Return the name of a claim template; without one, its claims are refused for their name."""
    return str((claim.get("metadata") or {}).get("name") or "")


def keeper_of_claims(owner: Manifest, pod: OwnedPod) -> str:
    """Return what a pod's claims are deleted with: ``set``, ``pod``, or empty if they stay.

    Rule: ``updateClaimOwnerRefForSetAndPod`` of stateful_set_utils.go.
    """
    policy = owner["spec"].get("persistentVolumeClaimRetentionPolicy") or {}
    replicas = owner["spec"].get("replicas")
    first, ordinal = first_ordinal(owner), ordinal_of(owner, pod)
    ordinals = range(first, first + (1 if replicas is None else int(replicas)))
    if ordinal not in ordinals and policy.get("whenScaled") == "Delete":
        return "pod"
    return "set" if policy.get("whenDeleted") == "Delete" else ""


def owners_of_claim(
    claim: Manifest, owner: Manifest, pod: OwnedPod, new_owner: Manifest | None
) -> list[Manifest]:
    """Return a claim's owners, with ``new_owner`` replacing the references to the set and the pod.

    A claim that something else controls is left as it is.
    """
    present: list[Manifest] = claim["metadata"].get("ownerReferences") or []
    mine = (owner["metadata"]["uid"], pod.uid)
    others = [one for one in present if one.get("uid") not in mine]
    if new_owner is None or any(one.get("controller") for one in others):
        return others
    return [*others, new_owner]


def claims_for(owner: Manifest, ordinal: int) -> list[Manifest]:
    """Return the claims that the pod of an ordinal needs, without an owner: they outlive it."""
    labels = (owner["spec"].get("selector") or {}).get("matchLabels") or {}
    claims = []
    for claim in owner["spec"].get("volumeClaimTemplates") or ():
        meta: Manifest = claim.get("metadata") or {}
        metadata = {key: value for key, value in meta.items() if key in ("labels", "annotations")}
        metadata |= {
            "name": claim_name(owner, claim, ordinal),
            "namespace": owner["metadata"]["namespace"],
            "labels": {**(meta.get("labels") or {}), **labels},
        }
        claims.append(
            {
                "apiVersion": "v1",
                "kind": "PersistentVolumeClaim",
                "metadata": metadata,
                "spec": claim.get("spec") or {},
            }
        )
    return claims
