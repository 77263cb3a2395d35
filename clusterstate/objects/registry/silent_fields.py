"""Fields on which Kubernetes acts and this service does not, each with a warning for its author.

``tests/objects/field_table.py`` lists the treatment of all others. ``warnings`` reads only the
places of a manifest that lead to such a field: a few dictionary look-ups for a pod without any.
"""

from collections.abc import Iterator
from functools import cache
from typing import Any, Final

import msgspec

from clusterstate.objects.registry import inspected
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.values.meta import Manifest


class Silent(msgspec.Struct, frozen=True):
    """Why a field has no effect.

    ``only`` are the values of which nothing comes; with others the field is acted upon or kept for
    agents, and is in another place of the table, too. ``unless`` are values that ask for nothing.
    """

    reason: str
    only: tuple[object, ...] = ()
    unless: tuple[object, ...] = ()

    def tells(self, value: object) -> bool:
        """Return whether a client that sets this value expects an effect that does not happen."""
        if value is None or value in ((), [], {}, ""):
            return False
        return value in self.only if self.only else value not in self.unless


_TOKENS: Final = (
    "pods get no token automatically unless serviceAccountTokens of STOWAGE_ADMISSION is on; add a"
    " projected volume to get one"
)

_OFF: Final = "ignored: this feature of Kubernetes is off, as by default"

_CLAIMS_OF_GROUPS: Final = Silent(
    "no ResourceClaims are created or reserved for the group itself, only for its pods"
)

SILENT: Final[dict[tuple[str, str], Silent]] = {
    ("PodGroupSpec", "resourceClaims"): _CLAIMS_OF_GROUPS,
    ("JobSchedulingConfiguration", "resourceClaims"): _CLAIMS_OF_GROUPS,
    ("PodSpec", "evictionResponders"): Silent("ignored: evictions do not ask responders"),
    ("PodSpec", "automountServiceAccountToken"): Silent(_TOKENS, unless=(False,)),
    ("Device", "nodeAllocatableResources"): Silent(_OFF),
    ("DeviceCounterConsumption", "compatibilityGroups"): Silent(_OFF),
    ("DeviceSubRequest", "derivedAttributes"): Silent(_OFF),
    ("ExactDeviceRequest", "derivedAttributes"): Silent(_OFF),
    ("ResourceSliceSpec", "partitionTypeAttribute"): Silent(_OFF),
    ("ResourceSliceSpec", "skipNodeOperations"): Silent(_OFF),
    # As Kubernetes warns of them (pkg/api/node/warnings.go).
    ("NodeSpec", "configSource"): Silent(
        "the feature is no longer supported since v1.22, and it has been removed"
    ),
    ("NodeSpec", "externalID"): Silent("this field is deprecated, and is unused by Kubernetes"),
    ("ServiceSpec", "type"): Silent(
        "no load balancer is created, so the Service gets no external address",
        only=("LoadBalancer",),
    ),
    ("Secret", "type"): Silent(
        "the Secret gets no token; `kubectl create token` issues one",
        only=("kubernetes.io/service-account-token",),
    ),
    ("ServiceAccount", "automountServiceAccountToken"): Silent(_TOKENS, unless=(False,)),
    ("ServiceAccount", "imagePullSecrets"): Silent("not added to the pods of the account"),
    ("LeaseSpec", "strategy"): Silent("no controller here chooses who holds a lease"),
    ("LeaseSpec", "preferredHolder"): Silent("no controller here chooses who holds a lease"),
    **{
        ("PersistentVolumeClaimSpec", field): Silent(
            "the hollow driver creates an empty volume; other CSI drivers may use the field"
        )
        for field in ("dataSource", "dataSourceRef")
    },
}

SILENT_LABELS: Final[dict[str, dict[str, Silent]]] = {
    "Namespace": {
        f"pod-security.kubernetes.io/{mode}": Silent(
            "ignored: Pod Security Standards are not enforced", unless=("privileged",)
        )
        for mode in ("enforce", "audit", "warn")
    },
}
"""Labels by which Kubernetes' own admission acts, by kind, with what nothing here does."""


class _SilentPath(msgspec.Struct):
    """A field that is silent, or leads to one; ``inner`` are the places in its objects."""

    silent: Silent | None = None
    inner: "dict[str, _SilentPath]" = {}


def warnings(kind: str, manifest: Manifest) -> list[str]:
    """Return a text for each field and label of a manifest of which nothing comes."""
    found = [
        f"{path}: {reason}"
        for path, reason in _found_fields(manifest, _places(KINDS[kind].wire_type), "")
    ]
    if kind in SILENT_LABELS:
        labels = (manifest.get("metadata") or {}).get("labels") or {}
        found += [
            f"metadata.labels[{key}]: {silent.reason}"
            for key, silent in SILENT_LABELS[kind].items()
            if silent.tells(labels.get(key))
        ]
    return found


def _found_fields(
    value: Manifest, places: dict[str, _SilentPath], path: str
) -> Iterator[tuple[str, str]]:
    for field, place in places.items():
        child = value.get(field)
        if not child and child is not False:
            continue
        where = f"{path}.{field}" if path else field
        if place.silent is not None and place.silent.tells(child):
            yield where, place.silent.reason
        elif isinstance(child, dict):
            yield from _found_fields(child, place.inner, where)
        elif isinstance(child, list) and place.inner:
            for index, item in enumerate(child):
                if isinstance(item, dict):
                    yield from _found_fields(item, place.inner, f"{where}[{index}]")


@cache
def _places(wire_type: type[msgspec.Struct]) -> dict[str, _SilentPath]:
    """Return the fields of a type that are silent or lead there."""
    found = {}
    for field in inspected.of_struct(wire_type).fields:
        silent = SILENT.get((wire_type.__name__, field.encode_name))
        inner = {} if field.encode_name == "status" else _inner(field.type)
        if silent is not None or inner:
            found[field.encode_name] = _SilentPath(silent, inner)
    return found


def _inner(info: Any) -> dict[str, _SilentPath]:
    """Return the places in the objects of a field; none in the values of maps."""
    inspect = msgspec.inspect
    if isinstance(info, inspect.UnionType):
        return next((inner for one in info.types if (inner := _inner(one))), {})
    if isinstance(info, inspect.ListType):
        return _inner(info.item_type)
    return _places(info.cls) if isinstance(info, inspect.StructType) else {}
