"""Requests that are answered together get the answers that they would get alone."""

import asyncio
import json
import threading

import msgspec
import pytest
from django.core.wsgi import get_wsgi_application
from django.db import connection

from api import resources
from api.forms import protobuf, wire
from api.running import Runner, Work
from api.server import audit
from api.server.lanes import Lane
from api.server.sessions import Sessions
from clusterstate.actions import objects
from clusterstate.actions.writing import Writer
from clusterstate.admission.request import User
from clusterstate.change_log import changes
from clusterstate.database import sql
from tests import roundtrips
from tests.api.builders import DEPLOYMENTS, NODES, PODS, deployment, node, pod


@pytest.fixture(scope="module")
def runner():
    return Runner(get_wsgi_application(), Sessions())


def work(api, method, path, body=None, token=None):
    headers = [
        (b"host", b"stowage"), (b"accept", b"application/json"),
        (b"content-type", b"application/json"),
        (b"authorization", f"Bearer {token or api.token}".encode()),
    ]  # fmt: skip
    path, _, query = path.partition("?")
    scope = {
        "type": "http", "method": method, "path": path, "query_string": query.encode(),
        "http_version": "1.1", "headers": headers,
    }  # fmt: skip
    raw = b"" if body is None else json.dumps(body).encode()
    return Work(scope, raw, audit.opened(scope))


@pytest.mark.django_db
@pytest.mark.parametrize(
    "accept",
    [None, b"*/*", b"application/json", b"application/json, */*", b"text/plain",
     b"application/vnd.kubernetes.protobuf",
     b"application/vnd.kubernetes.protobuf,application/json",
     b"application/json;as=Table;v=v1;g=meta.k8s.io"],
)  # fmt: skip
@pytest.mark.parametrize("who", ["system:masters", "nobody"])
@pytest.mark.parametrize("path", ["there", "not-there", "there?pretty=true", "there/status"])
def test_a_pod_is_read_without_the_view_as_the_view_reads_it(api, runner, accept, who, path):
    api.post(PODS, pod("there"))

    def asked():
        found = work(api, "GET", f"{PODS}/{path}")
        headers = [one for one in found.scope["headers"] if one[0] != b"accept"]
        found.scope["headers"] = headers + ([(b"accept", accept)] if accept else [])
        return msgspec.structs.replace(found, user=User(name="u", groups=(who,)))

    (quickly,), (plainly,) = runner.together([asked()]), runner.one_by_one([asked()])
    assert quickly[0] == plainly[0]
    assert sorted(quickly[1]) == sorted(plainly[1])
    assert quickly[2] == plainly[2]


PROTOBUF = b"application/vnd.kubernetes.protobuf"
JSON = b"application/json"
CREATIONS = {
    "a pod": (PODS, pod("new"), True),
    "a pod that has a label": (PODS, pod("new", labels={"a": "b"}), True),
    "a node": (NODES, node("new"), True),
    "an unknown field": (PODS, pod("new", flurb=1), True),
    "a name that is none": (PODS, pod("NO_name"), True),
    "a name that is taken": (PODS, pod("there"), True),
    "a class that is not there": (PODS, pod("new", priorityClassName="no"), True),
    "a field of another type": (PODS, pod("new", nodeName=7), False),
    "another namespace": (PODS, {**pod("new"), "metadata": {"namespace": "b"}}, False),
    "a list": (PODS, {"kind": "PodList", "items": [pod("new")]}, False),
    "no kind": (PODS, {key: one for key, one in pod("new").items() if key != "kind"}, False),
    "nothing": (PODS, None, False),
    "a parameter": (f"{PODS}?fieldManager=me", pod("new"), False),
}


def bare(value):
    """A value without what differs between two objects that are created alike."""
    if isinstance(value, list):
        return [bare(one) for one in value]
    if not isinstance(value, dict):
        return value.partition("UID in object meta")[0] if isinstance(value, str) else value
    own = (
        "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "lastTransitionTime",
        "time", "cells",
    )  # fmt: skip
    return {key: key in own or bare(one) for key, one in value.items()}


@pytest.mark.django_db
@pytest.mark.parametrize("what", CREATIONS)
def test_what_is_created_without_the_view_is_as_the_view_creates_it(api, runner, monkeypatch, what):
    path, body, is_plain = CREATIONS[what]
    api.post(PODS, pod("there"))

    def begin_anew():
        api.delete(f"{path.partition('?')[0]}/new?gracePeriodSeconds=0")

    is_same_both_ways(
        runner, monkeypatch, work(api, "POST", path, body), begin_anew, is_plain, what == "a pod"
    )


DELETIONS = {
    "a pod": (f"{PODS}/new", None, True),
    "a pod at once": (f"{PODS}/new?gracePeriodSeconds=0", None, True),
    "by options": (f"{PODS}/new", {"gracePeriodSeconds": 0, "orphanDependents": False}, True),
    "a node": (f"{NODES}/new", {"propagationPolicy": "Background"}, True),
    "another uid": (f"{PODS}/new", {"preconditions": {"uid": "x"}}, True),
    "one that is not there": (f"{PODS}/not-there", None, True),
    "a grace that is none": (f"{PODS}/new?gracePeriodSeconds=x", None, False),
    "a policy that is none": (f"{PODS}/new?propagationPolicy=x", None, False),
    "options of another type": (f"{PODS}/new", {"gracePeriodSeconds": "x"}, False),
    "a dry run": (f"{PODS}/new", {"dryRun": ["All"]}, False),
    "a parameter": (f"{PODS}/new?pretty=true", None, False),
}


@pytest.mark.django_db
@pytest.mark.parametrize("what", DELETIONS)
def test_what_is_deleted_without_the_view_is_as_the_view_deletes_it(api, runner, monkeypatch, what):
    path, body, is_plain = DELETIONS[what]

    def begin_anew():
        api.delete(f"{PODS}/new?gracePeriodSeconds=0")
        api.delete(f"{NODES}/new")
        api.post(PODS, pod("new", nodeName="n")).ok(201)
        api.post(NODES, node("new")).ok(201)

    begin_anew()
    is_same_both_ways(
        runner, monkeypatch, work(api, "DELETE", path, body), begin_anew, is_plain, what == "a pod"
    )


def is_same_both_ways(runner, monkeypatch, asked, begin_anew, is_plain, in_each_form):
    """Assert that a write is answered without the view, if it is plain, as the view answers it."""
    table = b"application/json;as=Table;v=v1;g=meta.k8s.io"
    for accept in (JSON, PROTOBUF, table) if in_each_form else (JSON,):
        for who in ("system:masters", "nobody"):
            headers = [one for one in asked.scope["headers"] if one[0] != b"accept"]
            headers += [(b"accept", accept), (b"user-agent", b"kubectl/v1.36")]

            def run(do, headers=headers, who=who):
                user = User(name="u", groups=(who,))
                scope = {**asked.scope, "headers": headers}
                ((status, told, sent),) = do([Work(scope, asked.body, asked.entry, user)])
                lengths = [one for name, one in told if name == b"content-length"]
                assert lengths == [str(len(sent)).encode()]
                others = sorted(one for one in told if one[0] != b"content-length")
                is_json = (b"content-type", PROTOBUF) not in told
                value = json.loads(sent if is_json else wire.encode(protobuf.decode(sent)))
                return status, others, bare(value)

            plainly = run(runner.one_by_one)
            begin_anew()
            with monkeypatch.context() as patch:
                if is_plain and accept != table and who == "system:masters":
                    patch.setattr(resources.objects, "view", None)
                quickly = run(runner.together)
            begin_anew()
            assert quickly == plainly


def together(runner, *works):
    return [(status, json.loads(body)) for status, _, body in runner.together(works)]


@pytest.mark.django_db(transaction=True)
def test_a_pod_that_nothing_foresaw_fails_alone_in_its_batch(api, runner, monkeypatch):
    """A value that only the database refuses is its sender's 422, not the whole batch's 500."""
    create = objects.create_each

    def refuse(kind, wanted, **options):
        if any(manifest["metadata"]["name"] == "unfit" for _, manifest, _ in wanted):
            with connection.cursor() as cursor:
                cursor.execute("SELECT 99999999999::int")
        return create(kind, wanted, **options)

    monkeypatch.setattr(objects, "create_each", refuse)
    answers = together(
        runner, *(work(api, "POST", PODS, pod(name)) for name in ("one", "unfit", "two"))
    )
    assert [status for status, _ in answers] == [201, 422, 201]


@pytest.mark.django_db(transaction=True)
def test_a_lease_that_nothing_foresaw_fails_alone_in_its_batch(api, runner, monkeypatch):
    """The renewals are committed by then: done once more, they would meet their own versions."""
    leases = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
    api.post("/api/v1/namespaces", {"metadata": {"name": "kube-node-lease"}})
    renewed, held = (
        api.post(leases, {"metadata": {"name": name}, "spec": {"holderIdentity": "h"}}).ok(201)
        for name in ("renewed", "held")
    )
    renewed["spec"]["renewTime"] = "2026-11-21T12:00:00.000000Z"
    held["spec"]["holderIdentity"] = "other"

    def fail(*_):
        raise RuntimeError("nothing foresaw that")

    monkeypatch.setattr(Writer, "update", fail)
    answers = together(
        runner,
        *(work(api, "PUT", f"{leases}/{one['metadata']['name']}", one) for one in (renewed, held)),
    )
    assert [status for status, _ in answers] == [200, 500]
    assert api.get(f"{leases}/renewed").ok() == answers[0][1]


def test_each_creation_gets_its_own_answer(api, reader, runner):
    answers = together(
        runner,
        work(api, "POST", PODS, pod("a")),
        work(api, "POST", PODS, pod("BAD_name")),
        work(api, "POST", PODS, pod("b", flurb=1)),
        work(api, "POST", PODS, pod("a")),
        work(api, "POST", PODS, pod("c"), token="wrong"),
        work(api, "POST", PODS, pod("d"), token=reader.token),
        work(api, "POST", "/api/v1/namespaces/nowhere/pods", pod("e")),
        work(api, "POST", PODS, pod("f", priorityClassName="nosuch")),
        work(api, "POST", PODS, {"kind": "PodList", "items": [pod("g"), pod("h")]}),
        work(api, "POST", PODS, pod("i")),
    )
    assert [status for status, _ in answers] == [
        201, 422, 201, 409, 401, 403, 404, 403, 201, 201,
    ]  # fmt: skip
    assert [body.get("reason") for _, body in answers] == [
        None, "Invalid", None, "AlreadyExists", "Unauthorized", "Forbidden", "NotFound",
        "Forbidden", None, None,
    ]  # fmt: skip
    stored = {item["metadata"]["name"] for item in api.get(PODS).ok()["items"]}
    assert stored == {"a", "b", "g", "h", "i"}
    for status, body in answers:
        if status == 201 and body["kind"] == "Pod":
            assert api.get(f"{PODS}/{body['metadata']['name']}").ok() == body


def test_objects_of_any_kind_are_created_together_and_answered_alone(api, reader, runner):
    leases = "/apis/coordination.k8s.io/v1/namespaces/ns/leases"
    classes = "/apis/scheduling.k8s.io/v1/priorityclasses"
    tainted = node("c", taints=[{"key": "a", "effect": "NoExecute"}])
    answers = together(
        runner,
        work(api, "POST", NODES, node("a")),
        work(api, "POST", NODES, node("BAD_name")),
        work(api, "POST", NODES, node("a")),
        work(api, "POST", DEPLOYMENTS, deployment("web")),
        work(api, "POST", NODES, node("b"), token=reader.token),
        work(api, "POST", f"{NODES}?dryRun=All", node("d")),
        work(api, "POST", NODES, tainted),
        work(api, "POST", DEPLOYMENTS.replace("/ns/", "/nowhere/"), deployment("web")),
        work(api, "POST", leases, {"metadata": {"name": "l"}, "spec": {"holderIdentity": "h"}}),
        work(api, "POST", classes, {"metadata": {"name": "p"}, "value": 1}),
        work(api, "POST", NODES, {"metadata": {"generateName": "e-"}}),
    )
    assert [status for status, _ in answers] == [
        201, 422, 409, 201, 403, 201, 201, 404, 201, 201, 201,
    ]  # fmt: skip
    assert answers[2][1]["message"] == 'nodes "a" already exists'
    made = [body for status, body in answers if status == 201]
    assert [body["kind"] for body in made] == [
        "Node", "Deployment", "Node", "Node", "Lease", "PriorityClass", "Node",
    ]  # fmt: skip
    names = {item["metadata"]["name"] for item in api.get(NODES).ok()["items"]}
    assert names == {"a", "c", made[-1]["metadata"]["name"]}
    for body in made:
        metadata = body["metadata"]
        paths = {
            "Node": NODES, "Deployment": DEPLOYMENTS, "Lease": leases, "PriorityClass": classes,
        }  # fmt: skip
        if metadata["name"] != "d":
            assert api.get(f"{paths[body['kind']]}/{metadata['name']}").ok() == body
    rows = sql.fetch("SELECT key, effect, added_at IS NOT NULL FROM taint WHERE key = 'a'")
    assert rows == [("a", "NoExecute", True)]


@pytest.mark.django_db(transaction=True)
def test_nodes_that_wait_together_are_created_by_one_statement(api, runner):
    together(runner, work(api, "POST", NODES, node("first")))
    with roundtrips.counted() as trips:
        answers = together(runner, *(work(api, "POST", NODES, node(f"n{i}")) for i in range(16)))
    assert [status for status, _ in answers] == [201] * 16
    assert trips.number == 1
    revisions = [int(body["metadata"]["resourceVersion"]) for _, body in answers]
    assert revisions == sorted(set(revisions))  # in the order of the requests


@pytest.mark.django_db(transaction=True)
def test_a_taken_name_costs_a_batch_two_more_statements(api, runner):
    together(runner, work(api, "POST", NODES, node("taken")))
    names = ["a", "taken", "b", "a"]
    with roundtrips.counted() as trips:
        answers = together(runner, *(work(api, "POST", NODES, node(name)) for name in names))
    assert [status for status, _ in answers] == [201, 409, 201, 409]
    assert trips.number == 3


def test_each_read_gets_its_own_answer(api, runner):
    made = {name: api.post(PODS, pod(name)).ok(201) for name in ("a", "b")}
    answers = together(
        runner,
        work(api, "GET", f"{PODS}/a"),
        work(api, "GET", f"{PODS}/nosuch"),
        work(api, "GET", f"{PODS}/b"),
        work(api, "GET", f"{PODS}/a/binding"),
        work(api, "GET", f"{PODS}/a"),
        work(api, "GET", f"{PODS}/b/status"),
    )
    assert [status for status, _ in answers] == [200, 404, 200, 405, 200, 200]
    assert answers[0][1] == answers[4][1] == made["a"]
    assert answers[2][1] == answers[5][1] == made["b"]
    assert answers[1][1]["message"] == 'pods "nosuch" not found'


def test_alone_is_a_batch_of_one(api, runner):
    assert together(runner, work(api, "POST", PODS, pod("a")))[0][0] == 201
    assert together(runner, work(api, "GET", f"{PODS}/a"))[0][0] == 200


def test_a_lane_takes_what_waits_and_answers_in_order():
    sizes = []
    first = threading.Event()

    def serve(numbers):
        sizes.append(len(numbers))
        first.wait(5)
        return [number * 2 for number in numbers]

    async def main():
        lane = Lane("test", serve, threads=1, limit=4)
        waiting = [asyncio.ensure_future(lane.run(number)) for number in range(9)]
        await asyncio.sleep(0)  # all have been put into the lane
        assert lane.waiting == 9
        first.set()
        answers = await asyncio.gather(*waiting)
        return answers, lane.waiting

    assert asyncio.run(main()) == ([number * 2 for number in range(9)], 0)
    assert sum(sizes) == 9
    assert max(sizes) == 4


def test_each_deletion_gets_its_own_answer(api, reader, runner):
    kept = pod("kept")
    kept["metadata"]["finalizers"] = ["example.com/hold"]
    for manifest in (pod("a"), pod("b"), kept, pod("c"), pod("d")):
        api.post(PODS, manifest).ok(201)
    made = api.post(NODES, node("n")).ok(201)
    api.post(DEPLOYMENTS, deployment("web")).ok(201)
    stale = {"preconditions": {"uid": "another"}}
    answers = together(
        runner,
        work(api, "DELETE", f"{PODS}/a"),
        work(api, "DELETE", f"{PODS}/nosuch"),
        work(api, "DELETE", f"{PODS}/a"),
        work(api, "DELETE", f"{PODS}/b", stale),
        work(api, "DELETE", f"{PODS}/kept?orphanDependents=false"),
        work(api, "DELETE", f"{PODS}/c", token=reader.token),
        work(api, "DELETE", f"{PODS}/d?dryRun=All"),
        work(api, "DELETE", f"{NODES}/n"),
        work(api, "DELETE", f"{DEPLOYMENTS}/web?propagationPolicy=Foreground"),
        work(api, "DELETE", f"{PODS}/c"),
    )
    assert [status for status, _ in answers] == [
        200, 404, 404, 409, 202, 403, 200, 200, 200, 200,
    ]  # fmt: skip
    assert answers[0][1]["metadata"]["name"] == "a"
    assert answers[4][1]["metadata"]["deletionTimestamp"]
    assert answers[7][1]["details"]["uid"] == made["metadata"]["uid"]
    assert answers[8][1]["metadata"]["finalizers"] == ["foregroundDeletion"]
    left = {item["metadata"]["name"] for item in api.get(PODS).ok()["items"]}
    assert left == {"b", "kept", "d"}
    assert api.get(NODES).ok()["items"] == []
    assert api.get(f"{PODS}/kept").ok() == answers[4][1]
    assert api.get(f"{DEPLOYMENTS}/web").ok() == answers[8][1]


@pytest.mark.django_db(transaction=True)
def test_deletions_that_wait_together_are_one_short_transaction(api, runner):
    api.post("/api/v1/namespaces", {"metadata": {"name": "many"}}).ok(201)
    path = PODS.replace("/ns/", "/many/")
    names = [f"p{i}" for i in range(16)]
    together(runner, *(work(api, "POST", path, pod(name)) for name in names))
    start = changes.watermark()
    with roundtrips.counted() as trips:
        answers = together(runner, *(work(api, "DELETE", f"{path}/{name}") for name in names))
    assert [status for status, _ in answers] == [200] * 16
    assert trips.number == 3  # lock, delete, commit
    told = changes.read_since(start).items
    assert [(one.verb, one.name) for one in told] == [(changes.DELETED, name) for name in names]
