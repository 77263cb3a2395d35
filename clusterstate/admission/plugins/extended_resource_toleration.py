"""ExtendedResourceToleration: a pod that requests special hardware tolerates its taint (R125).

Rule: plugin/pkg/admission/extendedresourcetoleration/admission.go, v1.36.
"""

from clusterstate.admission.request import Request
from clusterstate.admission.validation.core.resources import is_extended_resource_name
from clusterstate.objects.values.meta import Manifest


def admit(request: Request) -> None:
    """Add ``{key: resource, operator: Exists, effect: NoSchedule}`` per extended resource.

    The resources of containers and init containers count. Tolerations are added in the order of the
    names, unless the pod has an equal one; one for all effects is not equal.
    """
    if not request.is_pod():
        return
    spec = request.manifest.setdefault("spec", {})
    resources: set[str] = set()
    for containers in ("containers", "initContainers"):
        for container in spec.get(containers) or ():
            requests = (container.get("resources") or {}).get("requests") or {}
            resources.update(name for name in requests if is_extended_resource_name(name))
    if not resources:
        return
    tolerations: list[Manifest] = spec.setdefault("tolerations", [])
    for name in sorted(resources):
        added = {"key": name, "operator": "Exists", "effect": "NoSchedule"}
        same = [place for place, one in enumerate(tolerations) if _is_same(one, added)]
        for place in same:
            tolerations[place] = dict(added)
        if not same:
            tolerations.append(added)


def _is_same(toleration: Manifest, other: Manifest) -> bool:
    """Return whether two tolerations are equal but for their seconds (``MatchToleration``)."""
    fields = ("key", "operator", "value", "effect")
    return all((toleration.get(field) or "") == (other.get(field) or "") for field in fields)
