"""FlowSchemas and PriorityLevelConfigurations: how requests take turns."""

import pytest

from tests.api.conftest import MERGE, TABLE

FLOWS = "/apis/flowcontrol.apiserver.k8s.io/v1"


def test_what_says_how_requests_take_turns_is_stored_and_is_told_to_do_nothing(api):
    """As Kubernetes' conformance tests of both kinds have it."""
    rule = {
        "subjects": [{"kind": "User", "user": {"name": "example-e2e-non-existent-user"}}],
        "nonResourceRules": [{"verbs": ["*"], "nonResourceURLs": ["*"]}],
    }
    flow = {"priorityLevelConfiguration": {"name": "global-default"}, "rules": [rule]}
    level = {"type": "Limited", "limited": {"limitResponse": {"type": "Reject"}}}
    seen = (("flowschemas", flow, "matchingPrecedence", 1000),
            ("prioritylevelconfigurations", level, "type", "Limited"))  # fmt: skip
    for plural, spec, field, value in seen:
        made = api.post(f"{FLOWS}/{plural}", {"metadata": {"generateName": "e-"}, "spec": spec})
        assert "are queued fairly by user, which cannot be configured" in made.headers["Warning"]
        one = f"{FLOWS}/{plural}/{made.ok(201)['metadata']['name']}"
        assert api.get(one).ok()["spec"][field] == value
        other = api.get(one).ok()
        assert "Warning" not in api.put(one, other).headers
        other["spec"].setdefault("limited", {})["nominalConcurrencyShares"] = 31
        if plural == "flowschemas":
            other["spec"] = {**spec, "matchingPrecedence": 999}
        changed = api.put(one, other)
        assert changed.status == 200
        assert "are queued fairly by user, which cannot be configured" in changed.headers["Warning"]
        other |= {"metadata": changed.json["metadata"], "spec": made.json["spec"]}
        assert api.put(one, other).status == 200
        status = {"conditions": [{"type": "X", "status": "False", "reason": "e2e"}]}
        patched = api.patch(f"{one}/status", {"status": status}, content_type=MERGE).ok()
        assert patched["status"] == status
    assert api.get(f"{one}/status").ok()["spec"]["limited"]["nominalConcurrencyShares"] == 30
    rows = [api.get(f"{FLOWS}/{plural}", accept=TABLE).ok()["rows"] for plural, *_ in seen]
    told = [row["cells"][1:4] for (row,) in rows]
    assert told == [["global-default", 1000, "<none>"], ["Limited", 30, "<none>"]]


@pytest.mark.parametrize(
    ("plural", "spec", "field"),
    [
        ("flowschemas", {"matchingPrecedence": 10001}, "spec.matchingPrecedence"),
        ("flowschemas", {}, "spec.priorityLevelConfiguration.name"),
        ("flowschemas", {"distinguisherMethod": {"type": "X"}}, "spec.distinguisherMethod"),
        ("flowschemas", {"rules": [{}]}, "spec.rules[0].subjects"),
        ("flowschemas", {"rules": [{"subjects": [{"kind": "User"}]}]},
         "spec.rules[0].subjects[0].user"),
        ("flowschemas", {"rules": [{"resourceRules": [{"verbs": ["*", "get"]}]}]},
         "spec.rules[0].resourceRules[0].verbs"),
        ("prioritylevelconfigurations", {"type": "X"}, "spec.type"),
        ("prioritylevelconfigurations", {"type": "Limited"}, "spec.limited"),
        ("prioritylevelconfigurations", {"type": "Exempt", "limited": {}}, "spec.limited"),
        ("prioritylevelconfigurations", {"type": "Limited", "limited": {}},
         "spec.limited.limitResponse.type"),
        ("prioritylevelconfigurations",
         {"type": "Limited", "limited": {"limitResponse": {"type": "Queue"}}},
         "spec.limited.limitResponse.queuing"),
        ("prioritylevelconfigurations",
         {"type": "Limited", "limited": {
             "lendablePercent": 101,
             "limitResponse": {"type": "Queue", "queuing": {"queues": 2, "handSize": 3}}}},
         "spec.limited.limitResponse.queuing.handSize"),
    ],
)  # fmt: skip
def test_wrong_turns_are_refused(api, plural, spec, field):
    refused = api.post(f"{FLOWS}/{plural}", {"metadata": {"name": "x"}, "spec": spec})
    causes = refused.fails(422, "Invalid")["details"]["causes"]
    assert field in [cause["field"] for cause in causes]
