"""Nodes, namespaces, classes, events and the rest; and what admission looks up."""

import datetime as dt
import threading
import uuid
from collections.abc import Callable
from typing import Any

import pytest
from django.db import transaction

from clusterstate import catalogue
from clusterstate.actions import objects
from clusterstate.actions.cluster import bootstrap, namespaces
from clusterstate.actions.kinds import events
from clusterstate.actions.kinds.events import Occurrence
from clusterstate.actions.past import history
from clusterstate.actions.writing import object_meta
from clusterstate.actions.writing.stored import StoredObject
from clusterstate.admission.request import NOBODY
from clusterstate.change_log import changes
from clusterstate.database import sql
from clusterstate.objects.registry.kinds import ALL_KINDS, KINDS, NAMES
from clusterstate.objects.values import document
from clusterstate.objects.values.errors import (
    AlreadyExists,
    Conflict,
    Forbidden,
    NotFound,
    StatusError,
    TooLarge,
)
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.wire.managed_fields import Manager
from clusterstate.queries.objects import decode_object, find_object, get_object
from clusterstate.queries.objects.events import event_manifests
from clusterstate.queries.objects.lists import list_page
from clusterstate.queries.objects.namespaces import terminating_namespaces
from tests.clock import moment
from tests.clusterstate.support import (
    LATER,
    NOW,
    Worker,
    bind,
    create_node,
    everything_since,
    manifest,
    names,
    new_pod,
    node,
    pod,
)
from tests.creating import create_pod
from tests.waiting import BLOCKED, until

pytestmark = pytest.mark.django_db(transaction=True)


def test_every_kind_that_is_served_has_a_table_and_a_code() -> None:
    for kind in ALL_KINDS:
        assert list_page(kind).items is not None
    assert {kind.code: kind.name for kind in ALL_KINDS} == NAMES


def test_a_fresh_database_has_the_system_namespaces_and_classes() -> None:
    assert names(list_page("Namespace")) == [
        "default",
        "kube-node-lease",
        "kube-public",
        "kube-system",
    ]
    values = {
        decode_object(item)["metadata"]["name"]: decode_object(item)["value"]
        for item in list_page("PriorityClass").items
    }
    assert values == {
        "system-node-critical": 2000001000,
        "system-cluster-critical": 2000000000,
    }
    assert bootstrap.ensure(now=LATER) == []


# Nodes ----------------------------------------------------------------------------------------


def test_a_node_keeps_the_status_it_comes_with() -> None:
    create_node("n1")
    found = manifest("Node", "", "n1")
    assert found["status"]["allocatable"]["cpu"] == "4"
    row = sql.fetch("SELECT cpu_milli, memory_bytes, pods, unschedulable FROM node")
    assert row == [(4000, 32 << 30, 110, False)]


def test_a_no_execute_taint_gets_its_time_once() -> None:
    """R123: timeAdded is set on write, and a countdown does not start again."""
    create_node("n1")

    def taint(*taints: dict[str, str]) -> list[dict[str, str]]:
        objects.update(
            "Node",
            "",
            "n1",
            lambda m: {**m, "spec": {**m.get("spec", {}), "taints": list(taints)}},
            now=clock,
        )
        return manifest("Node", "", "n1")["spec"]["taints"]

    clock = NOW
    first = taint({"key": "a", "effect": "NoExecute"}, {"key": "a", "effect": "NoSchedule"})
    assert [one.get("timeAdded") for one in first] == [moment(), None]
    clock = LATER
    second = taint(
        {"key": "a", "effect": "NoExecute", "value": "v"}, {"key": "b", "effect": "NoExecute"}
    )
    assert [one["timeAdded"] for one in second] == [moment(), moment(300)]
    rows = sql.fetch("SELECT position, key, value, effect, added_at FROM taint ORDER BY position")
    assert rows == [(1, "a", "v", "NoExecute", NOW), (2, "b", "", "NoExecute", LATER)]
    objects.delete("Node", "", "n1", now=NOW)
    assert sql.fetch("SELECT count(*) FROM taint") == [(0,)]


def test_the_taint_of_a_rule_counts_from_when_its_effect_was_written() -> None:
    """pkg/registry/resource/devicetaintrule/strategy.go, v1.36 (#137167)."""
    taint = {"key": "k", "effect": "NoSchedule"}
    rule = {"metadata": {"name": "r"}, "spec": {"taint": taint}}
    objects.create("DeviceTaintRule", "", rule, now=NOW)

    def since(seconds: int, **fields: str) -> str:
        def change(current: Manifest) -> Manifest:
            changed = {**current["spec"]["taint"], **fields}
            return {**current, "spec": {**current["spec"], "taint": changed}}

        now = NOW + dt.timedelta(seconds=seconds)
        objects.update("DeviceTaintRule", "", "r", change, now=now)
        return manifest("DeviceTaintRule", "", "r")["spec"]["taint"]["timeAdded"]

    assert since(300, value="v") == moment()
    assert since(600, effect="NoExecute") == moment(600)
    assert since(900, effect="NoSchedule", timeAdded=moment(100)) == moment(100)


def test_deleting_a_node_leaves_its_pods() -> None:
    create_node("n1")
    assert bind(new_pod("a"), "n1")
    deleted = objects.delete("Node", "", "n1", now=NOW)
    assert deleted.gone
    assert manifest("Pod", "default", "a")["spec"]["nodeName"] == "n1"
    with pytest.raises(NotFound, match=r'^nodes "n1" not found$'):
        get_object("Node", "", "n1")


def test_names_of_other_groups_stand_in_messages() -> None:
    with pytest.raises(NotFound, match=r'^runtimeclasses.node.k8s.io "x" not found$') as caught:
        get_object("RuntimeClass", "", "x")
    assert caught.value.details == {"name": "x", "kind": "runtimeclasses", "group": "node.k8s.io"}
    objects.create("RuntimeClass", "", {"metadata": {"name": "x"}, "handler": "h"}, now=NOW)
    with pytest.raises(AlreadyExists, match=r'^runtimeclasses.node.k8s.io "x" already exists$'):
        objects.create("RuntimeClass", "", {"metadata": {"name": "x"}, "handler": "h"}, now=NOW)


def test_concurrent_updates_of_one_node_are_all_kept() -> None:
    """A patch runs under the row lock, on the newest version, however long it waited."""
    create_node("n1")

    def label(number: int) -> None:
        for i in range(8):
            objects.update(
                "Node",
                "",
                "n1",
                lambda m, i=i: {
                    **m,
                    "metadata": {
                        **m["metadata"],
                        "labels": {**m["metadata"].get("labels", {}), f"w{number}-{i}": "x"},
                    },
                },
                now=NOW,
            )

    workers = [Worker(lambda n=n: label(n)) for n in range(4)]
    for worker in workers:
        worker.result(60)
    labels = manifest("Node", "", "n1")["metadata"]["labels"]
    assert len([key for key in labels if key.startswith("w")]) == 32


def test_a_deployment_counts_changes_of_its_spec_only() -> None:
    template = {
        "metadata": {"labels": {"a": "b"}},
        "spec": {"containers": [{"name": "c", "image": "i"}]},
    }
    body = {
        "metadata": {"name": "web"},
        "spec": {"selector": {"matchLabels": {"a": "b"}}, "template": template},
    }
    objects.create("Deployment", "default", body, now=NOW)

    def generation() -> int:
        return manifest("Deployment", "default", "web")["metadata"]["generation"]

    assert generation() == 1
    objects.update(
        "Deployment",
        "default",
        "web",
        lambda m: {**m, "spec": {**m["spec"], "replicas": 3}},
        now=NOW,
    )
    assert generation() == 2
    objects.update(
        "Deployment",
        "default",
        "web",
        lambda m: {**m, "status": {"replicas": 3}},
        subresource="status",
        now=NOW,
    )
    assert generation() == 2
    assert manifest("Deployment", "default", "web")["status"] == {"replicas": 3}


def test_an_object_does_not_grow_without_end_and_may_always_shrink() -> None:
    """Each patch is of an allowed size; together they would be more than a follower can take."""
    container = {"name": "main", "image": "busybox", "env": []}
    spec = {
        "selector": {"matchLabels": {"app": "web"}},
        "template": {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [container]}},
    }
    body = {"metadata": {"name": "web"}, "spec": spec}
    objects.create("Deployment", "default", body, now=NOW)

    def say(count: int) -> None:
        def change(found: Manifest) -> Manifest:
            (main,) = found["spec"]["template"]["spec"]["containers"]
            main["env"] = [{"name": f"v{n}", "value": "x" * (3 << 20)} for n in range(count)]
            return found

        objects.update("Deployment", "default", "web", change, now=NOW)

    def said() -> int:
        (main,) = manifest("Deployment", "default", "web")["spec"]["template"]["spec"]["containers"]
        return len(main.get("env", ()))

    say(2)
    with pytest.raises(TooLarge, match="larger than the limit of 8388608 bytes"):
        say(3)
    assert said() == 2
    with pytest.MonkeyPatch.context() as limits:
        limits.setattr(object_meta, "LARGEST_TEXT", 4 << 20)
        with pytest.raises(TooLarge):
            say(3)
        say(1)
    assert said() == 1


def test_an_object_is_as_large_as_its_bytes() -> None:
    half = 4 << 20
    object_meta.require_size("", "x" * 2 * half)
    with pytest.raises(TooLarge):
        object_meta.require_size("x", "\u00e4" * half + "x")
    object_meta.require_size("\u00e4" * (half + 2), "\u00e4" * (half + 1))


def test_a_lease_that_is_renewed_stays_out_of_the_log() -> None:
    """Issue 4: heartbeats stay out of the change log."""

    def lease(second: int, holder: str = "n1") -> dict[str, object]:
        return {
            "holderIdentity": holder,
            "leaseDurationSeconds": 40,
            "renewTime": moment(second).replace("Z", ".000000Z"),
        }

    def renew(second: int, holder: str = "n1") -> StoredObject:
        return objects.update(
            "Lease",
            "kube-node-lease",
            "n1",
            lambda old: {**old, "spec": lease(second, holder)},
            now=NOW,
        )

    body = {"metadata": {"name": "n1"}, "spec": lease(1)}
    objects.create("Lease", "kube-node-lease", body, now=NOW)
    start = changes.watermark()
    stored = renew(2)
    assert stored.revision > start
    assert everything_since(start) == []
    found = manifest("Lease", "kube-node-lease", "n1")
    assert found["spec"]["renewTime"] == moment(2).replace("Z", ".000000Z")
    assert names(list_page("Lease")) == ["n1"]
    renew(3, "other")
    assert [change.name for change in everything_since(start)] == ["n1"]


def test_leases_that_are_renewed_together_are_as_if_each_were_renewed_alone() -> None:
    """Results, versions and the log; the reference is ``update``, one after the other."""
    lease = KINDS["Lease"]
    space = "kube-node-lease"

    def wanted(name: str, version: str | None = None, **spec: Any) -> objects.Update:
        def change(old: Manifest) -> Manifest:
            metadata = {**old["metadata"]}
            if version is not None:
                metadata["resourceVersion"] = version
            return {**old, "metadata": metadata, "spec": {**old["spec"], **spec}}

        return objects.Update(
            namespace=space, name=name, change=change, user=NOBODY,
            manager=Manager("kubelet", ""), subresource="",
        )  # fmt: skip

    def at(second: int) -> str:
        return moment(second).replace("Z", ".000000Z")

    def outcome(result: StoredObject | StatusError) -> object:
        if isinstance(result, StatusError):
            return type(result), str(result)
        found = decode_object(result.manifest)
        meta = found["metadata"]
        assert meta.pop("resourceVersion") == str(result.revision)
        return result.changed, meta["name"][1:], found["spec"]

    def alone(updates: list[objects.Update]) -> list[StoredObject | StatusError]:
        results: list[StoredObject | StatusError] = []
        for one in updates:
            try:
                results.append(objects.carry_out(lease, one, now=NOW))
            except StatusError as error:
                results.append(error)
        return results

    def together(updates: list[objects.Update]) -> list[StoredObject | StatusError]:
        return objects.renew_each(lease, updates, now=NOW)

    def rounds(of: str) -> list[list[objects.Update]]:
        return [
            [wanted(f"{of}1", renewTime=at(2)), wanted(f"{of}2", renewTime=at(2))],
            [
                wanted(f"{of}2", renewTime=at(3)),
                wanted(f"{of}9"),
                wanted(f"{of}3", holderIdentity="other", renewTime=at(3)),
                wanted(f"{of}1", renewTime=at(2)),
                wanted(f"{of}3", renewTime=at(4)),
            ],
            [wanted(f"{of}3", renewTime=at(5)), wanted(f"{of}2", leaseDurationSeconds=-1)],
            [wanted(f"{of}{n}", renewTime=at(6)) for n in (3, 2, 1)],
        ]

    said: dict[str, list[object]] = {}
    for of, way in (("a", alone), ("b", together)):
        for number in (1, 2, 3):
            body = {"metadata": {"name": f"{of}{number}"}, "spec": {"renewTime": at(1)}}
            objects.create("Lease", space, body, now=NOW)
        start = changes.watermark()
        said[of] = []
        for updates in rounds(of):
            results = way(updates)
            said[of] += [str(outcome(one)).replace(f'"{of}', '"') for one in results]
            for one, result in zip(updates, results, strict=True):
                if isinstance(result, StoredObject) and result.changed:
                    newest = manifest("Lease", space, one.name)["metadata"]["resourceVersion"]
                    assert int(newest) >= result.revision > start
        logged = changes.read_since(start, documents=None).items
        said[of] += [(one.name[1:], one.verb, '"other"' in (one.text or "")) for one in logged]
        (told,) = logged
        assert at(3) in (told.text or ""), "what the log names was written over"
        found = [manifest("Lease", space, f"{of}{number}") for number in (1, 2, 3)]
        said[of] += [one["spec"] for one in found]
    assert said["a"] == said["b"]
    stale = manifest("Lease", space, "b1")["metadata"]["resourceVersion"]
    both = [wanted("b1", stale, renewTime=at(second)) for second in (7, 8)]
    first, second = together(both)
    assert isinstance(first, StoredObject)
    assert isinstance(second, Conflict), "one of two that knew the same version"
    assert manifest("Lease", space, "b1")["spec"]["renewTime"] == at(7)


def test_a_renewal_writes_one_document_and_waits_for_no_disk() -> None:
    lease = KINDS["Lease"]
    body = {"metadata": {"name": "n1"}, "spec": {"renewTime": "2026-11-21T12:00:00.000000Z"}}
    objects.create("Lease", "kube-node-lease", body, now=NOW)

    def renew(minute: int) -> int:
        spec = {"renewTime": f"2026-11-21T12:{minute:02}:00.000000Z"}
        wanted = objects.Update(
            namespace="kube-node-lease", name="n1", change=lambda old: {**old, "spec": spec},
            user=NOBODY, manager=None, subresource="",
        )  # fmt: skip
        (stored,) = objects.renew_each(lease, [wanted], now=NOW)
        assert isinstance(stored, StoredObject)
        return stored.revision

    def count(table: str) -> int:
        return int(sql.fetch(f"SELECT count(*) FROM {table}")[0][0])

    renew(1)
    before = count("document"), count("superseded_document")
    with transaction.atomic():
        revisions = [renew(minute) for minute in (2, 3, 4)]
        assert sql.fetch("SELECT current_setting('synchronous_commit')") == [("off",)]
    assert (count("document"), count("superseded_document")) == before
    assert revisions == sorted(set(revisions))
    are_renewed = objects.are_renewed
    assert are_renewed(lease, "kube-node-lease", "")
    assert not are_renewed(lease, "kube-system", ""), "by these leaders are elected"


def test_who_waits_for_a_renewal_changes_what_it_wrote() -> None:
    """The document is written over: the row alone would tell of a newer one."""
    lease = KINDS["Lease"]

    def update(change: Callable[[Manifest], Manifest]) -> objects.Update:
        return objects.Update(
            namespace="kube-node-lease", name="n1", change=change, user=NOBODY, manager=None,
            subresource="",
        )  # fmt: skip

    def renew(minute: int) -> None:
        spec = {"renewTime": f"2026-11-21T12:{minute:02}:00.000000Z"}
        renewed = update(lambda old: {**old, "spec": {**old["spec"], **spec}})
        objects.renew_each(lease, [renewed], now=NOW)

    def held() -> None:
        holds = update(lambda old: {**old, "spec": {**old["spec"], "holderIdentity": "n1"}})
        objects.carry_out(lease, holds, now=NOW)

    body = {"metadata": {"name": "n1"}, "spec": {"renewTime": "2026-11-21T12:00:00.000000Z"}}
    objects.create("Lease", "kube-node-lease", body, now=NOW)
    renew(1)
    with transaction.atomic():
        renew(2)
        worker = Worker(held)
        until(lambda: sql.fetch(BLOCKED), what="the other to wait")
    worker.result()
    found = manifest("Lease", "kube-node-lease", "n1")["spec"]
    assert found == {"renewTime": "2026-11-21T12:02:00.000000Z", "holderIdentity": "n1"}


def test_statuses_of_nodes_that_say_the_same_again_are_written_together_and_logged() -> None:
    """The reference is ``update``, one after the other."""
    kind = KINDS["Node"]

    def heartbeat(name: str, second: int, ready: str = "True") -> objects.Update:
        condition = {"type": "Ready", "status": ready, "lastHeartbeatTime": moment(second)}

        def change(old: Manifest) -> Manifest:
            return {**old, "status": {**old["status"], "conditions": [condition]}}

        return objects.Update(
            namespace="", name=name, change=change, user=NOBODY, manager=None, subresource="status"
        )

    def alone(updates: list[objects.Update]) -> list[StoredObject]:
        return [objects.carry_out(kind, one, now=NOW) for one in updates]

    def together(updates: list[objects.Update]) -> list[StoredObject | StatusError]:
        return objects.renew_each(kind, updates, now=NOW)

    said = []
    for of, way in (("a", alone), ("b", together)):
        names = [f"{of}{number}" for number in (1, 2, 3)]
        for name in names:
            objects.create("Node", "", node(name), now=NOW)
        way([heartbeat(name, 1) for name in names])
        start = changes.watermark()
        way([heartbeat(name, 2) for name in reversed(names)])
        way([heartbeat(names[0], 3), heartbeat(names[1], 3, "False")])
        log = changes.read_since(start, documents=None, previous=None).items
        assert all(one.previous_revision is not None for one in log)
        told = sorted(
            (one.name[1:], one.verb, _conditions(one.text), _conditions(one.previous_text))
            for one in log
        )
        placements = sql.fetch(
            "SELECT count(*) FROM node WHERE name = ANY (%s) AND placement_revision > %s::bigint",
            (sql.Texts(names), start),
        )
        present = [manifest("Node", "", name) for name in names]
        for one in present:
            meta = one["metadata"]
            logged = max(c.revision for c in log if c.name == meta["name"])
            assert meta["resourceVersion"] == str(logged)
        said.append((told, placements, [(one["status"], one["spec"]) for one in present]))
    assert said[0] == said[1]


def _conditions(text: str | None) -> object:
    return repr(document.decode(text or "", 0)["status"].get("conditions"))


def test_many_objects_are_created_all_or_none() -> None:
    wanted = [
        ("Namespace", "", {"metadata": {"name": "team"}}),
        ("Node", "", node("n1")),
        ("Pod", "team", pod("a", namespace="team")),
        ("Pod", "team", pod("b", namespace="team")),
        ("Service", "team", {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}),
    ]
    before = changes.watermark()
    with pytest.raises(AlreadyExists):
        objects.create_all([*wanted, wanted[1]], now=NOW)
    assert everything_since(before) == []
    assert find_object("Namespace", "", "team") is None
    stored = objects.create_all(wanted, now=NOW)
    assert [change.revision for change in everything_since(before)] == [s.revision for s in stored]


# Namespaces -----------------------------------------------------------------------------------


def test_deleting_a_namespace_deletes_its_content_and_then_itself() -> None:
    objects.create("Namespace", "", {"metadata": {"name": "team"}}, now=NOW)
    create_node("n1")
    assert bind(new_pod("bound", namespace="team"), "n1")
    new_pod("waiting", namespace="team")
    new_pod("bystander")
    objects.create(
        "Service", "team", {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}, now=NOW
    )
    deleted = objects.delete("Namespace", "", "team", now=NOW)
    assert not deleted.gone
    assert decode_object(deleted.manifest)["status"]["phase"] == "Terminating"
    assert terminating_namespaces() == ["team"]
    with pytest.raises(Forbidden, match="because it is being terminated"):
        new_pod("late", namespace="team")
    assert not namespaces.finish_deletion("team", now=NOW)
    assert names(list_page("Pod", "team")) == ["bound"]
    # What pods use outlives them.
    assert names(list_page("Service", "team")) == ["s"]
    assert namespaces.finish_deletion("team", now=LATER)
    assert find_object("Namespace", "", "team") is None
    assert names(list_page("Pod")) == ["bystander"]
    assert namespaces.finish_deletion("team", now=LATER)


def test_a_namespace_tells_what_is_left_in_it_and_what_holds_it() -> None:
    objects.create("Namespace", "", {"metadata": {"name": "team"}}, now=NOW)
    metadata = {"name": "held", "finalizers": ["example.com/a", "example.com/b"]}
    objects.create("ConfigMap", "team", {"metadata": metadata}, now=NOW)
    pod = {"metadata": {"name": "p", "finalizers": ["example.com/a"]}}
    pod["spec"] = {"containers": [{"name": "c", "image": "i"}]}
    objects.create("Pod", "team", pod, now=NOW)
    objects.delete("Namespace", "", "team", now=NOW)

    def conditions() -> dict[str, tuple[str, str]]:
        found = find_object("Namespace", "", "team")
        assert found is not None
        listed = decode_object(found)["status"]["conditions"]
        return {one["type"]: (one["status"], one["message"]) for one in listed}

    assert not namespaces.finish_deletion("team", now=NOW)
    # Clients wait for a condition to appear; its status says that nothing went wrong.
    for what in ("DeletionDiscoveryFailure", "DeletionContentFailure"):
        assert conditions()[f"Namespace{what}"][0] == "False"
    content, held = (
        conditions()[f"Namespace{what}Remaining"] for what in ("Content", "Finalizers")
    )
    assert content[0] == held[0] == "True"
    assert content[1].startswith("Some resources are remaining: configmaps. has ")
    assert content[1].endswith("pods. has 1 resource instances")
    assert held[1] == (
        "Some content in the namespace has finalizers remaining: "
        "example.com/a in 2 resource instances, example.com/b in 1 resource instances"
    )
    found = find_object("ConfigMap", "team", "held")
    assert found is not None
    assert "deletionTimestamp" not in decode_object(found)["metadata"]
    for kind, name in (("Pod", "p"), ("ConfigMap", "held")):
        assert not namespaces.finish_deletion("team", now=NOW)

        def free(manifest: Manifest) -> Manifest:
            return {**manifest, "metadata": {**manifest["metadata"], "finalizers": []}}

        objects.update(kind, "team", name, free, now=NOW)
    assert namespaces.finish_deletion("team", now=NOW)


def test_a_namespace_that_is_held_does_not_tell_of_content_that_is_gone() -> None:
    manifest = {"metadata": {"name": "team"}, "spec": {"finalizers": ["example.com/own"]}}
    objects.create("Namespace", "", manifest, now=NOW)
    metadata = {"name": "held", "finalizers": ["example.com/a"]}
    objects.create("ConfigMap", "team", {"metadata": metadata}, now=NOW)
    objects.delete("Namespace", "", "team", now=NOW)
    assert not namespaces.finish_deletion("team", now=NOW)

    def free(manifest: Manifest) -> Manifest:
        return {**manifest, "metadata": {**manifest["metadata"], "finalizers": []}}

    objects.update("ConfigMap", "team", "held", free, now=NOW)
    assert not namespaces.finish_deletion("team", now=LATER)
    found = find_object("Namespace", "", "team")
    assert found is not None
    listed = decode_object(found)["status"]["conditions"]
    assert {one["type"]: (one["status"], one["reason"]) for one in listed} == {
        "NamespaceDeletionDiscoveryFailure": ("False", "ResourcesDiscovered"),
        "NamespaceDeletionGroupVersionParsingFailure": ("False", "ParsedGroupVersions"),
        "NamespaceDeletionContentFailure": ("False", "ContentDeleted"),
        "NamespaceContentRemaining": ("False", "ContentRemoved"),
        "NamespaceFinalizersRemaining": ("False", "ContentHasNoFinalizers"),
    }


def test_system_namespaces_cannot_be_deleted() -> None:
    with pytest.raises(Forbidden, match="this namespace may not be deleted"):
        objects.delete("Namespace", "", "kube-system", now=NOW)


def test_nothing_slips_into_a_namespace_while_it_is_being_marked() -> None:
    """The race that the admission epoch guards: the deletion is open while a pod is created."""
    objects.create("Namespace", "", {"metadata": {"name": "team"}}, now=NOW)
    new_pod("warm", namespace="team")
    marked, go_on = threading.Event(), threading.Event()

    def delete() -> None:
        with transaction.atomic():
            objects.delete("Namespace", "", "team", now=NOW)
            marked.set()
            assert go_on.wait(10)

    deleter = Worker(delete)
    assert marked.wait(10)
    creator = Worker(lambda: new_pod("late", namespace="team"))
    creator.join(0.3)
    assert creator.is_alive(), "the creation did not wait"
    go_on.set()
    deleter.result()
    with pytest.raises(Forbidden):
        creator.result()
    assert names(list_page("Pod", "team")) == ["warm"]


# What admission looks up ----------------------------------------------------------------------


def test_a_class_written_by_another_process_is_known_at_once() -> None:
    new_pod("warm")
    stale = catalogue.current()
    objects.create("PriorityClass", "", {"metadata": {"name": "high"}, "value": 7}, now=NOW)
    objects.create("Namespace", "", {"metadata": {"name": "team"}}, now=NOW)
    catalogue._memory.catalogue = stale
    create_pod(pod("a", namespace="team", priorityClassName="high"), now=NOW)
    assert manifest("Pod", "team", "a")["spec"]["priority"] == 7
    catalogue._memory.catalogue = stale
    objects.create(
        "Service", "team", {"metadata": {"name": "s"}, "spec": {"ports": [{"port": 80}]}}, now=NOW
    )
    # And one that is gone is refused.
    known = catalogue.reload()
    objects.delete("PriorityClass", "", "high", now=NOW)
    catalogue._memory.catalogue = known
    with pytest.raises(Forbidden, match="no PriorityClass with name high was found"):
        create_pod(pod("b", priorityClassName="high"), now=NOW)


def test_a_rolled_back_class_is_not_remembered() -> None:
    with transaction.atomic():
        objects.create("PriorityClass", "", {"metadata": {"name": "high"}, "value": 7}, now=NOW)
        create_pod(pod("a", priorityClassName="high"), now=NOW)
        transaction.set_rollback(True)
    with pytest.raises(Forbidden):
        create_pod(pod("a", priorityClassName="high"), now=NOW)


def test_a_transaction_remembers_its_own_classes_but_none_that_it_rolled_back() -> None:
    def create_class(name: str) -> None:
        objects.create("PriorityClass", "", {"metadata": {"name": name}, "value": 7}, now=NOW)

    with transaction.atomic():
        create_class("high")
        known = catalogue.current()
        assert catalogue.current() is known
        with transaction.atomic():
            create_class("low")
            create_pod(pod("a", priorityClassName="low"), now=NOW)
            transaction.set_rollback(True)
        assert catalogue.current() is known
        with pytest.raises(Forbidden):
            create_pod(pod("a", priorityClassName="low"), now=NOW)
        with transaction.atomic():
            sql.run("UPDATE priority_class SET name = 'middle' WHERE name = 'high'")
            read_inside = catalogue.reload()
            assert catalogue.current() is read_inside
            transaction.set_rollback(True)
        create_pod(pod("a", priorityClassName="high"), now=NOW)


# Events ---------------------------------------------------------------------------------------


def scheduled(name: str, message: str = "Successfully assigned", **more: str) -> Occurrence:
    return Occurrence(
        kind="Pod",
        namespace="default",
        name=name,
        uid=str(uuid.uuid5(uuid.NAMESPACE_DNS, name)),
        reason=more.get("reason", "Scheduled"),
        message=message,
        type=more.get("type", "Normal"),
    )


def test_events_are_recorded_in_bulk_and_counted_when_repeated() -> None:
    assert events.record_many([scheduled(f"p{i}") for i in range(5)], now=NOW) == 5
    start = changes.watermark()
    events.record_many([scheduled("p1", "again"), scheduled("p1", "and again")], now=LATER)
    page = list_page("Event", "default", field_selector="involvedObject.name=p1")
    (event,) = [decode_object(item) for item in page.items]
    assert event["count"] == 3
    assert event["message"] == "and again"
    assert event["firstTimestamp"] == moment()
    assert event["lastTimestamp"] == moment(300)
    assert event["source"] == {"component": "default-scheduler"}
    assert (event["eventTime"], event["action"]) == (moment().replace("Z", ".000000Z"), "Binding")
    assert event["reportingInstance"] == "default-scheduler"
    assert event["involvedObject"]["kind"] == "Pod"
    (change,) = everything_since(start)
    assert (change.kind, change.verb) == ("Event", changes.MODIFIED)
    assert event_manifests([change.object_id])[change.object_id] == (page.items[0], True)


def test_a_clients_event_is_kept_as_sent_and_can_be_changed_and_deleted() -> None:
    body = {
        "metadata": {"name": "e", "labels": {"from": "me"}},
        "involvedObject": {"kind": "Node", "name": "n1", "uid": "n1"},
        "reason": "Rebooted",
        "message": "m",
        "type": "Warning",
        "source": {"component": "agent", "host": "n1"},
        "firstTimestamp": moment(-3600),
        "lastTimestamp": moment(-60),
        "count": 2,
    }
    stored = objects.create("Event", "default", body, now=NOW)
    assert get_object("Event", "default", "e") == stored.manifest
    for selector in (
        "involvedObject.uid=n1,involvedObject.namespace=",
        "reason=Rebooted,type!=Normal",
        "source=agent",
    ):
        assert names(list_page("Event", field_selector=selector)) == ["e"]
    assert names(list_page("Event", label_selector="from=me")) == ["e"]
    objects.update("Event", "default", "e", lambda m: {**m, "count": 3}, now=NOW)
    assert manifest("Event", "default", "e")["count"] == 3
    assert objects.delete("Event", "default", "e", now=NOW).gone
    assert find_object("Event", "default", "e") is None


def test_a_recorded_event_can_be_deleted_and_recorded_again() -> None:
    events.record_many([scheduled("p1")], now=NOW)
    (name,) = names(list_page("Event"))
    objects.delete("Event", "default", name, now=NOW)
    assert events.record_many([scheduled("p1")], now=NOW) == 1


def test_events_end_an_hour_after_they_happened_last() -> None:
    events.record_many([scheduled("old")], now=NOW)
    events.record_many([scheduled("new")], now=NOW + dt.timedelta(minutes=30))
    history.trim(now=NOW + dt.timedelta(minutes=61), keep_seconds=10**6)
    (event,) = [decode_object(item) for item in list_page("Event").items]
    assert event["involvedObject"]["name"] == "new"


# Preconditions --------------------------------------------------------------------------------


def test_replacing_with_an_old_resource_version_is_a_conflict_for_any_kind() -> None:
    create_node("n1")
    old = manifest("Node", "", "n1")
    objects.update("Node", "", "n1", lambda m: {**m, "spec": {"unschedulable": True}}, now=NOW)
    with pytest.raises(Conflict, match=r'^Operation cannot be fulfilled on nodes "n1": the object'):
        objects.update("Node", "", "n1", lambda _: old, now=NOW)


def test_a_node_is_labelled_with_its_name() -> None:
    """R26: nodes publish a label for every scheduling domain; the name is the smallest."""
    create_node("n1")
    create_node("n2", labels={"kubernetes.io/hostname": "other", "zone": "a"})
    assert manifest("Node", "", "n1")["metadata"]["labels"] == {"kubernetes.io/hostname": "n1"}
    assert manifest("Node", "", "n2")["metadata"]["labels"] == {
        "kubernetes.io/hostname": "other",
        "zone": "a",
    }
