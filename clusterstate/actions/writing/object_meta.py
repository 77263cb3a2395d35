"""The server's changes to an object's metadata before it is created, updated or deleted.

Pure, but for names and uids that are made at random. Rule: apiserver ``registry/rest``
(``create.go``, ``update.go``, ``delete.go``), v1.36.
"""

import random
import uuid
from datetime import datetime
from functools import lru_cache
from typing import Any, Final

import msgspec

from clusterstate.actions.writing.stored import LockedRow
from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.registry.strategies import keep
from clusterstate.objects.values import document
from clusterstate.objects.values.document import Overlay
from clusterstate.objects.values.errors import (
    INVALID,
    AlreadyExists,
    BadRequest,
    Conflict,
    FieldError,
    Invalid,
    TooLarge,
)
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.wire import managed_fields

_SUFFIX_LETTERS: Final = "bcdfghjklmnpqrstvwxz2456789"
_SUFFIX_LENGTH: Final = 5
_SUFFIXES: Final = len(_SUFFIX_LETTERS) ** _SUFFIX_LENGTH
_LONGEST_NAME: Final = 63
LARGEST_TEXT: Final = 8 << 20
"""How large an object may grow: more than any body that is read makes of a new one."""
_SERVER_OWNED: Final = (
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "selfLink",
    "resourceVersion",
)
_OF_SPEC: Final = ("finalize", "resize")
"""Subresources that change a part of the spec, and no metadata."""
_random = random.SystemRandom()


def new_uid() -> uuid.UUID:
    """Return a random UUID, for ``metadata.uid``."""
    return uuid.uuid4()


@lru_cache(maxsize=16)
def stamp(moment: datetime) -> str:
    """Return a time as manifests write it; cached, since a batch needs one many times."""
    return document.format_time(moment)


def name_suffix() -> str:
    """Return five random letters that spell no words (apiserver ``names.SimpleNameGenerator``)."""
    number = _random.randrange(_SUFFIXES)  # at once: each call asks the kernel
    letters = []
    for _ in range(_SUFFIX_LENGTH):
        number, place = divmod(number, len(_SUFFIX_LETTERS))
        letters.append(_SUFFIX_LETTERS[place])
    return "".join(letters)


def generated_name(base: str) -> str:
    """Return a name that begins with ``base`` (generateName)."""
    return base[: _LONGEST_NAME - _SUFFIX_LENGTH] + name_suffix()


def prepare(
    kind: Kind, namespace: str, manifest: Manifest, *, now: datetime, uid: uuid.UUID
) -> tuple[Manifest, bool]:
    """Return the manifest with the metadata of a new object, and whether its name was generated.

    Drops fields that only the server sets, and the status of kinds whose status clients do not
    write. ``manifest`` itself is not changed.

    Raises:
        BadRequest: it has a resourceVersion, or another namespace.
    """
    sent: Manifest = manifest.get("metadata") or {}
    if (sent.get("resourceVersion") or "0") != "0":
        raise BadRequest("resourceVersion should not be set on objects to be created")
    metadata = {
        key: value for key, value in sent.items() if key not in _SERVER_OWNED and value is not None
    }
    if not managed_fields.are_readable(metadata.get("managedFields") or ()):
        del metadata["managedFields"]
    generated = False
    if not metadata.get("name") and metadata.get("generateName"):
        metadata["name"] = generated_name(metadata["generateName"])
        generated = True
    if kind.namespaced:
        if metadata.get("namespace", namespace) != namespace and namespace:
            raise BadRequest(
                "the namespace of the provided object does not match the namespace sent on the"
                " request"
            )
        metadata["namespace"] = namespace or metadata.get("namespace") or "default"
    else:
        metadata.pop("namespace", None)
    metadata["uid"] = str(uid)
    metadata["creationTimestamp"] = stamp(now)
    if kind.counts_generation:
        metadata["generation"] = 1
    result = {**manifest, "apiVersion": kind.api_version, "kind": kind.name, "metadata": metadata}
    if "status" in kind.subresources:
        if kind.status_at_creation:
            result.setdefault("status", {})
        else:
            result["status"] = dict(kind.new_status)
    if "spec" not in result and _has_spec(kind.wire_type):
        result["spec"] = {}
    kind.strategy.prepare_for_create(result)
    kind.strategy.stamp(result, stamp(now))
    return result, generated


@lru_cache(maxsize=256)
def _has_spec(wire_type: type[msgspec.Struct]) -> bool:
    """Return whether objects have a spec, which is then returned even if it is empty."""
    return any(field.encode_name == "spec" for field in msgspec.structs.fields(wire_type))


def merge_update(kind: Kind, old: Manifest, new: Manifest, subresource: str) -> Manifest:
    """Return the result of an update: changed metadata and spec, or the subresource's part alone.

    That is the status; of ``finalize`` the finalizers, of ``resize`` the resources. Fields that
    only the server sets keep their stored values. An update of the status changes metadata as well,
    as far as the kind's strategy allows (annotations, for one).

    Raises:
        Conflict: ``new`` has another resourceVersion or uid than the stored object.
        Invalid: it has no resourceVersion, which the kind requires.
    """
    old_metadata, metadata = old["metadata"], dict(new.get("metadata") or {})
    if kind.versions_updates and (metadata.get("resourceVersion") or "0") == "0":
        detail = "must be specified for an update"
        error = FieldError(INVALID, "metadata.resourceVersion", 0, detail)
        raise Invalid(kind.plural, old_metadata["name"], [error], kind.group)
    check_preconditions(
        kind,
        old_metadata,
        uid=metadata.get("uid"),
        resource_version=metadata.get("resourceVersion"),
    )
    for key in (*_SERVER_OWNED, "name", "namespace", "generateName"):
        if key in old_metadata:
            metadata[key] = old_metadata[key]
        else:
            metadata.pop(key, None)
    if subresource:
        part = "spec" if subresource in _OF_SPEC else "status"
        if subresource in _OF_SPEC:
            new_metadata = metadata
            metadata = dict(old_metadata)
            if subresource == "resize":
                keep(metadata, new_metadata, "managedFields")
        result = {**old, "metadata": metadata}
        if new.get(part) is None:
            result.pop(part, None)
        else:
            result[part] = new[part]
        for name in kind.strategy.kept_by_status if subresource == "status" else ():
            keep(metadata, old_metadata, name)
        kind.strategy.prepare_for_update(result, old, subresource)
        return result
    result = {**new, "apiVersion": old["apiVersion"], "kind": old["kind"], "metadata": metadata}
    if "spec" not in result and _has_spec(kind.wire_type):
        result["spec"] = {}
    if "status" in kind.subresources:
        if old.get("status") is None:
            result.pop("status", None)
        else:
            result["status"] = old["status"]
    kind.strategy.prepare_for_update(result, old, "")
    return result


def check_preconditions(
    kind: Kind,
    metadata: Manifest,
    *,
    uid: str | None = None,
    resource_version: str | None = None,
) -> None:
    """Check a request's preconditions.

    The version ``0`` is any version (``doUnconditionalUpdate`` in apiserver registry/store.go).

    Raises:
        Conflict: the stored object has another uid or version.
    """
    if uid and uid != metadata["uid"]:
        raise conflict(
            kind,
            metadata["name"],
            f"Precondition failed: UID in precondition: {uid}, UID in object meta:"
            f" {metadata['uid']}",
        )
    if resource_version not in (None, "", "0", metadata["resourceVersion"]):
        raise conflict(
            kind,
            metadata["name"],
            "the object has been modified; please apply your changes to the latest version and"
            " try again",
        )


def check_before_deletion(
    kind: Kind, metadata: Manifest, *, uid: str, resource_version: str
) -> None:
    """Check the preconditions of a deletion, empty for none.

    Rule: Preconditions.Check, apiserver ``storage/interfaces.go``, v1.36.

    Raises:
        Conflict: the stored object has another uid or version.
    """
    check_preconditions(kind, metadata, uid=uid)
    if resource_version and resource_version != metadata["resourceVersion"]:
        raise conflict(
            kind,
            metadata["name"],
            f"Precondition failed: ResourceVersion in precondition: {resource_version},"
            f" ResourceVersion in object meta: {metadata['resourceVersion']}",
        )


def conflict(kind: Kind, name: str, why: str) -> Conflict:
    """Return the error ``Operation cannot be fulfilled on pods "x": why``."""
    return Conflict(
        f'Operation cannot be fulfilled on {kind.resource} "{name}": {why}', details(kind, name)
    )


def already_exists(kind: Kind, name: str) -> AlreadyExists:
    """Return the error ``pods "x" already exists``."""
    return AlreadyExists(f'{kind.resource} "{name}" already exists', details(kind, name))


def details(kind: Kind, name: str) -> dict[str, Any]:
    """Return the ``details`` of a Status about one object."""
    result: dict[str, Any] = {"name": name, "kind": kind.plural}
    if kind.group:
        result["group"] = kind.group
    return result


def bump_generation(kind: Kind, old: Manifest, new: Manifest) -> None:
    """Raise ``metadata.generation`` of ``new``, in place, if its desired state changed."""
    if kind.counts_generation and kind.strategy.is_another_generation(new, old):
        new["metadata"] = {
            **new["metadata"],
            "generation": old["metadata"].get("generation", 0) + 1,
        }


def bump_generation_of_leaving(metadata: Manifest) -> None:
    """Raise the generation when a deletion begins, in place: agents report the one they observed.

    Rule: BeforeDelete, apiserver ``rest/delete.go``, v1.36.
    """
    if metadata.get("generation"):
        metadata["generation"] += 1


def same(
    kind: Kind, row: LockedRow, old: Manifest, new: Manifest, text: str, slots: Overlay
) -> bool:
    """Return whether an update changes nothing but times in managedFields."""
    if slots != row.overlay:
        return False
    if text == row.text:
        return True
    before, after = (m["metadata"].get("managedFields") for m in (old, new))
    if before == after or not before or not after or _timeless(before) != _timeless(after):
        return False
    restored = {**new, "metadata": {**new["metadata"], "managedFields": before}}
    return document.encode(kind.name, restored)[0] == row.text


def require_size(old: str, new: str) -> None:
    """Refuse a document that grows beyond a limit; a smaller one is always accepted.

    A request body is limited, but repeated patches may add to an object, and each following process
    reads all of it each time.

    Raises:
        TooLarge: the new document is above the limit and larger than the old one.
    """
    if _bytes(new) > LARGEST_TEXT and _bytes(new) > _bytes(old):
        raise TooLarge(f"the object would be larger than the limit of {LARGEST_TEXT} bytes")


def _bytes(text: str) -> int:
    return len(text) if text.isascii() else len(text.encode())


def _timeless(entries: list[Manifest]) -> list[Manifest]:
    return [{key: value for key, value in entry.items() if key != "time"} for entry in entries]
