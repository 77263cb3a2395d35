"""The formats of names, cached: functions return the problems, an empty tuple for none.

The same names, label keys and values come with every pod, so the results are cached. Rules:
apimachinery ``pkg/util/validation/validation.go`` and ``pkg/api/validation``, v1.36.
"""

import ipaddress
import re
from collections.abc import Callable
from typing import Final

from clusterstate.objects.values import labels
from clusterstate.objects.values.remembered import remembered

Problems = tuple[str, ...]


def _remember(check: Callable[[str], list[str]]) -> Callable[[str], Problems]:
    return remembered(32_768)(lambda text: tuple(check(text)))


dns_label: Final = _remember(labels.is_dns1123_label)
dns_subdomain: Final = _remember(labels.is_dns1123_subdomain)
qualified_name: Final = _remember(labels.is_qualified_name)
label_value: Final = _remember(labels.is_valid_label_value)

_EMPTY: Final = "must be non-empty"
_SUBDOMAIN_UNDERSCORE_FORMAT: Final = (
    r"_?[a-z0-9]([-_a-z0-9]*[a-z0-9])?(\._?[a-z0-9]([-_a-z0-9]*[a-z0-9])?)*"
)
_SUBDOMAIN_UNDERSCORE: Final = re.compile(_SUBDOMAIN_UNDERSCORE_FORMAT)
_ENV_NAME_FORMAT: Final = "[-._a-zA-Z][-._a-zA-Z0-9]*"
_ENV_NAME: Final = re.compile(_ENV_NAME_FORMAT)
_KEY_FORMAT: Final = "[-._a-zA-Z0-9]+"
_KEY: Final = re.compile(_KEY_FORMAT)
_HEADER_FORMAT: Final = "[-A-Za-z0-9]+"
_HEADER: Final = re.compile(_HEADER_FORMAT)
_PORT_NAME: Final = re.compile("[-a-z0-9]+")
_LETTER: Final = re.compile("[a-z]")


def range_problem(low: int, high: int) -> str:
    """Return the message ``must be between 1 and 65535, inclusive``, for these bounds."""
    return f"must be between {low} and {high}, inclusive"


def dns_subdomain_with_underscore(text: str) -> Problems:
    """Return the problems of a DNS subdomain in which underscores are allowed."""
    problems = [] if len(text.encode()) <= 253 else ["must be no more than 253 bytes"]
    if not _SUBDOMAIN_UNDERSCORE.fullmatch(text):
        problems.append(
            "a lowercase RFC 1123 subdomain must consist of lower case alphanumeric characters, "
            "'-' or '.', and must start and end with an alphanumeric character "
            f"(e.g. 'example.com', regex used for validation is '{_SUBDOMAIN_UNDERSCORE_FORMAT}')"
        )
    return tuple(problems)


def path_segment(text: str) -> Problems:
    """Return the problems of a segment of a URL's path, such as the name of a role.

    Rule: apimachinery ``pkg/api/validation/path/name.go``, v1.36.
    """
    if text in (".", ".."):
        return (f"may not be '{text}'",)
    return tuple(f"may not contain '{part}'" for part in ("/", "%") if part in text)


@remembered(4096)
def port_name(text: str) -> Problems:
    """Return the problems of an IANA service name (at most 15 bytes)."""
    problems = []
    if len(text.encode()) > 15:
        problems.append("must be no more than 15 bytes")
    if not _PORT_NAME.fullmatch(text):
        problems.append("must contain only alpha-numeric characters (a-z, 0-9), and hyphens (-)")
    if not _LETTER.search(text):
        problems.append("must contain at least one letter (a-z)")
    if "--" in text:
        problems.append("must not contain consecutive hyphens")
    if text.startswith("-") or text.endswith("-"):
        problems.append("must not begin or end with a hyphen")
    return tuple(problems)


def port_number(port: int) -> Problems:
    """Return the problems of a port number."""
    return () if 1 <= port <= 65535 else (range_problem(1, 65535),)


def user_or_group_id(number: int) -> Problems:
    """Return the problems of a user or group id."""
    return () if 0 <= number <= 2**31 - 1 else (range_problem(0, 2**31 - 1),)


@remembered(4096)
def env_var_name(text: str) -> Problems:
    """Return the problems of a variable name of the strict form."""
    problems = []
    if not _ENV_NAME.fullmatch(text):
        problems.append(
            "a valid environment variable name must consist of alphabetic characters, digits, "
            "'_', '-', or '.', and must not start with a digit (e.g. 'my.env-name',  or "
            "'MY_ENV.NAME',  or 'MyEnvName1', regex used for validation is "
            f"'{_ENV_NAME_FORMAT}')"
        )
    problems.extend(_backsteps(text))
    return tuple(problems)


@remembered(4096)
def relaxed_env_var_name(text: str) -> Problems:
    """Return the problems of a variable name of printable ASCII without ``=``."""
    if not text:
        return ("environment variable name " + _EMPTY,)
    if all(" " <= char <= "~" and char != "=" for char in text):
        return ()
    problem = (
        "a valid environment variable name must consist only of printable ASCII characters "
        "other than '='"
    )
    return (problem,)


def _backsteps(text: str) -> list[str]:
    if text == ".":
        return ["must not be '.'"]
    if text == "..":
        return ["must not be '..'"]
    if text.startswith(".."):
        return ["must not start with '..'"]
    return []


def config_map_key(text: str) -> Problems:
    """Return the problems of a key of a ConfigMap or Secret."""
    problems = []
    if len(text) > 253:
        problems.append("must be no more than 253 bytes")
    if not _KEY.fullmatch(text):
        problems.append(
            "a valid config key must consist of alphanumeric characters, '-', '_' or '.' (e.g. "
            f"'key.name',  or 'KEY_NAME',  or 'key-name', regex used for validation is "
            f"'{_KEY_FORMAT}')"
        )
    problems.extend(_backsteps(text))
    return tuple(problems)


def http_header_name(text: str) -> Problems:
    """Return the problems of the name of an HTTP header."""
    if _HEADER.fullmatch(text):
        return ()
    problem = (
        "a valid HTTP header must consist of alphanumeric characters or '-' (e.g. "
        f"'X-Header-Name', regex used for validation is '{_HEADER_FORMAT}')"
    )
    return (problem,)


_LEADING_ZERO: Final = re.compile(r"(^|\.)0[0-9]")


def ip_address(text: str, *, strict: bool = False) -> Problems:
    """Return the problems of an IP address.

    ``strict`` (gate StrictIPCIDRValidation) refuses leading zeros and an IPv4 address written as
    IPv6; otherwise these forms of old objects are accepted.
    """
    plain = _without_leading_zeros(text)
    try:
        if "%" in text:  # zones mean something on one host only
            raise ValueError(text)
        address = ipaddress.ip_address(plain)
    except ValueError:
        return ("must be a valid IP address, (e.g. 10.9.8.7 or 2001:db8::ffff)",)
    if not strict:
        return ()
    if plain != text:
        return ("must not have leading 0s",)
    if isinstance(address, ipaddress.IPv6Address) and address.ipv4_mapped:
        return ("must not be an IPv4-mapped IPv6 address",)
    return ()


def canonical_ip_address(text: str) -> Problems:
    """Return the problems of an IP address, which must be in canonical form.

    Rule: apimachinery ``validation.IsValidIP``, v1.36.
    """
    problems = ip_address(text, strict=True)
    if problems:
        return problems
    canonical = str(ipaddress.ip_address(text))
    return () if canonical == text else (f'must be in canonical form ("{canonical}")',)


def reachable_address(text: str) -> Problems:
    """Return the problems of an IP address as that of another host (not loopback and the like).

    Rule: pkg/apis/core/validation/validation.go ``ValidateEndpointIP``.
    """
    address = ipaddress.ip_address(_without_leading_zeros(text))
    problems = []
    if address.is_unspecified:
        problems.append(f"may not be unspecified ({address})")
    if address.is_loopback:
        problems.append("may not be in the loopback range (127.0.0.0/8, ::1/128)")
    if address.is_link_local:
        problems.append("may not be in the link-local range (169.254.0.0/16, fe80::/10)")
    link_local = ("224.0.0.", "ff02:")
    if address.is_multicast and address.compressed.startswith(link_local):
        detail = "may not be in the link-local multicast range (224.0.0.0/24, ff02::/10)"
        problems.append(detail)
    return tuple(problems)


def cidr(text: str, *, strict: bool = False) -> Problems:
    """Return the problems of an IP block such as ``10.0.0.0/8``.

    Of the rules that ``strict`` adds, only the first broken one is reported, as upstream does.
    """
    interface = ip_interface(text)
    if interface is None:
        return ("must be a valid CIDR value, (e.g. 10.9.8.0/24 or 2001:db8::/64)",)
    if not strict:
        return ()
    address, _, length = text.partition("/")
    if _without_leading_zeros(address) != address or length != (length.lstrip("0") or "0"):
        return ("must not have leading 0s in IP or prefix length",)
    if isinstance(interface, ipaddress.IPv6Interface) and interface.ip.ipv4_mapped:
        return ("must not have an IPv4-mapped IPv6 address",)
    if interface.ip != interface.network.network_address:
        return ("must not have bits set beyond the prefix length",)
    return ()


def ip_interface(text: str) -> ipaddress.IPv4Interface | ipaddress.IPv6Interface | None:
    """Return the IP block in a text, also in a lenient form; ``None`` if there is none."""
    address, slash, length = text.partition("/")
    if not slash or "%" in text or not (length.isascii() and length.isdecimal()):
        return None
    try:
        return ipaddress.ip_interface(f"{_without_leading_zeros(address)}/{int(length)}")
    except ValueError:
        return None


def _without_leading_zeros(text: str) -> str:
    """Return an address without leading zeros in its dotted part, the last of an IPv6 address."""
    before, colon, dotted = text.rpartition(":")
    if "." not in dotted or not _LEADING_ZERO.search(dotted):
        return text
    parts = (part.lstrip("0") or "0" if part else part for part in dotted.split("."))
    return f"{before}{colon}{'.'.join(parts)}"
