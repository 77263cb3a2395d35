"""Options of reads and writes, from the query and from option objects.

Rules: ``validation.go`` in apimachinery ``meta/v1/validation``, ``parseTimeout`` in apiserver
``endpoints/filters/request_deadline.go``, ``ValidateListOptions`` in apimachinery
``meta/internalversion/validation``, v1.36.
"""

import re
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec
from django.http import QueryDict

from api.forms import wire
from api.requests import Request
from clusterstate.objects.registry import wire_types
from clusterstate.objects.values.document import parse_time
from clusterstate.objects.values.errors import (
    FORBIDDEN,
    INVALID,
    NOT_SUPPORTED,
    REQUIRED,
    TOO_LONG,
    BadRequest,
    FieldError,
    Invalid,
)
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.remembered import remembered

OPTIONS = {
    "POST": "CreateOptions",
    "PUT": "UpdateOptions",
    "PATCH": "PatchOptions",
    "DELETE": "DeleteOptions",
}
"""What the parameters of each method that writes are called."""

EXACT = "Exact"
NOT_OLDER_THAN = "NotOlderThan"

_DURATION = re.compile(r"[-+]?(?:0|(?:(?:\d+(?:\.\d*)?|\.\d+)(?:ns|us|µs|μs|ms|s|m|h))+)", re.ASCII)
"""What Go's ``time.ParseDuration`` reads."""


_VALIDATIONS = ("", "Ignore", "Strict", "Warn")
"""What ``fieldValidation`` may be."""


def check_write(query: QueryDict, method: str, *, applies: bool) -> None:
    """Check the parameters of a POST, PUT or PATCH; ``applies``: it is a server-side apply.

    Rules: ValidateCreateOptions, ValidateUpdateOptions and ValidatePatchOptions.

    Raises:
        BadRequest: ``force`` is no boolean.
        Invalid: with every invalid parameter.
    """
    causes: list[FieldError] = []
    manager = query.get("fieldManager", "")
    if "force" in query:
        wire.boolean(query.get("force"), "force")
        if method == "PATCH" and not applies:
            detail = "may not be specified for non-apply patch"
            causes.append(FieldError(FORBIDDEN, "force", None, detail))
    if applies and not manager:
        causes.append(FieldError(REQUIRED, "fieldManager", None, "is required for apply patch"))
    causes += _manager_causes(manager)
    causes += _dry_run_causes(query.getlist("dryRun"))
    mode = query.get("fieldValidation", "")
    if mode not in _VALIDATIONS:
        detail = "supported values: " + ", ".join(f'"{one}"' for one in _VALIDATIONS)
        causes.append(FieldError(NOT_SUPPORTED, "fieldValidation", mode, detail))
    if causes:
        raise Invalid(OPTIONS[method], "", causes, "meta.k8s.io")


def dry_run(values: list[str], named: str) -> bool:
    """Return whether ``dryRun`` is All; any other value is refused.

    Rule: ValidateDryRun.

    Raises:
        Invalid: ``named`` is the kind of the request's options.
    """
    causes = _dry_run_causes(values)
    if causes:
        raise Invalid(named, "", causes, "meta.k8s.io")
    return bool(values)


def _dry_run_causes(values: list[str]) -> list[FieldError]:
    if all(value == "All" for value in values):
        return []
    return [FieldError(NOT_SUPPORTED, "dryRun", values, 'supported values: "All"')]


def delete_options(body: Any, query: QueryDict) -> Manifest:
    """Return checked DeleteOptions: those of the body, completed by query parameters.

    The result has ``gracePeriodSeconds`` (int), ``preconditions`` (dict), ``propagationPolicy``,
    ``orphanDependents`` (bool) and ``dryRun`` (bool), each only when given. ``orphanDependents`` is
    in ``propagationPolicy`` too. Rule: ValidateDeleteOptions, apimachinery ``meta/v1/validation``,
    v1.36.

    Raises:
        BadRequest: something does not decode. Invalid: it decodes and is invalid.
    """
    version = body.get("apiVersion") if isinstance(body, dict) else None
    # Every group has a DeleteOptions of the same shape.
    versions = ("v1", version) if isinstance(version, str) else ("v1",)
    value = wire.request(body, "DeleteOptions", wire_types.DeleteOptions, *versions)
    options: Manifest = {}
    grace = value.get("gracePeriodSeconds")
    if grace is None:
        grace = wire.signed(query.get("gracePeriodSeconds"), "gracePeriodSeconds")
    if grace is not None:
        options["gracePeriodSeconds"] = grace
    if value.get("preconditions"):
        options["preconditions"] = value["preconditions"]
    policy = value.get("propagationPolicy") or query.get("propagationPolicy")
    orphan = value.get("orphanDependents")
    if orphan is None and "orphanDependents" in query:
        orphan = wire.boolean(query.get("orphanDependents", ""), "orphanDependents")
    if policy and orphan is not None:
        detail = "orphanDependents and deletionPropagation cannot be both set"
        cause = FieldError(INVALID, "propagationPolicy", policy, detail)
        raise Invalid("DeleteOptions", "", [cause], "meta.k8s.io")
    if orphan is not None:
        options["orphanDependents"] = orphan
        policy = "Orphan" if orphan else "Background"
    if policy:
        if policy not in ("Orphan", "Background", "Foreground"):
            detail = 'supported values: "Foreground", "Background", "Orphan", "nil"'
            cause = FieldError(NOT_SUPPORTED, "propagationPolicy", policy, detail)
            raise Invalid("DeleteOptions", "", [cause], "meta.k8s.io")
        options["propagationPolicy"] = policy
    _refuse_unsafe(value, query)
    only_try = [*(value.get("dryRun") or ()), *query.getlist("dryRun")]
    options["dryRun"] = dry_run(only_try, "DeleteOptions")
    return options


_UNSAFE = "ignoreStoreReadErrorWithClusterBreakingPotential"


def _refuse_unsafe(value: Manifest, query: QueryDict) -> None:
    """Refuse deletion without reading the object, which would skip finalizers and budgets.

    Raises:
        BadRequest: the parameter is no boolean. Invalid: it is true.
    """
    is_unsafe = value.get(_UNSAFE)
    if is_unsafe is None and _UNSAFE in query:
        is_unsafe = wire.boolean(query.get(_UNSAFE, ""), _UNSAFE)
    if is_unsafe:
        detail = "not supported: every object that is stored here can be read before it is deleted"
        cause = FieldError(NOT_SUPPORTED, _UNSAFE, is_unsafe, detail)
        raise Invalid("DeleteOptions", "", [cause], "meta.k8s.io")


_MANAGER_BYTES = 128


def field_manager(request: Request) -> str:
    """Return the field manager: ``fieldManager``, or the program's name in ``User-Agent``.

    Rule: managerOrUserAgent, apiserver ``endpoints/handlers/create.go``.
    """
    manager: str = request.query_params.get("fieldManager", "")
    return manager or program(request.META.get("HTTP_USER_AGENT", ""))


def _manager_causes(manager: str) -> list[FieldError]:
    """Return the errors in a ``fieldManager``: ValidateFieldManager."""
    causes = []
    if len(manager.encode()) > _MANAGER_BYTES:
        detail = f"may not be more than {_MANAGER_BYTES} bytes"
        causes.append(FieldError(TOO_LONG, "fieldManager", manager, detail))
    place = 0
    for one in "" if manager.isprintable() else manager:
        if not one.isprintable():
            detail = f"invalid character U+{ord(one):04X} (at position {place})"
            causes.append(FieldError(INVALID, "fieldManager", manager, detail))
        place += len(one.encode())
    return causes


def is_forced(request: Request) -> bool:
    """Return whether an apply takes fields from the managers that own them."""
    return wire.boolean(request.query_params.get("force"), "force")


@remembered(1024)
def program(agent: str) -> str:
    """Return the program that a User-Agent names first."""
    name = "".join(one for one in agent.partition("/")[0] if one.isprintable())
    return name.encode()[:_MANAGER_BYTES].decode(errors="ignore") or "unknown"


def check_timeout(query: Mapping[str, str]) -> None:
    """Check ``timeout``, by which clients limit a request; it has no other effect.

    Raises:
        BadRequest: it is no duration.
    """
    text = query.get("timeout")
    if text and not _DURATION.fullmatch(text):
        shown = text[:100]
        raise BadRequest(
            f'invalid timeout specified in the request URL - time: invalid duration "{shown}"'
        )


class Version(msgspec.Struct, frozen=True):
    """The requested version of a list.

    ``least``: a revision that the answer must include, 0 for any; ``exact``: the revision of the
    answer, None for the present.
    """

    least: int = 0
    exact: int | None = None


_CLOCK = re.compile(r"(\d{1,2}):(\d{2})(?::(\d{2}))?", re.ASCII)
_AGO = re.compile(r"(\d{1,6})(s|m|h|d)?", re.ASCII)
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days"}


def moment(query: Mapping[str, str], *, now: datetime) -> datetime | None:
    """Return the past moment in ``at`` whose state a read requests, None for the present.

    ``time_of`` has the formats.

    Raises:
        BadRequest: it has no such format, or other parameters request another state.
    """
    text = query.get("at")
    if text is None:
        return None
    if query.get("resourceVersion") or query.get("resourceVersionMatch"):
        raise BadRequest(
            "at: may not be used together with resourceVersion or resourceVersionMatch"
        )
    return time_of(text, "at", now=now)


def time_of(text: str, name: str, *, now: datetime) -> datetime:
    """Return the moment in a parameter.

    As RFC 3339, as an age (``10`` minutes, ``90s``, ``2h``, ``1d``), or as a time of day: ``03:10``
    is the last ten past three, in UTC.

    Raises:
        BadRequest: it has none of these formats.
    """
    ago = _AGO.fullmatch(text)
    clock = _CLOCK.fullmatch(text)
    try:
        if ago is not None:
            return now - timedelta(**{_UNITS[ago[2] or "m"]: int(ago[1])})
        if clock is not None:
            hour, minute, second = (int(one or 0) for one in clock.groups())
            today = now.astimezone(UTC).replace(
                hour=hour, minute=minute, second=second, microsecond=0
            )
            return today if today <= now else today - timedelta(days=1)
        return parse_time(text)
    except (ValueError, OverflowError):
        raise BadRequest(
            f'{name}: Invalid value: "{text[:100]}": must be a time such as 2026-01-31T12:00:00Z, a'
            " time of day in UTC such as 03:10, or how long ago: 10m, 2h, 1d"
        ) from None


def require_present(query: Mapping[str, str], what: str) -> None:
    """Check that a request about the present has no parameter ``at``.

    Raises:
        BadRequest: it has.
    """
    if "at" in query:
        raise BadRequest(
            f"at: {what} cannot be done in the past; only reads may have this parameter"
        )


def exact_version(query: Mapping[str, str]) -> int | None:
    """Return the revision of a read of one object with Exact, None for the present.

    Raises:
        BadRequest: the revision is no number. Invalid: the two contradict each other.
    """
    match = query.get("resourceVersionMatch", "")
    if match != EXACT:
        return None  # a present object is never older than any revision that a client has
    version = query.get("resourceVersion", "")
    causes = _match_causes(query, version, match)
    if causes:
        raise Invalid("GetOptions", "", causes, "meta.k8s.io")
    return wire.revision(version)


def list_version(query: Mapping[str, str]) -> Version:
    """Return the version of a list in ``resourceVersion`` and ``resourceVersionMatch``.

    With ``limit`` a revision means exactly that one, as Kubernetes' first clients expected. A
    further page has its revision in its token (``GetList``, apiserver ``storage/etcd3/store.go``).

    Raises:
        BadRequest: a number is invalid, or a further page names another revision.
        Invalid: the two contradict each other.
    """
    text = query.get("resourceVersion", "")
    match = query.get("resourceVersionMatch", "")
    causes = []
    if match:
        causes += _match_causes(query, text, match)
    if "sendInitialEvents" in query:
        detail = "sendInitialEvents is forbidden for list"
        causes.append(FieldError(FORBIDDEN, "sendInitialEvents", None, detail))
    if causes:
        raise Invalid("ListOptions", "", causes, "meta.k8s.io")
    revision = wire.revision(text) or 0
    if revision and query.get("continue"):
        raise BadRequest("specifying resource version is not allowed when using continue")
    wire.signed(query.get("timeoutSeconds"), "timeoutSeconds")  # a check only
    pages = (wire.signed(query.get("limit"), "limit") or 0) > 0
    if revision and (match == EXACT or (pages and not match)):
        return Version(revision, revision)
    return Version(revision)


def _match_causes(query: Mapping[str, str], version: str, match: str) -> list[FieldError]:
    field = "resourceVersionMatch"
    causes = []
    if not version:
        detail = "resourceVersionMatch is forbidden unless resourceVersion is provided"
        causes.append(FieldError(FORBIDDEN, field, None, detail))
    if query.get("continue"):
        detail = "resourceVersionMatch is forbidden when continue is provided"
        causes.append(FieldError(FORBIDDEN, field, None, detail))
    if match not in (EXACT, NOT_OLDER_THAN):
        detail = f'supported values: "{EXACT}", "{NOT_OLDER_THAN}", ""'
        causes.append(FieldError(NOT_SUPPORTED, field, match, detail))
    if match == EXACT and version == "0":
        detail = 'resourceVersionMatch "exact" is forbidden for resourceVersion "0"'
        causes.append(FieldError(FORBIDDEN, field, None, detail))
    return causes


def check_watch(query: Mapping[str, str]) -> None:
    """Check ``resourceVersionMatch`` of a watch.

    Raises:
        BadRequest: the watch has a parameter ``at``.
        Invalid: it is present without ``sendInitialEvents``, or the other way round.
    """
    require_present(query, "a watch")
    match = query.get("resourceVersionMatch", "")
    initial = "sendInitialEvents" in query
    field = "resourceVersionMatch"
    causes = []
    if initial and match != NOT_OLDER_THAN:
        detail = f"sendInitialEvents requires setting resourceVersionMatch to {NOT_OLDER_THAN}"
        causes.append(FieldError(FORBIDDEN, field, None, detail))
    if match and not initial:
        detail = "resourceVersionMatch is forbidden for watch unless sendInitialEvents is provided"
        causes.append(FieldError(FORBIDDEN, field, None, detail))
    if match and match != NOT_OLDER_THAN:
        detail = f'supported values: "{NOT_OLDER_THAN}"'
        causes.append(FieldError(NOT_SUPPORTED, field, match, detail))
    if causes:
        raise Invalid("ListOptions", "", causes, "meta.k8s.io")
