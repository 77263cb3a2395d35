"""Settings: each bad value stops the start with a sentence that names the variable."""

import os
import re
import socket
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import pytest
from django.core.checks import Error
from django.core.exceptions import ImproperlyConfigured
from django.test import Client, override_settings

import clusterstate
from clusterstate import apps, environment
from tests.api.conftest import make_token

ROOT = Path(__file__).resolve().parents[2]
SOURCE = (ROOT / "clusterstate/settings.py").read_text()
VARIABLES = sorted(set(re.findall(r'"((?:STOWAGE_\w+)|DATABASE_URL|REDIS_URL)"', SOURCE)))


BAD_VALUES = [
    ("STOWAGE_HTTP_PORT", "http", "STOWAGE_HTTP_PORT must be a whole number"),
    ("STOWAGE_HTTPS_PORT", "70000", "STOWAGE_HTTPS_PORT must be between 1 and 65535"),
    ("STOWAGE_ADVERTISE_ADDRESS", "127.0.0.1", "STOWAGE_ADVERTISE_ADDRESS must be an IP address"),
    ("STOWAGE_ADVERTISE_ADDRESS", "host.example", "STOWAGE_ADVERTISE_ADDRESS must be an IP add"),
    ("STOWAGE_DEBUG", "maybe", "STOWAGE_DEBUG must be true or false"),
    ("STOWAGE_LOG_LEVEL", "LOUD", "STOWAGE_LOG_LEVEL must be one of DEBUG, INFO"),
    ("STOWAGE_CONTROLLERS", "*,-deploy", "STOWAGE_CONTROLLERS may name deployment, replicaset"),
    ("STOWAGE_ADMISSION", "yes", "STOWAGE_ADMISSION must be JSON"),
    ("STOWAGE_ADMISSION", "[]", "STOWAGE_ADMISSION must be a JSON object"),
    ("DATABASE_URL", "mysql://root@/db", "DATABASE_URL must start with postgresql://"),
    ("DATABASE_URL", "postgresql://host", "DATABASE_URL names no database"),
    ("DATABASE_URL", "postgresql://h/d?nonsense=1", "DATABASE_URL is not a PostgreSQL URL"),
    ("REDIS_URL", "http://localhost", "REDIS_URL must start with redis://"),
]
# One fresh interpreter for all of them: it reads the settings once for each bad value.
READ_EACH = """
import importlib, os, sys
import clusterstate.settings as settings
for pair in sys.argv[1:]:
    variable, _, value = pair.partition("=")
    before = dict(os.environ)
    os.environ[variable] = value
    try:
        importlib.reload(settings)
        print("accepted")
    except Exception as error:
        print(f"{type(error).__name__}: {error}")
    os.environ.clear()
    os.environ.update(before)
"""


@pytest.fixture(scope="module")
def answers() -> list[str]:
    pairs = [f"{variable}={value}" for variable, value, _ in BAD_VALUES]
    done = subprocess.run(
        [sys.executable, "-c", READ_EACH, *pairs],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    )
    return done.stdout.splitlines()


@pytest.mark.parametrize("number", range(len(BAD_VALUES)), ids=[row[2] for row in BAD_VALUES])
def test_a_bad_value_stops_the_start_and_names_the_variable(
    answers: list[str], number: int
) -> None:
    assert answers[number].startswith(f"BadSetting: {BAD_VALUES[number][2]}")


def test_pages_answer_to_the_names_of_this_host_unless_more_are_named(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def read(listens: str = "0.0.0.0", advertised: str = "", origins: Iterable[str] = ()) -> set:
        return set(environment.hosts("STOWAGE_ALLOWED_HOSTS", listens, advertised, [*origins]))

    monkeypatch.delenv("STOWAGE_ALLOWED_HOSTS", raising=False)
    own = read()
    assert {"localhost", "127.0.0.1", "[::1]", socket.gethostname().lower()} <= own
    assert not {"*", "", "0.0.0.0"} & own
    assert read("10.1.2.3", "2001:db8::7") - own == {"10.1.2.3", "[2001:db8::7]"}
    assert read(origins=["https://Stowage.example:8443"]) - own == {"stowage.example"}
    monkeypatch.setenv("STOWAGE_ALLOWED_HOSTS", "a.example, .b.example")
    assert read("10.1.2.3") == {"a.example", ".b.example"}


@pytest.mark.django_db
@pytest.mark.parametrize("path", ["/console/", "/admin/login/", "/", "/docs"])
def test_a_page_that_is_called_by_another_name_says_what_to_do(path: str, settings: Any) -> None:
    settings.ALLOWED_HOSTS = ["localhost"]
    browser = Client(HTTP_ACCEPT="text/html")
    refused = browser.get(path, HTTP_HOST="evil.example")
    assert (refused.status_code, "STOWAGE_ALLOWED_HOSTS" in refused.text) == (400, True)
    assert "evil.example" not in refused.text
    assert browser.get(path, HTTP_HOST="localhost:8080").status_code != 400
    # Programs come with a token, by any name that leads here.
    token = f"Bearer {make_token('ann', ['system:masters'])}"
    for document in ("/api", "/version", "/.well-known/openid-configuration"):
        answer = Client().get(document, HTTP_HOST="k8s.example", HTTP_AUTHORIZATION=token)
        assert answer.status_code == 200, document


def test_a_misspelled_or_former_setting_is_named_with_what_is_meant() -> None:
    program = (
        "import clusterstate.settings; from clusterstate import environment;"
        "print(*environment.unknown(), sep='\\n')"
    )
    given = {
        name: value for name, value in os.environ.items() if not name.startswith("STOWAGE_")
    }  # fmt: skip
    given |= {"STOWAGE_WEB_THREAD": "8", "STOWAGE_POSTGRES_USER": "me", "STOWAGE_WEB_WORKERS": "2"}
    given |= {"STOWAGE_DB_POOL": "8"}
    done = subprocess.run(
        [sys.executable, "-c", program], cwd=ROOT, env=given, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    dropped, misspelled = done.stdout.splitlines()
    assert dropped.startswith("STOWAGE_DB_POOL is no setting any more: each thread of a web")
    assert misspelled == "STOWAGE_WEB_THREAD is no setting: is STOWAGE_WEB_THREADS meant?"


def test_manage_says_its_own_version() -> None:
    done = subprocess.run(
        [sys.executable, "manage.py", "--version"], cwd=ROOT, capture_output=True, text=True,
        check=True,
    )  # fmt: skip
    assert done.stdout == f"Stowage {clusterstate.__version__}\n"


def test_the_licence_is_there_and_secrets_stay_out() -> None:
    text = (ROOT / "LICENSE").read_text()
    assert "Apache License" in text
    assert "END OF TERMS AND CONDITIONS" in text
    for name in (".gitignore", ".dockerignore"):
        assert ".env" in (ROOT / name).read_text().splitlines()


READERS = {
    "DATABASE_URL": lambda: environment.postgres("DATABASE_URL", ""),
    "REDIS_URL": lambda: environment.url("REDIS_URL", "", ("redis", "rediss", "unix")),
}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("DATABASE_URL", "postgresql://me:hunter%2@db/d"),
        ("DATABASE_URL", "postgresql://me:hunter%002@db/d"),
        ("DATABASE_URL", "postgresql://me@db/d?password=hunter2&hunter2"),
        ("DATABASE_URL", "mysql://me:hunter2@db/d"),
        ("DATABASE_URL", "host=db password=hunter2"),
        ("REDIS_URL", "sentinel://:hunter2@db"),
        ("REDIS_URL", "hunter2@db:6379"),
    ],
)
def test_what_is_said_of_a_bad_url_has_no_password(
    name: str, value: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(environment.BadSetting) as caught:
        READERS[name]()
    assert str(caught.value).startswith(f"{name} ")
    assert "hunter" not in str(caught.value)


@pytest.mark.parametrize(
    "command",
    [["manage.py", "up"], ["manage.py", "simulate", "nodes.yaml"], ["-m", "scheduling", "beat"]],
    ids=" ".join,
)
def test_a_command_with_a_bad_value_ends_with_one_sentence(command: list[str]) -> None:
    done = subprocess.run(
        [sys.executable, *command],
        cwd=ROOT,
        env=os.environ | {"STOWAGE_MAX_BODY": "lots"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    assert done.stderr == "error: STOWAGE_MAX_BODY must be a whole number, but it is 'lots'.\n"


def test_a_unix_socket_url_keeps_its_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("DATABASE_URL", "postgresql://me@/db?host=/run/pg%20dir&sslmode=disable")
    assert environment.postgres("DATABASE_URL", "") == {
        "dbname": "db",
        "user": "me",
        "host": "/run/pg dir",
        "sslmode": "disable",
    }


def test_switches_are_spelt_as_in_documents(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOWAGE_ADMISSION", '{"waitForRuntimeClass": true}')
    assert environment.switches("STOWAGE_ADMISSION") == {"wait_for_runtime_class": True}


def test_an_empty_variable_counts_as_unset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("STOWAGE_HTTP_PORT", "")
    assert environment.integer("STOWAGE_HTTP_PORT", 8080, at_least=1, at_most=65535) == 8080
    monkeypatch.setenv("STOWAGE_HTTP_PORT", " 1_0 ")
    with pytest.raises(ImproperlyConfigured):
        environment.integer("STOWAGE_HTTP_PORT", 8080, at_least=20, at_most=65535)


@pytest.mark.parametrize("variable", VARIABLES)
def test_the_page_of_settings_lists_every_variable(variable: str) -> None:
    assert f"`{variable}`" in (ROOT / "docs/settings.md").read_text()


def _named_in(paths: Iterable[Path], pattern: str) -> set[str]:
    return {name for path in paths for name in re.findall(pattern, path.read_text())}


def test_whatever_reads_a_variable_or_tells_of_one_means_the_same_variables() -> None:
    """Code reads none that docs/settings.md does not list, and no page tells of another one."""
    code = [
        path
        for folder in ("api", "clusterstate", "scheduling")
        for path in (ROOT / folder).rglob("*.py")
    ]
    pages = [
        ROOT / "README.md",
        ROOT / "docker-compose.yml",
        ROOT / "Dockerfile",
        *(ROOT / "docs").rglob("*.md"),
    ]
    listed = _named_in([ROOT / "docs/settings.md"], r"`(STOWAGE_[A-Z_]+)`")
    assert _named_in(code, r"[\"'](STOWAGE_[A-Z_]+)[\"']") == listed
    assert _named_in(pages, r"\b(STOWAGE_[A-Z_]+)\b") == listed


@pytest.mark.parametrize(
    ("check", "changes", "number"),
    [
        (apps.check_browser_chain, {"BROWSER_MIDDLEWARE": []}, "clusterstate.E001"),
        (apps.check_ports, {"HTTP_PORT": 8443, "HTTPS_PORT": 8443}, "clusterstate.E003"),
        (apps.check_admission, {"ADMISSION": {"wait": True}}, "clusterstate.E005"),
        (apps.check_admission, {"ADMISSION": {"priority": "no"}}, "clusterstate.E005"),
        (apps.check_audit, {"AUDIT_POLICY_FILE": "/dev/null"}, "clusterstate.E006"),
        (apps.check_audit, {"AUDIT_LOG_FILE": "/nowhere/audit.log"}, "clusterstate.E006"),
        (apps.check_secret, {"SECRET_KEY": "short"}, "clusterstate.W004"),
    ],
)
def test_a_wrong_combination_has_a_numbered_check(check, changes, number: str) -> None:
    with override_settings(**changes):
        assert {message.id for message in check(None)} == {number}


def test_the_defaults_pass_every_check() -> None:
    for check in (
        apps.check_admission, apps.check_browser_chain, apps.check_ports
    ):  # fmt: skip
        assert not [message for message in check(None) if isinstance(message, Error)]
