"""Endpoints, EndpointSlices, Ingresses, IngressClasses, NetworkPolicies, networks and addresses.

Rules:
pkg/apis/{core,discovery,networking}/validation/validation.go, v1.36.
"""

from collections.abc import Callable, Container, Iterable, Sequence
from functools import partial
from typing import Final

from clusterstate.admission.validation.core import formats
from clusterstate.admission.validation.core.field import (
    Errors,
    at_most,
    check_form,
    duplicate,
    each,
    forbidden,
    invalid,
    invalid_each,
    not_supported,
    one_of,
    require_form,
    required,
    required_one_of,
)
from clusterstate.admission.validation.core.metadata import (
    validate_immutable,
    validate_label_selector,
)
from clusterstate.admission.validation.core.ports import PROTOCOLS, validate_port_number_or_name
from clusterstate.objects.values.meta import Manifest

_ADDRESS_TYPES: Final = ("FQDN", "IPv4", "IPv6")
_MOST_ADDRESSES: Final = 100
_MOST_ENDPOINTS: Final = 1000
_MOST_HINTS: Final = 8
_MOST_NETWORKS: Final = 2
_NOT_IN_PATHS: Final = ("//", "/./", "/../", "%2f", "%2F")
_CLASS: Final = "kubernetes.io/ingress.class"
"""The annotation that names an Ingress's class in place of the field."""
_PATH_TYPES: Final = ("Exact", "ImplementationSpecific", "Prefix")
_SCOPES: Final = ("Cluster", "Namespace")
_POLICY_TYPES: Final = ("Egress", "Ingress")


def _endpoints(new: Manifest, old: Manifest | None) -> Errors:
    errors: Errors = []
    strict = new.get("subsets") != (old or {}).get("subsets")
    for index, subset in enumerate(new.get("subsets") or ()):
        path = f"subsets[{index}]"
        if not subset.get("addresses") and not subset.get("notReadyAddresses"):
            errors.append(required(path, "must specify `addresses` or `notReadyAddresses`"))
        for name in ("addresses", "notReadyAddresses"):
            for position, address in enumerate(subset.get(name) or ()):
                ip = address.get("ip") or ""
                problems = formats.ip_address(ip, strict=strict) or formats.reachable_address(ip)
                errors += invalid_each(f"{path}.{name}[{position}].ip", ip, problems)
        for position, port in enumerate(subset.get("ports") or ()):
            at, number = f"{path}.ports[{position}]", port.get("port") or 0
            errors += invalid_each(f"{at}.port", number, formats.port_number(number))
            if port.get("protocol") not in PROTOCOLS:
                errors.append(not_supported(f"{at}.protocol", port.get("protocol"), PROTOCOLS))
    return errors


def _endpoint_slice(new: Manifest, old: Manifest | None) -> Errors:
    errors: Errors = []
    type_ = new.get("addressType") or ""
    errors += required_one_of(type_, "addressType", _ADDRESS_TYPES)
    if old is not None:
        errors += validate_immutable(type_, old.get("addressType"), "addressType")
    endpoints = new.get("endpoints") or ()
    strict = new.get("endpoints") != (old or {}).get("endpoints")
    errors += at_most(endpoints, "endpoints", _MOST_ENDPOINTS)
    for index, endpoint in enumerate(endpoints[:_MOST_ENDPOINTS]):
        path, addresses = f"endpoints[{index}].addresses", endpoint.get("addresses") or ()
        if not addresses:
            errors.append(required(path, "must contain at least 1 address"))
        errors += at_most(addresses, path, _MOST_ADDRESSES)
        for position, address in enumerate(addresses[:_MOST_ADDRESSES]):
            if type_ == "FQDN":
                problems = _domain(address)
            else:
                problems = formats.ip_address(address, strict=strict)
            if not problems and type_ in ("IPv4", "IPv6"):
                problems = formats.reachable_address(address)
            errors += invalid_each(f"{path}[{position}]", address, problems)
            if type_ in ("IPv4", "IPv6") and (":" in address) is not (type_ == "IPv6"):
                detail = f"must be an {type_} address"
                errors.append(invalid(f"{path}[{position}]", address, detail))
        path = f"endpoints[{index}]"
        errors += check_form(endpoint.get("hostname"), f"{path}.hostname", formats.dns_label)
        for name, form in (("forZones", formats.label_value), ("forNodes", formats.dns_subdomain)):
            errors += _hints(
                (endpoint.get("hints") or {}).get(name) or (), f"{path}.hints.{name}", form
            )
    names: set[str] = set()
    for index, port in enumerate(new.get("ports") or ()):
        path, name = f"ports[{index}]", port.get("name") or ""
        if name:
            errors += invalid_each(f"{path}.name", name, formats.dns_label(name))
        if name in names:
            errors.append(duplicate(f"{path}.name", name))
        names.add(name)
        errors += check_form(port.get("appProtocol"), f"{path}.appProtocol", formats.qualified_name)
        if port.get("protocol") not in PROTOCOLS:
            errors.append(not_supported(f"{path}.protocol", port.get("protocol"), PROTOCOLS))
        if (number := port.get("port")) is not None:
            errors += invalid_each(f"{path}.port", number, formats.port_number(number))
    return errors


def _hints(hints: Sequence[Manifest], path: str, form: Callable[[str], Iterable[str]]) -> Errors:
    if errors := at_most(hints, path, _MOST_HINTS):
        return errors
    seen: set[str] = set()
    for index, hint in enumerate(hints):
        where, name = f"{path}[{index}].name", hint.get("name") or ""
        if name in seen:
            errors.append(duplicate(where, name))
        seen.add(name)
        errors += invalid_each(where, name, form(name))
    return errors


def _domain(name: str) -> Sequence[str]:
    """Return the problems of a fully qualified domain name (``IsFullyQualifiedDomainName``)."""
    plain = name.removesuffix(".")
    if problems := formats.dns_subdomain(plain):
        return problems
    if "." not in plain:
        return ("should be a domain with at least two segments separated by dots",)
    return [problem for label in plain.split(".") for problem in formats.dns_label(label)]


# Ingresses ------------------------------------------------------------------------------------


def _backend(backend: Manifest, path: str) -> Errors:
    service, resource = backend.get("service"), backend.get("resource")
    if service is not None and resource is not None:
        return [invalid(path, "", "cannot set both resource and service backends")]
    if service is None and resource is None:
        return [required(path, "resource or service backend is required")]
    if service is None:
        return [] if (resource or {}).get("name") else [required(f"{path}.resource.name")]
    errors: Errors = []
    name, port = service.get("name") or "", service.get("port") or {}
    errors += require_form(name, f"{path}.service.name", formats.dns_label)
    if port.get("name") and port.get("number"):
        errors.append(
            invalid(f"{path}.service.port", "", "cannot set both port name & port number")
        )
    elif port.get("name"):
        errors += invalid_each(
            f"{path}.service.port.name", port["name"], formats.port_name(port["name"])
        )
    elif port.get("number"):
        problems = formats.port_number(port["number"])
        errors += invalid_each(f"{path}.service.port.number", port["number"], problems)
    else:
        errors.append(required(f"{path}.service.port", "port name or number is required"))
    return errors


def _name_or_wildcard(host: str, path: str) -> Errors:
    plain = f"a{host[1:]}" if host.startswith("*.") else host
    return invalid_each(path, host, formats.dns_subdomain(plain))


def _host(host: str, path: str) -> Errors:
    errors = _name_or_wildcard(host, path)
    if not formats.ip_address(host):
        errors.append(invalid(path, host, "must be a DNS name, not an IP address"))
    return errors


def _ingress(new: Manifest, old: Manifest | None) -> Errors:
    spec = new.get("spec") or {}
    errors: Errors = []
    default, rules = spec.get("defaultBackend"), spec.get("rules") or ()
    if default is None and not rules:
        errors.append(invalid("spec", spec, "either `defaultBackend` or `rules` must be specified"))
    if default is not None:
        errors += _backend(default, "spec.defaultBackend")
    errors += check_form(
        spec.get("ingressClassName"), "spec.ingressClassName", formats.dns_subdomain
    )
    for index, rule in enumerate(rules):
        path = f"spec.rules[{index}]"
        if host := rule.get("host"):
            errors += _host(host, f"{path}.host")
        if (http := rule.get("http")) is None:
            continue
        if not http.get("paths"):
            errors.append(required(f"{path}.http.paths"))
        errors += each(http.get("paths"), f"{path}.http.paths", _path)
    for index, tls in enumerate(spec.get("tls") or ()):
        errors += each(tls.get("hosts"), f"spec.tls[{index}].hosts", _name_or_wildcard)
        if secret := tls.get("secretName"):
            problems = formats.dns_subdomain(secret)
            errors += invalid_each(f"spec.tls[{index}].secretName", secret, problems)
    former = ((new.get("metadata") or {}).get("annotations") or {}).get(_CLASS)
    if old is None and former is not None and spec.get("ingressClassName") not in (None, former):
        detail = "must match `ingressClassName` when both are specified"
        errors.append(invalid(f"annotations.{_CLASS}", former, detail))
    return errors


def _path(one: Manifest, path: str) -> Errors:
    errors: Errors = []
    type_, text = one.get("pathType"), one.get("path") or ""
    if type_ is None:
        errors.append(required(f"{path}.pathType", "pathType must be specified"))
    elif type_ not in _PATH_TYPES:
        errors.append(not_supported(f"{path}.pathType", type_, _PATH_TYPES))
    elif (text or type_ != "ImplementationSpecific") and not text.startswith("/"):
        errors.append(invalid(f"{path}.path", text, "must be an absolute path"))
    if type_ in ("Exact", "Prefix"):
        details = [f"must not contain '{one}'" for one in _NOT_IN_PATHS if one in text]
        details += [f"cannot end with '{one}'" for one in ("/..", "/.") if text.endswith(one)]
        errors += invalid_each(f"{path}.path", text, details)
    return errors + _backend(one.get("backend") or {}, f"{path}.backend")


def _ingress_class(new: Manifest, old: Manifest | None) -> Errors:
    spec = new.get("spec") or {}
    controller = spec.get("controller") or ""
    errors: Errors = []
    if old is not None:
        before = (old.get("spec") or {}).get("controller")
        errors += validate_immutable(controller, before, "spec.controller")
    errors += _class_parameters(spec.get("parameters"), "spec.parameters")
    if not controller:
        return [*errors, required("spec.controller")]
    domain, slash, rest = controller.partition("/")
    if not slash or not rest:
        detail = 'must be a domain-prefixed path (such as "acme.io/foo")'
        return [*errors, invalid("spec.controller", controller, detail)]
    return errors + invalid_each("spec.controller", controller, formats.dns_subdomain(domain))


def _class_parameters(reference: Manifest | None, path: str) -> Errors:
    if reference is None:
        return []
    errors: Errors = []
    errors += check_form(reference.get("apiGroup"), f"{path}.apiGroup", formats.dns_subdomain)
    for field in ("kind", "name"):
        errors += require_form(
            reference.get(field) or "",
            f"{path}.{field}",
            formats.path_segment,
            f"{field} is required",
        )
    scope, namespace = reference.get("scope"), reference.get("namespace")
    where = f"{path}.namespace"
    if scope is None:
        errors.append(required(f"{path}.scope"))
    elif scope not in _SCOPES:
        errors.append(not_supported(f"{path}.scope", scope, _SCOPES))
    elif scope == "Cluster" and namespace is not None:
        errors.append(forbidden(where, "`parameters.scope` is set to 'Cluster'"))
    elif scope == "Namespace" and not namespace:
        errors.append(required(where, "`parameters.scope` is set to 'Namespace'"))
    elif namespace:
        errors += invalid_each(where, namespace, formats.dns_label(namespace))
    return errors


# Networks of Services ---------------------------------------------------------------------------


def _service_cidr(new: Manifest, old: Manifest | None) -> Errors:
    blocks = (new.get("spec") or {}).get("cidrs") or []
    path = "spec.cidrs"
    if old is not None:
        return validate_immutable(blocks, (old.get("spec") or {}).get("cidrs") or [], path)
    if not blocks:
        return [required(path, "at least one CIDR required")]
    if len(blocks) > _MOST_NETWORKS:
        detail = "may only hold up to 2 values"
        return [invalid(path, blocks, detail)]
    errors: Errors = []
    for index, block in enumerate(blocks):
        errors += invalid_each(f"{path}[{index}]", block, formats.cidr(block, strict=True))
    if len(blocks) == _MOST_NETWORKS and (":" in blocks[0]) is (":" in blocks[1]):
        detail = "may specify no more than one IP for each IP family, i.e 192.168.0.0/24 and"
        errors.append(invalid(path, blocks, f"{detail} 2001:db8::/64"))
    return errors


def _ip_address(new: Manifest, old: Manifest | None) -> Errors:
    path, named = "spec.parentRef", (new.get("spec") or {}).get("parentRef")
    if old is not None:
        return validate_immutable(named, (old.get("spec") or {}).get("parentRef"), path)
    if named is None:
        return [required(path)]
    return [required(f"{path}.{field}") for field in ("resource", "name") if not named.get(field)]


# Network policies -----------------------------------------------------------------------------


_PEERS: Final = (("ingress", "from"), ("egress", "to"))


def _network_policy(new: Manifest, old: Manifest | None) -> Errors:
    spec, before = new.get("spec") or {}, (old or {}).get("spec") or {}
    errors = validate_label_selector(spec.get("podSelector"), "spec.podSelector")
    stored = [
        peer.get("ipBlock") or {}
        for direction, peers in _PEERS
        for rule in before.get(direction) or ()
        for peer in rule.get(peers) or ()
    ]
    known = {text for one in stored for text in (one.get("cidr"), *(one.get("except") or ()))}
    for direction, peers in _PEERS:
        for index, rule in enumerate(spec.get(direction) or ()):
            path = f"spec.{direction}[{index}]"
            errors += each(rule.get("ports"), f"{path}.ports", _policy_port)
            errors += each(rule.get(peers), f"{path}.{peers}", partial(_peer, known=known))
    types = spec.get("policyTypes") or ()
    if len(types) > len(_POLICY_TYPES):
        errors.append(
            invalid("spec.policyTypes", types, "may not specify more than two policyTypes")
        )
    for index, type_ in enumerate(types):
        errors += one_of(type_, f"spec.policyTypes[{index}]", _POLICY_TYPES)
    return errors


def _policy_port(port: Manifest, path: str) -> Errors:
    errors: Errors = []
    if port.get("protocol") not in PROTOCOLS:
        errors.append(not_supported(f"{path}.protocol", port.get("protocol"), PROTOCOLS))
    number, end = port.get("port"), port.get("endPort")
    if number is not None:
        errors += validate_port_number_or_name(number, f"{path}.port")
    if end is not None:
        if not isinstance(number, int):
            why = "not specified" if number is None else "non-numeric"
            detail = f"may not be specified when `port` is {why}"
            errors.append(invalid(f"{path}.endPort", end, detail))
        elif end < number:
            detail = "must be greater than or equal to `port`"
            errors.append(invalid(f"{path}.endPort", end, detail))
        else:
            errors += invalid_each(f"{path}.endPort", end, formats.port_number(end))
    return errors


def _peer(peer: Manifest, path: str, *, known: Container[str | None]) -> Errors:
    errors: Errors = []
    selectors = [name for name in ("podSelector", "namespaceSelector") if name in peer]
    for name in selectors:
        errors += validate_label_selector(peer[name], f"{path}.{name}")
    block = peer.get("ipBlock")
    if block is None:
        return errors if selectors else [required(path, "must specify a peer")]
    if selectors:
        errors.append(forbidden(path, "may not specify both ipBlock and another peer"))
    return errors + _ip_block(block, f"{path}.ipBlock", known)


def _ip_block(block: Manifest, path: str, known: Container[str | None]) -> Errors:
    """Return the errors in a block of addresses; ``known`` are those of the stored policy."""
    text = block.get("cidr") or ""
    if not text:
        return [required(f"{path}.cidr")]
    problems = formats.cidr(text, strict=text not in known)
    errors = invalid_each(f"{path}.cidr", text, problems)
    if (whole := formats.ip_interface(text)) is None:
        return errors
    for index, one in enumerate(block.get("except") or ()):
        where = f"{path}.except[{index}]"
        errors += invalid_each(where, one, formats.cidr(one, strict=one not in known))
        if (part := formats.ip_interface(one)) is None:
            continue
        inside, outside = part.network, whole.network
        if part.ip not in outside or inside.prefixlen <= outside.prefixlen:
            errors.append(invalid(where, one, "must be a strict subset of `cidr`"))
    return errors


RULES: Final[dict[str, Callable[[Manifest, Manifest | None], Errors]]] = {
    "Endpoints": _endpoints,
    "EndpointSlice": _endpoint_slice,
    "Ingress": _ingress,
    "IngressClass": _ingress_class,
    "IPAddress": _ip_address,
    "ServiceCIDR": _service_cidr,
    "NetworkPolicy": _network_policy,
}
