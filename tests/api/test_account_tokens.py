"""Tokens of service accounts: who they stand for, for whom they are meant, and when they end."""

import base64
import json
import time
from io import StringIO

import jwt
import pytest
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import ec
from django.core.management import CommandError, call_command

from api import clock
from api.access import auth
from clusterstate.access import accounts
from clusterstate.access.accounts import ISSUER
from clusterstate.actions.cluster import default_roles
from clusterstate.actions.people import signing_keys as signing_keys_actions
from clusterstate.database import sql
from clusterstate.queries.people.tokens import signing_keys
from tests.api.builders import pod
from tests.api.conftest import Api, make_token
from tests.clock import NOW, after

pytestmark = pytest.mark.django_db(transaction=True)

ACCOUNTS = "/api/v1/namespaces/ns/serviceaccounts"
WHO = "/apis/authentication.k8s.io/v1/selfsubjectreviews"
REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"


@pytest.fixture
def robot(api, monkeypatch):
    """A service account, and the default roles by which everybody may ask who they are."""
    monkeypatch.setattr(clock, "now", lambda: NOW)
    default_roles.reconcile(now=NOW)
    return api.post(ACCOUNTS, {"metadata": {"name": "robot"}}).ok(201)


def asked(api, name="robot", **spec):
    return api.post(f"{ACCOUNTS}/{name}/token", {"spec": spec})


def reviewed(api, token, *audiences):
    spec = {"token": token, "audiences": list(audiences)}
    return api.post(REVIEWS, {"spec": spec}).ok(201)["status"]


def works(token):
    auth.tokens.forget()
    return Api(token).post(WHO, {}).status == 201


def test_a_token_stands_for_its_account(api, robot):
    made = asked(api).ok(201)
    token = made["status"]["token"]
    assert made["spec"] == {"audiences": [ISSUER], "expirationSeconds": 3600}
    assert made["metadata"] == {"name": "robot", "namespace": "ns"}
    info = Api(token).post(WHO, {}).ok(201)["status"]["userInfo"]
    assert info["username"] == "system:serviceaccount:ns:robot"
    assert info["uid"] == robot["metadata"]["uid"]
    assert info["groups"] == [
        "system:serviceaccounts", "system:serviceaccounts:ns", "system:authenticated",
    ]  # fmt: skip
    assert info["extra"]["authentication.kubernetes.io/credential-id"][0].startswith("JTI=")
    claims = jwt.decode(token, options={"verify_signature": False})
    assert claims["kubernetes.io"] == {
        "namespace": "ns",
        "serviceaccount": {"name": "robot", "uid": robot["metadata"]["uid"]},
    }


def test_an_account_may_what_a_binding_to_it_or_to_its_group_gives(api, robot):
    token = asked(api).ok(201)["status"]["token"]
    one = Api(token)
    one.get("/api/v1/namespaces/ns/pods").fails(403, "Forbidden")
    path = "/apis/rbac.authorization.k8s.io/v1/namespaces/ns/rolebindings"
    role = {"kind": "ClusterRole", "name": "view"}
    subject = {"kind": "ServiceAccount", "name": "robot"}
    body = {"metadata": {"name": "b"}, "roleRef": role, "subjects": [subject]}
    api.post(path, body).ok(201)
    one.get("/api/v1/namespaces/ns/pods").ok()
    api.delete(f"{path}/b").ok()
    one.get("/api/v1/namespaces/ns/pods").fails(403, "Forbidden")
    group = {"kind": "Group", "name": "system:serviceaccounts:ns"}
    api.post(path, {**body, "subjects": [group]}).ok(201)
    one.get("/api/v1/namespaces/ns/pods").ok()


def test_a_token_ends_with_its_time(api, robot, monkeypatch):
    token = asked(api, expirationSeconds=600).ok(201)["status"]["token"]
    assert works(token)
    monkeypatch.setattr(clock, "now", lambda: after(599))
    assert works(token)
    monkeypatch.setattr(clock, "now", lambda: after(601))
    assert not works(token)
    monkeypatch.setattr(clock, "now", lambda: after(-60))
    assert not works(token), "nor before it was made"


def test_a_token_ends_with_its_account_and_is_not_that_of_the_next(api, robot):
    token = asked(api).ok(201)["status"]["token"]
    api.delete(f"{ACCOUNTS}/robot").ok()
    assert not works(token)
    api.post(ACCOUNTS, {"metadata": {"name": "robot"}}).ok(201)
    assert not works(token)


def test_a_bound_token_ends_with_its_pod(api, robot):
    pods = "/api/v1/namespaces/ns/pods"
    api.post(pods, pod("p", serviceAccountName="robot")).ok(201)
    reference = {"kind": "Pod", "apiVersion": "v1", "name": "p"}
    token = asked(api, boundObjectRef=reference).ok(201)["status"]["token"]
    assert works(token)
    info = Api(token).post(WHO, {}).ok(201)["status"]["userInfo"]
    assert info["extra"]["authentication.kubernetes.io/pod-name"] == ["p"]
    asked(api, boundObjectRef={**reference, "uid": "other"}).fails(409, "Conflict")
    asked(api, boundObjectRef={**reference, "name": "q"}).fails(404, "NotFound")
    asked(api, boundObjectRef={**reference, "kind": "Service"}).fails(400, "BadRequest")
    api.post(pods, pod("other")).ok(201)
    asked(api, boundObjectRef={**reference, "name": "other"}).fails(400, "BadRequest")
    api.delete(f"{pods}/p?gracePeriodSeconds=0").ok()
    assert not works(token)


BOUND = {
    "ServiceAccount": (ACCOUNTS, {"metadata": {"name": "bound"}}),
    "Pod": ("/api/v1/namespaces/ns/pods", pod("bound", serviceAccountName="bound")),
    "Secret": ("/api/v1/namespaces/ns/secrets", {"metadata": {"name": "bound"}}),
    "Node": ("/api/v1/nodes", {"metadata": {"name": "bound"}}),
}


@pytest.mark.parametrize("kind", BOUND)
def test_what_waits_for_its_finalizers_ends_its_tokens_in_a_minute(api, robot, monkeypatch, kind):
    """Rule: pkg/serviceaccount/claims.go (``jwt.DefaultLeeway``), v1.36."""
    if kind != "ServiceAccount":
        api.post(ACCOUNTS, {"metadata": {"name": "bound"}}).ok(201)
    path, body = BOUND[kind]
    metadata = {**body["metadata"], "finalizers": ["example.com/stays"]}
    api.post(path, {**body, "metadata": metadata}).ok(201)
    reference = {"kind": kind, "apiVersion": "v1", "name": "bound"}
    spec = {} if kind == "ServiceAccount" else {"boundObjectRef": reference}
    token = asked(api, "bound", **spec).ok(201)["status"]["token"]
    api.delete(f"{path}/bound?gracePeriodSeconds=0").ok()
    assert api.get(f"{path}/bound").ok()["metadata"]["deletionTimestamp"]
    status = asked(api, "bound", **spec).fails(409, "Conflict")
    assert '"bound": it is being deleted' in status["message"]
    monkeypatch.setattr(clock, "now", lambda: after(59))
    assert works(token)
    monkeypatch.setattr(clock, "now", lambda: after(61))
    assert not works(token)
    assert reviewed(api, token)["error"] == "invalid bearer token"


def test_a_pod_has_its_token_until_its_grace_period_is_over(api, robot, monkeypatch):
    pods = "/api/v1/namespaces/ns/pods"
    api.post("/api/v1/nodes", {"metadata": {"name": "n"}}).ok(201)
    api.post(pods, pod("p", serviceAccountName="robot", nodeName="n")).ok(201)
    reference = {"kind": "Pod", "apiVersion": "v1", "name": "p"}
    token = asked(api, boundObjectRef=reference).ok(201)["status"]["token"]
    api.delete(f"{pods}/p?gracePeriodSeconds=40").ok()
    asked(api, boundObjectRef=reference).fails(409, "Conflict")
    monkeypatch.setattr(clock, "now", lambda: after(99))
    assert works(token)
    monkeypatch.setattr(clock, "now", lambda: after(101))
    assert not works(token)


def test_a_token_for_others_is_not_good_here(api, robot):
    token = asked(api, audiences=["vault", "bank"]).ok(201)["status"]["token"]
    assert not works(token)
    assert reviewed(api, token) == {"user": {}, "error": "invalid bearer token"}
    assert reviewed(api, token, "shop") == {"user": {}, "error": "invalid bearer token"}
    found = reviewed(api, token, "bank", "shop")
    assert (found["authenticated"], found["audiences"]) == (True, ["bank"])
    assert found["user"]["username"] == "system:serviceaccount:ns:robot"


def test_a_review_knows_other_tokens_as_well(api, robot):
    found = reviewed(api, make_token("ann", ["team"]))
    assert found["authenticated"] is True
    assert found["user"]["username"] == "ann"
    assert found["user"]["groups"] == ["team", "system:authenticated"]
    assert reviewed(api, "nobody")["error"] == "invalid bearer token"
    assert "authenticated" not in reviewed(api, make_token("bob", []), "vault")
    api.post(REVIEWS, {"spec": {}}).fails(422, "Invalid")


@pytest.mark.parametrize("seconds", [599, 0, -1, 2**33])
def test_too_short_and_too_long_lives_are_refused(api, robot, seconds):
    status = asked(api, expirationSeconds=seconds).fails(422, "Invalid")
    assert "spec.expirationSeconds" in status["message"]


def test_only_who_may_gets_a_token(api, robot):
    ann = Api(make_token("ann", ["team"]))
    status = asked(ann).fails(403, "Forbidden")
    assert 'cannot create resource "serviceaccounts/token"' in status["message"]
    asked(api, "nobody").fails(404, "NotFound")
    api.get(f"{ACCOUNTS}/robot/token").fails(405, "MethodNotAllowed")


def forged(token, **changes):
    """Return the token with other claims or another header, under the signature that it had."""
    head, body, signature = token.split(".")
    for part in changes:
        text = head if part == "head" else body
        value = json.loads(base64.urlsafe_b64decode(text + "=="))
        value |= changes[part]
        new = base64.urlsafe_b64encode(json.dumps(value).encode()).decode().rstrip("=")
        head, body = (new, body) if part == "head" else (head, new)
    return f"{head}.{body}.{signature}"


def test_what_the_cluster_did_not_sign_is_not_good(api, robot):
    token = asked(api).ok(201)["status"]["token"]
    assert works(token)
    claims = jwt.decode(token, options={"verify_signature": False})
    (key,) = signing_keys()
    another = ec.generate_private_key(ec.SECP256R1())
    public = serialization.load_pem_private_key(key.private_key.encode(), None).public_key()
    pem = public.public_bytes(
        serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo
    )
    for bad in (
        forged(token, body={"sub": "system:serviceaccount:kube-system:root"}),
        forged(token, head={"alg": "none"}),
        forged(token, head={"kid": "x"}),
        jwt.encode(claims, another, algorithm="ES256", headers={"kid": key.id}),
        jwt.encode(claims, "", algorithm="none", headers={"kid": key.id}),
        jwt.encode({**claims, "iss": "me"}, key.private_key, "ES256", {"kid": key.id}),
        jwt.encode({**claims, "sub": "system:serviceaccount:ns:x"}, key.private_key, "ES256",
                   {"kid": key.id}),
        jwt.encode({k: v for k, v in claims.items() if k != "exp"}, key.private_key, "ES256",
                   {"kid": key.id}),
        f"{base64.urlsafe_b64encode(b'[' * 30_000).decode().rstrip('=')}.{token.split('.', 1)[1]}",
        f"{token}.x", token[:-4], "a.b.c", "..", f"{pem.decode()[:9].strip()}..",
    ):  # fmt: skip
        assert not works(bad), bad


@pytest.fixture
def forgetful(monkeypatch):
    """Processes that look for keys anew at each token, as others do after some seconds."""
    monkeypatch.setattr(accounts, "REMEMBER_SECONDS", 0.0)


def keys(*action):
    """Return the lines of ``manage.py signingkeys``, each as words."""
    output = StringIO()
    call_command("signingkeys", *action, stdout=output)
    return [line.split() for line in output.getvalue().splitlines()]


def test_a_key_is_followed_by_another_and_withdrawn_later(api, robot, forgetful):
    assert keys() == [["no", "key", "yet:", "it", "is", "made", "with", "the", "first", "token"]]
    first = asked(api).ok(201)["status"]["token"]
    asked(api).ok(201)
    ((old, *_, use),) = keys()
    assert use == "signs"
    (new, *_, use), (other, *_, other_use) = keys("rotate")
    assert (use, other, other_use) == ("signs", old, "checks")
    second = asked(api).ok(201)["status"]["token"]
    assert jwt.get_unverified_header(first)["kid"] == old
    assert jwt.get_unverified_header(second)["kid"] == new
    assert works(first)
    assert works(second)
    ((only, *_),) = keys("withdraw", old)
    assert only == new
    assert not works(first)
    assert works(second)
    keys("withdraw", new)
    assert not works(second)
    assert works(asked(api).ok(201)["status"]["token"])


def test_a_process_forgets_a_key_that_was_withdrawn_elsewhere(api, robot, monkeypatch):
    token = asked(api).ok(201)["status"]["token"]
    assert works(token)
    sql.run("DELETE FROM signing_key")
    assert works(token)  # for some seconds
    now = time.monotonic() + accounts.REMEMBER_SECONDS
    monkeypatch.setattr(accounts.time, "monotonic", lambda: now)
    assert not works(token)


def test_keys_are_bounded_and_wrong_commands_are_refused(api, robot):
    for _ in range(signing_keys_actions.MOST):
        keys("rotate")
    for action, why in (
        (("rotate",), "withdraw one of them"), (("withdraw",), "needs the id"),
        (("withdraw", "x"), "no key 'x'"), (("list", "x"), "the other actions take no id"),
    ):  # fmt: skip
        with pytest.raises(CommandError, match=why):
            call_command("signingkeys", *action)
    assert len(signing_keys()) == signing_keys_actions.MOST


def test_others_check_tokens_by_the_published_keys(api, robot):
    made = asked(api, audiences=["vault"]).ok(201)["status"]["token"]
    keys("rotate")
    second = asked(api, audiences=["vault"]).ok(201)["status"]["token"]
    account = Api(asked(api).ok(201)["status"]["token"])
    found = account.get("/.well-known/openid-configuration")
    assert found.headers["Content-Type"] == "application/json"
    about = json.loads(found.raw)
    assert about["issuer"] == ISSUER
    assert about["jwks_uri"] == "https://testserver/openid/v1/jwks"
    found = account.get("/openid/v1/jwks", accept="application/jwk-set+json")
    assert found.headers["Content-Type"] == "application/jwk-set+json"
    known = jwt.PyJWKSet.from_json(found.raw.decode())
    for token in (made, second):
        key = known[jwt.get_unverified_header(token)["kid"]]
        claims = jwt.decode(
            token, key, algorithms=about["id_token_signing_alg_values_supported"],
            audience="vault", issuer=about["issuer"], options={"verify_exp": False,
            "verify_nbf": False, "verify_iat": False},
        )  # fmt: skip
        assert claims["sub"] == "system:serviceaccount:ns:robot"


@pytest.mark.parametrize("path", ["/.well-known/openid-configuration", "/openid/v1/jwks"])
def test_only_who_may_reads_the_published_keys(api, robot, path):
    for slash in ("", "/"):
        assert api.get(path + slash).status == 200
        Api(make_token("ann", ["team"])).get(path + slash).fails(403, "Forbidden")
        Api("").get(path + slash).fails(401, "Unauthorized")
    api.post(path, {}).fails(405, "MethodNotAllowed")


def test_no_private_part_of_a_key_is_published(api, robot):
    asked(api).ok(201)
    (key,) = json.loads(api.get("/openid/v1/jwks").raw)["keys"]
    assert set(key) == {"kty", "crv", "x", "y", "use", "alg", "kid"}


def test_attestations_are_refused(api, robot):
    status = asked(api, attestations={"example.com/a": ["b"]}).fails(422, "Invalid")
    (cause,) = status["details"]["causes"]
    assert (cause["field"], cause["reason"]) == ("spec.attestations", "FieldValueForbidden")
