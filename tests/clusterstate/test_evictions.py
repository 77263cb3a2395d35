"""What an eviction for a taint says fills slots of the document, which stays as it is."""

import datetime as dt

import pytest
from django.db import transaction

from clusterstate.actions import evictions, objects
from clusterstate.actions.cluster import bootstrap
from clusterstate.actions.pods.create import create_pods
from clusterstate.actions.pods.delete import delete_pod
from clusterstate.database import sql
from clusterstate.objects.values import document
from clusterstate.objects.values.document import Eviction, Overlay
from clusterstate.queries.evictions.eviction_timers import TAINT, due_taints
from clusterstate.queries.objects import decode_object, get_manifest
from clusterstate.queries.objects.lists import list_page
from clusterstate.queries.pods.stays import ClassOnNode
from tests.clock import NOW, moment
from tests.clusterstate import support

AT = NOW
READY = {"type": "Ready", "status": "True"}
EVICTED = {**document.TAINT_EVICTION, "lastTransitionTime": moment()}
DELETED = {"deletionTimestamp": moment(5), "deletionGracePeriodSeconds": 5}


def pod(metadata=None, spec=None, status=None):
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": "p",
            "namespace": "default",
            "uid": "u",
            "creationTimestamp": moment(-3600),
            **(metadata or {}),
        },
        "spec": {"containers": [{"name": "main"}], **(spec or {})},
        **({} if status is None else {"status": status}),
    }


@pytest.mark.parametrize(
    "manifest",
    [
        pod(status={"phase": "Running"}),
        pod(status={}),
        pod(status={"phase": "Running", "conditions": [READY], "podIP": "1.2.3.4"}),
        pod(status={"conditions": [READY, {"type": "PodScheduled", "status": "False"}]}),
        pod({"annotations": {"a": 'say "deletionTimestamp":"x", \u0001'}}, status={}),
        pod({"finalizers": ["a/b"]}, status={"phase": "Running", "conditions": [READY]}),
        pod({"generation": 1}, status={"conditions": [READY]}),
        pod({"annotations": {"a": '"generation":9,'}, "generation": 9}, status={}),
        pod(
            {"generation": 3},
            status={"conditions": [{"type": "PodScheduled", "observedGeneration": 2}]},
        ),
    ],
)
def test_an_evicted_pods_document_is_the_same_and_its_manifest_tells_of_it(manifest):
    text, overlay = document.encode("Pod", manifest)
    slots = Overlay(
        node_name="n",
        scheduled_at=AT,
        unschedulable=None,
        eviction=Eviction(AT, AT + dt.timedelta(seconds=5)),
    )
    found = document.decode(text, 7, slots)
    assert {**found["metadata"], **DELETED} == found["metadata"]
    generation = manifest["metadata"].get("generation")
    assert found["metadata"].get("generation") == (generation and generation + 1)
    scheduled, evicted, *others = found["status"]["conditions"]
    assert scheduled["type"] == "PodScheduled"
    assert evicted == EVICTED
    assert others == [
        one
        for one in (manifest.get("status") or {}).get("conditions") or ()
        if one["type"] != "PodScheduled"
    ]
    assert document.encode("Pod", found) == (text, slots)
    assert overlay.eviction is None


@pytest.mark.parametrize(
    ("deletion", "condition"),
    [
        ({}, {}),
        ({"deletionGracePeriodSeconds": 4}, {}),
        ({"deletionGracePeriodSeconds": None}, {}),
        ({"generation": 1}, {}),
        ({"deletionTimestamp": moment(5).replace("Z", "+00:00")}, {}),
        ({}, {"status": "False"}),
        ({}, {"lastTransitionTime": moment().replace("Z", ".5Z")}),
        ({}, {"observedGeneration": 3}),
        ({}, {"reason": "EvictionByEvictionAPI"}),
    ],
)
def test_whatever_else_a_pod_tells_of_its_end_comes_back_as_it_was(deletion, condition):
    conditions = [{**EVICTED, **condition}, READY]
    manifest = pod({**DELETED, **deletion}, status={"conditions": conditions})
    text, overlay = document.encode("Pod", manifest)
    assert (overlay.eviction is not None) == (not deletion and not condition)
    found = document.decode(text, 1, overlay)
    del found["metadata"]["resourceVersion"]
    assert found == manifest


def test_the_evictions_disruption_takes_the_place_of_one_that_the_pod_told_of():
    other = {"type": "DisruptionTarget", "status": "False", "reason": "x"}
    text, _ = document.encode("Pod", pod(status={"conditions": [other, READY]}))
    found = document.decode(text, 1, Overlay(eviction=Eviction(AT, AT + dt.timedelta(seconds=5))))
    assert found["status"]["conditions"] == [EVICTED, READY]


DEFAULTED = {"terminationGracePeriodSeconds": 30}
PROBED = {"name": "main", "livenessProbe": {"terminationGracePeriodSeconds": 9}}
VOLUME = {"name": "v", "csi": {"volumeAttributes": {"terminationGracePeriodSeconds": "9"}}}


@pytest.mark.parametrize(
    ("spec", "labels", "seconds"),
    [
        ({"terminationGracePeriodSeconds": 7}, {}, 7),
        ({}, {"terminationGracePeriodSeconds": "7"}, 30),
        ({"terminationGracePeriodSeconds": 5, "containers": [PROBED]}, {}, 5),
        ({"terminationGracePeriodSeconds": 5, "volumes": [VOLUME]}, {}, 5),
        ({"terminationGracePeriodSeconds": -3}, {}, 1),
    ],
)
@pytest.mark.django_db
def test_an_evicted_pod_has_its_own_grace_period(spec, labels, seconds):
    bootstrap.add_missing(now=AT)
    spoken = {"nodeName": "n", "containers": [{"name": "main", "image": "nginx:1"}]}
    create_pods([pod(spec=spoken)], now=AT)
    text, _ = document.encode("Pod", pod({"labels": labels}, {**DEFAULTED, **spec}, {}))
    sql.run("UPDATE document SET text = %s WHERE id = (SELECT document_id FROM pod)", (text,))
    (row,) = sql.fetch("SELECT id, class_id FROM pod")
    departure = evictions.Departure(
        pod_id=row[0], place=ClassOnNode("n", row[1]), started_at=AT, due_at=AT
    )
    evictions.restate(TAINT, [departure], node_names=["n"])
    (timer,) = due_taints(AT, limit=9)
    unknown = (row[0], AT, None)
    for one in (timer, unknown):
        with transaction.atomic():
            fired = evictions.fire_taints([one], now=AT, judge=lambda _: [departure])
            assert fired.evicted == [row[0]]
            found = get_manifest("Pod", "default", "p")
            assert found["metadata"]["deletionGracePeriodSeconds"] == seconds
            assert found["status"]["conditions"][1] == EVICTED
            transaction.set_rollback(True)


@pytest.mark.django_db
def test_lists_watches_and_later_versions_all_tell_of_the_eviction():
    bootstrap.add_missing(now=AT)
    ids = [support.new_pod(name, nodeName="n") for name in ("a", "b")]
    before = list_page("Pod", "default")
    listed = support.items(before)
    first = list_page("Pod", "default", limit=1)
    with transaction.atomic():
        (row,) = sql.fetch("SELECT DISTINCT class_id FROM pod")
        place = ClassOnNode("n", row[0])
        departures = [
            evictions.Departure(pod_id=pod_id, place=place, started_at=AT, due_at=AT)
            for pod_id in ids
        ]
        due = [(pod_id, AT, 30) for pod_id in ids]
        assert evictions.fire_taints(due, now=AT, judge=lambda _: departures).evicted == ids

    def check():
        log = support.everything_since(before.revision, "Pod")
        assert support.replay(listed, log) == support.items(list_page("Pod", "default"))
        rest = list_page("Pod", "default", limit=9, continue_token=first.continue_token)
        assert decode_object(rest.items[0]) == listed["default", "b"], "as of the first page"
        return support.manifest("Pod", "default", "b")

    evicted = check()
    assert evicted["metadata"]["deletionTimestamp"] == moment(30)
    generations = (
        listed["default", "b"]["metadata"]["generation"],
        evicted["metadata"]["generation"],
    )
    assert generations == (1, 2), "agents wait for what they have not acted on"
    second = list_page("Pod", "default", limit=1)
    unready = {"type": "Ready", "status": "False", "reason": "PodFailed"}

    def report(manifest):
        status = manifest["status"]
        return {**manifest, "status": {**status, "conditions": [*status["conditions"], unready]}}

    assert objects.update("Pod", "default", "b", report, subresource="status", now=AT).changed
    assert not objects.update("Pod", "default", "b", lambda one: one, now=AT).changed
    reported = check()
    rest = list_page("Pod", "default", limit=9, continue_token=second.continue_token)
    assert decode_object(rest.items[0]) == evicted
    assert reported["metadata"]["deletionGracePeriodSeconds"] == 30
    assert reported["metadata"]["generation"] == 2
    assert [one["type"] for one in reported["status"]["conditions"]] == [
        "PodScheduled", "DisruptionTarget", "Ready",
    ]  # fmt: skip
    (text,) = sql.fetch_one(
        "SELECT d.text FROM document d JOIN pod p ON p.document_id = d.id WHERE p.name = 'b'"
    )
    assert "deletionTimestamp" not in text
    delete_pod("default", "b", grace_seconds=1, now=AT)
    assert check()["metadata"]["deletionTimestamp"] == moment(1)
    gone = delete_pod("default", "b", grace_seconds=0, now=AT)
    assert decode_object(gone.manifest)["status"]["conditions"][1] == EVICTED
    support.replay(listed, support.everything_since(before.revision, "Pod"))
