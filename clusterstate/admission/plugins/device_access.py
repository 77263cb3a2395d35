"""``adminAccess`` to devices in use is only claimed in namespaces that are labelled for it.

Rule: pkg/registry/resource/resourceclaim/strategy.go, ``AuthorizedForAdmin``, v1.36.
"""

from typing import Final

from clusterstate.admission.request import CREATE, Request
from clusterstate.admission.validation.core.field import forbidden
from clusterstate.objects.registry.kinds import KINDS as ALL_KINDS
from clusterstate.objects.values.errors import Invalid

KINDS: Final = frozenset({"ResourceClaim", "ResourceClaimTemplate"})
LABEL: Final = "resource.kubernetes.io/admin-access"


def admit(request: Request) -> None:
    """Refuse ``adminAccess`` in a new claim or template unless the namespace's label allows it.

    Updates are not checked, since specs are immutable.

    Raises:
        Invalid: the namespace lacks the label.
    """
    if request.operation != CREATE:
        return
    spec, path = request.manifest.get("spec") or {}, "spec"
    if request.kind == "ResourceClaimTemplate":
        spec, path = spec.get("spec") or {}, "spec.spec"
    fields = [
        f"{path}.devices.requests[{index}].exactly.adminAccess"
        for index, one in enumerate((spec.get("devices") or {}).get("requests") or ())
        if (one.get("exactly") or {}).get("adminAccess")
    ]
    if not fields:
        return
    namespace = request.context.namespace(request.namespace) or {}
    labels = (namespace.get("metadata") or {}).get("labels") or {}
    if labels.get(LABEL) != "true":
        detail = (
            f"admin access to devices requires the `{LABEL}: true` label on the containing"
            " namespace"
        )
        errors = [forbidden(field, detail) for field in fields]
        group = ALL_KINDS[request.kind].group
        raise Invalid(request.kind, request.display_name(), errors, group)
