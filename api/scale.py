"""The subresource ``scale``: how many replicas an object wants and has."""

from api.cells import NONE, format_selector
from clusterstate.objects.kind import Kind
from clusterstate.objects.meta import Manifest


def scale_of(kind: Kind, item: Manifest) -> Manifest:
    """Return the ``Scale`` of an object that has replicas."""
    metadata = item["metadata"]
    spec, status = item.get("spec") or {}, item.get("status") or {}
    selector = spec.get("selector")
    if kind.has_plain_selector:
        selector = {"matchLabels": selector or {}}
    text = format_selector(selector)
    kept = ("name", "namespace", "uid", "resourceVersion", "creationTimestamp")
    return {
        "kind": "Scale",
        "apiVersion": "autoscaling/v1",
        "metadata": {key: metadata[key] for key in kept if key in metadata},
        "spec": {"replicas": spec.get("replicas", 0)},
        "status": {
            "replicas": status.get("replicas", 0),
            "selector": "" if text == NONE else text,
        },
    }
