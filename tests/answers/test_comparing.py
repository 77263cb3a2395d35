"""The recent past beside what other configurations would have made of it."""

import time
from datetime import timedelta

import pytest

from clusterstate.objects.values.errors import Invalid, TooLarge
from clusterstate.objects.values.meta import Manifest
from scheduling.answers.comparing import comparison
from scheduling.answers.live import LiveWorld
from tests.clock import NOW
from tests.controllers.support import bind, make_node, make_pod
from tests.plugins.extender_service import serving

pytestmark = pytest.mark.django_db


CONTAINER = {"name": "main", "image": "nginx", "resources": {"requests": {"cpu": "1"}}}


def _past() -> None:
    """Two nodes, and three pods that went to the emptier one each time."""
    for name in ("a", "b"):
        make_node(name, now=NOW - timedelta(minutes=120))
    for number in range(3):
        came_at = NOW - timedelta(minutes=50 - number)
        pod = make_pod(f"p{number}", now=came_at, containers=[CONTAINER])
        bind(pod, "ab"[number % 2], now=NOW - timedelta(minutes=49 - number))


def asked(**spec: object) -> Manifest:
    found: Manifest = comparison(LiveWorld(), {"spec": spec})["status"]
    return found


def test_what_happened_stands_beside_what_would_have() -> None:
    _past()
    status = asked(policies=[{"name": "packing"}], report=True)
    recorded, packing = status["runs"]
    assert (recorded["title"], packing["title"]) == ("recorded", "packing")
    assert recorded["summary"]["bound"] == packing["summary"]["bound"] == 3
    assert recorded["summary"]["waitMean"] == pytest.approx(60)
    assert packing["summary"]["waitMean"] == 0
    assert packing["summary"]["nodesUsedPeak"] == 1
    assert status["waitedLess"] == [0, 3]
    assert status["elsewhere"][1] in (1, 2), "all on one node"
    assert {one["pod"] for one in status["pods"]} == {f"default/p{n}" for n in range(3)}
    assert "plugins" not in recorded
    assert "<svg" in status["report"]
    assert "<script" not in status["report"]


def test_a_configuration_of_ones_own_is_played_and_its_plugins_are_watched() -> None:
    _past()
    with serving() as service:
        service.status = 500
        extender = {"urlPrefix": service.url, "filterVerb": "filter"}
        document = {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "extenders": [extender],
        }
        (_, run) = asked(policies=[{"name": "mine", "configuration": document}])["runs"]
    (plugin,) = (one for one in run["plugins"] if one["name"].startswith("Extender"))
    assert plugin["failures"] >= 3
    assert run["plugins"][0] == plugin, "those that fail come first"
    assert run["summary"]["bound"] == 0


@pytest.mark.parametrize(
    ("spec", "field"),
    [
        ({}, "spec.policies"),
        ({"policies": [{"name": "none such"}]}, "spec.policies[0].name"),
        ({"policies": [{"name": "default"}] * 5}, "spec.policies"),
        ({"policies": [{"name": "default"}], "hours": 0}, "spec.hours"),
        ({"policies": [{"name": "default"}], "hours": 1e9}, "spec.hours"),
        ({"policies": [{"name": "default"}], "since": "yesterday"}, "spec.since"),
        ({"policies": [{"name": "default"}], "since": "2999-01-01T00:00:00Z"}, "spec.since"),
        ({"policies": [{"name": "default"}], "since": "2001-01-01T00:00:00Z"}, "spec.since"),
        ({"policies": [{"name": "default"}], "until": "soon"}, "spec.until"),
        ({"policies": [{"name": "default"}], "seed": -1}, "spec.seed"),
        ({"policies": [{"name": "default"}], "colour": "red"}, "spec"),
        ({"policies": "default"}, "spec.policies"),
        (
            {"policies": [{"configuration": {"apiVersion": "x", "kind": "y"}}]},
            "spec.policies[0].configuration.kind",
        ),
    ],
)
def test_what_is_wrong_is_named(spec: Manifest, field: str) -> None:
    _past()
    with pytest.raises(Invalid) as refused:
        comparison(LiveWorld(), {"spec": spec})
    assert field in [error.field for error in refused.value.errors]


def test_it_ends_where_the_answer_takes_too_long() -> None:
    _past()
    with pytest.raises(TooLarge):
        comparison(
            LiveWorld(until=time.monotonic() - 1), {"spec": {"policies": [{"name": "default"}]}}
        )


def test_it_says_how_far_it_is() -> None:
    _past()
    told: list[tuple[str, float]] = []
    world = LiveWorld(tell=lambda doing, share: told.append((doing, share)))
    comparison(world, {"spec": {"policies": [{"name": "packing"}]}})
    assert [*dict.fromkeys(doing for doing, _ in told)] == [
        "reading what happened", "playing what happened", "playing packing"
    ]  # fmt: skip
    shares = [share for _, share in told]
    assert shares == sorted(shares)
    assert shares[0] == 0
    assert shares[-1] == 1
