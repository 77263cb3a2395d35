"""Operations: applied plans, carried out step by step.

A ``Plan`` that a client applies becomes an operation, a row (``actions.plans``;
``answers.plan_steps`` makes its steps). The transaction of each step also notes in the row that the
step is done, so a worker that is killed at any point loses nothing and does nothing twice; the next
worker continues. One worker works at a time, by a session lock. A step that a disruption budget, a
brake or the rate of its zone refuses waits (``held_steps``), while the other steps continue. So
does a pod whose place is not held yet (``held_places``); if the scheduler refuses the place, the
operation is paused, since the cluster differs from the prediction. The user who applied the plan is
the actor of each step.
"""

import time
from collections import deque
from collections.abc import Callable
from contextlib import nullcontext
from datetime import datetime, timedelta
from typing import Any, Final

import msgspec
import structlog
from django.db import transaction

from clusterstate.actions import brakes, objects, plans
from clusterstate.actions.brakes import EvictionHeld
from clusterstate.actions.loops.aside import is_an_objects_fault
from clusterstate.actions.pods.evict import evict_pod
from clusterstate.actions.scheduler import scheduler_configuration
from clusterstate.actions.writing.deadlocks import again_after_deadlock
from clusterstate.database import locks
from clusterstate.objects.values import causes
from clusterstate.objects.values.actor import Actor, acting
from clusterstate.objects.values.errors import NotFound, StatusError, TooManyRequests
from clusterstate.objects.values.meta import Manifest
from clusterstate.processes import memory
from clusterstate.queries.scheduler.plans import (
    HAS_FAILED,
    HELD,
    IS_DONE,
    TO_DO,
    StoredPlan,
    budget_revisions,
    is_there,
)
from scheduling.controllers import held_places, held_steps
from scheduling.controllers.held_places import NodeHasPlaces, Places, PlaceTaken
from scheduling.controllers.held_steps import HeldSteps

logger = structlog.get_logger(__name__)

NAME: Final = "operations"
BATCH: Final = 20
"""Steps of one operation that are done before another operation has its turn."""
RETRY: Final = timedelta(seconds=60)
"""How often every held step is tried, even if its gate seems to be shut."""
_ROUND_SECONDS = 2.0
_MOST_KEPT: Final = 4
_sweeper: Final = held_places.Sweeper()

Step = dict[str, Any]
_WHOLE: Final = ("evict", "remove")
"""Steps that are one action, which is done or not done without a savepoint around it."""
_steps: dict[str, tuple[int, datetime | None, list[msgspec.Raw]]] = {}
"""Id, begin and steps of operations that are at work, by name; a new round begins anew."""
memory.when_replaced(_steps.clear)


def run(now: Callable[[], datetime], *, stopping: Callable[[], bool] = lambda: False) -> int:
    """Carry out steps of the running operations, for a while; return how many were tried.

    Operations take turns, a batch each, the one that waited longest first, so that a huge one does
    not delay the others. One that raises is paused with its error; the others continue.

    Raises:
        django.db.Error: the database failed; the other operations had their turn.
    """
    ids, sweeps = plans.running(), _sweeper.is_due()
    held_steps.forget_others(ids)
    for name in [name for name, (plan_id, *_) in _steps.items() if plan_id not in ids]:
        _steps.pop(name, None)  # paused, or a client ended it
    if not ids and not sweeps:
        return 0
    done = 0
    failed: Exception | None = None
    with locks.alone(locks.OPERATIONS) as mine:
        if mine and sweeps:
            held_places.sweep(now())
        end = time.monotonic() + _ROUND_SECONDS
        turns = deque(ids if mine else ())
        while turns and not stopping():
            plan_id = turns.popleft()
            try:
                count = carry_out(plan_id, now())
            except Exception as error:
                if not is_an_objects_fault(error):
                    failed = error
                    continue
                logger.exception("plan_set_aside", plan=plan_id)
                plans.set_aside(plan_id, f"set aside: {type(error).__name__}: {error}", now=now())
                continue
            done += count
            if count:
                turns.append(plan_id)
            if done and time.monotonic() > end:
                break
    if failed is not None:
        raise failed
    return done


def carry_out(plan_id: int, now: datetime) -> int:
    """Do the next steps of an operation; return how many were tried."""
    plan = plans.at_work(plan_id)
    if plan is None:
        return 0
    held = held_steps.of_operation(plan_id)
    numbers = _next(plan, held, now)
    steps = _steps_of(plan) if numbers else []
    places = Places(plan_id)
    looked = 0
    why = causes.uid_of(causes.PLAN, plan.id)
    with acting(Actor(plan.applied_by, plan.impersonator, why)):
        for number in numbers:
            if held.waits(number):  # its gate was just shut
                continue
            step: Step = msgspec.json.decode(steps[number])
            if "place" in step:
                places.read(now)
            if not _attempt(plan, number, step, held, places, now):
                break
            looked += 1
    if looked:
        logger.info("plan_goes_on", plan=plan.name, steps=looked)
    if len(numbers) == sum(plan.progress.count(one) for one in (TO_DO, HELD)):
        plans.finish(plan_id, now=now)
        held_places.sweep(now)
        _steps.pop(plan.name, None)
    return looked


def _steps_of(plan: StoredPlan) -> list[msgspec.Raw]:
    """Return a plan's steps, each as JSON, cached: else each batch would parse all of them."""
    found = _steps.get(plan.name)
    if found is None or found[1] != plan.applied_at:
        found = _steps[plan.name] = plan.id, plan.applied_at, plans.steps_of(plan.id)
        while len(_steps) > _MOST_KEPT:
            _steps.pop(next(iter(_steps)), None)
    return found[2]


def _next(plan: StoredPlan, held: HeldSteps, now: datetime) -> list[int]:
    """Return the steps to try: those that were not tried yet, else those that wait no longer."""
    to_do = [number for number, state in enumerate(plan.progress) if state == TO_DO]
    back = [number for number, state in enumerate(plan.progress) if state == HELD]
    is_round = plan.retry_at is not None and now >= plan.retry_at
    if is_round and not to_do:
        held.forget()
    else:
        held.look(now, revisions=budget_revisions)
    if to_do or not back:
        return to_do[:BATCH]
    if is_round or plan.retry_at is None:
        plans.rest(plan.id, until=now + RETRY)
    return [number for number in back if not held.waits(number)][:BATCH]


def _attempt(
    plan: StoredPlan, number: int, step: Step, held: HeldSteps, places: Places, now: datetime
) -> bool:
    """Do a step and note the result; False if no other step may be done now."""

    def work() -> TooManyRequests | None:
        with plans.step(plan.id, number, now=now) as one:
            if one is None:
                raise _Stopped
            back: list[Manifest] = []
            try:
                with nullcontext() if step["do"] in _WHOLE else transaction.atomic():
                    _do(step, plan, places, now, back)
            except TooManyRequests as error:
                if isinstance(error, EvictionHeld):
                    brakes.hold(error, now=now)
                causes = error.details.get("causes") or [{"message": error.message}]
                state = TO_DO if isinstance(error, NodeHasPlaces) else HELD  # the others wait, too
                one.note(state, f"{step['subject']}: {causes[0]['message']}")
                return error
            except StatusError as error:
                one.note(HAS_FAILED, f"{step['subject']}: {error.message}")
            except Exception as error:
                if not is_an_objects_fault(error):
                    raise
                logger.exception("plan_step_failed", subject=step["subject"])
                one.note(HAS_FAILED, f"{step['subject']}: {type(error).__name__}")
            else:
                one.note(IS_DONE, back=back)
        return None

    try:
        refusal = again_after_deadlock(work)
    except _Stopped:
        return False
    if isinstance(refusal, PlaceTaken):
        plans.set_aside(plan.id, f"{step['subject']}: {refusal.message}", now=now)
        return False
    if isinstance(refusal, NodeHasPlaces):
        return False
    if refusal is None:
        held.done(number)
    else:
        held.refused(number, step.get("uid", ""), refusal, now=now)
    return True


class _Stopped(Exception):
    """The operation is no longer running, or a client changes it at this moment."""


def _do(step: Step, plan: StoredPlan, places: Places, now: datetime, back: list[Manifest]) -> None:
    what = step["do"]
    if what in ("edit", "delete"):
        held_places.await_node(step["name"], plan.id)
    if what in ("evict", "remove"):
        # Before budgets and brakes, which would hold back another pod of this name.
        if not is_there(step["namespace"], step["name"], step["uid"]):
            return  # it left without the operation
        if "podsPerHour" in step:
            held_places.await_turn(step, plan.id, now=now)
        if "place" in step:
            try:
                places.hold(step, now=now)
            except NotFound:
                return  # it left without the operation
        options: dict[str, Any] = {"preconditions": {"uid": step["uid"]}}
        if "gracePeriodSeconds" in step:
            options["gracePeriodSeconds"] = step["gracePeriodSeconds"]
        try:
            if what == "evict":
                evict_pod(step["namespace"], step["name"], options, now=now)
            else:
                objects.delete("Pod", step["namespace"], step["name"], options, now=now)
        except NotFound:
            return  # it left without the operation
        except StatusError as error:
            if error.reason != "Conflict":
                raise  # another pod has this name now: the one to evict is gone
    elif what == "create":
        objects.create(step["kind"], step.get("namespace", ""), step["manifest"], now=now)
        if step["kind"] == "Node":
            back.append({"delete": {"nodes": [step["manifest"]["metadata"]["name"]]}})
    elif what == "scale":

        def scaled(owner: Manifest) -> Manifest:
            spec = owner.get("spec") or {}
            entry = {key: step[key] for key in ("kind", "namespace", "name")}
            if spec.get("replicas", 1) != step["replicas"]:
                back[:] = [{"scale": {**entry, "replicas": spec.get("replicas", 1)}}]
            return {**owner, "spec": {**spec, "replicas": step["replicas"]}}

        objects.update(step["kind"], step["namespace"], step["name"], scaled, now=now)
    elif what == "delete":
        try:
            objects.delete("Node", "", step["name"], now=now)
        except NotFound:
            return
    elif what == "configuration":
        text, _ = scheduler_configuration.check(step["document"])
        scheduler_configuration.store(document=text, by=plan.applied_by, now=now)
    else:
        from scheduling.simulation import plan_document, plan_undo  # imports NumPy

        change = plan_document.change_of(step["change"])
        subresource = "status" if change.what == plan_document.RESIZE else ""

        def edited(node: Manifest) -> Manifest:
            # From the node as it is now: others may have changed it since the plan was made.
            back[:] = plan_undo.back(change, step["name"], node)
            return plan_document.edited(change, node)

        objects.update("Node", "", step["name"], edited, now=now, subresource=subresource)
