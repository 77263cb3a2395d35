"""Nothing is pickled: who can write to a cache, a queue or a file must not run code by it."""

import ast
import subprocess
from pathlib import Path

import pytest
from celery.app import app_or_default
from celery.beat import Scheduler
from django.conf import settings
from django.contrib.sessions.serializers import JSONSerializer
from django.utils.module_loading import import_string

from scheduling.celery import app

ROOT = Path(__file__).resolve().parents[2]
PICKLING = {"pickle", "_pickle", "cPickle", "shelve", "dill", "cloudpickle", "joblib", "marshal"}
LOADS = {"allow_pickle", "read_pickle", "to_pickle", "PickleSerializer"}


def sources() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "-co", "--exclude-standard", "*.py"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    if listed.returncode:
        pytest.skip("not a git checkout")
    found = [ROOT / line for line in listed.stdout.splitlines()]
    return [path for path in found if path.exists() and "tests" not in path.parts]


def test_no_module_imports_what_pickles() -> None:
    found = []
    for path in sources():
        for node in ast.walk(ast.parse(path.read_text())):
            names: list[str] = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                names = [node.module or "", *(alias.name for alias in node.names)]
            elif isinstance(node, ast.keyword):
                names = [node.arg or ""] if not is_false(node.value) else []
            elif isinstance(node, ast.Attribute):
                names = [node.attr]
            if any(name.partition(".")[0] in PICKLING or name in LOADS for name in names):
                found.append(f"{path.relative_to(ROOT)}: {names}")
    assert found == []


def is_false(value: ast.expr) -> bool:
    return isinstance(value, ast.Constant) and value.value is False


def test_celery_sends_and_takes_json_alone() -> None:
    assert app_or_default(app) is app
    conf = app.conf
    assert (conf.task_serializer, conf.result_serializer) == ("json", "json")
    assert (conf.accept_content, conf.result_accept_content) == (["json"], ["json"])
    assert conf.event_serializer == "json"


def test_beat_keeps_its_schedule_in_memory() -> None:
    assert import_string(app.conf.beat_scheduler.replace(":", ".")) is Scheduler
    due = Scheduler(app=app).get_schedule()
    assert {"schedule", "bind", "evict", "run-controllers", "trim-history"} <= due.keys()


def test_sessions_are_json_and_nothing_is_cached_by_pickling() -> None:
    assert import_string(settings.SESSION_SERIALIZER) is JSONSerializer
    assert settings.SESSION_ENGINE == "django.contrib.sessions.backends.db"
    backends = {cache["BACKEND"] for cache in settings.CACHES.values()}
    assert backends == {"django.core.cache.backends.dummy.DummyCache"}
