"""Devices of claims: requests, allocations, and the status from drivers.

Selectors are compiled: new ones may use features that are on by default, within a cost limit.
Rules: pkg/apis/resource/validation/validation.go, v1.36.
"""

import itertools
import re
import uuid
from collections.abc import Callable, Mapping
from typing import Any, Final

import msgspec

from clusterstate.admission.validation.core import formats
from clusterstate.admission.validation.core.conditions import validate_conditions
from clusterstate.admission.validation.core.field import (
    Check,
    Errors,
    at_most,
    check_form,
    each,
    forbidden,
    invalid,
    invalid_each,
    not_found,
    not_supported,
    require_form,
    required,
    required_one_of,
    too_long,
)
from clusterstate.admission.validation.core.metadata import (
    validate_annotations,
    validate_immutable,
    validate_labels,
)
from clusterstate.admission.validation.core.resources import is_extended_resource_name
from clusterstate.admission.validation.core.scheduling import validate_node_selector
from clusterstate.objects.cel.devices import MOST_COST, CompileError, compile_selector
from clusterstate.objects.cel.functions import parse_semver
from clusterstate.objects.registry import devices
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.quantity import Quantity
from clusterstate.objects.values.remembered import remembered

_ALLOCATION: Final = ("All", "ExactCount")
_SOURCES: Final = ("FromClaim", "FromClass")
_PLACES: Final = ("nodeName", "nodeSelector", "allNodes", "perDeviceNodeSelection")
_PLACES_OF_DEVICE: Final = ("nodeName", "nodeSelector", "allNodes")
_EFFECTS: Final = ("NoExecute", "NoSchedule", "None")
_VALUES: Final = (
    "bool", "bools", "int", "ints", "string", "strings", "version", "versions",
)  # fmt: skip
_LISTS: Final = ("bools", "ints", "strings", "versions")
_IDENTIFIER: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_MOST: Final = 32
"""The most requests, constraints, configurations, selectors or results, and fields of a device."""
_MOST_CHOICES: Final = 8
_MOST_CONSUMERS: Final = 256
_MOST_CONDITIONS: Final = 8
_MOST_POLICY_VALUES: Final = 10
_MOST_DEVICES: Final = 128
_MOST_SPECIAL_DEVICES: Final = 64
_MOST_TAINTS: Final = 16
_MOST_ADDRESSES: Final = 16
_MOST_BINDING_CONDITIONS: Final = 4
_MOST_COUNTER_SETS: Final = 8
_MOST_SETS_OF_DEVICE: Final = 2
_MOST_COUNTERS: Final = 32
_MOST_VALUES: Final = 48
_LONGEST_VALUE: Final = 64
_LONGEST_EXPRESSION: Final = 10 * 1024
_LONGEST_DATA: Final = 10 * 1024
_LONGEST_IDENTIFIER: Final = 32
_LONGEST_DRIVER: Final = 63
_LONGEST_KEY: Final = _LONGEST_DRIVER + len("/") + _LONGEST_IDENTIFIER
_LONGEST_POOL: Final = 253
_LONGEST_INTERFACE: Final = 256
_LONGEST_HARDWARE: Final = 128
_UNKNOWN_REQUEST: Final = (
    "must be the name of a request in the claim or the name of a request and a subrequest"
    " separated by '/'"
)


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
    """Return the errors in the name of an attribute or a capacity."""
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
        length = len(text)
        what = "format" if length in (32, 36, 38, 45) else f"length: {length}"
        return [invalid(path, text, f"error validating uid: invalid UUID {what}")]
    if canonical == text:
        return []
    detail = (
        "uid must be in RFC 4122 normalized form, `xxxxxxxx-xxxx-xxxx-xxxx-xxxxxxxxxxxx` with"
        " lowercase hexadecimal characters"
    )
    return [invalid(path, text, detail)]


def _data(value: Any, path: str, *, stored: bool = False) -> Errors:
    """Return the errors in a driver's ``data`` or ``parameters``, which is any JSON object."""
    if value is None:
        return [required(path)]
    if not isinstance(value, dict):
        return [invalid(path, "<value omitted>", "must be a valid JSON object")]
    if not stored and len(msgspec.json.encode(value)) > _LONGEST_DATA:
        return [too_long(path, "", _LONGEST_DATA)]
    return []


def _configuration(config: Manifest, path: str, *, stored: bool = False) -> Errors:
    opaque = config.get("opaque")
    if opaque is None:
        return [required(f"{path}.opaque")]
    errors = _driver(opaque.get("driver") or "", f"{path}.opaque.driver")
    return errors + _data(opaque.get("parameters"), f"{path}.opaque.parameters", stored=stored)


# Claims ---------------------------------------------------------------------------------------


def _names_of_requests(claim: Manifest) -> set[str]:
    """Return the names of a claim's requests; alternatives are ``request/alternative``."""
    found: set[str] = set()
    for request in claim.get("requests") or ():
        found.add(_name(request))
        found |= {f"{_name(request)}/{_name(one)}" for one in request.get("firstAvailable") or ()}
    return found


def _names_a_request(names: set[str]) -> Check:
    def check(name: str, path: str) -> Errors:
        errors: Errors = []
        if len(parts := name.split("/")) <= 2:
            for part in parts:
                errors += _label(part, path)
        return errors if name in names else [*errors, invalid(path, name, _UNKNOWN_REQUEST)]

    return check


def validate_claim_spec(spec: Manifest, path: str, *, distinct: bool = True) -> Errors:
    """Return the errors in a claim's requests; ``distinct``: ``distinctAttribute`` is allowed."""
    claim, path = spec.get("devices") or {}, f"{path}.devices"
    names = _names_a_request(_names_of_requests(claim))

    def constraint(one: Manifest, where: str) -> Errors:
        errors = each(one.get("requests"), f"{where}.requests", names, most=_MOST, key=str)
        kinds = ("matchAttribute", "distinctAttribute") if distinct else ("matchAttribute",)
        for kind in kinds:  # where both are given, the second is not looked at, nor allocated by
            if one.get(kind) is not None:
                return errors + _fully_qualified(one[kind], f"{where}.{kind}")
        if not distinct:
            return [*errors, required(f"{where}.matchAttribute")]
        detail = (
            'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple'
            " fields are set"  # Kubernetes says so of none
        )
        return [*errors, required(where, detail)]

    def configuration(one: Manifest, where: str) -> Errors:
        errors = each(one.get("requests"), f"{where}.requests", names, most=_MOST, key=str)
        return errors + _configuration(one, where)

    errors = each(claim.get("requests"), f"{path}.requests", _request, most=_MOST, key=_name)
    errors += each(claim.get("constraints"), f"{path}.constraints", constraint, most=_MOST)
    return errors + each(claim.get("config"), f"{path}.config", configuration, most=_MOST)


def _request(request: Manifest, path: str) -> Errors:
    errors = _label(_name(request), f"{path}.name")
    exact, choices = request.get("exactly"), request.get("firstAvailable") or ()
    detail = "exactly one of `exactly` or `firstAvailable` is required"
    if exact is None and not choices:
        return [*errors, required(path, detail)]
    if exact is not None and choices:
        return [*errors, invalid(path, None, f"{detail}, but multiple fields are set")]
    if exact is not None:
        return errors + _exact_request(exact, f"{path}.exactly")

    def choice(one: Manifest, where: str) -> Errors:
        return _label(_name(one), f"{where}.name") + _exact_request(one, where)

    where = f"{path}.firstAvailable"
    return errors + each(choices, where, choice, most=_MOST_CHOICES, key=_name)


def _exact_request(request: Manifest, path: str) -> Errors:
    errors: Errors = []
    errors += require_form(
        request.get("deviceClassName") or "", f"{path}.deviceClassName", formats.dns_subdomain
    )
    errors += each(request.get("selectors"), f"{path}.selectors", _selector, most=_MOST)
    mode, count = request.get("allocationMode") or "", request.get("count") or 0
    if mode not in _ALLOCATION:
        errors.append(not_supported(f"{path}.allocationMode", mode, _ALLOCATION))
    elif mode == "All" and count:
        detail = "must not be specified when allocationMode is 'All'"
        errors.append(invalid(f"{path}.count", count, detail))
    elif mode == "ExactCount" and count <= 0:
        errors.append(invalid(f"{path}.count", count, "must be greater than zero"))
    return errors + each(request.get("tolerations"), f"{path}.tolerations", _toleration)


def _toleration(toleration: Manifest, path: str) -> Errors:
    errors: Errors = []
    errors += check_form(toleration.get("key") or "", f"{path}.key", formats.qualified_name)
    operator, value = toleration.get("operator") or "", toleration.get("value") or ""
    if operator == "Exists" and value:
        errors.append(invalid(f"{path}.value", value, "must be empty for operator `Exists`"))
    elif operator == "Equal":
        errors += invalid_each(f"{path}.value", value, formats.label_value(value))
    errors += required_one_of(operator, f"{path}.operator", ("Equal", "Exists"))
    if effect := toleration.get("effect") or "":
        errors += required_one_of(effect, f"{path}.effect", _EFFECTS)
    return errors


def _selector(selector: Manifest, path: str) -> Errors:
    if (cel := selector.get("cel")) is None:
        return [required(f"{path}.cel")]
    expression, path = cel.get("expression") or "", f"{path}.cel.expression"
    if not expression:
        return [required(path)]
    if len(expression.encode()) > _LONGEST_EXPRESSION:
        return [too_long(path, "", _LONGEST_EXPRESSION)]
    try:
        compiled = compile_selector(expression)
    except CompileError as error:
        return [invalid(path, expression, str(error))]
    if compiled.max_cost > MOST_COST:
        return [forbidden(path, "too complex, exceeds cost limit")]
    return []


def _resource_claim(new: Manifest, old: Manifest | None) -> Errors:
    spec = new.get("spec") or {}
    if old is not None:
        return validate_immutable(spec, old.get("spec") or {}, "spec")
    return [] if _is_right(msgspec.json.encode(spec)) else validate_claim_spec(spec, "spec")


@remembered(1024, longest=16_384)
def _is_right(spec: bytes) -> bool:
    """Return whether the spec of a claim is valid; a template's claims have equal ones."""
    return not validate_claim_spec(msgspec.json.decode(spec), "spec")


def _resource_claim_template(new: Manifest, old: Manifest | None) -> Errors:
    spec = new.get("spec") or {}
    if old is not None:
        return validate_immutable(spec, old.get("spec") or {}, "spec")
    meta = spec.get("metadata") or {}
    errors = validate_labels(meta.get("labels") or {}, "spec.metadata.labels")
    errors += validate_annotations(meta.get("annotations") or {}, "spec.metadata.annotations")
    return errors + validate_claim_spec(spec.get("spec") or {}, "spec.spec")


# The status of claims --------------------------------------------------------------------------


def validate_claim_status(new: Manifest, old: Manifest | None) -> Errors:
    """Return the errors in a claim's allocated devices and in its ``reservedFor``."""
    status, before = new.get("status") or {}, (old or {}).get("status") or {}
    consumers, allocation = status.get("reservedFor") or [], status.get("allocation")
    errors = each(
        consumers, "status.reservedFor", _consumer,
        most=_MOST_CONSUMERS, key=lambda one: one.get("uid"),
    )  # fmt: skip
    allocated = devices.allocated(status)

    def device(one: Manifest, path: str) -> Errors:
        return _device_status(one, path, allocated)

    errors += each(status.get("devices"), "status.devices", device, key=devices.identity)
    if consumers:
        if allocation is None:
            detail = "may not be specified when `allocated` is not set"
            errors.append(forbidden("status.reservedFor", detail))
        elif new["metadata"].get("deletionTimestamp"):
            old_consumers = before.get("reservedFor") or []
            if any(one not in old_consumers for one in consumers):
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
        errors = names(one.get("request") or "", f"{where}.request") + _place(one, where)
        errors += _binding_conditions(one, where)
        return errors + each(one.get("tolerations"), f"{where}.tolerations", _toleration)

    def configuration(one: Manifest, where: str) -> Errors:
        source, errors = one.get("source") or "", []
        errors += required_one_of(source, f"{where}.source", _SOURCES)
        errors += each(one.get("requests"), f"{where}.requests", names, most=_MOST, key=str)
        return errors + _configuration(one, where)

    devices = allocation.get("devices") or {}
    errors = each(devices.get("results"), f"{path}.devices.results", result, most=_MOST)
    errors += each(devices.get("config"), f"{path}.devices.config", configuration, most=2 * _MOST)
    if (selector := allocation.get("nodeSelector")) is not None:
        errors += validate_node_selector(selector, f"{path}.nodeSelector")
    return errors


def _place(device: Manifest, path: str) -> Errors:
    """Return the errors in the identity of a device: driver, pool, device, share."""
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
    return errors + each(
        data.get("ips"), f"{path}.ips", _interface_address, most=_MOST_ADDRESSES, key=str
    )


def _interface_address(text: str, path: str) -> Errors:
    """Return the errors in an interface's address with its prefix length.

    Rule: apimachinery ``validation.IsValidInterfaceAddress``.
    """
    interface = formats.ip_interface(text) if "/" in text else None
    if interface is None:
        detail = "must be a valid address in CIDR form, (e.g. 10.9.8.7/24 or 2001:db8::1/64)"
        return [invalid(path, text, detail)]
    canonical = str(interface)
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
    apart = bool(spec.get("perDeviceNodeSelection"))
    errors += _one_term(spec, "spec")
    found = spec.get("devices")
    if apart and found != ((old or {}).get("spec") or {}).get("devices"):  # since v1.38
        for index, one in enumerate(found or ()):
            errors += _one_term(one, f"spec.devices[{index}]")
    if spec.get("sharedCounters") is not None and found is not None:
        errors.append(invalid("spec", "", "only one of `sharedCounters` or `devices` is allowed"))
    most = _MOST_SPECIAL_DEVICES if any(map(_is_special, found or ())) else _MOST_DEVICES
    old_devices = {_name(one): one for one in ((old or {}).get("spec") or {}).get("devices") or ()}

    def device(one: Manifest, path: str) -> Errors:
        return _device(one, old_devices.get(_name(one)), path, apart=apart)

    errors += each(
        spec.get("sharedCounters"), "spec.sharedCounters", _counter_set,
        most=_MOST_COUNTER_SETS, key=_name,
    )  # fmt: skip
    return errors + each(found, "spec.devices", device, most=most, key=_name)


def _counter_set(counters: Manifest, path: str, name: str = "name") -> Errors:
    """Return the errors in a slice's counters, or in those that a device consumes."""
    of = counters.get(name) or ""
    errors = _label(of, f"{path}.{name}") if of else [required(f"{path}.{name}")]
    found, where = counters.get("counters") or {}, f"{path}.counters"
    if not found:
        return [*errors, required(where)]
    if too_many := at_most(found, where, _MOST_COUNTERS):
        return errors + too_many
    for key in found:
        errors += _label(key, where)
    return errors


def _consumed_counters(counters: Manifest, path: str) -> Errors:
    return _counter_set(counters, path, "counterSet")


def _binding_conditions(device: Manifest, path: str) -> Errors:
    """Return the errors in ``bindingConditions`` and ``bindingFailureConditions``."""
    needed = device.get("bindingConditions") or []
    failing = device.get("bindingFailureConditions") or []
    errors: Errors = []
    for field, conditions in (("bindingConditions", needed), ("bindingFailureConditions", failing)):
        errors += each(
            conditions, f"{path}.{field}", _condition_type,
            most=_MOST_BINDING_CONDITIONS, key=str,
        )  # fmt: skip
    if needed and not failing:
        detail = "bindingFailureConditions are required to use bindingConditions"
        errors.append(invalid(f"{path}.bindingFailureConditions", failing, detail))
    if failing and not needed:
        detail = "bindingConditions are required to use bindingFailureConditions"
        errors.append(invalid(f"{path}.bindingConditions", needed, detail))
    detail = "bindingFailureConditions must not overlap with bindingConditions"
    for index, condition in enumerate(failing):
        if condition in needed:
            errors.append(invalid(f"{path}.bindingFailureConditions[{index}]", condition, detail))
    return errors


def _condition_type(condition: str, path: str) -> Errors:
    return invalid_each(path, condition, formats.qualified_name(condition))


def _where(owner: Manifest, path: str, fields: tuple[str, ...], why: str) -> Errors:
    """Return the errors in the fields that say which nodes can use a device or a whole slice."""
    errors: Errors = []
    present = []
    for field in fields:
        if (value := owner.get(field)) is None:
            continue
        if value is False:
            errors.append(invalid(f"{path}.{field}", value, "must be either unset or set to true"))
        elif value == "":
            detail = "must be either unset or set to a non-empty string"
            if why:  # of a device
                detail = "must not be empty"
            errors.append(invalid(f"{path}.{field}", value, detail))
        else:
            present.append(f"`{field}`")
    errors += check_form(owner.get("nodeName"), f"{path}.nodeName", formats.dns_subdomain)
    if (selector := owner.get("nodeSelector")) is not None:
        errors += validate_node_selector(selector, f"{path}.nodeSelector")
    quoted = [f"`{field}`" for field in fields]
    listed = ", ".join(quoted[:-1]) + (", or " if why else ", ") + quoted[-1]
    detail = f"exactly one of {listed} is required{why}"
    if not present:
        errors.append(required(path, detail))
    elif len(present) > 1:
        more = "" if why else ", but multiple fields are set"
        errors.append(invalid(path, "{" + ", ".join(present) + "}", detail + more))
    return errors


def _one_term(owner: Manifest, path: str) -> Errors:
    selector = owner.get("nodeSelector")
    if selector is None or len(terms := selector.get("nodeSelectorTerms") or []) == 1:
        return []
    detail = "must have exactly one node selector term"
    return [invalid(f"{path}.nodeSelector.nodeSelectorTerms", terms, detail)]


def _is_special(device: Manifest) -> bool:
    """Return whether a device has fields that only slices of few devices may have."""
    if device.get("taints") or device.get("consumesCounters"):
        return True
    attributes = (device.get("attributes") or {}).values()
    return any(one.get(field) is not None for one in attributes for field in _LISTS)


def _device(device: Manifest, old: Manifest | None, path: str, *, apart: bool) -> Errors:
    """Return the errors in a device; invalid capacities and taints of ``old`` are allowed."""
    errors = _label(_name(device), f"{path}.name")
    attributes, capacity = device.get("attributes") or {}, device.get("capacity") or {}
    if (count := len(attributes) + len(capacity)) > _MOST:
        detail = f"the total number of attributes and capacities must not exceed {_MOST}"
        errors.append(invalid(path, count, detail))
    total = 0
    for key, attribute in attributes.items():
        errors += _qualified(key, f"{path}.attributes")
        errors += _attribute(attribute, f"{path}.attributes[{_shortened(key)}]")
        total += sum(len(attribute.get(field) or ()) for field in _LISTS) or 1
    if total > _MOST_VALUES:
        detail = f"the total number of attribute values must not exceed {_MOST_VALUES}"
        errors.append(invalid(path, total, detail))
    shared = bool(device.get("allowMultipleAllocations"))
    for key, one in capacity.items() if old is None or old.get("capacity") != capacity else ():
        errors += _qualified(key, f"{path}.capacity")
        where = f"{path}.capacity[{_shortened(key)}].requestPolicy"
        if (policy := one.get("requestPolicy")) is None:
            continue
        if shared:
            errors += _policy(policy, Quantity.parse(one.get("value") or "0"), where)
        else:
            errors.append(forbidden(where, "allowMultipleAllocations must be true"))
    errors += each(
        device.get("consumesCounters"), f"{path}.consumesCounters", _consumed_counters,
        most=_MOST_SETS_OF_DEVICE, key=lambda one: one.get("counterSet"),
    )  # fmt: skip
    errors += _binding_conditions(device, path)
    errors += _node_resources(device, path)
    if old is None or old.get("taints") != device.get("taints"):
        errors += each(device.get("taints"), f"{path}.taints", _taint, most=_MOST_TAINTS)
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


def _shortened(key: str) -> str:
    """Return a key for a path in messages; the middle of a long key is left out."""
    if len(key) <= _LONGEST_KEY:
        return key
    length = _LONGEST_KEY - len("...")
    return f"{key[: (length + 1) // 2]}...{key[-(length // 2) :]}"


def _attribute(attribute: Manifest, path: str) -> Errors:
    kinds = [one for one in _VALUES if attribute.get(one) is not None]
    errors: Errors = []
    for kind in kinds:
        values = attribute[kind]
        if kind in ("string", "version"):
            errors += _text(values, f"{path}.{kind}", version=kind == "version")
        elif kind in _LISTS and not values:
            errors.append(invalid(f"{path}.{kind}", values, "must not be empty if specified"))
        elif kind in ("strings", "versions"):
            for index, text in enumerate(values):
                errors += _text(text, f"{path}.{kind}[{index}]", version=kind == "versions")
    if len(kinds) != 1:
        errors.append(invalid(path, attribute, "exactly one value must be specified"))
    return errors


def _text(text: str, path: str, *, version: bool) -> Errors:
    errors: Errors = []
    if version and parse_semver(text) is None:
        detail = "must be a string compatible with semver.org spec 2.0.0"
        errors.append(invalid(path, text, detail))
    if len(text.encode()) > _LONGEST_VALUE:
        errors.append(too_long(path, text, _LONGEST_VALUE))
    return errors


def _policy(policy: Manifest, total: Quantity, path: str) -> Errors:
    """Return the errors in the policy for shared use of a capacity of ``total``."""
    bounds, values = policy.get("validRange"), policy.get("validValues") or ()
    if bounds is not None and values:
        detail = (
            'exactly one policy can be specified, cannot specify "validValues" and "validRange" at'
            " the same time"
        )
        return [forbidden(path, detail)]
    if bounds is None and not values:
        return []
    kind = "validRange" if bounds is not None else "validValues"
    if policy.get("default") is None:
        return [required(f"{path}.default", f"required when {kind} is defined")]
    default, path = Quantity.parse(policy["default"]), f"{path}.{kind}"
    if bounds is None:
        return _policy_values(default, total, list(map(Quantity.parse, values)), path)
    named = {key: Quantity.parse(bounds[key]) for key in bounds if bounds[key] is not None}
    return _policy_range(default, total, named, path)


def _policy_values(default: Quantity, total: Quantity, values: list[Quantity], path: str) -> Errors:
    errors: Errors = []
    for index, (one, after) in enumerate(itertools.pairwise(values), 1):
        if one > after:
            detail = "values must be sorted in ascending order"
            errors.append(invalid(f"{path}[{index}]", str(after), detail))

    def value(one: Quantity, where: str) -> Errors:
        detail = f"option is larger than capacity value: {total}"
        return [invalid(where, str(one), detail)] if one > total else []

    errors += each(values, path, value, most=_MOST_POLICY_VALUES, key=lambda one: str(one.value()))
    if len(values) > _MOST_POLICY_VALUES or default not in values:
        detail = "default value is not valid according to the requestPolicy"
        errors.append(invalid(path, str(default), detail))
    return errors


def _policy_range(
    default: Quantity, total: Quantity, named: Mapping[str, Quantity], path: str
) -> Errors:
    """Return the errors in ``min``, ``max`` and ``step`` of a range, also with its default."""
    if (least := named.get("min")) is None:
        return [required(f"{path}.min", "required when validRange is defined")]
    most, step = named.get("max"), named.get("step")
    wrong: list[tuple[bool, str, Quantity, str]] = [
        (least > total, "min", least, f"min is larger than capacity value: {total}"),
        (default < least, "min", default, f"default is less than min: {least}"),
    ]
    if most is not None:
        wrong += [
            (least > most, "max", least, f"min is larger than max: {most}"),
            (most > total, "max", most, f"max is larger than capacity value: {total}"),
            (default > most, "max", default, f"default is more than max: {most}"),
        ]
    if step is not None:
        first = least.add(step)
        detail = f"one step {first} is larger than capacity value: {total}"
        wrong.append((first > total, "step", step, detail))
        stride = step.value()
        if stride <= 0:
            wrong.append((True, "step", step, "must be greater than zero"))
        else:
            detail = f"value is not a multiple of a given step ({step}) from ({least})"
            wrong += [
                ((one.value() - least.value()) % stride != 0, "step", one, detail)
                for one in (default, most) if one is not None
            ]  # fmt: skip
    return [invalid(f"{path}.{field}", str(value), d) for is_so, field, value, d in wrong if is_so]


def _node_resources(device: Manifest, path: str) -> Errors:
    """Return the errors in ``nodeAllocatableResourceMappings`` (an alpha of Kubernetes)."""
    errors: Errors = []
    for name, mapping in (device.get("nodeAllocatableResourceMappings") or {}).items():
        where = f"{path}.nodeAllocatableResourceMappings[{name}]"
        native = name in ("cpu", "memory", "ephemeral-storage") or name.startswith("hugepages-")
        if not native:
            errors.append(invalid(where, name, "must be a node allocatable resource name"))
        key, factor = mapping.get("capacityKey"), mapping.get("allocationMultiplier")
        if key is None and factor is None:
            detail = "at least one of allocationMultiplier or capacityKey must be set"
            errors.append(invalid(where, mapping, detail))
        if key == "":
            detail = "capacityKey must not be an empty string"
            errors.append(invalid(f"{where}.capacityKey", key, detail))
        elif key is not None and key not in (device.get("capacity") or {}):
            errors.append(not_found(f"{where}.capacityKey", key))
        if factor is not None and Quantity.parse(factor).sign <= 0:
            errors.append(invalid(f"{where}.allocationMultiplier", factor, "must be positive"))
    return errors


def _taint(taint: Manifest, path: str, old_effect: str | None = None) -> Errors:
    """Return the errors in a taint; an unknown effect may stay if it is ``old_effect``."""
    key, effect = taint.get("key") or "", taint.get("effect") or ""
    errors = invalid_each(f"{path}.key", key, formats.qualified_name(key))
    errors += check_form(taint.get("value"), f"{path}.value", formats.label_value)
    if effect != old_effect:
        errors += required_one_of(effect, f"{path}.effect", _EFFECTS)
    return errors


def _device_taint_rule(new: Manifest, old: Manifest | None) -> Errors:
    spec, before = new.get("spec") or {}, (old or {}).get("spec") or {}
    selector, path = spec.get("deviceSelector") or {}, "spec.deviceSelector"
    errors: Errors = []
    for field, check in (("driver", _driver), ("pool", _pool), ("device", _label)):
        if (value := selector.get(field)) is not None:
            errors += check(value, f"{path}.{field}")
    old_effect = None if old is None else (before.get("taint") or {}).get("effect") or ""
    return errors + _taint(spec.get("taint") or {}, "spec.taint", old_effect)


def validate_taint_rule_status(new: Manifest, old: Manifest | None) -> Errors:
    """Return the errors in the conditions of a DeviceTaintRule."""
    del old
    conditions = (new.get("status") or {}).get("conditions") or []
    errors = validate_conditions(conditions, "status.conditions")
    return errors + at_most(conditions, "status.conditions", _MOST_CONDITIONS)


def _device_class(new: Manifest, old: Manifest | None) -> Errors:
    """Return the errors in a class; invalid selectors and configurations of ``old`` are allowed."""
    spec, before = new.get("spec") or {}, (old or {}).get("spec") or {}
    known_selectors = old is not None and spec.get("selectors") == before.get("selectors")
    known_config = old is not None and spec.get("config") == before.get("config")

    def selector(one: Manifest, path: str) -> Errors:
        return [] if known_selectors and one.get("cel") else _selector(one, path)

    def configuration(one: Manifest, path: str) -> Errors:
        return _configuration(one, path, stored=known_config)

    errors = each(spec.get("selectors"), "spec.selectors", selector, most=_MOST)
    name = spec.get("extendedResourceName")
    if name is not None and not is_extended_resource_name(name):
        detail = "must be a valid extended resource name"
        errors.append(invalid("spec.extendedResourceName", name, detail))
    return errors + each(spec.get("config"), "spec.config", configuration, most=_MOST)


RULES: Final[dict[str, Callable[[Manifest, Manifest | None], Errors]]] = {
    "DeviceClass": _device_class,
    "DeviceTaintRule": _device_taint_rule,
    "ResourceClaim": _resource_claim,
    "ResourceClaimTemplate": _resource_claim_template,
    "ResourceSlice": _resource_slice,
}
