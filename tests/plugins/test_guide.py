"""What `docs/plugins.md` shows is what happens: its packages are installed and its commands run."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from scheduling.plugins import installed
from tests.plugins.packages import ROOT, guide_blocks, install, on_path, write_guide


@pytest.fixture(scope="module")
def project(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The files of the guide, as their first lines name them."""
    folder = tmp_path_factory.mktemp("guide")
    write_guide(folder)
    install(folder, folder / "installed")
    return folder


def test_the_example_gives_what_the_guide_shows(project: Path) -> None:
    blocks = guide_blocks()
    (at,) = [n for n, (kind, text) in enumerate(blocks) if kind == "sh" and "simulate" in text]
    command, shown = blocks[at][1].split(), blocks[at + 1][1]
    assert command[:3] == [".venv/bin/python", "manage.py", "simulate"]
    found = subprocess.run(
        [sys.executable, *command[1:3], str(project / command[3])],
        cwd=ROOT,
        env={**os.environ, "PYTHONPATH": str(project / "installed")},
        capture_output=True,
        text=True,
        timeout=100,
        check=False,
    )
    assert found.returncode == 0, found.stderr
    assert found.stdout == shown


def test_the_packages_plugins_act_where_their_methods_say(project: Path) -> None:
    with on_path(project / "installed"):
        points = {name: sorted(one.info.points) for name, one in installed.plugins().items()}
    assert points == {
        "BlinkingLightScorer": ["score"],
        "GangOfTwo": ["permit"],
        "QuietNodes": ["filter", "score"],
    }
