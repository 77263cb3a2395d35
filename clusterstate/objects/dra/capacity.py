"""Capacity that a request consumes of a device that may be shared (KEP-5075).

Rules: k8s.io/dynamic-resource-allocation ``structured/internal/incubating/consumable_capacity.go``,
v1.36, and v1.38 for names. Capacities are maps of names to quantities; a driver's capacity has one
name with the driver's prefix and without, so all maps here are ``unqualified``.
"""

from collections.abc import Mapping
from typing import Any, TypeVar

from clusterstate.objects.values.quantity import BINARY_SI, Quantity

Consumed = dict[str, Quantity]
Capacities = Mapping[str, Mapping[str, Any]]
"""A device's ``capacity``: by name, ``value`` and perhaps ``requestPolicy``."""
T = TypeVar("T")


def unqualified(named: Mapping[str, T], driver: str) -> Mapping[str, T]:
    """Return a map of capacities by their names without the prefix of their driver."""
    prefix = f"{driver}/"
    if not any(name.startswith(prefix) for name in named):
        return named
    return {name.removeprefix(prefix): value for name, value in named.items()}


def consumed_capacity(requested: Quantity | None, capacity: Mapping[str, Any]) -> Quantity:
    """Return how much of a capacity a request consumes: rounded by its policy, or the default."""
    policy = capacity.get("requestPolicy")
    if requested is None:
        default = (policy or {}).get("default")
        return Quantity.parse(capacity["value"] if default is None else default)
    if not policy:
        return requested
    valid_range = policy.get("validRange")
    if valid_range and valid_range.get("min") is not None:
        return _round_up(requested, valid_range)
    for value in policy.get("validValues") or ():
        if requested <= (valid := Quantity.parse(value)):
            return valid
    return requested


def _round_up(requested: Quantity, valid_range: Mapping[str, Any]) -> Quantity:
    least = Quantity.parse(valid_range["min"])
    if requested < least:
        return least
    if valid_range.get("step") is None:
        return requested
    step, start = Quantity.parse(valid_range["step"]).value(), least.value()
    return Quantity.of(start + step * -(-(requested.value() - start) // step), BINARY_SI)


def violates_policy(requested: Quantity, policy: Mapping[str, Any] | None) -> bool:
    """Return whether a request policy refuses a quantity."""
    if not policy:
        return False
    if (valid := policy.get("validRange")) is not None:
        if valid.get("max") is not None and requested > Quantity.parse(valid["max"]):
            return True
        if valid.get("step") is None:
            return False
        start = Quantity.parse(valid.get("min", "0")).value()
        return (requested.value() - start) % Quantity.parse(valid["step"]).value() != 0
    values = policy.get("validValues") or ()
    return bool(values) and not any(requested == Quantity.parse(value) for value in values)


def consumed_by_request(requests: Mapping[str, Any], capacities: Capacities) -> Consumed:
    """Return what a request takes of each capacity of a device."""
    return {
        name: consumed_capacity(
            Quantity.parse(requests[name]) if name in requests else None, capacity
        )
        for name, capacity in capacities.items()
    }


def fits(
    requests: Mapping[str, Any], capacities: Capacities, *consumed: Mapping[str, Quantity]
) -> bool:
    """Return whether a device has room for a request beside what is ``consumed`` of it already."""
    if any(name not in capacities for name in requests):
        return False
    total = consumed_by_request(requests, capacities)
    for name, amount in total.items():
        if violates_policy(amount, capacities[name].get("requestPolicy")):
            return False
    for other in consumed:
        add(total, other)
    return all(total[name] <= Quantity.parse(c["value"]) for name, c in capacities.items())


def add(total: Consumed, more: Mapping[str, Quantity]) -> None:
    """Add quantities to a total in place."""
    for name, amount in more.items():
        total[name] = total[name].add(amount) if name in total else amount


def subtract(total: Consumed, less: Mapping[str, Quantity]) -> None:
    """Take quantities from a total in place."""
    for name, amount in less.items():
        total[name] = total[name].sub(amount) if name in total else amount.mul(-1)
