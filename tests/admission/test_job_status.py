"""What a write of a Job's status may not say.

The cases of ``TestStatusStrategy_ValidateUpdate`` in pkg/registry/batch/job/strategy_test.go,
v1.36, with the gates on that are on there: a spec, the status before and after, and the fields in
error.
"""

import pytest

from clusterstate.admission.validation.workloads.job_status import validate_job_status

NOW, LATER = "2026-01-02T03:04:05Z", "2026-01-02T03:05:05Z"
FIVE = {"completions": 5}
INDEXED = {"completions": 5, "completionMode": "Indexed"}
PER_INDEX = {**INDEXED, "backoffLimitPerIndex": 1}
POLICY = {
    "completions": 10, "completionMode": "Indexed",
    "successPolicy": {"rules": [{"succeededIndexes": "0-2"}]},
}  # fmt: skip
NEVER_BEGAN = {"completions": 0, "suspend": True}
BEGUN, DONE = {"startTime": NOW}, {"startTime": NOW, "completionTime": NOW}
MET, TARGET, COMPLETE = ("SuccessCriteriaMet",), ("FailureTarget",), ("Complete",)


def on(*types, **fields):
    return {**fields, "conditions": [{"type": one, "status": "True"} for one in types]}


LEFT = {"uncountedTerminatedPods": {"failed": ["a"]}}
CONDITIONS, TIME = "status.conditions", "status.completionTime"
CASES = {
    "both ends": ({}, {}, on("Complete", "Failed", **DONE), [CONDITIONS] * 3),
    "complete without its target": ({}, {}, on("Complete", **DONE), [CONDITIONS]),
    "failed without its target": ({}, {}, on("Failed", **BEGUN), [CONDITIONS]),
    "a completion time is taken back": ({}, DONE, BEGUN, []),
    "failed, never begun": ({}, on(*TARGET), on(*TARGET, "Failed"), ["status.startTime"]),
    "complete, never begun": (
        {}, on(*MET), on(*MET, *COMPLETE, completionTime=NOW), ["status.startTime"],
    ),
    "complete and active": (
        {}, on(*MET, active=1, **BEGUN), on(*MET, *COMPLETE, active=1, **DONE), ["status.active"],
    ),
    "failed and terminating": (
        {}, on(*TARGET, terminating=1, **BEGUN), on(*TARGET, "Failed", terminating=1, **BEGUN),
        ["status.terminating"],
    ),
    "failed and not all counted": (
        {}, on(*TARGET, **LEFT, **BEGUN), on(*TARGET, "Failed", **LEFT, **BEGUN),
        ["status.uncountedTerminatedPods"],
    ),
    "another write of one that is not all counted": (
        {}, on(*COMPLETE, **LEFT, **DONE), on(*COMPLETE, "Custom", **LEFT, **DONE), [],
    ),
    "complete at no time": ({}, on(*MET, **BEGUN), on(*MET, *COMPLETE, **BEGUN), [TIME]),
    "the time is removed": ({}, on(*COMPLETE, completionTime=NOW), on(*COMPLETE, **BEGUN), [TIME]),
    "a suspended one gives its start back": ({"suspend": True}, BEGUN, {}, []),
    "the start is removed": ({}, BEGUN, {}, ["status.startTime"]),
    "the start is moved": ({}, BEGUN, {"startTime": LATER}, ["status.startTime"]),
    "the start is moved as it is resumed": (
        {}, on("Suspended", **BEGUN), {"startTime": LATER, "conditions": []}, [],
    ),
    "complete before it began": (
        {}, on(*MET, startTime=LATER),
        on(*MET, *COMPLETE, startTime=LATER, completionTime=NOW), [TIME],
    ),
    "the time is moved": (
        {}, on(*COMPLETE, completionTime=NOW),
        on(*COMPLETE, startTime=NOW, completionTime=LATER), [TIME],
    ),
    "no longer failed": ({}, on("Failed"), {}, [CONDITIONS]),
    "no longer complete": ({}, on(*COMPLETE), {}, [CONDITIONS]),
    "no longer to fail": ({}, on(*TARGET), {}, [CONDITIONS]),
    "complete and to fail": (
        {}, on(*COMPLETE, **DONE), on(*COMPLETE, *TARGET, **DONE), [CONDITIONS],
    ),
    "complete and to fail at once": (
        {}, {}, on(*COMPLETE, *TARGET, **DONE), [CONDITIONS] * 2,
    ),
    "a time alone": ({}, {}, {"completionTime": NOW}, [TIME]),
    "a time alone as before": (
        {}, {"completionTime": NOW}, {"completionTime": NOW, "active": 1}, [],
    ),
    "indexes without a mode": (FIVE, {}, {"completedIndexes": "0"}, ["status.completedIndexes"]),
    "indexes without a mode as before": (
        FIVE, {"completedIndexes": "0"}, {"completedIndexes": "0", "active": 1}, [],
    ),
    "failed indexes without a limit": (
        INDEXED, {}, {"failedIndexes": "0"}, ["status.failedIndexes"],
    ),
    "less failed": (FIVE, {"failed": 3}, {"failed": 1}, ["status.failed"]),
    "less succeeded": (FIVE, {"succeeded": 3}, {"succeeded": 1}, ["status.succeeded"]),
    "less succeeded of a smaller Job": (
        {**INDEXED, "parallelism": 5}, {"succeeded": 3}, {"succeeded": 1}, [],
    ),
    "unreadable": (INDEXED, {}, {"completedIndexes": "x"}, ["status.completedIndexes"]),
    "too large": (INDEXED, {}, {"completedIndexes": "1-5"}, ["status.completedIndexes"]),
    "unreadable as before": (
        INDEXED, {"completedIndexes": "x"}, {"completedIndexes": "x", "active": 1}, [],
    ),
    "unreadable failed ones": (PER_INDEX, {}, {"failedIndexes": "x"}, ["status.failedIndexes"]),
    "more ready than active": (FIVE, {}, {"active": 1, "ready": 2}, ["status.ready"]),
    "more ready as before": (
        FIVE, {"active": 1, "ready": 2}, {"active": 1, "ready": 2, "succeeded": 1}, [],
    ),
    "both completed and failed": (
        PER_INDEX, {"failedIndexes": "0,2", "completedIndexes": "3-4"},
        {"failedIndexes": "0,2", "completedIndexes": "2-4"}, ["status.failedIndexes"],
    ),
    "both as before": (
        PER_INDEX, {"failedIndexes": "0,2", "completedIndexes": "2-4"},
        {"failedIndexes": "0,2", "completedIndexes": "2-4", "active": 1}, [],
    ),
    "failed with its criteria met": (
        POLICY, on(*MET, **BEGUN), on(*MET, "Failed", **BEGUN), [CONDITIONS] * 2,
    ),
    "to fail with its criteria met": (POLICY, on(*TARGET), on(*TARGET, *MET), [CONDITIONS]),
    "criteria met after completion": (
        POLICY, on(*COMPLETE, **DONE), on(*COMPLETE, *MET, **DONE), [CONDITIONS],
    ),
    "criteria no longer met": (POLICY, on(*MET), {}, [CONDITIONS]),
    "complete by its criteria": (
        POLICY, on(*MET, **BEGUN), on(*MET, *COMPLETE, **DONE), [],
    ),
    "criteria met without a policy": ({}, {}, on(*MET), []),
    "nothing to do and suspended": (
        NEVER_BEGAN, {}, on(*MET, *COMPLETE, completionTime=NOW), [],
    ),
    "one pod twice": (
        {}, {}, {"uncountedTerminatedPods": {"succeeded": ["a", ""], "failed": ["a"]}},
        ["status.uncountedTerminatedPods.succeeded[1]", "status.uncountedTerminatedPods.failed[0]"],
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", CASES)
def test_a_status_says_what_it_may(name):
    spec, before, after, fields = CASES[name]
    found = validate_job_status({"spec": spec, "status": after}, {"spec": spec, "status": before})
    assert [one.field for one in found] == fields, [one.message() for one in found]


def test_an_error_of_conditions_shows_no_value():
    (found,) = validate_job_status({"status": {}}, {"status": on("Failed")})
    assert found.message() == "Invalid value: cannot disable the terminal Failed=True condition"
