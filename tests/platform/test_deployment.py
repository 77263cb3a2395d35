"""Dockerfile, docker-compose.yml and version: what can be checked without a container engine."""

import importlib
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
import yaml

import clusterstate

ROOT = Path(__file__).resolve().parents[2]
COMPOSE = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
SERVICES = COMPOSE["services"]
OURS = {name: service for name, service in SERVICES.items() if "build" in service}
OF_PEOPLE = {"STOWAGE_SECRET_KEY", "STOWAGE_OIDC_CLIENT_SECRET"}
"""Secrets of what serves pages to people."""
SETTINGS = (ROOT / "clusterstate/settings.py").read_text()


def test_every_role_is_there_with_a_health_check() -> None:
    assert set(SERVICES) == {
        "postgres",
        "redis",
        "migrate",
        "web",
        "https",
        "console",
        "scheduler",
        "timers",
        "worker",
        "advisor",
        "beat",
    }
    assert [name for name, service in SERVICES.items() if "healthcheck" not in service] == [
        "migrate"
    ]


@pytest.mark.parametrize("name", sorted(OURS))
def test_the_command_of_a_service_exists(name: str) -> None:
    program, *arguments = OURS[name]["command"]
    assert program == "python"
    if arguments[0] == "manage.py":
        assert (ROOT / "manage.py").exists()
        call = [sys.executable, "manage.py", arguments[1], "--help"]
    else:
        assert arguments[0] == "-m"
        options = [argument for argument in arguments[2:] if argument.startswith("--")]
        subcommand = [word for word in arguments if word in {"worker", "beat"}]
        call = [sys.executable, "-m", arguments[1]]
        call += [*subcommand, "--help"]
        text = subprocess.run(call, cwd=ROOT, capture_output=True, text=True, check=True).stdout
        assert [option for option in options if option not in text] == []
        return
    subprocess.run(call, cwd=ROOT, capture_output=True, check=True)


def test_the_application_that_web_serves_exists() -> None:
    module, _, attribute = OURS["web"]["command"][-1].partition(":")
    assert callable(getattr(importlib.import_module(module), attribute))


@pytest.mark.parametrize("name", sorted(OURS))
def test_services_use_variables_that_the_settings_read(name: str) -> None:
    unknown = [key for key in OURS[name]["environment"] if f'"{key}"' not in SETTINGS]
    assert unknown == []


@pytest.mark.parametrize("name", sorted(OURS))
def test_every_setting_reaches_the_containers_from_a_file_without_secrets(name: str) -> None:
    """What is stated beside the file hides what the file says: secrets, and what compose knows."""
    assert OURS[name]["env_file"] == [{"path": "settings.env", "required": False}]
    assert set(OURS[name]["environment"]) <= {
        "DATABASE_URL",
        "REDIS_URL",
        *OF_PEOPLE,
        "STOWAGE_HTTP_PORT",
        "STOWAGE_HTTPS_PORT",
        "STOWAGE_PROCESS",
        "STOWAGE_CONSOLE",
    }


def test_the_port_that_the_host_shows_is_no_setting_of_the_containers() -> None:
    """.env reaches both; there it may have an address before it. Loopback unless it says so."""
    for name, setting in (("web", "STOWAGE_HTTP_PORT"), ("https", "STOWAGE_HTTPS_PORT")):
        served = SERVICES[name]["command"]
        port = served[served.index("--port") + 1]
        assert SERVICES[name]["ports"] == [f"${{{setting}:-127.0.0.1:{port}}}:{port}"]
        assert {one["environment"][setting] for one in OURS.values()} == {port}


def test_no_secret_is_an_argument_and_only_who_needs_one_has_it() -> None:
    secrets = ("POSTGRES_PASSWORD", "REDIS_PASSWORD", "STOWAGE_SECRET_KEY")
    for service in SERVICES.values():
        assert not any(secret in word for word in service.get("command", ()) for secret in secrets)
    has = {
        name: {secret for secret in secrets if secret in str(service["environment"])}
        for name, service in SERVICES.items()
    }
    assert has["postgres"] == {"POSTGRES_PASSWORD"}
    assert has["redis"] == {"REDIS_PASSWORD"}
    serve = {name for name, one in OURS.items() if OF_PEOPLE & set(one["environment"])}
    assert serve == {"web", "https", "console"}
    for name in serve:
        assert set(OURS[name]["environment"]) >= OF_PEOPLE


def test_the_certificate_is_made_where_https_looks_for_it() -> None:
    assert "--certificate" in SERVICES["migrate"]["command"]
    assert SERVICES["migrate"]["volumes"] == SERVICES["https"]["volumes"]
    place = SERVICES["https"]["volumes"][0].partition(":")[2]
    served = SERVICES["https"]["command"]
    assert served[served.index("--ssl-certfile") + 1] == f"{place}/tls.crt"
    assert served[served.index("--ssl-keyfile") + 1] == f"{place}/tls.key"
    assert f"STOWAGE_STATE={place}" in (ROOT / "Dockerfile").read_text()


def test_background_services_check_the_heartbeat_they_write() -> None:
    for part in ("web", "https", "console", "scheduler", "timers", "worker", "advisor", "beat"):
        assert SERVICES[part]["environment"]["STOWAGE_PROCESS"] == part
        assert SERVICES[part]["healthcheck"]["test"][-1] == "clusterstate.health.heartbeats"


def test_services_and_supervisor_run_the_same_commands() -> None:
    """Both start uvicorn and Celery with the same options, apart from addresses and paths."""
    files = ("clusterstate/local/parts.py", "clusterstate/management/commands/up.py")
    source = "".join((ROOT / file).read_text() for file in files)
    for name, service in OURS.items():
        if name == "migrate":
            continue
        for word in service["command"][2:]:
            if word.startswith("-") and len(word) > 2:
                assert f'"{word}"' in source, (name, word)


def test_the_dockerfile_copies_what_exists_and_installs_by_hash() -> None:
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    copied = [
        word
        for line in text.splitlines()
        if line.startswith("COPY ") and "--from" not in line
        for word in shlex.split(line)[1:-1]
    ]
    assert copied
    copied.remove("plugins.tx[t]")  # a pattern: the file need not be there
    assert [word for word in copied if not (ROOT / word).exists()] == []
    assert text.count("--require-hashes") == 3


def test_images_of_others_are_named_by_version_and_digest() -> None:
    """Whoever can move a tag cannot change what runs here."""
    named = {service["image"] for service in SERVICES.values() if "build" not in service}
    named.update(re.findall(r"^FROM +(\S+)", (ROOT / "Dockerfile").read_text(), re.MULTILINE))
    assert len(named) == 3
    exact = re.compile(r"[a-z/]+:\d+(\.\d+)+(-slim)?@sha256:[0-9a-f]{64}")
    assert [image for image in named if not exact.fullmatch(image)] == []


def test_no_package_index_is_named_in_a_tracked_file() -> None:
    hosts = "|".join(["py" + "pi.org", "python" + "hosted.org", "registry." + "npmjs"])
    found = subprocess.run(
        ["git", "grep", "-nIE", hosts], cwd=ROOT, capture_output=True, text=True, check=False
    )
    if found.returncode > 1:
        pytest.skip("not a git checkout")
    assert found.stdout == ""


def test_the_version_is_the_changelogs() -> None:
    assert re.fullmatch(r"\d+\.\d+\.\d+", clusterstate.__version__)
    assert f"## {clusterstate.__version__}" in (ROOT / "CHANGELOG.md").read_text()


def test_nothing_that_runs_can_install_from_the_network() -> None:
    """Neither pip nor setuptools is in ``.venv``: what a package leads to has fewer holes."""
    for name in ("bootstrap.sh", "Dockerfile"):
        text = (ROOT / name).read_text()
        assert "venv --without-pip .venv" in text
        assert ".venv/bin/python -m pip" not in text
        assert "-m venv .venv" not in text
    for name in ("requirements.txt", "requirements-dev.txt"):
        locked = re.findall(r"^([a-z0-9-]+)==", (ROOT / name).read_text(), re.MULTILINE)
        assert len(locked) > 20
        assert not {"pip", "setuptools", "wheel"}.intersection(locked)
