"""Comparing manifests: null, empty and absent are alike, as the vectors drop them."""

from __future__ import annotations

from typing import Any


def prune(value: Any) -> Any:
    """Return the value without nulls and without empty objects and lists below the top."""
    if isinstance(value, dict):
        kept = {key: prune(item) for key, item in value.items()}
        return {key: item for key, item in kept.items() if item not in (None, {}, [], "")}
    if isinstance(value, list):
        return [prune(item) for item in value]
    return value


def difference(expected: Any, actual: Any) -> str | None:
    """Return what differs, ``None`` if nothing does."""
    wanted, found = prune(expected), prune(actual)
    return None if wanted == found else f"expected {wanted}, got {found}"
