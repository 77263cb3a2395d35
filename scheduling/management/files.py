"""Files of people: YAML or JSON, many documents, lists as kubectl prints them."""

import json
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final

import msgspec
from django.core.management.base import CommandError

from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.values.errors import StatusError
from clusterstate.objects.wire import reading

# A person's own files: a cluster's dump may be large.
_MAX_BYTES, _MAX_VALUES = 1 << 30, 100_000_000
OWN_KINDS: Final = frozenset(
    {"Simulation", "Scenario", "KubeSchedulerConfiguration", "Policy", "Headroom"}
)


def documents(name: str) -> Iterator[Any]:
    """Return the documents of a file, ``-`` for standard input.

    JSON is YAML too, but YAML reads it slowly.

    Raises:
        CommandError: the file cannot be read.
    """
    raw = contents(name, most=_MAX_BYTES)
    try:
        if raw.lstrip()[:1] in (b"{", b"["):
            try:
                yield msgspec.json.decode(raw)
                return
            except msgspec.DecodeError:
                pass  # several documents, or YAML in flow style
            several = _json_documents(raw)
            if several is not None:
                yield from several
                return
        for document in reading.read_yaml_documents(
            raw, max_bytes=_MAX_BYTES, max_values=_MAX_VALUES
        ):
            if document is not None:
                yield document
    except (StatusError, UnicodeDecodeError, RecursionError) as error:
        raise CommandError(f"{name}: {' '.join(str(error).split())}") from error


def contents(name: str, *, most: int) -> bytes:
    """Return what a file holds, ``-`` for standard input.

    Raises:
        CommandError: it cannot be read, or has more than ``most`` bytes: a device, such as
            ``/dev/zero``, has no end.
    """
    try:
        with nullcontext(sys.stdin.buffer) if name == "-" else Path(name).open("rb") as file:
            raw = file.read(most + 1)
    except OSError as error:
        raise CommandError(f"{name}: {error.strerror}") from error
    if len(raw) > most:
        raise CommandError(f"{name}: is larger than {most} bytes")
    return raw


def _json_documents(raw: bytes) -> list[Any] | None:
    """Return JSON documents that follow each other, ``None`` where something else stands there."""
    decoder, found, at = json.JSONDecoder(), [], 0
    try:
        text = raw.decode()
        while at < len(text):
            if text[at].isspace():
                at += 1
                continue
            document, at = decoder.raw_decode(text, at)
            found.append(document)
    except (ValueError, RecursionError):
        return None
    return found


def single(documents: Iterable[Any]) -> Iterator[Any]:
    """Return documents, those of lists one by one; a PodList need not repeat the kind."""
    for document in documents:
        if isinstance(document, list):
            yield from single(_flat(document))
            continue
        kind = str(document.get("kind") or "") if isinstance(document, dict) else ""
        if not kind.endswith("List") or not isinstance(document.get("items"), list):
            yield document
            continue
        item_kind = {"kind": kind.removesuffix("List")} if kind != "List" else {}
        items = document["items"]
        yield from single([{**item_kind, **i} if isinstance(i, dict) else i for i in items])


def _flat(nested: list[Any]) -> Iterator[Any]:
    """Return what stands in lists of lists, in order, however deep."""
    waiting = [iter(nested)]
    while waiting:
        for one in waiting[-1]:
            if isinstance(one, list):
                waiting.append(iter(one))
                break
            yield one
        else:
            waiting.pop()


def known(found: Iterable[Any], left_out: Counter[str]) -> Iterator[Any]:
    """Return documents of kinds that are known here; count the others in ``left_out``.

    A dump of a cluster has kinds that say nothing to scheduling.
    """
    for document in found:
        kind = document.get("kind") if isinstance(document, dict) else None
        if (
            not isinstance(kind, str)
            or kind in OWN_KINDS
            or isinstance(KINDS.get(kind), msgspec.Struct)
        ):
            yield document
        else:
            left_out[kind] += 1


def left_out_text(left_out: Counter[str]) -> str:
    """Return a sentence about the objects that were left out; empty if there were none."""
    if not left_out:
        return ""
    listed = ", ".join(f"{count} {kind}" for kind, count in sorted(left_out.items()))
    return f"Left out, as scheduling does not look at them: {listed}"
