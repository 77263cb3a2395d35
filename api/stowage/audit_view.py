"""``audit`` of the group ``stowage.dev``: the audit log, for administrators."""

import uuid
from collections.abc import Iterable
from datetime import datetime, timedelta

from django.conf import settings
from rest_framework.response import Response

from api import clock
from api.forms import options, replies, wire
from api.kinds.own import OwnViewSet
from api.requests import Request
from clusterstate.access.rules import Attributes
from clusterstate.objects.values.errors import BadRequest
from clusterstate.queries.people import audit_log
from clusterstate.queries.people.audit_log import Search

_MANY = 100
_MICROSECOND = timedelta(microseconds=1)
MOST = 1000


class AuditViewSet(OwnViewSet):
    """Lines of the audit log, the newest first."""

    resource = "audit"
    kind = "AuditEvent"
    dated = ("list",)

    def wants(self, request: Request) -> Iterable[Attributes]:
        """Return the right to list Events of audit.k8s.io: no role but cluster-admin has it."""
        return (Attributes("list", "audit.k8s.io", "events"),)

    def list(self, request: Request) -> Response:
        """Return an EventList of audit.k8s.io/v1; ``continue`` leads to older lines."""
        query = request.query_params
        if settings.AUDIT_KEEP_HOURS:
            self.require_kept(settings.AUDIT_KEEP_HOURS * 3600)
        filters = Search(
            username=query.get("user", ""),
            verb=query.get("verb", ""),
            resource=query.get("resource", ""),
            namespace=query.get("namespace", ""),
            name=query.get("name", ""),
            code=wire.integer(query.get("code"), "code"),
            audit_id=_uuid(query.get("auditID", "")),
            since=moment(query.get("since", ""), "since"),
            until=earlier(moment(query.get("until", ""), "until"), self.moment),
        )
        limit = min(wire.integer(query.get("limit"), "limit") or _MANY, MOST)
        before = wire.integer(query.get("continue"), "continue") or 0
        lines, more = audit_log.search(filters, limit=limit, before=before)
        return replies.reply(
            {
                "kind": "EventList",
                "apiVersion": "audit.k8s.io/v1",
                "metadata": {"continue": str(more)} if more else {},
                "items": [replies.decode(line) for line in lines],
            }
        )


def _uuid(text: str) -> uuid.UUID | None:
    try:
        return uuid.UUID(text) if text else None
    except ValueError:
        raise BadRequest(f'auditID: Invalid value: "{text}": must be a UUID') from None


def earlier(until: datetime | None, at: datetime | None) -> datetime | None:
    """Return the end of the requested range: before ``until``, and not after ``at``."""
    ends = [] if until is None else [until]
    if at is not None:
        ends.append(at + _MICROSECOND)
    return min(ends, default=None)


def moment(text: str, name: str) -> datetime | None:
    """Return the time in a parameter (``options.time_of``), None if it is absent.

    Raises:
        BadRequest: the text is not a time.
    """
    return options.time_of(text, name, now=clock.now()) if text else None
