"""Nobody reads of namespaces that are not theirs: every path and every page, searched for a name.

What lies in the foreign namespace has ``hinterland`` in its name, wherever somebody chooses one.
Pods there preempt pods of the namespace ``mine``, make room for them, keep them off and wait.
"""

from collections.abc import Iterator
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.test import Client

from api import resources
from clusterstate.objects.registry.kinds import ALL_KINDS
from tests.api.bodies import body_of
from tests.api.conftest import TABLE, Api, Runner, make_token
from tests.builders import PodBuilder, make_node, make_pod
from tests.console import served

pytestmark = pytest.mark.django_db(transaction=True)

WORD = "hinterland"
RBAC = "rbac.authorization.k8s.io"
OWN = "/apis/stowage.dev/v1"
OF_STORED = ("", "?limit=500", "?at={at}", "?watch=false&labelSelector=app")
OF_OWN = (
    *OF_STORED, "?format=table&explain=full", "?explain=full", "?world=now", "?world=then",
    "?remedies=true", "?landing=true", "?namespace=mine", "?overlapping=true", "?by=namespace",
    "?by=priority", "?kind=Pod&namespace=mine&name={pod}", "?cause={uid}",
    "?kind=Pod&namespace=mine&name={pod}&format=table",
)  # fmt: skip
World = dict[str, Any]


def create(api: Api, pod: PodBuilder, namespace: str, priority: str = "low") -> None:
    manifest = pod.in_namespace(namespace).manifest
    manifest["spec"]["priorityClassName"] = priority
    api.post(f"/api/v1/namespaces/{namespace}/pods", manifest).ok(201)


def pod_for(node: str, name: str, cpu: str) -> PodBuilder:
    return make_pod(name).asks(cpu=cpu).selects({"kubernetes.io/hostname": node})


def paths_of(kind: Any, namespace: str) -> str:
    root = f"/apis/{kind.api_version}" if kind.group else "/api/v1"
    return f"{root}/namespaces/{namespace}/{kind.plural}"


@pytest.fixture
def world(api: Api) -> World:
    """Two namespaces whose pods meet on the nodes; an object of nearly every kind in one."""
    for name in ("mine", WORD):
        api.post("/api/v1/namespaces", {"metadata": {"name": name}}).ok(201)
    for name in ("acre-1", "acre-2", "acre-3"):
        api.post("/api/v1/nodes", make_node(name).offers(cpu="4", pods="20").manifest).ok(201)
    for name, value in (("low", 1), ("high", 100), ("highest", 1000)):
        given = {"metadata": {"name": name}, "value": value}
        api.post("/apis/scheduling.k8s.io/v1/priorityclasses", given).ok(201)
    for kind in ALL_KINDS:
        if kind.namespaced and kind.name not in ("Pod", "ResourceQuota", "LimitRange"):
            body = body_of(kind, WORD)
            body["metadata"]["namespace"] = WORD
            if kind.name == "Event":
                body["involvedObject"] = {"kind": "Pod", "namespace": WORD, "name": WORD}
            assert api.post(paths_of(kind, WORD), body).status in (201, 409), kind.name
    runner = Runner()
    create(api, pod_for("acre-1", f"{WORD}-weak", "3").labelled(app="sought"), WORD)
    create(api, pod_for("acre-2", "weak", "3"), "mine")
    create(api, pod_for("acre-3", f"{WORD}-still", "3").labelled(app="sought"), WORD, "highest")
    runner.turn()
    # Mine makes room among theirs, and theirs among mine.
    create(api, pod_for("acre-1", "strong", "4"), "mine", "high")
    create(api, pod_for("acre-2", f"{WORD}-strong", "4"), WORD, "high")
    runner.turn()
    create(api, make_pod("waits").asks(cpu="4"), "mine", "high")
    apart = make_pod("apart").asks(cpu="1").away_from("kubernetes.io/hostname", app="sought")
    create(api, apart, "mine")
    create(api, make_pod(f"{WORD}-waits").asks(cpu="8"), WORD)
    runner.turn()
    runner.scheduler.binder.close()
    pods = [one["metadata"] for one in api.get("/api/v1/namespaces/mine/pods").ok()["items"]]
    leaving = {one["name"] for one in pods if "deletionTimestamp" in one}
    assert leaving == {"weak"}, "theirs made room among mine"
    decided = [
        one["id"]
        for pod in pods
        for one in api.get(f"/api/v1/namespaces/mine/pods/{pod['name']}/decisions").ok()["items"]
    ]
    drain = {"drain": {"nodes": ["acre-1", "acre-2", "acre-3"], "force": True}}
    plan = {"apiVersion": "stowage.dev/v1", "kind": "Plan", "spec": {"changes": [drain]}}
    made = api.post(f"{OWN}/plans", plan).ok(201)
    assert WORD in str(made), "the plan names pods of theirs"
    return {"pods": pods, "decisions": decided, "plan": made["metadata"]["name"]}


def bound(api: Api, name: str, role: str, namespace: str = "") -> tuple[Api, Client]:
    """Return the API and a browser of a person to whom a role is bound, in a namespace or all."""
    where = f"namespaces/{namespace}/rolebindings" if namespace else "clusterrolebindings"
    binding = {
        "apiVersion": f"{RBAC}/v1", "kind": "RoleBinding" if namespace else "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": RBAC, "kind": "ClusterRole", "name": role},
        "subjects": [{"apiGroup": RBAC, "kind": "User", "name": name}],
    }  # fmt: skip
    person = Api(make_token(name, ["team"]))
    if role:
        api.post(f"/apis/{RBAC}/v1/{where}", binding).ok(201)
    browser = Client(HTTP_ACCEPT="text/html")
    user = get_user_model().objects.get(username=name)
    browser.force_login(user, backend="django.contrib.auth.backends.ModelBackend")
    return person, browser


def of_the_api(world: World) -> Iterator[tuple[str, tuple[str, ...]]]:
    """Yield every path that is read, of every kind and of what has no kind, with its queries."""
    pods = [one["name"] for one in world["pods"]]
    for kind in ALL_KINDS:
        many = paths_of(kind, "mine")
        if kind.namespaced:
            yield many, OF_STORED
            yield f"{many}/default", ("",)
        yield many.replace("/namespaces/mine", ""), ("",)
        for name in pods if kind.name == "Pod" else ():
            yield f"{many}/{name}", OF_STORED
    yield "/api/v1/namespaces/mine", OF_STORED
    named = {
        "namespace": ["mine"], "pod": pods, "node": ["acre-1"], "runtimeclass": ["x"],
        "decision": world["decisions"], "name": [*pods, world["plan"], "acre-1"],
    }  # fmt: skip
    for path, _, actions in resources.router.served(""):
        if "get" in actions:
            yield from ((f"/{one}", OF_OWN) for one in served.filled(path, named))


def of_the_console(world: World) -> Iterator[str]:
    """Yield every page, with what is mine in the place of names."""
    pods = [one["name"] for one in world["pods"]]
    named = {
        "namespace": ["mine"], "number": world["decisions"], "key": ["namespace.mine"],
        "name": [*pods, world["plan"], "acre-1", "Pod", "Event"], "kind_name": ["Pod", "Event"],
        "revision": [one["resourceVersion"] for one in world["pods"]],
    }  # fmt: skip
    for path in served.addresses(named):
        yield from (path, f"{path}?namespace=mine")


def read(person: Api, browser: Client, world: World) -> set[str]:
    """Return the paths that were answered; none of them with the name of what is foreign."""
    told, answered = [], set()
    at = world["pods"][0]["creationTimestamp"]
    for path, queries in of_the_api(world):
        for query in queries:
            for one in world["pods"] if "{pod}" in query or "{uid}" in query else world["pods"][:1]:
                address = path + query.format(pod=one["name"], uid=one["uid"], at=at)
                answer = person.get(address, accept=TABLE if "limit" in query else "*/*")
                assert answer.status < 500, (address, answer.raw)
                if WORD.encode() in answer.raw:
                    told.append(address)
                if answer.status == 200:
                    answered.add(path)
    for address in of_the_console(world):
        page = browser.get(address)
        assert page.status_code < 500, (address, page.content)
        if WORD.encode() in page.content:
            told.append(address)
        if page.status_code == 200:
            answered.add(address)
    assert not told, "\n".join(told)
    return answered


def test_who_may_do_everything_in_one_namespace_reads_nothing_of_another(
    api: Api, world: World
) -> None:
    answered = read(*bound(api, "inside", "cluster-admin", "mine"), world)
    assert answered >= {
        "/api/v1/namespaces/mine/events", "/api/v1/namespaces/mine/pods/waits/decisions",
        f"{OWN}/namespaces/mine/pods/waits/why", f"{OWN}/namespaces/mine/waitinggroups",
        f"{OWN}/namespaces/mine/selections", f"{OWN}/changes", f"{OWN}/decisions",
        "/console/pods/mine/weak/", "/console/pods/mine/waits/why",
        *(f"/console/{one}/?namespace=mine"
          for one in ("pods", "objects/Event", "decisions")),
    }  # fmt: skip


def test_who_may_read_no_pods_finds_no_names_of_them_elsewhere(api: Api, world: World) -> None:
    """Left out is what tells of pods by itself (evictions, waiting pods): that is a right to it."""
    own = [
        "plans", "plans/apply", "brakes", "simulations", "headroom", "nodeadvice", "packings",
        "comparisons",
        "canaries", "canaries/report", "webhooks", "changes", "schedulerconfiguration",
    ]  # fmt: skip
    rules = [
        {"apiGroups": ["stowage.dev"], "resources": own, "verbs": ["*"]},
        {"apiGroups": [""], "resources": ["nodes"], "verbs": ["*"]},
    ]
    role = {"metadata": {"name": "planner"}, "rules": rules}
    api.post(f"/apis/{RBAC}/v1/clusterroles", role).ok(201)
    answered = read(*bound(api, "planner", "planner"), world)
    assert answered >= {
        f"{OWN}/plans", f"{OWN}/plans/{world['plan']}", f"{OWN}/brakes", f"{OWN}/headroom",
        "/console/", "/console/nodes/", "/console/nodes/acre-1/", "/console/plans/",
    }  # fmt: skip


def test_who_has_no_right_reads_no_name_on_any_page(api: Api, world: World) -> None:
    _, browser = bound(api, "nobody", "")
    for address in of_the_console(world):
        page = browser.get(address)
        assert page.status_code < 500, address
        for name in (WORD, "acre-2", "acre-3"):
            assert name not in page.content.decode(), (address, name)
