"""The real kubectl against the running service.

Which one: the variable KUBECTL, else the one on the PATH, else Debian's package
kubernetes-client, unpacked into .cache; without any of them these tests are skipped.
"""

import os
import re
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.live import ROOT, Service

CACHE = ROOT / ".cache" / "kubectl"
PACKAGE = "kubernetes-client"


def _from_debian() -> str | None:
    """Return kubectl out of Debian's package, fetched once; None where that does not work."""
    unpacked = CACHE / "usr" / "bin" / "kubectl"
    if not unpacked.exists() and shutil.which("apt-get") and shutil.which("dpkg"):
        CACHE.mkdir(parents=True, exist_ok=True)
        try:
            subprocess.run(
                ["apt-get", "download", "-q", PACKAGE],
                cwd=CACHE, check=True, capture_output=True, timeout=100,
            )  # fmt: skip
            package = next(CACHE.glob(f"{PACKAGE}_*.deb"))
            subprocess.run(["dpkg", "-x", package.name, "."], cwd=CACHE, check=True, timeout=60)
        except (subprocess.SubprocessError, StopIteration):
            return None
    return str(unpacked) if unpacked.exists() else None


def find_kubectl() -> str | None:
    return os.environ.get("KUBECTL") or shutil.which("kubectl") or _from_debian()


class Kubectl:
    """Runs kubectl in a namespace of its own; a home of its own keeps its cache apart."""

    def __init__(self, binary: str, service: Service, home: Path, namespace: str) -> None:
        self.binary = binary
        self.service = service
        self.home = home
        self.namespace = namespace
        self.variables: dict[str, str] = {}

    def start(self, *arguments: str, stdin: str = "") -> "subprocess.Popen[str]":
        command = [
            self.binary, "--kubeconfig", str(self.service.state / "kubeconfig"),
            "--namespace", self.namespace, *arguments,
        ]  # fmt: skip
        process = subprocess.Popen(
            command, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, cwd=self.home,
            env={"HOME": str(self.home), "PATH": os.environ["PATH"], **self.variables},
        )  # fmt: skip
        if stdin:
            assert process.stdin is not None
            process.stdin.write(stdin)
            process.stdin.close()
            process.stdin = None
        return process

    def run(self, *arguments: str, stdin: str = "", fails: bool = False) -> str:
        """Return what it printed on both outputs."""
        process = self.start(*arguments, stdin=stdin)
        printed, _ = process.communicate(timeout=60)
        assert (process.returncode != 0) is fails, (arguments, printed)
        return printed

    def says(self, pattern: str, *arguments: str, stdin: str = "", fails: bool = False) -> str:
        """Check that a line of the output matches."""
        printed = self.run(*arguments, stdin=stdin, fails=fails)
        assert re.search(pattern, printed, re.MULTILINE), (pattern, printed)
        return printed


_number = iter(range(10**6))


@pytest.fixture(scope="session")
def kubectl_binary() -> str:
    binary = find_kubectl()
    if binary is None:
        pytest.skip("no kubectl: set KUBECTL, or put one on the PATH")
    return binary


@pytest.fixture
def kubectl(kubectl_binary: str, live: Service, tmp_path: Path) -> Iterator[Kubectl]:
    name = f"kubectl-{next(_number)}"
    kubectl = Kubectl(kubectl_binary, live, tmp_path, name)
    # Asked without kubectl, which takes a tenth of a second of CPU each time.
    status, answer = live.request("POST", "/api/v1/namespaces", {"metadata": {"name": name}})
    assert status == 201, answer
    yield kubectl
    status, answer = live.request("DELETE", f"/api/v1/namespaces/{name}")
    assert status in (200, 202), answer
