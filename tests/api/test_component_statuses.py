"""``kubectl get componentstatuses``, and objects asked for in namespaces that are not there."""

import pytest

from api.server import health
from clusterstate.objects.registry.kinds import ALL_KINDS
from tests.api.conftest import TABLE

PATH = "/api/v1/componentstatuses"


@pytest.fixture
def parts(monkeypatch):
    found = [health.Part("database"), health.Part("scheduler", "is late")]
    monkeypatch.setattr(health, "latest", lambda: found)


def test_components_are_listed_as_kubernetes_names_them(api, parts):
    listed = api.get(PATH).ok()
    assert (listed["kind"], listed["apiVersion"]) == ("ComponentStatusList", "v1")
    assert [one["metadata"]["name"] for one in listed["items"]] == [
        "controller-manager", "etcd-0", "scheduler",
    ]  # fmt: skip
    one = api.get(f"{PATH}/etcd-0").ok()
    assert one["kind"] == "ComponentStatus"
    assert one["conditions"] == [{"type": "Healthy", "status": "True", "message": "ok"}]
    assert api.get(f"{PATH}/scheduler").ok()["conditions"] == [
        {"type": "Healthy", "status": "False", "error": "is late"}
    ]
    status = api.get(f"{PATH}/none").fails(404, "NotFound")
    assert status["message"] == 'componentstatuses "none" not found'
    table = api.get(PATH, accept=TABLE).ok()
    assert [one["name"] for one in table["columnDefinitions"]] == [
        "Name", "Status", "Message", "Error",
    ]  # fmt: skip
    assert table["rows"][1]["cells"] == ["etcd-0", "Healthy", "ok", ""]
    resources = {one["name"]: one for one in api.get("/api/v1").ok()["resources"]}
    assert resources["componentstatuses"]["shortNames"] == ["cs"]
    api.post(PATH, {}).fails(405, "MethodNotAllowed")


@pytest.mark.parametrize(
    "kind", [one for one in ALL_KINDS if one.namespaced], ids=lambda one: one.name
)
def test_an_object_in_a_namespace_that_is_not_there_is_what_is_not_found(api, kind):
    root = f"/apis/{kind.api_version}" if kind.group else "/api/v1"
    one = f"{root}/namespaces/none/{kind.plural}/x"
    for path in (one, *(f"{one}/{sub}" for sub in kind.subresources if sub in ("status", "scale"))):
        status = api.get(path).fails(404, "NotFound")
        assert status["message"] == f'{kind.resource} "x" not found'
        assert (status["details"]["name"], status["details"]["kind"]) == ("x", kind.plural)
    for answer in (api.delete(one), api.patch(one, {"metadata": {"labels": {"a": "b"}}})):
        assert answer.fails(404, "NotFound")["message"] == f'{kind.resource} "x" not found'
