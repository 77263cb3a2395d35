"""The cells that kubectl prints."""

from datetime import UTC, datetime, timedelta

import pytest

from api.forms import tables
from api.forms.cells import format_selector, human_duration, parse_time
from clusterstate.objects.kinds import ALL_KINDS, KINDS

NOW = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)
CREATED = "2026-01-02T11:55:00Z"


def cells(kind, **manifest):
    item = {"metadata": {"name": "x", "creationTimestamp": CREATED}, **manifest}
    item["metadata"] = {"name": "x", "creationTimestamp": CREATED, **item["metadata"]}
    printer = tables.printer(KINDS[kind])
    values = printer.cells(item, NOW)
    return dict(zip([column.name for column in printer.columns], values, strict=True))


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (-5, "<invalid>"), (-1, "0s"), (0, "0s"), (119, "119s"), (120, "2m"), (125, "2m5s"),
        (599, "9m59s"), (600, "10m"), (3 * 3600 - 1, "179m"), (3 * 3600, "3h"),
        (3 * 3600 + 60, "3h1m"), (8 * 3600, "8h"), (47 * 3600, "47h"), (48 * 3600, "2d"),
        (50 * 3600, "2d2h"), (8 * 86400, "8d"), (729 * 86400, "729d"), (730 * 86400, "2y"),
        (731 * 86400, "2y1d"), (9 * 365 * 86400, "9y"),
    ],
)  # fmt: skip
def test_durations_are_printed_as_kubectl_does(seconds, text):
    assert human_duration(seconds) == text


@pytest.mark.parametrize("kind", ALL_KINDS, ids=lambda kind: kind.name)
def test_every_kind_has_as_many_cells_as_columns_even_when_it_is_empty(kind):
    table = tables.table(kind, [{"metadata": {"name": "x"}}], {}, now=NOW)
    assert len(table["rows"][0]["cells"]) == len(table["columnDefinitions"])


def test_a_pending_pod_has_placeholders():
    got = cells("Pod", spec={"containers": [{"name": "c"}]}, status={"phase": "Pending"})
    assert got == {
        "Name": "x", "Ready": "0/1", "Status": "Pending", "Restarts": 0, "Age": "5m",
        "IP": "<none>", "Node": "<none>", "Nominated Node": "<none>", "Readiness Gates": "<none>",
    }  # fmt: skip


def test_a_running_pod_counts_ready_containers_and_restarts():
    running = {"ready": True, "restartCount": 2, "state": {"running": {}}}
    waiting = {
        "ready": False,
        "restartCount": 1,
        "state": {"waiting": {"reason": "CrashLoopBackOff"}},
    }
    got = cells(
        "Pod",
        spec={"nodeName": "n1", "containers": [{"name": "a"}, {"name": "b"}]},
        status={"phase": "Running", "podIP": "10.0.0.1",
                "containerStatuses": [{"name": "a", **running}, {"name": "b", **waiting}]},
    )  # fmt: skip
    assert (got["Ready"], got["Status"], got["Restarts"]) == ("1/2", "CrashLoopBackOff", 3)
    assert (got["IP"], got["Node"]) == ("10.0.0.1", "n1")


@pytest.mark.parametrize(
    ("pod", "status"),
    [
        ({"status": {"phase": "Failed", "reason": "Evicted"}}, "Evicted"),
        ({"status": {"phase": "Running"}, "metadata": {"deletionTimestamp": CREATED}},
         "Terminating"),
        ({"status": {"phase": "Pending", "conditions": [
            {"type": "PodScheduled", "status": "False", "reason": "SchedulingGated"}]}},
         "SchedulingGated"),
        ({"spec": {"initContainers": [{"name": "i"}], "containers": [{"name": "c"}]},
          "status": {"phase": "Pending", "initContainerStatuses": [{"name": "i", "state": {}}]}},
         "Init:0/1"),
        ({"status": {"phase": "Succeeded", "containerStatuses": [
            {"name": "c", "state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}]}},
         "Completed"),
        ({"status": {"phase": "Failed", "containerStatuses": [
            {"name": "c", "state": {"terminated": {"exitCode": 3}}}]}}, "ExitCode:3"),
    ],
)  # fmt: skip
def test_the_status_of_a_pod_is_the_most_telling_word(pod, status):
    assert cells("Pod", **pod)["Status"] == status


@pytest.mark.parametrize(
    ("condition", "spec", "status"),
    [
        ("True", {}, "Ready"), ("False", {}, "NotReady"), (None, {}, "Unknown"),
        ("True", {"unschedulable": True}, "Ready,SchedulingDisabled"),
    ],
)  # fmt: skip
def test_the_status_of_a_node(condition, spec, status):
    conditions = [] if condition is None else [{"type": "Ready", "status": condition}]
    assert cells("Node", spec=spec, status={"conditions": conditions})["Status"] == status


def test_the_roles_of_a_node_come_from_labels():
    labels = {"node-role.kubernetes.io/worker": "", "node-role.kubernetes.io/control-plane": ""}
    assert cells("Node", metadata={"labels": labels})["Roles"] == "control-plane,worker"
    assert cells("Node")["Roles"] == "<none>"


def test_an_event_names_its_object():
    got = cells(
        "Event",
        involvedObject={"kind": "Pod", "name": "p"}, reason="Scheduled", type="Normal",
        message="done\n", firstTimestamp=CREATED, lastTimestamp="2026-01-02T11:59:00Z",
        source={"component": "default-scheduler"}, count=3,
    )  # fmt: skip
    assert (got["Object"], got["Last Seen"], got["First Seen"]) == ("pod/p", "60s", "5m")
    assert (got["Message"], got["Source"], got["Count"]) == ("done", "default-scheduler", 3)


def test_a_deployment_says_how_far_it_is():
    got = cells(
        "Deployment",
        spec={"replicas": 3, "selector": {"matchLabels": {"app": "web"}},
              "template": {"spec": {"containers": [{"name": "a", "image": "i:1"}]}}},
        status={"readyReplicas": 2, "updatedReplicas": 3, "availableReplicas": 2},
    )  # fmt: skip
    assert (got["Ready"], got["Up-to-date"], got["Available"]) == ("2/3", 3, 2)
    assert (got["Containers"], got["Images"], got["Selector"]) == ("a", "i:1", "app=web")


def test_selectors_are_printed_with_their_expressions():
    selector = {
        "matchLabels": {"b": "2"},
        "matchExpressions": [
            {"key": "a", "operator": "In", "values": ["y", "x"]},
            {"key": "c", "operator": "DoesNotExist"},
        ],
    }
    assert format_selector(selector) == "a in (x,y),b=2,!c"
    assert format_selector(None) == "<none>"


@pytest.mark.parametrize(
    ("include", "keys"),
    [
        ("Metadata", {"kind", "apiVersion", "metadata"}),
        ("Object", {"metadata", "value"}),
        ("None", None),
    ],
)
def test_rows_carry_what_was_asked_for(include, keys):
    item = {"metadata": {"name": "x"}, "value": 7}
    row = tables.row(KINDS["PriorityClass"], item, now=NOW, include=include)
    assert (set(row["object"]) if "object" in row else None) == keys


def test_unreadable_times_are_unknown():
    item = {"metadata": {"name": "x", "creationTimestamp": "yesterday"}}
    assert tables.printer(KINDS["Namespace"]).cells(item, NOW)[2] == "<unknown>"
    assert parse_time("2026-01-02T12:00:00+01:00") == NOW - timedelta(hours=1)
