"""The cells that kubectl prints."""

from datetime import UTC, datetime, timedelta

import pytest

from api.forms import tables
from api.forms.cells import format_selector, human_duration, parse_time
from clusterstate.objects.registry.kinds import ALL_KINDS, KINDS

NOW = datetime(2026, 1, 2, 12, 0, tzinfo=UTC)
CREATED = "2026-01-02T11:55:00Z"


NOT_PRINTED = "Name,name|Created At:date"
TEMPLATE = "Containers*|Images*|Selector*"
BINDING = "Name,name|Role|Age|Users*|Groups*|ServiceAccounts*"
COLUMNS = {
    "CSIDriver": (
        "Name,name|AttachRequired:boolean|PodInfoOnMount:boolean|StorageCapacity:boolean"
        "|TokenRequests|RequiresRepublish:boolean|Modes|Age"
    ),
    "CSINode": "Name,name|Drivers:integer|Age",
    "CSIStorageCapacity": "Name,name|StorageClassName|Capacity",
    "CertificateSigningRequest": (
        "Name,name|Age|SignerName|Requestor|RequestedDuration|Condition"
    ),
    "ClusterRole": NOT_PRINTED,
    "ClusterRoleBinding": BINDING,
    "ConfigMap": "Name,name|Data|Age",
    "ControllerRevision": "Name,name|Controller|Revision|Age",
    "CronJob": (
        "Name,name|Schedule|Timezone|Suspend:boolean|Active:integer|Last Schedule|Age"
        f"|{TEMPLATE}"
    ),
    "DaemonSet": (
        "Name,name|Desired:integer|Current:integer|Ready:integer|Up-to-date:integer"
        f"|Available:integer|Node Selector|Age|{TEMPLATE}"
    ),
    "Deployment": f"Name,name|Ready|Up-to-date|Available|Age|{TEMPLATE}",
    "DeviceClass": "Name,name|Age",
    "EndpointSlice": "Name,name|AddressType|Ports|Endpoints|Age",
    "Endpoints": "Name,name|Endpoints|Age",
    "Event": (
        "Last Seen|Type|Reason|Object|Subobject*|Source*|Message|First Seen*|Count*|Name,name*"
    ),
    "FlowSchema": (
        "Name,name|PriorityLevel|MatchingPrecedence|DistinguisherMethod|Age|MissingPL"
    ),
    "HorizontalPodAutoscaler": "Name,name|Reference|Targets|MinPods|MaxPods|Replicas|Age",
    "IPAddress": "Name,name|ParentRef|Age",
    "Ingress": "Name,name|Class|Hosts|Address|Ports|Age",
    "IngressClass": "Name,name|Controller|Parameters|Age",
    "Job": f"Name,name|Status|Completions|Duration|Age|{TEMPLATE}",
    "Lease": "Name,name|Holder|Age",
    "LimitRange": NOT_PRINTED,
    "Namespace": "Name,name|Status|Age",
    "NetworkPolicy": "Name,name|Pod-Selector|Age",
    "Node": (
        "Name,name|Status|Roles|Age|Version|Internal-IP*|External-IP*|OS-Image*"
        "|Kernel-Version*|Container-Runtime*"
    ),
    "PersistentVolume": (
        "Name,name|Capacity|Access Modes|Reclaim Policy|Status|Claim|StorageClass"
        "|VolumeAttributesClass|Reason|Age|VolumeMode*"
    ),
    "PersistentVolumeClaim": (
        "Name,name|Status|Volume|Capacity|Access Modes|StorageClass|VolumeAttributesClass|Age"
        "|VolumeMode*"
    ),
    "Pod": (
        "Name,name|Ready|Status|Restarts|Age|IP*|Node*|Nominated Node*|Readiness Gates*"
    ),
    "PodDisruptionBudget": (
        "Name,name|Min Available|Max Unavailable|Allowed Disruptions:integer|Age"
    ),
    "PodTemplate": "Name,name|Containers|Images|Pod Labels",
    "PriorityClass": "Name,name|Value:integer|Global-Default:boolean|Age|PreemptionPolicy",
    "PriorityLevelConfiguration": (
        "Name,name|Type|NominalConcurrencyShares|Queues|HandSize|QueueLengthLimit|Age"
    ),
    "ReplicaSet": f"Name,name|Desired:integer|Current:integer|Ready:integer|Age|{TEMPLATE}",
    "ReplicationController": (
        f"Name,name|Desired:integer|Current:integer|Ready:integer|Age|{TEMPLATE}"
    ),
    "PodGroup": "Name,name|Policy|Min-Count:integer|Scheduled|Workload|Age",
    "ResourceClaim": "Name,name|State|Age",
    "ResourceClaimTemplate": "Name,name|Age",
    "ResourceQuota": "Name,name|Request|Limit|Age",
    "DeviceTaintRule": "Name,name|Age",
    "ResourceSlice": "Name,name|Node|Driver|Pool|Age",
    "Role": NOT_PRINTED,
    "RoleBinding": BINDING,
    "RuntimeClass": "Name,name|Handler|Age",
    "Secret": "Name,name|Type|Data|Age",
    "Service": "Name,name|Type|Cluster-IP|External-IP|Port(s)|Age|Selector*",
    "ServiceAccount": "Name,name|Secrets|Age",
    "ServiceCIDR": "Name,name|CIDRs|Age",
    "StatefulSet": "Name,name|Ready|Age|Containers*|Images*",
    "StorageClass": (
        "Name,name|Provisioner|ReclaimPolicy|VolumeBindingMode|AllowVolumeExpansion|Age"
    ),
    "VolumeAttachment": "Name,name|Attacher,name|PV|Node|Attached:boolean|Age",
    "VolumeAttributesClass": "Name,name|DriverName|Age",
    "Workload": "Name,name|Controller|Pod-Groups:integer|Age",
}  # fmt: skip
"""Of each kind: ``AddHandlers``, pkg/printers/internalversion/printers.go, v1.36.

Behind a column stand its type where it is no text, its format, and ``*`` where it is wide.
"""


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


@pytest.mark.parametrize("kind", ALL_KINDS, ids=lambda kind: kind.name)
def test_every_kind_has_the_columns_that_kubernetes_prints(kind):
    shown = "|".join(
        one.name
        + (f":{one.type}" if one.type != "string" else "")
        + (f",{one.format}" if one.format else "")
        + ("*" if one.priority else "")
        for one in tables.printer(kind).columns
    )
    assert shown == COLUMNS[kind.name]


def test_a_pending_pod_has_placeholders():
    got = cells("Pod", spec={"containers": [{"name": "c"}]}, status={"phase": "Pending"})
    assert got == {
        "Name": "x", "Ready": "0/1", "Status": "Pending", "Restarts": "0", "Age": "5m",
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
    assert (got["Ready"], got["Status"], got["Restarts"]) == ("1/2", "CrashLoopBackOff", "3")
    assert (got["IP"], got["Node"]) == ("10.0.0.1", "n1")


def test_a_pod_says_when_its_last_restart_was():
    """Of containers and sidecars; of init containers while they are what runs."""
    ended = {"lastState": {"terminated": {"exitCode": 1, "finishedAt": CREATED}}}
    later = {"lastState": {"terminated": {"finishedAt": "2026-01-02T11:58:00Z"}}}
    spec = {
        "containers": [{"name": "a"}, {"name": "b"}],
        "initContainers": [{"name": "i"}, {"name": "s", "restartPolicy": "Always"}],
    }
    running = {"restartCount": 1, "state": {"running": {}}}
    done = {"name": "i", "restartCount": 7, "state": {"terminated": {"exitCode": 0}}, **later}
    sidecar = {"name": "s", "started": True, **running}
    one, two = {"name": "a", **running, **ended}, {"name": "b", **running}
    for inits, containers, restarts in (
        ([done, sidecar], [one, two], "3 (5m ago)"),
        ([done, {**sidecar, **later}], [one, two], "3 (2m ago)"),
        ([done], [two], "1"),
        ([{**done, "state": {"running": {}}}], [one], "7 (2m ago)"),
        ([], [{**one, "restartCount": 0}], "0"),
    ):
        status = {"initContainerStatuses": inits, "containerStatuses": containers}
        assert cells("Pod", spec=spec, status=status)["Restarts"] == restarts


@pytest.mark.parametrize(
    ("phase", "message"),
    [
        ("Succeeded", "The pod has completed successfully."), ("Failed", "The pod failed."),
        ("Running", ""),
    ],
)  # fmt: skip
def test_the_row_of_a_pod_that_ended_says_so(phase, message):
    item = {"metadata": {"name": "x"}, "status": {"phase": phase}}
    row = tables.row(KINDS["Pod"], item, now=NOW)
    condition = {"type": "Completed", "status": "True", "reason": phase, "message": message}
    assert row.get("conditions") == ([condition] if message else None)


@pytest.mark.parametrize(
    ("spec", "status", "outside"),
    [
        ({}, {}, "<none>"),
        ({"type": "NodePort", "externalIPs": ["192.0.2.1", "192.0.2.2"]}, {},
         "192.0.2.1,192.0.2.2"),
        ({"type": "ExternalName", "externalName": "example.org"}, {}, "example.org"),
        ({"type": "LoadBalancer"}, {}, "<pending>"),
        ({"type": "LoadBalancer", "externalIPs": ["192.0.2.9"]}, {}, "192.0.2.9"),
        ({"type": "LoadBalancer", "externalIPs": ["192.0.2.9"]},
         {"loadBalancer": {"ingress": [{"hostname": "b.example"}, {"ip": "192.0.2.3"}]}},
         "192.0.2.3,b.example,192.0.2.9"),
    ],
)  # fmt: skip
def test_a_service_says_where_it_is_reached_from_outside(spec, status, outside):
    assert cells("Service", spec=spec, status=status)["External-IP"] == outside


def test_addresses_are_counted_and_written_with_their_ports():
    ips = [{"ip": f"192.0.2.{number}"} for number in range(1, 6)]
    for subsets, shown in (
        ([], "<none>"),
        ([{"ports": [{"port": 80}]}], ""),
        ([{"addresses": [{"ip": "2001:db8::1"}], "ports": [{"port": 80}]}], "[2001:db8::1]:80"),
        ([{"addresses": ips[:2]}], "192.0.2.1,192.0.2.2"),
        ([{"addresses": ips, "ports": [{"port": 80}]}],
         "192.0.2.1:80,192.0.2.2:80,192.0.2.3:80 + 2 more..."),
    ):  # fmt: skip
        assert cells("Endpoints", subsets=subsets)["Endpoints"] == shown
    ports = [{"port": 80, "name": "web"}, {"name": "named"}, {}, {"port": 1}]
    got = cells("EndpointSlice", ports=ports, endpoints=[])
    assert (got["Ports"], got["Endpoints"]) == ("80,named,* + 1 more...", "<unset>")


def test_an_ingress_counts_the_rules_that_it_does_not_show():
    rules = [{"host": "a"}, {}, {"host": "b"}, {"host": "c"}, {}]
    balancer = {"ingress": [{"ip": "192.0.2.2"}, {"ip": "192.0.2.1"}, {"ip": "192.0.2.2"}]}
    got = cells("Ingress", spec={"rules": rules}, status={"loadBalancer": balancer})
    assert (got["Hosts"], got["Address"]) == ("a,b,c + 2 more...", "192.0.2.1,192.0.2.2")
    assert cells("Ingress", spec={"rules": [{}]})["Hosts"] == "*"


def test_a_quota_says_what_is_used_of_it_and_limits_apart():
    hard = {"pods": "5", "limits.memory": "1Gi", "requests.cpu": "2", "limits.cpu": "4"}
    got = cells("ResourceQuota", status={"hard": hard, "used": {"pods": "1", "limits.cpu": "500m"}})
    assert got["Request"] == "pods: 1/5, requests.cpu: 0/2"
    assert got["Limit"] == "limits.cpu: 500m/4, limits.memory: 0/1Gi"


@pytest.mark.parametrize(
    ("metric", "current", "shown"),
    [
        ({"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 80}}},
         {}, "cpu: <unknown>/80%"),
        ({"type": "Resource", "resource": {"name": "cpu", "target": {"averageUtilization": 80}}},
         {"resource": {"current": {"averageUtilization": 9, "averageValue": "1"}}}, "cpu: 9%/80%"),
        ({"type": "Resource", "resource": {"name": "cpu", "target": {"averageValue": "100m"}}},
         {"resource": {"current": {"averageUtilization": 9, "averageValue": "1"}}}, "cpu: 1/100m"),
        ({"type": "ContainerResource", "containerResource": {"name": "cpu", "target": {}}},
         {}, "cpu: <unknown>/<auto>"),
        ({"type": "Pods", "pods": {"target": {"averageValue": "3"}}},
         {"pods": {"current": {"averageValue": "2"}}}, "2/3"),
        ({"type": "Object", "object": {"target": {"averageValue": "3"}}},
         {"object": {"current": {"value": "7"}}}, "<unknown>/3 (avg)"),
        ({"type": "External", "external": {"target": {"value": "3"}}},
         {"external": {"current": {"value": "7"}}}, "7/3"),
    ],
)  # fmt: skip
def test_an_autoscaler_says_what_its_metrics_are_and_should_be(metric, current, shown):
    spec, status = {"metrics": [metric]}, {"currentMetrics": [current]}
    assert cells("HorizontalPodAutoscaler", spec=spec, status=status)["Targets"] == shown
    many = cells("HorizontalPodAutoscaler", spec={"metrics": [metric] * 5}, status=status)
    assert many["Targets"].startswith(f"{shown}, ")
    assert many["Targets"].endswith(" + 3 more...")


def test_flow_schemas_stand_in_the_order_in_which_they_are_asked():
    places = {"late": 9000, "first": 1, "b": 50, "a": 50}
    items = [
        {"metadata": {"name": name}, "spec": {"matchingPrecedence": place}}
        for name, place in places.items()
    ]
    table = tables.table(KINDS["FlowSchema"], items, {}, now=NOW)
    assert [row["cells"][0] for row in table["rows"]] == ["first", "a", "b", "late"]


def test_of_classes_that_are_marked_the_one_that_counts_is_the_default():
    """``printIngressClass`` (v1.36) and storageclass/storage/storage.go (v1.37, #135964)."""

    def names(kind, mark):
        marks = {"annotations": {f"{mark}.kubernetes.io/is-default-class": "true"}}
        items = [
            {"metadata": {"name": "old", "creationTimestamp": "2026-01-01T00:00:00Z", **marks}},
            {"metadata": {"name": "new", "creationTimestamp": "2026-02-01T00:00:00Z", **marks}},
            {"metadata": {"name": "other", "creationTimestamp": "2026-03-01T00:00:00Z"}},
        ]
        table = tables.table(KINDS[kind], items, {}, now=NOW)
        return [row["cells"][0] for row in table["rows"]]

    assert names("StorageClass", "storageclass") == ["old", "new (default)", "other"]
    assert names("IngressClass", "ingressclass") == ["old (default)", "new (default)", "other"]
    beta = "volumeattributesclass.beta"
    assert names("VolumeAttributesClass", beta) == ["old (default)", "new (default)", "other"]


def test_rare_cells():
    former = {"annotations": {"volume.beta.kubernetes.io/storage-class": "old"}}
    for kind in ("PersistentVolume", "PersistentVolumeClaim"):
        got = cells(kind, metadata=former, spec={"storageClassName": "new", "volumeName": "v"})
        assert (got["StorageClass"], got["Capacity"]) == ("old", "0")
        assert cells(kind, spec={"storageClassName": "new"})["StorageClass"] == "new"
    assert cells("CSIStorageCapacity")["Capacity"] == "<unset>"
    parent = {"resource": "Gateways", "group": "example.org", "name": "g"}
    assert cells("IPAddress", spec={"parentRef": parent})["ParentRef"] == "gateways.example.org/g"
    assert cells("IPAddress")["ParentRef"] == "<none>"
    exempt = {"type": "Exempt", "exempt": {"nominalConcurrencyShares": 5}}
    assert cells("PriorityLevelConfiguration", spec=exempt)["NominalConcurrencyShares"] == "<none>"
    queuing = {"queues": 64, "handSize": 8, "queueLengthLimit": 50}
    limited = {"nominalConcurrencyShares": 5, "limitResponse": {"queuing": queuing}}
    got = cells("PriorityLevelConfiguration", spec={"type": "Limited", "limited": limited})
    assert (got["NominalConcurrencyShares"], got["Queues"], got["HandSize"]) == (5, 64, 8)
    reported = {"reportingComponent": "c", "reportingInstance": "i"}
    assert cells("Event", **reported)["Source"] == "c, i"
    assert cells("Event", **reported, source={"host": "h"})["Source"] == "c, h"


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
