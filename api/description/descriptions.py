"""Descriptions of types and fields: the text of ``kubectl explain``.

``tools/generate_wire_types.py`` writes Kubernetes' own texts for the served types to
``texts.json``. A type or field without such a text is described by its name and its type.
"""

import re
from functools import cache
from pathlib import Path
from typing import Final

import msgspec

_FILE: Final = Path(__file__).with_name("texts.json")
_WORDS: Final = re.compile(r"[A-Z]+s?(?![a-z])|[A-Z]?[a-z0-9]+")


@cache
def _texts() -> dict[str, dict[str, str]]:
    """Return the texts by type and field; the text of the type itself has an empty field name."""
    return msgspec.json.decode(_FILE.read_bytes(), type=dict[str, dict[str, str]])


def of_kind(kind: str) -> str:
    """Return the description of a kind, or of a part of its objects."""
    return _texts().get(kind, {}).get("") or f"{_sentence(kind)}."


def of_field(type_name: str, field: str, shape: str) -> str:
    """Return the description of a field; ``shape`` is the word for its type: text, list ..."""
    return _texts().get(type_name, {}).get(field) or f"{_sentence(field)}: {shape}."


def _sentence(name: str) -> str:
    """Return the words of a name: ``hostIPs`` becomes ``Host IPs``."""
    words = [w if w[:2].isupper() else w.lower() for w in _WORDS.findall(name)] or [name]
    text = " ".join(words)
    return f"{text[0].upper()}{text[1:]}"
