"""Requests for certificates: who asks, who approves, who signs."""

import base64
import datetime as dt

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.api.bodies import CERTIFICATE_REQUEST
from tests.api.conftest import Api, make_token

REQUESTS = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
RBAC = "/apis/rbac.authorization.k8s.io/v1"
SIGNER = "example.org/signer"
CLIENTS = "kubernetes.io/kube-apiserver-client"


def asking(name="one", **spec):
    wanted = {"request": CERTIFICATE_REQUEST, "signerName": SIGNER, "usages": ["client auth"]}
    return {"metadata": {"name": name}, "spec": wanted | spec}


def condition(kind, status="True"):
    return {"type": kind, "status": status, "reason": "Test"}


def kinds(answer):
    return [one["type"] for one in answer.ok()["status"]["conditions"]]


def request_for(organization):
    name = x509.Name([x509.NameAttribute(NameOID.ORGANIZATION_NAME, organization)])
    key = ec.generate_private_key(ec.SECP256R1())
    made = x509.CertificateSigningRequestBuilder().subject_name(name).sign(key, hashes.SHA256())
    return base64.b64encode(made.public_bytes(serialization.Encoding.PEM)).decode()


def certificate():
    now = dt.datetime(2025, 1, 1, tzinfo=dt.UTC)
    key = ec.generate_private_key(ec.SECP256R1())
    made = (
        x509.CertificateBuilder().subject_name(x509.Name([])).issuer_name(x509.Name([]))
        .public_key(key.public_key()).serial_number(1).not_valid_before(now)
        .not_valid_after(now + dt.timedelta(days=1)).sign(key, hashes.SHA256())
    )  # fmt: skip
    return base64.b64encode(made.public_bytes(serialization.Encoding.PEM)).decode()


def allowed(api, name, *rules):
    """Return a user's API who may write requests, and what the rules give."""
    basic = {
        "apiGroups": ["certificates.k8s.io"], "verbs": ["*"],
        "resources": [
            "certificatesigningrequests", "certificatesigningrequests/approval",
            "certificatesigningrequests/status",
        ],
    }  # fmt: skip
    api.post(f"{RBAC}/clusterroles", {"metadata": {"name": name}, "rules": [basic, *rules]}).ok(201)
    bound = {
        "metadata": {"name": name},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": name},
        "subjects": [{"apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": name}],
    }
    api.post(f"{RBAC}/clusterrolebindings", bound).ok(201)
    return Api(make_token(name, ["team"]))


def signers(verb, name):
    return {
        "apiGroups": ["certificates.k8s.io"], "resources": ["signers"], "verbs": [verb],
        "resourceNames": [name],
    }  # fmt: skip


def test_a_request_says_who_sent_it_whatever_it_says_itself(api):
    lied = asking(username="admin", groups=["system:masters"], uid="7", extra={"a": ["b"]})
    lied["status"] = {"conditions": [condition("Approved")]}
    spec = api.post(REQUESTS, lied).ok(201)
    assert "status" not in spec or not spec["status"]
    assert spec["spec"]["username"] == "operator"
    assert set(spec["spec"]["groups"]) == {"system:masters", "system:authenticated"}
    assert spec["spec"].get("uid") != "7"
    assert "extra" not in spec["spec"] or "a" not in spec["spec"]["extra"]
    changed = api.patch(f"{REQUESTS}/one", {"spec": {"signerName": "example.org/other"}}).ok()
    assert changed["spec"]["signerName"] == SIGNER


@pytest.mark.parametrize(
    ("field", "value", "path"),
    [
        ("request", "bm8=", "spec.request"),
        ("usages", [], "spec.usages"),
        ("usages", ["client auth", "client auth"], "spec.usages[1]"),
        ("usages", ["flying"], "spec.usages[0]"),
        ("signerName", "signer", "spec.signerName"),
        ("signerName", "kubernetes.io/legacy-unknown", "spec.signerName"),
        ("expirationSeconds", 599, "spec.expirationSeconds"),
    ],
)
def test_what_cannot_be_signed_is_refused_by_its_field(api, field, value, path):
    refused = api.post(REQUESTS, asking(**{field: value})).fails(422, "Invalid")
    assert path in [cause["field"] for cause in refused["details"]["causes"]]


def test_each_way_writes_its_part_of_the_status(api):
    """The steps of Kubernetes' conformance test of this API."""
    api.post(REQUESTS, asking()).ok(201)
    one = f"{REQUESTS}/one"
    patch = {"status": {"conditions": [condition("ApprovalPatch")], "certificate": "bm8="}}
    patched = api.patch(f"{one}/approval", patch)
    assert kinds(patched) == ["ApprovalPatch"]
    assert "certificate" not in patched.json["status"]
    found = patched.json
    assert found["status"]["conditions"][0].keys() > {"lastUpdateTime", "lastTransitionTime"}
    found["status"]["conditions"].append(condition("Approved"))
    found = api.put(f"{one}/approval", found).ok()
    assert [each["type"] for each in found["status"]["conditions"]] == ["ApprovalPatch", "Approved"]

    found["status"] = {"certificate": certificate(), "conditions": [condition("Other")]}
    assert kinds(api.put(f"{one}/status", found)) == ["Other", "Approved"]
    found = api.get(one).ok()
    found["status"]["certificate"] = certificate()
    api.put(f"{one}/status", found).fails(422, "Invalid")
    api.patch(f"{one}/approval", {"status": {"conditions": []}}).fails(422, "Invalid")


@pytest.mark.parametrize(
    "conditions",
    [
        [condition("Approved"), condition("Denied")],
        [condition("Denied"), condition("Approved")],
        [condition("Approved", "False")],
        [condition("Approved"), condition("Approved")],
        [condition("")],
        [condition("Other", "Perhaps")],
    ],
)
def test_what_contradicts_itself_is_not_decided(api, conditions):
    api.post(REQUESTS, asking()).ok(201)
    patch = {"status": {"conditions": conditions}}
    api.patch(f"{REQUESTS}/one/approval", patch).fails(422, "Invalid")
    assert not (api.get(f"{REQUESTS}/one").ok().get("status") or {}).get("conditions")


@pytest.mark.parametrize("name", [SIGNER, "example.org/*"])
def test_who_approves_needs_the_right_to_for_the_signer(api, name):
    api.post(REQUESTS, asking()).ok(201)
    approved = {"status": {"conditions": [condition("Approved")]}}
    one = f"{REQUESTS}/one/approval"
    other = allowed(api, "other", signers("approve", "example.com/*"), signers("sign", SIGNER))
    refused = other.patch(one, approved).fails(403, "Forbidden")
    assert refused["message"] == (
        'certificatesigningrequests.certificates.k8s.io "one" is forbidden: user not permitted to '
        f'approve requests with signerName "{SIGNER}"'
    )
    assert kinds(allowed(api, "ann", signers("approve", name)).patch(one, approved)) == ["Approved"]


def test_who_signs_needs_the_right_to_for_the_signer(api):
    api.post(REQUESTS, asking()).ok(201)
    one = f"{REQUESTS}/one/status"
    other = allowed(api, "other", signers("approve", SIGNER))
    for status in ({"certificate": certificate()}, {"conditions": [condition("Failed")]}):
        refused = other.patch(one, {"status": status}).fails(403, "Forbidden")
        assert f'sign requests with signerName "{SIGNER}"' in refused["message"]
    assert kinds(other.patch(one, {"status": {"conditions": [condition("Seen")]}})) == ["Seen"]
    signer = allowed(api, "ann", signers("sign", SIGNER))
    assert signer.patch(one, {"status": {"certificate": certificate()}}).ok()


def test_nobody_asks_for_the_group_that_may_do_everything(api):
    wanted = asking(signerName=CLIENTS, request=request_for("system:masters"))
    refused = api.post(REQUESTS, wanted).fails(403, "Forbidden")
    assert "system:masters group is not allowed" in refused["message"]
    api.post(REQUESTS, asking(signerName=CLIENTS, request=request_for("team"))).ok(201)
