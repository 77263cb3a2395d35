"""A request that has been answered leaves nothing in memory, whatever it was and became of it."""

import gc
import json
import weakref

import pytest
from rest_framework.response import Response

from api import running
from api.forms import replies
from api.serving import Application
from tests.api.builders import NODES, PODS, node, pod
from tests.waiting import until

TIMES = 24
HELD = 8
"""Threads and connections hold the last request that they were given until they get the next."""


def text(manifest):
    return json.dumps(manifest).encode()


MADE = pod("made")
MADE["metadata"] = {"generateName": "made-"}
REQUESTS = [
    ("GET", f"{PODS}/kept", b"", 200),
    ("GET", PODS, b"", 200),
    ("GET", f"{PODS}?watch=true&timeoutSeconds=0", b"", 200),
    ("GET", f"{PODS}/none", b"", 404),
    ("POST", PODS, text(MADE), 201),
    ("POST", PODS, text(pod("kept")), 409),
    ("POST", f"{PODS}?dryRun=All", text(pod("tried")), 201),
    ("POST", PODS, b"{", 400),
    ("PUT", f"{PODS}/kept/status", text(pod("kept")), 200),
    ("DELETE", f"{PODS}/none", b"", 404),
    ("GET", "/api", b"", 200),
    ("GET", "/apis/none", b"", 404),
    ("GET", "/admin/login/", b"", 200),
]


@pytest.mark.parametrize("token", ["", "wrong", "good"])
def test_requests_are_freed(server, api, monkeypatch, token):
    api.post(NODES, node("n")).ok(201)
    api.post(PODS, pod("kept")).ok(201)
    alive: list[weakref.ref[object]] = []

    class Mark:
        """What is freed with the scope that holds it."""

    def follow(scope):
        mark = scope["mark"] = Mark()
        alive.append(weakref.ref(mark))

    serve, begin = Application.__call__, Application.begin

    async def follow_with_a_task(self, scope, receive, send):
        if "mark" not in scope:
            follow(scope)
        await serve(self, scope, receive, send)

    def follow_from_the_start(self, scope, body, go_on):
        follow(scope)
        begin(self, scope, body, go_on)

    monkeypatch.setattr(Application, "__call__", follow_with_a_task)
    monkeypatch.setattr(Application, "begin", follow_from_the_start)
    gc.freeze()  # a collection looks at what the requests made, not at all modules
    for method, path, body, status in REQUESTS:
        alive.clear()
        for _ in range(TIMES):
            given = api.token if token == "good" else token
            found, _, text = server.ask(method, path, given, body, content_type="application/json")
            if token == "good" or path.startswith("/admin"):
                assert found == status, (method, path, text)

        def freed():
            gc.collect()
            return len([one for one in alive if one() is not None]) <= HELD

        assert len(alive) == TIMES
        until(freed, seconds=10, what=f"{method} {path} {status} is freed")


def test_batched_requests_are_freed_without_the_garbage_collector(server, api, monkeypatch):
    """It would have to look through them in every few hundred requests."""
    api.post(NODES, node("n")).ok(201)
    api.post(PODS, pod("kept")).ok(201)
    alive: list[weakref.ref[object]] = []
    made = running.WholeRequest

    def followed(*parts):
        request = made(*parts)
        alive.append(weakref.ref(request))
        return request

    class PlainAnswer(running._PlainAnswer):
        """One that is followed."""

        def __init__(self, scope):
            super().__init__(scope)
            alive.append(weakref.ref(self))

    monkeypatch.setattr(running, "WholeRequest", followed)
    monkeypatch.setattr(running, "_PlainAnswer", PlainAnswer)
    gc.disable()
    try:
        for method, path, body in (
            ("GET", f"{PODS}/kept", b""),
            ("GET", f"{PODS}/kept?resourceVersion=0", b""),
            ("GET", f"{PODS}/none", b""),
            ("POST", PODS, text(MADE)),
            ("POST", PODS, text(pod("kept"))),
            ("POST", f"{PODS}?fieldManager=me", text(MADE)),
            ("DELETE", f"{PODS}/none", b""),
            ("DELETE", f"{PODS}/none?pretty=true", b""),
        ):
            alive.clear()
            for _ in range(TIMES):
                server.ask(method, path, api.token, body, content_type="application/json")
            assert len(alive) == TIMES, (method, path)
            left = [one for one in alive if one() is not None]
            assert len(left) <= HELD, (method, path, body)
    finally:
        gc.enable()


def test_an_answer_has_what_a_response_of_rest_framework_has():
    """``replies.Answer`` sets by itself what the constructors of DRF and Django would set."""
    ours, theirs = vars(replies.reply({})), vars(Response({}, 200))
    assert ours.keys() == theirs.keys()
    different = {key for key, value in ours.items() if value != theirs[key]}
    assert different == {"headers", "_container"}  # which rendering gives
