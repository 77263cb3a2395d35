"""Where webhooks may send: the administrator's allow list, and the address to connect to.

A user who may create webhooks names the receiver, and this service sends from inside the network:
so it sends only to allowed targets, and connects to the address that was checked, even if the name
resolves to another one a moment later. Pure.
"""

import ipaddress
from collections.abc import Iterable, Sequence
from urllib.parse import urlsplit

import msgspec

PUBLIC = "public"
"""Stands for every address that is reached over the internet."""
_UNICAST = ipaddress.IPv6Network("2000::/3")
_SIX_TO_FOUR = ipaddress.IPv6Network("2002::/16")
_NAT64 = ipaddress.IPv6Network("64:ff9b::/96")
_PROTOCOLS = ipaddress.IPv4Network("192.0.0.0/24")
"""Of all of it only some is private to ``ipaddress``; there are clouds' metadata services in it."""


class Target(msgspec.Struct, frozen=True):
    """The receiver named by a webhook's URL."""

    scheme: str
    host: str
    port: int
    path: str


def parse(url: str) -> Target:
    """Return the receiver that a URL names.

    Raises:
        ValueError: it is none that events could be sent to; the message is a sentence.
    """
    if not url.isascii() or not url.isprintable() or " " in url:
        raise ValueError("must have printable ASCII characters only")
    parts = urlsplit(url)
    if parts.scheme not in ("http", "https"):
        raise ValueError("must begin with https:// or http://")
    if parts.username is not None or parts.password is not None:
        raise ValueError(
            "must not contain a user name or password: everybody who may read the webhook"
            " would see them"
        )
    if parts.fragment:
        raise ValueError("must not have a fragment")
    if not parts.hostname:
        raise ValueError("names no host")
    port = parts.port or (443 if parts.scheme == "https" else 80)  # ValueError beyond 65535
    path = parts.path or "/"
    if parts.query:
        path += f"?{parts.query}"
    return Target(parts.scheme, parts.hostname.rstrip(".").lower(), port, path)


def _is_public(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Return whether an address is one of the internet.

    An IPv6 address may stand for one of IPv4, which a gateway reaches: ``ipaddress`` calls it
    global, whatever it leads to.
    """
    if isinstance(address, ipaddress.IPv6Address):
        if address in _NAT64:
            return _is_public(ipaddress.IPv4Address(int(address) & 0xFFFFFFFF))
        if address not in _UNICAST or address in _SIX_TO_FOUR:
            return False
    elif address in _PROTOCOLS:
        return False
    return address.is_global and not address.is_multicast


class AllowedTargets:
    """The allowed targets: host names (also ``*.example.com``), addresses and networks.

    The word ``public`` allows every address of the internet that is not private.
    """

    def __init__(self, words: Iterable[str]) -> None:
        self._names: set[str] = set()
        self._networks: list[ipaddress.IPv4Network | ipaddress.IPv6Network] = []
        self._is_public = False
        for word in words:
            if word == PUBLIC:
                self._is_public = True
                continue
            try:
                self._networks.append(ipaddress.ip_network(word, strict=False))
            except ValueError:
                self._names.add(word.rstrip(".").lower())

    def nothing(self) -> bool:
        """Return whether nothing is allowed at all."""
        return not (self._names or self._networks or self._is_public)

    def names(self, host: str) -> bool:
        """Return whether a host is allowed by its name, whatever its address is."""
        if host in self._names:
            return True
        labels = host.split(".")
        return any(
            "*." + ".".join(labels[place:]) in self._names for place in range(1, len(labels))
        )

    def has(self, address: str) -> bool:
        """Return whether an address is allowed."""
        found = ipaddress.ip_address(address.partition("%")[0])
        if isinstance(found, ipaddress.IPv6Address) and found.ipv4_mapped is not None:
            found = found.ipv4_mapped
        if any(found in network for network in self._networks if network.version == found.version):
            return True
        return self._is_public and _is_public(found)

    def may_be(self, host: str) -> bool:
        """Return whether a host may be one that is allowed, as far as that is known without DNS."""
        try:
            return self.has(host)
        except ValueError:
            return self.names(host) or self._is_public or bool(self._networks)

    def choose(self, host: str, addresses: Sequence[str]) -> str | None:
        """Return the address of a host to connect to, ``None`` where none is allowed."""
        is_named = self.names(host)
        return next((one for one in addresses if is_named or self.has(one)), None)
