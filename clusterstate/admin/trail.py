"""An object's history in the admin: every change in the log, not only those made in the admin."""

from datetime import datetime
from typing import Any

from django.core.paginator import Page, Paginator
from django.urls import reverse
from django.utils.html import format_html
from django.utils.safestring import SafeString

from clusterstate.objects.registry.kinds import ALL_KINDS
from clusterstate.queries.past.trail import TrailEntry, trail_of

_MOST = 200
_WORDS = {"ADDED": "Created", "MODIFIED": "Changed", "DELETED": "Deleted"}


class Entry:
    """A change, with the attributes that the template of Django's own history reads."""

    def __init__(self, step: TrailEntry, where: tuple[str, str, str]) -> None:
        """``step`` is the change; ``where`` is kind, namespace and name of its object."""
        self._step, self._where = step, where
        self.user = self

    @property
    def action_time(self) -> datetime:
        """The time of the change."""
        return self._step.at

    def get_username(self) -> str:
        """Return the author."""
        return self._step.actor or "unknown"

    def get_full_name(self) -> str:
        """Return the impersonating user as ``by NAME``; empty without impersonation."""
        return f"by {self._step.impersonator}" if self._step.impersonator else ""

    def get_change_message(self) -> SafeString:
        """Return the verb and the request, with a link to the line-by-line difference."""
        step = self._step
        text = _WORDS[step.verb]
        if step.fields:
            text += f": {', '.join(step.fields)}"
        if step.node:
            text += f"; bound to {step.node}"
        if step.for_pod:
            text += f"; to make room for the pod {step.for_pod}"
        text += f" (request {step.request})" if step.request else ""
        return format_html(
            '{}. <a class="text-primary-600 underline dark:text-primary-400" href="{}">'
            "What changed</a>",
            text, reverse("console:difference", args=(*self._where, step.revision)),
        )  # fmt: skip


def entries(stored: Any) -> Page[Entry] | None:
    """Return the latest changes of a row's object; ``None`` if the row is not an object's."""
    table = stored._meta.db_table
    kind = next((one for one in ALL_KINDS if one.table == table and not one.is_shared), None)
    if kind is None:
        return None
    namespace = getattr(stored, "namespace", "")
    found = trail_of(kind, namespace, stored.name, limit=_MOST)
    where = (kind.name, namespace or "-", stored.name)
    return Paginator([Entry(step, where) for step in found.steps], _MOST).get_page(1)
