"""Generated files are what their generators make of their sources."""

import hashlib
import json
import re
from pathlib import Path

import pytest

from tools import generate_protobuf

PROJECT = Path(__file__).resolve().parents[2]
TABLE = PROJECT.parent / "shared" / "kubernetes" / "protobuf.json"

NOTICE = (PROJECT / "NOTICE").read_text()


def test_the_protobuf_fields_are_those_of_the_table() -> None:
    if not TABLE.exists():
        pytest.skip("no table of Kubernetes' field numbers beside the project")
    table = json.loads(TABLE.read_text())
    assert generate_protobuf.TARGET.read_text() == generate_protobuf.generate(table)


def test_a_field_that_json_does_not_have_stops_the_generator() -> None:
    table = {
        "api.core.v1.Binding": {"metadata": [1, "M"], "target": [2, "M"], "tarjet": [3, "string"]}
    }
    with pytest.raises(ValueError, match="tarjet"):
        generate_protobuf.generate(table)


def test_what_others_made_is_what_its_notice_says() -> None:
    told = re.findall(
        r"^(\S+/vendor/\S+) is (?:.+\n)+?SHA-256 of the file: (\w+)", NOTICE, re.MULTILINE
    )
    there = [*PROJECT.glob("api/static/*/vendor/*"), *PROJECT.glob("tests/*/vendor/*")]
    assert dict(told) == {
        str(one.relative_to(PROJECT)): hashlib.sha256(one.read_bytes()).hexdigest() for one in there
    }
