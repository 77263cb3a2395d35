"""A caller of the API with a token, against views in this process."""

import json
from datetime import timedelta

import pytest
from django.contrib.auth import get_user_model
from django.test import Client

from api import clock
from clusterstate.actions.cluster import default_roles
from clusterstate.actions.people import tokens
from scheduling.worker import profiles
from scheduling.worker.scheduler import Scheduler
from tests import kept_rows
from tests.clock import NOW

TABLE = (
    "application/json;as=Table;v=v1;g=meta.k8s.io,"
    "application/json;as=Table;v=v1beta1;g=meta.k8s.io,application/json"
)
MERGE = "application/merge-patch+json"
STRATEGIC = "application/strategic-merge-patch+json"
JSON_PATCH = "application/json-patch+json"
APPLY = "application/apply-patch+yaml"


class Answer:
    def __init__(self, response):
        self.status = response.status_code
        self.headers = response.headers
        self.raw = response.content

    @property
    def json(self):
        assert self.headers["Content-Type"] == "application/json", self.raw[:300]
        return json.loads(self.raw)

    def fails(self, code, reason):
        """Check that this is a Status of that kind and return it."""
        assert self.status == code, (self.status, self.raw[:500])
        status = self.json
        assert (status["kind"], status["apiVersion"], status["status"]) == (
            "Status", "v1", "Failure",
        )  # fmt: skip
        assert (status["code"], status.get("reason", "")) == (code, reason), status
        assert status["message"]
        return status

    def ok(self, code=200):
        assert self.status == code, (self.status, self.raw[:1000])
        return self.json


def names(answer):
    """Return the names of the objects in a list, in its order."""
    return [item["metadata"]["name"] for item in answer.ok()["items"]]


class Api:
    def __init__(self, token):
        self.client = Client()
        self.token = token

    def call(
        self,
        method,
        path,
        body=None,
        *,
        accept="application/json",
        content_type="application/json",
        token=None,
        **headers,
    ):
        data = b""
        if body is not None:
            data = body if isinstance(body, bytes) else json.dumps(body).encode()
        given = self.token if token is None else token
        if given:
            headers["HTTP_AUTHORIZATION"] = f"Bearer {given}"
        response = self.client.generic(
            method,
            path,
            data,
            content_type=content_type or "application/json",
            HTTP_ACCEPT=accept,
            **headers,
        )
        return Answer(response)

    def get(self, path, **options):
        return self.call("GET", path, **options)

    def post(self, path, body, **options):
        return self.call("POST", path, body, **options)

    def put(self, path, body, **options):
        return self.call("PUT", path, body, **options)

    def patch(self, path, body, content_type=MERGE, **options):
        return self.call("PATCH", path, body, content_type=content_type, **options)

    def delete(self, path, body=None, **options):
        return self.call("DELETE", path, body, **options)


def make_token(name, groups):
    """Return a token of a user in these groups; the default roles say what these may."""
    if "system:masters" not in groups:
        default_roles.reconcile(now=NOW)
    user, _ = get_user_model().objects.get_or_create(username=name)
    secret = tokens.new_secret()
    tokens.create_token(user=user.username, secret=secret, groups=groups, now=NOW)
    return secret


@pytest.fixture(scope="session")
def operator(django_db_setup, django_db_blocker):
    """The token of somebody who may do everything, and the rows of this and a namespace ``ns``."""
    secrets = []

    def write():
        secrets.append(make_token("operator", ["system:masters"]))
        Api(secrets[0]).post("/api/v1/namespaces", {"metadata": {"name": "ns"}}).ok(201)

    with django_db_blocker.unblock():
        rows = kept_rows.written(write)
    return secrets[0], rows


@pytest.fixture
def api(operator, db):
    """The API with the token of somebody who may do everything, and a namespace ``ns``."""
    secret, rows = operator
    kept_rows.put(rows)
    return Api(secret)


@pytest.fixture
def reader(api):
    """The API with the token of somebody who may only read."""
    return Api(make_token("reader", ["stowage:readers"]))


def grant(api, name, rules):
    """Return the API as a user to whom a ClusterRole gives these rules."""
    group = "rbac.authorization.k8s.io"
    subject = {"apiGroup": group, "kind": "User", "name": name}
    role = {"apiVersion": f"{group}/v1", "kind": "ClusterRole", "metadata": {"name": name}}
    binding = {
        "apiVersion": f"{group}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": {"name": name},
        "roleRef": {"apiGroup": group, "kind": "ClusterRole", "name": name},
        "subjects": [subject],
    }
    user = Api(make_token(name, ["team"]))
    api.post(f"/apis/{group}/v1/clusterroles", {**role, "rules": rules}).ok(201)
    api.post(f"/apis/{group}/v1/clusterrolebindings", binding).ok(201)
    return user


class Runner:
    """The live cycle, turned by hand; ``now`` is the database's clock plus what passed."""

    def __init__(self):
        self.now = clock.now()
        revision, configuration = profiles.in_force()
        self.scheduler = Scheduler(configuration, lambda: 11, revision=revision)
        self.scheduler.mirror.load(self.now.timestamp())

    def turn(self, seconds=2.0):
        self.now += timedelta(seconds=seconds)
        while self.scheduler.cycle(self.now.timestamp()):
            pass
        self.scheduler.binder.write_records(self.now.timestamp())


@pytest.fixture
def runner(api):
    runner = Runner()
    yield runner
    runner.scheduler.binder.close()
