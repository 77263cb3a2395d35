"""Which cluster IP and which node ports a Service gets; pure.

A Service keeps what it once got. Addresses are of ``NETWORK``, whose first one belongs to
``default/kubernetes``; node ports are of ``NODE_PORTS``. Rules:
pkg/registry/core/service/storage/alloc.go and pkg/registry/core/service/strategy.go, v1.36.
"""

import ipaddress
from collections.abc import Callable, Iterable
from typing import Any, Final

from clusterstate.objects.values.errors import INVALID, FieldError, Invalid
from clusterstate.objects.values.meta import Manifest

NETWORK: Final = ipaddress.ip_network("10.96.0.0/12")
"""Kubernetes' usual ``--service-cluster-ip-range``."""
FIRST: Final = str(NETWORK[1])
"""The address of the Service ``default/kubernetes``."""
NODE_PORTS: Final = range(30000, 32768)
HEADLESS: Final = "None"
HEALTH_PORT: Final = "healthCheckNodePort"
_ADDRESSED: Final = ("ClusterIP", "NodePort", "LoadBalancer")
_WITH_PORTS: Final = ("NodePort", "LoadBalancer")
_OF_TYPES: Final = {
    "allocateLoadBalancerNodePorts": ("LoadBalancer",),
    "loadBalancerClass": ("LoadBalancer",),
}
"""Fields that only these types have."""


def is_for_others(text: str) -> bool:
    """Return whether this is an IP address under which other hosts can reach something.

    No Endpoints may name others: pkg/apis/core/validation/validation.go ``ValidateEndpointIP``.
    """
    try:
        address = ipaddress.ip_address(text)
    except ValueError:
        return False
    return not (
        address.is_loopback
        or address.is_unspecified
        or address.is_link_local
        or address.is_multicast
    )


def has_address(spec: Manifest) -> bool:
    """Return whether a Service of this spec has a cluster IP of its own."""
    return _is_addressed(spec) and spec.get("clusterIP") != HEADLESS


def _is_addressed(spec: Manifest) -> bool:
    """Return whether Services of this type have a cluster IP, or say that they are headless."""
    return (spec.get("type") or "ClusterIP") in _ADDRESSED


def _has_ports(spec: Manifest) -> bool:
    return spec.get("type") in _WITH_PORTS


def _gets_ports(spec: Manifest) -> bool:
    """Return whether ports that name no node port get one."""
    if spec.get("type") == "LoadBalancer" and spec.get("allocateLoadBalancerNodePorts") is False:
        return False
    return _has_ports(spec)


def is_reached_from_outside(spec: Manifest) -> bool:
    """Return whether a Service can be reached from outside the cluster."""
    if spec.get("type") in _WITH_PORTS:
        return True
    return spec.get("type") == "ClusterIP" and bool(spec.get("externalIPs"))


def has_health_port(spec: Manifest) -> bool:
    """Return whether balancers ask each node by a port of its own if it has endpoints."""
    return spec.get("type") == "LoadBalancer" and spec.get("externalTrafficPolicy") == "Local"


def needs_anything(spec: Manifest) -> bool:
    """Return whether an address or a port has still to be chosen."""
    if has_address(spec) and not spec.get("clusterIP"):
        return True
    if has_health_port(spec) and not spec.get(HEALTH_PORT):
        return True
    return _gets_ports(spec) and any(not one.get("nodePort") for one in spec.get("ports") or ())


def keep_allocated(new: Manifest, old: Manifest) -> Manifest:
    """Return the new spec with the addresses and ports of the old one that the client left out.

    Fields that a Service of the new type does not have are removed.
    """
    spec = dict(new)
    if _is_addressed(spec) and _is_addressed(old):
        for name in ("clusterIP", "clusterIPs"):
            if not spec.get(name) and old.get(name):
                spec[name] = old[name]
    elif not _is_addressed(spec) and _is_addressed(old):
        for name in ("clusterIP", "clusterIPs", "ipFamilies", "ipFamilyPolicy"):
            if spec.get(name) == old.get(name):
                spec.pop(name, None)
    for name, types in _OF_TYPES.items():
        is_left = spec.get("type") not in types and old.get("type") in types
        if is_left and spec.get(name) == old.get(name):
            spec.pop(name, None)
    policy = "externalTrafficPolicy"
    is_left = is_reached_from_outside(old) and not is_reached_from_outside(spec)
    if is_left and spec.get(policy) == old.get(policy):
        spec.pop(policy, None)
    if has_health_port(old):
        if has_health_port(spec) and not spec.get(HEALTH_PORT) and old.get(HEALTH_PORT):
            spec[HEALTH_PORT] = old[HEALTH_PORT]
        elif not has_health_port(spec) and spec.get(HEALTH_PORT) == old.get(HEALTH_PORT):
            spec.pop(HEALTH_PORT, None)
    if spec.get("ports") and _has_ports(old):
        ports = old.get("ports") or []
        spec["ports"] = (
            _with_node_ports(spec["ports"], ports)
            if _has_ports(spec)
            else _without_node_ports(spec["ports"], ports)
        )
    return spec


def _with_node_ports(new: list[Manifest], old: list[Manifest]) -> list[Manifest]:
    """Return ports with the node ports of old ports of the same name, unless others use them."""
    used = {one.get("nodePort") for one in new} & {one.get("nodePort") for one in old}
    by_name = {one.get("name") or "": one.get("nodePort") for one in old}
    found = []
    for one in new:
        former = by_name.get(one.get("name") or "")
        if former and not one.get("nodePort") and former not in used:
            used.add(former)
            found.append({**one, "nodePort": former})
        else:
            found.append(one)
    return found


def _without_node_ports(new: list[Manifest], old: list[Manifest]) -> list[Manifest]:
    """Return ports without those node ports that the old ports had; new ones are kept."""
    old_ports = {one.get("nodePort") for one in old}
    return [
        {key: value for key, value in one.items() if key != "nodePort"}
        if one.get("nodePort") in old_ports
        else one
        for one in new
    ]


class Pool:
    """The free addresses and ports, from which new Services get theirs.

    ``choose`` returns a random number below its argument: a recreated name should not get the
    clients of the former one.
    """

    def __init__(
        self, addresses: Iterable[str], ports: Iterable[int], choose: Callable[[int], int]
    ) -> None:
        self._addresses = {FIRST, *addresses}
        self._ports = set(ports)
        self._choose = choose

    def filled(
        self, service: Manifest, old: Manifest | None = None, *, namespace: str = ""
    ) -> Manifest:
        """Return a Service with the address and the ports that it lacks.

        ``namespace`` is where it will be, should it not say so itself.

        Raises:
            Invalid: it asks for an address or a port that is taken, or that is not of the range.
        """
        spec, before = dict(service.get("spec") or {}), (old or {}).get("spec") or {}
        metadata = service.get("metadata") or {}
        errors: list[FieldError] = []
        if has_address(spec):
            cluster_ip = spec.get("clusterIP")
            if not cluster_ip:
                cluster_ip = self._address()
            elif cluster_ip != before.get("clusterIP"):
                place = metadata.get("namespace") or namespace
                own = (place, metadata.get("name")) == ("default", "kubernetes")
                errors += self._claim(cluster_ip, first=own)
            spec["clusterIP"] = cluster_ip
            spec["clusterIPs"] = spec.get("clusterIPs") or [cluster_ip]
        elif spec.get("clusterIP") == HEADLESS:
            spec["clusterIPs"] = spec.get("clusterIPs") or [HEADLESS]
        if _is_addressed(spec):
            spec["ipFamilies"] = spec.get("ipFamilies") or ["IPv4"]
            spec["ipFamilyPolicy"] = spec.get("ipFamilyPolicy") or "SingleStack"
        if _has_ports(spec) and spec.get("ports"):
            spec["ports"] = self._with_ports(spec, before.get("ports"), errors)
        if has_health_port(spec):
            health = spec.get(HEALTH_PORT)
            if not health:
                spec[HEALTH_PORT] = self._free_port()
            elif health != before.get(HEALTH_PORT):
                errors += self._claim_port(health, f"spec.{HEALTH_PORT}")
        if errors:
            raise Invalid("Service", metadata.get("name") or "", errors)
        return {**service, "spec": spec}

    def _address(self) -> str:
        size = NETWORK.num_addresses - 2
        start = self._choose(size)
        for step in range(size):
            found = str(NETWORK[1 + (start + step) % size])
            if found not in self._addresses:
                self._addresses.add(found)
                return found
        raise Invalid("Service", "", [FieldError(INVALID, "spec.clusterIPs", [], "range is full")])

    def _claim(self, address: str, *, first: bool) -> list[FieldError]:
        try:
            inside = ipaddress.ip_address(address) in NETWORK
        except ValueError:
            detail = "must be empty, 'None', or a valid IP address"
            return [FieldError(INVALID, "spec.clusterIPs[0]", address, detail)]
        problem = ""
        if not inside:
            problem = (
                f"the provided IP ({address}) is not in the valid range. The range of valid IPs is"
                f" {NETWORK}"
            )
        elif address in self._addresses and not (first and address == FIRST):
            problem = "provided IP is already allocated"
        self._addresses.add(address)
        if not problem:
            return []
        detail = f"failed to allocate IP {address}: {problem}"
        return [FieldError(INVALID, "spec.clusterIPs", [address], detail)]

    def _with_ports(
        self, spec: Manifest, before: list[Manifest] | None, errors: list[FieldError]
    ) -> list[Manifest]:
        """Return the ports of a Service with their node ports.

        One number stands for ports that differ by protocol alone: a client may ask for that, and
        new Services get it so.
        """
        own_ports = {one.get("nodePort") for one in before or ()}
        same: dict[Any, int] = {}
        if before is None:
            for one in spec["ports"]:
                if one.get("nodePort"):
                    same.setdefault(one.get("port"), one["nodePort"])
        found = []
        for index, one in enumerate(spec["ports"]):
            number = one.get("nodePort") or (before is None and same.get(one.get("port"))) or None
            if number is None:
                if not _gets_ports(spec):
                    found.append(one)
                    continue
                number = self._free_port()
                if before is None:
                    same[one.get("port")] = number
            elif number not in own_ports:
                errors += self._claim_port(number, f"spec.ports[{index}].nodePort")
            own_ports.add(number)
            found.append({**one, "nodePort": number})
        return found

    def _free_port(self) -> int:
        """Return a node port that nobody has.

        Raises:
            Invalid: there is none.
        """
        start = self._choose(len(NODE_PORTS))
        for step in range(len(NODE_PORTS)):
            found = NODE_PORTS[(start + step) % len(NODE_PORTS)]
            if found not in self._ports:
                self._ports.add(found)
                return found
        error = FieldError(INVALID, "spec.ports", [], "all node ports are allocated")
        raise Invalid("Service", "", [error])

    def _claim_port(self, port: int, path: str) -> list[FieldError]:
        problem = ""
        if port not in NODE_PORTS:
            ends = f"{NODE_PORTS[0]}-{NODE_PORTS[-1]}"
            problem = f"provided port is not in the valid range. The range of valid ports is {ends}"
        elif port in self._ports:
            problem = "provided port is already allocated"
        self._ports.add(port)
        return [FieldError(INVALID, path, port, problem)] if problem else []
