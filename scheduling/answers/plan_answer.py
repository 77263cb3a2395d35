"""The answer to a plan: pods that leave and their new nodes, blocked evictions, and steps."""

from collections.abc import Sequence
from datetime import datetime, timedelta

from clusterstate.objects.values.document import format_time
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.scheduler.planning import StayingPod
from scheduling.answers import plan_steps
from scheduling.answers.plan_holding import moves_alone
from scheduling.answers.plan_leavers import Leavers
from scheduling.answers.plan_nodes import Nodes
from scheduling.simulation import plan_undo
from scheduling.simulation.document import API_VERSION
from scheduling.simulation.foresight import Foresight, LandedPod, Leaver, LeavingPod
from scheduling.simulation.plan_document import KIND, PlanDocument


def with_status(
    plan: PlanDocument,
    future: Foresight,
    nodes: Nodes,
    leavers: Leavers,
    *,
    evicted: Sequence[Leaver],
    rooms: tuple[Manifest, Manifest],
    brakes: Sequence[Manifest],
    warnings: Sequence[str],
    revision: int,
    now: datetime,
) -> Manifest:
    """Return the document with its status.

    Args:
        plan: the plan.
        future: the simulation, after its run.
        nodes: the nodes that the plan names, before and after.
        leavers: facts about pods.
        evicted: the pods that leave, in order; the operation has a step for some of them.
        rooms: the free resources of the nodes before and after.
        brakes: the brakes that hold evictions back until a person approves.
        warnings: further messages for the user.
        revision: up to where the answer has read the change log.
        now: the start of the simulation.
    """
    landings = {
        landed.waiter.replaces: landed
        for landed in future.landed.values()
        if landed.waiter.replaces
    }
    leaving: list[Manifest] = []
    anyway: list[Manifest] = []
    for departure in future.departures:
        one = _leaver_answer(
            departure,
            landings.get(departure.leaver.title),
            _staying_pod(departure.leaver, leavers),
            now,
        )
        (leaving if departure.by or departure.leaver.key in leavers.caused else anyway).append(one)
    placed: list[Manifest] = []
    waiting: list[Manifest] = []
    for landed in future.landed.values():
        if not landed.waiter.replaces:
            pod = {"pod": landed.waiter.title, **_landing(landed)}
            (placed if landed.node_name else waiting).append(pod)
    budgets: dict[str, list[str]] = {}
    for departure in future.departures:
        if departure.blocked_by:
            budgets.setdefault(departure.blocked_by, []).append(departure.leaver.title)
    stuck = [
        {"pod": one["pod"], "message": one["landing"]["message"]}
        for one in leaving
        if "landing" in one and not one["landing"]["nodeName"]
    ]
    gone = [
        (leavers.pods[one.key], one) for one in evicted if one.by_step and isinstance(one.key, int)
    ]
    status: Manifest = {
        "revision": str(revision),
        "at": format_time(now),
        "summary": {
            **_counts(leaving),
            "stuck": len(stuck),
            "placed": len(placed),
            "waiting": len(waiting),
            "nodes": len(list(nodes.changed())),
        },
        "leaving": leaving,
        "leavingAnyway": anyway,
        "placed": placed,
        "waiting": waiting,
        "stuck": stuck,
        "staying": leavers.staying,
        "budgets": [{"name": name, "holds": pods} for name, pods in sorted(budgets.items())],
        "room": {"before": rooms[0], "after": rooms[1]},
        "steps": list(
            plan_steps.steps(
                plan.changes,
                nodes.chosen,
                gone,
                {
                    title: (one.node_name, moves_alone(one.waiter.info))
                    for title, one in landings.items()
                    if plan.holds_places and one.node_name
                },
                plan.pods_per_hour,
            )
        ),
        "undo": plan_undo.undo(plan.changes, nodes.chosen, nodes.before),
    }
    if brakes:
        status["brakes"] = list(brakes)
    held = [
        f"the brake {one['name']} holds evictions back until it is approved: {one['leaving']} of"
        f" {one['total']} pods would leave, more than {one['limitPercent']:g} %"
        for one in brakes
    ]
    if warnings or held:
        status["warnings"] = [*warnings, *held]
    answer: Manifest = {"apiVersion": API_VERSION, "kind": KIND}
    if plan.metadata:
        answer["metadata"] = plan.metadata
    return {**answer, "status": status}


def set_apart(status: Manifest, without: Manifest) -> None:
    """Mark those parts of a plan's status that also happen without the plan.

    Pods that are preempted anyway move to ``leavingAnyway``; ``anyway`` of a placed or waiting pod
    is its node without the plan.

    Args:
        status: the plan's status; it is changed.
        without: the status of a plan without changes, predicted for the same time.
    """
    preempted = {one["pod"] for one in without["leaving"] if "preemptedBy" in one}
    anyway = [one for one in status["leaving"] if one["pod"] in preempted and "preemptedBy" in one]
    status["leaving"] = [one for one in status["leaving"] if one not in anyway]
    status["leavingAnyway"] += anyway
    status["stuck"] = [
        one for one in status["stuck"] if one["pod"] not in {pod["pod"] for pod in anyway}
    ]
    places = {one["pod"]: one["nodeName"] for one in without["placed"]}
    for one in (*status["placed"], *status["waiting"]):
        if one["pod"] in places:
            one["anyway"] = places[one["pod"]]
    status["summary"] |= _counts(status["leaving"]) | {
        "stuck": len(status["stuck"]),
        "placedAnyway": sum("anyway" in one for one in status["placed"]),
        "losingPlace": sum("anyway" in one for one in status["waiting"]),
    }


def _counts(leaving: Sequence[Manifest]) -> dict[str, int]:
    return {
        "leaving": sum(one.get("afterSeconds") is not None for one in leaving),
        "held": sum("blockedBy" in one for one in leaving),
        "preempted": sum("preemptedBy" in one for one in leaving),
    }


def _staying_pod(leaver: Leaver, leavers: Leavers) -> StayingPod | None:
    return leavers.pods.get(leaver.key) if isinstance(leaver.key, int) else None


def _leaver_answer(
    departure: LeavingPod, landed: LandedPod | None, pod: StayingPod | None, now: datetime
) -> Manifest:
    leaver = departure.leaver
    found: Manifest = {
        "pod": leaver.title,
        "nodeName": departure.node_name,
        "cause": leaver.cause,
        "rule": leaver.rule,
    }
    if pod is not None:
        found["uid"] = pod.uid
        if pod.owner_kind:
            found["owner"] = f"{pod.owner_kind}/{pod.owner_name}"
    if departure.by:
        found["preemptedBy"] = departure.by
    if departure.blocked_by:
        found["blockedBy"] = departure.blocked_by
    elif departure.at is not None and departure.gone_at is not None:
        found["afterSeconds"] = round(departure.at, 3)
        found["at"] = format_time(now + timedelta(seconds=departure.at))
        found["goneAfterSeconds"] = round(departure.gone_at, 3)
    found["replaced"] = leaver.comes_again
    if landed is not None:
        found["landing"] = _landing(landed)
    return found


def _landing(landed: LandedPod) -> Manifest:
    found: Manifest = {"nodeName": landed.node_name}
    if landed.node_name:
        found |= {
            "afterSeconds": round(landed.at, 3),
            "total": landed.total,
            "margin": landed.margin,
            "ties": landed.ties,
            "feasible": landed.feasible,
            "evaluated": landed.evaluated,
        }
    else:
        found |= {"message": landed.message, "rejectedBy": list(landed.rejected_by)}
        if landed.nominated:
            found["nominatedNode"] = landed.nominated
    return found
