"""Decisions: searched across pods, exported, compared, and made again."""

import csv
import io
from collections.abc import Iterator
from datetime import timedelta

import pytest

from api import clock
from clusterstate.actions import objects
from clusterstate.objects.values.document import format_time
from clusterstate.queries.scheduler import decision_search
from clusterstate.queries.scheduler.decision_search import Search
from scheduling.worker import profiles
from scheduling.worker.scheduler import Scheduler
from tests.clusterstate.support import create_node, new_pod
from tests.console.conftest import signed_in, text

pytestmark = pytest.mark.django_db(transaction=True)
SEARCH = "/console/decisions/"


@pytest.fixture
def decided() -> Iterator[None]:
    """Two pods that a real cycle placed, and one that fits nowhere."""
    for number, free in ((1, "4"), (2, "8")):
        create_node(f"n{number}", allocatable={"cpu": free})
        objects.update("Node", "", f"n{number}", _ready, now=clock.now(), subresource="")
    for name, cpu in (("web-1", "1"), ("web-2", "1"), ("big", "64")):
        new_pod(name, cpu=cpu)
    revision, configuration = profiles.in_force()
    scheduler = Scheduler(configuration, lambda: 11, revision=revision)
    moment = clock.now().timestamp()
    try:
        scheduler.load(moment)
        while scheduler.cycle(moment):
            pass
        scheduler.cycle(moment)
        scheduler.binder.write_records(moment)
        yield
    finally:
        scheduler.binder.close()


def _ready(node: dict[str, dict[str, object]]) -> dict[str, dict[str, object]]:
    return {**node, "spec": {key: one for key, one in node["spec"].items() if key != "taints"}}


def test_decisions_are_searched_exported_compared_and_made_again(decided: None) -> None:
    operator = signed_in("anna", superuser=True)
    page = text(operator.get(SEARCH))
    for name in ("web-1", "web-2", "big"):
        assert f"default/{name}" in page
    page = text(operator.get(SEARCH, {"reason": "Insufficient cpu"}))
    assert "default/big" in page
    assert "default/web-1" not in page
    assert "default/big" not in text(operator.get(SEARCH, {"outcome": "scheduled"}))
    assert "No decisions match these filters" in text(operator.get(SEARCH, {"node": "n9"}))
    for wrong in ({"outcome": "odd"}, {"owner": "Job/j"}, {"since": "soon"}):
        assert operator.get(SEARCH, wrong).status_code == 400
    before = format_time(clock.now() - timedelta(hours=1))
    assert "default/" not in text(operator.get(SEARCH, {"until": before}))

    answer = operator.get("/console/decisions/csv", {"outcome": "scheduled"})
    rows = list(csv.DictReader(io.StringIO(answer.content.decode())))
    assert {row["pod"] for row in rows} == {"web-1", "web-2"}
    assert {row["node"] for row in rows} <= {"n1", "n2"}

    found = decision_search.search(Search(name="web-1"), limit=1).items[0]
    path = f"/console/pods/default/web-1/decisions/{found.id}"
    page = text(operator.get(path))
    assert 'id="compared"' in page
    assert "NodeResourcesFit" in page
    assert text(operator.get(path, {"a": "n2", "b": "n1"})).count("ahead by") == 1
    assert operator.get(path, {"a": "n9"}).status_code == 400
    again = text(operator.get(path, {"again": "default-scheduler"}))
    assert f'<a class="ok" href="/console/nodes/{found.node_name}/">' in again

    nobody = signed_in("nils")
    for refused in (SEARCH, "/console/decisions/csv", path):
        assert nobody.get(refused).status_code == 403
    pods = text(operator.get("/console/pods/default/web-1/"))
    assert ">decided<" in pods
