"""Carries out plans that were applied: step after step, in small transactions, until it is done.

What is done stands in the operation's row, written in the transaction that did it, so a worker that
is killed at any point loses nothing and does nothing twice; the next one goes on. One works at a
time, by a session's lock. Steps that a disruption budget holds back are tried again every few
seconds while the others go on. Everything is done on behalf of who applied the plan.
"""

import time
from collections import deque
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any, Final

import structlog
from django.db import transaction

from clusterstate import locks
from clusterstate.actions import brakes, objects, plans, scheduler_configuration
from clusterstate.actions.aside import is_an_objects_fault
from clusterstate.actions.brakes import EvictionHeld
from clusterstate.actions.pods.evict import evict_pod
from clusterstate.objects import causes
from clusterstate.objects.actor import Actor, acting
from clusterstate.objects.errors import NotFound, StatusError, TooManyRequests
from clusterstate.objects.meta import Manifest
from clusterstate.queries.plans import HAS_FAILED, HELD, IS_DONE

logger = structlog.get_logger(__name__)

NAME: Final = "operations"
BATCH: Final = 20
"""Steps in one transaction: followers of the log cannot read past one that is open."""
RETRY: Final = timedelta(seconds=5)
_ROUND_SECONDS = 2.0

Step = dict[str, Any]


def run(now: Callable[[], datetime], *, stopping: Callable[[], bool] = lambda: False) -> int:
    """Carry out what is running, for a while; return how many steps were looked at.

    Operations take turns, a batch each, the one that waited longest first, so that none waits for
    a huge one to end. One that fails as a whole is paused with its error; the others go on.

    Raises:
        django.db.Error: the database failed; the others had their turn.
    """
    ids = plans.running()
    if not ids:
        return 0
    done = 0
    failed: Exception | None = None
    with locks.alone(locks.OPERATIONS) as mine:
        end = time.monotonic() + _ROUND_SECONDS
        turns = deque(ids if mine else ())
        while turns and not stopping() and time.monotonic() < end:
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
    if failed is not None:
        raise failed
    return done


def carry_out(plan_id: int, now: datetime) -> int:
    """Do the next batch of an operation; return how many steps were looked at."""
    with plans.batch(plan_id, most=BATCH, retry=RETRY, now=now) as batch:
        if batch is None:
            return 0
        plan = batch.plan
        steps = plan.to_do()
        why = causes.uid_of(causes.PLAN, plan.id)
        with acting(Actor(plan.applied_by, plan.impersonator, why)):
            for number in batch.numbers:
                back: list[Manifest] = []
                batch.note(number, *_done(steps[number], plan.applied_by, now, back), back=back)
        logger.info("plan_goes_on", plan=plan.name, steps=len(batch.numbers))
        return len(batch.numbers)


def _done(step: Step, by: str, now: datetime, back: list[Manifest]) -> tuple[str, str]:
    """Do a step; return what became of it, and why where it is not done.

    ``back`` is filled with the changes that take it back.
    """
    try:
        with transaction.atomic():
            _do(step, by, now, back)
    except TooManyRequests as error:
        if isinstance(error, EvictionHeld):
            brakes.hold(error, now=now)
        causes = error.details.get("causes") or [{"message": error.message}]
        return HELD, f"{step['subject']}: {causes[0]['message']}"
    except StatusError as error:
        return HAS_FAILED, f"{step['subject']}: {error.message}"
    except Exception as error:
        if not is_an_objects_fault(error):
            raise
        logger.exception("plan_step_failed", subject=step["subject"])
        return HAS_FAILED, f"{step['subject']}: {type(error).__name__}"
    return IS_DONE, ""


def _do(step: Step, by: str, now: datetime, back: list[Manifest]) -> None:
    what = step["do"]
    if what in ("evict", "remove"):
        options: dict[str, Any] = {"preconditions": {"uid": step["uid"]}}
        if "gracePeriodSeconds" in step:
            options["gracePeriodSeconds"] = step["gracePeriodSeconds"]
        try:
            if what == "evict":
                evict_pod(step["namespace"], step["name"], options, now=now)
            else:
                objects.delete("Pod", step["namespace"], step["name"], options, now=now)
        except NotFound:
            return  # it left by itself
        except StatusError as error:
            if error.reason != "Conflict":
                raise  # another pod of this name came: the one that was to leave is gone
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
        scheduler_configuration.store(document=text, by=by, now=now)
    else:
        from scheduling.simulation import plan_document, plan_undo  # NumPy, when it is needed

        change = plan_document.change_of(step["change"])
        subresource = "status" if change.what == plan_document.RESIZE else ""

        def edited(node: Manifest) -> Manifest:
            # As the node is now: others may have changed it since the plan was made.
            back[:] = plan_undo.back(change, step["name"], node)
            return plan_document.edited(change, node)

        objects.update("Node", "", step["name"], edited, now=now, subresource=subresource)
