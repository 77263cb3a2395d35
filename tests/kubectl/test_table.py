"""docs/kubectl.md, run as it stands: a table is a test, its rows are commands in their order."""

import json
import re
import shlex
import subprocess
from concurrent.futures import ThreadPoolExecutor
from typing import NamedTuple

import pytest

from tests.forms import few
from tests.kubectl.conftest import Kubectl
from tests.kubelets import Kubelets
from tests.live import ROOT

pytestmark = [pytest.mark.slow, pytest.mark.db]

PAGE = (ROOT / "docs" / "kubectl.md").read_text()
EDITOR = "sed -i s/red/green/"
"""What ``kubectl edit`` calls."""


class Row(NamedTuple):
    command: str
    since: tuple[int, ...]
    answer: str
    prints: list[str]


def sections() -> dict[str, str]:
    """Return the page's sections with a table, by their headings."""
    found = dict(re.findall(r"^## (.+?)\n(.+?)(?=^## |\Z)", PAGE, re.MULTILINE | re.DOTALL))
    return {name: text for name, text in found.items() if "| kubectl |" in text}


def rows(section: str) -> list[Row]:
    lines = re.findall(r"^\| `(.+?)` \| ([\d.]*) ?\| (\w+) \| (.*?) ?\|$", section, re.MULTILINE)
    assert len(lines) == section.count("\n| `"), "a row that is not understood"
    return [
        Row(command, tuple(map(int, since.split("."))) if since else (1, 20), answer,
            re.findall("`(.+?)`", prints))
        for command, since, answer, prints in lines
    ]  # fmt: skip


def files(section: str) -> dict[str, str]:
    return dict(
        re.findall(r"^File `(.+?)`:\n\n```yaml\n(.+?)```", section, re.MULTILINE | re.DOTALL)
    )


@pytest.fixture(scope="module")
def version(kubectl_binary) -> tuple[int, ...]:
    """The version of the kubectl that is there."""
    told = subprocess.run(
        [kubectl_binary, "version", "--client", "-o", "json"],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    found = re.match(r"v(\d+)\.(\d+)", json.loads(told)["clientVersion"]["gitVersion"])
    assert found
    return int(found[1]), int(found[2])


@pytest.mark.parametrize("name", few(sections(), 2))
def test_commands_do_what_the_page_says(kubectl: Kubectl, version, live, name):
    section = sections()[name]
    node = f"{kubectl.namespace}-node"

    def own(text: str) -> str:
        return text.replace("NAMESPACE", kubectl.namespace).replace("NODE", node)

    for file, text in files(section).items():
        (kubectl.home / file).write_text(own(text))
    kubectl.variables = {"KUBE_EDITOR": EDITOR}
    wrong = []
    with Kubelets(live, kubectl.namespace, [node], kubectl.namespace):
        for row in rows(section):
            if row.since > version:
                continue
            process = kubectl.start(*shlex.split(own(row.command)))
            printed, _ = process.communicate(timeout=120)
            status = {"works": [0], "1": [1]}.get(row.answer, range(1, 256))
            missing = [own(one) for one in row.prints if own(one) not in printed]
            if process.returncode not in status or missing or "panic" in printed:
                wrong.append(f"{own(row.command)}\n{process.returncode}: {printed}\n{missing}")
    assert not wrong, "\n\n".join(wrong)


@pytest.mark.parametrize("every", few([False, True]), ids=["one of each group", "every"])
def test_every_kind_is_explained(kubectl: Kubectl, version, every):
    """Those that discovery names with verbs of a collection; our own by OpenAPI v3 alone.

    kubectl reads the document of a kind's group for each of them.
    """
    table = kubectl.run("api-resources", "--no-headers", "--verbs=list")
    names = [(line.split()[0], line.split()[-3]) for line in table.splitlines()]
    if version < (1, 27):
        names = [(name, of) for name, of in names if not of.startswith("stowage.dev/")]
    assert len(names) > 40
    if not every:
        names = list({of: (name, of) for name, of in names}.values())
        assert len(names) > 10

    def explained(named: tuple[str, str]) -> str:
        name, version = named
        printed = kubectl.run("explain", name, f"--api-version={version}")
        return "" if re.search(r"DESCRIPTION:\n +\S", printed) else f"{name}: {printed}"

    kubectl.run("explain", "pods")  # which fills the cache of discovery
    with ThreadPoolExecutor(4) as pool:
        unexplained = list(filter(None, pool.map(explained, names)))
    assert not unexplained, "\n".join(unexplained)
