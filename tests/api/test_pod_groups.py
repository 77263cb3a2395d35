"""PodGroups over the API: their versions, their priority, their finalizer."""

from typing import Any

from scheduling.controllers import garbage
from tests.api.conftest import Api
from tests.builders import make_pod
from tests.clock import NOW

GROUPS = "/apis/scheduling.k8s.io/{}/namespaces/ns/podgroups"
BETA = GROUPS.format("v1beta1")
OLDER = GROUPS.format("v1alpha2")
POD = "/api/v1/namespaces/ns/pods"
PROTECTION = "scheduling.k8s.io/podgroup-protection"


def group(name: str = "g", **spec: Any) -> dict[str, Any]:
    return {
        "metadata": {"name": name},
        "spec": {"schedulingPolicy": {"gang": {"minCount": 2}}, **spec},
    }


def test_a_group_has_the_priority_of_its_class_and_defaults(api: Api) -> None:
    api.post(
        "/apis/scheduling.k8s.io/v1/priorityclasses",
        {"metadata": {"name": "high"}, "value": 7, "preemptionPolicy": "Never"},
    ).ok(201)
    made = api.post(BETA, group(priorityClassName="high")).ok(201)
    spec = made["spec"]
    assert (spec["priority"], spec["preemptionPolicy"]) == (7, "Never")
    assert spec["disruptionMode"] == {"single": {}}
    assert made["metadata"]["finalizers"] == [PROTECTION]
    wrong = group("h", priorityClassName="high", priority=8)
    assert "pod group spec" in api.post(BETA, wrong).fails(403, "Forbidden")["message"]
    missing = group("h", priorityClassName="missing")
    api.post(BETA, missing).fails(403, "Forbidden")


def test_each_version_reads_and_writes_the_same_group(api: Api) -> None:
    reference = {"workload": {"workloadName": "w", "podGroupTemplateName": "t"}}
    sent = group(podGroupTemplateRef=reference, disruptionMode="PodGroup")
    old = api.post(OLDER, sent).ok(201)
    assert old["apiVersion"] == "scheduling.k8s.io/v1alpha2"
    assert old["spec"]["podGroupTemplateRef"] == reference
    new = api.get(f"{BETA}/g").ok()
    assert new["apiVersion"] == "scheduling.k8s.io/v1beta1"
    assert new["spec"]["workloadRef"] == {"workloadName": "w", "templateName": "t"}
    assert new["spec"]["disruptionMode"] == {"all": {}}
    alpha = api.get(f"{GROUPS.format('v1alpha3')}/g").ok()
    assert alpha == {**new, "apiVersion": "scheduling.k8s.io/v1alpha3"}
    condition = {
        "type": "PodGroupScheduled", "status": "True", "reason": "Scheduled", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }  # fmt: skip
    api.patch(f"{OLDER}/g/status", {"status": {"conditions": [condition]}}).ok()
    (told,) = api.get(f"{BETA}/g").ok()["status"]["conditions"]
    assert told["type"] == "PodGroupInitiallyScheduled"
    (item,) = api.get(OLDER).ok()["items"]
    assert item["status"]["conditions"][0]["type"] == "PodGroupScheduled"
    refused = api.post(OLDER, group("h", disruptionMode="Other"))
    refused.fails(400, "BadRequest")


def test_the_size_of_a_gang_may_change_and_nothing_else_of_its_policy(api: Api) -> None:
    api.post(BETA, group()).ok(201)
    larger = {"spec": {"schedulingPolicy": {"gang": {"minCount": 5}}}}
    assert api.patch(f"{BETA}/g", larger).ok()["spec"]["schedulingPolicy"] == {
        "gang": {"minCount": 5}
    }
    none = {"spec": {"schedulingPolicy": {"gang": {"minCount": 0}}}}
    api.patch(f"{BETA}/g", none).fails(422, "Invalid")


def test_a_group_stays_while_it_has_unfinished_pods(api: Api) -> None:
    api.post(BETA, group()).ok(201)
    pod = make_pod("p").manifest
    pod["metadata"]["namespace"] = "ns"
    pod["spec"]["schedulingGroup"] = {"podGroupName": "g"}
    api.post(POD, pod).ok(201)
    api.delete(f"{BETA}/g").ok()
    garbage.follow(NOW)
    assert api.get(f"{BETA}/g").ok()["metadata"]["deletionTimestamp"]
    api.patch(f"{POD}/p/status", {"status": {"phase": "Succeeded"}}).ok()
    garbage.follow(NOW)
    api.get(f"{BETA}/g").fails(404, "NotFound")


def test_the_levels_that_a_group_prefers_are_labels_each_once(api: Api) -> None:
    key = "stowage.dev/preferred-topology"
    for number, text in enumerate(("", "a,a", "a/b/c", ",".join("abcdefghi"))):
        wrong = group(f"w{number}")
        wrong["metadata"]["annotations"] = {key: text}
        told = api.post(BETA, wrong).fails(422, "Invalid")
        assert told["details"]["causes"][0]["field"] == f"metadata.annotations[{key}]"
    right = group()
    right["metadata"]["annotations"] = {key: "topology.kubernetes.io/block, kubernetes.io/hostname"}
    api.post(BETA, right).ok(201)


def test_lost_work_is_a_number_of_seconds(api: Api) -> None:
    key = "stowage.dev/lost-work"
    for number, text in enumerate(("", "ten", "-1", "nan", "inf", "2e9")):
        wrong = group(f"w{number}")
        wrong["metadata"]["annotations"] = {key: text}
        told = api.post(BETA, wrong).fails(422, "Invalid")
        assert told["details"]["causes"][0]["field"] == f"metadata.annotations[{key}]"
    right = group()
    right["metadata"]["annotations"] = {key: "600"}
    api.post(BETA, right).ok(201)
