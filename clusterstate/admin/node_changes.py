"""A person's change of a node: the form's values, and the requests made of them."""

import hashlib
from collections.abc import Callable
from typing import Any

import msgspec

from clusterstate.actions import objects
from clusterstate.actions.writing import transactions
from clusterstate.admin.clock import now
from clusterstate.admin.forms import refusals
from clusterstate.admission.request import User
from clusterstate.objects.rules.matching import NO_EXECUTE
from clusterstate.objects.values import document
from clusterstate.objects.values.errors import Conflict, StatusError
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.pods.stays import executing_places

CHANGED_MEANWHILE = (
    "Another user changed this node since you opened this page, so nothing was saved. Open the"
    " node again and repeat your change."
)
_ADDED = "AddedByAdministrator"


class NodeFormChanges(msgspec.Struct, frozen=True, kw_only=True):
    """The changes of a node in a form; ``None`` leaves a part unchanged.

    ``seen`` is the fingerprint of the node when the form was shown; empty: not checked.
    """

    labels: dict[str, str] | None = None
    allocatable: dict[str, str] | None = None
    unschedulable: bool | None = None
    taints: list[Manifest] | None = None
    seen: str = ""

    def applied_to(self, manifest: Manifest) -> Manifest:
        """Return the manifest with these parts; parts that are equal already stay as they are.

        Raises:
            Conflict: the manifest has changed since the form was shown.
        """
        if self.seen and self.seen != fingerprint(manifest):
            raise Conflict(CHANGED_MEANWHILE)
        metadata = manifest["metadata"]
        spec = manifest.get("spec") or {}
        status = manifest.get("status") or {}
        if self.labels is not None:
            _put(metadata, "labels", self.labels)
        if self.unschedulable is not None:
            _put(spec, "unschedulable", self.unschedulable)
        if self.taints is not None:
            # A taint that stays keeps the time at which it came: its evictions count from then.
            times = {_identity(taint): taint.get("timeAdded") for taint in spec.get("taints") or ()}
            _put(spec, "taints", [_with_time(taint, times) for taint in self.taints])
        if self.allocatable is not None:
            if (status.get("capacity") or {}) == (status.get("allocatable") or {}):
                _put(status, "capacity", self.allocatable)
            _put(status, "allocatable", self.allocatable)
        return {
            **manifest,
            **({"spec": spec} if spec else {}),
            **({"status": status} if status else {}),
        }


def _put(part: dict[str, Any], name: str, value: Any) -> None:
    """Set a field; remove it if the value is empty, unless the field is empty already."""
    if value:
        part[name] = value
    elif part.get(name):
        del part[name]


def _identity(taint: Manifest) -> tuple[Any, Any]:
    return taint.get("key"), taint.get("effect")


def _with_time(taint: Manifest, times: dict[tuple[Any, Any], Any]) -> Manifest:
    time = times.get(_identity(taint))
    return {**taint, "timeAdded": time} if time else taint


def fingerprint(manifest: Manifest) -> str:
    """Return a digest of the fields that the form edits.

    The resourceVersion would not do: an agent's heartbeats raise it without changing these.
    """
    spec, status = manifest.get("spec") or {}, manifest.get("status") or {}
    parts = (
        manifest["metadata"].get("labels") or {},
        bool(spec.get("unschedulable")),
        [(t.get("key"), t.get("value") or "", t.get("effect")) for t in spec.get("taints") or ()],
        status.get("allocatable") or {},
    )
    return hashlib.sha256(msgspec.json.encode(parts, order="sorted")).hexdigest()


def evicting(stored: Manifest, name: str, changes: NodeFormChanges) -> list[tuple[str, str]]:
    """Return a form's labels and taints as rows of the console's preview, if they may evict pods.

    They may if a NoExecute taint is added, or a label changes while the node has pods with node
    affinity that is required during execution. Otherwise the list is empty. Queries once at most.
    """
    labels = stored["metadata"].get("labels") or {}
    taints = (stored.get("spec") or {}).get("taints") or []
    comes = {_row(one) for one in changes.taints or ()} - {_row(one) for one in taints}
    changed = changes.labels is not None and any(
        changes.labels.get(key) != value for key, value in labels.items()
    )
    if not any(effect == NO_EXECUTE for _, _, effect in comes) and not (
        changed and executing_places(node_names=[name])
    ):
        return []
    rows = []
    new_labels = labels if changes.labels is None else changes.labels
    new_taints = taints if changes.taints is None else changes.taints
    for prefix, shown in (("had_label", labels), ("label", new_labels)):
        for key, value in shown.items():
            rows += [(f"{prefix}_key", key), (f"{prefix}_value", value)]
    for prefix, of in (("had_taint", taints), ("taint", new_taints)):
        for one in of:
            names = (f"{prefix}_{part}" for part in ("key", "value", "effect"))
            rows += zip(names, _row(one), strict=True)
    return rows


def _row(taint: Manifest) -> tuple[str, str, str]:
    return taint["key"], taint.get("value") or "", taint["effect"]


def write(name: str, changes: NodeFormChanges, *, new: bool, user: User) -> None:
    """Create or update the node through the action.

    Spec and status are two requests, as in the API; call this in a transaction.

    Raises:
        StatusError: admission refused one of them.
    """
    for call in _requests(name, changes, new=new, user=user):
        call()


def tried(name: str, changes: NodeFormChanges, *, new: bool, user: User) -> list[tuple[str, str]]:
    """Return (field path, message) of every error that writing ``changes`` would raise."""
    problems: list[tuple[str, str]] = []
    for call in _requests(name, changes, new=new, user=user):
        try:
            with transactions.rehearsal():
                call()
        except StatusError as error:
            problems += [found for found in refusals(error) if found not in problems]
    return problems


def _requests(
    name: str, changes: NodeFormChanges, *, new: bool, user: User
) -> list[Callable[[], object]]:
    if new:
        # No agent reports for a node that a person adds; it is taken to be ready.
        condition = {
            "type": "Ready",
            "status": "True",
            "reason": _ADDED,
            "message": "Added in the admin.",
            "lastTransitionTime": document.format_time(now()),
        }
        bare: Manifest = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {"name": name},
            "status": {"conditions": [condition]},
        }
        return [lambda: objects.create("Node", "", changes.applied_to(bare), now=now(), user=user)]
    unseen = msgspec.structs.replace(changes, seen="")
    return [
        lambda: objects.update("Node", "", name, changes.applied_to, now=now(), user=user),
        lambda: objects.update(
            "Node", "", name, unseen.applied_to, subresource="status", now=now(), user=user
        ),
    ]
