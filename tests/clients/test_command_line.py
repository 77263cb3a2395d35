"""The command line for those who make mistakes: wrong files, wrong servers, wrong arguments."""

import json
import logging
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from stowage.cli.main import main
from stowage.client import Client, Connection, Unreachable
from tests.live import ROOT, Service, node, pod

Run = Callable[..., Result]
SERVER = "http://127.0.0.1:1"
KUBECONFIG: dict[str, Any] = {
    "current-context": "a",
    "contexts": [{"name": "a", "context": {"cluster": "c", "user": "u"}}],
    "clusters": [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}],
    "users": [{"name": "u", "user": {}}],
}


def typed(*command: str, stdin: str = "", **environment: str) -> Result:
    known = {"KUBECONFIG": None, "STOWAGE_SERVER": None, "STOWAGE_TOKEN": None}
    return CliRunner().invoke(main, command, input=stdin, env={**known, **environment})


@pytest.fixture
def run(live: Service, caplog: pytest.LogCaptureFixture) -> Run:
    caplog.set_level(logging.WARNING, "httpx")  # which the log of the tests shows, and no user
    live.request("POST", "/api/v1/nodes", node("typed", cpu="4"))

    def run(*command: str, stdin: str = "", token: str = live.token) -> Result:
        server = f"http://127.0.0.1:{live.http_port}"
        return typed(*command, stdin=stdin, STOWAGE_SERVER=server, STOWAGE_TOKEN=token)

    return run


@pytest.mark.parametrize(
    ("environment", "said"),
    [
        ({"STOWAGE_SERVER": "nonsense"}, "the server 'nonsense' is not a URL such as https://"),
        ({"STOWAGE_SERVER": "ftp://x"}, "the server 'ftp://x' is not a URL such as https://"),
        ({"STOWAGE_SERVER": SERVER, "STOWAGE_TOKEN": "ä"}, "it has characters that are not prin"),
        ({"STOWAGE_SERVER": SERVER, "STOWAGE_TOKEN": "a\nb"}, "it has characters that are not"),
        ({"STOWAGE_SERVER": SERVER, "STOWAGE_TOKEN_FILE": "/nowhere"}, "/nowhere: No such file"),
        ({"STOWAGE_SERVER": "https://x", "STOWAGE_CA": "/nowhere"}, "certificates of https://x"),
    ],
)
def test_a_service_that_cannot_be_asked_is_told_at_once(
    environment: dict[str, str], said: str
) -> None:
    done = typed("why", "a", **environment)
    assert (done.exit_code, done.output.startswith("Error: ")) == (3, True), done.output
    assert said in done.output


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"contexts": 3}, "there is no context a"),
        ({"users": [{"name": "u", "user": "x"}]}, "there is no user u"),
        (
            {"users": [{"name": "u", "user": {"client-certificate": "c", "client-key": "k"}}]},
            "the client's certificate, ",
        ),
    ],
)
def test_a_wrong_kubeconfig_is_named(tmp_path: Path, change: dict[str, Any], said: str) -> None:
    file = tmp_path / "config"
    file.write_text(json.dumps(KUBECONFIG | change))
    done = typed("why", "a", KUBECONFIG=str(file))
    assert (done.exit_code, said in done.output) == (3, True), done.output


@pytest.mark.parametrize(
    "command",
    ["decisions --limit -1", "top --rows 0", "submit a --timeout -1", "why", "no", "completion x"],
)
def test_a_wrong_command_line_ends_with_2(command: str) -> None:
    done = typed(*command.split())
    assert (done.exit_code, "Usage: " in done.output) == (2, True), done.output


@pytest.mark.parametrize(
    ("command", "program"),
    [("tokens create", "stowage manage createtoken"), ("backup", "stowage backup")],
)
def test_usage_names_what_was_typed(command: str, program: str) -> None:
    code = f"from stowage.cli.main import main; main({command.split()}, prog_name='stowage')"
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert f"usage: {program} " in done.stderr


def test_words_are_completed() -> None:
    environment = {"_STOWAGE_COMPLETE": "bash_complete", "COMP_WORDS": "stowage wh"}
    code = "from stowage.cli.main import main; main(prog_name='stowage')"
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=ROOT, env={**os.environ, **environment, "COMP_CWORD": "1"}, capture_output=True,
        text=True, check=False,
    )  # fmt: skip
    assert done.stdout == "plain,why\n"


def test_a_folder_that_goes_meanwhile_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0o000)
    done = typed("submit", str(tmp_path), STOWAGE_SERVER=SERVER)
    assert "the folder holds no .yaml, .yml or .json file" in done.output


@pytest.mark.db
@pytest.mark.slow
@pytest.mark.real_clock
class TestAgainstAService:
    @pytest.mark.parametrize(
        ("file", "said"),
        [
            ("a: [1", "-: the body is not valid YAML"),
            ("only text", "a document has no kind"),
            ("- 1", "a document has no kind"),
            ("kind: Widget\nmetadata: {name: a}", "v1 has no kind Widget"),
            ("kind: A\napiVersion: nope/v9\nmetadata: {name: a}", "nope/v9 has no kind A"),
            ("kind: A\napiVersion: ../../x\nmetadata: {name: a}", "../../x has no kind A"),
            ("kind: ConfigMap\nmetadata: text", "ConfigMap: metadata: Expected `object`"),
            ("kind: ConfigMap\nmetadata: {name: 7}", "got `int` - at `metadata.name`"),
            ("kind: ConfigMap", "metadata.name: Required value"),
            ("kind: ConfigMap\nmetadata: {name: 'a?b'}", '"a?b" is invalid'),
            ("kind: Pod\nmetadata: text", "metadata: Expected `object`"),
            ("kind: Pod\nmetadata: {labels: text}", "got `str` - at `metadata.labels`"),
            ("{kind: Pod, metadata: {name: a}}\n---\n{kind: Pod, metadata: {name: a}}", "same"),
        ],
    )
    def test_a_wrong_file_is_told_in_a_sentence(self, run: Run, file: str, said: str) -> None:
        done = run("submit", "-", stdin=file)
        assert (done.exit_code, done.output[:7]) == (1, "Error: ")
        assert said in done.output

    def test_other_objects_are_counted_where_there_is_no_pod(self, run: Run) -> None:
        done = run("submit", "-", stdin="kind: ConfigMap\nmetadata: {name: typed}")
        assert done.exit_code == 0
        assert done.output == "The files hold no pod; 1 other objects are applied.\n"

    @pytest.mark.parametrize("name", ["a?b", "%2e%2e", "a b"])
    def test_a_name_is_no_path(self, run: Run, name: str) -> None:
        assert run("why", name).output == f'Error: pods "{name}" not found\n'

    def test_a_token_that_is_not_known_is_named_as_the_reason(self, run: Run) -> None:
        done = run("why", "a", token="nobody's")
        assert done.exit_code == 1
        assert "the token is unknown, revoked or expired" in done.output

    def test_a_configuration_is_a_file_or_a_short_name(self, run: Run, tmp_path: Path) -> None:
        assert "NodeResourcesFit" in run("config", "diff", "packing").output
        wrong = tmp_path / "wrong.yaml"
        wrong.write_text("kind: Widget\napiVersion: v1")
        for command in ("diff", "effective", "set"):
            done = run("config", command, str(wrong))
            assert done.exit_code == 1
            assert "supported values: " in done.output
        assert "short names are default" in run("config", "diff", "nowhere").output

    def test_a_row_is_a_line_where_nobody_looks(self, live: Service, run: Run) -> None:
        path = "/api/v1/namespaces/default/pods/typed-large"
        large = json.dumps(pod("typed-large", cpu="9999"))
        done = run("submit", "-", "--wait", "--timeout", "3", stdin=large)
        live.request("DELETE", path, {"gracePeriodSeconds": 0})
        assert done.exit_code == 4, done.output
        assert len([line for line in done.output.splitlines() if line.strip()]) == 3

    def test_an_unknown_certificate_is_told_without_waiting(self, live: Service) -> None:
        connection = Connection(server=f"https://127.0.0.1:{live.https_port}", token=live.token)
        unknown = pytest.raises(Unreachable, match="certificate verify failed")
        with Client(connection, patience=3600) as client, unknown:
            client.get("/api/v1/nodes")
