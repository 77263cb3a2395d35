"""The audit log: every request that the policy names becomes a line, and no line holds a secret."""

import json
import stat
import uuid
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec
import pytest
from django.core.management import CommandError

from api import serving
from api.server import audit, audit_file
from clusterstate.access import authorizer
from clusterstate.actions.past import audit_log
from clusterstate.database import sql
from clusterstate.objects.rules import audit_policy
from clusterstate.queries.people.audit_log import Search, search
from clusterstate.telemetry.metrics import audit as metrics
from tests.api.conftest import Api, make_token
from tests.api.serve import Server
from tests.clock import NOW
from tests.clusterstate.support import verified
from tests.waiting import until

pytestmark = pytest.mark.django_db(transaction=True)

PODS = "/api/v1/namespaces/ns/pods"
AUDIT = "/apis/stowage.dev/v1/audit"
SECRET = "c3dvcmRmaXNoLTQy"
EVERYTHING = "apiVersion: audit.k8s.io/v1\nkind: Policy\nrules: [{level: RequestResponse}]"


@pytest.fixture(autouse=True)
def log(db: None, settings: Any) -> Iterator[None]:
    """The log is on; nothing of a test is left to be written while the tables are emptied."""
    settings.AUDIT_KEEP_HOURS = 168
    yield
    audit.log.flush()


def lines(**wanted: Any) -> list[dict[str, Any]]:
    """Return what was written, the newest first."""
    audit.log.flush()
    found, _ = search(Search(**wanted), limit=100)
    return [json.loads(line) for line in found]


def pod(name: str) -> bytes:
    spec = {"containers": [{"name": "c", "image": "i"}]}
    return json.dumps({"metadata": {"name": name}, "spec": spec}).encode()


def test_a_line_is_an_event_of_kubernetes(api: Api, server: Server) -> None:
    given = str(uuid.uuid4())
    status, headers, body = server.ask(
        "POST", f"{PODS}?fieldManager=me", api.token, pod("p"), content_type="application/json",
        user_agent="kubectl/v1.36", audit_id=given, impersonate_user="ann",
        impersonate_group="system:masters",
    )  # fmt: skip
    assert (status, headers["audit-id"]) == (201, given)
    (line,) = lines(audit_id=uuid.UUID(given))
    created = json.loads(body)
    assert line.pop("requestReceivedTimestamp") <= line.pop("stageTimestamp")
    assert line == {
        "kind": "Event",
        "apiVersion": "audit.k8s.io/v1",
        "level": "Metadata",
        "auditID": given,
        "stage": "ResponseComplete",
        "requestURI": f"{PODS}?fieldManager=me",
        "verb": "create",
        "user": {
            "username": "operator",
            "uid": line["user"]["uid"],
            "groups": line["user"]["groups"],
        },
        "impersonatedUser": {
            "username": "ann",
            "groups": ["system:masters", "system:authenticated"],
        },
        "sourceIPs": ["127.0.0.1"],
        "userAgent": "kubectl/v1.36",
        "objectRef": {
            "resource": "pods",
            "namespace": "ns",
            "name": "p",
            "uid": created["metadata"]["uid"],
            "apiVersion": "v1",
            "resourceVersion": created["metadata"]["resourceVersion"],
        },
        "responseStatus": {"metadata": {}, "code": 201},
        "annotations": {
            "authorization.k8s.io/decision": "allow",
            "authorization.k8s.io/reason": "",
        },
    }
    changes = api.get("/apis/stowage.dev/v1/changes?kind=Pod&namespace=ns&name=p").ok()
    assert changes["items"][0]["auditID"] == given
    assert changes["items"][0]["user"] == {"username": "ann", "impersonatedBy": "operator"}


def test_what_is_refused_is_written_also_where_the_policy_writes_no_reads(
    api: Api, server: Server
) -> None:
    stranger = make_token("stranger", [])
    assert server.ask("GET", PODS, stranger)[0] == 403
    assert server.ask("GET", PODS, "nobody's")[0] == 401
    assert server.ask("GET", PODS, api.token)[0] == 200
    refused, unknown = lines(code=403), lines(code=401)
    assert [one["user"]["username"] for one in refused] == ["stranger"]
    assert refused[0]["responseStatus"]["reason"] == "Forbidden"
    assert refused[0]["annotations"]["authorization.k8s.io/decision"] == "forbid"
    assert [one["user"] for one in unknown] == [{}], unknown
    assert lines(verb="list", code=200) == []


ADDRESSES = [
    "/api/v1/pods?access_token={token}",
    "/api/v1/pods?labelSelector=a%3Db&Token={token}&limit=1",
    "/api/v1/pods?watch=1&x={encoded}&timeoutSeconds=1",
    "/api/v1/pods?{token}",
    "/api/v1/pods?next=https%3A%2F%2Fann%3A{token}%40host%2F",
    "/{token}",
    "/api/v1/namespaces/{token}/pods",
    "/api/v1/namespaces/ns/pods/{token}",
    "/api/v1/namespaces/ns/{token}/x",
    "/apis/{token}/v1/things",
    "/api/v1/namespaces/ns/pods/x/{token}",
    "/console/pods?token={token}",
    "http://ann:{token}@stowage/api/v1/pods/x",
    "//ann:{token}@stowage/api/v1/pods",
    "/apis/stowage.dev/v1/events/stream?since=1&bearer={token}",
]
JSON_WEB_TOKEN = "eyJhbGciOiJFUzI1NiJ9.eyJzdWIiOiJhbm4ifQ.c2lnbmF0dXJlLW9mLWFubg"


@pytest.mark.parametrize("address", ADDRESSES)
def test_no_token_that_was_sent_in_an_address_is_written(
    server: Server, api: Api, monkeypatch: pytest.MonkeyPatch, address: str
) -> None:
    """Neither into requestURI, nor where an answer repeats the address; whoever sends it."""
    monkeypatch.setattr(audit.log, "policy", audit_policy.parse(EVERYTHING))
    for token in (api.token, JSON_WEB_TOKEN):
        encoded = "".join(f"%{ord(one):02X}" for one in token)
        path = address.format(token=token, encoded=encoded)
        for sender in (api.token, "", "nobody"):
            server.ask("GET", path, sender)
    audit.log.flush()
    rows = sql.fetch("SELECT l::text FROM audit_line l")
    assert len(rows) >= 4
    for (text,) in rows:
        for token in (api.token, JSON_WEB_TOKEN):
            assert token not in unquote(unquote(text))


def test_an_address_without_a_token_is_written_as_it_was_sent(server: Server, api: Api) -> None:
    paths = [
        f"{PODS}?labelSelector=app%3Dweb%2Ctier%21%3Dfront&limit=5&continue={'aB3' * 20}",
        f"{PODS}/{'long-name-of-a-pod-' * 6}x",
        "/apis/rbac.authorization.k8s.io/v1/clusterroles/PrometheusOperatorClusterRoleOfTheTeam",
        "/api/v1/namespaces/0f8fad5b-d9cb-469f-a165-70867728950e/pods?fieldSelector=a%3D%3Db",
    ]
    for path in paths:
        server.ask("GET", path, "nobody")
    assert [line["requestURI"] for line in reversed(lines())] == paths


def test_watches_are_written_when_they_begin_and_when_they_end(
    api: Api, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit.log, "policy", audit_policy.parse(EVERYTHING))
    status, headers, _ = server.ask("GET", f"{PODS}?watch=true&timeoutSeconds=1", api.token)
    assert status == 200
    request = uuid.UUID(headers["audit-id"])
    until(lambda: len(lines(audit_id=request)) == 3, what="the end of the watch to be written")
    found = lines(audit_id=request)
    stages = [one["stage"] for one in found]
    assert stages == ["ResponseComplete", "ResponseStarted", "RequestReceived"]
    assert {one["verb"] for one in found} == {"watch"}
    assert "responseStatus" not in found[-1]


def test_bodies_are_shown_as_the_policy_says_and_secrets_never(
    api: Api, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit.log, "policy", audit_policy.parse(EVERYTHING))
    assert server.ask("POST", PODS, api.token, pod("shown"))[0] == 201
    secret = {"metadata": {"name": "s"}, "data": {"password": SECRET}}
    secrets = "/api/v1/namespaces/ns/secrets"
    body = json.dumps(secret).encode()
    assert server.ask("POST", secrets, api.token, body)[0] == 201
    assert server.ask("GET", f"{secrets}/s", api.token)[0] == 200
    accounts = "/api/v1/namespaces/ns/serviceaccounts"
    assert server.ask("POST", accounts, api.token, b'{"metadata": {"name": "a"}}')[0] == 201
    status, _, answer = server.ask("POST", f"{accounts}/a/token", api.token, b"{}")
    assert status == 201
    token = json.loads(answer)["status"]["token"]
    form = b"username=admin&password=swordfish-42"
    server.ask("POST", "/admin/login/", "", form, content_type="application/x-www-form-urlencoded")
    shown = next(one for one in lines(name="shown") if one["stage"] == "ResponseComplete")
    assert shown["requestObject"]["metadata"] == {"name": "shown"}
    assert shown["responseObject"]["metadata"]["uid"]
    assert {one["level"] for one in lines(resource="secrets")} == {"Metadata"}
    written = "".join(json.dumps(one) for one in lines())
    for what in (SECRET, token, api.token, "swordfish-42"):
        assert what not in written


def test_sign_ins_are_written_with_the_name_that_was_tried(server: Server) -> None:
    form = b"username=mallory&password=wrong"
    login = "/admin/login/"
    _, _, page = server.ask("GET", login)
    key = page.partition(b'name="csrfmiddlewaretoken" value="')[2].partition(b'"')[0]
    server.ask(
        "POST", login, "", form + b"&csrfmiddlewaretoken=" + key,
        content_type="application/x-www-form-urlencoded", cookie=f"csrftoken={key.decode()[:32]}",
        origin="http://stowage",
    )  # fmt: skip
    found = [one for one in lines(verb="post") if one["requestURI"] == login]
    assert found, "a sign-in is a write"
    assert found[0]["sourceIPs"] == ["127.0.0.1"]


def test_the_log_is_asked_over_http_by_administrators_alone(api: Api, server: Server) -> None:
    for name in ("a", "b", "c"):
        assert server.ask("POST", PODS, api.token, pod(name))[0] == 201
    assert server.ask("DELETE", f"{PODS}/a", api.token)[0] == 200
    audit.log.flush()
    asked = api.get(f"{AUDIT}?user=operator&verb=create&resource=pods&limit=2").ok()
    assert [one["objectRef"]["name"] for one in asked["items"]] == ["c", "b"]
    rest = api.get(
        f"{AUDIT}?user=operator&verb=create&resource=pods&limit=2"
        f"&continue={asked['metadata']['continue']}"
    ).ok()
    assert [one["objectRef"]["name"] for one in rest["items"]] == ["a"]
    assert rest["metadata"] == {}
    assert len(api.get(f"{AUDIT}?name=a&namespace=ns").ok()["items"]) == 2
    assert api.get(f"{AUDIT}?until=2000-01-01T00:00:00Z").ok()["items"] == []
    assert api.get(f"{AUDIT}?since=2000-01-01T00:00:00Z&code=200").ok()["items"]
    api.get(f"{AUDIT}?auditID=x").fails(400, "BadRequest")
    api.get(f"{AUDIT}?since=x").fails(400, "BadRequest")
    for groups in (["stowage:readers"], ["stowage:operator"], []):
        Api(make_token(f"of-{len(groups)}", groups)).get(AUDIT).fails(403, "Forbidden")


def test_a_full_log_drops_and_counts_or_refuses_as_it_was_told(
    api: Api, server: Server, settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(audit, "MOST", 0)
    assert server.ask("POST", PODS, api.token, pod("kept"))[0] == 201
    settings.AUDIT_WHEN_FULL = "refuse"
    status, _, body = server.ask("POST", PODS, api.token, pod("lost"))
    assert (status, json.loads(body)["reason"]) == (503, "ServiceUnavailable")
    assert server.ask("GET", f"{PODS}/kept", api.token)[0] == 200, "reads are not written"
    api.get(f"{PODS}/lost").fails(404, "NotFound")


def test_lines_that_the_disk_refuses_are_dropped_or_wait_and_fill_the_log(
    api: Api, server: Server, settings: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "audit.log"
    path.symlink_to("/dev/full")
    settings.AUDIT_LOG_FILE = str(path)
    monkeypatch.setattr(audit.log, "_file", audit_file.configured())
    assert server.ask("POST", PODS, api.token, pod("dropped"))[0] == 201
    audit.log.flush()
    settings.AUDIT_WHEN_FULL = "refuse"
    assert server.ask("POST", PODS, api.token, pod("waits"))[0] == 201
    audit.log.flush()
    monkeypatch.setattr(audit, "MOST", 1)
    assert server.ask("POST", PODS, api.token, pod("refused"))[0] == 503
    assert api.get(f"{AUDIT}?name=waits&namespace=ns").ok()["items"], "the table has room"
    path.unlink()
    audit.log.flush()
    assert server.ask("POST", PODS, api.token, pod("again"))[0] == 201
    audit.log.flush()
    names = [json.loads(line)["objectRef"].get("name") for line in path.read_text().splitlines()]
    assert [name for name in names if name] == ["waits", "again"]


def a_line(number: int) -> audit_log.AuditLine:
    text = json.dumps({"n": number, "stageTimestamp": "2026-01-01T00:00:00.000000Z"})
    return audit_log.AuditLine(NOW, uuid.UUID(int=number), "ann", "get", "pods", "", "", 200, text)


def test_a_line_that_was_changed_removed_or_put_in_is_found(settings: Any) -> None:
    audit_log.append([a_line(number) for number in range(1, 6)])
    audit_log.append([a_line(6)])
    digest = verified().split()[-1]
    assert verified("--contains", digest)
    audit_log.append([a_line(7)])
    assert "7 lines match" in verified("--contains", digest)
    with pytest.raises(CommandError, match="have no digest"):
        verified("--contains", "00")
    sql.run("UPDATE audit_line SET line = replace(line, '3', '4') WHERE id = 3")
    with pytest.raises(CommandError, match="line 3 was changed"):
        verified()
    sql.run("UPDATE audit_line SET line = replace(line, '4', '3') WHERE id = 3")
    assert verified()
    sql.run("DELETE FROM audit_line WHERE id = 7")
    with pytest.raises(CommandError, match="newest lines are missing"):
        verified()
    sql.run("DELETE FROM audit_line WHERE id = 2")
    with pytest.raises(CommandError, match="line 2 is missing"):
        verified()


def test_old_lines_go_and_the_rest_is_still_a_chain(settings: Any) -> None:
    audit_log.append([a_line(number) for number in range(1, 11)])
    settings.AUDIT_KEEP_LINES = 4
    assert audit_log.trim(now=NOW) == 6
    assert "4 lines match" in verified()
    settings.AUDIT_KEEP_HOURS = 0
    assert audit_log.trim(now=NOW + timedelta(days=365)) == 4
    assert "0 lines match" in verified()
    audit_log.append([a_line(11)])
    assert "line 11" in verified()


@pytest.mark.real_clock  # a file's age is the kernel's word
@pytest.mark.parametrize("path", ["/api/v1/namespaces/a%00b/pods", f"/apis/x/v1/{'%C3%A9' * 5000}"])
def test_no_stranger_keeps_the_lines_of_others_out(server: Server, api: Api, path: str) -> None:
    """What a path holds may be anything, and a table does not take everything."""
    assert server.ask("POST", path)[0] in (400, 401)
    assert server.ask("POST", PODS, api.token, pod("p"), content_type="application/json")[0] == 201
    assert [one["objectRef"]["name"] for one in lines(code=201)] == ["p"]
    assert len(lines(code=400)) + len(lines(code=401)) == 1


def test_a_line_that_the_table_refuses_is_left_out_and_counted(
    api: Api, server: Server, monkeypatch: pytest.MonkeyPatch
) -> None:
    audit.log.flush()
    made = audit.line_of

    def spoilt(entry: Any) -> audit_log.AuditLine:
        line = made(entry)
        refused = line.name in ("p2", "p5")
        return msgspec.structs.replace(line, username="\0") if refused else line

    monkeypatch.setattr(audit, "line_of", spoilt)
    metrics.dropped.of("error").take()
    for number in range(7):
        body = pod(f"p{number}")
        assert server.ask("POST", PODS, api.token, body, content_type="application/json")[0] == 201
    written = [one["objectRef"]["name"] for one in lines(code=201)]
    assert written == ["p6", "p4", "p3", "p1", "p0"]
    counted = metrics.dropped.of("error").take()
    assert counted is not None
    assert counted.figures == [2]


def test_what_comes_while_lines_are_written_waits_for_the_next_time(
    server: Server, api: Api, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else a busy service commits for each few requests, without a pause."""
    append, at_once = audit_log.append, []

    def appended(given: Any) -> None:
        append(given)
        at_once.append([one.name for one in given])
        if len(at_once) < 3:
            server.ask("POST", PODS, api.token, pod(f"p{len(at_once)}"))

    audit.log.close()
    audit.log.flush()
    monkeypatch.setattr(audit_log, "append", appended)
    server.ask("POST", PODS, api.token, pod("p0"))
    for number in range(3):
        audit.log.flush()
        assert at_once[number:] == [[f"p{number}"]]
    audit.log.start()


@pytest.mark.real_clock  # files have the system's time
def test_the_file_is_private_and_rotated_by_size_and_age(tmp_path: Path) -> None:
    path = tmp_path / "audit.log"
    file = audit_file.File(path, most_bytes=200, days=1, files=2)
    old = '{"stageTimestamp":"2001-01-01T00:00:00.000000Z"}'
    file.append([old])
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    file.append(["new"])
    assert path.read_text() == "new\n"
    for number in range(6):
        file.append([f"{number}" * 150])
    kept = sorted(tmp_path.glob("audit-*.log"))
    assert len(kept) == 2
    assert path.read_text().startswith("5")
    assert all(stat.S_IMODE(one.stat().st_mode) == 0o600 for one in kept)


PLAIN: dict[str, tuple[str, str, bytes, dict[str, str]]] = {
    "a pod": ("GET", f"{PODS}/p", b"", {}),
    "a body that means nothing": ("GET", f"{PODS}/p", b"{}", {"content_type": "application/json"}),
    "none": ("GET", f"{PODS}/none", b"", {}),
    "a NUL": ("GET", f"{PODS}/p%00", b"", {}),
    "no form": ("GET", f"{PODS}/p", b"", {"accept": "application/x-none"}),
    "for somebody": ("GET", f"{PODS}/p", b"", {"impersonate_user": "ann"}),
    "a deletion": ("DELETE", f"{PODS}/p", b"", {}),
    "options": (
        "DELETE",
        f"{PODS}/p",
        b'{"gracePeriodSeconds":0}',
        {"content_type": "application/json"},
    ),
    "half of the options": (
        "DELETE",
        f"{PODS}/p",
        b'{"kind":',
        {"content_type": "application/json"},
    ),
    "a stranger's": ("DELETE", f"{PODS}/p", b"", {}),
}


@pytest.mark.parametrize("what", PLAIN)
def test_without_a_task_a_request_is_answered_and_recorded_as_with_one(
    api: Api, server: Server, monkeypatch: pytest.MonkeyPatch, what: str
) -> None:
    monkeypatch.setattr(audit.log, "policy", audit_policy.parse(EVERYTHING))
    method, path, body, headers = PLAIN[what]
    monkeypatch.setattr(authorizer, "FRESH_SECONDS", 60.0)
    stranger = make_token("stranger", [])
    token = stranger if what == "a stranger's" else api.token
    plain: list[object] = []
    own = (
        "uid", "resourceVersion", "creationTimestamp", "deletionTimestamp", "auditID",
        "requestReceivedTimestamp", "stageTimestamp",
    )  # fmt: skip

    def bare(value: Any) -> Any:
        if isinstance(value, list):
            return [bare(one) for one in value]
        if not isinstance(value, dict):
            return value
        return {key: key in own or bare(one) for key, one in value.items()}

    def ask() -> tuple[Any, ...]:
        server.ask("DELETE", f"{PODS}/p?gracePeriodSeconds=0", api.token)
        server.ask("POST", PODS, api.token, pod("p"), content_type="application/json")
        assert server.ask("GET", PODS, stranger)[0] == 403  # now it is known, and the roles are
        plain.clear()
        given = str(uuid.uuid4())
        code, found, text = server.ask(method, path, token, body, audit_id=given, **headers)
        assert found.pop("audit-id") == given
        written = lines(audit_id=uuid.UUID(given))
        return code, sorted(found), bare(json.loads(text)), bare(written)

    real = serving._Plain.begin
    with monkeypatch.context() as patch:
        patch.setattr(
            serving._Plain, "begin", lambda self, *known: plain.append(self) or real(self, *known)
        )
        without = ask()
    assert len(plain) == 1
    assert without[3]
    monkeypatch.setattr(serving.Application, "begin", lambda self, scope, body, go_on: go_on(self))
    assert ask() == without
