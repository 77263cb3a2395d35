"""DefaultTolerationSeconds: pods stay five minutes on a node that fails (R131).

Rule: plugin/pkg/admission/defaulttolerationseconds/admission.go, v1.36.
"""

from clusterstate.admission.request import Request

NOT_READY = "node.kubernetes.io/not-ready"
UNREACHABLE = "node.kubernetes.io/unreachable"


def admit(request: Request) -> None:
    """Add NoExecute tolerations for not-ready and unreachable, unless the pod has its own.

    A toleration without a key counts for both; one for another effect does not count.
    """
    if not request.is_pod():
        return
    spec = request.manifest.setdefault("spec", {})
    not_ready = unreachable = False
    tolerations = spec.get("tolerations")
    if tolerations:
        for toleration in tolerations:
            if toleration.get("effect") in (None, "", "NoExecute"):
                key = toleration.get("key") or ""
                not_ready = not_ready or key in (NOT_READY, "")
                unreachable = unreachable or key in (UNREACHABLE, "")
        if not_ready and unreachable:
            return
    else:
        tolerations = spec["tolerations"] = []
    settings = request.context.settings
    if not not_ready:
        tolerations.append(_toleration(NOT_READY, settings.not_ready_toleration_seconds))
    if not unreachable:
        tolerations.append(_toleration(UNREACHABLE, settings.unreachable_toleration_seconds))


def _toleration(key: str, seconds: int) -> dict[str, object]:
    return {"key": key, "operator": "Exists", "effect": "NoExecute", "tolerationSeconds": seconds}
