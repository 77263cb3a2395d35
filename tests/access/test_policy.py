"""What roles and bindings allow, without a database."""

import pytest

from clusterstate.access import default_roles
from clusterstate.access.policy import Policy
from clusterstate.access.rules import Attributes, Rule, rules_of, uncovered

RBAC = "rbac.authorization.k8s.io"
READ_PODS = {"verbs": ["get", "list"], "apiGroups": [""], "resources": ["pods"]}


def role(name, *rules, namespace="", labels=None, aggregates=None):
    metadata = {"name": name, "labels": labels or {}}
    if namespace:
        metadata["namespace"] = namespace
    found = {"metadata": metadata, "rules": list(rules)}
    if aggregates is not None:
        chosen = [{"matchLabels": one} for one in aggregates]
        found["aggregationRule"] = {"clusterRoleSelectors": chosen}
    return found


def binding(name, to, *subjects, namespace="", kind="ClusterRole"):
    metadata = {"name": name}
    if namespace:
        metadata["namespace"] = namespace
    parts = [dict(zip(("kind", "name", "namespace"), one, strict=False)) for one in subjects]
    return {
        "metadata": metadata,
        "roleRef": {"apiGroup": RBAC, "kind": kind, "name": to},
        "subjects": parts,
    }


def allowed(policy, user, verb, resource, *, groups=(), **more):
    wants = Attributes(verb, resource=resource, **more)
    return policy.decide(user, tuple(groups), wants).allowed


@pytest.mark.parametrize(
    ("rule", "wants", "expected"),
    [
        (READ_PODS, Attributes("get", resource="pods"), True),
        (READ_PODS, Attributes("watch", resource="pods"), False),
        (READ_PODS, Attributes("get", "apps", "pods"), False),
        (READ_PODS, Attributes("get", resource="pods", subresource="status"), False),
        ({**READ_PODS, "resources": ["pods/status"]},
         Attributes("get", resource="pods", subresource="status"), True),
        ({**READ_PODS, "resources": ["pods/status"]}, Attributes("get", resource="pods"), False),
        ({**READ_PODS, "resources": ["*/scale"]},
         Attributes("get", resource="pods", subresource="scale"), True),
        ({**READ_PODS, "resources": ["*/scale"]}, Attributes("get", resource="pods"), False),
        ({**READ_PODS, "resources": ["*"]},
         Attributes("get", resource="pods", subresource="x"), True),
        ({**READ_PODS, "verbs": ["*"], "apiGroups": ["*"]}, Attributes("x", "y", "pods"), True),
        (READ_PODS, Attributes("get", path="/pods"), False),
        ({"verbs": ["get"], "nonResourceURLs": ["/a/*"]}, Attributes("get", path="/a/b"), True),
        ({"verbs": ["get"], "nonResourceURLs": ["/a/*"]}, Attributes("get", path="/a"), False),
        ({"verbs": ["get"], "nonResourceURLs": ["/a"]}, Attributes("get", path="/a/b"), False),
        ({"verbs": ["get"], "nonResourceURLs": ["*"]}, Attributes("get", path="/a/b"), True),
        ({"verbs": ["get"], "nonResourceURLs": ["*"]}, Attributes("get", resource="pods"), False),
    ],
)  # fmt: skip
def test_what_a_rule_reaches(rule, wants, expected):
    """Rule: evaluation_helpers.go, v1.36."""
    (one,) = rules_of([rule])
    assert one.reaches(wants) is expected


def test_a_binding_of_a_namespace_ends_at_it():
    policy = Policy({
        "ClusterRole": [role("reader", READ_PODS)],
        "RoleBinding": [binding("b", "reader", ("User", "ann"), namespace="a")],
    })  # fmt: skip
    assert allowed(policy, "ann", "list", "pods", namespace="a")
    assert not allowed(policy, "ann", "list", "pods", namespace="b")
    assert not allowed(policy, "ann", "list", "pods"), "a list of all namespaces is another thing"
    assert not allowed(policy, "bob", "list", "pods", namespace="a")


def test_a_role_of_a_namespace_is_not_found_from_another():
    policy = Policy({
        "Role": [role("reader", READ_PODS, namespace="a")],
        "RoleBinding": [
            binding("b", "reader", ("User", "ann"), namespace="a", kind="Role"),
            binding("b", "reader", ("User", "ann"), namespace="b", kind="Role"),
        ],
    })  # fmt: skip
    assert allowed(policy, "ann", "get", "pods", namespace="a")
    refused = policy.decide("ann", (), Attributes("get", resource="pods", namespace="b"))
    assert not refused.allowed
    assert refused.reason == 'RBAC: role.rbac.authorization.k8s.io "reader" not found'


def test_the_answer_says_by_which_binding():
    policy = Policy({
        "ClusterRole": [role("reader", READ_PODS)],
        "ClusterRoleBinding": [binding("all", "reader", ("Group", "team"))],
        "RoleBinding": [binding("b", "reader", ("ServiceAccount", "s"), namespace="a")],
    })  # fmt: skip
    wants = Attributes("get", resource="pods", namespace="a")
    assert policy.decide("ann", ("team",), wants).reason == (
        'RBAC: allowed by ClusterRoleBinding "all" of ClusterRole "reader" to Group "team"'
    )
    assert policy.decide("system:serviceaccount:a:s", (), wants).reason == (
        'RBAC: allowed by RoleBinding "b/a" of ClusterRole "reader" to ServiceAccount "s/a"'
    )


def test_names_bound_a_rule():
    policy = Policy({
        "ClusterRole": [
            role("one", {**READ_PODS, "resourceNames": ["x"]}),
            role("other", {**READ_PODS, "resourceNames": ["y"]}),
        ],
        "ClusterRoleBinding": [
            binding("1", "one", ("User", "ann")), binding("2", "other", ("User", "ann")),
        ],
    })  # fmt: skip
    names = {name: allowed(policy, "ann", "get", "pods", name=name) for name in ("x", "y", "z", "")}
    assert names == {"x": True, "y": True, "z": False, "": False}


def test_a_role_has_what_it_aggregates_and_they_in_turn():
    view = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}
    edit = {"verbs": ["update"], "apiGroups": [""], "resources": ["pods"]}
    stray = {"verbs": ["delete"], "apiGroups": [""], "resources": ["pods"]}
    policy = Policy({
        "ClusterRole": [
            role("admin", stray, aggregates=[{"to": "admin"}]),
            role("edit", aggregates=[{"to": "edit"}], labels={"to": "admin"}),
            role("view", aggregates=[{"to": "view"}], labels={"to": "edit"}),
            role("a", view, labels={"to": "view"}),
            role("b", edit, labels={"to": "edit"}),
            role("loop", aggregates=[{"to": "loop"}], labels={"to": "loop"}),
        ],
        "ClusterRoleBinding": [
            binding("1", "admin", ("User", "ann")), binding("2", "view", ("User", "bob")),
        ],
    })  # fmt: skip
    assert allowed(policy, "ann", "get", "pods")
    assert allowed(policy, "ann", "update", "pods")
    assert not allowed(policy, "ann", "delete", "pods"), "its own rules are not looked at"
    assert allowed(policy, "bob", "get", "pods")
    assert not allowed(policy, "bob", "update", "pods")


@pytest.mark.parametrize(
    ("held", "wanted", "covered"),
    [
        ("get list", "get", True),
        ("get", "get list", False),
        ("*", "get list", True),
        ("get", "*", False),
    ],
)
def test_rules_cover_others(held, wanted, covered):
    """Rule: policy_comparator.go, v1.36."""

    def make(verbs, **more):
        return Rule(tuple(verbs.split()), ("",), ("pods",), **more)

    assert (not uncovered([make(wanted)], [make(held)])) is covered
    assert uncovered([make(wanted)], [make(held, names=("x",))])
    assert (not uncovered([make(wanted, names=("x",))], [make(held)])) is covered


def test_paths_and_subresources_cover():
    def at(*urls):
        return [Rule(("get",), urls=urls)]

    assert not uncovered(at("/a/b", "/a/*"), at("/a/*"))
    assert uncovered(at("/*"), at("/a/*"))
    assert not uncovered([Rule(("get",), ("",), ("pods/scale",))],
                         [Rule(("get",), ("",), ("*/scale",))])  # fmt: skip
    assert uncovered([Rule(("get",), ("",), ("pods",))], [Rule(("get",), ("",), ("*/scale",))])


def test_an_answer_is_remembered_and_the_memory_is_bounded():
    policy = Policy({
        "ClusterRole": [role("reader", READ_PODS)],
        "ClusterRoleBinding": [binding("1", "reader", ("User", "ann"))],
    })  # fmt: skip
    for number in range(10_000):
        assert allowed(policy, "ann", "get", "pods", namespace=f"n{number}", name=f"p{number}")
        assert not allowed(policy, f"u{number}", "get", "pods")
    assert len(policy._subjects) <= 4096
    assert all(len(subject.answers) <= 4096 for subject in policy._subjects.values())


def test_default_roles_name_each_other():
    """No default binding is to a role that is not there, and no name comes twice."""
    roles = [one["metadata"]["name"] for one in default_roles.cluster_roles()]
    assert len(set(roles)) == len(roles)
    for one in default_roles.cluster_role_bindings():
        assert one["roleRef"]["name"] in roles
    local = [one["metadata"]["name"] for one in default_roles.roles()]
    for one in default_roles.role_bindings():
        assert one["roleRef"]["name"] in local
