"""Pods alike but for their names are admitted once; the result is what each would have got."""

from typing import Any

import msgspec
import pytest

from clusterstate.actions.pods.preparing import prepare_pod, prepare_without_template
from clusterstate.admission.request import AdmissionSettings, User
from clusterstate.catalogue import Catalogue
from clusterstate.objects.values import document
from clusterstate.objects.values.errors import StatusError
from tests.clusterstate.support import LATER, NOW, pod

OWNER = {"apiVersion": "v1", "kind": "ReplicaSet", "name": "r", "uid": "u", "controller": True}
SPREAD = {
    "maxSkew": 1,
    "topologyKey": "zone",
    "whenUnsatisfiable": "DoNotSchedule",
    "labelSelector": {"matchLabels": {"app": "other"}},
    "matchLabelKeys": ["hash"],
}
CLAIM = {"spec": {"accessModes": ["ReadWriteOnce"], "resources": {"requests": {"storage": "1Gi"}}}}

SHAPES: dict[str, dict[str, Any]] = {
    "plain": {},
    "labels": {"labels": {"app": "a", "hash": "1"}},
    "annotations": {"annotations": {"z": "\x01 é \u2028 \"uid\":\"", "a": ""}},
    "finalizers": {"finalizers": ["example.com/f"]},
    "spread with label keys and a warning": {
        "labels": {"hash": "7"}, "topologySpreadConstraints": [SPREAD],
    },
    "priority": {"priorityClassName": "high"},
    "no such priority": {"priorityClassName": "none"},
    "runtime class": {"runtimeClassName": "gvisor"},
    "no such runtime class": {"runtimeClassName": "none"},
    "dedicated namespace": {"namespace": "team"},
    "namespace that ends": {"namespace": "leaving"},
    "no such namespace": {"namespace": "none"},
    "gated": {"schedulingGates": [{"name": "example.com/g"}]},
    "placed": {"nodeName": "n1"},
    "ephemeral claim": {"volumes": [{"name": "v", "ephemeral": {"volumeClaimTemplate": CLAIM}}]},
    "other scheduler": {"schedulerName": "mine"},
    "nulls": {"nodeSelector": None, "tolerations": None, "labels": {"a": None}},
    "wrong label": {"labels": {"a b": "c"}},
    "wrong request": {"cpu": "-1"},
    "wrong restart policy": {"restartPolicy": "Sometimes"},
    "unknown fields": {"surprise": {"b": [1, 1.0, None], "a": True}},
    "large": {"annotations": {"a": "x" * 20_000}},
}  # fmt: skip
NAMES = ("first", "second", "a.b", "x" * 253, "x" * 254, "", "Not A Name", 'q"', "é", "first")


LIMITS = {"limits": [{"type": "Container", "defaultRequest": {"cpu": "150m"}}]}


def stored(kind: str, name: str, **rest: Any) -> tuple[str, str, str, int]:
    manifest = {"kind": kind, "metadata": {"name": name, **rest.pop("metadata", {})}, **rest}
    return "", name, document.encode(kind, manifest)[0], 1


def catalogue(**settings: Any) -> Catalogue:
    dedicated = {"annotations": {"scheduling.stowage.dev/dedicated": "blue"}}
    return Catalogue(
        1,
        {
            "Namespace": [
                stored("Namespace", "default"),
                stored("Namespace", "team", metadata=dedicated),
                stored("Namespace", "leaving", status={"phase": "Terminating"}),
            ],
            "RuntimeClass": [
                stored(
                    "RuntimeClass", "gvisor", handler="runsc", overhead={"podFixed": {"cpu": "1"}},
                    scheduling={"nodeSelector": {"runtime": "gvisor"}},
                ),
            ],
            "PriorityClass": [stored("PriorityClass", "high", value=1000)],
            "LimitRange": [
                ("team", *stored("LimitRange", "small", spec=LIMITS)[1:]),
            ],
        },
        None,
        AdmissionSettings(**settings),
    )  # fmt: skip


def outcome(prepare: Any, manifest: dict[str, Any], now: Any, context: Catalogue) -> Any:
    """Return everything that would be stored, with the uid blotted out, or the whole error."""
    try:
        result = prepare(manifest, "", now, User(name="u", groups=("g",)), context)
    except StatusError as error:
        return type(error), str(error), error.details
    prepared = result[0] if isinstance(result, tuple) else result
    assert str(prepared.uid) in prepared.text
    uid = str(prepared.uid)
    found = {**msgspec.structs.asdict(prepared), "uid": ""}
    if uid in found["spec"]:  # the class of a pod with a claim of its own names the pod
        found["digest"] = b""
    return found | {name: found[name].replace(uid, "UID") for name in ("text", "spec")}


@pytest.mark.parametrize(
    "settings", [{}, {"pod_toleration_restriction": True, "wait_for_runtime_class": True}]
)
@pytest.mark.parametrize("shape", SHAPES)
def test_a_pod_from_a_template_is_the_pod_that_admission_makes(
    shape: str, settings: dict[str, Any]
) -> None:
    context = catalogue(**settings)
    for name in NAMES:
        for moment in (NOW, LATER):
            manifest = pod(**SHAPES[shape])
            manifest["metadata"] |= {"name": name, "ownerReferences": [OWNER], "zone": 1}
            before = msgspec.json.encode(manifest)
            plain = outcome(prepare_without_template, manifest, moment, catalogue(**settings))
            assert outcome(prepare_pod, manifest, moment, context) == plain
            assert msgspec.json.encode(manifest) == before


def test_pods_alike_share_a_template_and_others_do_not() -> None:
    context = catalogue()
    for number in range(5):
        prepare_pod(pod(f"p{number}"), "", NOW, User(), context)
    assert len(context.remembered) == 1
    different = [
        pod("p", labels={"a": "b"}), pod("p", annotations={"a": "b"}), pod("p", cpu="2"),
        pod("p", namespace="team"), pod(generateName="p-"),
    ]  # fmt: skip
    for manifest in different:
        prepare_pod(manifest, "", NOW, User(), context)
    assert len(context.remembered) == 1 + len(different)


def test_generated_names_of_a_template_differ() -> None:
    context = catalogue()
    made = [prepare_pod(pod(generateName="p-"), "", NOW, User(), context) for _ in range(20)]
    assert all(one.generated and one.name.startswith("p-") and len(one.name) == 7 for one in made)
    assert len({one.name for one in made}) > 10
    assert all(f'"name":"{one.name}"' in one.text for one in made)


@pytest.mark.parametrize("shape", ["gated", "placed", "ephemeral claim", "large"])
def test_pods_whose_name_or_time_matters_have_no_template(shape: str) -> None:
    context = catalogue()
    prepare_pod(pod("p", **SHAPES[shape]), "", NOW, User(), context)
    assert not context.remembered


def test_pods_of_agents_are_always_looked_at() -> None:
    """R130: what a node may create depends on its own objects."""
    context = catalogue()
    prepare_pod(pod("p"), "", NOW, User(), context)
    agent = User(name="system:node:n1", groups=("system:nodes",))
    with pytest.raises(StatusError):
        prepare_pod(pod("q"), "", NOW, agent, context)
