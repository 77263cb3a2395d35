"""What of a Job's template may change, and when.

Rule: ``validatePodTemplateUpdate`` in pkg/apis/batch/validation/validation.go, v1.36.
"""

import pytest

from tests.api.conftest import STRATEGIC

JOBS = "/apis/batch/v1/namespaces/ns/jobs"
AFFINITY = {
    "nodeAffinity": {
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "Exists"}]}]
        }
    }
}
ELSEWHERE = [
    {"spec": {"nodeSelector": {"disk": "ssd"}}},
    {"spec": {"tolerations": [{"key": "own", "operator": "Exists"}]}},
    {"spec": {"schedulingGates": [{"name": "example.org/gate"}]}},
    {"spec": {"affinity": AFFINITY}},
    {"metadata": {"labels": {"team": "a"}, "annotations": {"why": "so"}}},
    {"spec": {"containers": [{"name": "c", "resources": {"requests": {"cpu": "2"}}}]}},
    {"spec": {"initContainers": [{"name": "i", "resources": {"limits": {"memory": "1Gi"}}}]}},
]
OTHERWISE = [
    {"spec": {"containers": [{"name": "c", "image": "another"}]}},
    {"spec": {"containers": [{"name": "more", "image": "another"}]}},
    {"spec": {"restartPolicy": "OnFailure"}},
    {"spec": {"priorityClassName": "system-node-critical"}},
    {"spec": {"affinity": {"podAffinity": {}}}},
    {"spec": {"terminationGracePeriodSeconds": 1, "nodeSelector": {"disk": "ssd"}}},
]


@pytest.fixture
def job(api):
    """A suspended Job that never started; returns what changes its status."""
    template = {
        "spec": {
            "restartPolicy": "Never",
            "containers": [{"name": "c", "image": "example.com/i:1"}],
            "initContainers": [{"name": "i", "image": "example.com/i:1"}],
        }
    }
    api.post(JOBS, {"metadata": {"name": "j"}, "spec": {"suspend": True, "template": template}}).ok(
        201
    )

    def report(**status):
        api.patch(f"{JOBS}/j/status", {"status": status}).ok()

    return report


def change(api, template):
    return api.patch(f"{JOBS}/j", {"spec": {"template": template}}, STRATEGIC)


@pytest.mark.parametrize("template", ELSEWHERE)
def test_a_job_without_pods_may_be_sent_elsewhere_and_given_more(api, job, template):
    before = api.get(f"{JOBS}/j").ok()
    after = change(api, template).ok()
    assert after["spec"]["template"] != before["spec"]["template"]
    assert api.put(f"{JOBS}/j", {**before, "metadata": after["metadata"]}).ok()


@pytest.mark.parametrize("template", OTHERWISE)
def test_nothing_else_of_it_changes(api, job, template):
    status = change(api, template).fails(422, "Invalid")
    assert [one["field"] for one in status["details"]["causes"]] == ["spec.template"]
    assert "field is immutable" in status["message"]


STARTED = "2026-01-02T03:04:05Z"
SUSPENDED = [{"type": "Suspended", "status": "True"}]


@pytest.mark.parametrize(
    ("status", "may"),
    [
        ({"startTime": STARTED}, False),
        ({"startTime": STARTED, "conditions": SUSPENDED}, True),
        ({"startTime": STARTED, "conditions": SUSPENDED, "active": 1}, False),
        ({"startTime": STARTED, "conditions": [{"type": "Suspended", "status": "False"}]}, False),
    ],
)
def test_one_that_was_started_may_when_its_pods_are_gone(api, job, status, may):
    job(**status)
    answer = change(api, ELSEWHERE[0])
    if may:
        answer.ok()
    else:
        answer.fails(422, "Invalid")


def test_a_job_that_runs_keeps_its_template(api, job):
    api.patch(f"{JOBS}/j", {"spec": {"suspend": False}}).ok()
    change(api, ELSEWHERE[0]).fails(422, "Invalid")
