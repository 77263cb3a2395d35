"""The chain as a whole: order, purity, errors, namespaces."""

import copy

import pytest

from clusterstate.admission import CREATE, DELETE, UPDATE, admit
from clusterstate.admission.warnings import warnings_for
from clusterstate.objects.values.compatibility import Compatibility
from clusterstate.objects.values.errors import Forbidden, Invalid, NotFound
from tests.admission.context import NOBODY, Known, create, pod


def test_the_given_manifest_is_not_changed():
    manifest = pod({"tolerations": [{"key": "a", "operator": "Exists"}]}, labels={"a": "b"})
    before = copy.deepcopy(manifest)
    create(manifest)
    assert manifest == before


def test_two_equal_specs_do_not_share_what_is_stored():
    one, other = create(pod()).manifest, create(pod(name="other")).manifest
    one["spec"]["containers"][0]["image"] = "changed"
    assert other["spec"]["containers"][0]["image"] == "nginx:1.25"
    assert create(pod()).manifest["spec"]["containers"][0]["image"] == "nginx:1.25"


def test_nulls_of_go_clients_are_absent():
    manifest = pod({"tolerations": None, "nodeSelector": None}, creationTimestamp=None)
    admitted = create(manifest).manifest
    assert "nodeSelector" not in admitted["spec"]
    assert "creationTimestamp" not in admitted["metadata"]


def test_unknown_fields_survive():
    admitted = create(pod({"fromTheFuture": {"a": 1}})).manifest
    assert admitted["spec"]["fromTheFuture"] == {"a": 1}


def test_all_errors_are_told_at_once():
    manifest = pod(
        {
            "containers": [{"name": "Not A Name", "image": ""}],
            "tolerations": [{"operator": "Sometimes", "key": "k"}],
        },
        name="No_Name",
    )
    with pytest.raises(Invalid) as refused:
        create(manifest)
    assert refused.value.code == 422
    assert [error.field for error in refused.value.errors] == [
        "metadata.name",
        "spec.containers[0].name",
        "spec.containers[0].image",
        "spec.tolerations[0].operator",
    ]


@pytest.mark.parametrize("again", [1, 2])
def test_a_wrong_spec_stays_wrong_when_it_comes_again(again):
    with pytest.raises(Invalid):
        create(pod({"containers": []}, name=f"web-{again}"))


def test_a_negative_quantity_is_refused():
    resources = {"requests": {"cpu": "-1"}}
    with pytest.raises(Invalid) as refused:
        create(pod({"containers": [{"name": "a", "image": "b", "resources": resources}]}))
    assert [(e.field, e.detail) for e in refused.value.errors] == [
        ("spec.containers[0].resources.requests[cpu]", "must be greater than or equal to 0")
    ]


def test_a_pod_for_a_missing_namespace_is_not_found():
    with pytest.raises(NotFound, match='namespaces "default" not found') as refused:
        create(pod(), Known(namespaces={"default": None}))
    assert refused.value.code == 404


def test_a_terminating_namespace_takes_no_new_content():
    going = {"metadata": {"name": "default"}, "status": {"phase": "Terminating"}}
    with pytest.raises(Forbidden, match="because it is being terminated") as refused:
        create(pod(), Known(namespaces={"default": going}))
    assert refused.value.details["causes"][0]["reason"] == "NamespaceTerminating"


@pytest.mark.parametrize("name", ["default", "kube-system", "kube-public"])
def test_the_namespaces_of_the_system_stay(name):
    namespace = {"metadata": {"name": name}}
    with pytest.raises(Forbidden, match="this namespace may not be deleted"):
        admit("Namespace", DELETE, None, namespace, "", Known(), NOBODY)


def test_an_update_keeps_the_priority_that_the_client_does_not_know():
    stored = create(pod()).manifest
    stored["metadata"]["resourceVersion"] = "1"
    changed = copy.deepcopy(stored)
    del changed["spec"]["priority"], changed["spec"]["preemptionPolicy"]
    changed["metadata"]["labels"] = {"new": "label"}
    admitted = admit("Pod", UPDATE, changed, stored, "", Known(), NOBODY).manifest
    assert admitted["spec"]["priority"] == 0
    assert admitted["metadata"]["labels"] == {"new": "label"}


def test_a_pod_may_not_move_by_update():
    stored = create(pod()).manifest
    stored["metadata"]["resourceVersion"] = "1"
    changed = copy.deepcopy(stored)
    changed["spec"]["nodeName"] = "elsewhere"
    with pytest.raises(Invalid) as refused:
        admit("Pod", UPDATE, changed, stored, "", Known(), NOBODY)
    (error,) = refused.value.errors
    assert error.field == "spec"
    assert '- "NodeName": "",\n+ "NodeName": "elsewhere",' in error.detail


def test_a_binding_must_name_a_node():
    binding = {"metadata": {"name": "web", "namespace": "default"}, "target": {"kind": "Node"}}
    with pytest.raises(Invalid) as refused:
        admit("Pod", CREATE, binding, None, "binding", Known(), NOBODY)
    assert [error.field for error in refused.value.errors] == ["target.name"]


def test_match_label_keys_become_part_of_the_selector():
    term = {
        "topologyKey": "zone",
        "labelSelector": {"matchLabels": {"app": "web"}},
        "matchLabelKeys": ["pod-template-hash"],
        "mismatchLabelKeys": ["tenant"],
    }
    affinity = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    labels = {"app": "web", "pod-template-hash": "abc", "tenant": "t1"}
    admitted = create(pod({"affinity": affinity}, labels=labels)).manifest
    (merged,) = admitted["spec"]["affinity"]["podAntiAffinity"][
        "requiredDuringSchedulingIgnoredDuringExecution"
    ]
    assert merged["labelSelector"]["matchExpressions"] == [
        {"key": "pod-template-hash", "operator": "In", "values": ["abc"]},
        {"key": "tenant", "operator": "NotIn", "values": ["t1"]},
    ]


def test_deprecated_labels_are_warned_of():
    warnings = create(pod({"nodeSelector": {"beta.kubernetes.io/os": "linux"}})).warnings
    (warning,) = warnings
    assert warning.startswith("spec.nodeSelector[beta.kubernetes.io/os]: deprecated since v1.14")


REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
PREFERRED = "preferredDuringSchedulingIgnoredDuringExecution"


@pytest.mark.parametrize(
    ("rule", "operator", "value", "said"),
    [
        (REQUIRED, "Gt", "abc", "must be an integer; no node matches this term"),
        (REQUIRED, "Lt", "9" * 19, "must be an integer; no node matches this term"),
        (REQUIRED, "Gt", "010", ""),
        (PREFERRED, "Gt", "1.5", "must be an integer; scheduling this pod fails"),
        (PREFERRED, "In", "b c", "scheduling this pod fails at this term"),
        (PREFERRED, "Lt", "7", ""),
    ],
)
def test_a_term_that_the_scheduler_cannot_read_is_warned_of(rule, operator, value, said):
    """R14, R78: Kubernetes takes these, too, and says nothing."""
    term = {"matchExpressions": [{"key": "k", "operator": operator, "values": [value]}]}
    written = (
        [{"weight": 1, "preference": term}]
        if rule == PREFERRED
        else {"nodeSelectorTerms": [{"matchExpressions": []}, term]}
    )
    warnings = create(pod({"affinity": {"nodeAffinity": {rule: written}}})).warnings
    assert [said in one and "matchExpressions[0].values[0]" in one for one in warnings] == (
        [True] if said else []
    )


def test_milli_bytes_are_warned_of():
    resources = {"requests": {"memory": "128m"}}
    containers = [{"name": "a", "image": "b", "resources": resources}]
    (warning,) = create(pod({"containers": containers})).warnings
    assert 'fractional byte value "128m" is invalid' in warning


def test_what_was_stored_without_a_default_of_today_is_judged_with_it():
    """A template that may not change was stored before the other name of its account was."""
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {
            "containers": [{"name": "c", "image": "i"}], "restartPolicy": "Never",
            "serviceAccountName": "worker",
        },
    }  # fmt: skip
    job = {
        "metadata": {"name": "j", "namespace": "ns", "uid": "u", "resourceVersion": "1"},
        "spec": {
            "manualSelector": True, "selector": {"matchLabels": {"a": "b"}}, "template": template,
        },
    }  # fmt: skip
    stored = admit("Job", CREATE, job, None, "", Known(), NOBODY).manifest
    assert stored["spec"]["template"]["spec"].pop("serviceAccount") == "worker"
    changed = {**stored, "spec": {**stored["spec"], "suspend": True}}
    admitted = admit("Job", UPDATE, changed, stored, "", Known(), NOBODY).manifest
    assert admitted["spec"]["template"]["spec"]["serviceAccount"] == "worker"
    other = copy.deepcopy(changed)
    other["spec"]["template"]["spec"]["serviceAccountName"] = "other"
    with pytest.raises(Invalid):
        admit("Job", UPDATE, other, stored, "", Known(), NOBODY)


def test_who_asks_for_the_group_of_a_job_is_told_where_there_is_none():
    container = {"name": "main", "image": "busybox"}
    template = {"spec": {"containers": [container], "restartPolicy": "Never"}}
    job = {"spec": {"template": template, "scheduling": {"schedulingPolicy": {"gang": {}}}}}
    cron_job = {
        "apiVersion": "batch/v1",
        "kind": "CronJob",
        "metadata": {"name": "j", "namespace": "default"},
        "spec": {"schedule": "* * * * *", "jobTemplate": job},
    }
    old = Compatibility.V1_36
    why = 'has no effect: with compatibility "1.36", no PodGroup is made for Jobs'
    assert create(cron_job, kind="CronJob").warnings == []
    told = create(cron_job, Known(compatibility=old), kind="CronJob").warnings
    assert told == [f"spec.jobTemplate.spec.scheduling {why}"]
    assert warnings_for("Job", job, None, compatibility=old) == [f"spec.scheduling {why}"]
    template["spec"]["schedulingGroup"] = {"podGroupName": "mine"}
    (told_once,) = warnings_for("Job", job, None)
    assert told_once.endswith("the template's pods name a PodGroup already (schedulingGroup)")


def test_the_template_of_a_cron_job_is_warned_of_as_that_of_a_job_is():
    limits = {"limits": {"memory": "128m"}}
    pod = {"containers": [{"name": "main", "image": "busybox", "resources": limits}]}
    marks = {"annotations": {"hollow.stowage.dev/exit-cod": "1"}}
    job = {"metadata": marks, "spec": {"template": {"metadata": marks, "spec": pod}}}
    told = warnings_for("CronJob", {"spec": {"schedule": "@daily", "jobTemplate": job}}, None)
    assert [one.partition(": ")[0] for one in told] == [
        "spec.jobTemplate.metadata.annotations[hollow.stowage.dev/exit-cod]",
        "spec.jobTemplate.spec.template.spec.containers[0].resources.limits[memory]",
        "spec.jobTemplate.spec.template.metadata.annotations[hollow.stowage.dev/exit-cod]",
    ]


@pytest.mark.parametrize(
    ("kind", "name", "text", "told"),
    [
        ("Pod", "hollow.stowage.dev/run-second", "5", "has no effect on a"),
        ("Pod", "hollow.stowage.dev/run-seconds", "soon", "is not a number"),
        ("Pod", "hollow.stowage.dev/exit-code", "-1", "is not a number"),
        ("Pod", "stowage.dev/lost-work", "soon", "has no effect on a"),
        ("Job", "stowage.dev/preferred-topology", "rack", "has no effect on a"),
        ("Pod", "hollow.stowage.dev/run-seconds", "5", ""),
        ("Pod", "hollow.stowage.dev/ready", "false", ""),
        ("PodGroup", "stowage.dev/preferred-topology", "rack", ""),
        ("PodGroup", "stowage.dev/lost-work", "600", ""),
        ("PodDisruptionBudget", "stowage.dev/disruption-unit", "PodGroup", ""),
        ("Namespace", "scheduling.stowage.dev/dedicated", "team-a", ""),
        ("Namespace", "admission.stowage.dev/limit-pod-hard-anti-affinity-topology", "true", ""),
        ("Pod", "notstowage.dev/anything", "5", ""),
    ],
)
def test_an_annotation_of_ours_without_effect_is_told_by_its_name(kind, name, text, told):
    manifest = {"metadata": {"annotations": {name: text}}, "spec": {}}
    before = {"metadata": {}, "spec": {}}
    for old in (None, before):
        found = [one for one in warnings_for(kind, manifest, old) if f"annotations[{name}]" in one]
        assert len(found) == bool(told)
        assert all(told in one for one in found)
    assert not any(name in one for one in warnings_for(kind, manifest, manifest))
    template = {"metadata": {}, "spec": {"template": manifest}}
    found = warnings_for("ReplicaSet", template, None)
    if kind == "Pod" and told:
        assert any(one.startswith(f"spec.template.metadata.annotations[{name}]") for one in found)
