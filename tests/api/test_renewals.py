"""A node's lease that is renewed as before is written without being worked out, and alike."""

import copy
import json
import re

import msgspec
import pytest
from django.core.wsgi import get_wsgi_application

from api.forms import protobuf
from api.running import Runner
from api.server.sessions import Sessions
from clusterstate.actions import objects
from clusterstate.actions.writing import Writer, renewals
from clusterstate.admission.request import User
from clusterstate.database import sql
from clusterstate.objects.wire.protobuf import encode_text
from tests.api.test_batches import work
from tests.clusterstate.support import NOW

pytestmark = pytest.mark.django_db(transaction=True)
LEASES = "/apis/coordination.k8s.io/v1/namespaces/kube-node-lease/leases"
AGENT = User(name="system:node:a", groups=("system:masters",))


@pytest.fixture
def runner():
    renewals._known.clear()
    return Runner(get_wsgi_application(), Sessions())


@pytest.fixture
def worked_out(monkeypatch):
    """The names of the leases whose updates were worked out."""
    names = []
    plain = Writer._next

    def noted(self, kind, row, *rest):
        names.append(row.name)
        return plain(self, kind, row, *rest)

    monkeypatch.setattr(Writer, "_next", noted)
    return names


def renew(api, runner, *bodies, user=AGENT, agent=b"kubelet/v1.36", query="?timeout=10s", raw=None):
    works = []
    for body in bodies:
        metadata = body["metadata"]
        path = LEASES.replace("kube-node-lease", metadata.get("namespace", "kube-node-lease"))
        one = work(api, "PUT", f"{path}/{metadata['name']}{query}", body)
        one.scope["headers"].append((b"user-agent", agent))
        one = msgspec.structs.replace(one, user=user)
        if raw is not None:
            headers = [pair for pair in one.scope["headers"] if pair[0] != b"content-type"]
            one.scope["headers"] = [*headers, (b"content-type", protobuf.MEDIA_TYPE.encode())]
            one = msgspec.structs.replace(one, body=raw(body))
        works.append(one)
    return [(status, json.loads(text)) for status, _, text in runner.together(works)]


def at(body, second, **spec):
    """The lease as its agent sends it next."""
    new = copy.deepcopy(body)
    new["spec"].update(renewTime=f"2026-11-21T12:00:{second:02}.000000Z", **spec)
    return new


@pytest.fixture
def leases(api, runner):
    """Two leases that are alike and known."""
    api.post("/api/v1/namespaces", {"metadata": {"name": "kube-node-lease"}})
    found = []
    for name in ("agent-a", "agent-b"):
        spec = {"holderIdentity": "h", "leaseDurationSeconds": 40}
        body = api.post(LEASES, {"metadata": {"name": name}, "spec": spec}).ok(201)
        for second in range(4):
            ((status, body),) = renew(api, runner, at(body, second))
            assert status == 200, body
        found.append(body)
    assert {name for _, name in renewals._known} == {"agent-a", "agent-b"}
    return found


def stored(name):
    ((text, revision, holder, renewed),) = sql.fetch(
        "SELECT d.text, t.revision, t.holder, t.renewed_at::text FROM lease t"
        " JOIN document d ON d.id = t.document_id WHERE t.name = %s",
        (name,),
    )
    return text, revision, holder, renewed


def alike(value):
    """A value without what differs between the two leases."""
    text = re.sub("[0-9a-f]{8}-[0-9a-f-]{27}", "UID", json.dumps(value))
    value = json.loads(text.replace("agent-b", "agent-a"))
    for key in ("resourceVersion", "creationTimestamp"):
        value.get("metadata", {}).pop(key, None)
    return value


def test_a_known_renewal_is_stored_and_answered_and_not_worked_out(api, runner, leases, worked_out):
    before = api.get("/api/v1/nodes").ok()["metadata"]["resourceVersion"]
    bodies = leases
    for second in range(10, 15):
        sent = [at(body, second) for body in bodies]
        answers = renew(api, runner, *sent)
        assert [status for status, _ in answers] == [200, 200]
        bodies = [body for _, body in answers]
        for asked, got in zip(sent, bodies, strict=True):
            assert int(got["metadata"]["resourceVersion"]) > int(before)
            before = got["metadata"]["resourceVersion"]
            name = got["metadata"]["name"]
            assert api.get(f"{LEASES}/{name}").ok() == got
            assert alike(got) == alike(asked)
            assert stored(name)[1:3] == (int(before), "h")
            assert stored(name)[3].startswith(f"2026-11-21 12:00:{second}")
    assert worked_out == []
    assert sql.fetch("SELECT count(*) FROM change WHERE kind = 13") == [(2,)]  # only the creations


def test_a_renewal_in_protobuf_is_known_too(api, runner, leases, worked_out):
    (_, body) = renew(api, runner, at(leases[0], 20), raw=encoded)[0]
    (_, body) = renew(api, runner, at(body, 21), raw=encoded)[0]
    assert worked_out == ["agent-a"]  # another length
    (status, answer) = renew(api, runner, at(body, 22), raw=encoded)[0]
    assert status == 200
    assert worked_out == ["agent-a"]
    assert api.get(f"{LEASES}/agent-a").ok() == answer


def encoded(body):
    return encode_text(json.dumps(body).encode())


DEVIATIONS = {
    "another holder": lambda body: at(body, 30, holderIdentity="other"),
    "another duration": lambda body: at(body, 30, leaseDurationSeconds=50),
    "a label": lambda body: labelled(at(body, 30)),
    "an old version": lambda body: version(at(body, 30), "1"),
    "a version of the future": lambda body: version(at(body, 30), "99999999"),
    "no version": lambda body: version(at(body, 30), ""),
    "no time": lambda body: without_time(body),
    "a day that is none": lambda body: at(body, 30) | {"spec": time("2026-02-30T00:00:00.000000Z")},
    "another form of time": lambda body: at(body, 30) | {"spec": time("2026-11-21T12:00:30Z")},
    "an unknown field": lambda body: at(body, 30, flurb=1),
    "a field of another type": lambda body: at(body, 30, leaseDurationSeconds="x"),
    "another uid": lambda body: uid(at(body, 30)),
    "nothing new": lambda body: body,
}


def labelled(body):
    body["metadata"]["labels"] = {"a": "b"}
    return body


def version(body, text):
    body["metadata"]["resourceVersion"] = text
    return body


def uid(body):
    body["metadata"]["uid"] = "00000000-0000-0000-0000-000000000000"
    return body


def without_time(body):
    new = copy.deepcopy(body)
    del new["spec"]["renewTime"]
    return new


def time(text):
    return {"holderIdentity": "h", "leaseDurationSeconds": 40, "renewTime": text}


@pytest.mark.parametrize("what", DEVIATIONS)
def test_what_differs_in_more_than_its_time_is_worked_out(api, runner, leases, what):
    known, unknown = (DEVIATIONS[what](body) for body in leases)
    (quickly,) = renew(api, runner, known)
    renewals._known.clear()
    (plainly,) = renew(api, runner, unknown)
    assert quickly[0] == plainly[0]
    assert alike(quickly[1]) == alike(plainly[1])
    texts = [json.loads(stored(name)[0].replace("\x01", "")) for name in ("agent-a", "agent-b")]
    assert alike(texts[0]) == alike(texts[1])


@pytest.mark.parametrize(
    "other",
    [
        {"user": User(name="system:node:b", groups=("system:masters",))},
        {"agent": b"curl/8"},
        {"query": "?fieldManager=me"},
    ],
)
def test_another_sender_is_worked_out(api, runner, leases, worked_out, other):
    assert renew(api, runner, at(leases[0], 30), **other)[0][0] == 200
    assert worked_out == ["agent-a"]


def test_of_two_renewals_of_one_version_one_is_refused(api, runner, leases):
    first, second = at(leases[0], 30), at(leases[0], 31)
    answers = renew(api, runner, first, second, at(leases[1], 30))
    assert [status for status, _ in answers] == [200, 409, 200]
    assert api.get(f"{LEASES}/agent-a").ok() == answers[0][1]


def test_what_somebody_else_wrote_meanwhile_is_not_overwritten(api, runner, leases):
    def label(manifest):
        manifest["metadata"]["labels"] = {"a": "b"}
        return manifest

    objects.update("Lease", "kube-node-lease", "agent-a", label, now=NOW)
    assert renew(api, runner, at(leases[0], 30))[0][0] == 409
    assert api.get(f"{LEASES}/agent-a").ok()["metadata"]["labels"] == {"a": "b"}
    api.delete(f"{LEASES}/agent-b")
    assert renew(api, runner, at(leases[1], 30))[0][0] == 404
    # An earlier state, read before and brought back by nobody, is not taken for the present.
    fresh = api.get(f"{LEASES}/agent-a").ok()
    ((status, answer),) = renew(api, runner, at(fresh, 31))
    assert status == 200
    assert answer["metadata"]["labels"] == {"a": "b"}


def test_other_rules_of_admission_are_heeded(api, runner, leases, worked_out):
    api.post("/api/v1/namespaces", {"metadata": {"name": "more"}})
    assert renew(api, runner, at(leases[0], 30))[0][0] == 200
    assert worked_out == ["agent-a"]


def test_what_another_thread_notes_meanwhile_does_not_make_an_old_version_valid(
    api, runner, leases, monkeypatch
):
    """The revision that counts is the client's, not that which the lease has by now."""
    write = renewals.write

    def overtaken(found):
        known = renewals._known["kube-node-lease", "agent-a"]
        monkeypatch.setattr(renewals, "write", write)
        ((status, _),) = renew(api, runner, at(leases[0], 40))
        assert status == 200
        assert known.revision > found[0].revision
        return write(found)

    monkeypatch.setattr(renewals, "write", overtaken)
    with_old = renewals.of(
        "kube-node-lease",
        "agent-a",
        renewals.read(at(leases[0], 41), len(json.dumps(at(leases[0], 41))), AGENT, "kubelet"),
    )
    assert with_old is not None
    assert renewals.write([with_old]) == [None]


def test_a_lease_for_leader_election_is_flushed_to_disk(api, runner, monkeypatch):
    """Its holder relies on what was acknowledged; only leases of nodes may lose a renewal."""
    flushed = []
    monkeypatch.setattr(
        objects, "renew_each", lambda kind, updates, **_: flushed.append(False) or [None]
    )
    path = LEASES.replace("kube-node-lease", "kube-system")
    spec = {"holderIdentity": "h", "leaseDurationSeconds": 15}
    body = api.post(path, {"metadata": {"name": "leader"}, "spec": spec}).ok(201)
    for second in range(3):
        ((status, body),) = renew(api, runner, at(body, second))
        assert status == 200, body
    assert flushed == []
    assert not renewals._known
