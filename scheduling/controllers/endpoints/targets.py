"""Pods as the endpoints of a Service.

Pure. Rules: endpointslice/utils.go (``podToEndpoint``, ``getEndpointPorts``) and
endpointslice/util/controller_utils.go (``ShouldPodBeInEndpoints``, ``ShouldSetHostname``), v1.36.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from clusterstate.objects.values.meta import Manifest

FINISHED: Final = ("Succeeded", "Failed")
FAMILIES: Final = ("IPv4", "IPv6")
HEADLESS: Final = "None"
Ports = tuple[tuple[str, int, str, str], ...]
"""Name, number, protocol and application protocol of each port, as an endpoint has them."""


class PodPort(msgspec.Struct, frozen=True):
    """A named port of a container."""

    name: str
    protocol: str
    number: int


class Target(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a pod that matter to Services."""

    uid: str
    name: str
    phase: str
    node_name: str
    is_ready: bool
    is_leaving: bool
    addresses: tuple[str, ...] = ()
    hostname: str = ""
    subdomain: str = ""
    ports: tuple[PodPort, ...] = ()

    def addresses_of(self, family: str) -> list[str]:
        """Return the target's addresses of a family."""
        return [one for one in self.addresses if (":" in one) == (family == "IPv6")]


def families(service: Manifest) -> list[str]:
    """Return the families of addresses that a Service has endpoints of."""
    return list(service["spec"].get("ipFamilies") or FAMILIES[:1])


def is_served(service: Manifest) -> bool:
    """Return whether this controller maintains endpoints for a Service."""
    spec = service.get("spec") or {}
    return bool(spec.get("selector")) and spec.get("type") != "ExternalName"


def is_headless(service: Manifest) -> bool:
    """Return whether a Service has no address of its own."""
    return service["spec"].get("clusterIP") in (None, "", HEADLESS)


def chosen(
    service: Manifest, targets: Iterable[Target], zones: Mapping[str, str], family: str
) -> list[Target]:
    """Return the pods that are endpoints: with an address, not ended, on an existing node.

    ``zones`` has an entry for each node. A Service with ``publishNotReadyAddresses`` also has pods
    on missing nodes.
    """
    publishes = bool(service["spec"].get("publishNotReadyAddresses"))
    return [
        one
        for one in targets
        if one.phase not in FINISHED
        and one.addresses_of(family)
        and (publishes or one.node_name in zones)
    ]


def ports_of(service: Manifest, target: Target) -> Ports:
    """Return the ports of a Service on a pod; a named one that no container has is omitted."""
    found = []
    for port in service["spec"].get("ports") or ():
        protocol = port.get("protocol") or "TCP"
        number = _number(port.get("targetPort") or port.get("port"), protocol, target.ports)
        if number is not None:
            found.append((port.get("name") or "", number, protocol, port.get("appProtocol") or ""))
    return tuple(sorted(found))


def _number(target_port: Any, protocol: str, ports: Sequence[PodPort]) -> int | None:
    if not isinstance(target_port, str):
        return int(target_port)
    if target_port.isascii() and target_port.isdecimal():
        return int(target_port)
    return next(
        (one.number for one in ports if (one.name, one.protocol) == (target_port, protocol)), None
    )


def reference(namespace: str, target: Target) -> Manifest:
    """Return the reference to a pod."""
    return {"kind": "Pod", "namespace": namespace, "name": target.name, "uid": target.uid}


def hostname_of(service: Manifest, target: Target) -> str:
    """Return the host name of a pod in the Service's domain, empty without one."""
    in_domain = target.hostname and target.subdomain == service["metadata"]["name"]
    return target.hostname if in_domain else ""
