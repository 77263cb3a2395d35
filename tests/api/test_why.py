"""Why a pod waits or is where it is, over HTTP, with a runner in this process."""

import gzip
import json
from datetime import timedelta

import pytest

from clusterstate.admission.plugins.service_account import TOKENS_AT
from clusterstate.queries.scheduler import overview
from scheduling.controllers.pods import unclaimed
from tests.api.conftest import TABLE, Api, grant, make_token
from tests.builders import make_node, make_pod
from tests.clock import NOW

BASE = "/apis/stowage.dev/v1/namespaces/ns"
TOKEN = "kube-api-access-abcde"
KEEPER = {
    "name": "keeper",
    "image": "keeper:1",
    "env": [{"name": "PASSWORD", "value": "hunter2"}],
    "resources": {"requests": {"cpu": "3"}},
    "volumeMounts": [{"name": TOKEN, "mountPath": TOKENS_AT}],
}
"""A container with something that others must not read, and with what admission mounts."""


def add(api, *things):
    for thing in things:
        manifest = thing.manifest
        path = "/api/v1/nodes"
        if manifest.get("kind") == "Pod":
            manifest["metadata"]["namespace"] = "ns"
            path = "/api/v1/namespaces/ns/pods"
        api.post(path, manifest).ok(201)


def why(api, name, **query):
    text = "&".join(f"{key}={value}" for key, value in query.items())
    return api.get(f"{BASE}/pods/{name}/why?{text}").ok()


@pytest.fixture
def closed(api, runner):
    """A pod that asks for 2 CPU, and four nodes that do not take it, for different reasons."""
    add(
        api,
        make_node("small").offers(cpu="1"),
        make_node("tainted").tainted("gpu"),
        make_node("both").offers(cpu="1").tainted("gpu"),
        make_node("cordoned").cordoned(),
        make_pod("p").asks(cpu="2"),
    )
    runner.turn()
    return api


def test_a_gang_tells_what_it_lacks(api, runner):
    """First pods, then room: which, and how much of it (issue 34)."""
    spec = {"schedulingPolicy": {"gang": {"minCount": 3}}}
    groups = "/apis/scheduling.k8s.io/v1beta1/namespaces/ns/podgroups"
    api.post(groups, {"metadata": {"name": "g"}, "spec": spec}).ok(201)

    def member(name):
        pod = make_pod(name).asks(cpu="2")
        return pod.with_("spec", "schedulingGroup", value={"podGroupName": "g"})

    add(api, make_node("n1").offers(cpu="4"), member("p0"), member("p1"))
    runner.turn()
    status = why(api, "p0")["status"]
    assert status["state"] == "Gated"
    assert (status["podGroup"]["missing"], status["podGroup"]["minCount"]) == (1, 3)
    (told,) = api.get(f"{BASE}/waitinggroups").ok()["items"]
    assert told["status"]["state"] == "Gated"
    assert told["status"]["blockers"][0]["reasons"] == [
        "g: 1 more pods must be created: 2 of 3 exist"
    ]
    add(api, member("p2"))
    runner.turn()
    lacks = why(api, "p1")["status"]["podGroup"]
    assert lacks["message"] == (
        "2 of 3 needed pods have a place: room for 1 more is lacking, as on 1 free node"
    )
    found = why(api, "p1")["status"]["remedies"]
    assert [one["text"] for one in found] == ["add a node like n1", "lower minCount from 3 to 2"]
    (group,) = api.get(f"{BASE}/waitinggroups?remedies=true").ok()["items"]
    assert group["status"]["remedies"] == found
    plan = api.post("/apis/stowage.dev/v1/plans?dryRun=All", found[0]["plan"]).ok(201)
    landed = {one["pod"]: one["nodeName"] for one in plan["status"]["placed"]}
    assert sorted(landed) == ["ns/p0", "ns/p1", "ns/p2"]
    assert set(landed.values()) == {"n1", "n1-new-1"}
    add(api, make_node("n2").offers(cpu="4"))
    runner.turn()
    assert "podGroup" not in why(api, "p1")["status"]


def test_every_filter_is_heard_about_every_node(closed):
    found = why(closed, "p")
    status = found["status"]
    assert (status["state"], status["world"]) == ("Waiting", "now")
    assert status["message"].startswith("0/4 nodes are available")
    assert status["nodes"] == {"known": 4, "feasible": 0}
    table = status["table"]
    told = {
        name: {
            plugin: table["statuses"][line[at]]["reasons"]
            for plugin, line in table["verdicts"].items()
            if line[at]
        }
        for at, name in enumerate(table["name"])
    }
    untolerated = ["node(s) had untolerated taint(s)"]
    assert told["small"] == {"NodeResourcesFit": ["Insufficient cpu"]}
    assert told["tainted"] == {"TaintToleration": untolerated}
    assert told["both"] == {
        "NodeResourcesFit": ["Insufficient cpu"],
        "TaintToleration": untolerated,
    }
    assert "NodeUnschedulable" in told["cordoned"]
    assert table["name"][-1] in ("both", "cordoned")
    assert table["rejections"] == sorted(table["rejections"])


def test_the_funnel_counts_who_is_left(closed):
    steps = {step["plugin"]: step for step in why(closed, "p")["status"]["funnel"]}
    assert steps["NodeUnschedulable"]["left"] == 3
    assert steps["TaintToleration"]["rejects"] == 3  # a cordoned node has a taint as well
    assert steps["NodeResourcesFit"] == {
        "plugin": "NodeResourcesFit", "rejected": 1, "left": 0, "rejects": 2, "alone": 1,
    }  # fmt: skip


def test_pages_hold_all_nodes_once_and_only_those_that_a_plugin_rejects(closed):
    first = why(closed, "p", limit=3)
    assert first["metadata"]["remainingItemCount"] == 1
    rest = why(closed, "p", limit=3, **{"continue": first["metadata"]["continue"]})
    names = first["status"]["table"]["name"] + rest["status"]["table"]["name"]
    assert sorted(names) == ["both", "cordoned", "small", "tainted"]
    assert "continue" not in rest["metadata"]
    some = why(closed, "p", rejectedBy="NodeResourcesFit")["status"]["table"]
    assert (some["count"], sorted(some["name"])) == (2, ["both", "small"])
    assert "table" not in why(closed, "p", limit=0)["status"]
    closed.get(f"{BASE}/pods/p/why?continue=x").fails(400, "BadRequest")


def test_a_placed_pod_tells_by_how_much_and_before_whom_it_won(api, runner):
    add(api, make_node("empty"), make_node("full"), make_node("closed").tainted("gpu"))
    add(api, make_pod("there").asks(cpu="3").on("full"), make_pod("p").asks(cpu="500m"))
    runner.turn()
    # What came later does not matter to a decision that was made.
    add(api, make_node("late"))
    found = why(api, "p")["status"]
    assert (found["state"], found["world"], found["verified"]) == ("Placed", "then", True)
    assert found["nodes"] == {"known": 3, "feasible": 2, "evaluated": 3, "feasibleOfEvaluated": 2}
    choice = found["choice"]
    assert (choice["nodeName"], choice["rank"], choice["ties"]) == ("empty", 1, 1)
    assert choice["margin"] == choice["total"] - choice["runnerUp"]["total"] > 0
    assert choice["runnerUp"]["nodeName"] == "full"
    gained = sum(one["by"] for one in choice["runnerUp"]["differences"])
    assert gained == choice["margin"]
    table = found["table"]
    assert table["name"] == ["empty", "full", "closed"]
    assert table["total"] == [choice["total"], choice["runnerUp"]["total"], None]
    for scores in table["scores"].values():
        assert scores["weighted"][0] == scores["normalized"][0] * scores["weight"]
    # Judged anew among the nodes of today, without itself.
    now = why(api, "p", world="now")["status"]
    assert now["nodes"] == {"known": 4, "feasible": 3}
    assert now["table"]["name"][0] == "empty"


def test_answers_are_compressed_for_those_who_take_that(closed):
    plain = closed.get(f"{BASE}/pods/p/why")
    packed = closed.get(f"{BASE}/pods/p/why", HTTP_ACCEPT_ENCODING="gzip, br")
    assert "Content-Encoding" not in plain.headers
    assert packed.headers["Content-Encoding"] == "gzip"
    found = json.loads(gzip.decompress(packed.raw))
    assert found["status"]["table"] == plain.json["status"]["table"]


def test_readers_may_ask_and_strangers_may_not(closed):
    reader = Api(make_token("reader", ["stowage:readers"]))
    assert why(reader, "p", limit=0)["kind"] == "Explanation"
    stranger = Api(make_token("stranger", ["team"]))
    stranger.get(f"{BASE}/pods/p/why").fails(403, "Forbidden")
    closed.get(f"{BASE}/pods/nobody/why").fails(404, "NotFound")
    closed.get(f"{BASE}/pods/p/why?world=past").fails(400, "BadRequest")


def test_remedies_are_ranked_by_the_pods_that_they_free(closed, runner):
    add(closed, *(make_pod(f"other-{n}").asks(cpu="2").tolerates("none") for n in range(2)))
    runner.turn()
    found = why(closed, "p", limit=0)["status"]["remedies"]
    told = [(one["text"], one["opens"], one["frees"]) for one in found]
    assert told[0] == ("remove the taint gpu:NoSchedule from the node tainted", 1, 2)
    assert ("uncordon the node cordoned", 1, 2) in told
    assert ("tolerate gpu:NoSchedule", 1, 1) in told
    assert ("ask for at most 1 cpu", 1, 1) in told
    assert "remedies" not in why(closed, "p", remedies="false")["status"]


def test_a_remedy_that_is_carried_out_places_the_pod(closed, runner):
    found = why(closed, "p", limit=0)["status"]["remedies"]
    for remedy in found:
        if remedy["target"] == "Node":
            path = f"/api/v1/nodes/{remedy['names'][0]}"
            if "status" in remedy["patch"]:
                path += "/status"
            closed.patch(path, remedy["patch"]).ok()
            break
    runner.turn()
    assert closed.get("/api/v1/namespaces/ns/pods/p").ok()["spec"]["nodeName"] == remedy["names"][0]


def test_a_pod_that_asks_for_less_is_resized_by_the_patch_of_the_remedy(closed, runner):
    found = why(closed, "p", limit=0)["status"]["remedies"]
    (less,) = (one for one in found if one["text"] == "ask for at most 1 cpu")
    pod = closed.patch("/api/v1/namespaces/ns/pods/p/resize", less["patch"]).ok()
    assert pod["spec"]["containers"][0]["resources"]["requests"]["cpu"] == "1"
    runner.turn()
    assert closed.get("/api/v1/namespaces/ns/pods/p").ok()["spec"]["nodeName"] == "small"


def test_who_may_not_get_a_pod_reads_nothing_of_its_containers(closed, runner):
    """The patch of a template repeats containers, environment and all."""
    rules = [
        {"apiGroups": ["stowage.dev"], "resources": ["pods/why"], "verbs": ["get"]},
        {"apiGroups": ["stowage.dev"], "resources": ["waitinggroups"], "verbs": ["get", "list"]},
    ]
    asker = grant(closed, "asker", rules)
    pod = make_pod("q").with_("spec", "containers", value=[KEEPER])
    add(closed, pod.with_("spec", "volumes", value=[{"name": TOKEN, "emptyDir": {}}]))
    runner.turn()
    told = {}
    for who in (closed, asker):
        groups = who.get(f"{BASE}/waitinggroups?remedies=true")
        (name, *_) = (one["metadata"]["name"] for one in groups.ok()["items"])
        answers = [groups, who.get(f"{BASE}/waitinggroups/{name}"), who.get(f"{BASE}/pods/q/why")]
        told[who] = [one.raw.decode() for one in answers]
        remedies = answers[2].ok()["status"]["remedies"]
        less = next(one for one in remedies if one["text"] == "ask for at most 1 cpu")
        if who is closed:
            (container,) = less["patch"]["spec"]["containers"]
            assert container["resources"]["requests"] == {"cpu": "1"}
            assert container["env"] == KEEPER["env"]
            assert "volumeMounts" not in container, "the template has no volume for it"
        else:
            assert "patch" not in less
            assert any("patch" in one for one in remedies if one["target"] == "Node")
    assert any("hunter2" in one for one in told[closed])
    assert not any("hunter2" in one for one in told[asker])


@pytest.fixture
def crowd(closed, runner):
    """Pods of several owners that lack CPU, some that want a label, and one behind a gate."""
    add(
        closed,
        *(make_pod(f"large-{n}").asks(cpu="32") for n in range(3)),
        make_pod("larger").asks(cpu="64"),
        *(make_pod(f"ssd-{n}").selects(disktype="ssd") for n in range(2)),
        make_pod("held").with_("spec", "schedulingGates", value=[{"name": "quota"}]),
    )
    runner.turn()
    return closed


def groups(api, path=f"{BASE}/waitinggroups", **query):
    text = "&".join(f"{key}={value}" for key, value in query.items())
    return api.get(f"{path}?{text}").ok()["items"]


def test_waiting_pods_are_few_groups_with_what_blocks_them(crowd):
    items = groups(crowd, "/apis/stowage.dev/v1/waitinggroups")
    told = {
        one["status"]["examples"][0].removeprefix("ns/"): (
            one["status"]["pods"], one["status"]["classes"], one["status"]["state"],
        )
        for one in items
    }  # fmt: skip
    # ``p`` is refused for the same reasons as the large ones, on other numbers of nodes.
    assert told == {"p": (5, 3, "Blocked"), "ssd-0": (2, 1, "Blocked"), "held": (1, 1, "Gated")}
    blockers = {tuple(one["reasons"]): one for one in items[0]["status"]["blockers"]}
    cpu = blockers["Insufficient cpu",]
    assert (cpu["plugin"], cpu["fewest"], cpu["most"]) == ("NodeResourcesFit", 2, 4)
    taints = blockers["node(s) had untolerated taint(s)",]["taints"]
    assert (cpu["taints"], taints) == ({}, {"gpu:NoSchedule": 2})
    assert [one["status"]["pods"] for one in groups(crowd)] == [5, 2, 1]


def _affine(name, number):
    zones = [{"key": "zone", "operator": "In", "values": [f"z{number}"]}]
    terms = {"nodeSelectorTerms": [{"matchExpressions": zones}]}
    node = {"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": terms}}
    return make_pod(name).with_("spec", "affinity", value=node)


def _beside(name, number, which="podAffinity"):
    term = {"labelSelector": {"matchLabels": {"app": f"a{number}"}}, "topologyKey": "zone"}
    other = {which: {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    return make_pod(name).with_("spec", "affinity", value=other)


def _spread(name, number):
    constraint = {
        "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "topologyKey": f"rack{number}",
        "labelSelector": {"matchLabels": {"app": "a"}},
    }  # fmt: skip
    return make_pod(name).with_("spec", "topologySpreadConstraints", value=[constraint])


STATED = {
    "selector": lambda name, number: make_pod(name).selects(disktype=f"d{number}"),
    "affinity": _affine,
    "pod-affinity": _beside,
    "spread": _spread,
    "tolerations": lambda name, number: (
        make_pod(name).asks(cpu="32").tolerates(("gpu", "old")[number])
    ),
}
"""Pods of one reason that want different things, by a number 0 or 1."""


@pytest.mark.parametrize("what", STATED)
def test_what_helps_one_pod_of_a_group_helps_all(closed, runner, what):
    """Pods that a reason is about different terms of are two groups, each with its own remedy."""
    make = STATED[what]
    add(closed, make_node("old").tainted("old"))
    two = [(f"{letter}-{number}", number) for number in (0, 1) for letter in "xy"]
    add(
        closed,
        *(make(name, number).asks(memory=f"{1 + (name[0] == 'y')}Mi") for name, number in two),
    )
    runner.turn()
    found = [one["status"] for one in groups(closed, remedies="true")]
    mine = [one for one in found if one["pods"] == 2]
    assert sorted(sorted(one["examples"]) for one in mine) == [
        ["ns/x-0", "ns/y-0"], ["ns/x-1", "ns/y-1"]
    ]  # fmt: skip
    told = [
        {term for blocker in one["blockers"] for term in (*blocker["terms"], *blocker["taints"])}
        for one in mine
    ]
    assert told[0] != told[1]


def test_a_group_tells_its_pods_and_what_frees_them(crowd):
    (ssd,) = [one for one in groups(crowd) if one["status"]["pods"] == 2]
    one = crowd.get(f"{BASE}/waitinggroups/{ssd['metadata']['name']}").ok()
    assert one["status"]["examples"] == ["ns/ssd-0", "ns/ssd-1"]
    best = one["status"]["remedies"][0]
    assert (best["text"], best["frees"]) == ("drop disktype from the node selector", 2)
    label = next(r for r in one["status"]["remedies"] if r["target"] == "Node")
    assert label["text"] == "label disktype=ssd on the node small"
    listed = groups(crowd, remedies="true")
    assert all("remedies" in one["status"] for one in listed)
    crowd.get(f"{BASE}/waitinggroups/none").fails(404, "NotFound")


def test_groups_are_printed_by_kubectl(crowd):
    table = crowd.get("/apis/stowage.dev/v1/waitinggroups", accept=TABLE).ok()
    cells = table["rows"][1]["cells"]
    assert cells[1:3] == [2, "Blocked"]
    assert cells[3].split("; ") == [
        "node(s) didn't match Pod's node affinity/selector: disktype=ssd (4)",
        "node(s) had untolerated taint(s): gpu:NoSchedule (3)",
        "node(s) were unschedulable (1)",
    ]
    assert cells[5] != "<unknown>"  # as old as the pod that waits longest


def test_the_nodes_to_add_are_the_cheapest_that_take_the_waiting_pods(closed, runner):
    capacity = {"cpu": "4", "memory": "8Gi"}
    catalogue = [
        {"name": "usual", "price": 2.5, "node": {"status": {"capacity": capacity}}},
        {"name": "tiny", "price": 1, "node": {"status": {"capacity": {"cpu": "1"}}}},
    ]
    add(closed, *(make_pod(f"more-{n}").asks(cpu="2") for n in range(2)))
    runner.turn()
    path = "/apis/stowage.dev/v1/nodeadvice"
    status = closed.post(path, {"spec": {"catalogue": catalogue}}).ok(201)["status"]
    assert status["nodes"] == [{"name": "usual", "count": 2, "price": 5.0}]
    assert (status["frees"], status["of"], status["price"]) == (3, 3, 5.0)
    assert sorted(status["pods"]) == ["ns/more-0", "ns/more-1", "ns/p"]
    assert sum(status["podsByNode"].values()) == 3
    prices = [{"selector": "kubernetes.io/hostname=both", "price": 7}]
    replacing = {"catalogue": catalogue, "prices": prices, "movePrice": 1}
    status = closed.post(path, {"spec": replacing}).ok(201)["status"]
    assert (status["remove"], status["nodes"][0]["count"], status["moves"]) == (["both"], 2, [])
    assert status["cost"] == {"today": 7, "after": 5, "moves": 0}
    assert [(one["after"], one["chosen"]) for one in status["frontier"]] == [(5, True)]
    wrong = {"spec": {"catalogue": catalogue, "movePrice": 1, "mostMoves": -1, "nominate": False}}
    causes = closed.post(path, wrong).fails(422, "Invalid")["details"]["causes"]
    assert {one["field"] for one in causes} == {"spec.prices", "spec.mostMoves", "spec.nominate"}
    wrong = {"spec": {"catalogue": [{"name": "x", "price": -1}], "mostNodes": 0}}
    causes = closed.post(path, wrong).fails(422, "Invalid")["details"]["causes"]
    assert {one["field"] for one in causes} == {
        "spec.catalogue[0].price", "spec.catalogue[0].node", "spec.mostNodes",
    }  # fmt: skip
    dear = {"spec": {"catalogue": [{**catalogue[0], "price": 10**400}]}}
    (cause,) = closed.post(path, dear).fails(422, "Invalid")["details"]["causes"]
    assert cause["field"] == "spec.catalogue[0].price"
    closed.post(path, {"spec": {}}).fails(422, "Invalid")


def test_pods_of_an_unknown_scheduler_are_warned_of_and_wait_in_a_group_of_their_own(closed):
    unknown = make_pod("lost").with_("spec", "schedulerName", value="nobody").manifest
    unknown["metadata"]["namespace"] = "ns"
    answer = closed.post("/api/v1/namespaces/ns/pods", unknown)
    told = 'no scheduler profile is called "nobody" (there is default-scheduler)'
    assert told.replace('"', '\\"') in answer.headers["Warning"]
    assert "conditions" not in answer.ok(201)["status"]
    now = NOW
    assert unclaimed.tell(now) == 0  # another scheduler may take it
    assert unclaimed.tell(now + timedelta(seconds=30)) == 1
    assert unclaimed.tell(now + timedelta(seconds=60)) == 0
    (condition,) = closed.get("/api/v1/namespaces/ns/pods/lost").ok()["status"]["conditions"]
    assert (condition["type"], condition["status"]) == ("PodScheduled", "False")
    assert (condition["reason"], told in condition["message"]) == ("NoSuchProfile", True)
    (group,) = [one for one in groups(closed) if one["status"]["state"] == "NoProfile"]
    assert (group["spec"]["schedulerName"], group["status"]["pods"]) == ("nobody", 1)
    assert group["status"]["blockers"][0]["reasons"] == ['no scheduler profile is called "nobody"']
    (found,) = [one for one in overview.waiting() if one.name == "lost"]
    assert told in found.message


def test_a_profile_that_is_configured_later_takes_the_pods_that_name_it(closed, runner):
    waits = make_pod("later").with_("spec", "schedulerName", value="second").manifest
    waits["metadata"]["namespace"] = "ns"
    closed.post("/api/v1/namespaces/ns/pods", waits).ok(201)
    assert unclaimed.tell(NOW + timedelta(seconds=30)) == 1
    add(closed, make_node("roomy"))
    profiles = [{"schedulerName": "default-scheduler"}, {"schedulerName": "second"}]
    path = "/apis/stowage.dev/v1/schedulerconfiguration"
    document = {"apiVersion": "kubescheduler.config.k8s.io/v1", "profiles": profiles}
    closed.put(path, {**document, "kind": "KubeSchedulerConfiguration"}).ok()
    runner.turn()
    bound = closed.get("/api/v1/namespaces/ns/pods/later").ok()
    assert bound["spec"]["nodeName"] == "roomy"
    waits["metadata"]["name"] = "third"
    assert "Warning" not in closed.post("/api/v1/namespaces/ns/pods", waits).headers
