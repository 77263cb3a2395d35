"""docs/metrics.md, the dashboard and the alert rules name what is served, and all of it."""

import json
import re
from pathlib import Path

import pytest
import yaml
from prometheus_client.parser import text_string_to_metric_families

from api.forms import exposition
from api.server import metrics, room
from clusterstate.queries.loops.state_families import FAMILIES as STATE
from clusterstate.telemetry.metrics import families

DOCS = Path(__file__).resolve().parents[2] / "docs"
ROW = re.compile(
    r"^\| `([a-z][a-z0-9_]+)` \| (counter|gauge|histogram) \| ([^|]*) \| [^|]+ \|$", re.MULTILINE
)


def documented() -> dict[str, tuple[str, str]]:
    """Return type and labels by name."""
    rows = ROW.findall((DOCS / "metrics.md").read_text())
    found = {name: (kind, labels.replace("`", "").strip()) for name, kind, labels in rows}
    assert len(found) == len(rows), "a name is there twice"
    return found


def test_types_and_labels_are_documented() -> None:
    found = documented()
    for family in families.FAMILIES.values():
        assert found[family.name] == (family.kind, " ".join(family.labels))
    for state in STATE.values():
        assert found[state.name] == ("gauge", " ".join(name for name, _ in state.labels))


@pytest.mark.django_db(transaction=True)
def test_what_is_documented_is_served_and_the_other_way_round() -> None:
    parsed = text_string_to_metric_families(metrics.text())
    served = {one.name + ("_total" if one.type == "counter" else ""): one.type for one in parsed}
    kernel = {name for name in served if name.startswith("process_")}
    assert kernel <= exposition.PROCESS.keys()
    # The tests' database is no embedded one, so of its disk nothing is told; it has no replica.
    expected = (
        {"stowage_disk_free_bytes", "stowage_replica_lag_seconds"}
        | served.keys()
        | families.FAMILIES.keys()
        | STATE.keys()
        | exposition.PROCESS.keys()
    )
    found = documented()
    assert sorted(found.keys() ^ expected) == []
    assert {name: found[name][0] for name in served} == served


def test_the_page_on_operations_names_what_there_is() -> None:
    page = (DOCS / "operations.md").read_text()
    named = re.findall(r"^\| `((?:stowage|scheduler|apiserver|kube)_\w+)[`{]", page, re.MULTILINE)
    assert len(named) >= 9
    assert set(named) <= documented().keys()


def test_the_room_on_the_disk_of_the_embedded_database_is_told(settings, tmp_path) -> None:
    settings.DATABASE_FOLDER = tmp_path
    room._room = room._Room()
    try:
        (family,) = text_string_to_metric_families("".join(metrics._disk()))
        assert family.samples[0].value > 0
    finally:
        room._room = room._Room()


def queries() -> list[str]:
    dashboard = json.loads((DOCS / "monitoring" / "grafana-dashboard.json").read_text())
    rules = yaml.safe_load((DOCS / "monitoring" / "alerts.yaml").read_text())
    asked = [target["expr"] for panel in dashboard["panels"] for target in panel.get("targets", ())]
    assert len(asked) > 40
    return asked + [rule["expr"] for group in rules["groups"] for rule in group["rules"]]


def test_dashboard_and_alerts_ask_for_what_there_is() -> None:
    found = documented()
    for query in queries():
        bare = re.sub(r'"[^"]*"|\[[^]]*\]', "", query)
        named = re.findall(r"\b(?:apiserver|kube|process|scheduler|stowage)_\w+", bare)
        assert named, query
        for name in named:
            base = re.sub(r"_(bucket|sum|count)$", "", name)
            if base != name and found.get(base, ("",))[0] == "histogram":
                continue
            assert found.get(name, ("",))[0] in ("counter", "gauge"), (name, query)
            assert found[name][0] == "gauge" or "rate(" in query, f"a counter as it is: {query}"


def test_labels_that_are_asked_for_are_labels_of_a_metric_of_the_query() -> None:
    found = documented()
    for query in queries():
        labels = {"le"}
        for name in re.findall(r"\b[a-z]+_\w+", query):
            base = re.sub(r"_(bucket|sum|count)$", "", name)
            labels |= set(found.get(name, found.get(base, ("", "")))[1].split())
        by = re.findall(r"\b(?:by|ignoring) \(([^)]*)\)", query)
        named = {one.strip() for part in by for one in part.split(",")}
        matched = re.findall(r'(\w+)(?:=~|!=|!~|=)"', query)
        assert (named | set(matched)) <= labels, query


def test_each_alert_says_what_to_do() -> None:
    rules = yaml.safe_load((DOCS / "monitoring" / "alerts.yaml").read_text())
    for rule in rules["groups"][0]["rules"]:
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        assert set(rule["annotations"]) == {"summary", "description"}


def test_panels_of_the_dashboard_do_not_overlap() -> None:
    dashboard = json.loads((DOCS / "monitoring" / "grafana-dashboard.json").read_text())
    taken: set[tuple[int, int]] = set()
    ids = [panel["id"] for panel in dashboard["panels"]]
    assert len(ids) == len(set(ids))
    for panel in dashboard["panels"]:
        at = panel["gridPos"]
        cells = {
            (x, y)
            for x in range(at["x"], at["x"] + at["w"])
            for y in range(at["y"], at["y"] + at["h"])
        }
        assert not cells & taken, panel["title"]
        assert max(x for x, _ in cells) < 24
        taken |= cells
