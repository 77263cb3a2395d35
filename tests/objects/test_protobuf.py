"""Kubernetes' objects in protobuf, held against Google's own library and against JSON."""

import base64
import datetime as dt
import random
import struct
from collections.abc import Callable
from functools import cache
from typing import Any

import msgspec
import pytest
from google.protobuf import descriptor_pb2, descriptor_pool, message_factory, unknown_fields
from hypothesis import given
from hypothesis import strategies as st

from clusterstate.objects.wire import protobuf
from clusterstate.objects.wire.protobuf import (
    TooManyValues,
    UnknownKind,
    decode,
    encode,
    encode_text,
)
from clusterstate.objects.wire.protobuf_fields import MESSAGES
from clusterstate.objects.wire.protobuf_values import Malformed, with_length

KINDS = sorted(
    name
    for name, text in MESSAGES.items()
    if text.startswith("metadata 1 meta.v1.") and not name.startswith("meta.v1.")
)
"""Every message of an object or a list that a client may send."""
GROUPS = {
    "core": "", "events": "events.k8s.io/", "node": "node.k8s.io/", "storage": "storage.k8s.io/",
    "rbac": "rbac.authorization.k8s.io/", "networking": "networking.k8s.io/",
    "scheduling": "scheduling.k8s.io/", "coordination": "coordination.k8s.io/",
    "discovery": "discovery.k8s.io/", "resource": "resource.k8s.io/",
    "authentication": "authentication.k8s.io/", "authorization": "authorization.k8s.io/",
    "certificates": "certificates.k8s.io/",
}  # fmt: skip

ALPHABET = "ab/.-\u00e9\u4e16\U0001f600 "


def text(chance: random.Random) -> str:
    return "".join(chance.choice(ALPHABET) for _ in range(chance.randint(1, 5)))


def moment(chance: random.Random) -> dt.datetime:
    first, last = dt.datetime(1, 1, 1, tzinfo=dt.UTC), dt.datetime(9999, 12, 31, tzinfo=dt.UTC)
    return first + dt.timedelta(microseconds=chance.randrange((last - first) // MICROSECOND))


def integer(chance: random.Random, bits: int) -> int:
    edge = 1 << (bits - 1)
    return chance.choice([0, 1, -1, 127, 128, edge - 1, -edge, chance.randrange(-edge, edge)])


MICROSECOND = dt.timedelta(microseconds=1)
VALUES: dict[str, Callable[[random.Random], Any]] = {
    "string": text,
    "int32": lambda chance: integer(chance, 32),
    "int64": lambda chance: integer(chance, 64),
    "bool": lambda chance: chance.random() < 0.5,
    "bytes": lambda chance: base64.b64encode(chance.randbytes(3)).decode(),
    "quantity": lambda chance: chance.choice(["0", "1", "100m", "5Gi", "1e3"]),
    "int-or-string": lambda chance: chance.choice([0, 80, -1, 2**31 - 1, "25%"]),
    "time": lambda chance: moment(chance).strftime("%Y-%m-%dT%H:%M:%SZ").rjust(20, "0"),
    "micro-time": lambda chance: moment(chance).strftime("%Y-%m-%dT%H:%M:%S.%fZ").rjust(27, "0"),
    "json": lambda chance: {text(chance): chance.choice([1, "a", [True], None])},
    "strings": lambda chance: [text(chance) for _ in range(chance.randint(1, 2))],
}


def manifest_of(message: str, chance: random.Random, depth: int = 0) -> dict[str, Any]:
    """Return a message as JSON has it: what Go would write, no zero where there is no pointer."""
    result: dict[str, Any] = {}
    fields = protobuf._fields(message)
    for field in chance.sample(fields, min(len(fields), chance.randint(0, 6))):

        def one(kind: str = field.kind) -> Any:
            if kind in VALUES:
                return VALUES[kind](chance)
            return manifest_of(kind, chance, depth + 1)

        if field.kind not in VALUES and depth == 6:
            continue
        if field.shape == protobuf._MANY:
            result[field.name] = [one() for _ in range(chance.randint(1, 2))]
        elif field.shape == protobuf._MAP:
            result[field.name] = {text(chance): one() for _ in range(chance.randint(1, 2))}
        elif field.shape == protobuf._INLINE:
            result.update(one())
        elif (drawn := one()) or field.pointer:
            result[field.name] = drawn
    return result


@st.composite
def objects(draw: st.DrawFn) -> dict[str, Any]:
    message = draw(st.sampled_from(KINDS))
    version, kind = api_version(message)
    chance = random.Random(draw(st.integers(0, 2**32)))
    return {"apiVersion": version, "kind": kind, **manifest_of(message, chance)}


def api_version(message: str) -> tuple[str, str]:
    group, version, kind = message.split(".")
    return GROUPS.get(group, f"{group}/") + version, kind


@given(objects())
def test_json_to_protobuf_to_json_is_the_identity(manifest: dict[str, Any]) -> None:
    assert decode(encode(manifest)) == manifest


# --- Google's library as the judge ----------------------------------------------------------------

_SCALARS = {"string": 9, "bytes": 12, "bool": 8, "int32": 5, "int64": 3}
_SPECIAL = {
    "quantity": "Quantity", "int-or-string": "IntOrString", "time": "Timestamp",
    "micro-time": "Timestamp", "json": "Raw", "strings": "Strings",
}  # fmt: skip


@cache
def library() -> descriptor_pool.DescriptorPool:
    """Return the messages as Google's library knows them, made from the same field numbers."""
    file = descriptor_pb2.FileDescriptorProto(name="all.proto", package="k", syntax="proto2")

    def add(name: str, *fields: tuple[str, int, int]) -> None:
        message = file.message_type.add(name=name)
        for field, number, kind in fields:
            message.field.add(name=field, number=number, type=kind, label=1)

    add("Quantity", ("string", 1, 9))
    add("IntOrString", ("type", 1, 3), ("intVal", 2, 5), ("strVal", 3, 9))
    add("Timestamp", ("seconds", 1, 3), ("nanos", 2, 5))
    add("Raw", ("raw", 1, 12))
    file.message_type.add(name="Strings").field.add(name="items", number=1, type=9, label=3)
    for name in MESSAGES:
        message = file.message_type.add(name=name.replace(".", "_"))
        for field in protobuf._fields(name):
            label = 3 if field.shape in (protobuf._MANY, protobuf._MAP) else 1
            entry = message.field.add(name=field.name, number=field.number, label=label)
            target = entry
            if field.shape == protobuf._MAP:
                inner = message.nested_type.add(
                    name=f"{field.name[0].upper()}{field.name[1:]}Entry"
                )
                inner.options.map_entry = True
                inner.field.add(name="key", number=1, type=9, label=1)
                target = inner.field.add(name="value", number=2, label=1)
                entry.type = 11
                entry.type_name = f".k.{message.name}.{inner.name}"
            if field.kind in _SCALARS:
                target.type = _SCALARS[field.kind]
            else:
                target.type = 11
                known = _SPECIAL.get(field.kind, field.kind.replace(".", "_"))
                target.type_name = f".k.{known}"
    pool = descriptor_pool.DescriptorPool()
    pool.Add(file)
    return pool


def parsed(message: str, raw: bytes) -> Any:
    found = library().FindMessageTypeByName(f"k.{message.replace('.', '_')}")
    made = message_factory.GetMessageClass(found)()
    made.ParseFromString(raw)
    return made


@given(objects())
def test_the_library_reads_what_we_write_and_we_read_what_the_library_writes(
    manifest: dict[str, Any],
) -> None:
    message = protobuf.message_of(manifest["apiVersion"], manifest["kind"])
    assert message is not None
    envelope = parsed("runtime.Unknown", encode(manifest).removeprefix(protobuf.MAGIC))
    assert envelope.typeMeta.apiVersion == manifest["apiVersion"]
    assert envelope.typeMeta.kind == manifest["kind"]
    theirs = parsed(message, envelope.raw)
    assert len(unknown_fields.UnknownFieldSet(theirs)) == 0
    envelope.raw = theirs.SerializeToString()
    assert decode(protobuf.MAGIC + envelope.SerializeToString()) == manifest


@given(objects())
def test_a_text_is_written_as_its_object_is(manifest: dict[str, Any]) -> None:
    text = msgspec.json.encode(manifest)
    assert encode_text(text) == encode(manifest)
    assert encode_text(text) == encode(manifest), "what is remembered is something else"


def test_a_text_of_a_list_is_written_as_the_list_is() -> None:
    pods = [
        {
            "metadata": {"name": f"p-{number}", "labels": {"app": "a", "long": "x" * number}},
            "spec": {"nodeName": None, "containers": [{"name": "c", "image": f"i:{number % 2}"}]},
            "status": {"phase": "Running"},
        }
        for number in (1, 2, 3, 4000)
    ]
    found = {"apiVersion": "v1", "kind": "PodList", "metadata": {}, "items": pods}
    assert encode_text(msgspec.json.encode(found)) == encode(found)
    with pytest.raises(UnknownKind):
        encode_text(b'{"apiVersion":"stowage.dev/v1","kind":"PlanList","items":[]}')


def test_values_stand_where_the_library_looks_for_them() -> None:
    manifest = {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": "a", "labels": {"x": "y"}, "creationTimestamp": "2026-11-22T01:02:03Z",
        },
        "spec": {
            "containers": [{"name": "c", "resources": {"requests": {"cpu": "250m"}}}],
            "volumes": [{"name": "v", "emptyDir": {}}],
            "tolerations": [{"key": "k", "tolerationSeconds": 0}],
        },
    }  # fmt: skip
    envelope = parsed("runtime.Unknown", encode(manifest).removeprefix(protobuf.MAGIC))
    pod = parsed("core.v1.Pod", envelope.raw)
    assert pod.metadata.name == "a"
    assert dict(pod.metadata.labels) == {"x": "y"}
    assert pod.metadata.creationTimestamp.seconds == 1795309323
    assert pod.spec.containers[0].resources.requests["cpu"].string == "250m"
    assert pod.spec.volumes[0].volumeSource.HasField("emptyDir")
    assert pod.spec.tolerations[0].HasField("tolerationSeconds")


# --- What Go writes -------------------------------------------------------------------------------


def test_fields_that_go_writes_empty_count_as_absent_and_pointers_to_zero_do_not() -> None:
    kind = library().FindMessageTypeByName("k.apps_v1_Deployment")
    deployment = message_factory.GetMessageClass(kind)()
    deployment.metadata.name = ""
    deployment.metadata.generation = 0
    deployment.metadata.creationTimestamp.SetInParent()
    deployment.spec.replicas = 0
    deployment.spec.paused = False
    deployment.spec.selector.SetInParent()
    deployment.spec.strategy.type = ""
    deployment.spec.template.spec.SetInParent()
    body = protobuf.envelope("apps/v1", "Deployment", deployment.SerializeToString())
    assert decode(body) == {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "spec": {"replicas": 0, "selector": {}},
    }


def test_unknown_fields_of_every_wire_type_are_skipped() -> None:
    raw = b"\x0a\x03\x0a\x01a"  # metadata.name = a
    more = b"\x98\x75\x07" + b"\x99\x75" + b"8" * 8 + b"\x9a\x75\x02xy" + b"\x9d\x75" + b"4" * 4
    assert decode(protobuf.envelope("v1", "Namespace", more + raw + more))["metadata"] == {
        "name": "a"
    }


def test_a_value_that_protobuf_has_no_field_for_is_left_out() -> None:
    manifest = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a", "strange": 1}}
    assert decode(encode(manifest))["metadata"] == {"name": "a"}


def test_our_own_field_survives() -> None:
    """R2."""
    terms = {
        "nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "Exists"}]}]
    }
    affinity = {"nodeAffinity": {"requiredDuringSchedulingRequiredDuringExecution": terms}}
    manifest = {"apiVersion": "v1", "kind": "Pod", "spec": {"affinity": affinity}}
    assert decode(encode(manifest)) == manifest


def test_a_raw_extension_may_hold_an_object_in_protobuf() -> None:
    inner = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}}
    revision = message_factory.GetMessageClass(
        library().FindMessageTypeByName("k.apps_v1_ControllerRevision")
    )()
    revision.data.raw = encode(inner)
    body = protobuf.envelope("apps/v1", "ControllerRevision", revision.SerializeToString())
    assert decode(body)["data"] == inner


def test_a_watch_event_is_framed_by_its_length() -> None:
    body = encode({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}})
    frame = protobuf.watch_event("ADDED", body)
    assert struct.unpack(">I", frame[:4])[0] == len(frame) - 4
    event = parsed("meta.v1.WatchEvent", frame[4:])
    assert event.type == "ADDED"
    assert decode(event.object.raw)["metadata"] == {"name": "a"}


@pytest.mark.parametrize(
    ("version", "kind", "message"),
    [
        ("v1", "Pod", "core.v1.Pod"),
        ("rbac.authorization.k8s.io/v1", "Role", "rbac.v1.Role"),
        ("policy/v1", "DeleteOptions", "meta.v1.DeleteOptions"),
        ("policy/v1beta1", "PodDisruptionBudget", "policy.v1.PodDisruptionBudget"),
        ("stowage.dev/v1", "Plan", None),
        ("", "", None),
        ("v1/..", "../Pod", None),
    ],
)
def test_a_kind_finds_its_message(version: str, kind: str, message: str | None) -> None:
    assert protobuf.message_of(version, kind) == message


# --- Hostile bodies -------------------------------------------------------------------------------


@given(objects(), st.data())
def test_a_damaged_body_is_malformed_or_another_object(
    manifest: dict[str, Any], data: st.DataObject
) -> None:
    body = bytearray(encode(manifest))
    at = data.draw(st.integers(0, len(body) - 1))
    body[at] = data.draw(st.integers(0, 255))
    cut = data.draw(st.integers(0, len(body)))
    for damaged in (bytes(body), bytes(body[:cut])):
        try:
            msgspec.json.encode(decode(damaged))
        except (Malformed, UnknownKind):
            continue


@given(st.binary(max_size=60))
def test_noise_is_malformed_or_an_object(noise: bytes) -> None:
    try:
        msgspec.json.encode(decode(protobuf.envelope("v1", "Pod", noise)))
    except Malformed:
        return


def test_a_body_of_too_many_values_is_refused_while_it_is_read() -> None:
    many = b"\x72\x00" * 1000  # metadata.finalizers: empty texts of two bytes each
    body = protobuf.envelope("v1", "Namespace", b"\x0a" + with_length(many))
    assert len(decode(body)["metadata"]["finalizers"]) == 1000
    with pytest.raises(TooManyValues):
        decode(body, most=999)


def test_objects_in_objects_without_end_are_refused() -> None:
    body = encode({"apiVersion": "v1", "kind": "Namespace"})
    for _ in range(3000):
        raw = b"\x12" + with_length(b"\x0a" + with_length(body))
        body = protobuf.envelope("apps/v1", "ControllerRevision", raw)
    with pytest.raises(Malformed, match="deep"):
        decode(body)


@pytest.mark.parametrize(
    "manifest",
    [
        {"metadata": {"creationTimestamp": "yesterday"}},
        {"data": {"a": "no base64!"}},
    ],
)
def test_a_value_without_a_form_in_protobuf_is_said(manifest: dict[str, Any]) -> None:
    with pytest.raises(Malformed):
        encode({"apiVersion": "v1", "kind": "Secret", **manifest})
