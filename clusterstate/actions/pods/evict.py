"""Evict a pod: delete it if its disruption budget allows."""

from datetime import datetime
from typing import Final

import msgspec

from clusterstate.actions import brakes
from clusterstate.actions.pods.clauses import FINISHED
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
from clusterstate.queries.objects.workloads import ready_among
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

    ``condition`` says why it is disrupted; by default, that a client requested it: then brakes and
    the rate of its zone must allow it, too. For a timer's pod the loop that fires it has checked
    these.

    If its group leaves together, the others leave with it, if budgets and brakes allow that for
    each (``together``). Finished, pending and terminating pods need no budget. Rule:
    ``registry/core/pod/storage/eviction.go``, v1.36.

    Raises:
        BudgetRefuses, Forbidden: the budget refuses (``objects.rules.disruption``).
        EvictionHeld: a brake refuses; the caller calls `hold` after its transaction.
        EvictionPaced: the rate of its zone refuses.
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
            # All writers lock the budget's row before the pod's.
            settled: set[str] = set()
            for place in sorted([(namespace, name), *others]):
                _use_budget(*place, settled=settled, now=now)
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
    """Evict a pod for a client; set a brake if too many leave. Not inside a transaction.

    Raises:
        StatusError: as ``evict_pod`` does.
    """
    try:
        return evict_pod(namespace, name, options, now=now, user=user)
    except brakes.EvictionHeld as error:
        if not options.get("dryRun"):
            brakes.hold(error, now=now)
        raise


def _use_budget(namespace: str, name: str, *, settled: set[str], now: datetime) -> None:
    """Charge the budget that selects the pod, if one does. Rule: registry/core/pod/storage.

    ``settled``: names of group budgets that were charged already for pods that leave together,
    which are one disruption; newly charged ones are added.
    """
    row = sql.fetch_one(
        "SELECT p.id, p.phase, p.deletion_at, c.labels::text FROM pod p"
        " JOIN scheduling_class c ON c.id = p.class_id WHERE p.namespace = %s AND p.name = %s",
        (namespace, name),
    )
    if row is None or row[2] is not None or row[1] in FINISHED:
        return  # canIgnorePDB; delete_pod reports other errors
    is_ready = bool(ready_among([row[0]]))
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
    if disruption.is_exempt(present, ready=is_ready):
        return
    if disruption.counts_groups(present["metadata"].get("annotations")):
        if budgets[0] in settled:
            return
        settled.add(budgets[0])
        if not _breaks_its_group(row[0], is_ready=is_ready):
            return
    spent = disruption.charge(present, name, now=now)
    text, _ = document.encode(BUDGET.name, spent)
    revision = stored_rows.update_row(BUDGET, budget, spent, text, now=now)
    changes.announce(revision, (BUDGET.name,))


def _breaks_its_group(pod_id: int, *, is_ready: bool) -> bool:
    """Return whether a group has fewer than ``minCount`` ready pods once the pod leaves.

    A pod without a group counts as one. Queries once to three times.
    """
    group = group_of_pod(pod_id)
    if group is None:
        return True
    min_count, together, ids = group
    if not (is_ready or together):
        return False
    ready = len(ready_among(ids))
    return disruption.breaks(ready, min_count, is_ready=is_ready, together=together)
