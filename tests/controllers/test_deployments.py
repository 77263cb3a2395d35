"""Deployments in the database: rollouts, revisions, adoption, and what cannot go on."""

import pytest

from clusterstate.actions import objects
from clusterstate.actions.pods.create import create_pods
from clusterstate.queries.objects import decode_object, get_manifest
from clusterstate.queries.objects.lists import list_page
from clusterstate.queries.pods import find_pod_id
from scheduling.controllers import garbage
from scheduling.controllers.workloads import deployment_records as records
from scheduling.controllers.workloads import deployment_status, follower
from tests.controllers.agents import make_agent, pods, report, run_all
from tests.controllers.support import NOW, after, bind, make_node, make_owner, pod_manifest

pytestmark = pytest.mark.django_db


def get(kind, name):
    return get_manifest(kind, "default", name)


def sets():
    found = [decode_object(item) for item in list_page("ReplicaSet", "default").items]
    return {one["metadata"]["name"]: one for one in found}


def edit(kind, name, now=NOW, **spec):
    objects.update(
        kind, "default", name, lambda m: {**m, "spec": {**m["spec"], **spec}}, now=now
    )  # fmt: skip


def roll_to(image, name="web", now=NOW):
    template = get("Deployment", name)["spec"]["template"]
    container = {**template["spec"]["containers"][0], "image": image}
    spec = {**template["spec"], "containers": [container]}
    edit("Deployment", name, now=now, template={**template, "spec": spec})


def condition(manifest, type_):
    found = deployment_status.condition(manifest["status"], type_)
    return None if found is None else (found["status"], found["reason"])


def settle(now=NOW, rounds=20):
    """Let controllers and agents act in turn until neither does anything; return the turns."""
    for turn in range(rounds):
        follower.follow(now)
        if not run_all(now=now) and not follower.follow(now):
            return turn
    raise AssertionError("never settled")


def images():
    return sorted(
        one["spec"]["containers"][0]["image"]
        for one in pods()
        if not one["metadata"].get("deletionTimestamp")
    )


def test_a_rollout_goes_through_and_says_so():
    make_agent("n")
    make_owner("Deployment", "web", 4)
    settle()
    roll_to("nginx:2")
    seen = []
    for _ in range(12):
        follower.follow(NOW)
        seen.append((len(images()), sum(_is_ready(one) for one in pods())))
        if not run_all():
            break
    assert max(count for count, _ in seen) <= 5, "replicas and a quarter"
    assert min(ready for _, ready in seen) >= 3, "all but a quarter"
    settle()
    assert images() == ["nginx:2"] * 4
    found = get("Deployment", "web")
    assert found["metadata"]["annotations"][records.REVISION] == "2"
    status = found["status"]
    assert {key: value for key, value in status.items() if key != "conditions"} == {
        "observedGeneration": 2,
        "replicas": 4,
        "updatedReplicas": 4,
        "readyReplicas": 4,
        "availableReplicas": 4,
    }
    assert condition(found, "Available") == ("True", "MinimumReplicasAvailable")
    assert condition(found, "Progressing") == ("True", "NewReplicaSetAvailable")
    assert {one["spec"]["replicas"] for one in sets().values()} == {0, 4}


def _is_ready(pod):
    if pod["metadata"].get("deletionTimestamp"):
        return False
    return any(
        one["type"] == "Ready" and one["status"] == "True"
        for one in pod["status"].get("conditions", ())
    )


def test_a_rollout_stops_at_a_template_that_never_gets_ready_and_can_be_undone():
    make_agent("n")
    make_owner("Deployment", "web", 4, progressDeadlineSeconds=60)
    settle()
    roll_to("broken:1")
    for _ in range(4):
        follower.follow(NOW)
    assert images() == ["broken:1"] * 2 + ["nginx:1"] * 3
    follower.follow(after(61))
    found = get("Deployment", "web")
    assert condition(found, "Progressing") == ("False", "ProgressDeadlineExceeded")
    assert condition(found, "Available") == ("True", "MinimumReplicasAvailable")
    roll_to("nginx:1")
    settle(after(62))
    assert images() == ["nginx:1"] * 4
    found = get("Deployment", "web")
    assert found["metadata"]["annotations"][records.REVISION] == "3"
    assert condition(found, "Progressing") == ("True", "NewReplicaSetAvailable")


def test_nothing_is_asked_of_a_node_without_agent_but_that_the_pod_is_bound():
    """Nobody would ever report for its pods, so a rollout counts them once they are bound."""
    make_node("n")
    make_owner("Deployment", "web", 2)
    follower.follow(NOW)
    found = get("Deployment", "web")
    message = deployment_status.condition(found["status"], "Available")["message"]
    assert message == ("Deployment does not have minimum availability. Pods: 2 without a node.")
    for pod in pods():
        bind(find_pod_id("default", pod["metadata"]["name"]), "n")
    follower.follow(NOW)
    found = get("Deployment", "web")
    assert found["status"]["availableReplicas"] == 2
    message = deployment_status.condition(found["status"], "Available")["message"]
    assert message == (
        "Deployment has minimum availability. Pods: 2 counted as ready once bound, since their"
        " nodes have no agent."
    )
    assert condition(found, "Progressing") == ("True", "NewReplicaSetAvailable")
    report(pods()[0]["metadata"]["name"], ready=False)
    follower.follow(NOW)
    assert get("Deployment", "web")["status"]["availableReplicas"] == 1, "somebody reports for it"


def test_pods_of_a_node_with_an_agent_wait_for_what_it_says():
    make_agent("n")
    make_owner("Deployment", "web", 1)
    follower.follow(NOW)
    bind(find_pod_id("default", pods()[0]["metadata"]["name"]), "n")
    follower.follow(NOW)
    status = get("Deployment", "web")["status"]
    assert "availableReplicas" not in status
    assert deployment_status.condition(status, "Available")["message"] == (
        "Deployment does not have minimum availability. Pods: 1 not reported ready by the agent of"
        " their node."
    )


def test_what_is_ready_becomes_available_by_the_time_alone():
    make_agent("n")
    make_owner("Deployment", "web", 1, minReadySeconds=30)
    follower.follow(NOW)
    run_all()
    follower.follow(NOW)
    status = get("Deployment", "web")["status"]
    assert (status["readyReplicas"], status.get("availableReplicas")) == (1, None)
    follower.follow(after(29))
    assert get("Deployment", "web")["status"].get("availableReplicas") is None
    follower.follow(after(30))
    assert get("Deployment", "web")["status"]["availableReplicas"] == 1


def test_a_replica_set_is_adopted_and_let_go():
    labels = {"app": "web", "pod-template-hash": "x"}
    make_owner("ReplicaSet", "stray", 1)
    objects.update(
        "ReplicaSet", "default", "stray",
        lambda m: {**m, "metadata": {**m["metadata"], "labels": labels}}, now=NOW,
    )  # fmt: skip
    make_owner("Deployment", "web", 1)
    follower.follow(NOW)
    (owner,) = get("ReplicaSet", "stray")["metadata"]["ownerReferences"]
    assert (owner["name"], owner["controller"], owner["blockOwnerDeletion"]) == ("web", True, True)
    assert list(sets()) == ["stray"], "it has the same template"
    objects.update(
        "ReplicaSet", "default", "stray",
        lambda m: {**m, "metadata": {**m["metadata"], "labels": {"app": "else"}}}, now=NOW,
    )  # fmt: skip
    follower.follow(NOW)
    assert "ownerReferences" not in get("ReplicaSet", "stray")["metadata"]
    assert len(sets()) == 2


def test_pods_are_adopted_and_let_go():
    create_pods([pod_manifest("stray", metadata={"labels": {"app": "web"}})], now=NOW)
    make_owner("ReplicaSet", "web", 2)
    follower.follow(NOW)
    assert len(pods()) == 2
    (owner,) = get("Pod", "stray")["metadata"]["ownerReferences"]
    assert owner["uid"] == get("ReplicaSet", "web")["metadata"]["uid"]
    objects.update(
        "Pod", "default", "stray",
        lambda m: {**m, "metadata": {**m["metadata"], "labels": {"app": "else"}}}, now=NOW,
    )  # fmt: skip
    follower.follow(NOW)
    assert "ownerReferences" not in get("Pod", "stray")["metadata"]
    assert len(pods(app="web")) == 2


def test_a_replica_set_left_behind_keeps_its_pods_for_the_next_owner():
    """kubectl delete --cascade=orphan, and the same Deployment again."""
    make_owner("Deployment", "web", 2)
    follower.follow(NOW)
    before = {one["metadata"]["uid"] for one in pods()}
    objects.delete("Deployment", "default", "web", {"propagationPolicy": "Orphan"}, now=NOW)
    for _ in range(3):
        garbage.follow(NOW)
        follower.follow(NOW)
    assert {one["metadata"]["uid"] for one in pods()} == before
    make_owner("Deployment", "web", 2)
    follower.follow(NOW)
    assert {one["metadata"]["uid"] for one in pods()} == before
    assert len(sets()) == 1


def test_what_is_refused_is_told_and_tried_again_later_and_later():
    """A PriorityClass that does not exist refuses every pod; then it is there."""
    make_owner("Deployment", "web", 3)
    template = get("Deployment", "web")["spec"]["template"]
    spec = {**template["spec"], "priorityClassName": "urgent"}
    edit("Deployment", "web", template={**template, "spec": spec})
    follower.follow(NOW)
    (one,) = sets().values()
    failure = deployment_status.condition(one["status"], "ReplicaFailure")
    assert failure["reason"] == "FailedCreate"
    assert "no PriorityClass with name urgent was found" in failure["message"]
    assert condition(get("Deployment", "web"), "ReplicaFailure") == ("True", "FailedCreate")
    tries = [second for second in range(1, 40) if _tries(after(second))]
    assert tries == [1, 3, 7, 15, 31], "each wait is twice the one before"
    urgent = {"metadata": {"name": "urgent"}, "value": 10}
    objects.create("PriorityClass", "", urgent, now=after(50))
    for second in range(50, 70):
        follower.follow(after(second))
    assert len(pods()) == 3
    assert condition(get("Deployment", "web"), "ReplicaFailure") is None


def _tries(now):
    """Return whether a pass counts up the event of the refusal."""
    before = _refusals()
    follower.follow(now)
    return _refusals() > before


def _refusals():
    found = [decode_object(item) for item in list_page("Event", "default").items]
    return sum(one["count"] for one in found if one["reason"] == "FailedCreate")


def test_a_deployment_can_be_left_to_another_controller(settings):
    settings.CONTROLLERS = frozenset({"replicaset"})
    make_owner("Deployment", "web", 2)
    make_owner("ReplicaSet", "rs", 1, app="rs")
    follower.follow(NOW)
    assert list(sets()) == ["rs"]
    assert len(pods(app="rs")) == 1


def test_a_revision_is_noted_and_an_annotation_observed():
    """Annotations count as a generation; the controller's own do not."""
    make_agent("n")
    make_owner("Deployment", "web", 1)
    settle()
    stored = get("Deployment", "web")
    assert stored["metadata"]["annotations"] == {records.REVISION: "1"}
    assert stored["metadata"]["generation"] == stored["status"]["observedGeneration"] == 1

    def annotated(old):
        annotations = {**old["metadata"]["annotations"], "a": "b"}
        return {**old, "metadata": {**old["metadata"], "annotations": annotations}}

    objects.update("Deployment", "default", "web", annotated, now=NOW)
    settle()
    stored = get("Deployment", "web")
    assert stored["metadata"]["generation"] == stored["status"]["observedGeneration"] == 2
    (one,) = sets().values()
    assert one["metadata"]["annotations"]["a"] == "b"


def test_no_history_is_kept_where_none_is_wanted():
    make_agent("n")
    make_owner("Deployment", "web", 1, revisionHistoryLimit=0)
    settle()
    roll_to("nginx:9")
    settle()
    (one,) = sets().values()
    assert one["spec"]["template"]["spec"]["containers"][0]["image"] == "nginx:9"
