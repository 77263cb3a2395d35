"""What the audit log says of a form: the request of the API that does the same, and no field."""

import json
from typing import Any

import pytest
from django.conf import settings
from django.test import Client
from django.urls import reverse

from api.server import audit, audit_events
from clusterstate.access.rules import Attributes
from clusterstate.admission.request import User
from clusterstate.middleware import DID, SESSION_USER
from clusterstate.objects.rules import audit_policy
from tests.clusterstate.support import create_node
from tests.console.conftest import text
from tests.console.test_change import CHANGE, form_of, owned

HEAD = "apiVersion: audit.k8s.io/v1\nkind: Policy\n"


def did(answer: Any) -> Any:
    return answer.wsgi_request.META.get(DID)


def test_forms_say_what_they_do_and_pages_nothing(operator: Client, viewer: Client) -> None:
    create_node("n1")
    owned("web-1", "n1")
    answer = operator.get(CHANGE, {"do": "drain", "node": "n1"})
    assert did(answer) is None
    act = form_of(text(answer))
    plan = act.split("/")[3]
    applied = Attributes("create", "stowage.dev", "plans", "apply", name=plan)
    assert did(viewer.post(act, {"what": "apply"})) == applied, "also one that is refused"
    assert did(operator.post(act, {"what": "apply"})) == applied
    page = "/console/objects/Namespace/-/default/"
    assert did(operator.get(page)) is None
    answer = operator.post(page, {"text": "kind: Namespace"})
    assert did(answer) == Attributes("update", resource="namespaces", name="default")


def written(policy: str, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """Return the lines of a form that applies a plan, under a policy."""
    lines: list[audit_events.AuditedRequest] = []
    monkeypatch.setattr(settings, "AUDIT_KEEP_HOURS", 168)
    monkeypatch.setattr(audit.log, "policy", audit_policy.parse(HEAD + policy))
    monkeypatch.setattr(audit.log, "put", lines.append)
    scope = {
        "type": "http", "method": "POST", "path": "/console/plans/p1/act", "headers": [],
        "query_string": b"", "client": ("192.0.2.1", 7),
    }  # fmt: skip
    entry = audit.opened(scope)
    wants = Attributes("create", "stowage.dev", "plans", "apply", name="p1")
    audit.page(entry, {SESSION_USER: "anna", DID: wants})
    audit.answered(entry, 302, request=b"what=apply&csrf=secret", response=b"<html>secret")
    return [json.loads(audit_events.line_of(one).text) for one in lines]


def test_a_form_is_found_beside_requests_and_its_fields_are_not_written(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    (line,) = written("rules: [{level: RequestResponse}]", monkeypatch)
    assert line["level"] == "Metadata"
    assert line["user"] == {"username": "anna"}
    assert (line["verb"], line["requestURI"]) == ("create", "/console/plans/p1/act")
    assert line["objectRef"] == {
        "resource": "plans", "subresource": "apply", "name": "p1", "apiGroup": "stowage.dev",
        "apiVersion": "v1",
    }  # fmt: skip
    assert "secret" not in json.dumps(line)
    about_plans = "rules: [{level: None, resources: [{group: stowage.dev}]}, {level: Metadata}]"
    assert written(about_plans, monkeypatch) == []


def test_what_a_provider_puts_into_an_address_is_not_written() -> None:
    path = reverse("console:company-back")
    scope = {
        "type": "http", "method": "GET", "path": path, "headers": [],
        "query_string": b"code=secret&state=secret", "client": None,
    }  # fmt: skip
    entry = audit.opened(scope)
    audit.page(entry, {})
    line = json.loads(audit_events.line_of(entry).text)
    assert line["requestURI"] == path


def test_a_line_of_a_form_has_what_it_is_searched_by(monkeypatch: pytest.MonkeyPatch) -> None:
    scope = {
        "type": "http", "method": "POST", "path": "/console/x", "headers": [],
        "query_string": b"", "client": None,
    }  # fmt: skip
    entry = audit.opened(scope)
    audit.page(entry, {DID: Attributes("update", resource="pods", namespace="a", name="b")})
    entry.sender, entry.at = User(name="anna"), 1.0
    line = audit_events.line_of(entry)
    assert (line.verb, line.resource, line.namespace, line.name) == ("update", "pods", "a", "b")
