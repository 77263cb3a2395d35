"""Roles, tokens and acting for others, with the real kubectl."""

import secrets

import pytest


@pytest.fixture
def ann():
    return f"ann-{secrets.token_hex(3)}"


def test_whoami_and_acting_for_another(kubectl, ann):
    kubectl.says(r"Username\s+admin", "auth", "whoami")
    printed = kubectl.says(
        rf"Username\s+{ann}", "auth", "whoami", "--as", ann, "--as-group", "team"
    )
    assert "team" in printed
    kubectl.says(
        rf'User "{ann}" cannot list resource "pods" in API group "" in the namespace',
        "get", "pods", "--as", ann, fails=True,
    )  # fmt: skip
    kubectl.says(r"^no", "auth", "can-i", "list", "pods", "--as", ann, fails=True)
    kubectl.says(r"^yes", "auth", "can-i", "list", "pods")
    kubectl.run("create", "serviceaccount", "robot")
    token = kubectl.run("create", "token", "robot").strip()
    kubectl.says(
        r'cannot impersonate resource "users"', "get", "pods", "--token", token, "--as", ann,
        fails=True,
    )  # fmt: skip


@pytest.mark.long
def test_a_role_is_made_bound_listed_and_taken_away(kubectl, ann):
    kubectl.says("created", "create", "role", "looker", "--verb=get,list", "--resource=pods")
    kubectl.says("created", "create", "rolebinding", "looker", "--role=looker", f"--user={ann}")
    kubectl.says(rf"looker\s+Role/looker\s+\S+\s+{ann}", "get", "rolebindings", "-o", "wide")
    kubectl.says(r"^yes", "auth", "can-i", "list", "pods", "--as", ann)
    kubectl.says(r"^no", "auth", "can-i", "delete", "pods", "--as", ann, fails=True)
    kubectl.says(
        r"^no", "auth", "can-i", "list", "pods", "--as", ann, "--all-namespaces", fails=True
    )
    kubectl.says(r"^pods\s+\[\]\s+\[\]\s+\[get list\]", "auth", "can-i", "--list", "--as", ann)
    kubectl.says("No resources found", "get", "pods", "--as", ann)
    kubectl.says(r"Role:\s+Kind:\s+Role|Kind:\s+Role", "describe", "rolebinding", "looker")
    kubectl.run("delete", "rolebinding", "looker")
    kubectl.says("Forbidden|forbidden", "get", "pods", "--as", ann, fails=True)


@pytest.mark.long
def test_roles_of_the_cluster(kubectl, ann):
    name = f"role-{ann}"
    kubectl.says(
        "created", "create", "clusterrole", name, "--verb=get", "--resource=nodes,pods/status"
    )
    kubectl.says(
        "created", "create", "clusterrolebinding", name, f"--clusterrole={name}", f"--user={ann}"
    )
    kubectl.says(r"^yes", "auth", "can-i", "get", "nodes", "--as", ann)
    kubectl.says("created", "create", "clusterrole", f"{name}-all",
                 "--aggregation-rule=rbac.example.com/all=true")  # fmt: skip
    kubectl.run("delete", "clusterrolebinding", name)
    kubectl.run("delete", "clusterrole", name, f"{name}-all")


@pytest.mark.long
def test_reconcile_makes_and_completes_roles(kubectl, ann):
    file = f"""
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {{name: reconciled, namespace: {kubectl.namespace}}}
rules:
- {{apiGroups: [""], resources: [pods], verbs: [get]}}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {{name: reconciled, namespace: {kubectl.namespace}}}
roleRef: {{apiGroup: rbac.authorization.k8s.io, kind: Role, name: reconciled}}
subjects:
- {{apiGroup: rbac.authorization.k8s.io, kind: User, name: {ann}}}
"""
    kubectl.says("reconciled", "auth", "reconcile", "-f", "-", stdin=file)
    kubectl.says(r"^yes", "auth", "can-i", "get", "pods", "--as", ann)
    more = file.replace("verbs: [get]", "verbs: [list]")
    kubectl.says("reconciled", "auth", "reconcile", "-f", "-", stdin=more)
    kubectl.says(r"^yes", "auth", "can-i", "list", "pods", "--as", ann)
    kubectl.says(r"^yes", "auth", "can-i", "get", "pods", "--as", ann)


def test_a_service_account_gets_a_token_and_works_with_it(kubectl):
    kubectl.run("create", "serviceaccount", "worker")
    token = kubectl.run("create", "token", "worker", "--duration", "15m").strip()
    account = f"system:serviceaccount:{kubectl.namespace}:worker"
    kubectl.says(rf"Username\s+{account}", "auth", "whoami", "--token", token)
    kubectl.says("forbidden", "get", "pods", "--token", token, fails=True)
    kubectl.run(
        "create", "rolebinding", "worker", "--clusterrole=view",
        f"--serviceaccount={kubectl.namespace}:worker",
    )  # fmt: skip
    kubectl.says("No resources found", "get", "pods", "--token", token)
    kubectl.says("No resources found", "get", "pods", "--as", account)
    kubectl.run("delete", "serviceaccount", "worker")
    kubectl.says("less than 10 minutes|not found", "create", "token", "worker", "--duration", "1m",
                 fails=True)  # fmt: skip
