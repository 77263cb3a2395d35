"""Nothing is pickled: who can write to a cache, a queue or a file must not run code by it."""

import ast
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import pytest
from celery.app import app_or_default
from celery.beat import Scheduler
from django.conf import settings
from django.contrib.sessions.backends.db import SessionStore as DatabaseSessions
from django.contrib.sessions.serializers import JSONSerializer
from django.utils.module_loading import import_string

from scheduling.celery import app

ROOT = Path(__file__).resolve().parents[2]
PICKLING = {"pickle", "_pickle", "cPickle", "shelve", "dill", "cloudpickle", "joblib", "marshal"}
LOADS = {"allow_pickle", "read_pickle", "to_pickle", "PickleSerializer"}


def sources() -> Iterator[Path]:
    for folder in ("api", "clusterstate", "examples", "migrations", "scheduling", "tools"):
        yield from sorted((ROOT / folder).rglob("*.py"))
    yield ROOT / "manage.py"


def pickling(text: str) -> list[list[str]]:
    """Return the names by which a module imports or calls what pickles."""
    found: list[list[str]] = []
    if not any(name in text for name in PICKLING | LOADS):
        return found  # to parse all modules would take seconds
    for node in ast.walk(ast.parse(text)):
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
            found.append(names)
    return found


def test_no_module_imports_what_pickles() -> None:
    texts = {str(path.relative_to(ROOT)): path.read_text() for path in sources()}
    assert len(texts) > 400
    assert {path: found for path, text in texts.items() if (found := pickling(text))} == {}


@pytest.mark.parametrize(
    "code",
    [
        "import pickle",
        "from pickle import loads",
        "import joblib.memory",
        "np.load(path, allow_pickle=True)",
        "frame.to_pickle(path)",
        "from django.contrib.sessions.serializers import PickleSerializer",
    ],
)
def test_what_pickles_is_recognised(code: str) -> None:
    assert pickling(code)
    assert not pickling("np.load(path, allow_pickle=False)")


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
    assert issubclass(import_module(settings.SESSION_ENGINE).SessionStore, DatabaseSessions)
    backends = {cache["BACKEND"] for cache in settings.CACHES.values()}
    assert backends == {"django.core.cache.backends.dummy.DummyCache"}
