"""Devices that pods claim: what is claimed, what was allocated, and what drivers tell of them.

A part of Kubernetes' rules: what keeps an object from being misunderstood. Selectors and derived
attributes are expressions in CEL; their length is looked at, they are not compiled. Rules:
pkg/apis/resource/validation/validation.go, v1.36.
"""

import ipaddress
import re
import uuid
from collections.abc import Callable, Iterable
from typing import Any, Final

import msgspec

from clusterstate.admission.validation import formats
from clusterstate.admission.validation.conditions import validate_conditions
from clusterstate.admission.validation.field import (
    Errors,
    at_most,
    duplicate,
    forbidden,
    invalid,
    invalid_each,
    not_supported,
    required,
    required_one_of,
    too_long,
)
from clusterstate.admission.validation.metadata import validate_immutable
from clusterstate.admission.validation.scheduling import validate_node_selector
from clusterstate.objects import devices
from clusterstate.objects.meta import Manifest

_ALLOCATION: Final = ("All", "ExactCount")
_SOURCES: Final = ("FromClaim", "FromClass")
_PLACES: Final = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
_PLACES_OF_DEVICE: Final = ("nodeName", "nodeSelector", "allNodes")
_EFFECTS: Final = ("NoExecute", "NoSchedule", "None")
_VALUES: Final = (
    "bool", "bools", "int", "ints", "string", "strings", "version", "versions",
)  # fmt: skip
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MOST: Final = 32
"""Of requests, constraints, configurations, selectors, results, and of what a device has."""
_MOST_CHOICES: Final = 8
_MOST_CONSUMERS: Final = 256
_MOST_CONDITIONS: Final = 8
_MOST_DEVICES: Final = 128
_MOST_SPECIAL_DEVICES: Final = 64
_MOST_TAINTS: Final = 16
_MOST_ADDRESSES: Final = 16
_LONGEST_EXPRESSION: Final = 10 * 1024
_LONGEST_DATA: Final = 10 * 1024
_LONGEST_IDENTIFIER: Final = 32
_LONGEST_DRIVER: Final = 63
_LONGEST_POOL: Final = 253
_LONGEST_INTERFACE: Final = 256
_LONGEST_HARDWARE: Final = 128
_UNKNOWN_REQUEST: Final = (
    "must be the name of a request in the claim or the name of a request and a subrequest"
    " separated by '/'"
)

_Check = Callable[[Any, str], Errors]


def _each(
    items: Iterable[Any] | None,
    path: str,
    check: _Check,
    *,
    most: int = 0,
    key: Callable[[Any], Any] | None = None,
) -> Errors:
    """Return what is wrong with the items of a list; a list that is too long is not looked at.

    ``most`` 0: any number. ``key``: what no two items share.
    """
    items = list(items or ())
    if most and (too_many := at_most(items, path, most)):
        return too_many
    errors: Errors = []
    for index, item in enumerate(items):
        errors += check(item, f"{path}[{index}]")
    if key is not None:
        seen: set[Any] = set()
        for index, item in enumerate(items):
            if (one := key(item)) in seen:
                errors.append(duplicate(f"{path}[{index}]", one))
            seen.add(one)
    return errors


def _name(item: Manifest) -> str:
    return item.get("name") or ""


def _label(name: str, path: str) -> Errors:
    return invalid_each(path, name, formats.dns_label(name))


def _driver(name: str, path: str) -> Errors:
    if not name:
        return [required(path)]
    errors: Errors = [too_long(path, name, _LONGEST_DRIVER)] if len(name) > _LONGEST_DRIVER else []
    return errors + invalid_each(path, name, formats.dns_subdomain(name.lower()))


def _pool(name: str, path: str) -> Errors:
    if not name:
        return [required(path)]
    errors: Errors = [too_long(path, name, _LONGEST_POOL)] if len(name) > _LONGEST_POOL else []
    for part in name.split("/"):
        errors += invalid_each(path, part, formats.dns_subdomain(part))
    return errors


def _identifier(text: str, path: str) -> Errors:
    errors: Errors = []
    if len(text) > _LONGEST_IDENTIFIER:
        errors.append(too_long(path, text, _LONGEST_IDENTIFIER))
    if not _IDENTIFIER.fullmatch(text):
        detail = (
            "a valid C identifier must start with alphabetic character or '_', followed by a string"
            " of alphanumeric characters or '_' (e.g. 'my_name',  or 'MY_NAME',  or 'MyName',"
            " regex used for validation is '[A-Za-z_][A-Za-z0-9_]*')"
        )
        errors.append(invalid(path, text, detail))
    return errors


def _qualified(name: str, path: str) -> Errors:
    """Return what is wrong with the name of an attribute or a capacity."""
    domain, slash, rest = name.partition("/")
    if not slash:
        return _identifier(name, path)
    if "/" in rest:
        return [invalid(path, name, "must not contain more than one slash")]
    errors = (
        _driver(domain, path) if domain else [invalid(path, "", "the domain must not be empty")]
    )
    if not rest:
        return [*errors, invalid(path, "", "the name must not be empty")]
    return errors + _identifier(rest, path)


def _fully_qualified(name: str, path: str) -> Errors:
    errors = _qualified(name, path)
    if "/" not in name:
        detail = "a fully qualified name must be a domain and a name separated by a slash"
        errors.append(invalid(path, name, detail))
    return errors


def _uid(text: str, path: str) -> Errors:
    try:
        canonical = str(uuid.UUID(text))
    except ValueError:
        return [invalid(path, text, "error validating uid: invalid UUID format")]
    if canonical == text:
        return []
    detail = (
        "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with"
        " lowercase hexadecimal characters"
    )
    return [invalid(path, text, detail)]


def _data(value: Any, path: str) -> Errors:
    """Return what is wrong with what a driver keeps there, which is any JSON object."""
    if value is None:
        return [required(path)]
    if not isinstance(value, dict):
        return [invalid(path, "<value omitted>", "must be a valid JSON object")]
    if len(msgspec.json.encode(value)) > _LONGEST_DATA:
        return [too_long(path, "", _LONGEST_DATA)]
    return []


def _configuration(config: Manifest, path: str) -> Errors:
    opaque = config.get("opaque")
    if opaque is None:
        return [required(f"{path}.opaque")]
    errors = _driver(opaque.get("driver") or "", f"{path}.opaque.driver")
    return errors + _data(opaque.get("parameters"), f"{path}.opaque.parameters")


# Claims ---------------------------------------------------------------------------------------


def _names_of_requests(claim: Manifest) -> set[str]:
    """Return how the requests of a claim may be named, the choices of a request among them."""
    found: set[str] = set()
    for request in claim.get("requests") or ():
        found.add(_name(request))
        found |= {f"{_name(request)}/{_name(one)}" for one in request.get("firstAvailable") or ()}
    return found


def _names_a_request(names: set[str]) -> _Check:
    def check(name: str, path: str) -> Errors:
        return [] if name in names else [invalid(path, name, _UNKNOWN_REQUEST)]

    return check


def _claim_spec(spec: Manifest, path: str) -> Errors:
    claim, path = spec.get("devices") or {}, f"{path}.devices"
    names = _names_a_request(_names_of_requests(claim))

    def constraint(one: Manifest, where: str) -> Errors:
        errors = _each(one.get("requests"), f"{where}.requests", names, most=_MOST, key=str)
        for kind in ("matchAttribute", "distinctAttribute"):
            if (attribute := one.get(kind)) is not None:
                return errors + _fully_qualified(attribute, f"{where}.{kind}")
        detail = 'exactly one of "matchAttribute" or "distinctAttribute" is required'
        return [*errors, required(where, detail)]

    def configuration(one: Manifest, where: str) -> Errors:
        errors = _each(one.get("requests"), f"{where}.requests", names, most=_MOST, key=str)
        return errors + _configuration(one, where)

    errors = _each(claim.get("requests"), f"{path}.requests", _request, most=_MOST, key=_name)
    errors += _each(claim.get("constraints"), f"{path}.constraints", constraint, most=_MOST)
    return errors + _each(claim.get("config"), f"{path}.config", configuration, most=_MOST)


def _request(request: Manifest, path: str) -> Errors:
    errors = _request_name(request, path)
    exact, choices = request.get("exactly"), request.get("firstAvailable") or ()
    detail = "exactly one of `exactly` or `firstAvailable` is required"
    if exact is None and not choices:
        return [*errors, required(path, detail)]
    if exact is not None and choices:
        return [*errors, invalid(path, None, f"{detail}, but multiple fields are set")]
    if exact is not None:
        return errors + _wanted(exact, f"{path}.exactly")

    def choice(one: Manifest, where: str) -> Errors:
        return _request_name(one, where) + _wanted(one, where)

    where = f"{path}.firstAvailable"
    return errors + _each(choices, where, choice, most=_MOST_CHOICES, key=_name)


def _request_name(request: Manifest, path: str) -> Errors:
    name, path = _name(request), f"{path}.name"
    return _label(name, path) if name else [required(path)]


def _wanted(request: Manifest, path: str) -> Errors:
    errors: Errors = []
    if not (name := request.get("deviceClassName") or ""):
        errors.append(required(f"{path}.deviceClassName"))
    else:
        errors += invalid_each(f"{path}.deviceClassName", name, formats.dns_subdomain(name))
    errors += _each(request.get("selectors"), f"{path}.selectors", _selector, most=_MOST)
    mode, count = request.get("allocationMode") or "", request.get("count") or 0
    if mode not in _ALLOCATION:
        errors.append(not_supported(f"{path}.allocationMode", mode, _ALLOCATION))
    elif mode == "All" and count:
        detail = "must not be specified when allocationMode is 'All'"
        errors.append(invalid(f"{path}.count", count, detail))
    elif mode == "ExactCount" and count <= 0:
        errors.append(invalid(f"{path}.count", count, "must be greater than zero"))
    return errors


def _selector(selector: Manifest, path: str) -> Errors:
    if (cel := selector.get("cel")) is None:
        return [required(f"{path}.cel")]
    expression, path = cel.get("expression") or "", f"{path}.cel.expression"
    if not expression:
        return [required(path)]
    if len(expression.encode()) > _LONGEST_EXPRESSION:
        return [too_long(path, "", _LONGEST_EXPRESSION)]
    return []


def _resource_claim(new: Manifest, old: Manifest | None) -> Errors:
    spec = new.get("spec") or {}
    if old is not None:
        return validate_immutable(spec, old.get("spec") or {}, "spec")
    return _claim_spec(spec, "spec")


def _resource_claim_template(new: Manifest, old: Manifest | None) -> Errors:
    spec = new.get("spec") or {}
    if old is not None:
        return validate_immutable(spec, old.get("spec") or {}, "spec")
    return _claim_spec(spec.get("spec") or {}, "spec.spec")


# The status of claims --------------------------------------------------------------------------


def validate_claim_status(new: Manifest, old: Manifest | None) -> Errors:
    """Return what is wrong with what was allocated to a claim, and for whom it is reserved."""
    status, before = new.get("status") or {}, (old or {}).get("status") or {}
    consumers, allocation = status.get("reservedFor") or [], status.get("allocation")
    errors = _each(
        consumers, "status.reservedFor", _consumer,
        most=_MOST_CONSUMERS, key=lambda one: one.get("uid"),
    )  # fmt: skip
    allocated = devices.allocated(status)

    def device(one: Manifest, path: str) -> Errors:
        return _device_status(one, path, allocated)

    errors += _each(status.get("devices"), "status.devices", device, key=devices.identity)
    if consumers:
        if allocation is None:
            detail = "may not be specified when `allocated` is not set"
            errors.append(forbidden("status.reservedFor", detail))
        elif new["metadata"].get("deletionTimestamp"):
            known = before.get("reservedFor") or []
            if any(one not in known for one in consumers):
                detail = (
                    "new entries may not be added while `deallocationRequested` or"
                    " `deletionTimestamp` are set"
                )
                errors.append(forbidden("status.reservedFor", detail))
    if allocation is not None:
        if before.get("allocation") is not None:
            errors += validate_immutable(allocation, before["allocation"], "status.allocation")
        else:
            claim = (new.get("spec") or {}).get("devices") or {}
            errors += _allocation(allocation, "status.allocation", _names_of_requests(claim))
    return errors


def _consumer(consumer: Manifest, path: str) -> Errors:
    return [
        required(f"{path}.{field}")
        for field in ("resource", "name", "uid")
        if not consumer.get(field)
    ]


def _allocation(allocation: Manifest, path: str, requests: set[str]) -> Errors:
    names = _names_a_request(requests)

    def result(one: Manifest, where: str) -> Errors:
        errors = names(one.get("request") or "", f"{where}.request")
        return errors + _place(one, where)

    def configuration(one: Manifest, where: str) -> Errors:
        source, errors = one.get("source") or "", []
        errors += required_one_of(source, f"{where}.source", _SOURCES)
        errors += _each(one.get("requests"), f"{where}.requests", names, most=_MOST, key=str)
        return errors + _configuration(one, where)

    given = allocation.get("devices") or {}
    errors = _each(given.get("results"), f"{path}.devices.results", result, most=_MOST)
    errors += _each(given.get("config"), f"{path}.devices.config", configuration, most=2 * _MOST)
    if (selector := allocation.get("nodeSelector")) is not None:
        errors += validate_node_selector(selector, f"{path}.nodeSelector")
    return errors


def _place(device: Manifest, path: str) -> Errors:
    """Return what is wrong with how a device is named: driver, pool, device, share."""
    errors = _driver(device.get("driver") or "", f"{path}.driver")
    errors += _pool(device.get("pool") or "", f"{path}.pool")
    errors += _label(device.get("device") or "", f"{path}.device")
    if (share := device.get("shareID")) is not None:
        errors += _uid(share, f"{path}.shareID")
    return errors


def _device_status(device: Manifest, path: str, allocated: set[str]) -> Errors:
    errors = _place(device, path)
    if (name := devices.identity(device)) not in allocated:
        errors.append(invalid(path, name, "must be an allocated device in the claim"))
    conditions = device.get("conditions") or []
    errors += at_most(conditions, f"{path}.conditions", _MOST_CONDITIONS)
    errors += validate_conditions(conditions, f"{path}.conditions")
    if device.get("data") is not None:
        errors += _data(device["data"], f"{path}.data")
    return errors + _network_data(device.get("networkData") or {}, f"{path}.networkData")


def _network_data(data: Manifest, path: str) -> Errors:
    errors: Errors = []
    for field, longest in (
        ("interfaceName", _LONGEST_INTERFACE), ("hardwareAddress", _LONGEST_HARDWARE),
    ):  # fmt: skip
        if len((data.get(field) or "").encode()) > longest:
            errors.append(too_long(f"{path}.{field}", "", longest))
    return errors + _each(
        data.get("ips"), f"{path}.ips", _interface_address, most=_MOST_ADDRESSES, key=str
    )


def _interface_address(text: str, path: str) -> Errors:
    """Return what is wrong with the address of an interface and the length of its prefix.

    Rule: apimachinery ``validation.IsValidInterfaceAddress``.
    """
    if "/" not in text or formats.cidr(text):
        detail = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)"
        return [invalid(path, text, detail)]
    if problems := [one for one in formats.cidr(text, strict=True) if "bits set" not in one]:
        return invalid_each(path, text, problems)
    canonical = str(ipaddress.ip_interface(text))
    if canonical != text:
        return [invalid(path, text, f'must be in canonical form ("{canonical}")')]
    return []


# Slices and classes ----------------------------------------------------------------------------


def _resource_slice(new: Manifest, old: Manifest | None) -> Errors:
    spec = new.get("spec") or {}
    errors = _driver(spec.get("driver") or "", "spec.driver")
    pool = spec.get("pool") or {}
    errors += _pool(pool.get("name") or "", "spec.pool.name")
    if (count := pool.get("resourceSliceCount") or 0) <= 0:
        errors.append(invalid("spec.pool.resourceSliceCount", count, "must be greater than zero"))
    if (generation := pool.get("generation") or 0) < 0:
        detail = "must be greater than or equal to zero"
        errors.append(invalid("spec.pool.generation", generation, detail))
    if old is not None:
        before = old.get("spec") or {}
        former = (before.get("pool") or {}).get("name")
        errors += validate_immutable(pool.get("name"), former, "spec.pool.name")
        for field in ("driver", "nodeName"):
            errors += validate_immutable(spec.get(field), before.get(field), f"spec.{field}")
    errors += _where(spec, "spec", _PLACES, "")
    selector = spec.get("nodeSelector")
    if selector is not None and len(terms := selector.get("nodeSelectorTerms") or []) != 1:
        detail = "must have exactly one node selector term"
        errors.append(invalid("spec.nodeSelector.nodeSelectorTerms", terms, detail))
    found = spec.get("devices")
    if spec.get("sharedCounters") is not None and found is not None:
        errors.append(invalid("spec", "", "only one of `sharedCounters` or `devices` is allowed"))
    most = _MOST_SPECIAL_DEVICES if any(map(_is_special, found or ())) else _MOST_DEVICES
    apart = bool(spec.get("perDeviceNodeSelection"))

    def device(one: Manifest, path: str) -> Errors:
        return _device(one, path, apart=apart)

    return errors + _each(found, "spec.devices", device, most=most, key=_name)


def _where(owner: Manifest, path: str, fields: tuple[str, ...], why: str) -> Errors:
    """Return what is wrong with how it is said which nodes reach a device, or all of a slice."""
    errors: Errors = []
    given = []
    for field in fields:
        if (value := owner.get(field)) is None:
            continue
        if value is False:
            errors.append(invalid(f"{path}.{field}", value, "must be either unset or set to true"))
        elif value == "":
            detail = "must be either unset or set to a non-empty string"
            errors.append(invalid(f"{path}.{field}", value, detail))
        else:
            given.append(f"`{field}`")
    if name := owner.get("nodeName"):
        errors += invalid_each(f"{path}.nodeName", name, formats.dns_subdomain(name))
    if (selector := owner.get("nodeSelector")) is not None:
        errors += validate_node_selector(selector, f"{path}.nodeSelector")
    quoted = [f"`{field}`" for field in fields]
    listed = ", ".join(quoted[:-1]) + (", or " if why else ", ") + quoted[-1]
    detail = f"exactly one of {listed} is required{why}"
    if not given:
        errors.append(required(path, detail))
    elif len(given) > 1:
        more = "" if why else ", but multiple fields are set"
        errors.append(invalid(path, "{" + ", ".join(given) + "}", detail + more))
    return errors


def _is_special(device: Manifest) -> bool:
    """Return whether a device has what only short slices may hold."""
    if device.get("taints") or device.get("consumesCounters"):
        return True
    lists = ("bools", "ints", "strings", "versions")
    attributes = (device.get("attributes") or {}).values()
    return any(one.get(field) is not None for one in attributes for field in lists)


def _device(device: Manifest, path: str, *, apart: bool) -> Errors:
    name = _name(device)
    errors = _label(name, f"{path}.name") if name else [required(f"{path}.name")]
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    if (count := len(attributes) + len(capacity)) > _MOST:
        detail = f"the total number of attributes and capacities must not exceed {_MOST}"
        errors.append(invalid(path, count, detail))
    for key, attribute in attributes.items():
        errors += _qualified(key, f"{path}.attributes")
        given = [one for one in _VALUES if attribute.get(one) is not None]
        where = f"{path}.attributes[{key}]"
        if not given:
            errors.append(required(where, "exactly one value must be specified"))
        elif len(given) > 1:
            errors.append(invalid(where, attribute, "exactly one value must be specified"))
    for key in capacity:
        errors += _qualified(key, f"{path}.capacity")
    errors += _each(device.get("taints"), f"{path}.taints", _taint, most=_MOST_TAINTS)
    if apart:
        why = " when `perDeviceNodeSelection` is set to true in the ResourceSlice spec"
        errors += _where(device, path, _PLACES_OF_DEVICE, why)
    elif any(device.get(field) is not None for field in _PLACES_OF_DEVICE):
        detail = (
            "`nodeName`, `nodeSelector` and `allNodes` can only be set if `perDeviceNodeSelection`"
            " is set to true in the ResourceSlice spec"
        )
        errors.append(invalid(path, None, detail))
    return errors


def _taint(taint: Manifest, path: str) -> Errors:
    key, effect = taint.get("key") or "", taint.get("effect") or ""
    errors = invalid_each(f"{path}.key", key, formats.qualified_name(key))
    errors += required_one_of(effect, f"{path}.effect", _EFFECTS)
    return errors


def _device_class(new: Manifest, old: Manifest | None) -> Errors:
    del old
    spec = new.get("spec") or {}
    errors = _each(spec.get("selectors"), "spec.selectors", _selector, most=_MOST)
    return errors + _each(spec.get("config"), "spec.config", _configuration, most=_MOST)


RULES: Final[dict[str, Callable[[Manifest, Manifest | None], Errors]]] = {
    "DeviceClass": _device_class,
    "ResourceClaim": _resource_claim,
    "ResourceClaimTemplate": _resource_claim_template,
    "ResourceSlice": _resource_slice,
}
