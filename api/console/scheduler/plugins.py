"""The scheduler's effective plugins: their extension points in each profile, and why."""

from typing import Any, Final

from django.http import HttpRequest, HttpResponse

from api.console.page import layout
from api.console.scheduler import policies
from clusterstate.objects.values.errors import StatusError
from clusterstate.objects.values.meta import Manifest

_REVISIONS: Final = 50


@layout.shown
def page(request: HttpRequest) -> HttpResponse:
    """Return the plugins of a revision (``new``), and the differences from another (``old``)."""
    from scheduling.answers import effective, questions

    layout.require(request, "get", "schedulerconfiguration", group="stowage.dev")
    stored = questions.configurations(limit=_REVISIONS)
    current = stored[0].revision if stored else 0
    new = policies.number(request, "new") or current
    old = policies.number(request, "old")
    context: dict[str, Any] = {
        "stored": stored, "new": new, "old": request.GET.get("old", ""), "current": current,
    }  # fmt: skip
    try:
        profiles = effective.effective(_document(new))
        columns = enumerate(zip(*(row.uses for one in profiles for row in one.rows), strict=True))
        used = [at for at, uses in columns if any(uses)]
        context["points"] = [effective.POINTS[at] for at in used]
        context["tables"] = [
            (one, [(row, [row.uses[at] for at in used]) for row in one.rows]) for one in profiles
        ]
        if request.GET.get("old"):
            context["differs"] = effective.differences(
                effective.effective(_document(old)), profiles
            )
            context["compared"] = True
    except StatusError as error:
        if error.code != 422:
            raise
        context["problem"] = error.message
    return layout.page(request, "plugins.html", "Plugins", context)


def _document(revision: int) -> Manifest:
    """Return the document of a revision; 0: the default one."""
    from scheduling.answers import questions

    if revision:
        return questions.configuration_of(revision)
    return {"apiVersion": "kubescheduler.config.k8s.io/v1", "kind": "KubeSchedulerConfiguration"}
