"""ExtendedResourceToleration: who asks for special hardware tolerates its taint (R125).

Rule: plugin/pkg/admission/extendedresourcetoleration/admission.go, v1.36.
"""

from clusterstate.admission.request import Request
from clusterstate.admission.validation.resources import is_extended_resource_name


def admit(request: Request) -> None:
    """Add ``{key: resource, operator: Exists, effect: NoSchedule}`` per extended resource.

    The resources of containers and init containers count; the tolerations are added in the order
    of the names, and only where the pod has not the same one already.
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
    tolerations = spec.setdefault("tolerations", [])
    for name in sorted(resources):
        for toleration in tolerations:
            if (
                toleration.get("key") == name
                and toleration.get("operator") == "Exists"
                and toleration.get("effect") in (None, "", "NoSchedule")
                and toleration.get("tolerationSeconds") is None
            ):
                break
        else:
            tolerations.append({"key": name, "operator": "Exists", "effect": "NoSchedule"})
