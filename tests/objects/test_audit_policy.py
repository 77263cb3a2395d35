"""The audit policy: which request is written at which level."""

from typing import Any

import pytest

from clusterstate.objects.rules import audit_policy
from clusterstate.objects.rules.audit_policy import PolicyError, RequestAttributes

HEAD = "apiVersion: audit.k8s.io/v1\nkind: Policy\n"


def of(verb: str, resource: str = "", **more: str) -> RequestAttributes:
    resource, _, subresource = resource.partition("/")
    path = more.pop("path", f"/api/v1/{resource}")
    return RequestAttributes(verb, path, resource=resource, subresource=subresource, **more)


def level(policy: str, wanted: RequestAttributes, user: str = "ann", *groups: str) -> str:
    return audit_policy.parse(HEAD + policy).verdict(user, groups, wanted).level


KUBERNETES = """
omitStages: [RequestReceived]
rules:
- level: RequestResponse
  resources: [{group: "", resources: [pods]}]
- level: Metadata
  resources: [{group: "", resources: ["pods/log", "pods/status"]}]
- level: None
  resources: [{group: "", resources: [configmaps], resourceNames: [controller-leader]}]
- level: None
  users: ["system:kube-proxy"]
  verbs: [watch]
  resources: [{group: "", resources: [endpoints, services]}]
- level: None
  userGroups: ["system:authenticated"]
  nonResourceURLs: ["/api*", "/version"]
- level: Request
  resources: [{group: "", resources: [configmaps]}]
  namespaces: [kube-system]
- level: Metadata
  resources: [{group: "", resources: [secrets, configmaps]}]
- level: Request
  resources: [{group: ""}, {group: extensions}]
- level: Metadata
  omitStages: [RequestReceived]
"""
"""The example of Kubernetes' documentation (tasks/debug/debug-cluster/audit)."""


@pytest.mark.parametrize(
    ("wanted", "user", "groups", "expected"),
    [
        (of("create", "pods"), "ann", (), "RequestResponse"),
        (of("get", "pods/log"), "ann", (), "Metadata"),
        (of("get", "pods/exec"), "ann", (), "Request"),
        (of("update", "configmaps", name="controller-leader"), "ann", (), "None"),
        (of("update", "configmaps", name="x"), "ann", (), "Metadata"),
        (of("update", "configmaps", name="x", namespace="kube-system"), "ann", (), "Request"),
        (of("watch", "services"), "system:kube-proxy", (), "None"),
        (of("list", "services"), "system:kube-proxy", (), "Request"),
        (of("watch", "services"), "ann", (), "Request"),
        (of("get", path="/api/v1"), "ann", ("system:authenticated",), "None"),
        (of("get", path="/api/v1"), "ann", (), "Metadata"),
        (of("get", path="/version"), "ann", ("system:authenticated",), "None"),
        (of("get", path="/version/x"), "ann", ("system:authenticated",), "Metadata"),
        (of("create", "secrets"), "ann", (), "Metadata"),
        (of("create", "jobs", group="batch"), "ann", (), "Metadata"),
        (of("create", "jobs", group="extensions"), "ann", (), "Request"),
    ],
)
def test_the_example_of_kubernetes_is_judged_as_kubernetes_judges_it(
    wanted: RequestAttributes, user: str, groups: tuple[str, ...], expected: str
) -> None:
    assert level(KUBERNETES, wanted, user, *groups) == expected


@pytest.mark.parametrize(
    ("resources", "wanted", "matches"),
    [
        ('["*"]', of("get", "pods/log"), True),
        ('["*/log"]', of("get", "pods/log"), True),
        ('["*/log"]', of("get", "pods"), False),
        ('["pods/*"]', of("get", "pods/log"), True),
        ('["pods/*"]', of("get", "pods"), True),
        ("[pods]", of("get", "pods/log"), False),
        ('["pods/log"]', of("get", "nodes/log"), False),
        ("[pods]", of("get", "pods", group="x"), False),
    ],
)
def test_resources_are_matched_with_stars(
    resources: str, wanted: RequestAttributes, matches: bool
) -> None:
    rules = f"rules: [{{level: Request, resources: [{{resources: {resources}}}]}}]"
    assert level(rules, wanted) == ("Request" if matches else "None")


@pytest.mark.parametrize(
    ("wanted", "groups", "expected"),
    [
        (of("create", "pods"), (), "Metadata"),
        (of("patch", "nodes"), (), "Metadata"),
        (of("delete", "pods"), (), "Metadata"),
        (of("post", path="/admin/login/"), (), "Metadata"),
        (of("get", "pods"), (), "None"),
        (of("watch", "pods"), (), "None"),
        (of("get", path="/admin/"), (), "None"),
        (of("get", path="/livez"), (), "None"),
        (of("get", path="/metrics"), (), "None"),
        (of("create", "events"), (), "None"),
        (of("watch", "events", group="events.k8s.io"), (), "None"),
        (of("update", "leases", group="coordination.k8s.io"), (), "None"),
        (of("list", "secrets"), (), "Metadata"),
        (of("create", "serviceaccounts/token"), (), "Metadata"),
        (of("patch", "nodes/status"), ("system:nodes",), "None"),
        (of("patch", "nodes/status"), (), "Metadata"),
        (of("patch", "nodes"), ("system:nodes",), "Metadata"),
    ],
)
def test_the_default_writes_every_change_and_who_reads_secrets(
    wanted: RequestAttributes, groups: tuple[str, ...], expected: str
) -> None:
    assert audit_policy.DEFAULT.verdict("ann", groups, wanted).level == expected


def test_secrets_are_never_shown_whatever_the_policy_says() -> None:
    everything = "rules: [{level: RequestResponse}]"
    for wanted in (
        of("create", "secrets"),
        of("create", "serviceaccounts/token"),
        of("create", "tokenreviews", group="authentication.k8s.io"),
        of("create", "webhooks", group="stowage.dev"),
        of("update", "webhooks", group="stowage.dev"),
    ):
        assert level(everything, wanted) == "Metadata"
    assert level(everything, of("create", "configmaps")) == "RequestResponse"


def test_stages_and_managed_fields_are_left_out_by_the_policy_and_by_its_rules() -> None:
    policy = audit_policy.parse(
        HEAD
        + """
omitStages: [RequestReceived]
omitManagedFields: true
rules:
- level: Metadata
  verbs: [create]
  omitStages: [ResponseStarted]
  omitManagedFields: false
- level: Metadata
"""
    )
    first = policy.verdict("ann", (), of("create", "pods"))
    other = policy.verdict("ann", (), of("delete", "pods"))
    assert first.omitted == {"RequestReceived", "ResponseStarted"}
    assert other.omitted == {"RequestReceived"}
    assert (first.omit_managed_fields, other.omit_managed_fields) == (False, True)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("{", "not YAML"),
        ("[]", "Expected `object`"),
        (HEAD, "rules"),
        (HEAD + "rules: []", "at least one rule is required"),
        (HEAD + "rules: [{level: Everything}]", r"\$\.rules\[0\]\.level|rules\[\.\.\.\]"),
        (HEAD + "rules: [{level: None, verb: [get]}]", "verb"),
        (HEAD + "rules: [{level: None, nonResourceURLs: [healthz]}]", "nonResourceURLs"),
        (HEAD + "rules: [{level: None, nonResourceURLs: ['/a*b']}]", "nonResourceURLs"),
        (
            HEAD + "rules: [{level: None, nonResourceURLs: [/x], namespaces: [a]}]",
            r"rules\[0\]: a rule may have either",
        ),
        (
            HEAD + "rules: [{level: None, resources: [{resourceNames: [a]}]}]",
            "resourceNames need resources",
        ),
        ("apiVersion: v1\nkind: Policy\nrules: [{level: None}]", "apiVersion"),
    ],
)
def test_a_policy_that_cannot_be_used_is_refused_with_the_name_of_the_field(
    text: str, said: str
) -> None:
    with pytest.raises(PolicyError, match=said):
        audit_policy.parse(text)


def test_what_no_rule_matches_is_not_written() -> None:
    rules: dict[str, Any] = {"verbs": ["create"], "level": "Metadata"}
    text = f"rules: [{{level: {rules['level']}, verbs: [create]}}]"
    assert level(text, of("create", "pods")) == "Metadata"
    assert level(text, of("delete", "pods")) == "None"
