"""`manage.py simulate` with what people have: charts, dumps of clusters, exports of a simulator."""

import contextlib
import json
from collections import Counter
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
import yaml
from django.core.management import call_command
from django.core.management.base import CommandError

from tests.builders import make_node, make_pod

LABELS = {"app": "web"}
CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
DATA = {"metadata": {"name": "data"}, "spec": CLAIM}


def simulate(*files: Path, **options: Any) -> tuple[list[dict[str, Any]], str]:
    """Return the results of the pods, and what was said beside them."""
    out, err = StringIO(), StringIO()
    call_command("simulate", *map(str, files), stdout=out, stderr=err, output="jsonl", **options)
    return [json.loads(line) for line in out.getvalue().splitlines()], err.getvalue()


def placed(results: list[dict[str, Any]]) -> dict[str, int]:
    """Return how many pods are on each node."""
    return dict(Counter(one["nodeName"] for one in results))


def workload(kind: str, name: str = "web", cpu: str = "1", **spec: Any) -> dict[str, Any]:
    containers = [{"name": "main", "image": "app", "resources": {"requests": {"cpu": cpu}}}]
    template = {"metadata": {"labels": LABELS}, "spec": {"containers": containers}}
    if kind == "CronJob":
        spec = {"schedule": "@daily", "jobTemplate": {"spec": {"template": template, **spec}}}
    elif kind == "ReplicationController":
        spec = {"selector": LABELS, "template": template, **spec}
    elif kind == "Job":
        spec = {"template": template, **spec}
    else:
        spec = {"selector": {"matchLabels": LABELS}, "template": template, **spec}
    return {"kind": kind, "metadata": {"name": name}, "spec": spec}


def write(path: Path, *objects: Any) -> Path:
    path.write_text(yaml.safe_dump_all(list(objects)))
    return path


@pytest.fixture
def nodes(tmp_path: Path) -> Path:
    made = [make_node(f"n{number}").offers(cpu="4").manifest for number in range(3)]
    made[2]["spec"] = {"taints": [{"key": "own", "effect": "NoSchedule"}]}
    return write(tmp_path / "nodes.yaml", *made)


@pytest.mark.parametrize(
    ("kind", "spec", "names"),
    [
        ("Deployment", {"replicas": 3}, ["web-0", "web-1", "web-2"]),
        ("Deployment", {}, ["web-0"]),
        ("Deployment", {"replicas": 0}, []),
        ("ReplicaSet", {"replicas": 2}, ["web-0", "web-1"]),
        ("ReplicationController", {"replicas": 2}, ["web-0", "web-1"]),
        ("StatefulSet", {"replicas": 2, "ordinals": {"start": 5}}, ["web-5", "web-6"]),
        ("DaemonSet", {}, ["web-0", "web-1"]),
        ("Job", {"parallelism": 3, "completions": 2}, ["web-0", "web-1"]),
        ("Job", {"parallelism": 2}, ["web-0", "web-1"]),
        ("CronJob", {}, ["web-0"]),
    ],
)
def test_pods_of_workloads_are_placed(tmp_path, nodes, kind, spec, names):
    results, _ = simulate(nodes, write(tmp_path / "w.yaml", workload(kind, **spec)))
    assert [one["pod"] for one in results] == [f"default/{name}" for name in names]
    assert {one["status"] for one in results} <= {"scheduled"}
    if kind == "DaemonSet":
        assert placed(results) == {"n0": 1, "n1": 1}, "n2 has a taint"


@pytest.mark.parametrize(
    ("made", "said"),
    [
        (workload("Job", completions=9, parallelism=2), "Job default/web: 2 of its 9 pods"),
        (workload("Job", suspend=True), "Job default/web: is suspended"),
        (
            workload("Job") | {"status": {"conditions": [{"type": "Complete", "status": "True"}]}},
            "Job default/web: has ended",
        ),
        (workload("CronJob"), "CronJob default/web: the pods of one run are placed"),
        (workload("DaemonSet"), "DaemonSet default/web: gets pods on 2 of 3 nodes"),
        (workload("StatefulSet", volumeClaimTemplates=[DATA]), "volumes data are taken to be on"),
    ],
)
def test_what_is_left_out_of_a_workload_is_said(tmp_path, nodes, made, said):
    pod = make_pod("other").manifest
    _, told = simulate(nodes, write(tmp_path / "w.yaml", made, pod))
    assert said in told


def storage_class(mode: str, **more: Any) -> dict[str, Any]:
    zones = [{"matchLabelExpressions": [{"key": "zone", "values": ["one"]}]}]
    metadata = {
        "name": "disks",
        "annotations": {"storageclass.kubernetes.io/is-default-class": "true"},
    }
    return {
        "apiVersion": "storage.k8s.io/v1", "kind": "StorageClass", "metadata": metadata,
        "provisioner": "csi.example.org", "volumeBindingMode": mode,
        **({"allowedTopologies": zones} if more.get("zoned") else {}),
    }  # fmt: skip


def with_volume(document: dict[str, Any], source: dict[str, Any]) -> dict[str, Any]:
    """Give a workload's containers a volume at a path."""
    spec = document["spec"]["template"]["spec"]
    spec["containers"][0]["volumeMounts"] = [{"name": "data", "mountPath": "/data"}]
    if source:
        spec["volumes"] = [{"name": "data", **source}]
    return document


EPHEMERAL = {"ephemeral": {"volumeClaimTemplate": {"spec": CLAIM}}}
NAMED = {"persistentVolumeClaim": {"claimName": "data"}}


@pytest.mark.parametrize("classes", [[], [storage_class("Immediate")]])
@pytest.mark.parametrize(
    "made",
    [
        with_volume(workload("StatefulSet", replicas=2, volumeClaimTemplates=[DATA]), {}),
        with_volume(workload("Deployment", replicas=2), EPHEMERAL),
    ],
    ids=["templates", "ephemeral"],
)
def test_volumes_that_nobody_here_would_bind_keep_no_pod_out(tmp_path, nodes, classes, made):
    results, told = simulate(nodes, write(tmp_path / "w.yaml", *classes, made))
    assert [one["status"] for one in results] == ["scheduled", "scheduled"]
    assert told.count("volumes data are taken to be on every node") == 1


@pytest.mark.parametrize(
    "made",
    [
        with_volume(workload("StatefulSet", replicas=2, volumeClaimTemplates=[DATA]), {}),
        with_volume(workload("Deployment", replicas=2), EPHEMERAL),
    ],
    ids=["templates", "ephemeral"],
)
def test_volumes_that_wait_for_the_first_consumer_have_a_say(tmp_path, made):
    hosts = [
        make_node(name).labelled({"zone": name}).offers(cpu="4").manifest for name in ("one", "two")
    ]
    there = storage_class("WaitForFirstConsumer", zoned=True)
    results, told = simulate(write(tmp_path / "w.yaml", *hosts, there, made))
    assert placed(results) == {"one": 2}
    assert "volumes" not in told


def test_a_claim_of_a_chart_that_says_nothing_of_storage_keeps_no_pod_out(tmp_path, nodes):
    claim = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", **DATA}
    deployment = with_volume(workload("Deployment"), NAMED)
    results, told = simulate(nodes, write(tmp_path / "w.yaml", claim, deployment))
    assert [one["status"] for one in results] == ["scheduled"]
    assert "volumes data are taken to be on" in told
    pending = write(tmp_path / "p.yaml", storage_class("Immediate"), claim, deployment)
    (waits,), _ = simulate(nodes, pending)
    assert "unbound immediate PersistentVolumeClaims" in waits["message"]


@pytest.mark.parametrize("spec", ["text", ["a"], {"volumes": ["a"]}, {"volumes": "a"}, 5])
@pytest.mark.parametrize("kind", ["Pod", "StatefulSet", "Deployment"])
def test_a_spec_that_is_none_is_told_in_a_sentence(tmp_path, nodes, kind, spec):
    template = {"spec": spec} if kind != "Pod" else spec
    body = {"template": template, "volumeClaimTemplates": [5]} if kind != "Pod" else spec
    made = {"apiVersion": "v1", "kind": kind, "metadata": {"name": "x"}, "spec": body}
    results: list[dict[str, Any]] = []
    with contextlib.suppress(CommandError):  # a sentence, and no traceback
        results, _ = simulate(nodes, write(tmp_path / "w.yaml", made))
    assert {one["status"] for one in results} <= {"invalid"}


def test_a_node_that_is_given_twice_has_one_daemon(tmp_path, nodes):
    results, told = simulate(nodes, nodes, write(tmp_path / "w.yaml", workload("DaemonSet")))
    assert [one["status"] for one in results] == ["scheduled", "scheduled"]
    assert "Node n0: is given 2 times" in told


def test_pods_of_a_job_have_its_name_among_their_labels(tmp_path, nodes):
    apart = {"labelSelector": {"matchLabels": {"job-name": "web"}}, "topologyKey": "host"}
    rule = {"requiredDuringSchedulingIgnoredDuringExecution": [apart]}
    job = workload("Job", parallelism=2)
    job["spec"]["template"]["spec"]["affinity"] = {"podAntiAffinity": rule}
    hosts = [make_node(name).labelled(host=name).offers(cpu="9").manifest for name in ("a", "b")]
    results, _ = simulate(write(tmp_path / "w.yaml", *hosts, job))
    assert placed(results) == {"a": 1, "b": 1}


def test_a_dump_has_the_pods_of_its_workloads_already(tmp_path, nodes):
    deployment = workload("Deployment", replicas=3)
    owner = {"kind": "Deployment", "name": "web", "uid": "d", "controller": True}
    of_hash = workload("ReplicaSet", name="web-abc", replicas=3)
    of_hash["metadata"] |= {"uid": "r", "ownerReferences": [owner]}
    there = [
        make_pod(name).labelled(**LABELS).asks(cpu="1").on("n0").manifest
        for name in ("web-abc-1", "web-abc-2")
    ]
    daemon = workload("DaemonSet", name="agent", cpu="100m")
    daemon["spec"]["selector"] = {"matchLabels": {"app": "agent"}}
    daemon["spec"]["template"]["metadata"]["labels"] = {"app": "agent"}
    agent = make_pod("agent-x").labelled(app="agent").on("n1").manifest
    dump = write(tmp_path / "dump.yaml", deployment, of_hash, *there, daemon, agent)
    results, _ = simulate(nodes, dump)
    assert sorted(one["pod"] for one in results) == ["default/agent-0", "default/web-abc-0"]
    assert {one["pod"]: one["nodeName"] for one in results}["default/agent-0"] == "n0"


def test_replicas_spread_by_the_rules_of_their_own_set(tmp_path, nodes):
    """The default constraints look for the ReplicaSet that a Deployment would make."""
    hosts = [make_node(f"m{n}").labelled({"kubernetes.io/hostname": f"m{n}"}) for n in range(4)]
    world = write(tmp_path / "hosts.yaml", *[one.offers(cpu="16").manifest for one in hosts])
    deployment = write(tmp_path / "w.yaml", workload("Deployment", replicas=4, cpu="10m"))
    results, _ = simulate(world, deployment)
    assert placed(results) == {"m0": 1, "m1": 1, "m2": 1, "m3": 1}


def test_folders_and_several_files_are_one_world(tmp_path, nodes):
    folder = tmp_path / "chart" / "templates"
    folder.mkdir(parents=True)
    write(folder / "web.yml", workload("Deployment", replicas=2))
    (folder / "pod.json").write_text(json.dumps(make_pod("alone").manifest))
    (folder / "NOTES.txt").write_text("{{ not yaml")
    results, _ = simulate(nodes, tmp_path / "chart")
    assert sorted(one["pod"] for one in results) == [
        "default/alone", "default/web-0", "default/web-1",
    ]  # fmt: skip
    empty = tmp_path / "empty"
    empty.mkdir()
    with pytest.raises(CommandError, match=r"empty: the folder holds no \.yaml"):
        simulate(nodes, empty)


def bare(manifest: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in manifest.items() if key not in ("kind", "apiVersion")}


def test_an_export_of_kube_scheduler_simulator_is_read(tmp_path):
    high = make_pod("high").asks(cpu="3").with_("spec", "priorityClassName", value="high")
    export = {
        "pods": [
            bare(make_pod("there").asks(cpu="3").on("n0").manifest),
            bare(high.manifest),
        ],
        "nodes": [bare(make_node("n0").offers(cpu="4").manifest)],
        "pvs": None,
        "pvcs": [],
        "storageClasses": [],
        "priorityClasses": [{"metadata": {"name": "high"}, "value": 100}],
        "namespaces": [{"metadata": {"name": "default"}}],
        "schedulerConfig": {"profiles": [{"schedulerName": "default-scheduler"}]},
    }
    file = tmp_path / "export.json"
    file.write_text(json.dumps(export))
    (result,), said = simulate(file)
    assert (result["pod"], result["status"], result["nodeName"]) == (
        "default/high", "scheduled", "n0",
    )  # fmt: skip
    assert result["preemption"]["victims"] == ["default/there"]
    assert said == ""


def test_lists_and_objects_need_not_say_their_kinds(tmp_path):
    node, pod = bare(make_node("n0").manifest), bare(make_pod("p").manifest)
    unknown = {"metadata": {"name": "what"}, "spec": {"colour": "red"}}
    for whole in ({"items": [node, pod, unknown]}, [node, pod, unknown]):
        file = tmp_path / "list.json"
        file.write_text(json.dumps(whole))
        (result,), said = simulate(file)
        assert (result["pod"], result["nodeName"]) == ("default/p", "n0")
        assert "1 without a kind" in said


def test_a_node_is_not_refused_for_what_does_not_matter_to_placement(tmp_path):
    node = make_node("n0").manifest
    node["metadata"]["managedFields"] = "cut"
    node["spec"] = {"externalID": 7, "podCIDR": "nonsense", "podCIDRs": [1], "taints": []}
    node["status"] |= {
        "conditions": [{"type": "Ready", "lastHeartbeatTime": "yesterday"}],
        "addresses": [{"type": "InternalIP", "address": "not an address"}],
        "nodeInfo": {"machineID": 5},
    }
    file = tmp_path / "node.json"
    file.write_text(json.dumps([node, make_pod("p").manifest]))
    (result,), _ = simulate(file)
    assert result["nodeName"] == "n0"
    node["status"]["allocatable"] = {"cpu": "much"}
    file.write_text(json.dumps([node, make_pod("p").manifest]))
    with pytest.raises(CommandError, match=r"status\.allocatable"):
        simulate(file)


def test_workloads_of_a_scenario_have_their_pods(tmp_path, nodes):
    scenario = {
        "kind": "Scenario",
        "metadata": {"name": "s"},
        "spec": {"until": "10m", "objects": [workload("StatefulSet", name="db", replicas=2)]},
    }
    web = write(tmp_path / "web.yaml", workload("Deployment", replicas=2))
    lines, _ = simulate(nodes, web, write(tmp_path / "s.yaml", scenario), quiet=True)
    pods = {one["pod"] for one in lines if one["type"] == "pod"}
    assert pods == {"default/web-0", "default/web-1", "default/db-0", "default/db-1"}
