"""What a pod uses of a node and what its decision depends on, by shared names.

A scheduler knows pods by numbers of its own memory. Another scheduler, or the check of a bind in
the database, needs names that mean the same everywhere: a counter of pods is named by what it
counts (``counter_id``), whichever process counts.
"""

from collections.abc import Iterable
from hashlib import blake2b

import msgspec

from clusterstate.objects.values.labels import (
    DOUBLE_EQUALS,
    EQUALS,
    IN,
    NOT_EQUALS,
    NOT_IN,
    Selector,
)

Counter = bytes
"""The name of a counter: 16 bytes."""
_SAME = {EQUALS: IN, DOUBLE_EQUALS: IN, NOT_EQUALS: NOT_IN}


def counter_id(
    selector: Selector,
    namespaces: Iterable[str],
    namespace_selector: Selector | None = None,
    *,
    bearers: bool = False,
) -> Counter:
    """Return an id of the counter of the pods that a selector selects.

    In ``namespaces``, and in those that ``namespace_selector`` selects. ``bearers``: of pods that
    have a required anti-affinity about such pods, instead of those pods themselves. Equal for equal
    content, whatever the order it was written in. Never changed: it may stand in the database.
    """
    what = (
        bearers,
        _canonical(selector),
        sorted(set(namespaces)),
        None if namespace_selector is None else _canonical(namespace_selector),
    )
    return blake2b(msgspec.json.encode(what), digest_size=16).digest()


def _canonical(selector: Selector) -> object:
    requirements = [
        (one.key, _SAME.get(one.operator, one.operator), sorted(set(one.values)))
        for one in selector.requirements
    ]
    return selector.nothing, sorted(requirements)


class Footprint(msgspec.Struct, frozen=True, kw_only=True):
    """What the pods of a scheduling class use and depend on.

    ``amounts``: by resource, in the units of ``resources``; each pod also takes one of ``pods``.
    ``reads``: counters that a hard rule of the class itself looks at. ``bears``: counters of
    bearers that a pod of the class raises. Which counters it raises by its labels, and which
    bearers' terms mean it and are looked at too, depends on what other classes there are: their
    footprints say so. ``ports``: it takes host ports, and relies on their being free. All rely on
    the rules of their node (labels, taints, cordon) and on what is nominated there for pods of
    ``priority`` or above. ``complete`` is False where a plugin of another package took part, which
    may have looked at anything.
    """

    class_id: int
    amounts: tuple[tuple[str, int], ...] = ()
    reads: frozenset[Counter] = frozenset()
    bears: frozenset[Counter] = frozenset()
    ports: bool = False
    priority: int = 0
    complete: bool = True
