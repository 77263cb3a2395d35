"""Reading the past over HTTP: ``at``, Exact, their forms, their rights, and where they end."""

from datetime import timedelta
from typing import Any

import pytest

from api import clock
from clusterstate.actions import objects
from clusterstate.actions.past import history, housekeeping
from clusterstate.database import sql
from clusterstate.objects.values.document import format_time
from clusterstate.queries.scheduler import decisions
from scheduling.controllers.nodes import lifecycle
from tests.api.conftest import TABLE, Api, make_token

pytestmark = pytest.mark.django_db(transaction=True)

PODS = "/api/v1/namespaces/ns/pods"
STOWAGE = "/apis/stowage.dev/v1"
NODES = "/api/v1/nodes"
PARTIAL = "application/json;as=PartialObjectMetadataList;v=v1;g=meta.k8s.io"
HOUR = timedelta(hours=1)


@pytest.fixture(autouse=True)
def kept(settings: Any) -> None:
    settings.PAST_HOURS = 168


@pytest.fixture
def hours(monkeypatch: pytest.MonkeyPatch) -> Any:
    """Let an hour pass on the clock of the API; the first one begins three hours ago."""
    passed = [clock.now() - 3 * HOUR]

    def pass_one() -> str:
        passed[0] += HOUR
        return format_time(passed[0] - HOUR / 2)

    monkeypatch.setattr(clock, "now", lambda: passed[0])
    return pass_one


def label(api: Api, zone: str) -> Any:
    return api.patch(f"{NODES}/n1", {"metadata": {"labels": {"zone": zone}}}).ok()


@pytest.fixture
def then(api: Api, hours: Any) -> str:
    """A moment at which n1 was in zone a, and n2 was there; then the log forgets it."""
    first = api.post(NODES, {"metadata": {"name": "n1", "labels": {"zone": "a"}}}).ok(201)
    api.post(NODES, {"metadata": {"name": "n2"}}).ok(201)
    moment: str = hours()
    label(api, "b")
    api.delete(f"{NODES}/n2").ok()
    hours()
    api.version = first["metadata"]["resourceVersion"]  # type: ignore[attr-defined]
    history.trim(now=clock.now(), keep_seconds=0)
    return moment


def names(answer: Any) -> list[str]:
    return [item["metadata"]["name"] for item in answer["items"]]


def test_an_object_is_read_as_it_was(api: Api, then: str) -> None:
    assert api.get(f"{NODES}/n1").ok()["metadata"]["labels"]["zone"] == "b"
    assert api.get(f"{NODES}/n1?at={then}").ok()["metadata"]["labels"]["zone"] == "a"
    assert api.get(f"{NODES}/n1?at=90m").ok()["metadata"]["labels"]["zone"] == "a"
    assert api.get(f"{NODES}/n1?at=90").ok()["metadata"]["labels"]["zone"] == "a"
    assert api.get(f"{NODES}/n1?at=0s").ok()["metadata"]["labels"]["zone"] == "b"
    api.get(f"{NODES}/n2").fails(404, "NotFound")
    assert api.get(f"{NODES}/n2?at={then}").ok()["metadata"]["name"] == "n2"
    assert api.get(f"{NODES}/n2/status?at={then}").ok()["metadata"]["name"] == "n2"
    api.get(f"{NODES}/n3?at={then}").fails(404, "NotFound")


def test_a_list_is_read_as_it_was_in_every_form_and_in_pages(api: Api, then: str) -> None:
    assert names(api.get(NODES).ok()) == ["n1"]
    found = api.get(f"{NODES}?at={then}").ok()
    assert names(found) == ["n1", "n2"]
    assert names(api.get(f"{NODES}?at={then}&labelSelector=zone%3Da").ok()) == ["n1"]
    assert names(api.get(f"{NODES}?at={then}&fieldSelector=metadata.name%3Dn2").ok()) == ["n2"]
    table = api.get(f"{NODES}?at={then}", accept=TABLE).ok()
    assert [row["cells"][0] for row in table["rows"]] == ["n1", "n2"]
    age = [one["name"] for one in table["columnDefinitions"]].index("Age")
    assert [row["cells"][age] for row in table["rows"]] == ["30m", "30m"]
    partial = api.get(f"{NODES}?at={then}", accept=PARTIAL).ok()
    assert names(partial) == ["n1", "n2"]
    first = api.get(f"{NODES}?at={then}&limit=1").ok()
    token = first["metadata"]["continue"]
    rest = api.get(f"{NODES}?at={then}&limit=1&continue={token}").ok()
    assert [names(first), names(rest)] == [["n1"], ["n2"]]
    assert rest["metadata"]["resourceVersion"] == found["metadata"]["resourceVersion"]


def test_exactly_a_revision_is_read_after_the_log_forgot_it(api: Api, then: str) -> None:
    exact = f"resourceVersion={api.version}&resourceVersionMatch=Exact"  # type: ignore[attr-defined]
    found = api.get(f"{NODES}?{exact}").ok()
    assert [item["metadata"]["labels"]["zone"] for item in found["items"]] == ["a"]
    assert api.get(f"{NODES}/n1?{exact}").ok()["metadata"]["labels"]["zone"] == "a"
    api.get(f"{NODES}/n2?{exact}").fails(404, "NotFound")
    beyond = f"resourceVersion={1 << 50}&resourceVersionMatch=Exact"
    api.get(f"{NODES}/n1?{beyond}").fails(504, "Timeout")
    api.get(f"{NODES}/n1?resourceVersionMatch=Exact").fails(422, "Invalid")


def test_what_is_not_known_is_told_to_be_gone(api: Api, then: str) -> None:
    long_ago = "at=2020-01-01T00:00:00Z"
    api.get(f"{NODES}?{long_ago}").fails(410, "Expired")
    api.get(f"{NODES}/n1?{long_ago}").fails(410, "Expired")
    api.get(f"/api/v1/namespaces/ns/events?at={then}").fails(410, "Expired")
    leases = "/apis/coordination.k8s.io/v1/namespaces/ns/leases"
    api.get(f"{leases}/l?at={then}").fails(410, "Expired")


@pytest.mark.every_variant
@pytest.mark.parametrize("at", ["yesterday", "", "-5", "2026-01-31", "999999d", "10w"])
def test_a_moment_that_cannot_be_read_is_refused(api: Api, at: str) -> None:
    api.get(f"{NODES}?at={at}").fails(400, "BadRequest")
    api.get(f"{NODES}/n1?at={at}").fails(400, "BadRequest")


def test_a_moment_to_come_is_refused(api: Api) -> None:
    to_come = format_time(clock.now() + timedelta(minutes=1))
    api.get(f"{NODES}?at={to_come}").fails(400, "BadRequest")


def test_what_keeps_no_past_says_so_and_names_itself(api: Api) -> None:
    for path, what in (
        ("webhooks", "webhooks"), ("plans", "plans"), ("brakes", "brakes"),
        ("evictions", "evictions"), ("waitingtimes", "waitingtimes"), ("headroom", "headroom"),
        ("waitinggroups", "waitinggroups"), ("waitingpods", "waitingpods"),
        ("canaries", "canaries"),
    ):  # fmt: skip
        for asked in ("at=1m", "resourceVersion=1&resourceVersionMatch=Exact"):
            message = api.get(f"{STOWAGE}/{path}?{asked}").fails(400, "BadRequest")["message"]
            name = asked.split("&")[-1].partition("=")[0]
            assert message.startswith(f"{name}: no former states of {what} are kept: ")
    api.post(f"{STOWAGE}/simulations?at=1m", {"spec": {}}).fails(400, "BadRequest")
    exact = "resourceVersion=1&resourceVersionMatch=Exact"
    message = api.get(f"{STOWAGE}/decisions?{exact}").fails(400, "BadRequest")["message"]
    assert "use the parameter at" in message


def test_zones_are_told_as_they_were_though_the_log_forgot_it(api: Api, hours: Any) -> None:
    """In a two of six nodes are not ready, and one of them waits; in b three of four: too many."""
    ready = {"a": (True, True, True, True, False, False), "b": (True, False, False, False)}
    for zone, nodes in ready.items():
        for number, is_ready in enumerate(nodes):
            condition = {"type": "Ready", "status": str(is_ready)}
            labels = {"topology.kubernetes.io/zone": zone}
            node = {
                "metadata": {"name": f"{zone}{number}", "labels": labels},
                "status": {"conditions": [condition]},
            }
            objects.create("Node", "", node, now=clock.now())
    lifecycle.run(clock.now())
    told = api.get(f"{STOWAGE}/zones").ok()
    tokens = [one["status"].pop("tokens") for one in told["items"]]
    assert [one["status"] for one in told["items"]] == [
        {"state": "Normal", "taintsPerSecond": 0.1},
        {"state": "PartialDisruption", "taintsPerSecond": 0.0},
    ]
    assert (len(told["waitingNodes"]), tokens) == (4, [0.0, 0.0])
    moment = hours()
    for number in range(3):
        api.delete(f"{NODES}/b{number}").ok()
    lifecycle.run(clock.now())
    hours()
    history.trim(now=clock.now(), keep_seconds=0)
    exact = f"resourceVersion={told['metadata']['resourceVersion']}&resourceVersionMatch=Exact"
    for asked in (f"at={moment}", exact):
        assert api.get(f"{STOWAGE}/zones?{asked}").ok() == told
    now = api.get(f"{STOWAGE}/zones?at=0s").ok()
    assert [one["status"]["state"] for one in now["items"]] == ["Normal", "FullDisruption"]
    api.get(f"{STOWAGE}/zones?at=2020-01-01T00:00:00Z").fails(410, "Expired")


def test_a_trail_is_read_as_far_as_it_went(api: Api, hours: Any) -> None:
    def versions(query: str = "") -> list[str]:
        found = api.get(f"{STOWAGE}/changes?kind=Node&name=n1{query}").ok()
        assert found["complete"] is True
        return [item["resourceVersion"] for item in found["items"]]

    api.post(NODES, {"metadata": {"name": "n1", "labels": {"zone": "a"}}}).ok(201)
    label(api, "b")
    first = hours()
    before = versions()
    label(api, "c")
    second = hours()
    whole = versions()
    assert (len(before), len(whole)) == (2, 3)
    assert versions(f"&at={first}") == before
    assert versions(f"&at={second}") == whole
    exact = f"&resourceVersion={before[0]}&resourceVersionMatch=Exact"
    assert versions(exact) == before
    api.delete(f"{NODES}/n1").ok()
    hours()
    assert versions(f"&at={first}") == before
    # The log forgets it, and the same is told from what is packed.
    hours()
    history.trim(now=clock.now(), keep_seconds=0)
    assert versions(f"&at={first}") == before
    assert versions(f"&at={second}") == whole
    path = f"{STOWAGE}/changes?kind=Node&name=n1"
    api.get(f"{path}&at=2020-01-01T00:00:00Z").fails(410, "Expired")
    api.get(f"{STOWAGE}/changes?cause=0a0f9e1e-1111-4111-8111-111111111111&at=1m").fails(
        400, "BadRequest"
    )


def test_what_selected_is_counted_as_it_was(api: Api, hours: Any) -> None:
    def selected(query: str = "") -> dict[str, tuple[Any, ...]]:
        items = api.get(f"{STOWAGE}/selections{query}").ok()["items"]
        return {
            one["metadata"]["name"]: (
                one["spec"]["selector"], one["status"].get("pods"), one["status"].get("nodes"),
            )
            for one in items
        }  # fmt: skip

    def pod(name: str, **spec: Any) -> Any:
        labels = {"app": "a"}
        spec |= {"containers": [{"name": "c", "image": "i"}]}
        api.post(PODS, {"metadata": {"name": name, "labels": labels}, "spec": spec}).ok(201)

    api.post(NODES, {"metadata": {"name": "n1", "labels": {"zone": "a"}}}).ok(201)
    tainted = {"taints": [{"key": "k", "effect": "NoSchedule"}]}
    api.post(
        NODES, {"metadata": {"name": "n2", "labels": {"zone": "a"}}, "spec": tainted}
    ).ok(201)  # fmt: skip
    kata = {"metadata": {"name": "kata"}, "handler": "h"}
    kata["scheduling"] = {"nodeSelector": {"zone": "a"}}
    classes = "/apis/node.k8s.io/v1/runtimeclasses"
    api.post(classes, kata).ok(201)
    service = {
        "metadata": {"name": "s"},
        "spec": {"ports": [{"port": 1}], "selector": {"app": "a"}},
    }
    api.post("/api/v1/namespaces/ns/services", service).ok(201)
    pod("one")
    pod("two", runtimeClassName="kata")
    now = selected()
    assert now == {"service.s": ("app=a", 2, None), "runtimeclass.kata": ("zone=a", 1, 1)}
    assert selected("?at=0s") == now
    nodes = "/apis/node.k8s.io/v1/runtimeclasses/kata/nodes"
    assert names(api.get(nodes).ok()) == ["n1"]
    then = hours()
    label(api, "b")
    for name in ("one", "two"):
        api.delete(f"{PODS}/{name}", {"gracePeriodSeconds": 0}).ok()
    assert selected() == {"service.s": ("app=a", 0, None), "runtimeclass.kata": ("zone=a", 0, 0)}
    assert names(api.get(nodes).ok()) == []
    assert selected(f"?at={then}") == now
    assert names(api.get(f"{nodes}?at={then}").ok()) == ["n1"]
    hours()
    history.trim(now=clock.now(), keep_seconds=0)
    assert selected(f"?at={then}") == now
    assert names(api.get(f"{nodes}?at={then}").ok()) == ["n1"]


def configure(api: Api, seconds: int) -> None:
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration",
        "podInitialBackoffSeconds": seconds,
    }  # fmt: skip
    api.put(f"{STOWAGE}/schedulerconfiguration", document).ok()


def test_the_configuration_is_told_that_was_in_force(api: Api, hours: Any) -> None:
    path = f"{STOWAGE}/schedulerconfiguration"
    moments = []
    for number in (5, 7):
        configure(api, number)
        moments.append(hours())
    now = api.get(path).ok()
    assert now["podInitialBackoffSeconds"] == 7
    then = api.get(f"{path}?at={moments[1]}").ok()
    assert then == {key: value for key, value in now.items() if key != "status"}
    assert api.get(f"{path}?at={moments[0]}").ok()["podInitialBackoffSeconds"] == 5


def test_a_configuration_that_was_dropped_is_not_taken_for_the_default_one(
    api: Api, hours: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    for module in (housekeeping, decisions):
        monkeypatch.setattr(module, "CONFIGURATIONS_KEPT", 1)
    sql.run("ALTER SEQUENCE scheduler_configuration_revision_seq RESTART")
    path, moments = f"{STOWAGE}/schedulerconfiguration", [hours()]
    for number in (5, 6, 7):
        configure(api, number)
        moments.append(hours())
    assert api.get(f"{path}?at={moments[0]}").ok()["metadata"]["resourceVersion"] == "0"
    housekeeping.drop_leftovers(now=clock.now() + 1000 * HOUR)
    for moment in moments[:3]:
        api.get(f"{path}?at={moment}").fails(410, "Expired")
    assert api.get(f"{path}?at={moments[3]}").ok()["podInitialBackoffSeconds"] == 7


def test_only_reads_may_be_about_the_past(api: Api, then: str) -> None:
    at = f"at={then}"
    api.post(f"{NODES}?{at}", {"metadata": {"name": "n3"}}).fails(400, "BadRequest")
    api.patch(f"{NODES}/n1?{at}", {"metadata": {"labels": {"a": "b"}}}).fails(400, "BadRequest")
    api.delete(f"{NODES}/n1?{at}").fails(400, "BadRequest")
    api.get(f"{NODES}?{at}&resourceVersion=1").fails(400, "BadRequest")
    assert names(api.get(NODES).ok()) == ["n1"]


def test_the_past_is_read_by_the_rights_of_now(api: Api, then: str) -> None:
    reader = Api(make_token("reader", ["stowage:readers"]))
    reader.get(f"{NODES}/n2?at={then}").ok()
    reader.get(f"/api/v1/namespaces/ns/secrets?at={then}").fails(403, "Forbidden")
    reader.get(f"/api/v1/namespaces/ns/secrets/s?at={then}").fails(403, "Forbidden")


def test_a_node_reads_what_its_pods_were_and_no_others(api: Api, hours: Any) -> None:
    for name in ("n1", "n2"):
        api.post(NODES, {"metadata": {"name": name}}).ok(201)
        spec = {"nodeName": name, "containers": [{"name": "c", "image": "i"}]}
        api.post(PODS, {"metadata": {"name": f"on-{name}"}, "spec": spec}).ok(201)
    moment = hours()
    for name in ("n1", "n2"):
        api.delete(f"{PODS}/on-{name}", {"gracePeriodSeconds": 0}).ok()
    node = Api(make_token("system:node:n1", ["system:nodes"]))
    assert node.get(f"{PODS}/on-n1?at={moment}").ok()["spec"]["nodeName"] == "n1"
    node.get(f"{PODS}/on-n2?at={moment}").fails(403, "Forbidden")
    node.get(f"{PODS}/no-pod?at={moment}").fails(403, "Forbidden")
    node.get(f"{PODS}/on-n2?resourceVersion=1&resourceVersionMatch=NotOlderThan").fails(
        403, "Forbidden"
    )
