"""The rights that receivers of events need: to watch the kinds that changed."""

from collections.abc import Sequence

from clusterstate.access.rules import Attributes
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.queries.people.notices import CHANGE, OF_EVENTS, OF_PODS


def to_watch(kind_name: str, namespace: str) -> Attributes:
    """Return the right to watch a kind, in the namespace if the kind has one; empty for all."""
    kind = KINDS[kind_name]
    space = namespace if kind.namespaced else ""
    return Attributes("watch", kind.group, kind.plural, namespace=space)


def rights_for(types: frozenset[str], kinds: Sequence[str], namespace: str) -> list[Attributes]:
    """Return the rights for these types of events; ``kinds`` are those of the type ``change``."""
    pods = {"Pod"} if not OF_PODS.isdisjoint(types) else set()
    named = sorted(pods | (set(kinds) if CHANGE in types else set()))
    own = [f"{one}s" for one in sorted(types & OF_EVENTS.keys())]
    return [
        *(to_watch(one, namespace) for one in named),
        *(Attributes("watch", "stowage.dev", plural) for plural in own),
    ]
