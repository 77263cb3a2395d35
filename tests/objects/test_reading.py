"""Texts from outside: what they mean, and that none of them costs more than it should."""

import contextlib
import subprocess
import sys
import time

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clusterstate.objects.values.errors import BadRequest, TooLarge
from clusterstate.objects.wire import reading
from tests.forms import many

DEEP = 200_000

YAML_1_1_BOOLEANS = [*"yYnN", "yes", "Yes", "YES", "no", "No", "NO", "on", "On", "ON", "off", "Off"]

HOSTILE_YAML = {
    "block sequences": b"- " * DEEP,
    "flow sequences": b"[" * DEEP,
    "closed flow sequences": b"[" * DEEP + b"]" * DEEP,
    "flow maps": b"{a: " * DEEP,
    "complex keys": b"? " * DEEP,
    "indented maps": b"".join(b" " * i + b"a:\n" for i in range(1500)),
    "a long number": b"a: " + b"1" * 1_000_000,
    "directives": b"".join(b"%%TAG !a%d! tag:x\n" % i for i in range(100_000)) + b"--- a\n",
    "scalars": b"[" + b"a," * 1_400_000 + b"]",
    "empty lists": b"[" + b"[]," * 900_000 + b"]",
    "alias bomb": b"\n".join(
        [b"a0: &a0 [" + b"x," * 9 + b"x]"]
        + [b"a%d: &a%d [%s]" % (i, i, b",".join([b"*a%d" % (i - 1)] * 10)) for i in range(1, 12)]
    ),
    "merge bomb": b"\n".join(
        [b"a0: &a0 {k: v}"]
        + [
            b"a%d: &a%d {<<: [%s]}" % (i, i, b",".join([b"*a%d" % (i - 1)] * 9))
            for i in range(1, 30)
        ]
    ),
    "long text many times": b"a: &a " + b"x" * 1_000_000 + b"\nb: [" + b"*a," * 1000 + b"]",
    "deep alias": b"a0: &a0 [x]\n"
    + b"".join(b"a%d: &a%d [*a%d]\n" % (i, i, i - 1) for i in range(1, 2000)),
    "itself": b"&a [*a]",
    "more than the limit": b"a: " + b"x" * reading.MAX_YAML_BYTES,
    "utf-16": "a: b".encode("utf-16"),
    "NUL": b'a: "\\0"',
    "surrogate": b'a: "\\uD800"',
    "invalid utf-8": b"a: \xff",
}  # fmt: skip


@pytest.mark.parametrize("text", HOSTILE_YAML.values(), ids=HOSTILE_YAML)
def test_hostile_yaml_is_refused_soon(text):
    before = time.process_time()
    with pytest.raises((BadRequest, TooLarge)):
        reading.read_yaml(text)
    assert time.process_time() - before < 5


@pytest.mark.parametrize("text", ["1:1" * 300_000, "1." + "1" * 1_000_000 + "x"])
def test_what_only_looks_like_a_long_number_is_text(text):
    before = time.process_time()
    assert reading.read_yaml(f"a: {text}".encode()) == {"a": text}
    assert time.process_time() - before < 2


def test_no_depth_of_yaml_ends_the_process():
    """In a process of its own, with a small stack, since the old way of reading died of it."""
    code = (
        "import resource, threading\n"
        "from clusterstate.objects.wire import reading\n"
        "from clusterstate.objects.values.errors import BadRequest\n"
        "threading.stack_size(256 << 10)\n"
        "done = []\n"
        "def read():\n"
        "    for unit in (b'- ', b'[', b'? ', b'{a: '):\n"
        "        text = unit * (2_500_000 // len(unit))\n"
        "        try: reading.read_yaml(text)\n"
        "        except BadRequest: done.append(1)\n"
        "thread = threading.Thread(target=read); thread.start(); thread.join()\n"
        "print(len(done))\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout.strip()) == (0, "4"), done.stderr


@pytest.mark.parametrize(
    ("text", "value"),
    [
        # Booleans are YAML 1.2's.
        *((word, word) for word in YAML_1_1_BOOLEANS),
        ("true", True), ("True", True), ("TRUE", True), ("false", False), ("tRUE", "tRUE"),
        ("~", None), ("null", None), ("", None), ("Null", None), ("nULL", "nULL"),
        # Integers of Go's strconv.ParseInt(text, 0, 64), never base 60.
        ("1", 1), ("-7", -7), ("+7", 7), ("1_000", 1000), ("0x1F", 31), ("0b101", 5),
        ("0o17", 15), ("017", 15), ("08", 8), ("0", 0), ("-0x10", -16),
        ("1:30", "1:30"), ("190:20:30", "190:20:30"), ("190:20:30.15", "190:20:30.15"),
        ("18446744073709551615", 2**64 - 1), ("-9223372036854775808", -(2**63)),
        ("18446744073709551616", 1.8446744073709552e19),
        ("²", "²"), ("1²", "1²"), ("\u0661", "\u0661"), ("\uff11", "\uff11"),
        # Floats; beyond their range text.
        ("1.5", 1.5), (".5", 0.5), ("1e3", 1000), ("1.0", 1), ("-1e-2", -0.01), ("1e400", "1e400"),
        ("1.2.3", "1.2.3"), ("1e", "1e"), (".", "."), ("-", None), ("+", "+"), ("--", "--"),
        # Times stay text.
        ("2021-01-01", "2021-01-01"), ("2021-01-01T00:00:00Z", "2021-01-01T00:00:00Z"),
        ("'1'", "1"), ('"true"', "true"), ("!!str 1", "1"), ("! 1", "1"), ('!!int "3"', 3),
        ("!!float 3", 3), ('!!bool "true"', True), ("!!map {}", {}), ("!!seq []", []),
        ("500m", "500m"), ("1Gi", "1Gi"), ("=", "="), ("<<", "<<"),
    ],
)  # fmt: skip
def test_yaml_scalars_mean_what_kubernetes_takes_them_for(text, value):
    if text == "-":
        assert reading.read_yaml(b"a: '-'") == {"a": "-"}
        return
    found = reading.read_yaml(f"a: {text}\n".encode())["a"]
    assert (found, type(found)) == (value, type(value))


@pytest.mark.parametrize(
    "text",
    [b".nan", b".inf", b"-.inf", b"+.INF", b"!!binary aGk=", b"!!set {a}", b"!foo 1",
     b"!!int x", b"!!python/object:os.system x", b"? [a]\n: 1", b"? {}\n: 1", b"~: 1",
     b"a: *b", b"<<: 1", b"<<: [1]", b"a: 1\n---\nb: 1\n", b"a: [", b"a: b: c", b"\ta: 1"],
)  # fmt: skip
def test_what_json_cannot_say_is_refused(text):
    with pytest.raises(BadRequest):
        reading.read_yaml(text)


def test_aliases_are_copies_and_merge_keys_only_fill_in():
    text = b"""
base: &base {a: 1, b: {c: 2}}
more: &more {a: 5, z: 6}
one: *base
two: {<<: [*base, *more], b: 3}
2: x
true: y
1.5: z
"""
    value = reading.read_yaml(text)
    assert value["one"] == value["base"]
    assert value["one"] is not value["base"]
    assert value["one"]["b"] is not value["base"]["b"]
    assert value["two"] == {"a": 1, "b": 3, "z": 6}
    assert (value["2"], value["true"], value["1.5"]) == ("x", "y", "z")


def test_a_key_is_there_twice_by_what_it_means_and_merge_keys_may_be():
    text = b"""
one: &one {a: 1}
two: &two {b: 2}
all:
  <<: *one
  <<: *two
"""
    assert reading.read_yaml(text)["all"] == {"a": 1, "b": 2}
    assert reading.repeated_keys(text) == []
    plain = b'{"<<": 1, c: 2, \'<<\': 3, "c": 4}'
    assert reading.read_yaml(plain) == {"<<": 3, "c": 4}
    assert reading.repeated_keys(plain) == [(1, "<<"), (1, "c")]


def test_several_documents_are_read_one_by_one():
    assert list(reading.read_yaml_documents(b"a: 1\n---\n[2]\n--- 3\n...\n")) == [{"a": 1}, [2], 3]
    assert reading.read_yaml(b"") is None
    assert reading.read_yaml(b"\xef\xbb\xbfa: 1") == {"a": 1}


HOSTILE_JSON = {
    "depth": b"[" * DEEP,
    "closed depth": b"[" * 500 + b"]" * 500,
    "maps": b'{"a":' * 500 + b"1" + b"}" * 500,
    "deep below a large list": b'{"items":[' + b"1," * 200_000 + b"[" * 99 + b"]" * 99 + b"]}",
    "values": b"[" + b"1," * 2_100_000 + b"1]",
    "empty objects": b"[" + b"{}," * 2_100_000 + b"1]",
    "NUL": b'{"a":"b\\u0000"}',
    "NUL key": b'{"\\u0000":1}',
    "NUL in a large text": b'{"x":[' + b"1," * 200_000 + b'"\\u0000"]}',
    "NUL in a key of a large text": b'{"x\\u0000":[' + b"1," * 200_000 + b"1]}",
    "surrogate": b'"\\ud800"',
    "NaN": b"NaN",
    "a long number": b"1" * 5000,
    "a large float": b"1e999999",
    "invalid utf-8": b'"\xff"',
}


@pytest.mark.parametrize("text", HOSTILE_JSON.values(), ids=HOSTILE_JSON)
def test_hostile_json_is_refused_soon(text):
    before = time.process_time()
    with pytest.raises((BadRequest, TooLarge)):
        reading.read_json(text)
    assert time.process_time() - before < 5


def test_a_text_about_nul_is_not_one():
    assert reading.read_json(b'{"a":"\\\\u0000"}') == {"a": "\\u0000"}


def test_a_large_text_is_read_as_a_small_one_is():
    item = {"metadata": {"name": "p", "labels": {"a": "b", "c": "d,e[{"}}, "spec": [1, None, 2.5]}
    value = {"kind": "List", "items": [item] * 20_000, "more": {"deep": [[item] * 3]}, "n": 5}
    raw = msgspec.json.encode(value)
    assert len(raw) > 1 << 20
    assert reading.read_json(raw) == value
    assert reading.read_json(b"  \n" + msgspec.json.format(raw)) == value


_values = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**63), 2**64 - 1)
    | st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0")),
    lambda inner: st.lists(inner) | st.dictionaries(
        st.text(st.characters(blacklist_categories=["Cs"], blacklist_characters="\0")), inner),
    max_leaves=20,
)  # fmt: skip


@given(_values)
@settings(max_examples=many(50, 1000), deadline=None)
def test_json_is_yaml_too(value):
    """What msgspec writes reads the same both ways, but for what libyaml calls unprintable."""
    raw = msgspec.json.encode(value)
    assert reading.read_json(raw) == value
    try:
        found = reading.read_yaml(raw)
    except BadRequest:
        assert any(not c.isprintable() or ord(c) > 0x7E for c in raw.decode())
    else:
        if raw.isascii() and raw.decode().isprintable():
            assert found == value


@given(st.binary(max_size=300))
@settings(max_examples=many(100, 2500), deadline=None)
def test_any_bytes_are_read_or_refused(raw):
    for read in (reading.read_json, reading.read_yaml):
        with contextlib.suppress(BadRequest, TooLarge):
            read(raw)
