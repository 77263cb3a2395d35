"""Numbers that clients write as texts."""

import ast

import pytest

from clusterstate.objects.values.numbers import natural
from tests.live import ROOT


@pytest.mark.parametrize(
    ("text", "number"),
    [("0", 0), ("7", 7), ("007", 7), ("9" * 18, 10**18 - 1), (b"12", 12)],
)
def test_digits_are_a_number(text, number):
    assert natural(text) == number


@pytest.mark.parametrize(
    "text",
    ["", "-1", "+1", " 1", "1 ", "1_0", "1.0", "²", "\u0661", "x", "9" * 19, "9" * 5000, b"", b"x"],
)
def test_nothing_else_is(text):
    assert natural(text) is None


OTHERS = {
    "api/forms/wire.py": "numbers in YAML texts that stay as they are",
    "clusterstate/objects/cel/functions.py": "versions",
    "clusterstate/telemetry/slowness.py": "numbers of processes",
    "clusterstate/admission/validation/core/formats.py": "ipaddress judges prefix lengths",
    "clusterstate/health/heartbeats.py": "numbers of processes",
    "clusterstate/local/reach.py": "numbers of processes",
    "clusterstate/objects/values/document.py": "documents that the service wrote",
    "clusterstate/objects/values/numbers.py": "here",
    "clusterstate/objects/values/quantity.py": "the exponent, which has a sign",
    "clusterstate/objects/wire/reading.py": "YAML has its own numbers",
    "scheduling/controllers/endpoints/targets.py": "valid ports",
    "scheduling/controllers/webhooks/client.py": "answers of others",
    "scheduling/controllers/workloads/job_indexes.py": "lists of intervals",
    "scheduling/controllers/workloads/stateful_set_rules.py": "valid names",
}


def test_numbers_of_clients_are_read_here_alone():
    asks = {
        str(path.relative_to(ROOT))
        for package in ("api", "clusterstate", "scheduling")
        for path in (ROOT / package).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Attribute) and node.attr in ("isdigit", "isdecimal", "isnumeric")
    }
    assert asks == OTHERS.keys()
