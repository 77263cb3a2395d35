"""Which extenders a configuration in a question may name.

An advisor sends requests to an extender's URL, and reads files for that, from inside the network.
So a question about another configuration may name the extenders of the configuration in force; only
users with the right to change that may name others.
"""

from collections.abc import Iterator
from typing import Any

from clusterstate.access import authorizer
from clusterstate.access.rules import Attributes
from clusterstate.admission.request import User
from clusterstate.objects.values.errors import Forbidden
from clusterstate.objects.values.meta import Manifest

_TO_CHANGE = Attributes("update", "stowage.dev", "schedulerconfiguration")


def require_extenders(user: User, document: object) -> None:
    """Refuse a question whose configurations name extenders that the user may not use.

    Queries once, if it names any.

    Raises:
        Forbidden: it names such an extender.
    """
    extenders = [one for found in _configurations(document) for one in _listed(found, "extenders")]
    if not extenders or authorizer.decide(user, _TO_CHANGE).allowed:
        return
    from scheduling.answers import questions

    in_force = questions.stored_configuration().get("extenders") or ()
    if any(one not in in_force for one in extenders):
        raise Forbidden(
            "extenders: the service would call them, so to name any that are not in force, you need"
            ' the right to update schedulerconfiguration in the API group "stowage.dev"'
        )


def _configurations(document: object) -> Iterator[Manifest]:
    """Yield the configurations in a question: its own, and those of policies and changes."""
    spec = document.get("spec") if isinstance(document, dict) else None
    if not isinstance(spec, dict):
        return
    parts: list[Any] = [spec, *_listed(spec, "policies"), *_listed(spec, "changes")]
    for part in parts:
        found = part.get("configuration") if isinstance(part, dict) else None
        if isinstance(found, dict):
            yield found


def _listed(manifest: Manifest, name: str) -> list[Any]:
    found = manifest.get(name)
    return found if isinstance(found, list) else []
