"""Discovery of the issuer of service account tokens and its keys (OpenID Connect).

Programs that receive such a token for an audience of their own can verify it without a TokenReview:
``/.well-known/openid-configuration`` has the issuer and the URL of its keys, ``/openid/v1/jwks``
the public keys. The role ``system:service-account-issuer-discovery`` allows reading both, and
service accounts have it. Rule: pkg/serviceaccount/openidmetadata.go, v1.36.
"""

from typing import Any, Final

from django.http import HttpRequest, HttpResponse

from api.access import auth
from api.forms import errors, failures
from clusterstate.access import accounts
from clusterstate.access.rules import Attributes

CONFIGURATION: Final = "/.well-known/openid-configuration"
KEYS: Final = "/openid/v1/jwks"
_MAX_AGE: Final = "public, max-age=60"
"""Shorter than Kubernetes' hour, so that clients drop a withdrawn key soon."""


def configuration(request: HttpRequest) -> HttpResponse:
    """Answer with the OpenID configuration of the token issuer."""
    metadata = {
        "issuer": accounts.ISSUER,
        "jwks_uri": f"https://{request.META.get('HTTP_HOST') or request.META['SERVER_NAME']}{KEYS}",
        "response_types_supported": ["id_token"],
        "subject_types_supported": ["public"],
        "id_token_signing_alg_values_supported": [accounts.ALGORITHM],
    }
    return _answer(request, lambda: metadata, errors.JSON)


def keys(request: HttpRequest) -> HttpResponse:
    """Answer with the public keys, the one that signs now first. Queries."""
    return _answer(request, lambda: {"keys": accounts.published_keys()}, "application/jwk-set+json")


def _answer(request: HttpRequest, make: Any, media_type: str) -> HttpResponse:
    """Return a document if the user has a role with the right to read its path."""
    try:
        if request.method != "GET":
            raise errors.MethodNotAllowed(errors.WRONG_METHOD)
        user = auth.user_of(request.META)
        auth.require(user, Attributes(verb="get", path=request.path_info))
        response = HttpResponse(errors.encode(make()), content_type=media_type)
    except Exception as error:  # noqa: BLE001  # every failure becomes a Status
        return failures.answer_to(request, error)
    response["Cache-Control"] = _MAX_AGE
    return response
