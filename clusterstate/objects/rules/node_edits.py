"""Edits of a node: cordon, taints, labels, size.

Manifest in, manifest out. A plan predicts such a change, and an operation makes it: both use these
functions. Each leaves everything else unchanged, and is idempotent. ``node_taints.settle_taints``
adds what follows from a write (a cordon's taint, the time of a taint).
"""

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from clusterstate.objects.values.meta import Manifest


def cordon(node: Manifest, *, closed: bool = True) -> Manifest:
    """Return the node closed for new pods, or open again."""
    spec = {key: value for key, value in _spec(node).items() if key != "unschedulable"}
    return {**node, "spec": {**spec, "unschedulable": True} if closed else spec}


def taint(node: Manifest, taints: Sequence[Mapping[str, Any]]) -> Manifest:
    """Return the node with these taints; one of the same key and effect is replaced in its place.

    A taint that is there with the same value keeps the time since which it counts.
    """
    found = [dict(one) for one in _spec(node).get("taints") or ()]
    places = {_identity(one): place for place, one in enumerate(found)}
    for new_taint in taints:
        place = places.get(_identity(new_taint))
        if place is None:
            places[_identity(new_taint)] = len(found)
            found.append(dict(new_taint))
        elif (found[place].get("value") or "") != (new_taint.get("value") or ""):
            time_added = {key: found[place][key] for key in ("timeAdded",) if key in found[place]}
            found[place] = {**time_added, **new_taint}
    return {**node, "spec": {**_spec(node), "taints": found}}


def untaint(node: Manifest, taints: Sequence[Mapping[str, Any]]) -> Manifest:
    """Return the node without the taints of these keys, and effects where they are given."""
    remaining = [
        one
        for one in _spec(node).get("taints") or ()
        if not any(
            one.get("key") == gone.get("key") and gone.get("effect") in (None, "", one["effect"])
            for gone in taints
        )
    ]
    spec = {key: value for key, value in _spec(node).items() if key != "taints"}
    return {**node, "spec": {**spec, "taints": remaining} if remaining else spec}


def label(node: Manifest, new_labels: Mapping[str, str], gone: Collection[str] = ()) -> Manifest:
    """Return the node with these labels, and without those that are ``gone``."""
    metadata = node["metadata"]
    labels = {k: v for k, v in (metadata.get("labels") or {}).items() if k not in gone}
    return {**node, "metadata": {**metadata, "labels": {**labels, **new_labels}}}


def resize(node: Manifest, amounts: Mapping[str, str]) -> Manifest:
    """Return the node with these amounts of resources, as capacity and allocatable."""
    status = node.get("status") or {}
    sized = {
        key: {**(status.get(key) or {}), **amounts}
        for key in ("capacity", "allocatable")
        if key == "capacity" or status.get(key)
    }
    return {**node, "status": {**status, **sized}}


def _spec(node: Manifest) -> dict[str, Any]:
    return node.get("spec") or {}


def _identity(one: Mapping[str, Any]) -> tuple[Any, Any]:
    return one.get("key"), one.get("effect")
