"""``/openapi/v2``: what kubectl's client-side validation may know.

kubectl reads the answer as a protobuf ``openapi.v2.Document`` whatever its media type. An empty
document is a legal one: kubectl then validates nothing itself, leaves that to the server, and uses
its built-in patch rules. A document with types but without their patch extensions would make
``kubectl apply`` silently keep what was removed.
"""

from django.http import HttpRequest, HttpResponse

from api import errors

# Go's mime parser refuses the "@" of the media type that kubectl asks for.
PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"
_EMPTY = {"swagger": "2.0", "info": {"title": "Stowage", "version": "v1"}, "paths": {}}


def v2(request: HttpRequest) -> HttpResponse:
    """Answer with the document: JSON only for those who ask for nothing else."""
    accept = request.META.get("HTTP_ACCEPT", "")
    if "json" in accept and "protobuf" not in accept:
        response = HttpResponse(errors.encode(_EMPTY), content_type=errors.JSON)
    else:
        response = HttpResponse(b"", content_type=PROTOBUF)
    response["Cache-Control"] = errors.NO_CACHE
    return response
