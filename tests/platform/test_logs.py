"""Log lines carry the event and its fields, as text and as JSON."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

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
        assert rest[-1] == "ZeroDivisionError: division by zero"
