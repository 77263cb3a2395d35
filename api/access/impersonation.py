"""Acting for another user: the headers ``Impersonate-User``, ``-Group``, ``-Uid``, ``-Extra-*``.

``kubectl --as`` sends them. Their sender needs the verb ``impersonate`` on each name in them; then
the request is that user's in every respect. Rule: apiserver
``pkg/endpoints/filters/impersonation.go``, v1.36.
"""

from collections.abc import Iterable, Iterator, Mapping
from typing import Any
from urllib.parse import unquote

import msgspec

from clusterstate.access import accounts
from clusterstate.access.authorizer import AUTHENTICATED
from clusterstate.access.rules import Attributes
from clusterstate.admission.request import User
from clusterstate.objects.values.errors import BadRequest

ANONYMOUS = "system:anonymous"
UNAUTHENTICATED = "system:unauthenticated"
_GROUP = "authentication.k8s.io"
_PREFIX = b"impersonate-"
_EXTRA = "extra-"


class ActsFor(msgspec.Struct, frozen=True):
    """The user that a request impersonates."""

    name: str
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()

    def needs(self) -> Iterator[Attributes]:
        """Yield the rights that the sender needs."""
        account = accounts.account_of(self.name)
        if account is not None:
            namespace, name = account
            yield Attributes(
                "impersonate", resource="serviceaccounts", namespace=namespace, name=name
            )
        else:
            yield Attributes("impersonate", resource="users", name=self.name)
        for group in self.groups:
            yield Attributes("impersonate", resource="groups", name=group)
        for key, values in self.extra:
            for value in values:
                yield Attributes("impersonate", _GROUP, "userextras", key, name=value)
        if self.uid:
            yield Attributes("impersonate", _GROUP, "uids", name=self.uid)

    def user(self, sender: User) -> User:
        """Return the impersonated user, with the groups that every such user has."""
        groups = list(self.groups)
        account = accounts.account_of(self.name)
        if account is not None and not groups:
            groups = [*accounts.groups_of(account[0])]
        everybody = UNAUTHENTICATED if self.name == ANONYMOUS else AUTHENTICATED
        if not {AUTHENTICATED, UNAUTHENTICATED}.intersection(groups):
            groups.append(everybody)
        return User(
            name=self.name,
            groups=tuple(groups),
            uid=self.uid,
            extra=self.extra,
            impersonator=sender.impersonator or sender.name,
        )


class Claim(msgspec.Struct, frozen=True):
    """The identity in a request's headers: ``Authorization``, and impersonation."""

    authorization: str
    acts_for: ActsFor | None = None


def claim_of_headers(headers: Iterable[tuple[bytes, bytes]]) -> Claim:
    """Return the claim of an ASGI request, whose header names are in lower case.

    Raises:
        BadRequest: there are impersonation headers without ``Impersonate-User``.
    """
    authorization = b""
    pairs: list[tuple[str, str]] = []
    for name, value in headers:
        if name == b"authorization":
            authorization = authorization or value
        elif name.startswith(_PREFIX):
            pairs.append((name[len(_PREFIX) :].decode("latin-1"), value.decode("utf-8", "replace")))
    return Claim(authorization.decode("latin-1"), _acts_for(pairs) if pairs else None)


def claim_of_environ(environ: Mapping[str, Any]) -> Claim:
    """Return the claim of a WSGI request, where repeated headers are separated by commas.

    Raises:
        BadRequest: there are impersonation headers without ``Impersonate-User``.
    """
    pairs = [
        (name.removeprefix("HTTP_IMPERSONATE_").lower().replace("_", "-"), part.strip())
        for name, value in environ.items()
        if name.startswith("HTTP_IMPERSONATE_")
        for part in (str(value).split(",") if name != "HTTP_IMPERSONATE_USER" else (str(value),))
    ]
    return Claim(environ.get("HTTP_AUTHORIZATION", ""), _acts_for(pairs) if pairs else None)


def _acts_for(pairs: list[tuple[str, str]]) -> ActsFor:
    """Return the user of impersonation headers, whose common prefix is removed already."""
    users, groups, uids = [], [], []
    extra: dict[str, list[str]] = {}
    for name, value in pairs:
        if name == "user":
            users.append(value)
        elif name == "group":
            groups.append(value)
        elif name == "uid":
            uids.append(value)
        elif name.startswith(_EXTRA):
            extra.setdefault(unquote(name.removeprefix(_EXTRA)), []).append(value)
        else:
            raise BadRequest(f"unknown header Impersonate-{name}")
    if len(users) != 1 or not users[0]:
        raise BadRequest("who is impersonated has to be named by one header Impersonate-User")
    if len(uids) > 1:
        raise BadRequest("there is more than one header Impersonate-Uid")
    return ActsFor(
        users[0],
        tuple(groups),
        uids[0] if uids else "",
        tuple((key, tuple(values)) for key, values in sorted(extra.items())),
    )
