"""Roles of the controllers of a stock kube-controller-manager, by service account.

kube-controller-manager needs them with ``--use-service-account-credentials``. Controllers of kinds
that are not served are left out. Rules:
plugin/pkg/auth/authorizer/rbac/bootstrappolicy/controller_policy.go, v1.36.
"""

from typing import Final

from clusterstate.access.rules import Rule


def _on(verbs: str, group: str, resources: str) -> Rule:
    return Rule(tuple(verbs.split()), (group,), tuple(resources.split()))


_EVENTS: Final = tuple(
    _on("create patch update", group, "events") for group in ("", "events.k8s.io")
)
_PODS: Final = _on("create delete list patch watch", "", "pods")


def _workload(group: str, name: str, *more: Rule) -> tuple[Rule, ...]:
    """Return the rules of a controller that creates pods for objects of one kind."""
    return (
        _on("get list update watch", group, name),
        _on("update", group, f"{name}/status {name}/finalizers"),
        _PODS,
        *more,
        *_EVENTS,
    )


CONTROLLER_ROLES: Final[dict[str, tuple[Rule, ...]]] = {
    "clusterrole-aggregation-controller": (
        _on("escalate get list patch update watch", "rbac.authorization.k8s.io", "clusterroles"),
    ),
    "cronjob-controller": (
        _on("get list update watch", "batch", "cronjobs"),
        _on("create delete get list patch update watch", "batch", "jobs"),
        _on("update", "batch", "cronjobs/status cronjobs/finalizers"),
        _on("delete list", "", "pods"),
        *_EVENTS,
    ),
    "daemon-set-controller": _workload(
        "apps", "daemonsets",
        _on("list watch", "", "nodes"),
        _on("create", "", "pods/binding"),
        _on("create delete get list patch update watch", "apps", "controllerrevisions"),
    ),
    "deployment-controller": (
        _on("get list update watch", "apps", "deployments"),
        _on("update", "apps", "deployments/status deployments/finalizers"),
        _on("create delete get list patch update watch", "apps", "replicasets"),
        _on("get list update watch", "", "pods"),
        *_EVENTS,
    ),
    "disruption-controller": (
        _on("get list watch", "apps", "deployments replicasets statefulsets"),
        _on("get list watch", "", "replicationcontrollers"),
        _on("get list watch", "policy", "poddisruptionbudgets"),
        _on("update", "policy", "poddisruptionbudgets/status"),
        _on("get list watch", "", "pods"),
        _on("patch update", "", "pods/status"),
        Rule(("get",), ("*",), ("*/scale",)),
        *_EVENTS,
    ),
    "endpoint-controller": (
        _on("get list watch", "", "pods services"),
        _on("create delete get list update", "", "endpoints"),
        _on("create", "", "endpoints/restricted"),
        *_EVENTS,
    ),
    "endpointslice-controller": (
        _on("get list watch", "", "nodes pods services"),
        _on("update", "", "services/finalizers"),
        _on("create delete get list patch update watch", "discovery.k8s.io", "endpointslices"),
        *_EVENTS,
    ),
    "endpointslicemirroring-controller": (
        _on("get list watch", "", "endpoints services"),
        _on("update", "", "services/finalizers endpoints/finalizers"),
        _on("create delete get list patch update watch", "discovery.k8s.io", "endpointslices"),
        *_EVENTS,
    ),
    "generic-garbage-collector": (
        Rule(("delete", "get", "list", "patch", "update", "watch"), ("*",), ("*",)),
        *_EVENTS,
    ),
    "horizontal-pod-autoscaler": (
        _on("get list watch", "autoscaling", "horizontalpodautoscalers"),
        _on("update", "autoscaling", "horizontalpodautoscalers/status"),
        Rule(("get", "update"), ("*",), ("*/scale",)),
        _on("list", "", "pods"),
        *_EVENTS,
    ),
    "job-controller": (
        _on("get list patch update watch", "batch", "jobs"),
        _on("patch update", "batch", "jobs/status"),
        _on("update", "batch", "jobs/finalizers"),
        _PODS,
        *_EVENTS,
    ),
    "namespace-controller": (
        _on("delete get list watch", "", "namespaces"),
        _on("update", "", "namespaces/finalize namespaces/status"),
        Rule(("delete", "deletecollection", "get", "list"), ("*",), ("*",)),
    ),
    "node-controller": (
        _on("delete get list patch update watch", "", "nodes"),
        _on("patch update", "", "nodes/status pods/status"),
        _on("delete get list watch", "", "pods"),
        *_EVENTS,
    ),
    "pod-garbage-collector": (
        _on("delete list watch", "", "pods"),
        _on("get list watch", "", "nodes"),
        _on("patch", "", "pods/status"),
    ),
    "replicaset-controller": _workload("apps", "replicasets"),
    "replication-controller": _workload("", "replicationcontrollers"),
    "resourcequota-controller": (
        Rule(("list", "watch"), ("*",), ("*",)),
        _on("update", "", "resourcequotas/status"),
        *_EVENTS,
    ),
    "root-ca-cert-publisher": (_on("create update", "", "configmaps"), *_EVENTS),
    "service-account-controller": (_on("create", "", "serviceaccounts"), *_EVENTS),
    "statefulset-controller": _workload(
        "apps", "statefulsets",
        _on("list watch", "", "pods"),
        _on("get update", "", "pods"),
        _on("create delete get list patch update watch", "apps", "controllerrevisions"),
        _on("create delete get list update watch", "", "persistentvolumeclaims"),
    ),
    "ttl-after-finished-controller": (
        _on("delete get list watch", "batch", "jobs"),
        *_EVENTS,
    ),
    "ttl-controller": (_on("list patch update watch", "", "nodes"), *_EVENTS),
}  # fmt: skip
