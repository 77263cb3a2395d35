"""Roles and bindings as objects: their rules, defaults and columns."""

import pytest

from tests.api.conftest import TABLE

RBAC = "/apis/rbac.authorization.k8s.io/v1"
ROLES = f"{RBAC}/namespaces/ns/roles"
BINDINGS = f"{RBAC}/namespaces/ns/rolebindings"
READ = {"verbs": ["get"], "apiGroups": [""], "resources": ["pods"]}


def binding(name="b", role="Role", **parts):
    return {"metadata": {"name": name}, "roleRef": {"kind": role, "name": "r"}, **parts}


@pytest.mark.parametrize(
    ("rule", "message"),
    [
        ({"apiGroups": [""], "resources": ["pods"]}, "rules[0].verbs: Required value"),
        ({"verbs": ["get"], "resources": ["pods"]}, "rules[0].apiGroups: Required value"),
        ({"verbs": ["get"], "apiGroups": [""]}, "rules[0].resources: Required value"),
        (
            {"verbs": ["get"], "nonResourceURLs": ["/metrics"]},
            "namespaced rules cannot apply to non-resource URLs",
        ),
        (
            {**READ, "nonResourceURLs": ["/metrics"]},
            "rules cannot apply to both regular resources and non-resource URLs",
        ),
    ],
)
def test_a_rule_says_what_it_allows(api, rule, message):
    """Rule: ValidatePolicyRule, pkg/apis/rbac/validation, v1.36."""
    refused = api.post(ROLES, {"metadata": {"name": "r"}, "rules": [rule]}).fails(422, "Invalid")
    assert message in refused["message"]


def test_a_cluster_role_may_speak_of_paths_and_of_other_roles(api):
    urls = {"verbs": ["get"], "nonResourceURLs": ["/metrics"]}
    api.post(f"{RBAC}/clusterroles", {"metadata": {"name": "a:b"}, "rules": [urls]}).ok(201)
    empty = {"metadata": {"name": "c"}, "aggregationRule": {"clusterRoleSelectors": []}}
    refused = api.post(f"{RBAC}/clusterroles", empty).fails(422, "Invalid")
    assert "at least one clusterRoleSelector required" in refused["message"]
    for name, part in (("a%b", "%"), ("..", "..")):
        api.post(f"{RBAC}/clusterroles", {"metadata": {"name": name}}).fails(422, "Invalid")
        assert part in name


@pytest.mark.parametrize(
    ("parts", "message"),
    [
        ({"roleRef": {"kind": "Pod", "name": "r"}}, 'roleRef.kind: Unsupported value: "Pod"'),
        ({"roleRef": {"kind": "Role"}}, "roleRef.name: Required value"),
        (
            {"roleRef": {"apiGroup": "x", "kind": "Role", "name": "r"}},
            'roleRef.apiGroup: Unsupported value: "x"',
        ),
        ({"subjects": [{"kind": "User"}]}, "subjects[0].name: Required value"),
        (
            {"subjects": [{"kind": "Dog", "name": "d"}]},
            'subjects[0].kind: Unsupported value: "Dog"',
        ),
        (
            {"subjects": [{"kind": "ServiceAccount", "name": "s", "apiGroup": "x"}]},
            "subjects[0].apiGroup: Unsupported value",
        ),
    ],
)
def test_a_binding_says_whom_it_gives_what(api, parts, message):
    """Rule: ValidateRoleBinding, pkg/apis/rbac/validation, v1.36."""
    refused = api.post(BINDINGS, {**binding(), **parts}).fails(422, "Invalid")
    assert message in refused["message"]


def test_a_binding_of_the_cluster_names_a_role_of_the_cluster(api):
    path = f"{RBAC}/clusterrolebindings"
    api.post(path, binding(role="Role")).fails(422, "Invalid")
    account = {"kind": "ServiceAccount", "name": "s"}
    refused = api.post(path, binding(role="ClusterRole", subjects=[account])).fails(422, "Invalid")
    assert "subjects[0].namespace: Required value" in refused["message"]


def test_the_role_of_a_binding_stays(api):
    users = [{"kind": "User", "name": "ann"}, {"kind": "ServiceAccount", "name": "s"}]
    made = api.post(BINDINGS, binding(subjects=users)).ok(201)
    group = "rbac.authorization.k8s.io"
    assert made["roleRef"]["apiGroup"] == made["subjects"][0]["apiGroup"] == group
    assert "apiGroup" not in made["subjects"][1]
    changed = {**made, "roleRef": {**made["roleRef"], "name": "other"}}
    refused = api.put(f"{BINDINGS}/b", changed).fails(422, "Invalid")
    assert "cannot change roleRef" in refused["message"]
    api.patch(f"{BINDINGS}/b", {"subjects": None}).ok()


def test_a_list_tells_the_role_and_who_has_it(api):
    subjects = [
        {"kind": "User", "name": "ann"},
        {"kind": "User", "name": "bob"},
        {"kind": "Group", "name": "team"},
        {"kind": "ServiceAccount", "name": "s", "namespace": "ns"},
    ]
    api.post(BINDINGS, binding(subjects=subjects)).ok(201)
    table = api.get(BINDINGS, accept=TABLE).ok()
    columns = [column["name"] for column in table["columnDefinitions"]]
    assert columns == ["Name", "Role", "Age", "Users", "Groups", "ServiceAccounts"]
    cells = dict(zip(columns, table["rows"][0]["cells"], strict=True))
    assert (cells["Role"], cells["Users"], cells["Groups"], cells["ServiceAccounts"]) == (
        "Role/r", "ann, bob", "team", "ns/s",
    )  # fmt: skip
