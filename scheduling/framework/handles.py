"""Handles that plugins get beside the snapshot: waiting pods, and stored pods.

A plugin that has the method of a ``Wants...`` protocol gets the handle once, before any other call.
The process that runs the framework makes the handles: the core itself never queries.
"""

from collections.abc import Hashable, Mapping, Sequence
from typing import Protocol, runtime_checkable

from clusterstate.objects.values.meta import Manifest
from scheduling.framework.interface import CycleState, Plugin
from scheduling.framework.types import PodInfo
from scheduling.framework.volume_table import AssumedClaims


class WaitingPod(Protocol):
    """A pod that Permit plugins keep waiting, with its node reserved (R163)."""

    @property
    def name(self) -> str:
        """``namespace/name``."""
        ...

    @property
    def uid(self) -> str:
        """The pod's uid."""
        ...

    @property
    def pod(self) -> PodInfo:
        """The pod's requests."""
        ...

    @property
    def node_name(self) -> str:
        """The reserved node."""
        ...

    @property
    def pending_plugins(self) -> Sequence[str]:
        """Names of the plugins that have not allowed it yet, sorted."""
        ...

    def allow(self, plugin: str) -> None:
        """Allow the pod on behalf of a plugin; once all have, it is bound.

        Nothing happens for a plugin that does not keep the pod waiting.
        """
        ...

    def reject(self, plugin: str, message: str) -> bool:
        """Return the pod to the queue with a reason for users; it waits for an event.

        Returns whether it still waited.
        """
        ...

    def preempt(self, plugin: str, message: str) -> bool:
        """Return the pod to the queue because another pod needs its room.

        No plugin rejected the pod itself, so it is tried again after its backoff, without an event.
        Returns whether it still waited. Rule: interface.go (``WaitingPod``), v1.36.
        """
        ...


class WaitingPods(Protocol):
    """The pods that wait on Permit, of all profiles (``FrameworkHandle``, R164)."""

    def all(self) -> Sequence[WaitingPod]:
        """Return all waiting pods, the longest waiting first."""
        ...

    def get(self, uid: str) -> WaitingPod | None:
        """Return the pod with this uid, ``None`` if it does not wait."""
        ...


@runtime_checkable
class WantsWaitingPods(Plugin, Protocol):
    """A plugin that lists, allows or rejects waiting pods."""

    def use_waiting_pods(self, waiting_pods: WaitingPods) -> None:
        """Store the handle; called once, before any other call."""
        ...


class StoredPods(Protocol):
    """The stored pods, with names, annotations and status."""

    def manifests(self, keys: Sequence[Hashable]) -> Mapping[Hashable, Manifest]:
        """Return the pods that exist, by key (``CycleState.pod_key``, ``PodRecord.key``).

        Queries once. Empty where no pod is stored, as in a simulation.
        """
        ...


@runtime_checkable
class WantsStoredPods(Plugin, Protocol):
    """A plugin that reads more of a pod than its scheduling class."""

    def use_stored_pods(self, pods: StoredPods) -> None:
        """Store the handle; called once, before any other call, where pods are stored."""
        ...


class VolumeStore(Protocol):
    """Writes volume bindings of claims; a simulation has none."""

    def bind(self, state: CycleState, taken: AssumedClaims, *, timeout: float) -> bool:
        """Write the volume bindings of the decision, once; return whether all claims are bound.

        Args:
            state: of the pod's binding cycle.
            taken: the pod's node, and what is bound and made for it.
            timeout: seconds after which an unbound claim is an error.

        Raises:
            BinderError: the claims can no longer be bound in this way.
        """
        ...


@runtime_checkable
class WantsVolumeStore(Plugin, Protocol):
    """A plugin that binds claims."""

    def use_volume_store(self, store: VolumeStore) -> None:
        """Store the handle; called once, before any other call, where objects are stored."""
        ...


class NotReady(Exception):
    """Devices of a placed pod failed or took too long; the text is Kubernetes'."""


class DeviceStore(Protocol):
    """Writes claims whose devices must become ready; a simulation has none."""

    def bind(self, state: CycleState, claims: list[Manifest], *, timeout: float) -> bool:
        """Write the device allocations of the decision, once; return whether all devices are ready.

        Raises:
            NotReady: the devices failed or took too long.
        """
        ...


@runtime_checkable
class WantsDeviceStore(Plugin, Protocol):
    """A plugin that allocates devices."""

    def use_device_store(self, store: DeviceStore) -> None:
        """Store the handle; called once, before any other call, where objects are stored."""
        ...
