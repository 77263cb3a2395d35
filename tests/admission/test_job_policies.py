"""What is wrong with a Job's policies, in Kubernetes' words."""

import pytest

from clusterstate.admission.validation.workloads.job_policies import validate_policies

TEMPLATE = {"spec": {"restartPolicy": "Never", "containers": [{"name": "main"}]}}
INDEXED = {"completionMode": "Indexed", "completions": 5}


def rule(**fields):
    return {"podFailurePolicy": {"rules": [{"action": "Ignore", **fields}]}}


def codes(*values, operator="In", **fields):
    return {"onExitCodes": {"operator": operator, "values": list(values), **fields}}


def success(**fields):
    return {**INDEXED, "successPolicy": {"rules": [fields]}}


FINE = [
    rule(**codes(1, 2, 42)),
    rule(**codes(0, operator="NotIn", containerName="main")),
    rule(onPodConditions=[{"type": "DisruptionTarget", "status": "True"}]),
    {**rule(**codes(1)), **INDEXED, "backoffLimitPerIndex": 1, "maxFailedIndexes": 5},
    success(succeededIndexes="0,2-4", succeededCount=3),
]


@pytest.mark.parametrize("spec", FINE)
def test_what_kubernetes_takes_is_taken(spec):
    assert validate_policies({"template": TEMPLATE, **spec}, "spec") == []


WRONG = [
    (rule(), "rules[0]", "specifying one of OnExitCodes and OnPodConditions is required"),
    (
        rule(**codes(1), onPodConditions=[{"type": "A", "status": "True"}]),
        "rules[0]", "specifying both OnExitCodes and OnPodConditions is not supported",
    ),
    (rule(**codes(0)), "values[0]", "must not be 0 for the In operator"),
    (rule(**codes(2, 1)), "values", "must be ordered"),
    (rule(**codes(1, 1)), "values[1]", ""),
    (rule(**codes()), "values", "at least one value is required"),
    (rule(**codes(1, operator="Is")), "operator", 'supported values: "In", "NotIn"'),
    (
        rule(**codes(1, containerName="other")), "containerName",
        "must be one of the container or initContainer names in the pod template",
    ),
    (
        rule(**codes(1), action="FailIndex"), "action",
        "requires the backoffLimitPerIndex to be set",
    ),
    ({"maxFailedIndexes": 1}, "backoffLimitPerIndex", "when maxFailedIndexes is specified"),
    (
        {**INDEXED, "backoffLimitPerIndex": 1, "maxFailedIndexes": 6}, "maxFailedIndexes",
        "must be less than or equal to completions",
    ),
    (
        {"successPolicy": {"rules": [{"succeededCount": 1}]}}, "successPolicy",
        "requires indexed completion mode",
    ),
    (
        {**INDEXED, "successPolicy": {}}, "rules",
        "at least one rules must be specified in the successPolicy",
    ),
    (
        success(), "rules[0]",
        "at least one of succeededCount or succeededIndexes must be specified",
    ),
    (
        success(succeededCount=6), "succeededCount",
        "must be less than or equal to 5 (the number of specified completions)",
    ),
    (
        success(succeededIndexes="1,1"), "succeededIndexes",
        "error parsing succeededIndexes: non-increasing order, previous: 1, current: 1",
    ),
    (
        success(succeededIndexes="1-9"), "succeededIndexes",
        'error parsing succeededIndexes: too large index: "9"',
    ),
]  # fmt: skip


@pytest.mark.parametrize(("spec", "field", "detail"), WRONG)
def test_what_is_wrong_is_named(spec, field, detail):
    (error,) = validate_policies({"template": TEMPLATE, **spec}, "spec")
    assert error.field.endswith(field)
    assert error.detail == detail


def test_a_failure_policy_needs_pods_that_are_not_restarted():
    template = {"spec": {**TEMPLATE["spec"], "restartPolicy": "OnFailure"}}
    (error,) = validate_policies({"template": template, **rule(**codes(1))}, "spec")
    assert error.field == "spec.template.spec.restartPolicy"
    assert error.detail == 'only "Never" is supported when podFailurePolicy is specified'
