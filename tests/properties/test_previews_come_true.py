"""What the console's preview shows is what then happens, in random worlds, by the pages' forms.

A person opens the preview of a drain or a taint, reads who leaves and where each lands, and
confirms; then the service's own loops are driven by hand (``test_plans_come_true``). What the page
said must be as it was, pod by pod.

``PREVIEWS=200`` looks at so many worlds (``make previews``).
"""

import os
import random
import re
from html import unescape
from typing import Any
from urllib.parse import urlencode

import pytest
from django.contrib.auth.models import User
from django.test import Client

from clusterstate.processes import steady_clock
from clusterstate.queries.scheduler.plans import find_plan
from scheduling.answers import live
from tests.clock import after
from tests.forms import many
from tests.properties.test_plans_come_true import END, World, comes_true

pytestmark = pytest.mark.django_db(transaction=True)

WORLDS = int(os.environ.get("PREVIEWS") or many(2, 40))
FIRST = int(os.environ.get("PREVIEWS_FROM", "0"))
_ROW = re.compile(r'<tr><th scope="row">(?:<a [^>]*>)?([^<]+)(?:</a>)?</th>(.*?)</tr>', re.DOTALL)
_LANDS = re.compile(r'<a class="ok" href="/console/nodes/([^/"]+)/">')


def asked(world: World) -> str:
    """Return the address of a random drain or taint of one node or two."""
    chance = world.chance
    nodes = [("node", name) for name in chance.sample(world.nodes, chance.choice((1, 1, 2)))]
    change = chance.choice(
        (
            [("do", "drain"), ("force", "on")],
            [("do", "drain")],
            [("do", "taint"), ("key", "bad"), ("effect", "NoExecute")],
            [("do", "taint"), ("key", "bad"), ("value", "very"), ("effect", "NoExecute")],
            [("do", "taint"), ("key", "shut"), ("effect", "NoSchedule")],
        )
    )
    return f"/console/change?{urlencode([*change, *nodes, ('horizon', END - 10)])}"


def shown(page: str) -> dict[str, str]:
    """Return who leaves by the page, and on which node each lands, empty where on none."""
    _, found, rest = page.partition('aria-label="Pods that leave"')
    if not found:
        assert "No pod is evicted or deleted" in page
        return {}
    table = rest.partition("</table>")[0].partition("<tbody>")[2]
    rows = {unescape(name): _LANDS.search(row) for name, row in _ROW.findall(table)}
    assert rows
    return {name: lands.group(1) if lands else "" for name, lands in rows.items()}


@pytest.mark.drawn
@pytest.mark.parametrize("seed", range(FIRST, FIRST + WORLDS))
def test_what_a_preview_shows_comes_true(
    seed: int, monkeypatch: pytest.MonkeyPatch, settings: Any
) -> None:
    settings.REQUIRED_DURING_EXECUTION_RATE = 0
    world = World(random.Random(100_000 + seed))
    world.tick(after(5))  # the waiting pods are placed, refused, or begin to preempt
    live._live.forget()
    start = after(10)
    world.now = start
    monkeypatch.setattr(steady_clock, "now", lambda: start)
    person = User.objects.create_superuser("anna", password="pass word 123")
    client = Client(HTTP_ACCEPT="text/html")
    client.force_login(person, backend="django.contrib.auth.backends.ModelBackend")

    address = asked(world)
    page = client.get(address).content.decode()
    form = re.search(r'action="(/console/plans/([^"]+)/act)"', page)
    assert form, page
    answer = client.post(form.group(1), {"what": "apply"})
    assert answer.status_code == 302, answer.content.decode()
    plan = find_plan(form.group(2))
    foretold = plan.prediction()
    assert shown(page) == {
        one["pod"]: (one.get("landing") or {}).get("nodeName", "") if "blockedBy" not in one else ""
        for one in foretold["leaving"]
    }
    comes_true(world, plan.id, foretold, start, told=(seed, address))
