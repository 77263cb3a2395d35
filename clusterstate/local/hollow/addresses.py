"""Addresses of hollow nodes and their pods, from networks that Services do not use."""

import ipaddress
from typing import Final

_NODES: Final = int(ipaddress.ip_address("100.64.0.0"))
_PODS: Final = int(ipaddress.ip_address("10.128.0.0"))
_MOST: Final = 1 << 23
"""The number of addresses for pods; nodes have half as many."""


def of_node(number: int) -> str:
    """Return the address of a node by its number."""
    return str(ipaddress.ip_address(_NODES + 1 + number % (_MOST // 2 - 2)))


class PodNetwork:
    """A node's network, and the addresses of its pods."""

    def __init__(self, number: int, pods: int) -> None:
        self._size = 1 << max(4, (pods + 1).bit_length())
        self._first = _PODS + number * self._size % _MOST
        self._addresses: dict[str, str] = {}
        """Addresses by the uids of pods."""

    @property
    def cidr(self) -> str:
        """The network in CIDR notation."""
        return f"{ipaddress.ip_address(self._first)}/{33 - self._size.bit_length()}"

    def note(self, uid: str, address: str) -> None:
        """Register the address that a pod already has."""
        self._addresses[uid] = address

    def take(self, uid: str) -> str:
        """Return the pod's address; if it has none yet, give it a free one."""
        if uid not in self._addresses:
            others = set(self._addresses.values())
            free = (
                text
                for place in range(1, self._size)
                if (text := str(ipaddress.ip_address(self._first + place))) not in others
            )
            self._addresses[uid] = next(free, "")
        return self._addresses[uid]

    def give_back(self, uid: str) -> None:
        """Free the address of a pod that is gone."""
        self._addresses.pop(uid, None)
