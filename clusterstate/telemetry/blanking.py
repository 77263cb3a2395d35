"""Removal of credentials from texts before they are logged.

A client that sends its token in an address (``?access_token=``, a path, ``https://TOKEN@host/``)
has sent it by mistake; readers of logs must not be able to use it. No token is looked up: one that
has expired, or that belongs to another system, is blanked as well.
"""

import re
from typing import Final
from urllib.parse import unquote_plus

BLANK: Final = "[blanked]"

_NAMES: Final = (
    r"(?:[\w.-]*(?:token|secret|passw(?:or)?d|credentials?|api_?key|authorization)|bearer)"
)
_SECRET_NAME: Final = re.compile(_NAMES, re.IGNORECASE)
_NAMED: Final = re.compile(rf"(?i)([?&;]{_NAMES}=)[^&;\s\"'<>]+")
_USERINFO: Final = re.compile(r"//[^/\s@\"'<>?#]+@")
_JSON_WEB_TOKEN: Final = re.compile(r"\beyJ[\w-]{8,}\.[\w-]{8,}(?:\.[\w-]*)?")
_WORD: Final = re.compile(r"(?<![\w-])[\w-]{32,}(?![\w-])", re.ASCII)
_CASES: Final = re.compile(r"(?=.*[a-z]).*[A-Z]")
_DIGITS: Final = re.compile(r"[0-9].*[0-9]")
_OWN_LENGTH: Final = 43
"""Characters of a token that `actions.people.tokens` makes: 32 random bytes in URL-safe base 64."""
_NO_SECRETS: Final = frozenset({"continue"})
"""Parameters whose values look random but are no secrets: where a list continues."""


def _word(found: re.Match[str]) -> str:
    """Return a long word, or a blank if it is random, unlike any name of an object."""
    word = found[0]
    if _CASES.match(word) and (len(word) == _OWN_LENGTH or _DIGITS.search(word)):
        return BLANK
    return word


def text(value: str) -> str:
    """Return a text with everything blanked that looks like a token, a password or a URL's user."""
    found = _USERINFO.sub(f"//{BLANK}@", value) if "//" in value else value
    if "=" in found:
        found = _NAMED.sub(rf"\1{BLANK}", found)
    if "eyJ" in found:
        found = _JSON_WEB_TOKEN.sub(BLANK, found)
    return _WORD.sub(_word, found) if len(found) >= 32 else found


def query(value: str) -> str:
    """Return a query string with its secrets blanked, even if it is percent-encoded twice.

    A value without a secret is returned as it was sent.
    """
    return "&".join(map(_parameter, value.split("&"))) if value else value


def _parameter(parameter: str) -> str:
    name, sign, value = parameter.partition("=")
    named = _decoded(name)
    if sign and value and _SECRET_NAME.fullmatch(named):
        return f"{name}={BLANK}"
    if text(named) != named:
        name = BLANK
    if named not in _NO_SECRETS:
        decoded = _decoded(value)
        if text(decoded) != decoded:
            value = BLANK
    return f"{name}{sign}{value}"


def _decoded(value: str) -> str:
    return unquote_plus(unquote_plus(value))
