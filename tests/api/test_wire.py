"""What bodies decode to, and what is wrong with those that do not."""

import pytest

from api.forms import parsers, wire
from api.forms.errors import UnsupportedMediaType
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.values.errors import BadRequest
from clusterstate.objects.wire import reading

POD = KINDS["Pod"]
NODE = KINDS["Node"]


def pod(**spec):
    return {"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c"}], **spec}}


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1", True), ("t", True), ("T", True), ("true", True), ("TRUE", True), ("True", True),
        ("0", False), ("f", False), ("F", False), ("false", False), ("FALSE", False),
        ("False", False), ("", False), (None, False),
    ],
)  # fmt: skip
def test_booleans_are_read_as_go_reads_them(text, expected):
    assert wire.boolean(text, "watch") is expected


def test_another_word_is_no_boolean():
    with pytest.raises(BadRequest, match="invalid value"):
        wire.boolean("yes", "watch")


@pytest.mark.parametrize("text", ["-1", "1.5", "x", "\uff11", "9" * 30])
def test_numbers_are_plain_digits(text):
    with pytest.raises(BadRequest):
        wire.integer(text, "limit")


@pytest.mark.parametrize(
    "content_type", [None, "", "application/json", "application/json; charset=utf-8"]
)
def test_json_is_the_default(content_type):
    assert parsers.decode(b'{"a": 1}', content_type) == {"a": 1}


@pytest.mark.parametrize("content_type", ["application/yaml", "application/x-yaml", "text/yaml"])
def test_yaml_is_read(content_type):
    assert parsers.decode(b"a: 1\nb: [x, 'y']\n", content_type) == {"a": 1, "b": ["x", "y"]}


def test_yaml_times_stay_text_and_keys_become_text():
    text = b"at: 2021-01-01T00:00:00Z\nday: 2021-01-01\n2: one\ntrue: two\n"
    assert parsers.decode(text, "application/yaml") == {
        "at": "2021-01-01T00:00:00Z", "day": "2021-01-01", "2": "one", "true": "two",
    }  # fmt: skip


@pytest.mark.parametrize(
    "content_type", ["application/x-www-form-urlencoded", "application/cbor", "text/plain"]
)
def test_other_formats_are_refused(content_type):
    with pytest.raises(UnsupportedMediaType, match="application/json"):
        parsers.decode(b"{}", content_type)


@pytest.mark.parametrize(
    "raw", [b"", b"{", b'{"a":NaN}', b'{"a":1}x', b"\xff\xfe", b"[" * 100_000 + b"]" * 100_000]
)
def test_malformed_json_is_a_bad_request(raw):
    with pytest.raises(BadRequest):
        reading.read_json(raw)


@pytest.mark.parametrize(
    "raw",
    [b"a: [", b"a: 1\n---\nb: 2\n", b"a: !!python/object:os.system x", b"a: .nan", b"? [a, b]\n: 1",
     b"a: !!binary aGk=", b"[" * 5000],
)  # fmt: skip
def test_malformed_yaml_is_a_bad_request(raw):
    with pytest.raises(BadRequest):
        reading.read_yaml(raw)


def test_yaml_aliases_do_not_expand_without_bound():
    lines = ["a0: &a0 [x,x,x,x,x,x,x,x,x,x]"]
    lines += [f"a{i}: &a{i} [{','.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 12)]
    with pytest.raises(BadRequest, match="too many values"):
        reading.read_yaml("\n".join(lines).encode())


def test_kind_and_version_are_filled_in():
    manifest, warnings = wire.manifest(pod(), POD)
    assert (manifest["kind"], manifest["apiVersion"]) == ("Pod", "v1")
    assert warnings == []


@pytest.mark.parametrize("body", [None, [], "x", 5])
def test_a_body_that_is_no_object_is_refused(body):
    with pytest.raises(BadRequest):
        wire.manifest(body, POD)


def test_another_kind_or_version_is_refused():
    with pytest.raises(BadRequest, match="must be of type Pod"):
        wire.manifest({"kind": "Node"}, POD)
    with pytest.raises(BadRequest, match="does not match"):
        wire.manifest({"kind": "Pod", "apiVersion": "v2"}, POD)
    with pytest.raises(BadRequest):
        wire.manifest({"kind": 5}, POD)


@pytest.mark.parametrize(
    ("raw", "content_type"),
    [(b'{"a": null, "b": [{"c": null}]}', None), (b"a: ~\nb: [{c: }]\n", "application/yaml")],
)
def test_nulls_mean_absent_but_not_in_patches(raw, content_type):
    assert parsers.decode(raw, content_type) == {"b": [{}]}
    patch = parsers.select("application/merge-patch+json", [one() for one in parsers.OF_PATCHES])
    assert patch.read(b'{"a": null, "b": [{"c": null}]}') == {"a": None, "b": [{"c": None}]}


@pytest.mark.parametrize(
    ("spec", "path"),
    [
        ({"nodeName": 5}, "spec.nodeName"),
        ({"priority": "high"}, "spec.priority"),
        ({"terminationGracePeriodSeconds": 1.5}, "spec.terminationGracePeriodSeconds"),
        ({"tolerations": {}}, "spec.tolerations"),
        ({"nodeSelector": {"a": 1}}, "spec.nodeSelector"),
        ({"priority": 2**31}, "spec.priority"),
        ({"containers": [{"name": "c", "ports": [{"containerPort": "80"}]}]}, "containerPort"),
    ],
)
def test_a_field_of_the_wrong_type_is_named(spec, path):
    with pytest.raises(BadRequest, match=path):
        wire.manifest(pod(**spec), POD)


def test_quantities_may_be_numbers_and_become_text():
    node = {"status": {"capacity": {"cpu": 4, "memory": "8Gi"}}}
    assert wire.manifest(node, NODE)[0]["status"]["capacity"]["cpu"] == "4"


def test_unknown_fields_are_warned_about_with_their_paths():
    body = pod(flurb=1, containers=[{"name": "c", "imagee": "x"}])
    body["extra"] = {}
    manifest, warnings = wire.manifest(body, POD)
    assert (manifest["spec"], "extra" in manifest) == ({"containers": [{"name": "c"}]}, False)
    assert set(warnings) == {
        'unknown field "extra"',
        'unknown field "spec.flurb"',
        'unknown field "spec.containers[0].imagee"',
    }


def test_labels_and_annotations_are_free():
    body = pod(nodeSelector={"anything": "goes"})
    body["metadata"]["labels"] = {"x": "y"}
    assert wire.manifest(body, POD, "Strict")[1] == []


def test_strict_validation_refuses_unknown_fields_and_ignore_is_silent():
    with pytest.raises(BadRequest, match=r'strict decoding error: unknown field "spec\.flurb"'):
        wire.manifest(pod(flurb=1), POD, "Strict")
    assert wire.manifest(pod(flurb=1), POD, "Ignore")[1] == []


def test_of_many_mistakes_the_first_hundred_are_told():
    text = "kind: Pod\n" + "a: 1\n" * 500
    twice = wire.repeated(text.encode(), "application/yaml", "Strict")
    with pytest.raises(BadRequest) as caught:
        wire.manifest({"kind": "Pod", "a": 1}, KINDS["Pod"], "Strict", twice)
    assert caught.value.message.count("already set in map") == 100
    unknown = {"kind": "Pod", **{f"x{number}": 1 for number in range(500)}}
    with pytest.raises(BadRequest) as caught:
        wire.manifest(unknown, KINDS["Pod"], "Strict")
    assert caught.value.message.count("unknown field") == 100
