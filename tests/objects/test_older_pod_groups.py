"""PodGroups and Workloads of older versions, and what becomes of their fields."""

import pytest

from clusterstate.admission.validation.workloads.pod_groups import Rules, validate_pod_group
from clusterstate.objects.registry.older_pod_groups import shown, stored, with_unknown_fields

RULES_1_36 = Rules(of_1_36=True)
POLICY = {"schedulingPolicy": {"gang": {"minCount": 3}}}
SCHEDULED = {"type": "PodGroupScheduled", "status": "True"}
OLD = {
    "apiVersion": "scheduling.k8s.io/v1alpha2",
    "kind": "PodGroup",
    "spec": {
        **POLICY,
        "podGroupTemplateRef": {"workload": {"workloadName": "w", "podGroupTemplateName": "t"}},
        "disruptionMode": "PodGroup",
    },
    "status": {"conditions": [SCHEDULED, {"type": "Other"}]},
}
NEW = {
    "apiVersion": "scheduling.k8s.io/v1beta1",
    "kind": "PodGroup",
    "spec": {
        **POLICY,
        "workloadRef": {"workloadName": "w", "templateName": "t"},
        "disruptionMode": {"all": {}},
    },
    "status": {
        "conditions": [{"type": "PodGroupInitiallyScheduled", "status": "True"}, {"type": "Other"}]
    },
}
WORKLOAD_OLD = {
    "apiVersion": "scheduling.k8s.io/v1alpha2",
    "spec": {"podGroupTemplates": [{"name": "t", **POLICY, "disruptionMode": "Pod"}]},
}
WORKLOAD_NEW = {
    "apiVersion": "scheduling.k8s.io/v1beta1",
    "spec": {"podGroupTemplates": [{"name": "t", **POLICY, "disruptionMode": {"single": {}}}]},
}


@pytest.mark.parametrize(("old", "new"), [(OLD, NEW), (WORKLOAD_OLD, WORKLOAD_NEW)])
def test_v1alpha2_is_stored_as_v1beta1_and_shown_as_it_came(old, new):
    assert stored(old, "v1alpha2") == new
    assert shown(new, "v1alpha2") == old
    version = old["apiVersion"]
    items = {"apiVersion": version, "items": [old, old]}
    assert shown(stored(items, "v1alpha2"), "v1alpha2") == items


def test_a_template_that_is_not_named_is_one_error_and_one_without_names_two():
    """The union ``PodGroupTemplateReference`` of scheduling/v1alpha2/types.go, v1.36."""

    def told(reference):
        spec = {**POLICY, "podGroupTemplateRef": reference}
        group = stored({"spec": spec}, "v1alpha2")
        return {one.field: one.detail for one in validate_pod_group(group, None, RULES_1_36)}

    at = "spec.workloadRef"
    assert told({}) == {at: "must specify one of: `workload`"}
    assert told({"workload": {}}) == {f"{at}.workloadName": "", f"{at}.templateName": ""}


def test_v1alpha3_has_the_same_fields():
    older = {**NEW, "apiVersion": "scheduling.k8s.io/v1alpha3"}
    assert stored(older, "v1alpha3") == NEW
    assert shown(NEW, "v1alpha3") == older


def test_what_v1alpha2_does_not_know_stays_when_it_changes_an_object():
    more = {**NEW, "spec": {**NEW["spec"], "preemptionPolicy": "Never"}}
    known = shown(more, "v1alpha2")
    assert "preemptionPolicy" not in known["spec"]
    assert with_unknown_fields(stored(known, "v1alpha2"), more) == more
    (template,) = WORKLOAD_NEW["spec"]["podGroupTemplates"]
    workload = {"spec": {"podGroupTemplates": [{**template, "preemptionPolicy": "Never"}]}}
    assert with_unknown_fields(WORKLOAD_NEW, workload)["spec"] == workload["spec"]


@pytest.mark.parametrize("mode", ["Other", {"single": {}}, 3])
def test_an_unknown_disruption_mode_stays_for_validation_to_refuse(mode):
    group = {"spec": {"disruptionMode": mode}}
    assert stored(group, "v1alpha2")["spec"]["disruptionMode"] == mode


@pytest.mark.parametrize("value", [None, 3, [], {"spec": 3}, {"status": {"conditions": 3}}])
def test_what_is_no_object_stays_as_it_is(value):
    found = stored(value, "v1alpha2")
    if isinstance(value, dict):
        found.pop("apiVersion")
    assert found == value
