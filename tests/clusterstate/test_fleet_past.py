"""The fleet of then: added up by the database, the same as counting every version of then."""

from datetime import timedelta
from typing import Any

import msgspec
import pytest

from clusterstate import catalogue
from clusterstate.actions import objects, past
from clusterstate.actions.past import history
from clusterstate.actions.pods.bind import Binding, bind_pods
from clusterstate.actions.pods.queue import Unschedulable, set_unschedulable
from clusterstate.change_log import changes
from clusterstate.database import sql
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.rules import scheduling_class
from clusterstate.objects.rules.glances import Glance, Glances, use_of
from clusterstate.objects.rules.resources import pod_request_ints
from clusterstate.objects.values.pod import Pod
from clusterstate.queries.nodes.fleet import fleet
from clusterstate.queries.nodes.fleet_past import PastFleet, fleet_at, node_at
from clusterstate.queries.objects.lists import list_page
from clusterstate.queries.past import find_at
from clusterstate.queries.pods import find_pod_id
from tests.clock import NOW
from tests.clusterstate.support import node, pod
from tests.creating import create_pod

pytestmark = pytest.mark.django_db(transaction=True)

_PLAIN = ("cpu", "memory", "ephemeral-storage", "pods")
GPU = "nvidia.com/gpu"


def counted(revision: int) -> tuple[dict[str, Any], dict[str, Any], int]:
    """Return what each node was asked for, who waited by words, and how many: one by one."""
    asked: dict[str, dict[str, int]] = {}
    waited: dict[str, tuple[int, str]] = {}
    pending = 0
    for text in list_page("Pod", at=revision).items:
        found = msgspec.json.decode(text, type=Pod)
        if found.status.phase in ("Succeeded", "Failed"):
            continue
        if not found.spec.node_name:
            pending += 1
            words = [one.message for one in found.status.conditions if one.type == "PodScheduled"]
            many, first = waited.get("".join(words), (0, found.metadata.name))
            waited["".join(words)] = (many + 1, min(first, found.metadata.name))
            continue
        use = asked.setdefault(found.spec.node_name, dict.fromkeys((*_PLAIN, "leaving"), 0))
        use["leaving"] += bool(found.metadata.deletion_timestamp)
        of_class = msgspec.convert(scheduling_class.reduce(msgspec.json.decode(text)), Pod)
        for name, amount in {"pods": 1, **pod_request_ints(of_class)}.items():
            use[name] = use.get(name, 0) + amount
    return asked, waited, pending


def told(fleet: PastFleet) -> tuple[dict[str, Any], dict[str, Any], int]:
    asked = {
        one.name: dict.fromkeys(_PLAIN, 0) | one.requested | {"leaving": one.leaving}
        for one in fleet.items
        if one.requested
    }
    waited = {one.message: (one.pods, one.name) for one in fleet.waiting}
    return asked, waited, fleet.pending


@pytest.fixture
def revisions(settings: Any) -> list[int]:
    """Let pods of several classes come, wait, run, finish, be evicted and go; say when."""
    settings.PAST_HOURS = 168
    catalogue.reload()
    seen: list[int] = []
    clock = NOW

    def then(do: Any) -> None:
        nonlocal clock
        clock += timedelta(seconds=10)
        do()
        seen.append(changes.watermark())

    def create(name: str, **parts: Any) -> None:
        then(lambda: create_pod(pod(name, **parts), now=clock))

    def bind(name: str, to: str) -> None:
        found = find_pod_id("default", name)
        assert found is not None
        then(lambda: bind_pods([Binding(found, to)], snapshot_revision=1 << 40, now=clock))

    def refuse(name: str, words: str) -> None:
        found = find_pod_id("default", name)
        assert found is not None
        refusal = Unschedulable(pod_id=found, message=words, rejected_by=("NodeName",))
        then(lambda: set_unschedulable([refusal], now=clock))

    def finish(name: str) -> None:
        def done(stored: Any) -> Any:
            return {**stored, "status": {**stored.get("status", {}), "phase": "Succeeded"}}

        then(lambda: objects.update("Pod", "default", name, done, now=clock, subresource="status"))

    def resize(name: str, cpu: str) -> None:
        told = {"name": "main", "image": "i", "imageID": "", "ready": True, "restartCount": 0}
        told |= {"allocatedResources": {"cpu": cpu}, "resources": {"requests": {"cpu": cpu}}}

        def done(stored: Any) -> Any:
            return {**stored, "status": {**stored["status"], "containerStatuses": [told]}}

        then(lambda: objects.update("Pod", "default", name, done, now=clock, subresource="status"))

    def ask(name: str, cpu: str) -> None:
        def asking(stored: Any) -> Any:
            container = dict(stored["spec"]["containers"][0])
            amounts = {**container["resources"]["requests"], "cpu": cpu}
            container["resources"] = {**container["resources"], "requests": amounts}
            return {**stored, "spec": {**stored["spec"], "containers": [container]}}

        then(
            lambda: objects.update("Pod", "default", name, asking, now=clock, subresource="resize")
        )

    def delete(kind: str, name: str, **options: Any) -> None:
        space = "default" if kind == "Pod" else ""
        then(lambda: objects.delete(kind, space, name, options, now=clock))

    for name in ("n1", "n2"):
        allocatable = {GPU: "8"}
        manifest = node(name, allocatable=allocatable)
        then(lambda manifest=manifest: objects.create("Node", "", manifest, now=clock))
    gpus = {"name": "c", "image": "i", "resources": {"limits": {GPU: "2", "memory": "1Gi"}}}
    for name in ("a", "b", "c"):
        create(name, cpu="300m")
    create("gpu-1", containers=[gpus])
    create("gpu-2", containers=[gpus])
    create("bare", containers=[{"name": "c", "image": "i"}])
    bind("a", "n1")
    bind("gpu-1", "n1")
    refuse("b", 'no "room" \\ here')
    refuse("c", 'no "room" \\ here')
    refuse("gpu-2", "no GPU")
    bind("b", "n2")
    bind("bare", "n2")
    ask("b", "500m")
    resize("b", "900m")
    finish("a")
    delete("Pod", "b")
    bind("gpu-2", "n1")
    delete("Pod", "b", gracePeriodSeconds=0)
    delete("Pod", "c")
    delete("Pod", "a", gracePeriodSeconds=0)
    create("b", cpu="1")
    bind("b", "n1")
    delete("Pod", "gpu-1")
    delete("Node", "n2")
    return seen


def check(revisions: list[int]) -> None:
    for revision in revisions:
        fleet = fleet_at(revision)
        expected = counted(revision)
        names = {one.name for one in fleet.items}
        of_nodes = {name: use for name, use in expected[0].items() if name in names}
        assert told(fleet) == (of_nodes, *expected[1:]), revision
        for one in fleet.items:
            here = list_page("Pod", at=revision, field_selector=f"spec.nodeName={one.name}").items
            text = find_at(KINDS["Node"], "", one.name, revision)
            assert text is not None
            alone = node_at(revision, text, here)
            assert (
                dict.fromkeys(_PLAIN, 0) | alone.requested
                == dict.fromkeys(_PLAIN, 0) | one.requested
            )
            assert msgspec.structs.replace(alone, requested={}) == msgspec.structs.replace(
                one, requested={}
            )


def test_the_database_adds_up_what_every_version_of_then_asked_for(revisions: list[int]) -> None:
    check(revisions)
    assert any(one.leaving for revision in revisions for one in fleet_at(revision).items)
    assert any(GPU in one.requested for one in fleet_at(revisions[-1]).items)


@pytest.mark.parametrize("blocks", ["of now", "of former versions", "of both"])
def test_the_same_is_told_wherever_packing_and_trimming_stopped(
    blocks: str, revisions: list[int], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(past, "CHUNK", 4)
    if blocks != "of now":
        monkeypatch.setattr(past, "Glances", _Never if blocks == "of former versions" else _Rarely)
    when = dict(sql.fetch("SELECT revision, at FROM change"))
    for boundary in [*sorted(when)[5::6], max(when)]:
        while past.pack(now=when[max(when)], patience=timedelta(0)).changes:
            pass
        history.trim(now=when[boundary] + timedelta(seconds=1), keep_seconds=0)
        check(revisions)
    assert sql.fetch("SELECT count(*) FROM change") == [(0,)]


class _Never(Glances):
    """As before indexes told of glances, or where a version cannot be read."""

    def at(self, body: bytes) -> Glance:
        raise msgspec.DecodeError


class _Rarely(Glances):
    """So of every other version."""

    def at(self, body: bytes) -> Glance:
        if len(body) % 2:
            raise msgspec.DecodeError
        return super().at(body)


def test_pages_of_the_past_hold_what_the_whole_list_does(revisions: list[int]) -> None:
    for revision in revisions:
        whole = list_page("Pod", at=revision).items
        for fields in ("", "spec.nodeName=", "spec.nodeName=n1"):
            every = [one for one in whole if fields in ("", f"spec.nodeName={node_of(one)}")]
            found: list[bytes] = []
            page = list_page("Pod", at=revision, limit=2, field_selector=fields)
            found += page.items
            while page.continue_token:
                token = page.continue_token
                page = list_page("Pod", continue_token=token, limit=2, field_selector=fields)
                assert len(page.items) <= 2
                found += page.items
            assert found == every, (revision, fields)


def node_of(text: bytes) -> str:
    return msgspec.json.decode(text, type=Pod).spec.node_name


def test_pods_of_then_are_found_by_a_part_of_their_name(revisions: list[int]) -> None:
    def names(revision: int) -> list[str]:
        items = list_page("Pod", at=revision, part="gpu", limit=1).items
        return [msgspec.json.decode(one)["metadata"]["name"] for one in items]

    between = revisions[8]
    assert names(between) == ["gpu-1"]
    history.trim(now=NOW + timedelta(days=1), keep_seconds=0)
    assert names(between) == ["gpu-1"]


def test_pods_that_select_other_nodes_are_other_groups_though_their_messages_are_alike(
    settings: Any,
) -> None:
    settings.PAST_HOURS = 168
    catalogue.reload()
    words = "0/2 nodes are available: 2 node(s) didn't match Pod's node affinity/selector."
    for name, disk in (("a", "ssd"), ("b", "ssd"), ("c", "nvme")):
        create_pod(pod(name, nodeSelector={"disk": disk}), now=NOW)
        found = find_pod_id("default", name)
        assert found is not None
        refusal = Unschedulable(pod_id=found, message=words, rejected_by=("NodeAffinity",))
        set_unschedulable([refusal], now=NOW)
    revision = changes.watermark()

    def groups() -> dict[str, int]:
        return {one.spec.node_selector["disk"]: one.pods for one in fleet_at(revision).waiting}

    assert groups() == {"ssd": 2, "nvme": 1}, "of the change log"
    for name in ("a", "b", "c"):
        objects.delete("Pod", "default", name, now=NOW)
    while past.pack(now=NOW + timedelta(days=1), patience=timedelta(0)).changes:
        pass
    history.trim(now=NOW + timedelta(days=1), keep_seconds=0)
    assert groups() == {"ssd": 2, "nvme": 1}, "of packed versions"


def test_amounts_that_are_too_large_to_be_added_up_are_the_largest_there_is() -> None:
    """Two pods whose sum no bigint holds: the page of all nodes would fail for everybody."""
    objects.create("Node", "", node("n1"), now=NOW)
    resources = {"requests": {"memory": "5Ei"}, "limits": {GPU: "6E"}}
    containers = [{"name": "main", "image": "busybox", "resources": resources}]
    for name in ("one", "two"):
        create_pod(pod(name, containers=containers, nodeName="n1"), now=NOW)
    (now,), (then,) = fleet(), fleet_at(changes.watermark()).items
    assert now.requested["memory"] == now.requested[GPU] == then.requested["memory"] == 2**63 - 1
    assert then.requested[GPU] == 12 * 10**18


def test_times_are_those_of_the_pod_and_not_of_its_labels_and_annotations() -> None:
    """An annotation that is no time would break the page for everybody."""
    words = {"creationTimestamp": "soon", "deletionTimestamp": "never"}
    objects.create("Node", "", node("n1"), now=NOW)
    create_pod(pod("waits", annotations=words), now=NOW)
    create_pod(pod("runs", labels=words, nodeName="n1"), now=NOW)
    revision = changes.watermark()
    for name in ("waits", "runs"):
        objects.update("Pod", "default", name, _touched, now=NOW)
        objects.delete("Pod", "default", name, now=NOW)
    then = fleet_at(revision)
    (waited,) = then.waiting
    assert (waited.name, waited.since) == ("waits", NOW.replace(microsecond=0))
    assert [(one.requested["pods"], one.leaving) for one in then.items] == [(1, 0)]


def _touched(stored: Any) -> Any:
    return {**stored, "metadata": {**stored["metadata"], "ownerReferences": []}}


def test_pods_that_are_told_of_alike_are_read_once_and_others_are_not() -> None:
    """One reader for all of them, so that what one tells is not taken for another's."""
    asked = {"requests": {"cpu": "1"}}
    infeasible = {"type": "PodResizePending", "status": "True", "reason": "Infeasible"}
    held = {"name": "c", "allocatedResources": {"cpu": "1"}, "resources": asked}
    more = {"name": "c", "allocatedResources": {"cpu": "2"}}
    statuses: list[dict[str, Any]] = [
        {},
        {"containerStatuses": [{"name": "c", "restartCount": 1}]},
        {"containerStatuses": [{**held, "restartCount": 1}]},
        {"containerStatuses": [{**held, "restartCount": 2}]},
        {"containerStatuses": [more]},
        {"containerStatuses": [held], "conditions": [infeasible]},
        {"containerStatuses": [more], "conditions": [infeasible]},
        {"containerStatuses": [more], "conditions": [{**infeasible, "reason": "Deferred"}]},
        {"conditions": [infeasible]},
    ]
    glances = Glances()
    for _ in range(2):
        for status in statuses:
            manifest = {
                "metadata": {"name": "p"},
                "spec": {"nodeName": "n", "containers": [{"name": "c", "resources": asked}]},
                "status": {"phase": "Running", **status},
            }
            found = glances.at(msgspec.json.encode(manifest))
            of_class = msgspec.convert(scheduling_class.reduce(manifest), Pod)
            assert use_of(found.text.encode()).amounts == {"pods": 1, **pod_request_ints(of_class)}
    assert len(glances._texts) == 6
