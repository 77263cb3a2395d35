"""An index from pods to the counters and affinity terms that may match them.

An *anchor* is a property by which a pod can be looked up: a label with its value, a namespace, host
ports or volumes. A term is indexed by anchors so that every pod it matches has at least one of
them. So a pod is compared only with the terms of its own anchors.
"""

from collections.abc import Iterable, Iterator

import msgspec

from clusterstate.objects.values.labels import DOUBLE_EQUALS, EQUALS, IN, Selector
from scheduling.framework.types import AffinityTerm, PodInfo

Anchor = tuple[str | None, str, str]
"""Namespace (``None``: any), label key and value; both empty: every pod of the namespace."""
HOST_PORT: Anchor = (None, "", "host port")
VOLUMES: Anchor = (None, "", "volumes")
_FEW_VALUES = 8


def anchors_of(info: PodInfo) -> Iterator[Anchor]:
    """Yield every anchor that a pod of the class has."""
    for namespace in (info.namespace, None):
        yield namespace, "", ""
        for key, value in info.labels.items():
            yield namespace, key, value
    if info.host_ports:
        yield HOST_PORT
    if info.volumes:
        yield VOLUMES


def anchors(selector: Selector, namespaces: Iterable[str] | None) -> tuple[Anchor, ...]:
    """Return anchors such that each pod that the selector selects has at least one.

    ``namespaces`` ``None``: pods of any.
    """
    if selector.nothing:
        return ()
    labels = [("", "")]
    for requirement in selector.requirements:
        equal = requirement.operator in (IN, EQUALS, DOUBLE_EQUALS)
        if equal and len(requirement.values) <= _FEW_VALUES:
            labels = [(requirement.key, value) for value in requirement.values]
            break
    within = (None,) if namespaces is None else tuple(namespaces)
    return tuple((namespace, key, value) for namespace in within for key, value in labels)


def term_anchors(term: AffinityTerm) -> tuple[Anchor, ...]:
    """Return anchors such that each pod that the term selects has at least one."""
    return anchors(term.selector, term.namespaces if term.namespace_selector.nothing else None)


class Reach(msgspec.Struct, frozen=True):
    """The classes to which a counter may give a weight other than 0.

    These are the classes with one of ``anchors``, and those with an affinity or anti-affinity term,
    required or preferred, that selects pods of the class ``terms_about``.
    """

    anchors: tuple[Anchor, ...] = ()
    terms_about: PodInfo | None = None
