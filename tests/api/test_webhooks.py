"""Webhooks over HTTP: made, changed, deleted, and what is told of them."""

from typing import Any

import pytest

from clusterstate.queries.people import webhooks
from tests.api.conftest import Api, make_token

pytestmark = pytest.mark.django_db(transaction=True)

WEBHOOKS = "/apis/stowage.dev/v1/webhooks"


@pytest.fixture(autouse=True)
def allowed(settings: Any) -> None:
    settings.WEBHOOK_TARGETS = ["hooks.example", "*.inside.example", "10.0.0.0/8"]


def hook(**spec: Any) -> Any:
    spec = {"url": "https://hooks.example/x", "types": ["bind", "evict"], **spec}
    return {"metadata": {"name": "hook"}, "spec": spec}


def test_a_webhook_is_made_read_changed_and_deleted_and_its_secret_is_never_told(api: Api) -> None:
    made = api.post(WEBHOOKS, hook(secret="s3cret", labelSelector="a=b")).ok(201)
    assert made["kind"] == "Webhook"
    assert made["spec"] == {
        "url": "https://hooks.example/x", "types": ["bind", "evict"], "labelSelector": "a=b",
        "maxBatch": 1,
    }  # fmt: skip
    assert api.get(f"{WEBHOOKS}/hook").ok() == made
    assert api.get(WEBHOOKS).ok()["items"] == [made]
    made["spec"]["types"] = ["preempt"]
    changed = api.put(f"{WEBHOOKS}/hook", made).ok()
    assert changed["spec"]["types"] == ["preempt"]
    api.put(f"{WEBHOOKS}/hook", made).fails(409, "Conflict")
    stored = webhooks.find("hook")
    assert stored is not None
    assert stored.secret == "s3cret"
    for path in ("", "/hook", "/hook/deliveries"):
        assert b"s3cret" not in api.get(f"{WEBHOOKS}{path}").raw
    assert api.get(f"{WEBHOOKS}/hook/deliveries").ok()["items"] == []
    again = {"since": changed["status"]["cursor"]}
    assert api.post(f"{WEBHOOKS}/hook/replay", again).ok(201)["status"]["cursor"] == again["since"]
    too_new = {"since": str(1 << 50)}
    api.post(f"{WEBHOOKS}/hook/replay", too_new).fails(410, "Expired")
    api.post(f"{WEBHOOKS}/none/replay", too_new).fails(404, "NotFound")
    api.delete(f"{WEBHOOKS}/hook").ok()
    api.get(f"{WEBHOOKS}/hook").fails(404, "NotFound")
    api.delete(f"{WEBHOOKS}/hook").fails(404, "NotFound")


def test_without_a_secret_one_is_made_and_told_once(api: Api) -> None:
    made = api.post(WEBHOOKS, hook()).ok(201)
    assert made["spec"]["secret"].startswith("whsec_")
    assert "secret" not in api.get(f"{WEBHOOKS}/hook").ok()["spec"]
    api.post(WEBHOOKS, hook()).fails(409, "AlreadyExists")


@pytest.mark.parametrize(
    ("spec", "said"),
    [
        ({"url": "ftp://hooks.example"}, "spec.url"),
        ({"url": "https://user:pass@hooks.example"}, "spec.url"),
        ({"url": "https://elsewhere.example"}, ""),
        ({"url": "http://169.254.169.254/latest"}, "STOWAGE_WEBHOOK_TARGETS"),
        ({"url": "http://127.0.0.1/"}, "STOWAGE_WEBHOOK_TARGETS"),
        ({"url": "http://[::1]/"}, "STOWAGE_WEBHOOK_TARGETS"),
        ({"types": []}, "spec.types"),
        ({"types": ["odd"]}, "spec.types[0]"),
        ({"kinds": ["Node"]}, "spec.kinds"),
        ({"types": ["change"]}, "spec.kinds"),
        ({"types": ["change"], "kinds": ["Odd"]}, "spec.kinds[0]"),
        ({"maxBatch": 0}, "spec.maxBatch"),
        ({"labelSelector": "=="}, "spec.labelSelector"),
        ({"odd": 1}, "odd"),
        ({"types": ["bind", "bind"]}, "spec.types[1]"),
        ({"types": ["change"], "kinds": ["Pod", "Pod"]}, "spec.kinds[1]"),
        ({"namespace": "A b"}, "spec.namespace"),
        ({"node": "n" * 254}, "spec.node"),
        ({"secret": "x" * 1025}, "spec.secret"),
        ({"maxBatch": 10**30}, "maxBatch"),
    ],
)
def test_what_cannot_be_meant_is_refused_with_the_field(api: Api, spec: Any, said: str) -> None:
    if not said:  # a name may stand for an allowed network; only when it is sent to is that known
        api.post(WEBHOOKS, hook(**spec)).ok(201)
        return
    status = api.post(WEBHOOKS, hook(**spec)).fails(400, "BadRequest")
    assert said in status["message"]
    assert webhooks.every() == []


def test_the_path_of_a_url_is_shown_to_those_who_may_change_it_alone(api: Api) -> None:
    api.post(WEBHOOKS, hook(url="https://hooks.example/services/T0/key")).ok(201)
    reader = Api(make_token("reader", ["stowage:readers"]))
    assert reader.get(f"{WEBHOOKS}/hook").ok()["spec"]["url"] == "https://hooks.example:443/..."
    assert api.get(f"{WEBHOOKS}/hook").ok()["spec"]["url"].endswith("/services/T0/key")


def test_where_nothing_is_allowed_no_webhook_is_made(api: Api, settings: Any) -> None:
    settings.WEBHOOK_TARGETS = []
    status = api.post(WEBHOOKS, hook()).fails(400, "BadRequest")
    assert "STOWAGE_WEBHOOK_TARGETS" in status["message"]


def test_only_who_may_watch_what_it_tells_of_makes_a_webhook(api: Api) -> None:
    reader = Api(make_token("reader", ["stowage:readers"]))
    reader.post(WEBHOOKS, hook()).fails(403, "Forbidden")
    rules = [{"apiGroups": ["stowage.dev"], "resources": ["webhooks"], "verbs": ["create"]}]
    roles = "/apis/rbac.authorization.k8s.io/v1"
    api.post(f"{roles}/clusterroles", {"metadata": {"name": "r"}, "rules": rules}).ok(201)
    binding = {
        "metadata": {"name": "r"},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "r"},
        "subjects": [{"kind": "User", "name": "ann", "apiGroup": "rbac.authorization.k8s.io"}],
    }
    api.post(f"{roles}/clusterrolebindings", binding).ok(201)
    ann = Api(make_token("ann", []))
    ann.post(WEBHOOKS, hook()).fails(403, "Forbidden")
