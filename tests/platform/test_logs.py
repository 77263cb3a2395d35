"""Log lines carry the event and its fields, as text and as JSON."""

import fcntl
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from clusterstate.telemetry import logs
from tests.forms import few

ROOT = Path(__file__).resolve().parents[2]
PROGRAM = """
import django, logging, structlog
django.setup()
structlog.get_logger("stowage.test").info("pod_bound", pod="default/nginx", node="node-1")
logging.getLogger("stowage.test").warning("plain %s", "words", extra={"revision": 7})
try:
    1 / 0
except ZeroDivisionError:
    logging.getLogger("stowage.test").exception("cycle_failed")
"""


TOKEN = "aB3_" * 10 + "xyZ"
FORGED = "2026-01-01T00:00:00Z info    stowage.test forged"


@pytest.mark.parametrize(
    "mark", ["\n", "\r", "\r\n", "\x85", "\u2028", "\x1b[2J", "\0", "\u202e", "\ud800"]
)
def test_a_text_of_a_client_makes_no_line_and_moves_no_terminal(mark: str) -> None:
    """In an event, in a field of any kind, and in what an exception says."""
    text = f"a{mark}{FORGED}"

    class Thing:
        def __repr__(self) -> str:
            return text

    for event in ({"event": text}, {"one": text}, {"one": [text]}, {"one": Thing()}):
        line = logs.render_text(None, "info", dict(event))
        assert line.isprintable(), line
        assert "forged" in line
    told = logs.render_text(None, "error", {"event": "failed", "exception": f"ValueError: {text}"})
    first, *below = told.split("\n")
    assert first.endswith("failed")
    assert all(one.isprintable() and one.startswith("  ") for one in below)
    assert "forged" in told


def test_no_line_holds_a_password_or_a_token() -> None:
    program = f"""
import django, logging, structlog
django.setup()
log = structlog.get_logger("stowage.test")
log.info("failed", url="postgresql://ann:swordfish@host/db", path="/pods?token=swordfish")
logging.getLogger("stowage.test").warning("GET /%s", {TOKEN!r})
try:
    raise ValueError("http://swordfish@host/ eyJhbGciOiJF.eyJzdWIiOiJh.swordfish")
except ValueError:
    log.exception("failed", pod="default/nginx-with-a-long-name-of-its-own-2-and-3")
"""
    for form in ("text", "json"):
        environment = {**os.environ, "STOWAGE_LOG_FORMAT": form}
        done = subprocess.run(
            [sys.executable, "-c", program], cwd=ROOT, env=environment, capture_output=True,
            text=True, check=True,
        )  # fmt: skip
        assert "swordfish" not in done.stderr
        assert TOKEN not in done.stderr
        assert "//[blanked]@host/db" in done.stderr
        assert "nginx-with-a-long-name-of-its-own-2-and-3" in done.stderr


CELERY_STARTS = """
import django, logging, sys
django.setup()
before = sys.stderr
from scheduling.celery import app
app.Worker(hostname="w", queues=["q"], pool_cls="solo", quiet=True).setup_logging()
app.Beat(quiet=True).setup_logging()
assert sys.stderr is before
for level in ("debug", "info", "warning", "error"):
    for name in ("scheduling.worker.binder", "celery.app.trace"):
        getattr(logging.getLogger(name), level)("%s of %s", level, name)
"""


@pytest.mark.parametrize("level", few(["WARNING", "DEBUG", "INFO", "ERROR"], 1))
def test_the_level_that_is_set_holds_in_processes_of_celery(level: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", CELERY_STARTS],
        cwd=ROOT,
        env=os.environ
        | {"DJANGO_SETTINGS_MODULE": "clusterstate.settings", "STOWAGE_LOG_LEVEL": level},
        capture_output=True,
        text=True,
        check=True,
    )
    levels = ["debug", "info", "warning", "error"]
    expected = levels[levels.index(level.lower()) :]
    said = [line for line in levels if f"{line} of scheduling.worker.binder" in done.stderr]
    assert said == expected
    said = [line for line in levels if f"{line} of celery.app.trace" in done.stderr]
    assert said == [line for line in expected if line in ("warning", "error")]


@pytest.fixture(scope="module", params=["text", "json"])
def lines(request: pytest.FixtureRequest) -> tuple[str, list[str]]:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        cwd=ROOT,
        env=os.environ
        | {
            "STOWAGE_LOG_FORMAT": request.param,
            "DJANGO_SETTINGS_MODULE": "clusterstate.settings",
            "STOWAGE_PROCESS": "worker",
        },
        capture_output=True,
        text=True,
        check=True,
    )
    return request.param, done.stderr.splitlines()


def test_an_event_keeps_its_fields(lines) -> None:
    form, (bound, plain, *_) = lines
    if form == "json":
        assert (
            json.loads(bound).items()
            >= {
                "event": "pod_bound",
                "pod": "default/nginx",
                "level": "info",
                "logger": "stowage.test",
            }.items()
        )
        assert json.loads(plain).items() >= {"event": "plain words", "revision": 7}.items()
    else:
        assert bound.endswith("info    stowage.test pod_bound node=node-1 pod=default/nginx")
        assert plain.endswith("warning stowage.test plain words revision=7")


def test_an_exception_shows_its_traceback(lines) -> None:
    form, (_, _, failed, *rest) = lines
    if form == "json":
        assert "ZeroDivisionError" in json.loads(failed)["exception"]
    else:
        assert failed.endswith("error   stowage.test cycle_failed")
        assert rest[-1] == "  ZeroDivisionError: division by zero"


STUBBORN = """
import django, logging, structlog, sys
django.setup()
class Nasty:
    def __repr__(self): raise RuntimeError("no")
    __str__ = __repr__
events, plain = structlog.get_logger("stowage.test"), logging.getLogger("stowage.test")
for number in range(3000):
    events.info("something", field="x" * 40, nasty=Nasty())
    events.info("%d of %s", "not a number")
    plain.warning("%d", "not a number")
    plain.error("nasty %s", Nasty(), extra={"nasty": Nasty()})
open(sys.argv[1], "w").write("went on")
"""


@pytest.mark.parametrize("output", few(["full", "closed", "unread", "broken"], 2))
def test_a_log_that_cannot_be_written_stops_nobody(output: str, tmp_path: Path) -> None:
    reading, writing = os.pipe()
    if output == "broken":
        os.close(reading)
    program = [sys.executable, "-c", STUBBORN, str(tmp_path / "done")]
    if output == "closed":
        program = ["sh", "-c", 'exec "$@" 2>&-', "sh", *program]
    with Path("/dev/full").open("w") as full:
        done = subprocess.run(
            program, cwd=ROOT, timeout=60, check=False,
            stderr={"full": full, "closed": None}.get(output, writing),
            env=os.environ | {"DJANGO_SETTINGS_MODULE": "clusterstate.settings",
                              "STOWAGE_PROCESS": "worker"},
        )  # fmt: skip
    assert done.returncode == 0
    assert (tmp_path / "done").read_text() == "went on"
    os.close(writing)
    if output != "broken":
        os.close(reading)


def test_lines_that_were_dropped_are_counted_where_they_are_missing() -> None:
    reading, writing = os.pipe()
    size = fcntl.fcntl(writing, fcntl.F_GETPIPE_SZ)
    outlet = logs.Outlet(lambda: writing)
    assert outlet.write("first")
    os.write(writing, b"." * (size - len("first\n")))
    assert not outlet.write("nothing fits")
    assert not outlet.write("lost")
    assert len(os.read(reading, size)) == size
    assert outlet.write("later")
    assert os.read(reading, size) == (b"2 log lines were not written: nobody reads them\nlater\n")
    os.close(reading)
    assert not outlet.write("nobody is there")
    os.close(writing)


def test_a_log_file_is_private_bounded_and_comes_back(tmp_path: Path) -> None:
    path = tmp_path / "missing" / "log"
    file = logs.LogFile(path, largest=100)
    assert not file.write("no folder yet")
    path.parent.mkdir()
    for number in range(8):
        assert file.write(f"line {number} {'-' * 30}")
    assert file.write("last")
    assert path.stat().st_mode & 0o777 == 0o600
    kept = path.with_name("log.1").read_text() + path.read_text()
    assert kept.splitlines()[-1] == "last"
    assert len(kept) < 300
