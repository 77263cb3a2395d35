"""What the server says about itself."""

import pytest

from clusterstate.objects.kinds import ALL_KINDS


@pytest.mark.parametrize("path", ["/version", "/version/"])
def test_version_has_the_nine_texts_that_clients_require(api, path):
    version = api.get(path).ok()
    for key in ("major", "minor", "gitVersion", "gitCommit", "gitTreeState", "buildDate",
                "goVersion", "compiler", "platform"):  # fmt: skip
        assert isinstance(version[key], str)


def test_every_kind_is_found_by_discovery(api):
    api.get("/api").ok()
    groups = {group["name"]: group for group in api.get("/apis?timeout=32s").ok()["groups"]}
    assert {"apps", "policy", "node.k8s.io", "scheduling.k8s.io", "authorization.k8s.io"} <= set(
        groups
    )
    for kind in ALL_KINDS:
        path = f"/apis/{kind.api_version}" if kind.group else "/api/v1"
        listed = {entry["name"]: entry for entry in api.get(path).ok()["resources"]}
        entry = listed[kind.plural]
        assert (entry["kind"], entry["namespaced"]) == (kind.name, kind.namespaced)
        assert {"create", "delete", "get", "list", "patch", "update", "watch"} <= set(
            entry["verbs"]
        )


def test_no_group_version_is_empty_and_all_have_the_required_fields(api):
    versions = ["/api/v1"]
    for group in api.get("/apis").ok()["groups"]:
        versions += [f"/apis/{version['groupVersion']}" for version in group["versions"]]
        assert api.get(f"/apis/{group['name']}").ok()["kind"] == "APIGroup"
    for path in versions:
        body = api.get(path).ok()
        assert body["kind"] == "APIResourceList"
        assert body["resources"]
        for entry in body["resources"]:
            assert {"name", "singularName", "namespaced", "kind", "verbs"} <= set(entry)


def test_subresources_say_what_they_speak(api):
    core = {entry["name"]: entry for entry in api.get("/api/v1").ok()["resources"]}
    assert core["pods/binding"]["kind"] == "Binding"
    assert (core["pods/eviction"]["kind"], core["pods/eviction"]["group"]) == ("Eviction", "policy")
    apps = {entry["name"]: entry for entry in api.get("/apis/apps/v1").ok()["resources"]}
    scale = apps["deployments/scale"]
    assert (scale["kind"], scale["group"], scale["version"]) == ("Scale", "autoscaling", "v1")


def test_openapi_is_an_empty_document_that_go_can_read(api):
    asked = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"
    answer = api.get("/openapi/v2?timeout=32s", accept=asked)
    assert (answer.status, answer.raw) == (200, b"")
    assert "@" not in answer.headers["Content-Type"]


def test_liveness_needs_no_token(api):
    for path in ("/healthz", "/livez", "/healthz/"):
        answer = api.get(path, token="")
        assert (answer.status, answer.raw) == (200, b"ok")


def test_readiness_names_the_part_that_fails(api, redis_client):
    answer = api.get("/readyz", token="")
    assert answer.status == 503
    assert b"[+] database ok" in answer.raw
    assert b"[-] scheduler: no heartbeat" in answer.raw
    for part in ("scheduler", "worker", "timers", "beat"):
        redis_client.set(f"stowage:heartbeat:{part}", "alive")
    answer = api.get("/readyz", token="")
    assert (answer.status, answer.raw.splitlines()[-1]) == (200, b"ready")


def test_metrics_are_for_loopback_and_for_those_who_may_do_everything(api, reader):
    assert b"stowage_requests_total" in api.get("/metrics", token="").raw
    away = {"REMOTE_ADDR": "192.0.2.1"}
    api.get("/metrics", token="", **away).fails(401, "Unauthorized")
    reader.get("/metrics", **away).fails(403, "Forbidden")
    assert api.get("/metrics", **away).status == 200
