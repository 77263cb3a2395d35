"""`manage.py rebalance` of the live cluster and of files."""

import json
from pathlib import Path
from typing import Any

import pytest
from django.core.management.base import CommandError

from clusterstate.queries.scheduler.plans import RUNNING, latest_plans
from scheduling.answers import advisor
from tests.answers.test_plans import asking, owned, zoned
from tests.builders import make_node as node_of
from tests.builders import make_pod as pod_of
from tests.scenarios.test_commands import run
from tests.simulation import builders
from tests.strategies import ZONE


def test_moves_in_a_cluster_from_files_are_printed_and_nothing_else(tmp_path: Path) -> None:
    nodes = [node_of(f"n{number}").labelled({ZONE: f"z{number}"}).manifest for number in range(2)]
    pods = [
        builders.owned(pod_of(f"p{number}").asks(cpu="500m").on("n0")).manifest
        for number in range(4)
    ]
    file = tmp_path / "cluster.json"
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": [*nodes, *pods]}))
    out, _ = run("rebalance", file, "--objective", "ToBalanceZones")
    assert out.startswith("2 moves: ")
    assert "default/p" in out
    with pytest.raises(CommandError, match=r"Only for the live cluster: --apply"):
        run("rebalance", file, "--apply")


@pytest.mark.django_db
def test_a_rebalance_of_the_live_cluster_is_printed_and_carried_out() -> None:
    zoned()
    for number in range(6):
        owned(f"p{number}", "n0", **asking("4"))
    options = ("--objective", "ToBalanceZones", "--topology-key", "zone", "--most", 2)
    out, _ = run("rebalance", *options)
    assert out.startswith("2 pods move.")
    assert latest_plans(limit=5) == []
    _, told = run("rebalance", *options, "--pods-per-hour", 1, "--apply")
    (plan,) = latest_plans(limit=5)
    assert (plan.state, plan.name in told) == (RUNNING, True)
    assert plan.posted_document()["spec"]["changes"][0]["evict"]["places"]
    with pytest.raises(CommandError, match="podsPerHour"):
        run("rebalance", "--schedule", "@every 10m")
    run("rebalance", "--schedule", "@daily", "--pods-per-hour", 5, "--apply")
    assert [one.state for one in latest_plans(limit=5)] == [RUNNING, RUNNING]


def test_a_price_of_nothing_is_a_price(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[Any] = []

    def ask(name: str, document: Any) -> Any:
        asked.append(document["spec"]["changes"])
        return {"status": {"steps": [], "leaving": [], "staying": []}}

    monkeypatch.setattr(advisor, "ask", ask)
    run("rebalance", "--objective", "ToBalanceZones", "--move-price", 0, "--most", 0)
    prices = {"objective": "ToBalanceZones", "movePrice": 0, "mostPods": 0}
    assert asked == [[{"rebalance": prices}]]
