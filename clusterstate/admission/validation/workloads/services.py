"""Services: their type, ports, addresses, families and external access.

All addresses are IPv4 (`objects.values.addresses`): a Service with another family, or with both, is
refused. Rules: pkg/apis/core/validation/validation.go (``ValidateService``) and
pkg/registry/core/service/storage/alloc.go, v1.36.
"""

from typing import Any, Final

from clusterstate.admission.validation.core import formats
from clusterstate.admission.validation.core.field import (
    Errors,
    duplicate,
    forbidden,
    invalid,
    invalid_each,
    not_supported,
    one_of,
    required,
    required_one_of,
)
from clusterstate.admission.validation.core.metadata import validate_labels
from clusterstate.admission.validation.core.ports import PROTOCOLS, validate_port_number_or_name
from clusterstate.objects.values.addresses import (
    HEADLESS,
    HEALTH_PORT,
    has_health_port,
    is_reached_from_outside,
)
from clusterstate.objects.values.meta import Manifest

_TYPES: Final = ("ClusterIP", "ExternalName", "LoadBalancer", "NodePort")
_AFFINITIES: Final = ("ClientIP", "None")
_FAMILIES: Final = ("IPv4", "IPv6")
_FAMILY_POLICIES: Final = ("PreferDualStack", "RequireDualStack", "SingleStack")
_TRAFFIC_POLICIES: Final = ("Cluster", "Local")
_DISTRIBUTIONS: Final = ("PreferClose", "PreferSameNode", "PreferSameZone")
_LONGEST_AFFINITY: Final = 86400
_KUBELET: Final = 10250
_IP_MODES: Final = ("Proxy", "VIP")


def validate_service(new: Manifest, old: Manifest | None) -> Errors:
    """Return the errors in a Service; ``old`` is the stored one."""
    spec, before = new.get("spec") or {}, (old or {}).get("spec") or {}
    type_ = spec.get("type") or ""
    errors: Errors = []
    errors += required_one_of(type_, "spec.type", _TYPES)
    errors += _ports(spec, type_)
    if selector := spec.get("selector"):
        errors += validate_labels(selector, "spec.selector")
    errors += _affinity(spec)
    errors += _cluster_ips(spec, before, type_)
    if type_ == "ExternalName":
        errors += _external_name(spec)
    else:
        errors += _families(spec)
    errors += _outside(spec, before, type_)
    return errors + _traffic(spec, before, type_)


def validate_service_status(new: Manifest, old: Manifest | None) -> Errors:
    """Return the errors in a load balancer's status of a Service."""
    ingress = ((new.get("status") or {}).get("loadBalancer") or {}).get("ingress")
    if ingress and (new.get("spec") or {}).get("type") != "LoadBalancer":
        detail = "may only be used when `spec.type` is 'LoadBalancer'"
        return [forbidden("status.loadBalancer.ingress", detail)]
    return validate_balancer(new, old)


def validate_balancer(new: Manifest, old: Manifest | None) -> Errors:
    """Return the errors in ``status.loadBalancer`` of a Service or an Ingress."""
    ingress, before = (
        ((one.get("status") or {}).get("loadBalancer") or {}).get("ingress") or ()
        for one in (new, old or {})
    )
    known = {one.get("ip") for one in before}
    errors: Errors = []
    for index, one in enumerate(ingress):
        where, mode = f"status.loadBalancer.ingress[{index}]", one.get("ipMode")
        if address := one.get("ip"):
            problems = formats.ip_address(address, strict=address not in known)
            errors += invalid_each(f"{where}.ip", address, problems)
            errors += one_of(mode, f"{where}.ipMode", _IP_MODES)
        elif mode is not None:
            errors.append(forbidden(f"{where}.ipMode", "may not be specified when `ip` is not set"))
        if name := one.get("hostname"):
            errors += invalid_each(f"{where}.hostname", name, formats.dns_subdomain(name))
            if not formats.ip_address(name):
                detail = "must be a DNS name, not an IP address"
                errors.append(invalid(f"{where}.hostname", name, detail))
    return errors


def _ports(spec: Manifest, type_: str) -> Errors:
    ports = spec.get("ports") or []
    errors: Errors = []
    if not ports and spec.get("clusterIP") != HEADLESS and type_ != "ExternalName":
        errors.append(required("spec.ports"))
    names: set[str] = set()
    seen: set[tuple[str, Any]] = set()
    for index, port in enumerate(ports):
        path = f"spec.ports[{index}]"
        errors += _port(port, path, names, named=len(ports) > 1)
        if type_ == "LoadBalancer" and port.get("port") == _KUBELET:
            detail = f"may not expose port {_KUBELET} externally since it is used by kubelet"
            errors.append(invalid(f"{path}.port", _KUBELET, detail))
        key = port.get("protocol") or "", port.get("port")
        if key in seen:
            errors.append(duplicate(path, {"protocol": key[0], "port": key[1]}))
        seen.add(key)
    return errors + _node_ports(ports, type_)


def _node_ports(ports: list[Manifest], type_: str) -> Errors:
    errors: Errors = []
    seen: set[tuple[str, int]] = set()
    for index, port in enumerate(ports):
        if not (number := port.get("nodePort")):
            continue
        path, key = f"spec.ports[{index}].nodePort", (port.get("protocol") or "", number)
        if type_ == "ClusterIP":
            errors.append(forbidden(path, "may not be used when `type` is 'ClusterIP'"))
        if key in seen:
            errors.append(duplicate(path, number))
        seen.add(key)
    return errors


def _port(port: Manifest, path: str, names: set[str], *, named: bool) -> Errors:
    errors: Errors = []
    name = port.get("name") or ""
    if named and not name:
        errors.append(required(f"{path}.name"))
    elif name:
        errors += invalid_each(f"{path}.name", name, formats.dns_label(name))
        if name in names:
            errors.append(duplicate(f"{path}.name", name))
        names.add(name)
    number = port.get("port", 0)
    errors += invalid_each(f"{path}.port", number, formats.port_number(number))
    protocol = port.get("protocol") or ""
    errors += required_one_of(protocol, f"{path}.protocol", PROTOCOLS)
    if (target := port.get("targetPort")) is not None:
        errors += validate_port_number_or_name(target, f"{path}.targetPort")
    return errors


def _affinity(spec: Manifest) -> Errors:
    affinity = spec.get("sessionAffinity") or ""
    if not affinity:
        return [required("spec.sessionAffinity")]
    if affinity not in _AFFINITIES:
        return [not_supported("spec.sessionAffinity", affinity, _AFFINITIES)]
    if affinity == "None":
        return []
    path = "spec.sessionAffinityConfig.clientIP.timeoutSeconds"
    client = (spec.get("sessionAffinityConfig") or {}).get("clientIP") or {}
    seconds = client.get("timeoutSeconds")
    if seconds is None:
        return [required(path)]
    if 0 < seconds <= _LONGEST_AFFINITY:
        return []
    detail = f"must be greater than 0 and less than {_LONGEST_AFFINITY}"
    return [invalid(path, seconds, detail)]


def _cluster_ips(spec: Manifest, before: Manifest, type_: str) -> Errors:
    address = spec.get("clusterIP")
    if address == HEADLESS and type_ in ("NodePort", "LoadBalancer"):
        detail = f"may not be set to 'None' for {type_} services"
        return [invalid("spec.clusterIPs[0]", address, detail)]
    former = before.get("clusterIP")
    if former and former != address and type_ != "ExternalName":
        return [invalid("spec.clusterIPs[0]", address, "may not change once set")]
    several = spec.get("clusterIPs") or []
    if several and address and several[0] != address:
        detail = "first value must match `clusterIP`"
        return [invalid("spec.clusterIPs", several, detail)]
    return []


def _external_name(spec: Manifest) -> Errors:
    name = (spec.get("externalName") or "").removesuffix(".")
    if not name:
        return [required("spec.externalName")]
    return invalid_each("spec.externalName", name, formats.dns_subdomain(name))


def _families(spec: Manifest) -> Errors:
    """Return the errors in the address families; the cluster has one, IPv4."""
    errors: Errors = []
    policy = spec.get("ipFamilyPolicy") or ""
    errors += one_of(policy or None, "spec.ipFamilyPolicy", _FAMILY_POLICIES)
    # The endpoints of a Service without a selector come from a client, and may be of both.
    headless = spec.get("clusterIP") == HEADLESS and not spec.get("selector")
    if policy == "RequireDualStack" and not headless:
        detail = "this cluster is not configured for dual-stack services"
        errors.append(invalid("spec.ipFamilyPolicy", policy, detail))
    seen: set[str] = set()
    for index, family in enumerate(spec.get("ipFamilies") or ()):
        path = f"spec.ipFamilies[{index}]"
        if family not in _FAMILIES:
            errors.append(not_supported(path, family, _FAMILIES))
        elif family in seen:
            errors.append(duplicate(path, family))
        elif family != "IPv4" and not headless:
            errors.append(invalid(path, family, "not configured on this cluster"))
        seen.add(family)
    return errors


def _outside(spec: Manifest, before: Manifest, type_: str) -> Errors:
    """Return the errors in external addresses and fields for load balancers."""
    errors: Errors = []
    known = before.get("externalIPs") or ()
    for index, address in enumerate(spec.get("externalIPs") or ()):
        problems = formats.ip_address(address, strict=address not in known)
        problems = problems or formats.reachable_address(address)
        errors += invalid_each(f"spec.externalIPs[{index}]", address, problems)
    balanced = type_ == "LoadBalancer"
    only = "may only be used when `type` is 'LoadBalancer'"
    if spec.get("loadBalancerSourceRanges"):
        if not balanced:
            errors.append(forbidden("spec.LoadBalancerSourceRanges", only))
        blocks = before.get("loadBalancerSourceRanges") or ()
        for index, block in enumerate(spec["loadBalancerSourceRanges"]):
            path = f"spec.LoadBalancerSourceRanges[{index}]"
            problems = formats.cidr(block.strip(), strict=block not in blocks)
            errors += invalid_each(path, block, problems)
    if spec.get("allocateLoadBalancerNodePorts") is not None and not balanced:
        errors.append(forbidden("spec.allocateLoadBalancerNodePorts", only))
    class_ = spec.get("loadBalancerClass")
    if class_ is not None and not balanced:
        errors.append(forbidden("spec.loadBalancerClass", only))
    elif balanced and before.get("type") == type_ and class_ != before.get("loadBalancerClass"):
        errors.append(invalid("spec.loadBalancerClass", class_, "may not change once set"))
    elif class_ is not None:
        path = "spec.loadBalancerClass"
        errors += invalid_each(path, class_, formats.qualified_name(class_))
    return errors


def _traffic(spec: Manifest, before: Manifest, type_: str) -> Errors:
    errors: Errors = []
    policy = spec.get("externalTrafficPolicy")
    # Services of earlier versions may have it; they can be changed all the same.
    is_new = policy != before.get("externalTrafficPolicy")
    if policy and is_new and not is_reached_from_outside(spec):
        detail = "may only be set for externally-accessible services"
        errors.append(invalid("spec.externalTrafficPolicy", policy, detail))
    if (health := spec.get(HEALTH_PORT)) and not has_health_port(spec):
        detail = (
            "may only be set when `type` is 'LoadBalancer' and `externalTrafficPolicy` is 'Local'"
        )
        errors.append(invalid(f"spec.{HEALTH_PORT}", health, detail))
    for name in ("externalTrafficPolicy", "internalTrafficPolicy"):
        policy = spec.get(name)
        if policy and policy not in _TRAFFIC_POLICIES and type_ != "ExternalName":
            errors.append(not_supported(f"spec.{name}", policy, _TRAFFIC_POLICIES))
    found = spec.get("trafficDistribution")
    errors += one_of(found, "spec.trafficDistribution", _DISTRIBUTIONS)
    return errors
