"""Generated files are what their generators make of their sources."""

import json
from pathlib import Path

import pytest

from tools import generate_protobuf

TABLE = Path(__file__).resolve().parents[3] / "shared" / "kubernetes" / "protobuf.json"


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
