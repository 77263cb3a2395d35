"""Reads the manifests of a script's pods, which may be invalid in other fields."""

from typing import Any

from clusterstate.objects.values.meta import Manifest


def is_on_a_node(manifest: Manifest) -> bool:
    """Return whether a pod has ``spec.nodeName``."""
    spec = manifest.get("spec")
    return isinstance(spec, dict) and bool(spec.get("nodeName"))


def is_owned(manifest: Manifest) -> bool:
    """Return whether a controller owns the pod, and so would replace it."""
    owners = (manifest.get("metadata") or {}).get("ownerReferences") or ()
    return any(isinstance(one, dict) and one.get("controller") for one in owners)


def anew(manifest: Manifest) -> Manifest:
    """Return the manifest of a new pod like one that was on a node."""
    spec: dict[str, Any] = {k: v for k, v in manifest["spec"].items() if k != "nodeName"}
    copied = ("name", "namespace", "labels", "annotations", "ownerReferences")
    meta = {key: value for key, value in manifest["metadata"].items() if key in copied}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
