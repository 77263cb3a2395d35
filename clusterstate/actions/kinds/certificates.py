"""Writing CertificateSigningRequests: to approve or sign needs a right for that signer.

A user who changes the conditions by /approval needs the verb ``approve`` on the signer that the
request names, or on its whole domain (``signers``, ``example.com/*``); one who writes a certificate
or a failure by /status, the verb ``sign``. A request to the signer of API clients cannot be for
``system:masters``. Rules: plugin/pkg/admission/certificates (approval, signing, subjectrestriction)
and pkg/apis/certificates/authorization, v1.36.
"""

import base64
from datetime import datetime
from typing import Final

from cryptography import x509
from cryptography.x509.oid import NameOID

from clusterstate.access import authorizer
from clusterstate.access.rules import Attributes
from clusterstate.actions.writing import Writer
from clusterstate.admission.request import NOBODY, User
from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.values import document
from clusterstate.objects.values.errors import Forbidden
from clusterstate.objects.values.meta import Manifest

CLIENTS: Final = "kubernetes.io/kube-apiserver-client"
_FAILED: Final = "Failed"


class CertificateWriter(Writer):
    """Requests for certificates."""

    def permit(
        self, kind: Kind, new: Manifest, old: Manifest | None, user: User, subresource: str = ""
    ) -> None:
        """Raise Forbidden if the user may not approve, sign or request this certificate."""
        signer = (new.get("spec") or {}).get("signerName") or ""
        if old is None:
            if signer == CLIENTS and authorizer.MASTERS in _organizations(new["spec"]):
                raise _forbidden(
                    kind,
                    new,
                    f"use of {CLIENTS} signer with system:masters group is not allowed",
                )
            return
        if user == NOBODY:
            return
        before, after = old.get("status") or {}, new.get("status") or {}
        if subresource == "approval":
            verb, doing = "approve", "approve"
        elif subresource == "status" and _signed(before) != _signed(after):
            verb, doing = "sign", "sign"
        else:
            return
        if not _may(user, verb, signer):
            reason = f'user not permitted to {doing} requests with signerName "{signer}"'
            raise _forbidden(kind, new, reason)

    def settle(self, new: Manifest, old: Manifest | None, now: datetime) -> Manifest:
        """Return the request with times set on new or changed conditions."""
        conditions = (new.get("status") or {}).get("conditions") or []
        old_conditions = {
            one.get("type"): one
            for one in ((old or {}).get("status") or {}).get("conditions") or ()
        }
        if all(one == old_conditions.get(one.get("type")) for one in conditions):
            return new
        moment = document.format_time(now)
        dated = []
        for one in conditions:
            before = old_conditions.get(one.get("type"))
            same = before is not None and before.get("status") == one.get("status")
            since = before.get("lastTransitionTime") if before is not None and same else None
            dated.append({"lastUpdateTime": moment, "lastTransitionTime": since or moment, **one})
        return {**new, "status": {**new["status"], "conditions": dated}}


def _signed(status: Manifest) -> tuple[object, list[Manifest]]:
    """Return the parts that only a signer writes: certificate and failures."""
    failures = [one for one in status.get("conditions") or () if one.get("type") == _FAILED]
    return status.get("certificate"), failures


def _may(user: User, verb: str, signer: str) -> bool:
    """Return whether a user has a verb on a signer, or on all signers of its domain."""
    names = (signer, f"{signer.partition('/')[0]}/*")
    return any(
        authorizer.decide(
            user, Attributes(verb, "certificates.k8s.io", "signers", name=name)
        ).allowed
        for name in names
    )


def _organizations(spec: Manifest) -> list[str]:
    """Return the groups of a requested certificate; none if the request does not decode."""
    try:
        found = x509.load_pem_x509_csr(base64.b64decode(spec.get("request") or ""))
        return [
            str(one.value)
            for one in found.subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)
        ]
    except ValueError:
        return []


def _forbidden(kind: Kind, request: Manifest, reason: str) -> Forbidden:
    name = request["metadata"]["name"]
    details = {"group": kind.group, "kind": kind.plural, "name": name}
    return Forbidden(f'{kind.resource} "{name}" is forbidden: {reason}', details)
