"""How long pods wait and waited, against a goal, and who starves: ``waitingtimes``."""

from datetime import timedelta
from typing import Final

from django.conf import settings
from rest_framework.response import Response

from api import clock
from api.forms import replies, wire
from api.kinds.own import API_VERSION, OwnViewSet
from api.requests import Request
from clusterstate import changes
from clusterstate.objects.errors import BadRequest
from clusterstate.queries import waiting_times

_USUAL_DIMENSION: Final = "reason"
_USUAL_PAST: Final = 3600
_LONGEST: Final = 30 * 24 * 3600


class WaitingTimesViewSet(OwnViewSet):
    """Waiting times of pods by reason, class, priority, namespace, profile or stage."""

    kind = "WaitingTimes"
    resource = "waitingtimes"
    is_single = True

    def retrieve(self, request: Request, namespace: str = "") -> Response:
        """Return a WaitingTimes: of pods that wait, of pods that were placed, and who starves."""
        query = request.query_params
        by = query.get("by") or _USUAL_DIMENSION
        if by not in waiting_times.DIMENSIONS:
            listed = ", ".join(waiting_times.DIMENSIONS)
            raise BadRequest(f'invalid value "{by}" for by: supported values: {listed}')
        past = _seconds(query.get("pastSeconds"), "pastSeconds", _USUAL_PAST)
        goal = _seconds(query.get("goalSeconds"), "goalSeconds", settings.WAITING_GOAL_SECONDS)
        metadata = {"resourceVersion": str(changes.watermark())}
        found = waiting_times.report(by, now=clock.now(), past=past, goal=goal, namespace=namespace)
        head = {"apiVersion": API_VERSION, "kind": self.kind, "metadata": metadata}
        return replies.reply(head | found)


def _seconds(text: str | None, name: str, usual: int) -> timedelta:
    found = wire.integer(text, name)
    if found is not None and found > _LONGEST:
        raise BadRequest(f'invalid value "{text}" for {name}: must be at most {_LONGEST}')
    return timedelta(seconds=usual if found is None else found)
