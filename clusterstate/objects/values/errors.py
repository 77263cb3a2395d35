"""Errors of requests, which the API turns into a ``Status``.

``FieldError`` is one wrong field; validation collects them all. The exceptions are the ways in
which a whole request fails; each carries the ``reason`` and the HTTP ``code`` of apimachinery's
``api/errors`` (v1.36), so that one handler can answer all of them.
"""

from typing import Any, ClassVar, Final

import msgspec

# Go's field.ErrorType names, with the text that starts the message on the wire.
REQUIRED = "FieldValueRequired"
INVALID = "FieldValueInvalid"
NOT_SUPPORTED = "FieldValueNotSupported"
DUPLICATE = "FieldValueDuplicate"
NOT_FOUND = "FieldValueNotFound"
FORBIDDEN = "FieldValueForbidden"
TOO_LONG = "FieldValueTooLong"
TOO_MANY = "FieldValueTooMany"
TYPE_INVALID = "FieldValueTypeInvalid"
INTERNAL = "InternalError"

_TEXT = {
    REQUIRED: "Required value",
    INVALID: "Invalid value",
    NOT_SUPPORTED: "Unsupported value",
    DUPLICATE: "Duplicate value",
    NOT_FOUND: "Not found",
    FORBIDDEN: "Forbidden",
    TOO_LONG: "Too long",
    TOO_MANY: "Too many",
    TYPE_INVALID: "Invalid value",
    INTERNAL: "Internal error",
}
_WITHOUT_VALUE = {REQUIRED, FORBIDDEN, TOO_LONG, INTERNAL}

MOST_TOLD: Final = 100
"""Wrong fields of one object that its refusal names; a body of 3 MiB may have a million."""
_MOST_SHOWN: Final = 1000
"""Characters of a value, or of an explanation, in a refusal: each wrong field shows its own."""


OMITTED: Final = msgspec.UNSET
"""The value of an error whose text names none (``field.OmitValueType``)."""


class FieldError(msgspec.Struct, frozen=True):
    """One wrong field: where (``spec.containers[0].name``), how (``type``), which value, why."""

    type: str
    field: str
    bad_value: Any = None
    detail: str = ""

    def message(self) -> str:
        """Return the text without the field, as Kubernetes' ``field.Error.ErrorBody`` writes it.

        A long value or explanation is cut off.
        """
        text = _TEXT[self.type]
        if self.type not in _WITHOUT_VALUE:
            value = self.bad_value
            if isinstance(value, str):
                value = value[: _MOST_SHOWN + 1]
            if value is not OMITTED:
                text += f": {_beginning(msgspec.json.encode(value).decode())}"
        return f"{text}: {_beginning(self.detail)}" if self.detail else text


def _beginning(text: str) -> str:
    return text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}..."


class StatusError(Exception):
    """A request that fails; ``code`` is the HTTP status, ``reason`` Kubernetes' machine word."""

    code: ClassVar[int] = 500
    reason: ClassVar[str] = "InternalError"

    def __init__(self, message: str, details: dict[str, Any] | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.details = details or {}


class BadRequest(StatusError):
    """The body or a parameter does not decode."""

    code, reason = 400, "BadRequest"


class Unauthorized(StatusError):
    """The request has no credentials, or wrong ones."""

    code, reason = 401, "Unauthorized"


class Forbidden(StatusError):
    """The user is known but may not do this, by role or by an admission plugin."""

    code, reason = 403, "Forbidden"


class NotFound(StatusError):
    """No such object exists."""

    code, reason = 404, "NotFound"


class AlreadyExists(StatusError):
    """An object of that name is there."""

    code, reason = 409, "AlreadyExists"


class Conflict(StatusError):
    """The object changed since it was read, or its state forbids the request."""

    code, reason = 409, "Conflict"


class Expired(StatusError):
    """The revision asked for is no longer kept.

    ``rest``: the token by which a list of which a part was read can go on in the present.
    """

    code, reason = 410, "Expired"

    def __init__(
        self, message: str, details: dict[str, Any] | None = None, *, rest: str = ""
    ) -> None:
        super().__init__(message, details)
        self.rest = rest


class TooLarge(StatusError):
    """The body is larger than the limit."""

    code, reason = 413, "RequestEntityTooLarge"


class Invalid(StatusError):
    """The object decodes but is wrong; ``errors`` holds every wrong field, the text the first."""

    code, reason = 422, "Invalid"

    def __init__(self, kind: str, name: str, errors: "list[FieldError]", group: str = "") -> None:
        messages = [(e, e.message()) for e in errors[:MOST_TOLD]]
        texts = [f"{e.field}: {message}" for e, message in messages]
        if len(errors) > len(messages):
            texts.append(f"and {len(errors) - len(messages)} more")
        joined = texts[0] if len(texts) == 1 else f"[{', '.join(texts)}]"
        details: dict[str, Any] = {"name": name, "kind": kind}
        if group:
            details["group"] = group
        details["causes"] = [
            {"reason": e.type, "message": message, "field": e.field} for e, message in messages
        ]
        qualified = f"{kind}.{group}" if group else kind
        super().__init__(f'{qualified} "{name}" is invalid: {joined}', details)
        self.errors = errors


class Untyped(StatusError):
    """What a client applies does not fit the schema of its kind; Kubernetes answers with 500."""

    code, reason = 500, ""


class Timeout(StatusError):
    """The work takes longer than a request may; part of it is done."""

    code, reason = 504, "Timeout"


class TooManyRequests(StatusError):
    """The client must wait: a disruption budget or a limit does not allow this now."""

    code, reason = 429, "TooManyRequests"


class ServiceUnavailable(StatusError):
    """A part that the answer needs is down; the request may be repeated."""

    code, reason = 503, "ServiceUnavailable"
