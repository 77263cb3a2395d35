"""ServiceAccount: a pod runs as ``default`` of its namespace unless it names another account.

With the switch ``serviceAccountTokens`` a new pod gets the volume with a token of its account, as
in Kubernetes, unless the pod, or else the account, states ``automountServiceAccountToken: false``.
Without the switch it gets none: no agent here gives tokens to containers, and the volume makes each
pod half as large again; a pod that needs a token can project one itself. The account need not
exist: a namespace gets its ``default`` within a second, and its first pods do not wait for that.

Rule: plugin/pkg/admission/serviceaccount/admission.go and the conversion of the older field
``serviceAccount`` (pkg/apis/core/v1/conversion.go), v1.36.
"""

import zlib
from typing import Final

from clusterstate.admission.request import CREATE, Request
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.pod import MIRROR_POD

DEFAULT: Final = "default"
TOKENS_AT: Final = "/var/run/secrets/kubernetes.io/serviceaccount"
_VOLUME: Final = "kube-api-access-"
_SECONDS: Final = 3607
_MODE: Final = 0o644


def admit(request: Request) -> None:
    """Set ``serviceAccountName`` and ``serviceAccount`` of a new pod; an update changes neither."""
    spec = request.manifest.setdefault("spec", {})
    name = spec.get("serviceAccountName") or spec.get("serviceAccount")
    is_mirror = MIRROR_POD in ((request.manifest.get("metadata") or {}).get("annotations") or ())
    if request.operation != CREATE:
        name = name or ((request.old or {}).get("spec") or {}).get("serviceAccountName")
    elif not is_mirror:
        name = name or DEFAULT
    if name:
        spec["serviceAccountName"] = spec["serviceAccount"] = name
    wants_token = request.operation == CREATE and not is_mirror
    if wants_token and request.context.settings.service_account_tokens:
        _mount_token(request, spec, name or DEFAULT)


def _mount_token(request: Request, spec: Manifest, account: str) -> None:
    """Mount a token of the account in each container that mounts nothing at that path."""
    is_automounted = spec.get("automountServiceAccountToken")
    if is_automounted is None:
        found = request.context.service_account(request.namespace, account) or {}
        is_automounted = found.get("automountServiceAccountToken")
    if is_automounted is False:
        return
    volumes = spec.get("volumes") or []
    names = [one["name"] for one in volumes if one.get("name")]
    # Pods of one account have the volume by one name, so that equal pods stay equal.
    suffix = f"{zlib.crc32(f'{request.namespace}/{account}'.encode()):08x}"[:5]
    token_volume = next((one for one in names if one.startswith(_VOLUME)), None)
    name = token_volume or f"{_VOLUME}{suffix}"
    is_used = False
    for container in [*(spec.get("initContainers") or ()), *(spec.get("containers") or ())]:
        mounts = container.get("volumeMounts") or []
        if all(one.get("mountPath") != TOKENS_AT for one in mounts):
            mount = {"name": name, "readOnly": True, "mountPath": TOKENS_AT}
            container["volumeMounts"] = [*mounts, mount]
            is_used = True
    if is_used and token_volume is None:
        spec["volumes"] = [*volumes, {"name": name, "projected": _projected()}]


def without_token(manifest: Manifest) -> Manifest:
    """Return a pod without the mounted token, as its template is."""
    spec = dict(manifest["spec"])
    for field in ("initContainers", "containers"):
        if field in spec:
            spec[field] = [_unmounted(one) for one in spec[field]]
    return {**manifest, "spec": spec}


def _unmounted(container: Manifest) -> Manifest:
    mounts = container.get("volumeMounts") or []
    remaining = [
        one
        for one in mounts
        if one.get("mountPath") != TOKENS_AT or not one.get("name", "").startswith(_VOLUME)
    ]
    if len(remaining) == len(mounts):
        return container
    found = {key: one for key, one in container.items() if key != "volumeMounts"}
    return {**found, "volumeMounts": remaining} if remaining else found


def _projected() -> Manifest:
    """Return the sources of the volume: a token, the certificate of the API, the namespace."""
    certificate = {"key": "ca.crt", "path": "ca.crt"}
    namespace = {
        "path": "namespace",
        "fieldRef": {"apiVersion": "v1", "fieldPath": "metadata.namespace"},
    }
    return {
        "defaultMode": _MODE,
        "sources": [
            {"serviceAccountToken": {"expirationSeconds": _SECONDS, "path": "token"}},
            {"configMap": {"name": "kube-root-ca.crt", "items": [certificate]}},
            {"downwardAPI": {"items": [namespace]}},
        ],
    }
