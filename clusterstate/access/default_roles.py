"""The roles and bindings that every cluster has, as manifests. Pure; ``prepare`` writes them.

Rules: plugin/pkg/auth/authorizer/rbac/bootstrappolicy/policy.go and namespace_policy.go, v1.36; the
roles of controllers are in ``controller_roles``. Roles named ``stowage:...`` are our own: they are
for the groups of tokens and people that earlier versions had.
"""

from typing import Any, Final

from clusterstate.access.controller_roles import CONTROLLER_ROLES
from clusterstate.access.rules import Rule
from clusterstate.objects.registry.kinds import ALL_KINDS
from clusterstate.objects.values.meta import Manifest

API_GROUP: Final = "rbac.authorization.k8s.io"
LABELS: Final = {"kubernetes.io/bootstrapping": "rbac-defaults"}
AUTO_UPDATE: Final = "rbac.authorization.kubernetes.io/autoupdate"
"""Annotation: ``false`` keeps `prepare` from restoring removed rules of a default role."""

_READ: Final = "get list watch"
_WRITE: Final = "create delete deletecollection patch update"
_READ_WRITE: Final = f"{_READ} {_WRITE}"
_APPS: Final = "daemonsets deployments replicasets statefulsets"
_SCALES: Final = "deployments/scale replicasets/scale statefulsets/scale"
_POD_TRAFFIC: Final = "pods/attach pods/exec pods/portforward pods/proxy"
_WITHHELD: Final = frozenset({"Secret"})
"""Kinds that read-only roles leave out: with their content one can act as another user."""


def on(verbs: str, group: str, resources: str, *names: str) -> Rule:
    """Return a rule for verbs on resources of a group, each separated by spaces."""
    return Rule(tuple(verbs.split()), (group,), tuple(resources.split()), names)


def at(verbs: str, urls: str) -> Rule:
    """Return a rule for verbs on paths."""
    return Rule(tuple(verbs.split()), urls=tuple(urls.split()))


_EVENTS: Final = (
    on("create patch update", "", "events"),
    on("create patch update", "events.k8s.io", "events"),
)
_ASKING: Final = (
    on("create", "authentication.k8s.io", "tokenreviews"),
    on("create", "authorization.k8s.io", "subjectaccessreviews"),
)
_STORAGE: Final = "csidrivers csinodes csistoragecapacities storageclasses volumeattachments"

_VIEW: Final = (
    on(
        _READ, "",
        "configmaps endpoints persistentvolumeclaims persistentvolumeclaims/status pods"
        " replicationcontrollers replicationcontrollers/scale serviceaccounts services"
        " services/status bindings events limitranges namespaces/status pods/log pods/status"
        " replicationcontrollers/status resourcequotas resourcequotas/status namespaces",
    ),
    on(_READ, "discovery.k8s.io", "endpointslices"),
    on(
        _READ, "apps",
        f"controllerrevisions {_APPS} {_SCALES} daemonsets/status deployments/status"
        " replicasets/status statefulsets/status",
    ),
    on(_READ, "autoscaling", "horizontalpodautoscalers horizontalpodautoscalers/status"),
    on(_READ, "batch", "cronjobs cronjobs/status jobs jobs/status"),
    on(_READ, "policy", "poddisruptionbudgets poddisruptionbudgets/status"),
    on(_READ, "networking.k8s.io", "ingresses ingresses/status networkpolicies"),
    on(
        _READ, "resource.k8s.io",
        "resourceclaims resourceclaims/status resourceclaimtemplates",
    ),
    on(_READ, "scheduling.k8s.io", "podgroups podgroups/status workloads"),
)  # fmt: skip
_EDIT: Final = (
    on(_READ, "", f"{_POD_TRAFFIC} secrets services/proxy"),
    on("impersonate", "", "serviceaccounts"),
    on(_WRITE, "", f"pods {_POD_TRAFFIC}"),
    on("create", "", "pods/eviction"),
    on(
        _WRITE, "",
        "configmaps events persistentvolumeclaims replicationcontrollers"
        " replicationcontrollers/scale secrets serviceaccounts services services/proxy",
    ),
    on("create", "", "serviceaccounts/token"),
    on(_WRITE, "apps", f"{_APPS} {_SCALES} deployments/rollback"),
    on(_WRITE, "autoscaling", "horizontalpodautoscalers"),
    on(_WRITE, "batch", "cronjobs jobs"),
    on(_WRITE, "policy", "poddisruptionbudgets"),
    on(_WRITE, "networking.k8s.io", "ingresses networkpolicies"),
    on(_READ_WRITE, "coordination.k8s.io", "leases"),
    on(_WRITE, "resource.k8s.io", "resourceclaims resourceclaimtemplates"),
    on(_WRITE, "scheduling.k8s.io", "podgroups workloads"),
)  # fmt: skip
_ADMIN: Final = (
    on("create", "authorization.k8s.io", "localsubjectaccessreviews"),
    on(_READ_WRITE, API_GROUP, "roles rolebindings"),
)
NODE_RULES: Final = (
    *_ASKING,
    on(_READ, "", "services nodes pods secrets configmaps"),
    on("create delete patch update", "", "nodes"),
    on("patch update", "", "nodes/status pods/status"),
    *_EVENTS,
    on("create delete", "", "pods"),
    on("create", "", "pods/eviction serviceaccounts/token"),
    on("get", "", "endpoints persistentvolumeclaims persistentvolumes"),
    on("create get list watch", "certificates.k8s.io", "certificatesigningrequests"),
    on("create delete get patch update", "coordination.k8s.io", "leases"),
    on("create delete get patch update", "storage.k8s.io", "csinodes"),
    on(_READ, "storage.k8s.io", "csidrivers"),
    on("get", "storage.k8s.io", "volumeattachments"),
    on(_READ, "node.k8s.io", "runtimeclasses"),
    on("get", "resource.k8s.io", "resourceclaims"),
    on("create delete deletecollection get list patch update watch", "resource.k8s.io",
       "resourceslices"),
)  # fmt: skip
_SCHEDULER: Final = (
    *_EVENTS,
    on("create", "coordination.k8s.io", "leases"),
    on("get list update watch", "coordination.k8s.io", "leases", "kube-scheduler"),
    on(_READ, "", "namespaces nodes persistentvolumeclaims persistentvolumes"),
    on("delete get list watch", "", "pods"),
    on("create", "", "bindings pods/binding"),
    on("patch update", "", "pods/status"),
    on(_READ, "", "replicationcontrollers services"),
    on(_READ, "apps", "replicasets statefulsets"),
    on(_READ, "policy", "poddisruptionbudgets"),
    on(_READ, "storage.k8s.io", _STORAGE),
    on(_READ, "resource.k8s.io", "deviceclasses resourceslices"),
    on("get list patch update watch", "resource.k8s.io", "resourceclaims"),
    on("patch update", "resource.k8s.io", "resourceclaims/status"),
    on(_READ, "scheduling.k8s.io", "podgroups"),
    on("patch update", "scheduling.k8s.io", "podgroups/status"),
    *_ASKING,
)
_CONTROLLER_MANAGER: Final = (
    *_EVENTS,
    on("create", "coordination.k8s.io", "leases"),
    on("get update", "coordination.k8s.io", "leases", "kube-controller-manager"),
    on("create", "", "secrets serviceaccounts serviceaccounts/token"),
    on("delete", "", "secrets"),
    on("get", "", "configmaps namespaces secrets serviceaccounts"),
    on("update", "", "secrets serviceaccounts"),
    *_ASKING,
    Rule(("list", "watch"), ("*",), ("*",)),
)

_CLUSTER_ROLES: Final[dict[str, tuple[Rule, ...]]] = {
    "cluster-admin": (Rule(("*",), ("*",), ("*",)), at("*", "*")),
    "system:discovery": (
        at(
            "get",
            "/api /api/* /apis /apis/* /healthz /livez /openapi /openapi/* /readyz /version"
            " /version/",
        ),
    ),
    "system:monitoring": (
        at("get", "/healthz /healthz/* /livez /livez/* /metrics /metrics/slis /readyz /readyz/*"),
    ),
    "system:basic-user": (
        on("create", "authorization.k8s.io", "selfsubjectaccessreviews selfsubjectrulesreviews"),
        on("create", "authentication.k8s.io", "selfsubjectreviews"),
    ),
    "system:public-info-viewer": (at("get", "/healthz /livez /readyz /version /version/"),),
    "system:node": NODE_RULES,
    "system:node-problem-detector": (
        on("get", "", "nodes"), on("patch", "", "nodes/status"), *_EVENTS,
    ),
    "system:node-proxier": (
        on("list watch", "", "endpoints services"),
        on("get list watch", "", "nodes"),
        on("list watch", "discovery.k8s.io", "endpointslices"),
        *_EVENTS,
    ),
    "system:kubelet-api-admin": (
        on(_READ, "", "nodes"),
        on("proxy", "", "nodes"),
        on("*", "", "nodes/log nodes/metrics nodes/proxy nodes/stats"),
    ),
    "system:node-bootstrapper": (
        on("create get list watch", "certificates.k8s.io", "certificatesigningrequests"),
    ),
    "system:auth-delegator": _ASKING,
    "system:kube-aggregator": (on(_READ, "", "endpoints services"),),
    "system:kube-dns": (on("list watch", "", "endpoints services"),),
    "system:kube-controller-manager": _CONTROLLER_MANAGER,
    "system:kube-scheduler": _SCHEDULER,
    "system:volume-scheduler": (
        on("get list patch update watch", "", "persistentvolumes"),
        on(_READ, "storage.k8s.io", "storageclasses"),
        on("get list patch update watch", "", "persistentvolumeclaims"),
    ),
    "system:persistent-volume-provisioner": (
        on("create delete get list watch", "", "persistentvolumes"),
        on("get list update watch", "", "persistentvolumeclaims"),
        on(_READ, "storage.k8s.io", "storageclasses"),
        on("watch", "", "events"),
        *_EVENTS,
    ),
    "system:service-account-issuer-discovery": (
        at(
            "get",
            "/.well-known/openid-configuration /.well-known/openid-configuration/"
            " /openid/v1/jwks /openid/v1/jwks/",
        ),
    ),
    "stowage:discovery": (at("get", "/"),),
}  # fmt: skip

_AGGREGATED: Final[dict[str, tuple[str, tuple[Rule, ...]]]] = {
    "system:aggregate-to-admin": ("admin", _ADMIN),
    "system:aggregate-to-edit": ("edit", _EDIT),
    "system:aggregate-to-view": ("view", _VIEW),
    "stowage:aggregate-to-edit": ("edit", (on("create", "stowage.dev", "waitingpods/permit"),)),
    "stowage:aggregate-to-view": (
        "view",
        (
            on("get", "", "pods/decisions"),
            on("get", "stowage.dev", "pods/why"),
            on(
                _READ,
                "stowage.dev",
                "evictions headroom selections waitinggroups waitingpods waitingtimes",
            ),
            on("create", "stowage.dev", "headroom nodeadvice packings simulations"),
        ),
    ),
}
"""Roles that are parts of ``admin``, ``edit`` or ``view``."""

_GROUP_ROLES: Final[dict[str, tuple[str, ...]]] = {
    "cluster-admin": ("system:masters",),
    "system:monitoring": ("system:monitoring",),
    "system:discovery": ("system:authenticated",),
    "system:basic-user": ("system:authenticated",),
    "system:public-info-viewer": ("system:authenticated", "system:unauthenticated"),
    "system:node": (),
    "system:service-account-issuer-discovery": ("system:serviceaccounts",),
    "stowage:discovery": ("system:authenticated",),
    "stowage:reader": ("stowage:readers", "stowage:viewer"),
    "stowage:operator": ("stowage:operator",),
    "stowage:administrator": ("stowage:administrator",),
}
"""ClusterRoleBindings by name, with the groups that they bind."""
_OTHER_ROLES: Final = {"stowage:administrator": "cluster-admin"}
"""The ClusterRoles of bindings whose name is not that of the role."""

_USER_ROLES: Final = {
    "system:kube-controller-manager": "system:kube-controller-manager",
    "system:kube-scheduler": "system:kube-scheduler",
    "system:volume-scheduler": "system:kube-scheduler",
    "system:node-proxier": "system:kube-proxy",
}
"""ClusterRoleBindings by name, with the user that they bind."""

_LEADERS: Final = ("kube-controller-manager", "kube-scheduler")


def _reading() -> tuple[Rule, ...]:
    """Return the rules that allow reading every registered kind, and asking for predictions."""
    by_group: dict[str, list[str]] = {}
    for kind in ALL_KINDS:
        if kind.name not in _WITHHELD:
            found = by_group.setdefault(kind.group, [])
            found += [kind.plural]
            found += [
                f"{kind.plural}/{one}" for one in kind.subresources if one in ("status", "scale")
            ]
    return (
        *(on(_READ, group, " ".join(sorted(names))) for group, names in sorted(by_group.items())),
        on("get", "", "pods/decisions"),
        on(_READ, "events.k8s.io", "events"),
        on("get", "node.k8s.io", "runtimeclasses/nodes"),
        on(_READ, "stowage.dev", "*"),
        on("create", "stowage.dev", "comparisons headroom nodeadvice packings plans simulations"),
    )


def _operating() -> tuple[Rule, ...]:
    """Return the rules that allow reading everything, writing workloads, and maintaining nodes."""
    return (
        *_reading(),
        *(one for one in _EDIT if "impersonate" not in one.verbs and not _lends(one)),
        on(
            _WRITE, "",
            "configmaps events persistentvolumeclaims pods replicationcontrollers"
            " replicationcontrollers/scale services",
        ),
        on("get patch update", "", "pods/resize"),
        on("patch update", "", "nodes"),
        on("create", "stowage.dev", "waitingpods/permit"),
        on("create", "stowage.dev", "brakes/approve"),
        on("create", "stowage.dev", "plans/apply plans/cancel plans/pause plans/resume plans/undo"),
    )  # fmt: skip


def _lends(rule: Rule) -> bool:
    """Return whether a rule is about secrets or service accounts, which give other rights."""
    return any(one.startswith(("secrets", "serviceaccounts")) for one in rule.resources)


def cluster_roles() -> list[Manifest]:
    """Return every default ClusterRole."""
    found = [_cluster_role(name, rules) for name, rules in _CLUSTER_ROLES.items()]
    found += [
        _cluster_role(name, rules, {f"{API_GROUP}/aggregate-to-{role}": "true"})
        for name, (role, rules) in _AGGREGATED.items()
    ]
    for role, of in (("admin", ""), ("edit", "admin"), ("view", "edit")):
        manifest = _cluster_role(role, (), {f"{API_GROUP}/aggregate-to-{of}": "true"} if of else {})
        chosen = {"matchLabels": {f"{API_GROUP}/aggregate-to-{role}": "true"}}
        manifest["aggregationRule"] = {"clusterRoleSelectors": [chosen]}
        found.append(manifest)
    found.append(_cluster_role("stowage:reader", _reading()))
    found.append(_cluster_role("stowage:operator", _operating()))
    found += [
        _cluster_role(f"system:controller:{name}", rules)
        for name, rules in CONTROLLER_ROLES.items()
    ]
    return found


def cluster_role_bindings() -> list[Manifest]:
    """Return every default ClusterRoleBinding."""
    found = [
        _binding("ClusterRoleBinding", name, [_named("Group", group) for group in groups])
        for name, groups in _GROUP_ROLES.items()
    ]
    found += [
        _binding("ClusterRoleBinding", name, [_named("User", user)])
        for name, user in _USER_ROLES.items()
    ]
    found.append(_binding("ClusterRoleBinding", "system:kube-dns", [_account("kube-dns")]))
    found += [
        _binding("ClusterRoleBinding", f"system:controller:{name}", [_account(name)])
        for name in CONTROLLER_ROLES
    ]
    return found


def roles() -> list[Manifest]:
    """Return every default Role: those of ``kube-system``."""
    reader = "extension-apiserver-authentication-reader"
    rules: dict[str, tuple[Rule, ...]] = {
        reader: (on(_READ, "", "configmaps", "extension-apiserver-authentication"),)
    }
    for leader in _LEADERS:
        rules[f"system::leader-locking-{leader}"] = (
            on("watch", "", "configmaps"),
            on("get update", "", "configmaps", leader),
        )
    return [
        {
            "apiVersion": f"{API_GROUP}/v1",
            "kind": "Role",
            "metadata": _metadata(name, {}, "kube-system"),
            "rules": [rule.manifest() for rule in role_rules],
        }
        for name, role_rules in rules.items()
    ]


def role_bindings() -> list[Manifest]:
    """Return every default RoleBinding: those of ``kube-system``."""
    reader = "extension-apiserver-authentication-reader"
    both = [_named("User", f"system:{leader}") for leader in _LEADERS]
    found = [_binding("RoleBinding", f"system::{reader}", both, role=("Role", reader))]
    for leader in _LEADERS:
        name = f"system::leader-locking-{leader}"
        who = [_named("User", f"system:{leader}"), _account(leader)]
        found.append(_binding("RoleBinding", name, who, role=("Role", name)))
    return found


def _metadata(name: str, labels: dict[str, str], namespace: str = "") -> Manifest:
    metadata: Manifest = {
        "name": name,
        "labels": {**LABELS, **labels},
        "annotations": {AUTO_UPDATE: "true"},
    }
    if namespace:
        metadata["namespace"] = namespace
    return metadata


def _cluster_role(
    name: str, rules: tuple[Rule, ...], labels: dict[str, str] | None = None
) -> Manifest:
    return {
        "apiVersion": f"{API_GROUP}/v1",
        "kind": "ClusterRole",
        "metadata": _metadata(name, labels or {}),
        "rules": [rule.manifest() for rule in rules],
    }


def _binding(
    kind: str, name: str, subjects: list[Manifest], *, role: tuple[str, str] | None = None
) -> Manifest:
    role_kind, role_name = role or ("ClusterRole", _OTHER_ROLES.get(name, name))
    return {
        "apiVersion": f"{API_GROUP}/v1",
        "kind": kind,
        "metadata": _metadata(name, {}, "kube-system" if kind == "RoleBinding" else ""),
        "roleRef": {"apiGroup": API_GROUP, "kind": role_kind, "name": role_name},
        "subjects": subjects,
    }


def _named(kind: str, name: str) -> dict[str, Any]:
    return {"apiGroup": API_GROUP, "kind": kind, "name": name}


def _account(name: str) -> dict[str, Any]:
    return {"kind": "ServiceAccount", "name": name, "namespace": "kube-system"}
