"""Writes the volume bindings of a placed pod's claims, and checks whether they are complete.

All of a pod's volumes and claims are written in one transaction, and none if one of them changed
since the decision. Rules: plugins/volumebinding/binder.go (``bindAPIUpdate``, ``checkBindings``,
``BindPodVolumes``), v1.36.
"""

from collections.abc import Iterable

from django.db import transaction

from clusterstate.actions import objects
from clusterstate.objects.rules.volume_matching import named_by, with_annotation
from clusterstate.objects.values.errors import NotFound, StatusError
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.storage import SELECTED_NODE
from clusterstate.processes import steady_clock
from clusterstate.queries.objects import decode_object, find_object
from scheduling.framework import volume_binder as binder
from scheduling.framework.interface import CycleState
from scheduling.framework.volume_table import AssumedClaims, ClaimKey

_CLAIM, _VOLUME = "PersistentVolumeClaim", "PersistentVolume"
_SINCE = "VolumeBinding/since"
"""The cycle state's key of the time when the claims were written, epoch seconds."""


class VolumeStore:
    """Reads and writes the claims and volumes of the live service (``handles.VolumeStore``)."""

    def bind(self, state: CycleState, taken: AssumedClaims, *, timeout: float) -> bool:
        """Write the volume bindings of the decision, once; return whether all claims are bound.

        Raises:
            BinderError: a claim cannot be bound any more, or takes too long.
        """
        now = steady_clock.now()
        since = state.get(_SINCE, float)
        if since is None:
            _write(taken)
            state.write(_SINCE, now.timestamp())
            since = now.timestamp()
        stored = _stored(taken)
        node = _node_of(taken.node_name)
        pairs = [
            (stored.claims[claim], stored.volumes[volume])
            for claim, volume in taken.bindings
            if claim in stored.claims and volume in stored.volumes
        ]
        missing = len(pairs) < len(taken.bindings)
        provisions = [stored.claims[one] for one in taken.provisions if one in stored.claims]
        if missing or len(provisions) < len(taken.provisions):
            raise binder.BinderError("binding volumes: a claim or a volume is gone")
        try:
            done = binder.check_bindings(stored, node, pairs, provisions)
        except binder.BinderError as failed:
            raise binder.BinderError(f"binding volumes: {failed}") from failed
        if not done and now.timestamp() - since > timeout:
            raise binder.BinderError("binding volumes: context deadline exceeded")
        return done


def _find(kind: str, namespace: str, name: str) -> Manifest | None:
    found = find_object(kind, namespace, name)
    return None if found is None else decode_object(found)


def _write(taken: AssumedClaims) -> None:
    """Write ``claimRef`` to volumes, and the selected node to claims that wait for provisioning."""
    now = steady_clock.now()
    try:
        with transaction.atomic():
            for claim_key, name in taken.bindings:
                claim = _find(_CLAIM, *claim_key)
                if claim is None:
                    raise binder.BinderError(binder.not_found(claim_key[1]))

                def bound(volume: Manifest, claim: Manifest = claim) -> Manifest:
                    reference = (volume.get("spec") or {}).get("claimRef")
                    if reference and not _names(reference, claim):
                        name = volume["metadata"]["name"]
                        raise binder.BinderError(f'pv "{name}" was bound to another claim')
                    return named_by(volume, claim)

                objects.update(_VOLUME, "", name, bound, now=now)
            for key in taken.provisions:

                def selected(claim: Manifest) -> Manifest:
                    annotations = claim["metadata"].get("annotations") or {}
                    known = annotations.get(SELECTED_NODE, taken.node_name)
                    if known != taken.node_name:
                        name = claim["metadata"]["name"]
                        raise binder.BinderError(
                            f'persistentvolumeclaim "{name}" is provisioned for node "{known}"'
                        )
                    return with_annotation(claim, SELECTED_NODE, taken.node_name)

                objects.update(_CLAIM, *key, selected, now=now)
    except NotFound as gone:
        raise binder.BinderError(gone.message) from gone
    except StatusError as refused:
        raise binder.BinderError(refused.message) from refused


def _names(reference: Manifest, claim: Manifest) -> bool:
    meta = claim["metadata"]
    same = (reference.get("namespace"), reference.get("name")) == (meta["namespace"], meta["name"])
    return same and reference.get("uid") in (None, "", meta["uid"])


def _stored(taken: AssumedClaims) -> binder.StoredVolumes:
    keys: Iterable[ClaimKey] = (*(claim for claim, _ in taken.bindings), *taken.provisions)
    claims = {key: found for key in keys if (found := _find(_CLAIM, *key)) is not None}
    names = {volume for _, volume in taken.bindings}
    names |= {(one.get("spec") or {}).get("volumeName") or "" for one in claims.values()} - {""}
    volumes = {name: found for name in names if (found := _find(_VOLUME, "", name)) is not None}
    return binder.StoredVolumes(claims=claims, volumes=volumes)


def _node_of(node_name: str) -> binder.NodeSeen:
    """Return the fields of a node that volume rules read.

    Raises:
        BinderError: the node does not exist.
    """
    node = _find("Node", "", node_name)
    if node is None:
        raise binder.BinderError(f'binding volumes: failed to get node "{node_name}"')
    csi = _find("CSINode", "", node_name)
    return binder.seen_node(node, csi)
