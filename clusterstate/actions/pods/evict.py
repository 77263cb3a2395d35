"""Evict a pod: delete it if its disruption budget allows."""

from datetime import datetime
from typing import Final

import msgspec

from clusterstate import changes, sql
from clusterstate.actions import storing
from clusterstate.actions.pods.clauses import FINISHED, POD
from clusterstate.actions.pods.delete import delete_pod
from clusterstate.actions.storing import Deleted
from clusterstate.admission.request import NOBODY, User
from clusterstate.objects import document
from clusterstate.objects.errors import StatusError, TooManyRequests
from clusterstate.objects.kinds import KINDS
from clusterstate.objects.labels import selector_from_label_selector
from clusterstate.objects.meta import Manifest
from clusterstate.objects.ownership import Policy
from clusterstate.objects.pod import LabelSelector
from clusterstate.queries.objects import get_manifest

BUDGET: Final = KINDS["PodDisruptionBudget"]

_EVICTED_BY_API: Final[Manifest] = {
    "type": "DisruptionTarget",
    "status": "True",
    "reason": "EvictionByEvictionAPI",
    "message": "Eviction API: evicting",
}


def evict_pod(
    namespace: str,
    name: str,
    options: Manifest,
    *,
    now: datetime,
    user: User = NOBODY,
    condition: Manifest | None = None,
) -> Deleted:
    """Delete a pod if its disruption budget allows; ``options`` are checked DeleteOptions.

    ``condition`` says why it is disrupted, by default that the eviction API was asked.

    Pods that are finished, pending or terminating need no budget. Rule:
    ``registry/core/pod/storage/eviction.go``, v1.36.

    Raises:
        TooManyRequests: the budget is used up.
        NotFound, Conflict: as for ``delete_pod``.
    """
    dry_run = bool(options.get("dryRun"))
    preconditions = options.get("preconditions") or {}
    with storing.work(dry_run=dry_run):
        # The budget's row is locked before the pod's, by everybody.
        _use_budget(namespace, name, now=now)
        return delete_pod(
            namespace,
            name,
            now=now,
            grace_seconds=options.get("gracePeriodSeconds"),
            uid=preconditions.get("uid") or "",
            resource_version=preconditions.get("resourceVersion") or "",
            user=user,
            condition=condition or _EVICTED_BY_API,
            propagation=Policy(policy) if (policy := options.get("propagationPolicy")) else None,
        )


def _use_budget(namespace: str, name: str, *, now: datetime) -> None:
    """Charge the budget that selects the pod, if one does. Rule: registry/core/pod/storage."""
    row = sql.fetch_one(
        "SELECT p.id, p.phase, p.deletion_at, c.labels::text FROM pod p"
        " JOIN scheduling_class c ON c.id = p.class_id WHERE p.namespace = %s AND p.name = %s",
        (namespace, name),
    )
    if row is None or row[2] is not None or row[1] in (*FINISHED, "Pending"):
        return  # canIgnorePDB; whatever else is wrong, delete_pod says so
    labels = msgspec.json.decode(row[3], type=dict[str, str])
    budgets = []
    for found in sql.fetch(
        "SELECT t.name, d.text, t.revision FROM pod_disruption_budget t"
        " JOIN document d ON d.id = t.document_id WHERE t.namespace = %s ORDER BY t.name",
        (namespace,),
    ):
        manifest = document.decode(found[1], found[2])
        selector = (manifest.get("spec") or {}).get("selector")
        lens = None if selector is None else msgspec.convert(selector, LabelSelector)
        if selector_from_label_selector(lens).matches(labels):
            budgets.append(found[0])
    if not budgets:
        return
    if len(budgets) > 1:
        raise StatusError(
            "This pod has more than one PodDisruptionBudget, which the eviction subresource does"
            " not support."
        )

    def spend(manifest: Manifest) -> Manifest:
        status = dict(manifest.get("status") or {})
        observed, generation = (
            status.get("observedGeneration", 0),
            manifest["metadata"].get("generation", 0),
        )
        if observed < generation:
            raise TooManyRequests(
                "Cannot evict pod as it would violate the pod's disruption budget.",
                {
                    "causes": [
                        {
                            "reason": "DisruptionBudget",
                            "message": f"The disruption budget {budgets[0]} is still being"
                            " processed by the server.",
                        }
                    ],
                    "retryAfterSeconds": 10,
                },
            )
        allowed = status.get("disruptionsAllowed") or 0
        if allowed <= 0:
            needed, healthy = status.get("desiredHealthy", 0), status.get("currentHealthy", 0)
            raise TooManyRequests(
                "Cannot evict pod as it would violate the pod's disruption budget.",
                {
                    "causes": [
                        {
                            "reason": "DisruptionBudget",
                            "message": f"The disruption budget {budgets[0]} needs {needed} healthy"
                            f" pods and has {healthy} currently",
                        }
                    ]
                },
            )
        disrupted = dict(status.get("disruptedPods") or {})
        disrupted[name] = document.format_time(now)
        return {
            **manifest,
            "status": {**status, "disruptionsAllowed": allowed - 1, "disruptedPods": disrupted},
        }

    budget = storing.lock_row(BUDGET, namespace, budgets[0])
    present = budget.manifest()
    if not _is_ready(namespace, name) and _may_go_unhealthy(present):
        return
    spent = spend(present)
    text, _ = document.encode(BUDGET.name, spent)
    revision = storing.update_row(BUDGET, budget, spent, text, now=now)
    changes.announce(revision, (BUDGET.name,))


def _is_ready(namespace: str, name: str) -> bool:
    status = get_manifest(POD, namespace, name).get("status") or {}
    return any(
        one.get("type") == "Ready" and one.get("status") == "True"
        for one in status.get("conditions") or ()
    )


def _may_go_unhealthy(budget: Manifest) -> bool:
    """Return whether a pod that is not ready may go without charging the budget."""
    if (budget.get("spec") or {}).get("unhealthyPodEvictionPolicy") == "AlwaysAllow":
        return True
    status = budget.get("status") or {}
    desired = status.get("desiredHealthy") or 0
    return (status.get("currentHealthy") or 0) >= desired > 0
