"""Reads users' files: YAML or JSON, many documents, folders, lists, other simulators' exports."""

import json
import os
import sys
from collections import Counter
from collections.abc import Iterable, Iterator
from contextlib import nullcontext
from pathlib import Path
from typing import Any, Final

import msgspec

from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.values.errors import StatusError
from clusterstate.objects.wire import reading

# Users' files: a dump of a cluster may be large.
_MAX_BYTES, _MAX_VALUES = 1 << 30, 100_000_000
OWN_KINDS: Final = frozenset(
    {"Simulation", "Scenario", "KubeSchedulerConfiguration", "Policy", "Headroom"}
)


_SUFFIXES: Final = frozenset({".yaml", ".yml", ".json"})
_EXPORTED: Final = {
    "namespaces": "Namespace",
    "priorityClasses": "PriorityClass",
    "storageClasses": "StorageClass",
    "pvcs": "PersistentVolumeClaim",
    "pvs": "PersistentVolume",
    "nodes": "Node",
    "pods": "Pod",
}
"""Members of an export of kube-scheduler-simulator, besides ``schedulerConfig``, with kinds."""
_OF_NODES: Final = {
    "metadata": ("name", "labels", "annotations", "uid"),
    "spec": ("taints", "unschedulable"),
    "status": ("allocatable", "capacity", "images", "declaredFeatures"),
}
"""Fields of a node that scheduling reads; other fields of a dump may be invalid."""


class FileError(ValueError):
    """A file cannot be read, or its content is invalid; the message names the file."""


def documents(name: str) -> Iterator[Any]:
    """Yield the documents of a file, of standard input (``-``), or of all files of a folder.

    JSON is parsed as JSON: the YAML parser is slow.

    Raises:
        FileError: the file cannot be read, or the folder has no file of manifests.
    """
    if name != "-" and Path(name).is_dir():
        # Unlike `Path.rglob`, it skips folders that cannot be read or are deleted meanwhile.
        paths = (Path(folder, one) for folder, _, names in os.walk(name) for one in names)
        found = sorted(one for one in paths if one.suffix in _SUFFIXES)
        if not found:
            raise FileError(f"{name}: the folder holds no .yaml, .yml or .json file")
        for one in found:
            if one.is_file():
                yield from documents(str(one))
        return
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
        raise FileError(f"{name}: {' '.join(str(error).split())}") from error


def contents(name: str, *, most: int) -> bytes:
    """Return the bytes of a file, or of standard input (``-``).

    Raises:
        FileError: it cannot be read, or has more than ``most`` bytes, such as ``/dev/zero``.
    """
    try:
        with nullcontext(sys.stdin.buffer) if name == "-" else Path(name).open("rb") as file:
            raw = file.read(most + 1)
    except OSError as error:
        raise FileError(f"{name}: {error.strerror}") from error
    if len(raw) > most:
        raise FileError(f"{name}: is larger than {most} bytes")
    return raw


def _json_documents(raw: bytes) -> list[Any] | None:
    """Return successive JSON documents, ``None`` if the text is something else."""
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
    """Yield documents, those of lists one by one; items of a PodList need no kind."""
    for document in documents:
        if isinstance(document, list):
            yield from single(_flat(document))
            continue
        kind = str(document.get("kind") or "") if isinstance(document, dict) else ""
        if not kind and isinstance(document, dict):
            if _is_export(document):
                yield from single(_exported(document))
                continue
            if isinstance(document.get("items"), list):
                yield from single(document["items"])
                continue
            guessed = _kind_of(document)
            yield {"kind": guessed, **document} if guessed else document
            continue
        if not kind.endswith("List") or not isinstance(document.get("items"), list):
            yield document
            continue
        item_kind = {"kind": kind.removesuffix("List")} if kind != "List" else {}
        items = document["items"]
        yield from single([{**item_kind, **i} if isinstance(i, dict) else i for i in items])


def _is_export(document: dict[str, Any]) -> bool:
    listed = [name for name in _EXPORTED if isinstance(document.get(name), list)]
    return "metadata" not in document and bool(listed)


def _exported(document: dict[str, Any]) -> Iterator[Any]:
    """Yield the objects of an export of kube-scheduler-simulator, with kinds added."""
    for name, kind in _EXPORTED.items():
        for one in document.get(name) or ():
            yield {**one, "kind": one.get("kind") or kind} if isinstance(one, dict) else one
    configuration = document.get("schedulerConfig")
    if isinstance(configuration, dict):
        yield {
            **configuration,
            "apiVersion": configuration.get("apiVersion") or "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
        }


def _kind_of(document: dict[str, Any]) -> str:
    """Return the kind of an object without ``kind``, judged by its fields; empty if unknown."""
    if not isinstance(document.get("metadata"), dict):
        return ""
    spec, status = (
        one if isinstance(one := document.get(name), dict) else {} for name in ("spec", "status")
    )
    if isinstance(spec.get("containers"), list):
        return "Pod"
    if "allocatable" in status or "capacity" in status or {"podCIDR", "providerID"} & spec.keys():
        return "Node"
    if "provisioner" in document:
        return "StorageClass"
    return "PriorityClass" if isinstance(document.get("value"), int) else ""


def of_placement(document: Any) -> Any:
    """Return a node with only the fields that scheduling reads; other objects unchanged."""
    if not isinstance(document, dict) or document.get("kind") != "Node":
        return document
    reduced = {key: document[key] for key in ("apiVersion", "kind") if key in document}
    for part, names in _OF_NODES.items():
        value = document.get(part)
        if isinstance(value, dict):
            reduced[part] = {name: value[name] for name in names if name in value}
        elif value is not None:
            reduced[part] = value
    return reduced


def _flat(nested: list[Any]) -> Iterator[Any]:
    """Yield the items of nested lists, in order, at any depth."""
    waiting = [iter(nested)]
    while waiting:
        for one in waiting[-1]:
            if isinstance(one, list):
                waiting.append(iter(one))
                break
            yield one
        else:
            waiting.pop()


def of_known_kinds(found: Iterable[Any], left_out: Counter[str]) -> Iterator[Any]:
    """Yield the documents of kinds that scheduling reads; count the others in ``left_out``.

    A dump of a cluster has many other kinds.
    """
    for document in found:
        kind = document.get("kind") if isinstance(document, dict) else None
        if isinstance(document, dict) and not kind and "metadata" in document:
            left_out["without a kind"] += 1
        elif (
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
