"""How long pods wait and waited, against a goal, and which starve: ``waitingtimes``.

One document; as a table (``kubectl get waitingtimes``) it has a row for each value by which the
pods are grouped.
"""

from collections import Counter
from datetime import timedelta
from typing import Any, Final

from rest_framework.response import Response

from api import clock
from api.forms import renderers, replies, tables, wire
from api.forms.negotiation import V1
from api.forms.replies import MadeManifests
from api.kinds.own import GROUP, OwnViewSet
from api.requests import Request
from clusterstate.change_log import changes
from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.values.errors import BadRequest
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.pods import waiting_times

KIND: Final = Kind(name="WaitingTimes", group=GROUP, plural="waitingtimes")

_USUAL_DIMENSION: Final = "reason"
_USUAL_PAST: Final = 3600
_LONGEST: Final = 30 * 24 * 3600


class WaitingTimesViewSet(OwnViewSet):
    """Waiting times of pods by reason, class, priority, namespace, profile or stage."""

    kind = KIND.name
    resource = KIND.plural
    is_single = True
    no_past = "waiting pods count as they are now; use pastSeconds for placed pods"
    renderer_classes = renderers.OF_OBJECTS

    def retrieve(self, request: Request, namespace: str = "") -> Response:
        """Return a WaitingTimes: of pending pods, of placed pods, and of starving ones."""
        query = request.query_params
        by = query.get("by") or _USUAL_DIMENSION
        if by not in waiting_times.DIMENSIONS:
            listed = ", ".join(waiting_times.DIMENSIONS)
            raise BadRequest(f'invalid value "{by}" for by: supported values: {listed}')
        past = _seconds(query.get("pastSeconds"), "pastSeconds", _USUAL_PAST)
        goal = _seconds(query.get("goalSeconds"), "goalSeconds", waiting_times.GOAL_SECONDS)
        metadata = {"resourceVersion": str(changes.watermark())}
        found = waiting_times.report(by, now=clock.now(), past=past, goal=goal, namespace=namespace)
        head = {"apiVersion": KIND.api_version, "kind": KIND.name, "metadata": metadata}
        return replies.reply(_Report(KIND, [head | found], metadata, alone=True))


class _Report(MadeManifests, frozen=True, gc=False):
    """A WaitingTimes; as a table it has a row for each value of the grouping."""

    def table(self, include: str, version: str = V1) -> dict[str, Any]:
        """Return a Table with a row for each value of the grouping that has pods."""
        rows = values(self.items[0])
        return tables.table(
            self.kind, rows, self.metadata, now=clock.now(), include=include, version=version
        )


def values(report: Manifest) -> list[Manifest]:
    """Return the groups of a WaitingTimes: pending, placed and starving pods of each value.

    Values with pending pods come first. ``starved`` and ``placed`` are None if the report does not
    have them by this grouping.
    """
    by, status = report["spec"]["by"], report["status"]
    starved = Counter(value for one in status["starved"] for value in _starved_by(by, one))
    waiting = {one["value"]: one for one in status["waiting"]}
    placed = {one["value"]: one for one in status.get("placed") or ()}
    return [
        {
            "metadata": {"name": value},
            "waiting": waiting.get(value),
            "placed": placed.get(value),
            "tellsPlaced": "placed" in status,
            "starved": starved[value] if by in _STARVED_BY else None,
        }
        for value in dict.fromkeys([*waiting, *placed])
    ]


_STARVED_BY: Final = ("reason", "namespace", "priority")


def _starved_by(by: str, one: Manifest) -> list[str]:
    if by == "reason":
        return one["rejectedBy"] or [""]
    return [str(one[by])] if by in _STARVED_BY else []


def _seconds(text: str | None, name: str, usual: int) -> timedelta:
    found = wire.integer(text, name)
    if found is not None and found > _LONGEST:
        raise BadRequest(f'invalid value "{text}" for {name}: must be at most {_LONGEST}')
    return timedelta(seconds=usual if found is None else found)
