"""Objects in request bodies: their metadata, and the items of lists."""

from typing import Any

from api.forms import wire
from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.values.errors import BadRequest
from clusterstate.objects.values.meta import Manifest


def metadata_of(manifest: Manifest) -> dict[str, Any]:
    """Return ``metadata``, made if absent."""
    metadata = manifest.setdefault("metadata", {})
    if not isinstance(metadata, dict):
        raise BadRequest("metadata: expected an object")
    return metadata


def put_namespace(metadata: dict[str, Any], namespace: str) -> None:
    """Set the namespace of the URL in ``metadata``; a different one there is an error."""
    if not namespace:
        return
    own = metadata.get("namespace")
    if own in (None, ""):
        metadata["namespace"] = namespace
    elif own != namespace:
        raise BadRequest(
            "the namespace of the provided object does not match the namespace sent on the request"
        )


def list_items(value: Manifest) -> list[Any]:
    """Return the items of a list manifest."""
    items = value.get("items")
    if items is None:
        return []
    if not isinstance(items, list):
        raise BadRequest("items: expected a list")
    return items


def checked_item(
    item: Any, kind: Kind, index: int, field_validation: str
) -> tuple[Manifest, list[str]]:
    """Return an item of a list as a checked manifest, and warnings that name it."""
    try:
        manifest, warnings = wire.manifest(item, kind, field_validation)
    except BadRequest as error:
        raise BadRequest(f"items[{index}]: {error.message}") from error
    return manifest, [f"items[{index}]: {text}" for text in warnings]


def items_of(
    value: Manifest, kind: Kind, namespace: str, field_validation: str
) -> tuple[list[Manifest], list[str]]:
    """Return the items of a list of one kind, each with its namespace, and warnings."""
    wire.typed(value, str(value["kind"]), kind.api_version, "v1")
    manifests: list[Manifest] = []
    warnings: list[str] = []
    for index, item in enumerate(list_items(value)):
        manifest, found = checked_item(item, kind, index, field_validation)
        metadata = metadata_of(manifest)
        try:
            put_namespace(metadata, namespace)
        except BadRequest as error:
            raise BadRequest(f"items[{index}]: {error.message}") from error
        if kind.namespaced and not metadata.get("namespace"):
            raise BadRequest(f"items[{index}]: metadata.namespace: Required value")
        manifests.append(manifest)
        warnings += found
    return manifests, warnings
