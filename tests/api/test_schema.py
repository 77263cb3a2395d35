"""Schemathesis over every document of OpenAPI v3: each operation is reached, and keeps its word.

First with objects that are there and bodies that are right, then with what Schemathesis makes of
the schemas. STOWAGE_SCHEMA_EXAMPLES says how many requests it makes for each operation (``make
schema``: 50).
"""

import json
import os
import urllib.parse
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, given, seed, settings
from schemathesis.checks import CHECKS, load_all_checks
from schemathesis.core.failures import Failure, FailureGroup

from api.forms.errors import UNKNOWN_PATH
from clusterstate.objects.registry.kinds import ALL_KINDS, KINDS
from tests.api.bodies import body_of, collection, named
from tests.api.builders import binding
from tests.api.conftest import MERGE, Api, make_token
from tests.forms import many

pytestmark = [pytest.mark.django_db(transaction=True), pytest.mark.slow]

load_all_checks()
EXAMPLES = int(os.environ.get("STOWAGE_SCHEMA_EXAMPLES") or many(1, 10))
PROMISES = [
    CHECKS.get_one(name)
    for name in (
        "not_a_server_error", "status_code_conformance", "content_type_conformance",
        "response_schema_conformance",
    )
]  # fmt: skip
GENERATION = settings(
    max_examples=EXAMPLES, database=None, deadline=None, phases=[Phase.generate],
    suppress_health_check=list(HealthCheck),
)  # fmt: skip
ENDLESS = ("watch", "waitFor", "timeoutSeconds")
"""Parameters that make an answer wait for what happens next."""


def operations(server, token) -> list[Any]:
    """Return the operations of all documents that the index names."""
    headers = {"Authorization": f"Bearer {token}"}
    base = f"http://127.0.0.1:{server.port}"
    index = json.loads(server.ask("GET", "/openapi/v3", token)[2])
    found = []
    for place in index["paths"].values():
        schema = schemathesis.openapi.from_url(base + place["serverRelativeURL"], headers=headers)
        found += [result.ok() for result in schema.get_all_operations()]
    return found


def send(case, server, token):
    return case.call(
        base_url=f"http://127.0.0.1:{server.port}",
        headers={"Authorization": f"Bearer {token}"}, timeout=30,
    )  # fmt: skip


def told(error: BaseException) -> str:
    """Return what a check found wrong, in a line."""
    first = getattr(error, "exceptions", (error,))[0]
    return " ".join(str(first).split())[:600]


def order(operation) -> tuple[int, bool, bool]:
    """Create first, delete last, namespaces after all that is in them."""
    methods = ["post", "get", "put", "patch", "delete"]
    is_collection = not operation.path.endswith("}")
    deletes = operation.method == "delete"
    return (
        methods.index(operation.method),
        deletes and operation.path.startswith("/api/v1/namespaces/{name}"),
        deletes and is_collection,
    )


def kind_of(operation):
    """Return the kind whose objects a path is about, and the subresource, if it is a kind's."""
    for kind in ALL_KINDS:
        many = collection(kind).replace("/ns/", "/{namespace}/")
        if operation.path in (many, f"{many}/{{name}}"):
            return kind, ""
        if operation.path.startswith(f"{many}/{{name}}/"):
            return kind, operation.path.rpartition("/")[2]
    return None, ""


@pytest.fixture
def token(server):
    secret = make_token("operator", ["system:masters"])
    api = Api(secret)
    for kind in (KINDS["Namespace"], *ALL_KINDS):
        word = "ns" if kind.name == "Namespace" else "one"
        if api.get(f"{collection(kind)}/{named(kind, word)}").status == 404:
            api.post(collection(kind), body_of(kind, word)).ok(201)
    return secret


def body_for(operation, kind, subresource: str, api: Api, path: str) -> Any:
    """Return a right body for a request about ``one``."""
    if operation.method == "patch":
        return {"metadata": {"annotations": {"patched": "yes"}}}
    if operation.method == "put" and subresource != "token":
        return api.get(path.removesuffix("/finalize")).ok()
    if operation.method == "post" and not subresource:
        return body_of(kind, "two")
    return {
        "binding": binding("one", "one"),
        "eviction": {"metadata": {"name": "one"}},
        "token": {"spec": {}},
    }.get(subresource, {})


def test_every_operation_of_a_kind_is_reached_and_answers_as_its_schema_says(server, token):
    api = Api(token)
    wrong, codes = [], {}
    for operation in sorted(operations(server, token), key=order):
        kind, subresource = kind_of(operation)
        if kind is None:
            continue
        parameters = {"namespace": "ns", "name": "ns"}
        if kind.name != "Namespace":
            parameters["name"] = named(kind, "one")
        path = operation.path.format(**parameters)
        more: dict[str, Any] = {}
        if operation.method in ("post", "put", "patch"):
            more["body"] = body_for(operation, kind, subresource, api, path)
            more["media_type"] = MERGE if operation.method == "patch" else "application/json"
        if operation.method == "delete" and kind.name == "Namespace":
            parameters["name"] = "two"
            if operation.path.endswith("s"):  # not those that nobody may delete
                more["query"] = {"labelSelector": "kubernetes.io/metadata.name=two"}
        where = {key: value for key, value in parameters.items() if f"{{{key}}}" in operation.path}
        case = operation.Case(path_parameters=where, **more)
        answer = send(case, server, token)
        codes[answer.status_code] = codes.get(answer.status_code, 0) + 1
        try:
            case.validate_response(answer, checks=PROMISES)
        except (FailureGroup, Failure) as error:  # all of them are told at the end
            wrong.append(f"{operation.label}: {told(error)}")
        if answer.status_code >= 300:
            wrong.append(f"{operation.label}: {answer.status_code} {answer.text[:300]}")
    assert not wrong, f"{codes}\n" + "\n".join(wrong)
    assert sum(codes.values()) > 380


@pytest.mark.long
@pytest.mark.timeout(3600)
def test_whatever_the_schemas_allow_is_answered_as_they_say(server, token):
    wrong, codes = [], {}

    def check(operation, case):
        for name in ENDLESS:
            case.query.pop(name, None)
        if len(operation.label) % 2 and "namespace" in case.path_parameters:  # one that exists
            case.path_parameters["namespace"] = "ns"
        answer = send(case, server, token)
        codes[answer.status_code] = codes.get(answer.status_code, 0) + 1
        asked = urllib.parse.unquote(answer.request.url)[:300]
        try:
            case.validate_response(answer, checks=PROMISES)
        except (FailureGroup, Failure) as error:  # all of them are told at the end
            wrong.append(f"{operation.label}: {asked}: {told(error)}")
        if answer.status_code == 405 or UNKNOWN_PATH in answer.text:
            wrong.append(f"{operation.label}: not reached: {asked}")

    def about(operation):
        def one(case):
            check(operation, case)

        return one

    for operation in sorted(operations(server, token), key=order):
        seed(7)(GENERATION(given(case=operation.as_strategy())(about(operation))))()
    assert not wrong, f"{codes}\n" + "\n".join(wrong[:30])
    assert codes.get(200, 0) > 100, codes
    assert codes.get(201, 0) > 0, codes
