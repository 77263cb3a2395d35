"""Signing in with an account of the company: OpenID Connect, the code flow with PKCE.

::

    sign-in page --link--> begin --> the provider --> back?code&state --> token --> signed in

Off unless ``STOWAGE_OIDC_ISSUER`` is set. Security: ``state`` and the verifier of PKCE are in a
signed cookie of the browser that began (so strangers create no rows), which is deleted at the
return, and the provider accepts a code once. The token comes from the provider over its own
connection, and its signature, issuer, audience, nonce and times are checked (PyJWT). Names and
groups get the prefix ``STOWAGE_OIDC_PREFIX``, so that they differ from all local ones. Rights come
from roles bound to these names and groups; each sign-in updates the groups. Passwords and second
factors are the provider's task.
"""

import base64
import hashlib
import json
import secrets
import time
import urllib.error
import urllib.request
from collections.abc import Mapping
from http.client import HTTPException, HTTPMessage, HTTPResponse
from typing import IO, Any, Final
from urllib.parse import quote_plus, urlencode, urlsplit

import jwt
from django.conf import settings
from django.contrib.auth import login
from django.core import signing
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect
from django.urls import reverse
from django.utils.http import url_has_allowed_host_and_scheme

from api.console.page import layout
from clusterstate.actions import people
from clusterstate.middleware import SIGN_IN
from clusterstate.objects.values.errors import Forbidden, NotFound, StatusError

_COOKIE: Final = "stowage-company"
_SALT: Final = "api.console.people.company"
_LONGEST_NEXT: Final = 1500
"""Characters of the URL after the sign-in: browsers store no cookie of more than 4096."""
_ALGORITHMS: Final = (
    "RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA",
)  # fmt: skip
"""Signatures by a key of the provider only, not by a shared secret or ``none``."""
_MOST_BYTES: Final = 1 << 20
_PIECE_BYTES: Final = 1 << 16
_SECONDS: Final = 5.0
_LEEWAY: Final = 30
_KEPT_SECONDS: Final = 600.0
_AWAY_SECONDS: Final = 2.0
"""Seconds before a provider that did not answer is tried again, since each try blocks a thread."""
_PATIENCE: Final = 600
"""Seconds that a person has for the sign-in at the provider."""
_BACKEND: Final = "django.contrib.auth.backends.ModelBackend"
_METADATA: Final = "/.well-known/openid-configuration"


class SignInRefused(Forbidden):
    """The provider did not identify the person, or its answer cannot be trusted."""

    def __init__(self, why: str) -> None:
        super().__init__(f"Signing in with {settings.OIDC_TITLE} did not work: {why}.")


class Away(StatusError):
    """The OpenID provider cannot be reached, or its answer is not valid OpenID Connect."""

    code = 503
    reason = "ServiceUnavailable"

    def __init__(self, why: str) -> None:
        super().__init__(f"{settings.OIDC_TITLE} does not answer as it should: {why}.")
        self.why = why


def is_on() -> bool:
    """Return whether people may sign in with an account of the company."""
    return bool(settings.OIDC_ISSUER)


# The provider ----------------------------------------------------------------------------------


class _Stays(urllib.request.HTTPRedirectHandler):
    """Refuses HTTP redirects, so that only the provider's own URLs are requested."""

    def redirect_request(
        self, req: urllib.request.Request, fp: IO[bytes], code: int, msg: str,
        headers: HTTPMessage, newurl: str,
    ) -> None:  # fmt: skip
        """Return None: the redirect becomes an error."""


_opener = urllib.request.build_opener(_Stays)
_kept: dict[str, tuple[float, Mapping[str, Any] | str]] = {}
"""The provider's documents, by URL, or why there is none; until when, in monotonic seconds."""


def _ask(address: str, form: Mapping[str, str] | None = None, **headers: str) -> Mapping[str, Any]:
    """Return the JSON object at a URL of the provider.

    Raises:
        Away: there is none.
    """
    data = None if form is None else urlencode(form).encode()
    all_headers = {"Accept": "application/json", **headers}
    request = urllib.request.Request(address, data, all_headers)  # noqa: S310  # checked: _is_safe
    try:
        with _opener.open(request, timeout=_SECONDS) as answer:
            found = json.loads(_whole(answer))
    except urllib.error.HTTPError as error:
        raise Away(f"it answered {error.code}") from None
    except (OSError, HTTPException, ValueError):
        raise Away("its answer cannot be read") from None
    if not isinstance(found, dict):
        raise Away("its answer is not a JSON object")
    return found


def _whole(answer: HTTPResponse) -> bytes:
    """Read the whole body of the provider's answer.

    Each single read has a time limit, but a server that sends a byte now and then could block the
    thread for hours, and anybody may begin a sign-in. So the whole answer has one, too.

    Raises:
        ValueError: it is too long, or takes too long.
    """
    until = time.monotonic() + _SECONDS
    body = bytearray()
    while piece := answer.read1(_PIECE_BYTES):
        body += piece
        if len(body) > _MOST_BYTES or time.monotonic() > until:
            raise ValueError("its answer is too large or took too long")
    return bytes(body)


def _is_safe(address: str) -> bool:
    """Return whether a URL may be requested: https, or a server on this machine."""
    parts = urlsplit(address)
    return parts.scheme == "https" or (
        parts.scheme == "http" and parts.hostname in ("127.0.0.1", "::1", "localhost")
    )


def _published(address: str, *, anew: bool = False) -> Mapping[str, Any]:
    now = time.monotonic()
    until, found = _kept.get(address, (0.0, {}))
    if now >= until or (anew and not isinstance(found, str)):
        try:
            found = _ask(address)
        except Away as error:
            _kept[address] = time.monotonic() + _AWAY_SECONDS, error.why
            raise
        _kept[address] = now + _KEPT_SECONDS, found
    if isinstance(found, str):
        raise Away(found)
    return found


def _provider() -> Mapping[str, Any]:
    """Return the provider's discovery document.

    Raises:
        Away: the provider does not answer, is another one, or has a URL in clear text.
    """
    issuer = settings.OIDC_ISSUER
    found = _published(issuer.rstrip("/") + _METADATA)
    if found.get("issuer") != issuer:
        raise Away("its metadata names another issuer")
    for name in ("authorization_endpoint", "token_endpoint", "jwks_uri"):
        if not _is_safe(str(found.get(name, ""))):
            raise Away(f"its metadata has no https address for {name}")
    return found


def _key(address: str, token: str) -> jwt.PyJWK:
    """Return the key that a token names; unknown keys are requested once."""
    try:
        key_id = jwt.get_unverified_header(token).get("kid")
        for anew in (False, True):
            keys = jwt.PyJWKSet.from_dict(dict(_published(address, anew=anew))).keys
            found = [
                one
                for one in keys
                if one.public_key_use in (None, "sig") and key_id in (None, one.key_id)
            ]
            if len(found) == 1:
                return found[0]
    except jwt.PyJWTError:
        pass
    raise SignInRefused("the token is not signed by a key of the provider")


# The sign-in -----------------------------------------------------------------------------------


def begin(request: HttpRequest) -> HttpResponse:
    """Redirect the browser to the provider."""
    return _as_page(request, _begin)


def back(request: HttpRequest) -> HttpResponse:
    """Sign in the person whom the provider redirected back."""
    response = _as_page(request, _back)
    response.delete_cookie(_COOKIE, samesite="Lax")
    return response


def _as_page(request: HttpRequest, view: Any) -> HttpResponse:
    try:
        if not is_on():
            raise NotFound("There is no such page.")
        response: HttpResponse = view(request)
    except (StatusError, people.NotAPerson) as error:
        request.META[SIGN_IN] = "failed", request.META.get(SIGN_IN, ("", ""))[1]
        failure = error if isinstance(error, StatusError) else SignInRefused(str(error))
        response = layout.failure(request, failure)
    return layout.guarded(response)


def _begin(request: HttpRequest) -> HttpResponse:
    provider = _provider()
    state, nonce, verifier = (secrets.token_urlsafe(32) for _ in range(3))
    begun = {
        "state": state,
        "nonce": nonce,
        "verifier": verifier,
        "next": _onward(request, request.GET.get("next", "")),
    }
    digest = hashlib.sha256(verifier.encode()).digest()
    query = {
        "response_type": "code",
        "client_id": settings.OIDC_CLIENT_ID,
        "redirect_uri": _here(request),
        "scope": " ".join(settings.OIDC_SCOPES),
        "state": state,
        "nonce": nonce,
        "code_challenge": base64.urlsafe_b64encode(digest).rstrip(b"=").decode(),
        "code_challenge_method": "S256",
    }
    address = provider["authorization_endpoint"]
    response = HttpResponseRedirect(f"{address}{'&' if '?' in address else '?'}{urlencode(query)}")
    held = signing.dumps(begun, salt=_SALT)
    response.set_cookie(_COOKIE, held, max_age=_PATIENCE, httponly=True, samesite="Lax")
    return response


def _here(request: HttpRequest) -> str:
    return request.build_absolute_uri(reverse("console:company-back"))


def _back(request: HttpRequest) -> HttpResponse:
    state = request.GET.get("state", "")
    try:
        begun = signing.loads(request.COOKIES.get(_COOKIE, ""), salt=_SALT, max_age=_PATIENCE)
    except signing.SignatureExpired:
        raise SignInRefused("the sign-in took too long; begin again") from None
    except signing.BadSignature:
        begun = {"state": ""}
    if not state or not secrets.compare_digest(begun["state"].encode(), state.encode()):
        raise SignInRefused("the sign-in was not started in this browser; start it again")
    if problem := request.GET.get("error", ""):
        raise SignInRefused(f"the provider says {problem[:100]!r}")
    provider = _provider()
    if request.GET.get("iss", provider["issuer"]) != provider["issuer"]:
        raise SignInRefused("another provider answered")
    claims = _claims(provider, _token(request, provider, begun["verifier"]), begun["nonce"])
    person = people.from_provider(*_identity(request, claims))
    login(request, person, backend=_BACKEND)
    return HttpResponseRedirect(_onward(request, begun["next"]))


def _token(request: HttpRequest, provider: Mapping[str, Any], verifier: str) -> str:
    """Return the identity token for the code, from the provider."""
    form = {
        "grant_type": "authorization_code",
        "code": request.GET.get("code", ""),
        "redirect_uri": _here(request),
        "code_verifier": verifier,
        "client_id": settings.OIDC_CLIENT_ID,
    }
    headers = {}
    if secret := settings.OIDC_CLIENT_SECRET:
        methods = provider.get("token_endpoint_auth_methods_supported", ["client_secret_basic"])
        if "client_secret_basic" in methods:
            pair = f"{quote_plus(settings.OIDC_CLIENT_ID)}:{quote_plus(secret)}"
            headers["Authorization"] = "Basic " + base64.b64encode(pair.encode()).decode()
        else:
            form["client_secret"] = secret
    found = _ask(provider["token_endpoint"], form, **headers).get("id_token")
    if not isinstance(found, str):
        raise SignInRefused("the provider sent no ID token")
    return found


def _claims(provider: Mapping[str, Any], token: str, nonce: str) -> Mapping[str, Any]:
    """Return the claims of a token.

    Raises:
        SignInRefused: signature, issuer, audience, times or nonce are wrong.
    """
    audience = settings.OIDC_CLIENT_ID
    key = _key(provider["jwks_uri"], token)
    try:
        claims: Mapping[str, Any] = jwt.decode(
            token, key, algorithms=list(_ALGORITHMS), audience=audience,
            issuer=provider["issuer"], leeway=_LEEWAY,
            options={"require": ["exp", "iat", "sub", "aud", "iss"]},
        )  # fmt: skip
    except (jwt.PyJWTError, TypeError) as error:
        raise SignInRefused(f"the token is not valid: {error}") from None
    if not secrets.compare_digest(str(claims.get("nonce", "")).encode(), nonce.encode()):
        raise SignInRefused("the token belongs to another sign-in")
    if claims.get("azp", audience) != audience:
        raise SignInRefused("the token was issued for another client (audience)")
    return claims


def _identity(request: HttpRequest, claims: Mapping[str, Any]) -> tuple[str, list[str]]:
    """Return the name and the groups of a person, each with the prefix."""
    name = claims.get(settings.OIDC_NAME_CLAIM)
    if not isinstance(name, str) or not name:
        raise SignInRefused(f"the token has no claim {settings.OIDC_NAME_CLAIM}")
    prefix = settings.OIDC_PREFIX
    request.META[SIGN_IN] = "failed", f"{prefix}{name}"[:150]
    if settings.OIDC_NAME_CLAIM == "email" and claims.get("email_verified", True) is not True:
        raise SignInRefused("the provider has not verified the e-mail address")
    groups = claims.get(settings.OIDC_GROUPS_CLAIM, [])
    many = [groups] if isinstance(groups, str) else groups if isinstance(groups, list) else []
    return f"{prefix}{name}", [f"{prefix}{one}" for one in many if isinstance(one, str) and one]


def _onward(request: HttpRequest, following: str) -> str:
    """Return the page that the person wanted if it is on this server, else the map."""
    fits = following.isascii() and len(following) <= _LONGEST_NEXT
    is_ours = fits and url_has_allowed_host_and_scheme(
        following, allowed_hosts={request.get_host()}, require_https=request.is_secure()
    )
    return following if is_ours else reverse("console:fleet")
