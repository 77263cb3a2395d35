"""Decisions across pods: filters, pages, who may ask, and what an export holds."""

import io
import json
import threading
from datetime import timedelta
from pathlib import Path
from typing import Any

import nanoarrow
import pytest
from django.core.management import CommandError, call_command
from nanoarrow.ipc import InputStream

from api import clock
from clusterstate.actions import objects
from clusterstate.actions.scheduler import decisions
from clusterstate.database import sql
from clusterstate.objects.values.actor import Actor, acting
from clusterstate.objects.values.document import format_time
from clusterstate.queries.pods import find_pod_id
from clusterstate.queries.scheduler import decision_search
from clusterstate.queries.scheduler.decisions import Turn
from tests.api.conftest import Api, make_token
from tests.api.serve import Server, request
from tests.clock import NOW

DECISIONS = "/apis/stowage.dev/v1/decisions"
SPEC = {"containers": [{"name": "c", "image": "i"}], "schedulerName": "nobody"}
REFUSAL = "0/3 nodes are available: 3 Insufficient cpu."


def make_pod(name: str, namespace: str = "ns", by: str = "ann", **metadata: Any) -> int:
    with acting(Actor(by)):
        body = {"metadata": {"name": name, **metadata}, "spec": SPEC}
        objects.create("Pod", namespace, body, now=NOW)
    found = find_pod_id(namespace, name)
    assert found is not None
    return found


def decide(pod_id: int, node: str = "", *, minutes: int = 0, profile: str = "default") -> None:
    made = decisions.NewDecision(
        pod_id=pod_id, at=NOW + timedelta(minutes=minutes), class_id=1, snapshot_revision=7,
        profile=profile, profile_revision=0, seed=1, draw=0, start=0,
        outcome="scheduled" if node else "unschedulable", node_name=node, total=9 if node else 0,
        margin=None, ties=1, node_count=3, evaluated=3, feasible=1 if node else 0,
        message="" if node else REFUSAL, body=b"x",
    )  # fmt: skip
    decisions.record_many([made], Turn(0, 1, 1))


def owned(kind: str, name: str) -> list[dict[str, Any]]:
    uid = "00000000-0000-0000-0000-000000000001"
    version = "apps/v1" if kind == "ReplicaSet" else "batch/v1"
    return [{"apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": True}]


@pytest.fixture
def decided(transactional_db: None) -> None:
    """Decisions a (n1), b (nowhere, then n2) in ns, and c (n1) in other."""
    for namespace in ("ns", "other"):
        objects.create("Namespace", "", {"metadata": {"name": namespace}}, now=NOW)
    a = make_pod("a", ownerReferences=owned("Job", "j"))
    b = make_pod("b", by="bob")
    c = make_pod("c", namespace="other")
    decide(a, "n1")
    decide(b, minutes=1, profile="other")
    decide(c, "n1", minutes=2)
    decide(b, "n2", minutes=3)


@pytest.fixture
def root(decided: None) -> Api:
    return Api(make_token("operator", ["system:masters"]))


def names(answer: Any) -> list[str]:
    return [f"{one['pod']['name']} {one['nodeName']}".strip() for one in answer["items"]]


@pytest.mark.parametrize(
    ("query", "found"),
    [
        ("", ["b n2", "c n1", "b", "a n1"]),
        ("node=n1", ["c n1", "a n1"]),
        ("namespace=other", ["c n1"]),
        ("reason=Insufficient%20cpu", ["b"]),
        ("outcome=scheduled&namespace=ns", ["b n2", "a n1"]),
        ("profile=other", ["b"]),
        ("name=b", ["b n2", "b"]),
        ("owner=Job/j&namespace=ns", ["a n1"]),
        ("owner=Job/k&namespace=ns", []),
        ("actor=bob", ["b n2", "b"]),
        ("actor=nobody", []),
        (f"since={format_time(NOW + timedelta(minutes=2))}", ["b n2", "c n1"]),
        (f"until={format_time(NOW + timedelta(minutes=1))}", ["a n1"]),
    ],
)
def test_decisions_are_found_by_what_they_are_about(root: Api, query: str, found: Any) -> None:
    answer = root.get(f"{DECISIONS}?{query}").ok()
    assert names(answer) == found
    assert answer["metadata"] == {}


def test_the_decisions_of_a_moment_are_those_made_until_then(
    root: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clock, "now", lambda: NOW + timedelta(hours=1))
    first = format_time(NOW + timedelta(minutes=1))
    assert names(root.get(f"{DECISIONS}?at={first}").ok()) == ["b", "a n1"]
    assert names(root.get(f"{DECISIONS}?at=58m").ok()) == ["c n1", "b", "a n1"]
    assert names(root.get(f"{DECISIONS}?at={first}&until={format_time(NOW)}").ok()) == []
    for path in (DECISIONS, "/api/v1/namespaces/ns/pods/b/decisions"):
        root.get(f"{path}?at=25h").fails(410, "Expired")
        root.get(f"{path}?at={format_time(NOW + timedelta(hours=2))}").fails(400, "BadRequest")
        exact = "resourceVersion=1&resourceVersionMatch=Exact"
        assert (
            "use the parameter at"
            in root.get(f"{path}?{exact}").fails(400, "BadRequest")["message"]
        )


def test_a_deployments_decisions_are_those_of_its_replica_sets(root: Api) -> None:
    template = {"metadata": {"labels": {"a": "b"}}, "spec": SPEC}
    spec = {"selector": {"matchLabels": {"a": "b"}}, "template": template}
    metadata = {"name": "web-1", "ownerReferences": owned("Deployment", "web")}
    metadata["ownerReferences"][0]["apiVersion"] = "apps/v1"
    objects.create("ReplicaSet", "ns", {"metadata": metadata, "spec": spec}, now=NOW)
    decide(make_pod("web-1-x", ownerReferences=owned("ReplicaSet", "web-1")), "n3")
    answer = root.get(f"{DECISIONS}?owner=Deployment/web&namespace=ns").ok()
    assert names(answer) == ["web-1-x n3"]


def test_the_decisions_of_a_pod_that_left_are_found_by_its_owner(root: Api) -> None:
    objects.delete("Pod", "ns", "a", now=NOW)
    assert names(root.get(f"{DECISIONS}?owner=Job/j&namespace=ns").ok()) == ["a n1"]


def test_pages_go_on_where_the_one_before_ended(root: Api, monkeypatch: pytest.MonkeyPatch) -> None:
    for stretch in (decision_search.STRETCH, 1, 2):
        monkeypatch.setattr(decision_search, "STRETCH", stretch)
        seen: list[str] = []
        token = ""
        for _ in range(9):
            answer = root.get(f"{DECISIONS}?namespace=ns&limit=1&continue={token}").ok()
            seen += names(answer)
            token = answer["metadata"].get("continue", "")
            if not token:
                break
        assert seen == ["b n2", "b", "a n1"]


@pytest.mark.parametrize(
    "query", ["outcome=no", "owner=Job&namespace=ns", "owner=Job/j", "since=x", "limit=x"]
)
def test_what_cannot_be_meant_is_refused(root: Api, query: str) -> None:
    root.get(f"{DECISIONS}?{query}").fails(400, "BadRequest")


def test_who_may_get_decisions_of_pods_may_ask_for_them(root: Api) -> None:
    Api(make_token("reader", ["stowage:readers"])).get(DECISIONS).ok()
    Api(make_token("stranger", [])).get(DECISIONS).fails(403, "Forbidden")


# Exports -----------------------------------------------------------------------------------------


def exported(server: Server, token: str, query: str) -> tuple[int, bytes]:
    with server.connect() as connection:
        sent = request("GET", f"{DECISIONS}/export?{query}", token, connection="close")
        connection.sendall(sent)
        text = connection.makefile("rb").read()
    head, _, rest = text.partition(b"\r\n\r\n")
    code = int(head.split()[1])
    if b"chunked" not in head:
        return code, rest
    body = b""
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        body += rest[: int(size, 16)]
        rest = rest[int(size, 16) + 2 :]
    return code, body


@pytest.fixture
def token(server: Server, decided: None) -> str:
    return make_token("operator", ["system:masters"])


def test_an_export_has_a_line_for_each_decision(
    server: Server, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.stowage.decision_search._AT_ONCE", 2)
    code, body = exported(server, token, "")
    assert code == 200
    assert names({"items": [json.loads(line) for line in body.splitlines()]}) == [
        "b n2", "c n1", "b", "a n1",
    ]  # fmt: skip


def test_an_export_looks_once_for_the_pods_of_an_owner(
    server: Server, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """That reads all pods of a namespace, so not for each page."""
    asked = []
    owned = decision_search._owned
    monkeypatch.setattr("api.stowage.decision_search._AT_ONCE", 1)
    monkeypatch.setattr(decision_search, "STRETCH", 1)
    monkeypatch.setattr(
        decision_search, "_owned", lambda *given: (asked.append(given), owned(*given))[1]
    )
    code, body = exported(server, token, "namespace=ns&owner=Job/j")
    assert (code, len(body.splitlines())) == (200, 1)
    assert asked == [("ns", "Job/j")]


def rows(text: bytes) -> list[dict[str, Any]]:
    with InputStream.from_readable(io.BytesIO(text)) as stream:
        found: list[dict[str, Any]] = nanoarrow.Array(stream).to_pylist()
    return found


def test_an_export_in_columns_is_read_by_arrow(
    server: Server, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("api.stowage.decision_search._AT_ONCE", 2)
    code, body = exported(server, token, "format=arrow&namespace=ns")
    assert code == 200
    found = rows(body)
    assert [(one["name"], one["node_name"], one["margin"]) for one in found] == [
        ("b", "n2", None), ("b", "", None), ("a", "n1", None),
    ]  # fmt: skip
    assert found[2]["at"] == NOW
    assert rows(exported(server, token, "format=arrow&node=none")[1]) == []


def test_an_export_is_refused_as_a_list_is(server: Server, token: str) -> None:
    assert exported(server, token, "format=parquet")[0] == 400
    assert exported(server, token, "odd=1")[0] == 400
    assert exported(server, make_token("stranger", []), "")[0] == 403


def test_an_export_breaks_off_when_its_client_may_not_read_any_more(
    server: Server, token: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each page is followed by another: only the lost right ends this export."""
    search, brake = decision_search.search, threading.Event()

    def endless(*arguments: Any, **named: Any) -> decision_search.Page:
        brake.wait(0.02)
        return decision_search.Page(search(*arguments, limit=2, before=0).items, 1)

    monkeypatch.setattr(decision_search, "search", lambda *args, **named: endless(*args))
    with server.connect() as connection:
        connection.sendall(request("GET", f"{DECISIONS}/export", token))
        file = connection.makefile("rb")
        while b'"scheduled"' not in file.readline():
            pass
        sql.run("UPDATE api_token SET groups = '{}'")
        rest = file.read()
    assert not rest.endswith(b"0\r\n\r\n"), "an answer that ends properly is taken for whole"
    last = json.loads(rest.splitlines()[-2] if rest.endswith(b"\r\n") else rest.splitlines()[-1])
    assert (last["kind"], last["code"]) == ("Status", 403)


def test_the_command_writes_the_same(decided: None, tmp_path: Path) -> None:
    for form in ("jsonl", "arrow"):
        out = io.StringIO()
        path = tmp_path / form
        call_command(
            "decisions", "--namespace", "ns", "--format", form, "--output", str(path), stdout=out
        )
        assert out.getvalue() == "3 decisions\n"
    lines = (tmp_path / "jsonl").read_text().splitlines()
    assert [json.loads(line)["pod"]["name"] for line in lines] == ["b", "b", "a"]
    assert [one["name"] for one in rows((tmp_path / "arrow").read_bytes())] == ["b", "b", "a"]
    with pytest.raises(CommandError, match="--owner"):
        call_command("decisions", "--owner", "Job/j")
    with pytest.raises(CommandError, match="--since"):
        call_command("decisions", "--since", "yesterday")
