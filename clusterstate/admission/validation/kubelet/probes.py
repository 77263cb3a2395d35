"""Probes and lifecycle hooks of a container, and the handlers of both.

Rules: pkg/apis/core/validation/validation.go, v1.36.
"""

from typing import Final

from clusterstate.admission.validation.core import formats
from clusterstate.admission.validation.core.field import (
    Errors,
    forbidden,
    invalid,
    invalid_each,
    none_negative,
    not_supported,
    one_of,
    required,
)
from clusterstate.admission.validation.core.pod_context import PodContext
from clusterstate.admission.validation.core.ports import validate_port_number_or_name
from clusterstate.objects.values.meta import Manifest

_ONE_HANDLER: Final = "may not specify more than 1 handler type"
PROBES: Final = ("livenessProbe", "readinessProbe", "startupProbe")
_SIGNALS: Final = tuple(
    sorted(
        {
            *(  # noqa: SIM905 - a table of words reads better as text
                "SIGABRT SIGALRM SIGBUS SIGCHLD SIGCLD SIGCONT SIGFPE SIGHUP SIGILL SIGINT SIGIO "
                "SIGIOT SIGKILL SIGPIPE SIGPOLL SIGPROF SIGPWR SIGQUIT SIGSEGV SIGSTKFLT SIGSTOP "
                "SIGSYS SIGTERM SIGTRAP SIGTSTP SIGTTIN SIGTTOU SIGURG SIGUSR1 SIGUSR2 SIGVTALRM "
                "SIGWINCH SIGXCPU SIGXFSZ SIGRTMIN SIGRTMAX"
            ).split(),
            *(f"SIGRTMIN+{n}" for n in range(1, 16)),
            *(f"SIGRTMAX-{n}" for n in range(1, 15)),
        }
    )
)
_WINDOWS_SIGNALS: Final = ("SIGKILL", "SIGTERM")


def validate_probes(container: Manifest, path: str, pod: PodContext) -> Errors:
    """Return the errors in the probes of a container."""
    errors: Errors = []
    for field in PROBES:
        probe = container.get(field)
        if probe is None:
            continue
        where = f"{path}.{field}"
        errors += _handler(probe, ("exec", "httpGet", "tcpSocket", "grpc"), where, pod)
        errors += none_negative(
            probe, where, "initialDelaySeconds", "timeoutSeconds", "periodSeconds",
            "successThreshold", "failureThreshold",
        )  # fmt: skip
        grace = probe.get("terminationGracePeriodSeconds")
        at = f"{where}.terminationGracePeriodSeconds"
        if grace is not None and grace <= 0:
            errors.append(invalid(at, grace, "must be greater than 0"))
        if field == "readinessProbe":
            if grace is not None:
                errors.append(invalid(at, grace, "must not be set for readinessProbes"))
        elif (threshold := probe.get("successThreshold") or 0) != 1:
            errors.append(invalid(f"{where}.successThreshold", threshold, "must be 1"))
    return errors


def validate_lifecycle(lifecycle: Manifest, path: str, pod: PodContext) -> Errors:
    """Return the errors in the hooks of a container and its stop signal."""
    errors: Errors = []
    for field in ("postStart", "preStop"):
        if (handler := lifecycle.get(field)) is not None:
            handlers = ("exec", "httpGet", "tcpSocket", "sleep")
            errors += _handler(handler, handlers, f"{path}.{field}", pod)
    if (signal := lifecycle.get("stopSignal")) is not None:
        at = f"{path}.stopSignal"
        supported = _WINDOWS_SIGNALS if pod.os == "windows" else _SIGNALS
        if not pod.os:
            detail = "may not be set for containers with empty `spec.os.name`"
            errors.append(forbidden(at, detail))
        elif signal not in supported:
            errors.append(not_supported(at, signal, supported))
    return errors


def _handler(handler: Manifest, allowed: tuple[str, ...], path: str, pod: PodContext) -> Errors:
    errors: Errors = []
    count = 0
    for name in allowed:
        action = handler.get(name)
        if action is None:
            continue
        if count:
            errors.append(forbidden(f"{path}.{name}", _ONE_HANDLER))
            continue
        count += 1
        at = f"{path}.{name}"
        if name == "exec":
            if not action.get("command"):
                errors.append(required(f"{at}.command"))
        elif name == "httpGet":
            errors += _http_get(action, at)
        elif name == "sleep":
            errors += _sleep(action, at, pod)
        else:
            errors += validate_port_number_or_name(action.get("port", 0), f"{at}.port")
    if not count:
        errors.append(required(path, "must specify a handler type"))
    return errors


def _http_get(action: Manifest, path: str) -> Errors:
    errors: Errors = []
    if not action.get("path"):
        errors.append(required(f"{path}.path"))
    errors += validate_port_number_or_name(action.get("port", 0), f"{path}.port")
    scheme = action.get("scheme") or ""
    errors += one_of(scheme, f"{path}.scheme", ("HTTP", "HTTPS"))
    for header in action.get("httpHeaders") or ():
        name = header.get("name") or ""
        errors += invalid_each(f"{path}.httpHeaders", name, formats.http_header_name(name))
    return errors


def _sleep(action: Manifest, path: str, pod: PodContext) -> Errors:
    seconds, grace = action.get("seconds") or 0, pod.grace_period
    if grace is None:
        return []
    if pod.options.allow_pod_lifecycle_sleep_action_zero_value:
        if 0 <= seconds <= grace:
            return []
        detail = f"must be non-negative and less than terminationGracePeriodSeconds ({grace})"
    else:
        if 0 < seconds <= grace:
            return []
        detail = (
            f"must be greater than 0 and less than terminationGracePeriodSeconds ({grace}). "
            "Enable AllowPodLifecycleSleepActionZeroValue feature gate for zero sleep."
        )
    return [invalid(path, seconds, detail)]
