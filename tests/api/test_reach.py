"""How far back a right in a namespace reaches: to the creation of the namespace that is there."""

import json
from datetime import datetime, timedelta
from typing import Any

import pytest
from django.contrib.auth import get_user_model
from django.db import connection

from api import clock
from clusterstate.actions.past import history
from clusterstate.actions.people import tokens
from clusterstate.change_log import changes
from clusterstate.objects.values.document import format_time
from clusterstate.queries.objects import beginnings
from scheduling.controllers import manager
from tests.api.builders import pod
from tests.api.conftest import Api, Runner, make_token
from tests.api.serve import Server, request
from tests.clock import NOW

pytestmark = pytest.mark.django_db(transaction=True)

RBAC = "/apis/rbac.authorization.k8s.io/v1"
OWN = "/apis/stowage.dev/v1"
TEAM = "/api/v1/namespaces/team"
MINUTE = timedelta(minutes=1)
SECRET = "c3dvcmRmaXNo"
READS = [
    {"apiGroups": ["*"], "resources": ["*"], "verbs": ["get", "list", "watch"]},
]


class World:
    """A namespace ``team`` that was deleted and made anew, and what is known of both."""

    def __init__(self, api: Api, server: Server) -> None:
        self.api, self.server = api, server
        self.now = clock.now()
        self.revisions: dict[str, int] = {}
        self.moments: dict[str, datetime] = {}

    def note(self, name: str) -> None:
        """Name the present revision and moment, and let a minute pass."""
        self.revisions[name] = changes.watermark()
        self.moments[name] = self.now
        self.now += MINUTE

    def make(self, name: str, image: str) -> None:
        self.api.post("/api/v1/namespaces", {"metadata": {"name": "team"}}).ok(201)
        self.api.post(f"{TEAM}/pods", pod("web", labels={"of": name})).ok(201)
        self.api.post(f"{TEAM}/pods", pod(f"web-{name}", labels={"of": name})).ok(201)
        data = {"metadata": {"name": "settings"}, "data": {"of": image}}
        self.api.post(f"{TEAM}/configmaps", data).ok(201)
        self.api.post(f"{TEAM}/secrets", {**data, "data": {"of": SECRET}}).ok(201)

    def delete(self) -> None:
        self.api.delete(TEAM).ok()
        for _ in range(9):
            if self.api.get(TEAM).status == 404:
                return
            for one in self.api.get(f"{TEAM}/pods").ok()["items"]:
                self.api.delete(f"{TEAM}/pods/{one['metadata']['name']}?gracePeriodSeconds=0").ok()
            manager._finish_namespaces(self.now)
        raise AssertionError("the namespace stays")

    def at(self, name: str) -> str:
        return format_time(self.moments[name] + MINUTE / 2)

    def streamed(self, path: str, token: str) -> str:
        """Return an answer in chunks, with their sizes."""
        with self.server.connect() as socket:
            socket.sendall(request("GET", path, token, connection="close"))
            text = b"".join(iter(lambda: socket.recv(1 << 16), b"")).decode()
        assert text.startswith("HTTP/1.1 200 ")
        return text

    def watched(self, token: str, path: str, name: str) -> list[dict[str, Any]]:
        asked = f"{path}?watch=1&timeoutSeconds=1&resourceVersion={self.revisions[name]}"
        text = self.streamed(asked, token)
        return [json.loads(one) for one in text.splitlines() if one.startswith('{"type"')]


@pytest.fixture
def world(api: Api, server: Server, monkeypatch: pytest.MonkeyPatch, settings: Any) -> World:
    settings.PAST_HOURS = 168
    make_token("ann", ["people"])  # it writes the default roles, dated NOW
    made = World(api, server)
    monkeypatch.setattr(clock, "now", lambda: made.now)
    made.note("start")
    made.make("former", "a")
    made.note("former")
    made.delete()
    made.note("between")
    made.make("present", "b")
    made.note("present")
    made.api.patch(f"{TEAM}/configmaps/settings", {"data": {"of": "c"}}).ok()
    made.api.patch(f"{TEAM}/secrets/settings", {"data": {"of": "bmV3"}}).ok()
    made.note("changed")
    role = {"metadata": {"name": "everything"}, "rules": READS}
    api.post(f"{RBAC}/clusterroles", role).ok(201)
    for kind, space, user in (
        ("rolebindings", "namespaces/team/", "ann"),
        ("clusterrolebindings", "", "root"),
    ):
        subject = {"kind": "User", "name": user, "apiGroup": "rbac.authorization.k8s.io"}
        ref = {"kind": "ClusterRole", "name": "everything", "apiGroup": subject["apiGroup"]}
        body = {"metadata": {"name": "b"}, "roleRef": ref, "subjects": [subject]}
        api.post(f"{RBAC}/{space}{kind}", body).ok(201)
    return made


def token(name: str) -> str:
    get_user_model().objects.get_or_create(username=name)
    secret: str = tokens.new_secret()
    tokens.create_token(user=name, secret=secret, groups=["people"], now=NOW)
    return secret


@pytest.fixture
def ann(world: World) -> Api:
    """Who may read everything in the namespace."""
    return Api(token("ann"))


@pytest.fixture
def root(world: World) -> Api:
    """Who may read everything everywhere."""
    return Api(token("root"))


PATHS = [
    TEAM,
    f"{TEAM}/pods",
    f"{TEAM}/pods/web",
    f"{TEAM}/pods/web/status",
    f"{TEAM}/configmaps",
    f"{TEAM}/configmaps/settings",
    f"{TEAM}/pods?fieldSelector=metadata.name%3Dweb",
    f"{OWN}/namespaces/team/selections",
    f"{OWN}/changes?kind=Pod&namespace=team&name=web",
    f"{OWN}/changes?kind=Namespace&name=team",
    f"{TEAM}/pods/web/decisions",
    f"{OWN}/decisions?namespace=team",
]


@pytest.mark.parametrize("is_packed", [False, True], ids=["in the log", "packed"])
@pytest.mark.parametrize("path", PATHS)
def test_nothing_of_a_former_namespace_is_told(
    world: World, ann: Api, root: Api, path: str, is_packed: bool
) -> None:
    if is_packed:
        history.trim(now=clock.now(), keep_seconds=0)
        beginnings.forget()
    sign = "&" if "?" in path else "?"
    of_cluster = "kind=Namespace" in path  # the API asks for the right to get all namespaces
    for name in ("start", "former", "between"):
        ways = [f"{path}{sign}at={world.at(name)}"]
        if "decisions" not in path:
            version = world.revisions[name]
            ways.append(f"{path}{sign}resourceVersion={version}&resourceVersionMatch=Exact")
        for way in ways:
            if of_cluster:
                ann.get(way).fails(403, "Forbidden")
                continue
            status = ann.get(way).fails(410, "Expired")
            assert '"team" reaches back to its creation' in status["message"]
            answer = root.get(way)
            assert answer.status in (200, 404), answer.raw
            if name == "former" and "decisions" not in path:
                assert answer.status == 200
    for name in ("present", "changed"):
        if not of_cluster:
            assert ann.get(f"{path}{sign}at={world.at(name)}").status == 200
    if path.endswith("settings"):
        then = ann.get(f"{path}?at={world.at('present')}").ok()
        assert then["data"]["of"] == "b"


@pytest.mark.parametrize("way", ["", "/settings"])
def test_secrets_have_no_past_but_for_who_reads_all_of_them(
    world: World, ann: Api, root: Api, way: str
) -> None:
    path = f"{TEAM}/secrets{way}"
    for name in ("former", "present", "changed"):
        version = world.revisions[name]
        for query in (
            f"at={world.at(name)}", f"resourceVersion={version}&resourceVersionMatch=Exact"
        ):  # fmt: skip
            ann.get(f"{path}?{query}").fails(403, "Forbidden")
            assert SECRET in root.get(f"{path}?{query}").raw.decode() or name == "changed"
    assert ann.get(path).status == 200
    trail = f"{OWN}/changes?kind=Secret&namespace=team&name=settings"
    ann.get(trail).fails(403, "Forbidden")
    assert len(root.get(trail).ok()["items"]) == 2


def test_a_watch_begins_in_the_namespace_that_is_there(world: World, ann: Api, root: Api) -> None:
    for name in ("start", "former", "between"):
        (event,) = world.watched(ann.token, f"{TEAM}/configmaps", name)
        assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
    told = world.watched(root.token, f"{TEAM}/configmaps", "start")
    assert told[0]["object"]["data"]["of"] == "a"
    told = world.watched(ann.token, f"{TEAM}/configmaps", "present")
    assert [(one["type"], one["object"]["data"]["of"]) for one in told] == [("MODIFIED", "c")]


def test_a_watch_of_secrets_goes_on_where_none_changed(world: World, ann: Api, root: Api) -> None:
    (event,) = world.watched(ann.token, f"{TEAM}/secrets", "present")
    assert (event["type"], event["object"]["code"]) == ("ERROR", 410)
    assert SECRET not in json.dumps(event)
    assert world.watched(ann.token, f"{TEAM}/secrets", "changed") == []
    assert world.watched(root.token, f"{TEAM}/secrets", "present")[0]["type"] == "MODIFIED"


def test_the_pages_of_a_list_go_on_no_further_back(world: World, ann: Api, root: Api) -> None:
    """A token is no secret: who has one of somebody else reads on by their own right alone."""
    for name, code in (("former", 410), ("present", 200)):
        page = root.get(f"{TEAM}/pods?limit=1&at={world.at(name)}").ok()
        token = page["metadata"]["continue"]
        assert ann.get(f"{TEAM}/pods?continue={token}").status == code
        root.get(f"{TEAM}/pods?continue={token}").ok()
    world.api.post(f"{TEAM}/secrets", {"metadata": {"name": "two"}}).ok(201)
    token = ann.get(f"{TEAM}/secrets?limit=1").ok()["metadata"]["continue"]
    assert ann.get(f"{TEAM}/secrets?limit=1&continue={token}").status == 200
    world.api.patch(f"{TEAM}/secrets/two", {"data": {"of": "bmV3"}}).ok()
    ann.get(f"{TEAM}/secrets?limit=1&continue={token}").fails(410, "Expired")
    root.get(f"{TEAM}/secrets?limit=1&continue={token}").ok()


def test_a_trail_begins_with_the_namespace(world: World, ann: Api, root: Api) -> None:
    (first,) = [
        one["resourceVersion"]
        for one in root.get(f"{OWN}/changes?kind=Namespace&name=team").ok()["items"]
        if one["type"] == "ADDED"
    ]
    gone = f"{OWN}/changes?kind=Pod&namespace=team&name=web-former"
    assert len(root.get(gone).ok()["items"]) >= 2
    ann.get(gone).fails(404, "NotFound")
    here = f"{OWN}/changes?kind=Pod&namespace=team&name=web"
    assert [int(one["resourceVersion"]) > int(first) for one in ann.get(here).ok()["items"]]
    # Going on somewhere is no way around that.
    for revision in range(world.revisions["start"], world.revisions["between"]):
        answer = ann.get(f"{here}&continue={revision}")
        assert answer.status == 404, answer.raw


def test_the_stream_of_events_begins_in_the_namespace_that_is_there(
    world: World, ann: Api, root: Api
) -> None:
    path = f"{OWN}/events/stream?namespace=team&types=change&kinds=ConfigMap&timeoutSeconds=1"
    for name, code in (("former", 410), ("between", 410), ("present", 200)):
        since = f"{path}&since={world.revisions[name]}"
        assert world.server.ask("GET", since, ann.token)[0] == code
        assert world.server.ask("GET", since, root.token)[0] == 200
        again = world.server.ask("GET", path, ann.token, last_event_id=str(world.revisions[name]))
        assert again[0] == code
    secrets = path.replace("ConfigMap", "Secret") + f"&since={world.revisions['present']}"
    assert world.server.ask("GET", secrets, ann.token)[0] == 410


def test_decisions_about_pods_of_a_former_namespace_are_not_told(
    world: World, ann: Api, root: Api
) -> None:
    runner = Runner()
    try:
        runner.now = world.now
        runner.turn()
        world.note("decided")
        path = f"{TEAM}/pods/web/decisions"
        (first,) = root.get(path).ok()["items"]
        world.delete()
        world.note("again")
        world.make("third", "x")
        world.note("third")
        subject = {"kind": "User", "name": "ann", "apiGroup": "rbac.authorization.k8s.io"}
        ref = {"kind": "ClusterRole", "name": "everything", "apiGroup": subject["apiGroup"]}
        body = {"metadata": {"name": "b"}, "roleRef": ref, "subjects": [subject]}
        world.api.post(f"{RBAC}/namespaces/team/rolebindings", body).ok(201)
        assert [one["id"] for one in root.get(path).ok()["items"]] == [first["id"]]
        assert ann.get(path).ok()["items"] == []
        root.get(f"{path}/{first['id']}").ok()
        ann.get(f"{path}/{first['id']}").fails(404, "NotFound")
        searched = f"{OWN}/decisions?namespace=team"
        assert len(root.get(searched).ok()["items"]) == 2
        assert ann.get(searched).ok()["items"] == []
        early = f"{searched}&since=2000-01-01T00:00:00Z"
        assert ann.get(early).ok()["items"] == []
        export = f"{OWN}/decisions/export?namespace=team"
        assert world.streamed(export, root.token).count('"web') == 2
        assert '"web' not in world.streamed(export, ann.token)
    finally:
        runner.scheduler.binder.close()


def test_where_the_creation_is_not_kept_its_second_counts(world: World) -> None:
    with connection.cursor() as cursor:
        cursor.execute("DELETE FROM past_block")
        cursor.execute("DELETE FROM change")
    beginnings.forget()
    found = beginnings.beginning("team")
    assert found is not None
    created = world.api.get(TEAM).ok()["metadata"]["creationTimestamp"]
    assert (found.revision, format_time(found.at - timedelta(seconds=1))) == (0, created)
    assert beginnings.beginning("nowhere") is None
