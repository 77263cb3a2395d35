"""Writes ResourceClaims before their pods are bound, if their devices have binding conditions.

Most pods' claims are written together with the binding (``actions.scheduler.claiming``). Claims
with such devices are written here, and the binding waits for the conditions. Rule:
plugins/dynamicresources ``PreBind``, ``isClaimReadyForBinding``, v1.36.
"""

from datetime import datetime

from django.db import transaction

from clusterstate.actions.scheduler import claiming
from clusterstate.objects.dra.attempt import ALLOCATED_HERE, binding_state
from clusterstate.objects.values.document import parse_time
from clusterstate.objects.values.errors import StatusError
from clusterstate.objects.values.meta import Manifest
from clusterstate.processes import steady_clock
from clusterstate.queries.objects import decode_object, find_object
from scheduling.framework.handles import NotReady
from scheduling.framework.interface import CycleState

_CLAIM = "ResourceClaim"


class DeviceStore:
    """Writes the ResourceClaims of the live service (``handles.DeviceStore``)."""

    def bind(self, state: CycleState, claims: list[Manifest], *, timeout: float) -> bool:
        """Write the device allocations of the decision, once; return whether all devices are ready.

        Raises:
            NotReady: a device failed or took too long, or a claim changed.
        """
        now = steady_clock.now()
        namespace, _, name = state.pod_name.partition("/")
        user = {"resource": "pods", "name": name, "uid": state.pod_uid}
        try:
            with transaction.atomic():
                for claim in claims:
                    claiming.reserve(claim, user, now)
        except StatusError as refused:
            raise NotReady(refused.message) from refused
        ready = True
        for claim in claims:
            stored = find_object(_CLAIM, namespace, claim["metadata"]["name"])
            found = {} if stored is None else decode_object(stored)
            is_ready, failed = binding_state(found)
            name = claim["metadata"]["name"]
            if failed or (not is_ready and _is_overdue(found, now, timeout)):
                self._give_up(claims, user, now)
                if failed:
                    raise NotReady(f"claim {name} binding failed: {failed}")
                raise NotReady(f"device binding timeout: claim={name}")
            ready = ready and is_ready
        return ready

    @staticmethod
    def _give_up(claims: list[Manifest], user: Manifest, now: datetime) -> None:
        """Free the devices allocated to the pod, so that its next attempt may take others."""
        with transaction.atomic():
            for claim in claims:
                if ALLOCATED_HERE in claim:
                    claiming.give_back(claim, user, now)


def _is_overdue(claim: Manifest, now: datetime, timeout: float) -> bool:
    allocation = (claim.get("status") or {}).get("allocation") or {}
    stamp = allocation.get("allocationTimestamp")
    began = parse_time(stamp) if isinstance(stamp, str) else None
    return began is not None and (now - began).total_seconds() >= timeout
