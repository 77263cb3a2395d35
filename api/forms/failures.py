"""A failure's answer outside of views: before a view is called, or instead of one.

Unauthenticated requests, too large bodies, watches and unknown paths are refused outside of Django
REST framework's views. Their clients get the same ``Status`` in the same form: a program that
accepts only protobuf could not read the reason in JSON.
"""

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any, Final

from django.http import HttpRequest, HttpResponse

from api.forms import errors, negotiation, renderers
from clusterstate.objects.values.errors import StatusError

_RENDERERS: Final = {
    one.format: one
    for one in (renderers.PLAIN, renderers.YAMLRenderer(), renderers.ProtobufRenderer())
}


def respond(error: Exception, accept: str = "") -> HttpResponse:
    """Return the HTTP answer for any exception, in a form that an ``Accept`` header takes."""
    failure = errors.translate(error)
    status = errors.as_status(failure)
    renderer = _RENDERERS[negotiation.for_failures(accept)]
    try:
        body = renderer.write(status)
    except errors.NotAcceptable:  # details that protobuf has no field for
        renderer = renderers.PLAIN
        body = renderer.write(status)
    return HttpResponse(
        body, content_type=renderer.media_type, status=failure.code, headers=errors.headers(failure)
    )


def answer_to(request: HttpRequest, error: Exception) -> HttpResponse:
    """Return the HTTP answer to a request for any exception."""
    return respond(error, request.META.get("HTTP_ACCEPT", ""))


def of_scope(scope: Mapping[str, Any], error: Exception) -> HttpResponse:
    """Return the HTTP answer to an ASGI request for any exception."""
    accept: bytes = next((value for key, value in scope["headers"] if key == b"accept"), b"")
    return respond(error, accept.decode("latin-1"))


async def reply(
    scope: Mapping[str, Any],
    send: Callable[[MutableMapping[str, Any]], Awaitable[None]],
    error: Exception,
) -> None:
    """Answer an ASGI request with a ``Status``."""
    response = of_scope(scope, error)
    pairs = [(k.lower().encode("latin-1"), v.encode("latin-1")) for k, v in response.items()]
    pairs.append((b"content-length", str(len(response.content)).encode()))
    await send({"type": "http.response.start", "status": response.status_code, "headers": pairs})
    await send({"type": "http.response.body", "body": response.content})


def unknown_path(request: HttpRequest, exception: Exception | None = None) -> HttpResponse:
    """Answer 404 for paths that no view serves."""
    return answer_to(request, errors.unknown_path(request.path_info))


def server_error(request: HttpRequest) -> HttpResponse:
    """Answer 500; Django has logged the cause."""
    return answer_to(request, StatusError(errors.INTERNAL))


def forget_frames(error: BaseException | None) -> None:
    """Remove the tracebacks of an error, which has become an answer.

    Their frames refer to the view, and those of a batch to the error itself, so only the garbage
    collector would free them.
    """
    while error is not None:
        error.__traceback__ = None
        error = error.__cause__ or error.__context__
