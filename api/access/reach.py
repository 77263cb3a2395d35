"""How much of the past a right covers: if a binding in a namespace gives it, until its creation.

The binding belongs to the present namespace. A former namespace of that name may have been another
team's, so the right does not cover its past, however a request reads the past: by a moment, a
revision, a watch or a list that continues from one, changes, decisions.

For Secrets such a right covers the present alone. A value that was rotated is as secret as before;
users with the right to read Secrets of all namespaces may read their past.

A right in all namespaces has no bound.
"""

from datetime import datetime
from typing import Final

import msgspec

from api.access.auth import AccessDenied
from clusterstate.access import authorizer
from clusterstate.access.rules import Attributes
from clusterstate.admission.request import User
from clusterstate.change_log import changes
from clusterstate.objects.values.document import format_time
from clusterstate.objects.values.errors import Expired
from clusterstate.queries.objects import beginnings
from clusterstate.queries.objects.beginnings import Beginning

_SECRETS: Final = ("", "secrets")
_NO_PAST: Final = "reading past Secrets needs the right to read the Secrets of all namespaces"
_MOST_LOOKED_AT: Final = 500


def beginning(user: User, wants: Attributes) -> Beginning | None:
    """Return since when a user's right covers the past; ``None``: all of the past.

    Queries once as a rule if the right is bounded.

    Raises:
        AccessDenied: the request reads the past of Secrets.
        Expired: the namespace is gone.
    """
    found = _beginning(user, wants)
    if found is not None and (wants.group, wants.resource) == _SECRETS:
        raise AccessDenied(user, wants, _NO_PAST)
    return found


def _beginning(user: User, wants: Attributes) -> Beginning | None:
    if not wants.namespace:
        return None
    everywhere = msgspec.structs.replace(wants, namespace="")
    if authorizer.decide(user, everywhere).allowed:
        return None
    found = beginnings.beginning(wants.namespace)
    if found is None:
        raise Expired(f'the namespace "{wants.namespace}" is gone')
    return found


def require(user: User, wants: Attributes, revision: int) -> None:
    """Check that a user's right covers the past since a revision. Queries as ``beginning``.

    Raises:
        AccessDenied: the request reads the past of Secrets.
        Expired: the revision is before the creation of the namespace.
    """
    found = beginning(user, wants)
    if found is not None and revision < found.revision:
        raise _too_old(wants, found)


def require_moment(user: User, wants: Attributes, moment: datetime) -> None:
    """Check that a user's right covers the past since a moment. Queries, raises: ``require``."""
    found = beginning(user, wants)
    if found is not None and moment < found.at:
        raise _too_old(wants, found)


def require_from(user: User, wants: Attributes, revision: int) -> None:
    """Check that a user may watch from this revision on, or read a further page of a list at it.

    For Secrets none may have changed since the revision. Queries as ``beginning``, and once or
    twice more for Secrets.

    Raises:
        Expired: the revision is before the creation of the namespace, or a Secret changed since.
    """
    found = _beginning(user, wants)
    if found is None:
        return
    if revision < found.revision:
        raise _too_old(wants, found)
    if (wants.group, wants.resource) == _SECRETS:
        since = changes.read_since(revision, kinds={"Secret"}, limit=_MOST_LOOKED_AT)
        if since.more or any(one.namespace == wants.namespace for one in since.items):
            raise Expired(f"too old resource version: {revision}: {_NO_PAST}")


def tells(user: User, wants: Attributes, revision: int) -> bool:
    """Return whether a user's right covers the past since a revision. Queries as ``beginning``."""
    try:
        found = beginning(user, wants)
    except (AccessDenied, Expired):
        return False
    return found is None or revision >= found.revision


def _too_old(wants: Attributes, found: Beginning) -> Expired:
    return Expired(
        f'the right to read in the namespace "{wants.namespace}" reaches back to its creation'
        f" (resource version {found.revision}, {format_time(found.at)})"
    )
