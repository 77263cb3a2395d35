"""Begins the rounds of plans that are carried out on a schedule: each is predicted anew."""

from datetime import datetime

import structlog

from clusterstate.actions import plans
from clusterstate.objects.values.errors import ServiceUnavailable, StatusError, TooManyRequests
from clusterstate.processes import steady_clock
from scheduling.answers import advisor

logger = structlog.get_logger(__name__)


def begin_due(now: datetime) -> int:
    """Predict the rounds that are due, and give their operations the steps; return how many.

    An operation whose plan is refused is paused and says why. If no advisor answers, the rounds
    stay due.
    """
    done = 0
    for plan in plans.due_rounds(now=now):
        document = plan.posted_document()
        spec = {k: v for k, v in document["spec"].items() if k not in ("schedule", "timeZone")}
        try:
            status = advisor.ask("plan", {**document, "spec": spec})["status"]
        except (ServiceUnavailable, TooManyRequests) as error:
            logger.info("round_not_foretold", plan=plan.name, error=str(error))
            return done
        except StatusError as error:
            text = f"the next round could not be predicted: {error.message}"
            plans.set_aside(plan.id, text, now=steady_clock.now())
            continue
        plans.begin_round(plan, status, now=steady_clock.now())
        done += 1
    return done
