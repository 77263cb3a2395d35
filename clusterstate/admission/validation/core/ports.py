"""Ports of containers: names, numbers, protocols, and duplicate host ports.

Rules: pkg/apis/core/validation/validation.go, v1.36.
"""

from typing import Any, Final

from clusterstate.admission.validation.core import formats
from clusterstate.admission.validation.core.field import (
    Errors,
    duplicate,
    invalid_each,
    required,
    required_one_of,
)
from clusterstate.objects.values.meta import Manifest

PROTOCOLS: Final = ("SCTP", "TCP", "UDP")


def host_port_conflicts(containers: list[Manifest], path: str) -> Errors:
    """Return the errors of host ports that two containers use."""
    errors: Errors = []
    seen: set[str] = set()
    for index, container in enumerate(containers):
        for position, port in enumerate(container.get("ports") or ()):
            host_port = port.get("hostPort") or 0
            if not host_port:
                continue
            claim = f"{port.get('protocol', '')}/{port.get('hostIP', '')}/{host_port}"
            if claim in seen:
                at = f"{path}[{index}].ports[{position}].hostPort"
                errors.append(duplicate(at, claim))
            seen.add(claim)
    return errors


def validate_container_ports(ports: list[Manifest], path: str) -> Errors:
    """Return the errors in the ports of a container."""
    errors: Errors = []
    names: set[str] = set()
    for index, port in enumerate(ports):
        where = f"{path}[{index}]"
        name = port.get("name") or ""
        if name:
            if problems := formats.port_name(name):
                errors += invalid_each(f"{where}.name", name, problems)
            elif name in names:
                errors.append(duplicate(f"{where}.name", name))
            else:
                names.add(name)
        container_port = port.get("containerPort") or 0
        if not container_port:
            errors.append(required(f"{where}.containerPort"))
        elif problems := formats.port_number(container_port):
            errors += invalid_each(f"{where}.containerPort", container_port, problems)
        host_port = port.get("hostPort") or 0
        if host_port and (problems := formats.port_number(host_port)):
            errors += invalid_each(f"{where}.hostPort", host_port, problems)
        protocol = port.get("protocol") or ""
        errors += required_one_of(protocol, f"{where}.protocol", PROTOCOLS)
    return errors


def validate_port_number_or_name(port: Any, path: str) -> Errors:
    """Return the errors in a port, which is a number or the name of a port."""
    problems = formats.port_number(port) if isinstance(port, int) else formats.port_name(str(port))
    return invalid_each(path, port, problems)
