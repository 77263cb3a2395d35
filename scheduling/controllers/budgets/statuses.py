"""PodDisruptionBudgets: their status follows their pods.

A follower of the change log with a cursor in a row, called every second. It recomputes (``rules``)
the status of all budgets in namespaces in which pods, budgets or controllers changed. An eviction
charges the budget in its own transaction, so a status that is a second old never allows two
evictions for one; it only allows the next one late.
"""

from collections.abc import Callable, Sequence
from datetime import datetime
from typing import Any

import msgspec
import structlog

from clusterstate.actions import objects
from clusterstate.actions.loops import aside
from clusterstate.actions.loops.aside import ObjectRef
from clusterstate.database import locks
from clusterstate.objects.rules.disruption import counts_groups
from clusterstate.objects.rules.ownership import controller_of
from clusterstate.objects.values import document
from clusterstate.objects.values.errors import NotFound
from clusterstate.objects.values.labels import Selector, selector_from_label_selector
from clusterstate.objects.values.meta import Manifest, OwnerReference
from clusterstate.objects.values.pod import LabelSelector, Pod
from clusterstate.objects.values.pod_group import PodGroup
from clusterstate.queries.objects import decode_object, find_object
from clusterstate.queries.objects.lists import list_page
from clusterstate.queries.objects.namespaces import budget_namespaces
from clusterstate.queries.objects.workloads import without_agent
from scheduling.controllers import by_namespace
from scheduling.controllers.budgets.rules import Budget, BudgetStatus, budget_status, group_name

logger = structlog.get_logger(__name__)

NAME = "disruption"
BUDGET = "PodDisruptionBudget"
_SCALED = ("ReplicationController", "ReplicaSet", "StatefulSet", "Deployment")
FOLLOWED = ("Pod", "PodGroup", BUDGET, *_SCALED)
_decode_pod = msgspec.json.Decoder(Pod).decode


def follow(now: datetime) -> int:
    """Update the budgets' statuses up to the end of the log; return how many were written."""
    written = 0

    def bring_up_to_date(namespace: str) -> datetime | None:
        nonlocal written
        recheck_at, count = sync(namespace, now)
        written += count
        return recheck_at

    with locks.alone(locks.DISRUPTION) as mine:
        if mine:
            by_namespace.follow(
                NAME,
                now,
                kinds=FOLLOWED,
                present=lambda cursor, mark: set(budget_namespaces()),
                sync=bring_up_to_date,
            )
    return written


def sync(namespace: str, now: datetime) -> tuple[datetime | None, int]:
    """Recompute the budgets of a namespace; return the next due time, and how many were written."""
    budgets = [decode_object(item) for item in list_page(BUDGET, namespace).items]
    upcoming: list[datetime] = []
    done = aside.each(
        NAME,
        budgets,
        lambda some: _sync(some, namespace, now),
        which=lambda budget: ObjectRef(
            BUDGET, namespace=namespace, name=budget["metadata"]["name"]
        ),
        now=now,
        instead=lambda budget: upcoming.append(now + by_namespace.AGAIN),
    )
    upcoming += [at for some, _ in done for at in some]
    return min(upcoming, default=None), sum(count for _, count in done)


def _sync(budgets: Sequence[Manifest], namespace: str, now: datetime) -> tuple[list[datetime], int]:
    upcoming: list[datetime] = []
    written = 0
    for manifest in budgets:
        name = manifest["metadata"]["name"]
        selected = list_page("Pod", namespace, label_selector=_selector(manifest)).items
        pods = _decoded(selected, now)
        silent = without_agent({pod.spec.node_name for pod in pods} - {""})
        status: list[BudgetStatus] = []

        def change(
            current: Manifest,
            pods: list[Pod] = pods,
            silent: set[str] = silent,
            status: list[BudgetStatus] = status,
        ) -> Manifest:
            status[:] = [_status(current, pods, silent, now)]
            return {**current, "status": _wire(current, status[0], now)}

        try:
            stored = objects.update(BUDGET, namespace, name, change, subresource="status", now=now)
        except NotFound:
            continue
        written += stored.changed
        if status and status[0].recheck_at is not None:
            upcoming.append(status[0].recheck_at)
    return upcoming, written


def _decoded(manifests: Sequence[bytes], now: datetime) -> list[Pod]:
    """Return those of the pods that decode; others are set aside."""

    def which(manifest: bytes) -> ObjectRef:
        metadata = decode_object(manifest)["metadata"]
        return ObjectRef("Pod", namespace=metadata["namespace"], name=metadata["name"])

    def decode(some: Sequence[bytes]) -> list[Pod]:
        return [_decode_pod(one) for one in some]

    parts = aside.each(NAME, manifests, decode, which=which, now=now)
    return [pod for part in parts for pod in part]


def _selector(manifest: Manifest) -> Selector:
    selector = (manifest.get("spec") or {}).get("selector")
    lens = None if selector is None else msgspec.convert(selector, LabelSelector)
    return selector_from_label_selector(lens)


def _status(
    manifest: Manifest, pods: list[Pod], without_agent: set[str], now: datetime
) -> BudgetStatus:
    spec, present = manifest.get("spec") or {}, manifest.get("status") or {}
    budget = Budget(
        min_available=spec.get("minAvailable"),
        max_unavailable=spec.get("maxUnavailable"),
        generation=manifest["metadata"].get("generation") or 0,
    )
    disrupted = {
        name: document.parse_time(at) for name, at in (present.get("disruptedPods") or {}).items()
    }
    scale_of = _scales(manifest["metadata"]["namespace"])
    return budget_status(
        budget,
        pods,
        scale_of=scale_of,
        disrupted_pods=disrupted,
        now=now,
        without_agent=without_agent,
        groups=_min_counts(pods)
        if counts_groups(manifest["metadata"].get("annotations"))
        else None,
    )


def _min_counts(pods: Sequence[Pod]) -> dict[str, int]:
    """Return ``minCount`` of the PodGroups of a namespace's pods, by name. Queries once at most."""
    names = {group_name(pod) for pod in pods} - {""}
    if not names:
        return {}
    items = list_page("PodGroup", pods[0].metadata.namespace).items
    groups = [msgspec.json.decode(one, type=PodGroup) for one in items]
    return {one.metadata.name: one.min_count for one in groups if one.metadata.name in names}


def _scales(namespace: str) -> Callable[[OwnerReference], int | None]:
    """Return a function: the scale of a controller, for a ReplicaSet that of its Deployment."""

    def scale_of(owner: OwnerReference) -> int | None:
        if owner.kind not in _SCALED:
            return None
        found = find_object(owner.kind, namespace, owner.name)
        if found is None:
            return None
        manifest = decode_object(found)
        metadata = manifest["metadata"]
        if owner.uid and metadata.get("uid") != owner.uid:
            return None
        if owner.kind == "ReplicaSet":
            above = controller_of(manifest)
            if above is not None and above.get("kind") == "Deployment":
                return scale_of(msgspec.convert(above, OwnerReference))
        replicas = (manifest.get("spec") or {}).get("replicas")
        return 1 if replicas is None else replicas

    return scale_of


def _wire(manifest: Manifest, status: BudgetStatus, now: datetime) -> dict[str, Any]:
    """Return the status as on the wire. A failure keeps the numbers and allows no disruption."""
    present = manifest.get("status") or {}
    value, reason = status.condition
    condition = {
        "type": "DisruptionAllowed",
        "status": value,
        "reason": reason,
        "message": status.failure,
        "observedGeneration": manifest["metadata"].get("generation") or 0,
        "lastTransitionTime": document.format_time(now),
    }
    others = []
    for one in present.get("conditions") or ():
        if one.get("type") != condition["type"]:
            others.append(one)
        elif one.get("status") == value and one.get("lastTransitionTime"):
            condition["lastTransitionTime"] = one["lastTransitionTime"]
    result = {**present, "conditions": [*others, condition], "disruptionsAllowed": 0}
    if status.failure:
        return result
    result |= {
        "disruptionsAllowed": status.disruptions_allowed,
        "currentHealthy": status.current_healthy,
        "desiredHealthy": status.desired_healthy,
        "expectedPods": status.expected_pods,
        "observedGeneration": status.observed_generation,
    }
    result.pop("disruptedPods", None)
    if status.disrupted_pods:
        result["disruptedPods"] = {
            name: document.format_time(at) for name, at in sorted(status.disrupted_pods.items())
        }
    return result
