"""ServiceAccount: a pod runs as ``default`` of its namespace unless it names another account.

No volume with a token is added. Kubernetes mounts one so that containers can call the API; here no
agent hands tokens to containers, so that the volume would be a promise that is not kept; a pod
that wants a token projects one itself. Whether the account exists is not asked: a namespace has its
``default`` within a second, and its first pods need not wait for that.

Rule: plugin/pkg/admission/serviceaccount/admission.go and the conversion of the older field
``serviceAccount`` (pkg/apis/core/v1/conversion.go), v1.36.
"""

from typing import Final

from clusterstate.admission.request import CREATE, Request
from clusterstate.objects.pod import MIRROR_POD

DEFAULT: Final = "default"


def admit(request: Request) -> None:
    """Name the account of a new pod in both fields; a changed pod keeps its own."""
    spec = request.manifest.setdefault("spec", {})
    name = spec.get("serviceAccountName") or spec.get("serviceAccount")
    if request.operation != CREATE:
        name = name or ((request.old or {}).get("spec") or {}).get("serviceAccountName")
    elif MIRROR_POD not in ((request.manifest.get("metadata") or {}).get("annotations") or ()):
        name = name or DEFAULT
    if name:
        spec["serviceAccountName"] = spec["serviceAccount"] = name
