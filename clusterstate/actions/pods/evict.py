"""Evict a pod: delete it if its disruption budget allows."""

from collections.abc import Collection
from datetime import datetime
from typing import Final

import msgspec

from clusterstate.actions import brakes
from clusterstate.actions.pods.clauses import FINISHED, POD
from clusterstate.actions.pods.delete import delete_pod
from clusterstate.actions.pods.together import leaving
from clusterstate.actions.writing import stored_rows, transactions
from clusterstate.actions.writing.stored import DeletedObject
from clusterstate.admission.request import NOBODY, User
from clusterstate.change_log import changes
from clusterstate.database import sql
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.rules import disruption
from clusterstate.objects.rules.ownership import Policy
from clusterstate.objects.values import document, ending
from clusterstate.objects.values.errors import StatusError
from clusterstate.objects.values.labels import selector_from_label_selector
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.pod import LabelSelector
from clusterstate.queries.objects import get_manifest
from clusterstate.queries.objects.workloads import without_agent
from clusterstate.queries.pods import find_pod_id, group_of_pod

BUDGET: Final = KINDS["PodDisruptionBudget"]

_EVICTED_BY_API: Final = ending.condition(ending.EVICTED, "Eviction API: evicting")


def evict_pod(
    namespace: str,
    name: str,
    options: Manifest,
    *,
    now: datetime,
    user: User = NOBODY,
    condition: Manifest | None = None,
) -> DeletedObject:
    """Delete a pod if its disruption budget allows; ``options`` are checked DeleteOptions.

    ``condition`` says why it is disrupted, by default that somebody asked for it: then brakes and
    the rate of its zone must allow it, too. A timer's pod was judged by the loop that fires it.

    Where its group leaves together, the others leave with it, if budgets and brakes allow that for
    each (``together``). Pods that are finished, pending or terminating need no budget. Rule:
    ``registry/core/pod/storage/eviction.go``, v1.36.

    Raises:
        BudgetRefuses, Forbidden: the budget refuses (``objects.rules.disruption``).
        EvictionHeld: a brake does; the caller holds it when its transaction is over.
        EvictionPaced: the rate of its zone does.
        NotFound, Conflict: as for ``delete_pod``.
    """
    preconditions = options.get("preconditions") or {}
    grace_seconds, policy = options.get("gracePeriodSeconds"), options.get("propagationPolicy")
    why = condition or _EVICTED_BY_API
    with transactions.work(dry_run=bool(options.get("dryRun"))):
        pod_id = find_pod_id(namespace, name)
        mine = [] if pod_id is None else [pod_id]
        with leaving(mine, why, now=now, grace_seconds=grace_seconds, user=user) as others:
            for place in [(namespace, name), *others]:
                if condition is None:
                    brakes.admit(*place, now=now)
            # The budget's row is locked before the pod's, by everybody.
            with_it = {other for _, other in others}
            for place in sorted([(namespace, name), *others]):
                _use_budget(*place, leaving=with_it | {name} if with_it else (), now=now)
            return delete_pod(
                namespace,
                name,
                now=now,
                grace_seconds=grace_seconds,
                uid=preconditions.get("uid") or "",
                resource_version=preconditions.get("resourceVersion") or "",
                user=user,
                condition=why,
                propagation=Policy(policy)
                if (policy := options.get("propagationPolicy"))
                else None,
            )


def evict_on_request(
    namespace: str, name: str, options: Manifest, *, now: datetime, user: User
) -> DeletedObject:
    """Evict a pod for a client; where too many leave, set the brake. In no transaction.

    Raises:
        StatusError: as ``evict_pod`` does.
    """
    try:
        return evict_pod(namespace, name, options, now=now, user=user)
    except brakes.EvictionHeld as error:
        if not options.get("dryRun"):
            brakes.hold(error, now=now)
        raise


def _use_budget(namespace: str, name: str, *, leaving: Collection[str], now: datetime) -> None:
    """Charge the budget that selects the pod, if one does. Rule: registry/core/pod/storage.

    ``leaving``: names of all pods of its group, if these leave with it.
    """
    row = sql.fetch_one(
        "SELECT p.id, p.phase, p.deletion_at, c.labels::text, p.node_name FROM pod p"
        " JOIN scheduling_class c ON c.id = p.class_id WHERE p.namespace = %s AND p.name = %s",
        (namespace, name),
    )
    if row is None or row[2] is not None or row[1] in FINISHED:
        return  # canIgnorePDB; whatever else is wrong, delete_pod says so
    is_ready = _is_ready(namespace, name, phase=row[1], node_name=row[4])
    if row[1] == "Pending" and not is_ready:
        return
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

    budget = stored_rows.lock_row(BUDGET, namespace, budgets[0])
    present = budget.manifest()
    if disruption.is_exempt(present, ready=is_ready) or _costs_nothing(present, row[0], leaving):
        return
    spent = disruption.charge(present, name, now=now)
    text, _ = document.encode(BUDGET.name, spent)
    revision = stored_rows.update_row(BUDGET, budget, spent, text, now=now)
    changes.announce(revision, (BUDGET.name,))


def _costs_nothing(budget: Manifest, pod_id: int, leaving: Collection[str]) -> bool:
    """Return whether a pod leaves without breaking its group, where the budget counts groups.

    ``leaving``: names of the pods that leave with it; one charge is for all of them.
    """
    if not disruption.counts_groups(budget["metadata"].get("annotations")):
        return False
    charged = (budget.get("status") or {}).get("disruptedPods") or {}
    if not charged.keys().isdisjoint(leaving):
        return True
    group = group_of_pod(pod_id)
    if group is None:
        return False
    min_count, together, names = group
    return not disruption.breaks(len(names), min_count, together=together)


def _is_ready(namespace: str, name: str, *, phase: str, node_name: str) -> bool:
    """Return whether a pod is ready, as its budget counts it. Queries once or twice."""
    status = get_manifest(POD, namespace, name).get("status") or {}
    conditions = status.get("conditions") or ()
    told = next((one.get("status") for one in conditions if one.get("type") == "Ready"), None)
    if told is not None or phase != "Pending" or not node_name:
        return told == "True"
    return disruption.is_assumed(
        phase, node_name, is_reported=False, has_agent=not without_agent([node_name])
    )
