"""New volumes and claims say that they stay while they are used."""

import pytest

from clusterstate.admission import UPDATE, admit
from clusterstate.objects.rules.ownership import PROTECTIONS
from tests.admission.context import NOBODY, Known, create

SPECS = {
    "PersistentVolume": {
        "capacity": {"storage": "1Gi"}, "accessModes": ["ReadWriteOnce"],
        "hostPath": {"path": "/data"},
    },
    "PersistentVolumeClaim": {
        "accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}},
    },
}  # fmt: skip
each = pytest.mark.parametrize("kind", SPECS)


def manifest(kind, *finalizers):
    place = {} if kind == "PersistentVolume" else {"namespace": "default"}
    metadata = {"name": "x", "resourceVersion": "1", **place}
    if finalizers:
        metadata["finalizers"] = list(finalizers)
    return {"kind": kind, "metadata": metadata, "spec": SPECS[kind]}


@each
@pytest.mark.parametrize(
    "given", [(), ("example.com/mine",), ("P",), ("P", "example.com/mine")], ids=len
)
def test_a_new_object_has_the_finalizer_of_its_kind_once_behind_others(kind, given):
    protection = PROTECTIONS[kind]
    sent = [protection if one == "P" else one for one in given]
    stored = create(manifest(kind, *sent), Known(), kind=kind).manifest["metadata"]["finalizers"]
    assert stored == (sent if protection in sent else [*sent, protection])


@each
def test_an_update_gives_no_finalizer_back(kind):
    old = manifest(kind, "example.com/mine")
    new = manifest(kind)
    stored = admit(kind, UPDATE, new, old, "", Known(), NOBODY).manifest
    assert "finalizers" not in stored["metadata"]
