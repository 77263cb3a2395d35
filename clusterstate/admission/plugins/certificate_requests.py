"""CertificateSigningRequest: the requester is the authenticated user, not what the body says.

A signer reads ``spec.username`` and the like to decide whom a certificate is for, so a new request
has there who sent it, and nothing else. When a condition was set is filled in where a client leaves
it out. Rule: pkg/registry/certificates/certificates/strategy.go, v1.36.
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
