"""Every answer that is not a success, as a Kubernetes ``Status``.

Clients print ``message`` and branch on ``reason``; a page of HTML or DRF's ``detail`` would reach
the user as "the server rejected our request for an unknown reason". So all errors are converted
here: ``StatusError`` of the layers below, exceptions of DRF and Django, a lost database, any
defect. Shapes: apimachinery ``api/errors/errors.go``, v1.36.
"""

import errno
import logging
import re
import time
from collections import deque
from typing import Any

import msgspec
import psycopg
from django.core.exceptions import RequestDataTooBig
from django.db import DatabaseError, DataError, InterfaceError, OperationalError
from django.http import Http404
from rest_framework import exceptions
from rest_framework.response import Response

from clusterstate.objects.values import errors
from clusterstate.telemetry.troubles import Trouble

logger = logging.getLogger(__name__)

JSON = "application/json"
NO_CACHE = "no-cache, private"
UNKNOWN_PATH = "the server could not find the requested resource"
NOT_SERVED = {
    "admissionregistration.k8s.io": "no webhook or policy is asked before objects are stored",
    "apiextensions.k8s.io": "there are no custom resources, the kinds are fixed",
    "apiregistration.k8s.io": "no other API servers are reached through this one",
}
"""Why groups that a program may count upon in Kubernetes are not served."""
WRONG_METHOD = "the server does not allow this method on the requested resource"
INTERNAL = "an error on the server has prevented the request from succeeding"
_UNABLE = "the server is currently unable to handle the request"
UNAVAILABLE = f"{_UNABLE}: the database does not answer"
DISK_FULL = "nothing was written, because the disk is full"

encode = msgspec.json.Encoder(enc_hook=str).encode  # DRF's ErrorDetail is a str subclass


class MethodNotAllowed(errors.StatusError):
    """The path exists, the verb does not."""

    code, reason = 405, "MethodNotAllowed"


class NotAcceptable(errors.StatusError):
    """None of the requested media types can be served."""

    code, reason = 406, "NotAcceptable"


class UnsupportedMediaType(errors.StatusError):
    """The media type of the body is not supported."""

    code, reason = 415, "UnsupportedMediaType"


class Unprocessable(errors.StatusError):
    """The request decodes, but a value in it cannot be stored."""

    code, reason = 422, "Invalid"


class InsufficientStorage(errors.StatusError):
    """A disk is full; the client may retry once there is room. Kubernetes has no such error."""

    code, reason = 507, "InsufficientStorage"


ONLY_READS = "is read-only: it is a replica, or was made one"
# PostgreSQL's errors that the request did not cause, by SQLSTATE (appendix A of its manual).
_STATES = {
    "25006": f"the database {ONLY_READS}",
    "25P03": "the request was cancelled while it wrote",
    "25P04": "the request took too long to write",
    "53000": "the database lacks a resource",
    "53200": "the database has no memory left",
    "53300": "the database has no connection left",
    "53400": "a limit of the database is reached",
    "55P03": "a row or table that the request needs was locked for too long",
    "57014": "the database took too long",
    "57P03": "the database is recovering from a crash",
    "58030": "the database cannot read or write its disk",
}
_FULL = re.compile(
    "No space left on device|Disk quota exceeded|File too large"  # ENOSPC, EDQUOT, EFBIG
)


def _storage(error: Exception) -> errors.StatusError | None:
    """Return the error for a failure of database or disk that the request did not cause."""
    if isinstance(error, OSError) and error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
        return InsufficientStorage(DISK_FULL, {"retryAfterSeconds": 5})
    cause = error if isinstance(error, psycopg.Error) else error.__cause__
    if not isinstance(cause, psycopg.Error):
        return None
    # PostgreSQL has no code for a quota, only the system's message.
    if cause.sqlstate == "53100" or (
        cause.sqlstate in ("XX000", "58030") and _FULL.search(str(cause))
    ):
        return InsufficientStorage(DISK_FULL, {"retryAfterSeconds": 5})
    sentence = _STATES.get(cause.sqlstate or "")
    if sentence is None:
        return None
    return errors.ServiceUnavailable(f"{_UNABLE}: {sentence}", {"retryAfterSeconds": 1})


def failure(
    code: int, reason: str, message: str, details: dict[str, Any] | None = None
) -> dict[str, Any]:
    """Return a failure as a ``Status`` manifest.

    ``details`` is present even if it is empty, since ``kubectl debug`` reads it without a check.
    """
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        **({"reason": reason} if reason else {}),
        "details": details or {},
        "code": code,
    }


def success(
    code: int = 200, details: dict[str, Any] | None = None, revision: int | None = None
) -> dict[str, Any]:
    """Return a success as a ``Status`` manifest; ``code`` is written only if it is not 200.

    ``revision``: that of what was written (deletions, pods/binding and pods/eviction, v1.38), or
    ``None`` where nothing was.
    """
    status: dict[str, Any] = {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {} if revision is None else {"resourceVersion": str(revision)},
        "status": "Success",
    }
    if details:
        status["details"] = details
    if code != 200:
        status["code"] = code
    return status


def as_status(error: errors.StatusError) -> dict[str, Any]:
    """Return the ``Status`` manifest of an expected failure."""
    status = failure(error.code, error.reason, error.message, error.details)
    if isinstance(error, errors.Expired) and error.rest:
        status["metadata"] = {"continue": error.rest}
    return status


_UNFIT_STATES = ("22", "54", "23502", "23514")
"""SQLSTATEs of a value that does not fit where it is stored: data exceptions, limits such as the
size of an index's entry, and rows that a constraint refuses."""


def _data(error: Exception) -> errors.StatusError | None:
    """Return the error for a value that the database refuses, None for other failures.

    A last check after admission, which names the field: an invalid value is the client's error.
    """
    if not isinstance(error, DatabaseError):
        return None
    state = getattr(error.__cause__, "sqlstate", None) or ""
    if not isinstance(error, DataError) and not state.startswith(_UNFIT_STATES):
        return None
    why = str(error).strip().split("\n", 1)[0][:200]
    return Unprocessable(f"a value does not fit its database column: {why}")


def translate(error: Exception) -> errors.StatusError:
    """Return the failure to send to the client for any exception.

    Unexpected ones are logged with their traceback and become a 500 without internal details. A
    lost database is a retryable 503, a full disk a 507.
    """
    if isinstance(error, errors.StatusError):
        return error
    if isinstance(error, Http404 | exceptions.NotFound):
        return errors.NotFound(UNKNOWN_PATH)
    if isinstance(error, exceptions.MethodNotAllowed):
        return MethodNotAllowed(WRONG_METHOD)
    if isinstance(error, exceptions.NotAuthenticated | exceptions.AuthenticationFailed):
        return errors.Unauthorized("Unauthorized")
    if isinstance(error, exceptions.PermissionDenied):
        return errors.Forbidden(str(error.detail))
    if isinstance(error, RequestDataTooBig):
        return errors.TooLarge("the request body is larger than the limit")
    if isinstance(error, exceptions.APIException):
        return errors.BadRequest(str(error.detail))
    if (refused := _storage(error)) is not None:
        if isinstance(refused, InsufficientStorage):
            _no_room.append((time.monotonic(), refused.message))
        _tell(refused.message, error)
        return refused
    if (refused := _data(error)) is not None:
        _tell(refused.message, error)
        return refused
    if isinstance(error, OperationalError | InterfaceError):
        _tell(UNAVAILABLE, error)
        return errors.ServiceUnavailable(UNAVAILABLE, {"retryAfterSeconds": 1})
    logger.error("request failed", exc_info=error)
    return errors.StatusError(INTERNAL)


_trouble = Trouble()
_no_room: deque[tuple[float, str]] = deque(maxlen=1)


def _tell(why: str, error: Exception) -> None:
    """Log why a request is refused, once a minute for each reason."""
    if requests := _trouble.note(why):
        logger.warning("refused: %s (requests: %d)", why, requests, exc_info=error)


def last_refusal_for_room(seconds: float) -> str:
    """Return why a write was refused for lack of space lately; empty if none was."""
    if not _no_room:
        return ""
    at, why = _no_room[-1]
    return why if time.monotonic() - at <= seconds else ""


def headers(status: errors.StatusError) -> dict[str, str]:
    """Return the headers of a failure's answer, beside its type and length."""
    found = {"Cache-Control": NO_CACHE}
    if status.code == 401:
        found["WWW-Authenticate"] = "Bearer"
    if "retryAfterSeconds" in status.details:
        found["Retry-After"] = str(status.details["retryAfterSeconds"])
    return found


def unknown_path(path: str) -> errors.NotFound:
    """Return the error for a path that is not served; for some groups it says why."""
    parts = path.split("/", 3)
    why = NOT_SERVED.get(parts[2], "") if len(parts) > 2 and parts[1] == "apis" else ""
    return errors.NotFound(f"{UNKNOWN_PATH}: {why}" if why else UNKNOWN_PATH)


def handle(error: Exception, context: dict[str, Any]) -> Response:
    """Return a view's answer to any exception (DRF's ``EXCEPTION_HANDLER``)."""
    status = translate(error)
    answer = Response(as_status(status), status.code, headers=headers(status), exception=True)
    # For Django a 500 is an error of the server, and logged as one.
    answer._has_been_logged = isinstance(error, errors.Untyped)  # type: ignore[attr-defined]
    return answer
