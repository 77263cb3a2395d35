"""Claims that grow, and what a class says of volumes on paper."""

from typing import Any

import pytest

from clusterstate.admission import UPDATE, admit
from clusterstate.objects.values.errors import Forbidden, Invalid
from clusterstate.objects.values.meta import Manifest
from tests.admission.context import NOBODY, Known, create

SUPPORT = (
    "only dynamically provisioned pvc can be resized and the storageclass that provisions the"
    " pvc must support resize"
)


def claim(size: str, *, class_name: str = "fast", phase: str = "Bound") -> Manifest:
    return {
        "apiVersion": "v1", "kind": "PersistentVolumeClaim",
        "metadata": {"name": "data", "namespace": "default", "resourceVersion": "1"},
        "spec": {
            "accessModes": ["ReadWriteOnce"], "storageClassName": class_name,
            "volumeMode": "Filesystem", "volumeName": "pv",
            "resources": {"requests": {"storage": size}},
        },
        "status": {"phase": phase, "capacity": {"storage": "1Gi"}},
    }  # fmt: skip


def classes(*, allows: bool | None) -> Known:
    one: dict[str, Any] = {"metadata": {"name": "fast"}, "provisioner": "stowage.dev/hollow"}
    if allows is not None:
        one["allowVolumeExpansion"] = allows
    return Known(classes={"StorageClass": (one,)})


def grow(known: Known, size: str = "2Gi", **members: Any) -> None:
    new, old = claim(size, **members), claim("1Gi", **members)
    admit("PersistentVolumeClaim", UPDATE, new, old, "", known, NOBODY)


def test_a_claim_grows_where_its_class_allows_it():
    grow(classes(allows=True))


@pytest.mark.parametrize("allows", [False, None])
def test_a_claim_whose_class_does_not_say_so_does_not_grow(allows: bool | None):
    with pytest.raises(Forbidden, match=SUPPORT):
        grow(classes(allows=allows))
    grow(classes(allows=allows), "1024Mi")  # as large as it was


def test_a_claim_without_a_class_does_not_grow():
    with pytest.raises(Forbidden, match=SUPPORT):
        grow(classes(allows=True), class_name="")


def test_a_claim_that_is_not_bound_does_not_grow():
    with pytest.raises(Invalid, match="spec is immutable after creation"):
        grow(classes(allows=True), phase="Pending")


@pytest.mark.parametrize(
    ("name", "text"),
    [("delay", "5"), ("delay", "soon"), ("delay", "-1s"), ("failures", "often"),
     ("capacity", "much"), ("capacity.zone-a", "1Gi2"), ("maximumVolumeSize", ""),
     ("capacity", "-1Gi"), ("capacity.zone-a", "1Gi"), ("topologyKey", "a b"),
     ("type", "gp3"), ("Capacity", "1Gi"), ("csi.storage.k8s.io/fstype", "ext4")],
)  # fmt: skip
def test_what_the_hollow_provisioner_could_not_read_is_refused(name: str, text: str):
    manifest = {
        "kind": "StorageClass", "metadata": {"name": "fast"},
        "provisioner": "stowage.dev/hollow", "parameters": {name: text},
    }  # fmt: skip
    with pytest.raises(Invalid) as refused:
        create(manifest, Known(), kind="StorageClass")
    assert f"parameters[{name}]" in refused.value.message
    other = {**manifest, "provisioner": "csi.example.com"}
    create(other, Known(), kind="StorageClass")


@pytest.mark.parametrize("text", ["0", "500ms", "1m30s", "1.5h"])
def test_durations_as_go_writes_them_are_taken(text: str):
    manifest = {
        "kind": "StorageClass", "metadata": {"name": "fast"},
        "provisioner": "stowage.dev/hollow", "parameters": {"delay": text, "failures": "always"},
    }  # fmt: skip
    create(manifest, Known(), kind="StorageClass")
