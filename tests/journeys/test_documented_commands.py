"""The commands of the README and of the pages are typed as they stand, on a service of their own.

Only three things differ from what a reader types: the port of the API, since another service may
have 8080; the folder for files, since others use /tmp; and where curl gets an error from the
service, the command fails.
"""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.forms import few
from tests.kubectl.conftest import find_kubectl
from tests.live import ROOT, Service, started

pytestmark = [pytest.mark.slow, pytest.mark.db]
_BLOCK = re.compile(r"^```sh\n(.*?)^```$", re.MULTILINE | re.DOTALL)
_NEEDS_A_TRACE = "openb_node_list"
"""A file that does not come along; `tests/scenarios` replays that trace where there is one."""
_CURL = 'curl() { command curl --fail-with-body --no-progress-meter "$@"; }\n'
SHOWN = {
    "README.md": [
        r"^nginx .* node-1 ",
        r"^with-node-affinity .* node-3 ",
        r"^\{.*\"cpu\":\"250m\".*\}$",
        r"test-pod +2250m \(56%\) .* 320Mi ",
        r"^0/4 nodes are available: .*3 node\(s\) were unschedulable",
        r"^default +plain .* Pending .* <none> ",
        r"^tolerant +nginx .* node-4 ",
        r"^plain .* node-1 ",
        r"^0/4 nodes are available: .*3 Insufficient cpu",
        r"^batch-1 .* node-\d ",
        r"^default/with-node-affinity: scheduled to node-3 ",
        r"^replayed, verified$",
        r"^node-1 .*NodeAffinity: ",
        r"Insufficient cpu \(4\)",
        r"^default/too-large +unschedulable ",
    ],
    "docs/simulations.md": [
        r"^default/test-pod +scheduled ",
        r"^default/another +scheduled +node-1 ",
        r'"nodeName": "large"',
        r'"status":"unschedulable"',
        r'"fits": \d+',
        r"^small +\d+ ",
        r"^default/nginx: scheduled to node-1 ",
        r'"kind":"Explanation".*"state":"Placed"',
        r'"kind":"WaitingGroup"',
        r'"name": "large",\n *"count": 1',
        r'"kind":"KubeSchedulerConfiguration"',
    ],
    "docs/scheduling.md": [r"^default +1 ", r'"kind":"WaitingTimes"'],
    "docs/resizing.md": [r"^pod/resizable patched$", r"^500m$"],
    "docs/replay.md": [
        r"^default/job-1 .*evicted +taint node.kubernetes.io/unreachable",
        r"^default/too-large .*unschedulable",
        r"^ +least +packing ",
        r"^bound +16 +16 +16$",
        r"^ +recorded +default +packing$",
        r"^packing +Observing$",
        r"^packing +Switched, guarded until ",
        r"^packing +Returned",
        r'"name":"most".*"state":"Switched"',
    ],
    "docs/packing.md": [r"^\d+ of \d+ pods? fits? ", r'"verdict": "', r"^ +placed: \d"],
    "docs/plans.md": [
        r'"message": "no controller would recreate it: set force to evict it"',
        r"^plan-\w+ ",
        r'"kind":"Plan".*"cordon"',
    ],
    "docs/team-access.md": [
        r"^yes$",
        r"^web .* node-\d ",
        r"forbidden",
        r"^requests.cpu +\S+ +20$",
    ],
    "docs/configure-the-scheduler.md": [
        r"^default +\S+$",
        r"^ +profiles\b.*",
        r"schedulerName: packing",
        r"^packed-1 .* (node-\d) .*\npacked-2 .* \1 ",
        r"Warning: spec.schedulerName: no scheduler profile is called",
        r"^pod/lost condition met$",
        r" NoProfile ",
    ],
}
"""What each page must show, in this order. After the plan a node is closed, by its drain."""
_WITH_CURL = "docs/tour-with-curl.md"
_SHOWN_WITH_CURL = [
    r"^node-1\nnode-2\nnode-3\nnode-4$",
    r"^nginx node-1$",
    r"^with-node-affinity node-3$",
    r"^test-pod node-\d$",
    r"'cpu': '250m'",
    r"^plain 0/4 nodes are available: .*3 node\(s\) were unschedulable",
    r"^nginx node-4$",
    r"^plain node-1$",
    r"^too-large 0/4 nodes are available: .*Insufficient cpu",
    r"^batch-3 node-\d$",
    r"^default/with-node-affinity: scheduled to node-3 ",
    r"^default/too-large \[.*Insufficient cpu",
]
_KUBECTL_MINOR = {"docs/resizing.md": 32}
"""The minor version of kubectl that a page asks for; the others say nothing and mean any."""


class Reader:
    """Somebody who has a clone of the project, a running service, and a terminal."""

    def __init__(self, service: Service, kubectl: str | None, folder: Path) -> None:
        self.service = service
        self.folder = folder
        self.kubectl = kubectl
        self.clone = folder / "clone"
        self.clone.mkdir()
        for name in ("manage.py", "examples"):
            (self.clone / name).symlink_to(ROOT / name)
        (self.clone / ".venv").symlink_to(sys.prefix)
        (self.clone / ".stowage").symlink_to(service.state)
        (folder / "bin").mkdir()
        if kubectl is not None:
            (folder / "bin" / "kubectl").symlink_to(kubectl)

    def kubectl_minor(self) -> int:
        assert self.kubectl is not None
        shown = subprocess.run(
            [self.kubectl, "version", "--client", "-o", "json"],
            capture_output=True, text=True, timeout=30, check=True,
        ).stdout  # fmt: skip
        found = re.search(r'"minor": "(\d+)', shown)
        assert found, shown
        return int(found[1])

    def types(self, commands: str) -> str:
        """Return what the commands print; each must end well."""
        commands = commands.replace("127.0.0.1:8080", f"127.0.0.1:{self.service.http_port}")
        commands = commands.replace("/tmp/", f"{self.folder}/")
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", _CURL + commands],
            cwd=self.clone,
            env={
                "HOME": str(self.folder),
                "PATH": f"{self.folder / 'bin'}:{os.environ['PATH']}",
                "STOWAGE_STATE": str(self.service.state),
                "STOWAGE_HTTPS_PORT": str(self.service.https_port),
            },
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            timeout=300,
            check=False,
        )
        assert done.returncode == 0, f"{commands}\n{done.stdout[-2000:]}"
        return done.stdout


@pytest.fixture(scope="module")
def reader(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Reader]:
    kubectl = find_kubectl()
    if kubectl is None or shutil.which("curl") is None:
        pytest.skip("without kubectl and curl nobody can type what the pages say")
    with started(STOWAGE_ADVISORS="1") as service:
        yield Reader(service, kubectl, tmp_path_factory.mktemp("reader"))


def blocks(page: str) -> list[str]:
    """Return the commands of a page; of the README those of the tour."""
    text = (ROOT / page).read_text()
    if page == "README.md":
        text = text.split("\n## A tour", 1)[1].split("\n## ", 1)[0]
    return [block for block in _BLOCK.findall(text) if _NEEDS_A_TRACE not in block]


def test_every_page_with_commands_is_typed_here_or_elsewhere() -> None:
    """`tests/plugins/test_guide.py` types the plugins' page; the console's needs an OIDC server."""
    pages = {f"docs/{page.name}" for page in (ROOT / "docs").glob("*.md")}
    with_commands = {page for page in pages if "```sh\n" in (ROOT / page).read_text()}
    assert with_commands - set(SHOWN) == {
        "docs/plugins.md", "docs/console.md", _WITH_CURL,
    }  # fmt: skip


def typed(reader: Reader, page: str) -> str:
    """Return what all commands of a page print, typed into one shell.

    Pages that do not name a kubeconfig themselves go on in the terminal of the README's tour.
    """
    commands = blocks(page)
    if not any("export KUBECONFIG=" in block for block in commands):
        commands.insert(0, blocks("README.md")[0])
    return reader.types("\necho\n".join(commands))  # raw answers end without a new line


@pytest.fixture(scope="module")
def tour(reader: Reader) -> str:
    """What the README's tour prints. The other pages go on with what it leaves."""
    return typed(reader, "README.md")


@pytest.mark.parametrize("page", few(SHOWN))
def test_the_commands_of_a_page_do_what_it_says(page: str, reader: Reader, tour: str) -> None:
    needed = _KUBECTL_MINOR.get(page, 0)
    if reader.kubectl_minor() < needed:
        pytest.skip(f"{page} asks for kubectl 1.{needed} or later")
    shows(SHOWN[page], tour if page == "README.md" else typed(reader, page))


@pytest.mark.long
def test_the_tour_with_curl_needs_no_kubectl(tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        pytest.skip("there is no curl here")
    with started(STOWAGE_ADVISORS="1") as service:
        first, *rest = blocks(_WITH_CURL)
        types = Reader(service, None, tmp_path).types
        shows(_SHOWN_WITH_CURL, "\n".join(types(f"{first}\n{block}") for block in rest))


def shows(patterns: list[str], shown: str) -> None:
    """Check that what was printed has all of that, in this order."""
    at = 0
    for pattern in patterns:
        found = re.compile(pattern, re.MULTILINE).search(shown, at)
        assert found, f"{pattern} is missing after {shown[max(0, at - 200) : at]!r}:\n{shown[at:]}"
        at = found.end()
