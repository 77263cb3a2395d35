"""CertificateSigningRequest: the requester is the authenticated user, whatever the body has.

A signer reads ``spec.username`` and other fields to decide for whom a certificate is, so a new
request gets those of its sender. Missing times of conditions are filled in. Rule:
pkg/registry/certificates/certificates/strategy.go, v1.36.
"""

from clusterstate.admission.request import CREATE, Request
from clusterstate.objects.values.meta import Manifest

_ASKED_BY = ("username", "uid", "groups", "extra")


def admit(request: Request) -> None:
    """Write the requesting user into a new request."""
    if request.operation != CREATE:
        return
    user = request.user
    spec: Manifest = request.manifest.setdefault("spec", {})
    for field in _ASKED_BY:
        spec.pop(field, None)
    if user.name:
        spec["username"] = user.name
    if user.uid:
        spec["uid"] = user.uid
    if user.groups:
        spec["groups"] = list(user.groups)
    if user.extra:
        spec["extra"] = {key: list(values) for key, values in user.extra}
