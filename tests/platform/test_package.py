"""The wheel: built, installed and used where nothing of a checkout is near."""

import os
import re
import signal
import subprocess
import sys
import sysconfig
import venv
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from clusterstate import __version__
from tests.live import free_ports, state_folder
from tests.waiting import until

ROOT = Path(__file__).resolve().parents[2]
TEN_LINES = """
from stowage.client import Client

pods = [
    {"metadata": {"name": f"p{n}"}, "spec": {"containers": [{"name": "a", "image": "b"}]}}
    for n in range(10)
]
CAPACITY = {"cpu": "4", "memory": "8Gi", "pods": "9"}
with Client() as client:
    client.create("/api/v1/nodes", {"metadata": {"name": "one"}, "status": {"capacity": CAPACITY}})
    print(*sorted(placed.state for placed in client.place(pods, timeout=10)))
"""

SECOND_TERMINAL = re.findall(r"```console\n(.*?)```", (ROOT / "README.md").read_text(), re.DOTALL)[
    1
]

Run = Callable[..., str]


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("dist")
    code = "import sys; from hatchling.build import build_wheel; print(build_wheel(sys.argv[1]))"
    name = subprocess.run(
        [sys.executable, "-c", code, str(folder)],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split()[-1]  # fmt: skip
    return folder / name


@pytest.fixture(scope="module")
def installed(wheel: Path, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Return how to run something in a new environment, in an empty folder, with an empty home.

    What Stowage needs is taken from the environment of the tests, so that no network is asked;
    ``test_pip_installs_the_wheel_and_all_it_needs`` takes it from the package index.
    """
    place = tmp_path_factory.mktemp("fresh")
    venv.create(place / "venv", with_pip=False, symlinks=True)
    python = place / "venv/bin/python"
    packages = next((place / "venv/lib").glob("python*/site-packages"))
    subprocess.run(
        ["uv", "pip", "install", "-q", "--offline", "--no-deps", "-p", python, wheel],
        env={**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"},
        check=True,
    )
    (packages / "needed.pth").write_text(sysconfig.get_path("purelib"))
    (place / "home").mkdir()

    def run(*command: str, folder: Path | None = None) -> str:
        done = subprocess.run(
            [str(place / "venv/bin" / command[0]), *command[1:]],
            cwd=folder or place / "home",
            env={"HOME": str(place / "home"), "PATH": os.environ["PATH"], "COLUMNS": "200"},
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    return run


def test_the_wheel_has_one_package_and_all_of_the_product(wheel: Path) -> None:
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0] for name in names} == {
        "stowage",
        f"stowage-{__version__}.dist-info",
    }
    tracked = subprocess.run(
        ["git", "ls-files", "api", "clusterstate", "migrations", "scheduling"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    ).stdout.split()  # fmt: skip
    assert [one for one in tracked if f"stowage/_product/{one}" not in names] == []
    assert [name for name in names if "__pycache__" in name] == []


def test_the_installed_command_tells_its_version_and_runs_the_service(installed: Run) -> None:
    assert installed("stowage", "--version") == f"Stowage {__version__}\n"
    assert "prepare" in installed("stowage", "manage", "help")
    assert "Usage: kubectl stowage" in installed("kubectl-stowage", "--help")


def test_the_state_of_an_installed_service_lies_in_the_home(installed: Run) -> None:
    code = (
        "from stowage import _product; from pathlib import Path; import sys\n"
        "sys.path.insert(0, str(_product.ROOT))\n"
        "from clusterstate.local import places\n"
        "print(places.default_state(_product.ROOT) == Path.home() / '.stowage')"
    )
    assert installed("python", "-c", code) == "True\n"


def test_a_program_keeps_its_own_api_and_scheduling(installed: Run, tmp_path: Path) -> None:
    for name in ("api", "scheduling", "clusterstate"):
        (tmp_path / f"{name}.py").write_text("MINE = True\n")
    code = (
        "from stowage import _product\n"
        "core = _product.module('scheduling.simulation')\n"
        "import api, scheduling, clusterstate\n"
        "assert api.MINE and scheduling.MINE and clusterstate.MINE\n"
        "print(core.__name__)\n"
    )
    said = installed("python", "-c", code, folder=tmp_path)
    assert said == "stowage._product.scheduling.simulation\n"


def test_nothing_of_ours_has_a_name_at_the_top(installed: Run) -> None:
    code = (
        "import sys\n"
        "from stowage import _product\n"
        "_product.module('scheduling.simulation')\n"
        "_product.module('scheduling.scenarios.playing')\n"
        "print({'api', 'scheduling', 'clusterstate', 'django', 'celery'} & set(sys.modules))\n"
        "for name in ('api', 'clusterstate'):\n"
        "    try: __import__(name)\n"
        "    except ModuleNotFoundError: print('no', name)\n"
    )
    assert installed("python", "-c", code) == "set()\nno api\nno clusterstate\n"


def test_a_plugin_of_another_package_finds_the_public_module(
    installed: Run, tmp_path: Path
) -> None:
    (tmp_path / "plugin.py").write_text("from scheduling.framework.v1 import Status\n")
    code = (
        "from stowage import _product\n"
        "v1 = _product.module('scheduling.framework.v1')\n"
        "import plugin; print(plugin.Status is v1.Status)\n"
    )
    assert installed("python", "-c", code, folder=tmp_path) == "True\n"


@pytest.mark.long
@pytest.mark.db
@pytest.mark.slow
@pytest.mark.real_clock
@pytest.mark.timeout(900)
def test_pip_installs_the_wheel_and_all_it_needs(wheel: Path, tmp_path: Path) -> None:
    """From an empty home to pods that are placed: with what the package index has."""
    venv.create(tmp_path / "venv", with_pip=True)
    programs = tmp_path / "venv/bin"
    done = subprocess.run(
        [programs / "python", "-m", "pip", "install", "-q", "--disable-pip-version-check", wheel],
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    if "Could not find a version" in done.stderr or "Connection" in done.stderr:
        pytest.skip("the package index cannot be reached")
    assert done.returncode == 0, done.stderr
    http, https = free_ports(2)
    with state_folder() as state:
        home = state.parent / "home"
        home.mkdir()
        environment = {
            "HOME": str(home),
            "PATH": os.environ["PATH"],
            "STOWAGE_HTTP_PORT": str(http),
            "STOWAGE_HTTPS_PORT": str(https),
        }
        log = state.parent / "log"
        with log.open("wb") as output:
            up = subprocess.Popen(
                [programs / "stowage", "up"],
                cwd=home, env=environment, stdout=output, stderr=output, start_new_session=True,
            )  # fmt: skip
        try:
            until(
                lambda: up.poll() is not None or "Stowage is ready" in log.read_text(),
                seconds=300, what="the service is ready",
            )  # fmt: skip
            assert up.poll() is None, log.read_text()
            assert (home / ".stowage/kubeconfig").exists()
            said = subprocess.run(
                [programs / "python", "-c", TEN_LINES],
                cwd=home, env=environment, capture_output=True, text=True, check=False,
            )  # fmt: skip
            assert said.stdout.split() == ["Placed"] * 9 + ["Waiting"], said.stderr
            (home / "env").symlink_to(tmp_path / "venv")
            (home / "examples").symlink_to(ROOT / "examples")
            typed = subprocess.run(
                ["bash", "-ec", SECOND_TERMINAL],
                cwd=home, env=environment, capture_output=True, text=True, check=False,
            )  # fmt: skip
            assert (typed.returncode, typed.stdout.count("Placed")) == (0, 4), typed.stderr
        finally:
            up.send_signal(signal.SIGINT)
            up.wait(60)
