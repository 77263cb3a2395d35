"""The README says which kinds are stored and not acted upon, in the words of the registry."""

import re

from clusterstate.admission.warnings import warnings_for
from clusterstate.objects.registry.kinds import ALL_KINDS
from tests.api.bodies import body_of
from tests.live import ROOT


def rows_of(text):
    section = text.split("## What is stored and not acted upon")[1].split("\n## ")[0]
    rows = dict(re.findall(r"^\| (\w+) \| (.+) \|$", section, re.MULTILINE))
    del rows["Kind"]
    return rows


def test_the_table_of_the_readme_is_what_the_registry_says():
    rows = rows_of((ROOT / "README.md").read_text())
    assert rows == {kind.name: kind.not_done for kind in ALL_KINDS if kind.not_done}


def test_a_row_too_many_in_the_readme_is_found():
    text = (ROOT / "README.md").read_text()
    row = "\n| Planted | nothing is done |\n"
    planted = text.replace("\n| Kind |", f"{row}| Kind |", 1)
    assert rows_of(planted).keys() - rows_of(text).keys() == {"Planted"}


def test_whoever_creates_such_an_object_is_warned_and_nobody_else():
    for kind in ALL_KINDS:
        body = body_of(kind, "one")
        found = [text for text in warnings_for(kind.name, body, None) if "is stored but" in text]
        wanted = f"{kind.name} is stored but has no effect: {kind.not_done}"
        assert found == ([wanted] if kind.not_done else []), kind.name
        assert warnings_for(kind.name, body, body) == []
