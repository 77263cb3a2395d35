"""Small numbers for names: resources, taint sets, and the scheduling classes' keys.

Numbers are assigned in order of first use, and for the life of the snapshot.
"""

from collections.abc import Hashable
from typing import Generic, TypeVar

K = TypeVar("K", bound=Hashable)

CPU = 0
MEMORY = 1
BASE_RESOURCES = ("cpu", "memory", "ephemeral-storage")

_NATIVE_DOMAIN = "kubernetes.io/"
_SCALAR_PREFIXES = ("hugepages-", "attachable-volumes-")


class Interner(Generic[K]):
    """A growing list of distinct values, and the index of each."""

    __slots__ = ("_numbers", "values")

    def __init__(self, values: tuple[K, ...] = ()) -> None:
        self.values: list[K] = list(values)
        self._numbers: dict[K, int] = {value: i for i, value in enumerate(values)}

    def __len__(self) -> int:
        return len(self.values)

    def number(self, value: K) -> int:
        """Return the number of ``value``; a new value gets the next one."""
        number = self._numbers.get(value)
        if number is None:
            number = self._numbers[value] = len(self.values)
            self.values.append(value)
        return number

    def find(self, value: K) -> int | None:
        """Return the number of ``value``, ``None`` if it has none."""
        return self._numbers.get(value)


def is_scalar_resource(name: str) -> bool:
    """Return whether the scheduler counts a resource besides cpu, memory and ephemeral-storage.

    Extended resources, huge pages, prefixed native resources and attachable volumes count; other
    unqualified names do not. Rule: pkg/scheduler/util/utils.go ``IsScalarResourceName``, v1.36.
    """
    if name.startswith(_SCALAR_PREFIXES):
        return True
    if "/" not in name:
        return False
    return _NATIVE_DOMAIN in name or not name.startswith("requests.")
