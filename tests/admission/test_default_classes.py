"""Objects that name no class get the one that is marked as default."""

import pytest

from tests.admission.context import Known, create

CLAIM = {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}
INGRESS = {"defaultBackend": {"service": {"name": "web", "port": {"number": 80}}}}
KINDS = {
    "PersistentVolumeClaim": (
        CLAIM, "StorageClass", "storageClassName", "storageclass.kubernetes.io/is-default-class",
        "volume.beta.kubernetes.io/storage-class",
    ),
    "Ingress": (
        INGRESS, "IngressClass", "ingressClassName", "ingressclass.kubernetes.io/is-default-class",
        "kubernetes.io/ingress.class",
    ),
}  # fmt: skip
each = pytest.mark.parametrize("kind", KINDS)


def a_class(name, mark, value="true", hour=1):
    created = f"2026-01-01T0{hour}:00:00Z"
    annotations = {mark: value}
    return {"metadata": {"name": name, "creationTimestamp": created, "annotations": annotations}}


def given(kind, *classes, metadata=(), **spec):
    base, of, field, *_ = KINDS[kind]
    manifest = {
        "kind": kind,
        "metadata": {"name": "x", "namespace": "default", **dict(metadata)},
        "spec": {**base, **spec},
    }
    return create(manifest, Known(classes={of: classes}), kind=kind).manifest["spec"].get(field)


@each
def test_the_class_that_is_marked(kind):
    mark = KINDS[kind][3]
    plain = a_class("a", mark, "false")
    assert given(kind, plain) is None
    assert given(kind, plain, a_class("b", mark)) == "b"


@each
def test_the_newest_of_several_then_the_first_by_name(kind):
    mark = KINDS[kind][3]
    classes = [a_class("z", mark), a_class("c", mark, hour=2), a_class("b", mark, hour=2)]
    assert given(kind, *classes) == "b"


@each
def test_who_names_a_class_keeps_it(kind):
    _, _, field, mark, named_by = KINDS[kind]
    marked = a_class("b", mark)
    assert given(kind, marked, **{field: "own"}) == "own"
    assert given(kind, marked, metadata={"annotations": {named_by: "old"}}) is None


def test_a_claim_for_volumes_without_a_class_gets_none():
    mark = KINDS["PersistentVolumeClaim"][3]
    assert given("PersistentVolumeClaim", a_class("b", mark), storageClassName="") == ""


def test_the_older_mark_of_storage_classes_counts():
    older = "storageclass.beta.kubernetes.io/is-default-class"
    assert given("PersistentVolumeClaim", a_class("b", older)) == "b"
