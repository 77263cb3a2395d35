"""What the server says about itself."""

import json
import re

import pytest
from django.http import HttpRequest

from api import health, openapi
from clusterstate import progress, sql
from clusterstate.actions.progress import Reporter
from clusterstate.objects import wire_types
from clusterstate.objects.kinds import ALL_KINDS
from tests.api.conftest import Api, make_token


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


ASKED = "application/com.github.proto-openapi.spec.v2@v1.0+protobuf"


def test_openapi_is_protobuf_that_go_can_read_unless_json_is_asked_for(api):
    answer = api.get("/openapi/v2?timeout=32s", accept=ASKED)
    assert answer.status == 200
    assert answer.raw[:5] == b"\x0a\x032.0"
    assert "@" not in answer.headers["Content-Type"]
    again = api.get("/openapi/v2", accept=ASKED, HTTP_IF_NONE_MATCH=answer.headers["ETag"])
    assert (again.status, again.raw) == (304, b"")
    assert api.get("/openapi/v2").ok()["swagger"] == "2.0"
    api.get("/openapi/v2", token="").fails(401, "Unauthorized")


def test_openapi_has_the_patch_rules_of_every_list_that_merges():
    """A document without them makes apply keep what was removed."""
    definitions = openapi.document()["definitions"]
    found = {
        (name.rsplit(".", 1)[1], field): (
            schema.get("x-kubernetes-patch-merge-key", ""),
            schema["x-kubernetes-patch-strategy"],
        )
        for name, definition in definitions.items()
        for field, schema in definition["properties"].items()
        if "x-kubernetes-patch-strategy" in schema
    }
    served = {name.rsplit(".", 1)[1] for name in definitions}
    expected = {
        (name, field): rule
        for name, rules in wire_types.PATCH.items()
        if name in served
        for field, rule in rules.items()
    }
    assert found == expected
    assert found["PodSpec", "containers"] == ("name", "merge")
    assert ("NodeSpec", "taints") not in found


def test_openapi_names_every_kind_and_that_it_can_be_tried_dry():
    document = openapi.document()
    key = "x-kubernetes-group-version-kind"
    kinds = {
        (gvk["group"], gvk["kind"])
        for definition in document["definitions"].values()
        for gvk in definition.get(key, ())
    }
    operations = {
        (item["patch"][key]["group"], item["patch"][key]["kind"]): item["patch"]
        for item in document["paths"].values()
    }
    for kind in ALL_KINDS:
        assert (kind.group, kind.name) in kinds
        parameters = operations[kind.group, kind.name]["parameters"]
        assert [parameter["name"] for parameter in parameters] == ["dryRun"]


def test_openapi_references_are_all_defined():
    document = openapi.document()
    text = json.dumps(document)
    for name in re.findall(r'"#/definitions/([^"]+)"', text):
        assert name in document["definitions"]


def test_liveness_needs_no_token(api):
    for path in ("/healthz", "/livez", "/healthz/"):
        answer = api.get(path, token="")
        assert (answer.status, answer.raw) == (200, b"ok")


def test_readiness_names_the_part_that_fails(api):
    # The look itself, on this thread: the rows are not committed.
    def ready():
        response = health.ready(HttpRequest(), health.look)
        return response.status_code, response.content.decode()

    status, text = ready()
    assert status == 503
    assert "[+] database ok" in text
    assert "[-] scheduler: has not worked yet" in text
    for loop in progress.LOOPS:
        Reporter(loop).note()
    assert (ready()[0], ready()[1].splitlines()[-1]) == (200, "ready")
    sql.run("UPDATE loop_progress SET at = at - interval '9 s' WHERE name = 'scheduler'")
    status, text = ready()
    assert (status, text.splitlines()[-1]) == (503, "not ready: scheduler")
    assert "[-] scheduler: has not worked for 9 s" in text
    Reporter("scheduler").note()
    sql.run("UPDATE loop_progress SET backend_start = now() - interval '9 s' WHERE name = 'timers'")
    status, text = ready()
    assert (status, text.splitlines()[-1]) == (503, "not ready: timers")
    assert "[-] timers: its session of the database has ended" in text


def test_readiness_is_asked_without_a_token(api):
    answer = api.get("/readyz", token="")
    assert answer.status == 503
    assert b"[+] web ok" in answer.raw


def test_without_redis_the_service_is_ready_and_says_what_is_slower(db, settings):
    settings.REDIS_URL = "unix:///nowhere/redis.sock"
    for loop in progress.LOOPS:
        Reporter(loop).note()
    response = health.ready(HttpRequest(), health.look)
    assert response.status_code == 200
    assert "[!] redis: does not answer" in response.content.decode()


def test_a_check_that_fails_is_named_and_the_others_are_asked(db, monkeypatch):
    def _followers():
        raise ValueError("a bug")
        yield

    monkeypatch.setattr(health, "CHECKS", [_followers, *health.CHECKS])
    text = health.ready(HttpRequest(), health.look).content.decode()
    assert "[-] followers: cannot tell (ValueError)" in text
    assert "[+] database ok" in text


def test_metrics_are_for_those_who_may_read_them(api, reader, settings):
    api.get("/metrics", token="").fails(401, "Unauthorized")
    reader.get("/metrics").fails(403, "Forbidden")
    shown = api.get("/metrics").raw
    for name in (b"stowage_requests_total", b"stowage_watermark_age_seconds 0.0",
                 b"stowage_scheduler_behind_revisions"):  # fmt: skip
        assert name in shown
    assert Api(make_token("prometheus", ["system:monitoring"])).get("/metrics").status == 200
    settings.METRICS_OPEN = True
    assert b"stowage_requests_total" in api.get("/metrics", token="").raw
