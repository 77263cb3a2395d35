"""The default roles against a written table: every kind, subresource and verb."""

import pytest

from clusterstate.access import default_roles
from clusterstate.access.policy import Policy
from clusterstate.access.rules import Attributes
from clusterstate.objects.registry.kinds import ALL_KINDS

VERBS = {
    "r": ("get", "list", "watch"),
    "w": ("create", "delete", "deletecollection", "patch", "update"),
}
"""What the letters of the table stand for; other words are verbs."""

# Kind: what view, edit and admin may in a namespace where they are bound, and what reader and
# operator may everywhere. A kind that is not listed is read by reader and operator alone.
TABLE = """
Pod                      r  rw  rw  r  rw
Pod/status               r  r   r   r  r
Pod/binding              -  -   -   -  -
Pod/eviction             -  create create - create
Pod/resize               -  -   -   -  get,patch,update
ConfigMap                r  rw  rw  r  rw
Secret                   -  rw  rw  -  -
ServiceAccount           r  rw,impersonate rw,impersonate r r
ServiceAccount/token     -  create create - -
Service                  r  rw  rw  r  rw
Service/status           r  r   r   r  r
ReplicationController    r  rw  rw  r  rw
ReplicationController/status r r r  r  r
ReplicationController/scale r rw rw r  rw
PersistentVolumeClaim    r  rw  rw  r  rw
PersistentVolumeClaim/status r r r  r  r
Event                    r  rw  rw  r  rw
LimitRange               r  r   r   r  r
ResourceQuota            r  r   r   r  r
ResourceQuota/status     r  r   r   r  r
Namespace                r  r   r   r  r
Namespace/status         r  r   r   r  r
Node                     -  -   -   r  r,patch,update
Node/status              -  -   -   r  r
ControllerRevision       r  r   r   r  r
Deployment               r  rw  rw  r  rw
Deployment/status        r  r   r   r  r
Deployment/scale         r  rw  rw  r  rw
ReplicaSet               r  rw  rw  r  rw
ReplicaSet/status        r  r   r   r  r
ReplicaSet/scale         r  rw  rw  r  rw
StatefulSet              r  rw  rw  r  rw
StatefulSet/status       r  r   r   r  r
StatefulSet/scale        r  rw  rw  r  rw
DaemonSet                r  rw  rw  r  rw
DaemonSet/status         r  r   r   r  r
Job                      r  rw  rw  r  rw
Job/status               r  r   r   r  r
CronJob                  r  rw  rw  r  rw
CronJob/status           r  r   r   r  r
HorizontalPodAutoscaler  r  rw  rw  r  rw
HorizontalPodAutoscaler/status r r r r r
PodDisruptionBudget      r  rw  rw  r  rw
PodDisruptionBudget/status r r  r   r  r
Endpoints                r  r   r   r  r
EndpointSlice            r  r   r   r  r
Ingress                  r  rw  rw  r  rw
Ingress/status           r  r   r   r  r
NetworkPolicy            r  rw  rw  r  rw
Lease                    -  rw  rw  r  rw
ResourceClaim            r  rw  rw  r  rw
ResourceClaim/status     r  r   r   r  r
ResourceClaimTemplate    r  rw  rw  r  rw
PodGroup                 r  rw  rw  r  rw
PodGroup/status          r  r   r   r  r
Workload                 r  rw  rw  r  rw
Role                     -  -   rw  r  r
RoleBinding              -  -   rw  r  r
"""
ROLES = ("view", "edit", "admin", "stowage:reader", "stowage:operator")
ALL_VERBS = [*VERBS["r"], *VERBS["w"], "impersonate", "escalate", "bind", "approve"]


def rows():
    """Return (kind, subresource) -> the verbs of each role, for everything that is registered."""
    written = {}
    for line in TABLE.strip().splitlines():
        name, *cells = line.split()
        kind, _, subresource = name.partition("/")
        written[kind, subresource] = [expanded(cell) for cell in cells]
    for kind in ALL_KINDS:
        for subresource in ("", *kind.subresources):
            everywhere = expanded("r" if subresource in ("", "status", "scale") else "-")
            written.setdefault(
                (kind.name, subresource), [set(), set(), set(), everywhere, everywhere]
            )
    return written


def expanded(cell):
    verbs = set()
    for part in cell.split(","):
        if part in ("r", "rw"):
            verbs |= {verb for letter in part for verb in VERBS[letter]}
        elif part != "-":
            verbs.add(part)
    return verbs


@pytest.fixture(scope="module")
def policy():
    bindings = [
        {
            "metadata": {"name": role, "namespace": "ns"},
            "roleRef": {"kind": "ClusterRole", "name": role},
            "subjects": [{"kind": "User", "name": role}],
        }
        for role in ("view", "edit", "admin")
    ]
    everywhere = [
        {**one, "metadata": {"name": role}, "roleRef": {"kind": "ClusterRole", "name": role},
         "subjects": [{"kind": "User", "name": role}]}
        for one, role in zip(bindings, ("stowage:reader", "stowage:operator"), strict=False)
    ]  # fmt: skip
    return Policy({
        "ClusterRole": default_roles.cluster_roles(),
        "RoleBinding": bindings,
        "ClusterRoleBinding": [*default_roles.cluster_role_bindings(), *everywhere],
    })  # fmt: skip


@pytest.mark.parametrize("kind", ALL_KINDS, ids=lambda kind: kind.name)
def test_each_role_may_what_the_table_says_and_nothing_else(policy, kind):
    written = rows()
    for subresource in ("", *kind.subresources):
        for role, expected in zip(ROLES, written[kind.name, subresource], strict=True):
            found = {
                verb
                for verb in ALL_VERBS
                if policy.decide(
                    role, ("system:authenticated",),
                    Attributes(verb, kind.group, kind.plural, subresource, "ns", "x"),
                ).allowed
            }  # fmt: skip
            assert found == expected, (kind.name, subresource, role)


def test_events_are_read_by_both_of_their_names(policy):
    for group in ("", "events.k8s.io"):
        wants = Attributes("list", group, "events")
        assert policy.decide("stowage:reader", (), wants).allowed
        assert not policy.decide("ann", (), wants).allowed


def test_a_role_that_is_bound_in_a_namespace_ends_there(policy):
    for kind in ALL_KINDS:
        for verb in ALL_VERBS:
            for namespace in ("", "other"):
                wants = Attributes(verb, kind.group, kind.plural, "", namespace)
                for role in ("view", "edit", "admin"):
                    assert not policy.decide(role, ("system:authenticated",), wants).allowed


def test_everybody_may_ask_about_themselves_and_nothing_else(policy):
    for kind in ALL_KINDS:
        for subresource in ("", *kind.subresources):
            for verb in ALL_VERBS:
                wants = Attributes(verb, kind.group, kind.plural, subresource, "ns", "x")
                assert not policy.decide("ann", ("system:authenticated",), wants).allowed
    asked = Attributes("create", "authorization.k8s.io", "selfsubjectaccessreviews")
    assert policy.decide("ann", ("system:authenticated",), asked).allowed
    assert not policy.decide("ann", (), asked).allowed
    for path, open_to_all in (("/api", True), ("/version", True), ("/metrics", False)):
        wants = Attributes("get", path=path)
        assert policy.decide("ann", ("system:authenticated",), wants).allowed is open_to_all


def test_the_programs_of_kubernetes_may_what_they_do(policy):
    """kube-scheduler and kube-controller-manager log in by these names."""
    scheduler = [
        Attributes("watch", resource="pods"),
        Attributes("create", resource="pods", subresource="binding", namespace="ns", name="p"),
        Attributes("patch", resource="pods", subresource="status", namespace="ns", name="p"),
        Attributes("update", "coordination.k8s.io", "leases", "", "kube-system", "kube-scheduler"),
        Attributes("list", "storage.k8s.io", "csinodes"),
        Attributes("list", "resource.k8s.io", "deviceclasses"),
        Attributes("create", "events.k8s.io", "events", namespace="ns"),
        Attributes("create", "authorization.k8s.io", "subjectaccessreviews"),
    ]
    for wants in scheduler:
        assert policy.decide("system:kube-scheduler", (), wants).allowed, wants
    other = Attributes("update", "coordination.k8s.io", "leases", "", "kube-system", "x")
    assert not policy.decide("system:kube-scheduler", (), other).allowed
    for kind in ALL_KINDS:
        wants = Attributes("list", kind.group, kind.plural)
        assert policy.decide("system:kube-controller-manager", (), wants).allowed
    account = "system:serviceaccount:kube-system:replicaset-controller"
    wants = Attributes("create", resource="pods", namespace="ns")
    assert policy.decide(account, (), wants).allowed
