"""bootstrap.sh with packages of its own making: nothing is downloaded."""

import hashlib
import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest

from tests.live import ROOT

pytestmark = pytest.mark.slow


def wheel(folder: Path, name: str, version: str, *, needs: str = "", plugin: str = "") -> Path:
    """Make a package of one module, with a plugin if it is given a name."""
    info = f"{name}-{version}.dist-info"
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    files = {
        f"{name}.py": "class Plugin:\n    pass\n",
        f"{info}/METADATA": metadata + (f"Requires-Dist: {needs}\n" if needs else ""),
        f"{info}/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
        f"{info}/entry_points.txt": (
            f"[stowage.plugins]\n{plugin} = {name}:Plugin\n" if plugin else ""
        ),
    }
    files[f"{info}/RECORD"] = "".join(f"{path},,\n" for path in [*files, f"{info}/RECORD"])
    path = folder / f"{name}-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for inside, text in files.items():
            archive.writestr(inside, text)
    return path


class SetUp:
    """A copy of bootstrap.sh whose lock names one package."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.wheels = folder / "wheels"
        self.wheels.mkdir()
        shutil.copy(ROOT / "bootstrap.sh", folder)
        shutil.copy(ROOT / "requirements-uv.txt", folder)
        subprocess.run(
            [sys.executable, "-m", "venv", "--without-pip", folder / ".venv"], check=True
        )
        (folder / ".venv" / "bin" / "uv").symlink_to(ROOT / ".venv" / "bin" / "uv")

    def lock(self, version: str) -> None:
        made = wheel(self.wheels, "locked", version)
        digest = hashlib.sha256(made.read_bytes()).hexdigest()
        text = f"# by make lock\nlocked=={version} \\\n    --hash=sha256:{digest}\n"
        (self.folder / "requirements.txt").write_text(text)

    def plugins(self, *lines: str) -> None:
        (self.folder / "plugins.txt").write_text("".join(f"{line}\n" for line in lines))

    def run(self, *, ok: bool = True) -> str:
        done = subprocess.run(
            ["sh", "./bootstrap.sh", "run"], cwd=self.folder, text=True, capture_output=True,
            check=False, timeout=120,
            env={**os.environ, "UV_NO_INDEX": "1", "UV_FIND_LINKS": str(self.wheels), "PY": ""},
        )  # fmt: skip
        assert (done.returncode == 0) == ok, done.stderr
        return done.stderr

    def installed(self) -> dict[str, str]:
        code = (
            "from importlib.metadata import distributions\n"
            "for one in distributions(): print(one.name, one.version)"
        )
        python = self.folder / ".venv" / "bin" / "python"
        found = subprocess.run(
            [python, "-c", code], text=True, capture_output=True, check=True
        ).stdout
        return dict(line.split() for line in found.splitlines())


@pytest.fixture
def set_up(tmp_path: Path) -> SetUp:
    if not (ROOT / ".venv" / "bin" / "uv").exists():
        pytest.skip("this environment has no uv")
    return SetUp(tmp_path)


def test_packages_of_plugins_txt_survive_an_update(set_up: SetUp) -> None:
    set_up.lock("1.0")
    made = wheel(set_up.folder, "lights", "2.0", needs="locked", plugin="Lights")
    set_up.plugins(f"./{made.name}")
    set_up.run()
    assert set_up.installed() == {"locked": "1.0", "lights": "2.0"}
    assert set_up.run() == "", "nothing has changed"
    set_up.lock("1.1")
    assert "is gone" not in set_up.run()
    assert set_up.installed() == {"locked": "1.1", "lights": "2.0"}
    # A change of the file alone is seen, too.
    wheel(set_up.wheels, "noise", "3.0", plugin="Noise")
    set_up.plugins(f"./{made.name}", "noise==3.0")
    set_up.run()
    assert set_up.installed() == {"locked": "1.1", "lights": "2.0", "noise": "3.0"}


@pytest.mark.long
def test_a_package_that_would_change_a_locked_one_is_refused(set_up: SetUp) -> None:
    set_up.lock("1.0")
    made = wheel(set_up.folder, "lights", "2.0", needs="locked<1.0", plugin="Lights")
    wheel(set_up.wheels, "locked", "0.9")
    set_up.plugins(f"./{made.name}")
    told = set_up.run(ok=False)
    assert "cannot be installed beside the locked ones" in told
    assert "locked" in told
    assert set_up.installed() == {"locked": "1.0"}
    set_up.run(ok=False)  # it is not taken for done


def test_an_update_says_which_plugins_it_has_removed(set_up: SetUp) -> None:
    set_up.lock("1.0")
    set_up.run()
    made = wheel(set_up.folder, "lights", "2.0", plugin="Lights")
    python = set_up.folder / ".venv" / "bin" / "python"
    subprocess.run(
        [ROOT / ".venv" / "bin" / "uv", "pip", "install", "-q", "--no-index", "-p", python, made],
        check=True,
    )
    set_up.lock("1.1")
    assert "the plugin Lights is gone: name its package, lights, in plugins.txt" in set_up.run()
    assert set_up.installed() == {"locked": "1.1"}
