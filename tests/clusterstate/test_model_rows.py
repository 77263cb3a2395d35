"""Django's own methods on rows of objects: they change what everybody reads, or say how it is done.

No write of a row is silent: each model of stored objects is tried here.
"""

import copy
from typing import Any

import pytest
from django.core import serializers
from django.db.models import F, Model

from clusterstate import models
from clusterstate.actions.cluster import bootstrap
from clusterstate.change_log import changes
from clusterstate.models.rows import NotByRow, ObjectRow, ReadRow
from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.registry.kinds import ALL_KINDS, KINDS
from clusterstate.objects.values.errors import AlreadyExists, Conflict, Invalid, NotFound
from clusterstate.queries.objects import get_manifest
from tests.api.bodies import body_of, named
from tests.clusterstate.support import NOW

pytestmark = pytest.mark.django_db(transaction=True)


@pytest.fixture(autouse=True)
def cluster(db: None) -> None:
    bootstrap.add_missing(now=NOW)
    models.Namespace.objects.create(name="ns")


LATER = (
    "Job", "Namespace", "PersistentVolume", "PersistentVolumeClaim", "PodGroup",
    "ReplicationController",
)  # fmt: skip
"""Kinds whose deletion the garbage collector, or who uses them, ends."""


def subclasses(base: type) -> list[type[Model]]:
    found = [sub for one in base.__subclasses__() for sub in [one, *subclasses(one)]]
    return [one for one in found if not one._meta.abstract and not one._meta.proxy]


def model_of(kind: Kind) -> type[Any]:
    return getattr(models, kind.name, models.GenericObject)


def new(kind: Kind, name: str = "one") -> Any:
    made = copy.deepcopy(body_of(kind, name))
    own = {"kind": kind.code} if model_of(kind) is models.GenericObject else {}
    return model_of(kind)(manifest=made, **({"namespace": "ns"} if kind.namespaced else {}), **own)


def stored(kind: Kind, name: str = "one") -> Any:
    return get_manifest(kind, "ns" if kind.namespaced else "", named(kind, name))


def test_every_model_of_objects_is_one_of_them() -> None:
    every = {model_of(kind) for kind in ALL_KINDS}
    assert every == set(subclasses(ObjectRow))
    assert set(subclasses(ReadRow)) == {models.Document, models.SchedulingClass}


@pytest.mark.parametrize("kind", ALL_KINDS, ids=lambda kind: kind.name)
def test_a_row_of_each_kind_is_created_changed_and_deleted_for_everybody(kind: Kind) -> None:
    mark = changes.watermark()
    row = new(kind)
    row.save()
    assert stored(kind)["metadata"]["uid"] == str(row.uid)
    assert (row.name, row.pk is not None) == (named(kind, "one"), True)
    with pytest.raises(AlreadyExists):
        new(kind).save()

    row = type(row).objects.get(pk=row.pk)
    said = row.manifest
    assert said == stored(kind)
    said["metadata"]["labels"] = {"by": "row"}
    row.manifest = said
    row.save()
    assert stored(kind)["metadata"]["labels"]["by"] == "row"
    assert str(row.revision) == stored(kind)["metadata"]["resourceVersion"]

    stale = {**said, "metadata": {**said["metadata"], "labels": {"by": "stale"}}}
    row.manifest = stale
    with pytest.raises(Conflict):
        row.save()

    type(row).objects.filter(pk=row.pk).delete()
    if kind.name not in LATER:
        with pytest.raises(NotFound):
            stored(kind)
    else:  # it goes when its content, or who uses it, has gone
        assert stored(kind)["metadata"]["deletionTimestamp"]
    if kind.name != "Event":
        found = changes.read_since(mark, kinds={kind.name}, documents={kind.name}).items
        assert [one.verb for one in found][:2] == [changes.ADDED, changes.MODIFIED]


@pytest.mark.parametrize("kind", ALL_KINDS, ids=lambda kind: kind.name)
def test_what_only_the_object_can_say_is_refused_with_a_sentence(kind: Kind) -> None:
    row = new(kind)
    row.save()
    before = stored(kind)
    row.revision += 1
    with pytest.raises(NotByRow, match="set row"):
        row.save()
    row.refresh_from_db()
    with pytest.raises(NotByRow, match="set row"):
        type(row).objects.filter(pk=row.pk).update(revision=10**6)
    with pytest.raises(NotByRow, match="not by expressions"):
        type(row).objects.filter(pk=row.pk).update(revision=F("revision") + 1)
    with pytest.raises(NotByRow, match="not by expressions"):
        type(row).objects.update(name=F("name"))
    text = serializers.serialize("json", [row])
    for one in serializers.deserialize("json", text):
        with pytest.raises(NotByRow, match="is not written alone"):
            one.save()
    assert stored(kind) == before


def test_a_node_is_created_by_its_columns() -> None:
    models.Node.objects.create(
        name="n", labels={"a": "b"}, cpu_milli=4000, memory_bytes=8 << 30, pods=110,
        extended={"example.com/gpu": 2},
    )  # fmt: skip
    node = get_manifest("Node", "", "n")
    assert node["metadata"]["labels"]["a"] == "b"
    assert node["status"]["allocatable"] == {
        "cpu": "4", "memory": "8589934592", "pods": "110", "example.com/gpu": "2",
        "ephemeral-storage": "0",
    }  # fmt: skip
    row = models.Node.objects.get(name="n")
    assert (row.cpu_milli, row.pods, row.extended) == (4000, 110, {"example.com/gpu": 2})

    row.unschedulable, row.cpu_milli, row.labels = True, 8000, {"a": "c"}
    row.save()
    node = get_manifest("Node", "", "n")
    assert (node["spec"]["unschedulable"], node["metadata"]["labels"]["a"]) == (True, "c")
    assert node["status"]["allocatable"]["cpu"] == "8"
    assert [one["key"] for one in node["spec"].get("taints", [])] == [
        "node.kubernetes.io/unschedulable"
    ] or "taints" not in node["spec"]

    assert models.Node.objects.filter(name="n").update(unschedulable=False) == 1
    assert not get_manifest("Node", "", "n")["spec"].get("unschedulable")
    with pytest.raises(Invalid):
        models.Node.objects.create(name="Not A Name")


def test_classes_are_created_by_their_columns() -> None:
    models.PriorityClass.objects.create(name="high", value=1000)
    assert get_manifest("PriorityClass", "", "high")["value"] == 1000
    models.RuntimeClass.objects.create(name="r", handler="h", overhead={"podFixed": {"cpu": "1"}})
    assert get_manifest("RuntimeClass", "", "r")["overhead"] == {"podFixed": {"cpu": "1"}}
    # Columns that the database composes are written at once, for all of them.
    models.RuntimeClass.objects.update(overhead={"podFixed": {"cpu": "2"}})
    assert get_manifest("RuntimeClass", "", "r")["overhead"] == {"podFixed": {"cpu": "2"}}


def test_many_are_created_together_or_none() -> None:
    nodes = [models.Node(name=f"n{number}") for number in range(3)]
    models.Node.objects.bulk_create(nodes)
    assert {node.name for node in models.Node.objects.all()} == {"n0", "n1", "n2"}
    with pytest.raises(AlreadyExists):
        models.Node.objects.bulk_create([models.Node(name="m"), models.Node(name="n0")])
    assert not models.Node.objects.filter(name="m").exists()
    with pytest.raises(NotByRow):
        models.Node.objects.bulk_create([models.Node(name="m")], ignore_conflicts=True)
    for node in nodes:
        node.unschedulable = True
    assert models.Node.objects.bulk_update(nodes, ["unschedulable"]) == 3
    assert all(get_manifest("Node", "", f"n{n}")["spec"]["unschedulable"] for n in range(3))
    assert models.Node.objects.all().delete()[0] == 3
    with pytest.raises(NotFound):
        get_manifest("Node", "", "n0")
    node, is_new = models.Node.objects.get_or_create(name="got")
    assert (is_new, get_manifest("Node", "", "got")["metadata"]["uid"]) == (True, str(node.uid))
    models.Node.objects.update_or_create(name="got", defaults={"unschedulable": True})
    assert get_manifest("Node", "", "got")["spec"]["unschedulable"]


def test_a_pod_needs_its_object() -> None:
    with pytest.raises(NotByRow, match=r"Pod\.objects\.create\(manifest="):
        models.Pod.objects.create(namespace="ns", name="p")
    made = models.Pod.objects.create(namespace="ns", manifest=body_of(KINDS["Pod"], "p"))
    made.node_name = "n"
    with pytest.raises(NotByRow, match=r"Pod\.node_name is computed from the object"):
        made.save()
    assert "nodeName" not in get_manifest("Pod", "ns", made.name)["spec"]


def test_rows_that_belong_to_objects_are_only_read() -> None:
    document = models.Document.objects.first()
    assert document is not None
    for write in (
        document.save,
        document.delete,
        models.Document.objects.all().delete,
        lambda: models.Document.objects.update(text="{}"),
        lambda: models.Document.objects.create(text="{}"),
        lambda: models.Document.objects.bulk_create([models.Document(text="{}")]),
    ):
        with pytest.raises(NotByRow):
            write()
