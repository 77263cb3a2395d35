"""Bad input is a client's error: no request whatever is answered 500.

Except an apply that does not fit the schema, to which kube-apiserver says so with 500, too.
"""

import http.client
import itertools
import json
import os
import random
import re
import time
import urllib.parse

import msgspec
import pytest
from django.conf import settings
from django.contrib.auth import get_user_model
from django.test import Client

from tests.api import hostile
from tests.api.builders import node, pod
from tests.api.conftest import make_token
from tests.forms import few, many

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

SECONDS = int(os.environ.get("STOWAGE_FUZZ_SECONDS") or many(1, 60))
LEAST = 400
LEAST_PAGES = 40
"""Requests that are made also where the machine is slow."""


class Caller:
    """Somebody who may do everything, on one connection for as long as it lasts."""

    def __init__(self, port: int, token: str) -> None:
        self._port = port
        self._token = token
        self._connection: http.client.HTTPConnection | None = None

    def send(self, method, target, body, headers):
        """Return status and body of the answer."""
        for fresh in (False, True):
            if fresh or self._connection is None:
                self._connection = http.client.HTTPConnection("127.0.0.1", self._port, timeout=60)
            try:
                self._connection.putrequest(method, target, skip_accept_encoding=True)
                for name, value in headers.items():
                    self._connection.putheader(name, value.encode("latin-1", "replace"))
                self._connection.putheader("Authorization", f"Bearer {self._token}")
                self._connection.putheader("Content-Length", str(len(body)))
                self._connection.endheaders(body)
                answer = self._connection.getresponse()
                return answer.status, answer.read()
            except (http.client.HTTPException, ConnectionError):
                self._connection.close()
                self._connection = None
                if fresh:
                    raise
        raise AssertionError

    def ask(self, request):
        headers = {"Accept": request.accept}
        if request.content_type:
            headers["Content-Type"] = request.content_type
        return self.send(request.method, request.target, request.body, headers)


@pytest.fixture
def caller(server):
    found = Caller(server.port, make_token("operator", ["system:masters"]))
    for path, manifest in (
        ("/api/v1/namespaces", {"metadata": {"name": "ns"}}),
        ("/api/v1/nodes", node("n")),
        ("/api/v1/namespaces/ns/pods", pod("q")),
    ):
        body = json.dumps(manifest).encode()
        assert found.send("POST", path, body, {"Content-Type": "application/json"})[0] == 201
    return found


@pytest.mark.drawn
@pytest.mark.parametrize(("seed", "wild"), few([(2, 0.1), (1, 0.02), (3, 0.4)]))
def test_no_request_is_answered_500(caller, seed, wild):
    end = time.monotonic() + SECONDS
    failures, codes = [], {}
    for number, request in enumerate(hostile.requests(seed, wild=wild)):
        code, body = caller.ask(request)
        codes[code] = codes.get(code, 0) + 1
        unfit = b"failed to create typed patch object" in body
        if code >= 500 and not unfit and not request.path.startswith("/readyz"):
            failures.append((number, request, body[:200]))
        is_enough = number >= LEAST and time.monotonic() > end
        if is_enough or len(failures) > 40:
            break
    assert not failures, "\n".join(map(str, failures))
    # It came past decoding often enough to mean something.
    assert codes.get(200, 0) + codes.get(201, 0) > 5, codes
    assert codes.get(422, 0) > 0, codes


def test_every_parameter_of_every_path_takes_every_text(caller):
    """One parameter at a time, for the reads and for what is cheap to write."""
    end = time.monotonic() + 2 * SECONDS
    paths = [
        "/api/v1/namespaces/ns/pods", "/api/v1/namespaces/ns/pods/q", "/api/v1/nodes",
        "/apis/stowage.dev/v1/evictions", "/api/v1/namespaces/ns/pods/q/decisions",
        "/apis/stowage.dev/v1/waitingpods",
    ]  # fmt: skip
    failures = []
    for text, name, path in itertools.product(hostile.TEXTS, hostile.PARAMETERS, paths):
        query = [(name, text)]
        if name in ("watch", "waitFor"):
            query.append(("timeoutSeconds", "1"))
        if len(text) > 500 and name in ("watch", "waitFor"):
            continue
        request = hostile.Request("GET", path, query, b"", "", "application/json")
        if text in hostile.TEXTS[:8] and name == "watch":
            continue
        code, body = caller.ask(request)
        if code >= 500:
            failures.append((request, body[:200]))
        if time.monotonic() > end or len(failures) > 40:
            break
    assert not failures, "\n".join(map(str, failures))


ADMIN = "/admin/clusterstate/"


@pytest.fixture
def browser(caller, server):
    """An administrator's session on the same server: a caller with a cookie."""
    person = get_user_model().objects.create_superuser("anna", password="pass word 123")
    client = Client()
    client.force_login(person, backend="django.contrib.auth.backends.ModelBackend")
    cookie = client.cookies[settings.SESSION_COOKIE_NAME].value
    return client, f"{settings.SESSION_COOKIE_NAME}={cookie}"


def test_no_page_answers_500(caller, browser):
    """Lists with any search, filter and page; forms with any text in any field."""
    client, cookie = browser
    headers = {"Cookie": cookie}
    index = client.get("/admin/").content.decode()
    pages = sorted(set(re.findall(r'href="(/admin/[^"?#]*)"', index)) - {"/admin/logout/"})
    assert any(page.startswith(ADMIN) for page in pages), pages
    names = (
        "q", "p", "o", "all", "e", "phase", "node", "namespace", "_facets", "pk__exact",
        "ready__exact", "created_at__gte", "name__contains", "_changelist_filters", "_popup",
    )  # fmt: skip
    rng = random.Random(4)
    end = time.monotonic() + 2 * SECONDS
    failures, codes = [], {}
    while (time.monotonic() < end or sum(codes.values()) < LEAST_PAGES) and len(failures) < 20:
        page = rng.choice(pages)
        if rng.random() < 0.3:
            page += rng.choice(("add/", "1/change/", "1/delete/", "1/history/",
                                f"{rng.choice(hostile.TEXTS)}/change/"))  # fmt: skip
        query = [(rng.choice(names), rng.choice(hostile.TEXTS)) for _ in range(rng.randrange(3))]
        request = hostile.Request("GET", page, query, b"", "", "text/html")
        body, more = b"", {}
        if rng.random() < 0.4:
            form = page_form(client, page) if rng.random() < 0.3 else {}
            fields = [*form, "name", "action", "_selected_action", "key", "index", "_save", "text"]
            for _ in range(rng.randrange(4)):
                form[rng.choice(fields)] = rng.choice(hostile.TEXTS)
            form |= {"csrfmiddlewaretoken": TOKEN}
            body = urllib.parse.urlencode(form, errors="surrogatepass").encode()
            more = {"Content-Type": "application/x-www-form-urlencoded",
                    "Referer": f"http://127.0.0.1:{caller._port}/",
                    "Cookie": f"{cookie}; {settings.CSRF_COOKIE_NAME}={TOKEN}"}  # fmt: skip
            request = msgspec.structs.replace(request, method="POST", body=body)
        code, answer = caller.send(request.method, request.target, body, headers | more)
        codes[code] = codes.get(code, 0) + 1
        if code >= 500:
            failures.append((request, answer[:200]))
    assert not failures, "\n".join(map(str, failures))
    assert codes.get(200, 0) > 10, codes
    assert codes.get(403, 0) < sum(codes.values()) / 2, codes


TOKEN = "a" * 32
"""A CSRF token: the cookie and the form agree on it."""


def page_form(client, page):
    """Return the fields of the form on a page, as the browser would send them back."""
    context = client.get(page).context
    form = context["adminform"].form if context and "adminform" in context else ()
    return {bound.html_name: bound.value() or "" for bound in form}
