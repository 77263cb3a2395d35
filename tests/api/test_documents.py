"""What the server says about itself."""

import json
import re
import threading

import pytest
from django.db import connection
from django.http import HttpRequest
from django.urls import get_resolver, resolve

from api.description import descriptions, openapi, openapi3
from api.server import health, health_texts
from clusterstate.actions.loops.progress import Reporter
from clusterstate.database import sql
from clusterstate.health import progress
from clusterstate.objects.registry import wire_types
from clusterstate.objects.registry.kinds import ALL_KINDS, VIEWS
from tests.api.conftest import Api, make_token
from tests.health_parts import parts_now
from tests.waiting import until


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
    for kind in (*ALL_KINDS, *VIEWS.values()):
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


AGGREGATED = (
    "application/json;g=apidiscovery.k8s.io;v=v2;as=APIGroupDiscoveryList,"
    "application/json;g=apidiscovery.k8s.io;v=v2beta1;as=APIGroupDiscoveryList,application/json"
)


@pytest.mark.parametrize(
    ("accept", "version"),
    [(AGGREGATED, "v2"), (AGGREGATED.split(",")[0], "v2"), (AGGREGATED.split(",")[1], "v2beta1")],
)
def test_discovery_in_one_answer_says_what_all_documents_say(api, accept, version):
    for path, root in (("/api", "/api"), ("/apis", "/apis")):
        answer = api.get(path, accept=accept)
        assert answer.status == 200
        assert answer.headers["Content-Type"] == (
            f"application/json;g=apidiscovery.k8s.io;v={version};as=APIGroupDiscoveryList"
        )
        listed = json.loads(answer.raw)
        assert listed["apiVersion"] == f"apidiscovery.k8s.io/{version}"
        for group in listed["items"]:
            name = group["metadata"]["name"]
            for one in group["versions"]:
                place = f"{root}/{name}/{one['version']}" if name else f"{root}/{one['version']}"
                said = {e["name"]: e for e in api.get(place).ok()["resources"]}
                found = {}
                for entry in one["resources"]:
                    found[entry["resource"]] = entry
                    for sub in entry.get("subresources", ()):
                        found[f"{entry['resource']}/{sub['subresource']}"] = sub
                assert found.keys() == said.keys()
                for resource, entry in found.items():
                    assert entry["verbs"] == said[resource]["verbs"]
                    assert entry["responseKind"]["kind"] == said[resource]["kind"]
    names = {group["metadata"]["name"] for group in listed["items"]}
    assert names == {group["name"] for group in api.get("/apis").ok()["groups"]}


def test_each_document_of_openapi_v3_is_where_the_index_says(api):
    index = api.get("/openapi/v3").ok()["paths"]
    versions = {"api/v1"} | {
        f"apis/{version['groupVersion']}"
        for group in api.get("/apis").ok()["groups"]
        for version in group["versions"]
    }
    assert index.keys() == versions
    named = set()
    for key, place in index.items():
        answer = api.get(place["serverRelativeURL"])
        assert answer.headers["Cache-Control"] == "public, immutable"
        again = api.get(f"/openapi/v3/{key}", HTTP_IF_NONE_MATCH=answer.headers["ETag"])
        assert (again.status, again.raw) == (304, b"")
        document = answer.ok()
        assert document["openapi"] == "3.0.0"
        schemas = document["components"]["schemas"]
        assert set(re.findall(r'"#/components/schemas/([^"]+)"', answer.raw.decode())) <= set(
            schemas
        )
        for path, item in document["paths"].items():
            given = {one["name"] for one in item["parameters"] if one["in"] == "path"}
            assert given == set(re.findall(r"{(\w+)}", path))
            for method, operation in item.items():
                if method != "parameters":
                    assert operation["operationId"] not in named
                    named.add(operation["operationId"])
    api.get("/openapi/v3/apis/none/v1").fails(404, "NotFound")
    api.get("/openapi/v3", token="").fails(401, "Unauthorized")
    asked = "application/com.github.proto-openapi.spec.v3@v1.0+protobuf"
    api.get("/openapi/v3/api/v1", accept=asked).fails(406, "NotAcceptable")


def test_openapi_v3_has_every_operation_of_every_kind():
    for kind in (*ALL_KINDS, *VIEWS.values()):
        paths = openapi3.document(kind.group, kind.version)["paths"]
        found = {path: item.keys() - {"parameters"} for path, item in paths.items()}
        root = f"/apis/{kind.group}/{kind.version}" if kind.group else f"/api/{kind.version}"
        base = f"{root}/namespaces/{{namespace}}" if kind.namespaced else root
        assert found[f"{root}/{kind.plural}"] >= {"get"}
        together = {"delete"} if kind.deleted_together else set()
        assert found[f"{base}/{kind.plural}"] == {"get", "post"} | together
        assert found[f"{base}/{kind.plural}/{{name}}"] == {"get", "put", "patch", "delete"}
        for subresource in kind.subresources:
            assert found[f"{base}/{kind.plural}/{{name}}/{subresource}"]
        patch = paths[f"{base}/{kind.plural}/{{name}}"]["patch"]
        assert patch["x-kubernetes-group-version-kind"] == {
            "group": kind.group, "version": kind.version, "kind": kind.name,
        }  # fmt: skip
        assert {"dryRun", "fieldValidation"} <= {one["name"] for one in patch["parameters"]}


def test_openapi_v3_has_the_paths_of_stowage_dev_that_are_served():
    """Each path of the document leads to a view, and each view of the group has a path."""
    paths = openapi3.document("stowage.dev", "v1")["paths"]
    views = {
        str(pattern.pattern): pattern
        for pattern in get_resolver().url_patterns
        if "stowage\\.dev" in str(pattern.pattern)
    }
    reached = set()
    for path, item in paths.items():
        filled = re.sub(r"{\w+}", "x", path)
        view = resolve(filled)
        reached.add(view.route)
        assert item.keys() - {"parameters"} == view.func.actions.keys(), path
    assert reached == views.keys()


def test_openapi_v3_has_the_same_patch_rules_as_version_2():
    """kubectl from 1.27 on patches by version 3, and would keep what was removed without them."""
    old = {
        (name, field): {key: value for key, value in schema.items() if "patch" in key}
        for name, definition in openapi.document()["definitions"].items()
        for field, schema in definition.get("properties", {}).items()
    }
    seen = set()
    for kind in ALL_KINDS:
        document = openapi3.document(kind.group, kind.version)
        for name, schema in document["components"]["schemas"].items():
            for field, member in schema.get("properties", {}).items():
                if (name, field) in old:
                    rules = {key: value for key, value in member.items() if "patch" in key}
                    assert rules == old[name, field], (name, field)
                    seen.add(name)
    assert "io.k8s.api.core.v1.PodSpec" in seen


def test_every_kind_and_every_field_is_explained():
    for kind in ALL_KINDS:
        schemas = openapi3.document(kind.group, kind.version)["components"]["schemas"]
        for name, schema in schemas.items():
            assert schema["description"], name
            if name.endswith("List"):
                continue
            if name != "io.k8s.apimachinery.pkg.apis.meta.v1.Status":
                for field, member in schema.get("properties", {}).items():
                    assert member["description"] or "$ref" in member, (name, field)
    assert descriptions.of_field("X", "hostIPs", "a list") == "Host IPs: a list."


def test_types_and_fields_are_explained_in_kubernetes_own_words():
    pods = openapi3.document("", "v1")["components"]["schemas"]["io.k8s.api.core.v1.PodSpec"]
    assert pods["description"] == "PodSpec is a description of a pod."
    assert pods["properties"]["tolerations"]["description"] == (
        "If specified, the pod's tolerations."
    )


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
        for field, schema in definition.get("properties", {}).items()
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


def test_openapi_names_every_type_as_kubernetes_does():
    assert [name for name in openapi.document()["definitions"] if "io.k8s." not in name] == []
    assert (
        "io.k8s.api.scheduling.v1alpha3.CompositePodGroupSchedulingConstraints"
        in wire_types.DEFINITIONS.values()
    )


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


def test_openapi_lets_items_of_lists_be_tried_dry_which_name_no_kind():
    """``kubectl drain --dry-run=server`` of 1.20 asks by the kind of an item."""
    nameless = {"group": "", "version": "", "kind": ""}
    ((path, patch),) = (
        (path, item["patch"])
        for path, item in openapi.document()["paths"].items()
        if item["patch"]["x-kubernetes-group-version-kind"] == nameless
    )
    assert path == "/api/v1/namespaces/{namespace}/pods/{name}/status"
    assert [parameter["name"] for parameter in patch["parameters"]] == ["dryRun"]


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
        response = health.ready(HttpRequest(), parts_now)
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
    assert "[-] timers: its database session has ended" in text


def test_readiness_names_one_of_several_schedulers_that_keeps_its_pods_and_does_nothing(
    api, settings
):
    settings.ACTIVE_SCHEDULERS = 3

    def last_line():
        return health.ready(HttpRequest(), parts_now).content.decode().splitlines()[-1]

    for loop in (*progress.LOOPS, "scheduler-1"):  # the third one is not there, or has ended
        Reporter(loop).note()
    assert last_line() == "ready"
    sql.run("UPDATE loop_progress SET at = at - interval '9 s' WHERE name = 'scheduler-1'")
    assert last_line() == "not ready: scheduler-1"
    sql.run("UPDATE loop_progress SET backend_start = now() WHERE name = 'scheduler-1'")
    assert last_line() == "ready"  # its session has ended, so the others decide its pods


def test_readiness_is_asked_without_a_token(api):
    answer = api.get("/readyz", token="")
    assert answer.status == 503
    assert b"[+] web ok" in answer.raw


def test_health_is_asked_as_kubernetes_has_it(api, reader):
    ask = [health.Part("web"), health.Part("database"), health.Part("scheduler", "is late")]

    def readyz(query):
        return health_texts.of("readyz", ask, query)

    status, text = readyz("verbose")
    first = "[+]web ok\n[+]database ok\n[-]scheduler failed: is late\n[+]ping ok\n[+]etcd ok\n"
    assert (status, text[: len(first)]) == (503, first)
    assert text.endswith("[+]autoregister-completion ok\n[+]shutdown ok\nreadyz check failed\n")
    lines = set(text.splitlines())
    hooks = "start-apiextensions-controllers", "rbac/bootstrap-roles", "storage-readiness"
    assert {f"[+]poststarthook/{name} ok" for name in hooks} <= lines
    assert readyz("exclude=scheduler") == (200, "[+] web ok\n[+] database ok\nready\n")
    status, text = readyz("verbose=1&exclude=scheduler&exclude=etcd&exclude=none")
    assert (status, text.splitlines()[:6], text.splitlines()[-2:]) == (200, [
        "[+]web ok", "[+]database excluded: ok", "[+]scheduler excluded: ok", "[+]ping ok",
        "[+]etcd excluded: ok", "[+]etcd-readiness excluded: ok",
    ], [
        'warn: some health checks cannot be excluded: no matches for "none"',
        "readyz check passed",
    ])  # fmt: skip
    assert "[+]poststarthook/rbac/bootstrap-roles excluded: ok" in text.splitlines()
    for path in ("/livez", "/healthz"):
        answer = api.get(f"{path}?verbose", token="")
        first, *_, last, _ = answer.raw.decode().split("\n")
        assert (answer.status, first, last) == (200, "[+]ping ok", f"{path[1:]} check passed")
        for name in ("ping", "etcd", "poststarthook/rbac/bootstrap-roles"):
            answer = api.get(f"{path}/{name}")
            assert (answer.status, answer.raw) == (200, b"ok")
        api.get(f"{path}/none").fails(404, "NotFound")
        api.get(f"{path}/ping", token="").fails(401, "Unauthorized")
        reader.get(f"{path}/ping").fails(403, "Forbidden")
    assert health_texts.of_one(ask, "etcd") == (200, "ok")
    lost = [health.Part("web"), health.Part("database", "does not answer"), health.Part("log")]
    status, text = health_texts.of("livez", health_texts.alive(lost), "verbose")
    assert (status, text.splitlines()[:3]) == (
        200, ["[+]ping ok", "[+]log ok", "[+]etcd ok (does not answer)"]
    )  # fmt: skip
    assert health_texts.of_one(lost, "poststarthook/rbac/bootstrap-roles")[0] == 503
    assert health_texts.of_one(ask, "scheduler") == (503, "is late\n")
    assert Api(make_token("prometheus", ["system:monitoring"])).get("/readyz/ping").status == 200


def test_without_redis_the_service_is_ready_and_says_what_is_slower(db, settings):
    settings.REDIS_URL = "unix:///nowhere/redis.sock"
    for loop in progress.LOOPS:
        Reporter(loop).note()
    response = health.ready(HttpRequest(), parts_now)
    assert response.status_code == 200
    assert "[!] redis: does not answer" in response.content.decode()


def test_a_check_that_fails_is_named_and_the_others_are_asked(db, monkeypatch):
    def _followers():
        raise ValueError("a bug")
        yield

    monkeypatch.setattr(health, "CHECKS", [_followers, *health.CHECKS])
    text = health.ready(HttpRequest(), parts_now).content.decode()
    assert "[-] followers: cannot tell (ValueError)" in text
    assert "[+] database ok" in text


@pytest.fixture
def lookout(db, monkeypatch):
    """A thread that looks, and what holds up its checks: of the database, and of the others."""
    database, others = threading.Event(), threading.Event()
    database.set()

    def needed():
        assert database.wait(20)
        connection.ensure_connection()
        yield health.Part("database")

    def slow():
        assert others.wait(20)
        yield health.Part("redis")

    monkeypatch.setattr(health, "CHECKS", [needed, slow])
    monkeypatch.setattr(health, "_WITHOUT_DATABASE", (slow,))
    monkeypatch.setattr(health, "_EVERY_SECONDS", 0.02)
    found = health._Lookout()
    yield found, database, others
    database.set()
    others.set()
    found.end()


def names(parts):
    return [part.name for part in parts if not part.problem]


def test_what_is_needed_is_known_while_another_check_is_slow(lookout):
    found, _, others = lookout
    until(lambda: names(found.latest()) == ["web", "database"], seconds=10)
    others.set()
    until(lambda: names(found.latest()) == ["web", "database", "redis"], seconds=10)


def test_a_session_that_fails_has_the_database_looked_at_at_once(lookout, monkeypatch):
    found, _, others = lookout
    monkeypatch.setattr(health, "_EVERY_SECONDS", 60.0)
    others.set()
    until(lambda: names(found.latest()) == ["web", "database", "redis"], seconds=10)
    began = found._began_at
    found.look()
    until(lambda: found._began_at > began, seconds=10)


def test_a_database_that_does_not_answer_is_told_of_and_one_that_nobody_asked_is_not(
    lookout, monkeypatch
):
    monkeypatch.setattr(health, "_TOO_OLD_SECONDS", 0.2)
    found, database, others = lookout
    until(lambda: names(found.latest()) == ["web", "database"], seconds=10)
    # The thread is held up by something else.
    (web,) = until(lambda: [one for one in found.latest() if one.problem], seconds=10)
    assert web.name == "web"
    assert "has not looked for" in web.problem
    database.clear()
    others.set()
    until(lambda: [one.name for one in found.latest() if one.problem] == ["database"], seconds=10)
    assert "does not answer for" in found.latest()[1].problem
    database.set()
    until(lambda: names(found.latest()) == ["web", "database", "redis"], seconds=10)


def test_metrics_are_for_those_who_may_read_them(api, reader, settings):
    api.get("/metrics", token="").fails(401, "Unauthorized")
    reader.get("/metrics").fails(403, "Forbidden")
    shown = api.get("/metrics").raw
    for name in (b"apiserver_request_total", b"stowage_watermark_age_seconds 0.0",
                 b"stowage_scheduler_behind_revisions"):  # fmt: skip
        assert name in shown
    assert Api(make_token("prometheus", ["system:monitoring"])).get("/metrics").status == 200
    settings.METRICS_OPEN = True
    assert b"apiserver_request_total" in api.get("/metrics", token="").raw
