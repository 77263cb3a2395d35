"""Which pods a node under pressure must fail, in which order, and with which message.

Pure: usage and pods in, ranked victims out. Rules: pkg/kubelet/eviction/helpers.go and
pkg/kubelet/types/pod_update.go, v1.36 (R135, R141). A pod's request includes its overhead.
"""

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum

import msgspec

from clusterstate.objects.rules.resources import pod_requests
from clusterstate.objects.values.pod import Pod
from clusterstate.objects.values.quantity import BINARY_SI, Quantity

SYSTEM_CRITICAL_PRIORITY = 2_000_000_000
REASON = "Evicted"


class Pressure(StrEnum):
    """A resource that runs out, named like its node condition."""

    MEMORY = "MemoryPressure"
    DISK = "DiskPressure"
    PID = "PIDPressure"


RESOURCE = {Pressure.MEMORY: "memory", Pressure.DISK: "ephemeral-storage", Pressure.PID: "pids"}
"""The resource that is short, as messages name it."""


class Usage(msgspec.Struct, frozen=True, kw_only=True):
    """The present usage of a pod, as the node's agent reports it."""

    memory_bytes: int = 0
    disk_bytes: int = 0
    processes: int = 0
    containers: dict[str, int] = {}
    """Use of the short resource by container, where it is known."""

    def of(self, pressure: Pressure) -> int:
        """Return the use of a resource."""
        return {
            Pressure.MEMORY: self.memory_bytes,
            Pressure.DISK: self.disk_bytes,
            Pressure.PID: self.processes,
        }[pressure]


class Candidate(msgspec.Struct, frozen=True, kw_only=True):
    """A pod of the node under pressure; ``usage`` is None if the agent did not report it.

    ``request`` is its request of the short resource, in bytes; 0 for processes.
    """

    pod: Pod
    usage: Usage | None
    request: int = 0

    @property
    def key(self) -> str:
        """The pod's ``namespace/name``."""
        return f"{self.pod.metadata.namespace}/{self.pod.metadata.name}"


def candidate(pod: Pod, usage: Usage | None, pressure: Pressure) -> Candidate:
    """Return the pod with its request of the short resource; overhead counts (R141)."""
    quantity = pod_requests(pod).get(RESOURCE[pressure])
    return Candidate(pod=pod, usage=usage, request=quantity.value() if quantity is not None else 0)


def is_critical(pod: Pod) -> bool:
    """Return whether pressure never fails this pod: a static one, or of system priority."""
    source = pod.metadata.annotations.get("kubernetes.io/config.source", "api")
    if source != "api" or "kubernetes.io/config.mirror" in pod.metadata.annotations:
        return True
    return (pod.spec.priority or 0) >= SYSTEM_CRITICAL_PRIORITY


def rank(candidates: Iterable[Candidate], pressure: Pressure) -> list[Candidate]:
    """Return the candidates in the order of eviction.

    Memory and disk: those above their request, then lower priority, then more use above request.
    Processes: lower priority, then more processes. A pod without figures precedes those with. Equal
    ones are ordered by name, so that equal inputs give equal victims.
    """

    def order(one: Candidate) -> tuple[int, int, int, int, str]:
        priority = one.pod.spec.priority or 0
        if one.usage is None:
            return 0, 0, priority, 0, one.key
        used = one.usage.of(pressure)
        if pressure is Pressure.PID:
            return 1, 0, priority, -used, one.key
        return 1, 0 if used > one.request else 1, priority, one.request - used, one.key

    return sorted(candidates, key=order)


def next_victims(
    candidates: Sequence[Candidate],
    pressure: Pressure,
    *,
    available: int,
    threshold: int,
    minimum_reclaim: int = 0,
    finished: Callable[[Candidate], bool] | None = None,
) -> list[Candidate]:
    """Return the pods to fail, in order, until enough is free; empty if enough is free now.

    Args:
        candidates: the node's running pods.
        pressure: the short resource.
        available: how much of it is free now, in bytes or processes.
        threshold: below this the node is under pressure.
        minimum_reclaim: this much above the threshold must be free afterwards, so that the pressure
            does not return at once.
        finished: terminating pods, whose use counts as free.
    """
    if available >= threshold:
        return []
    going = [c for c in candidates if finished is not None and finished(c)]
    available += sum(c.usage.of(pressure) for c in going if c.usage is not None)
    victims = []
    for one in rank(candidates, pressure):
        if available >= threshold + minimum_reclaim:
            break
        if one in going or is_critical(one.pod):
            continue
        victims.append(one)
        available += one.usage.of(pressure) if one.usage is not None else 0
    return victims


def message(victim: Candidate, pressure: Pressure, *, available: int, threshold: int) -> str:
    """Return the text for ``status.message`` of a failed pod, in the kubelet's words."""
    resource = RESOURCE[pressure]
    text = (
        f"The node was low on resource: {resource}. Threshold quantity:"
        f" {_amount(threshold, pressure)}, available: {_amount(available, pressure)}. "
    )
    if victim.usage is None:
        return text
    requests: Mapping[str, int] = {
        container.name: Quantity.parse(container.resources.requests[resource]).value()
        for container in victim.pod.spec.containers
        if resource in container.resources.requests
    }
    for name, used in victim.usage.containers.items():
        request = requests.get(name, 0)
        if used > request:
            text += (
                f"Container {name} was using {_amount(used, pressure)}, request is"
                f" {_amount(request, pressure)}, has larger consumption of {resource}. "
            )
    return text


def _amount(value: int, pressure: Pressure) -> str:
    return str(value) if pressure is Pressure.PID else str(Quantity.of(value, BINARY_SI))
