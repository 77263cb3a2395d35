"""Latency and throughput of the last hour, beside the map."""

from django.test import Client

from api.console.fleet import throughput
from clusterstate.actions.pods.bind import Binding, bind_pods
from clusterstate.change_log import changes
from clusterstate.queries.pods.pace import Minute, last_hour
from tests.clock import NOW, after
from tests.clusterstate.support import create_node, new_pod
from tests.console.conftest import text

PART = "/console/fleet/pace"


def bind(name: str, waited: float) -> None:
    """Bind a pod of the test's beginning so many seconds later."""
    found = new_pod(name)
    mark = changes.watermark()
    assert bind_pods([Binding(found, "n1")], snapshot_revision=mark, now=after(waited)).bound


def test_minutes_tell_how_many_pods_got_a_node_and_after_how_long(db: None) -> None:
    create_node("n1")
    for number, waited in enumerate((0.25, 2, 10, 70, 4000)):
        bind(f"web-{number}", waited)
    found = last_hour(after(3600))
    assert found == [Minute(NOW, 3, 2.0, 10.0), Minute(after(60), 1, 70.0, 70.0)]
    assert last_hour(after(-1)) == []


def test_pictures_stay_within_their_frame() -> None:
    minutes = [Minute(after(-3600), 1, 0, 0), Minute(after(-60), 500, 5, 1e6)]
    for shapes in (throughput.throughput(minutes, NOW), throughput.waits(minutes, NOW)):
        for one in shapes:
            assert 0 <= one.x <= throughput.WIDTH
            assert 0 <= one.y <= throughput.HEIGHT
            assert 0 < one.height <= throughput.HEIGHT
    assert throughput.throughput(minutes, NOW)[1].height == throughput.HEIGHT
    assert [throughput.seconds(one) for one in (0.0384, 1.42, 700)] == ["38 ms", "1.4 s", "12 min"]


def test_the_part_is_drawn_and_told_in_a_table(operator: Client, nobody: Client) -> None:
    create_node("n1")
    assert "No pod got a node" in text(operator.get(PART))
    bind("web", 0)
    page = text(operator.get(PART))
    assert page.count("<rect") == 2
    assert "1 pods were bound" not in page
    assert PART in text(operator.get("/console/"))
    assert PART not in text(operator.get("/console/", {"at": "10m"}, follow=True))
    assert nobody.get(PART).status_code == 403
