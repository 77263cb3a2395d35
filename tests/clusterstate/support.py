"""Short ways to make objects, and threads with a database connection of their own."""

import io
import threading
from collections.abc import Callable
from typing import Any

from django.core.management import call_command
from django.db import connection

from clusterstate.actions import objects
from clusterstate.actions.pods.bind import Binding, bind_pods
from clusterstate.change_log import changes
from clusterstate.change_log.changes import Change
from clusterstate.objects.values import document
from clusterstate.queries.objects import decode_object, get_manifest
from clusterstate.queries.objects.lists import Page
from clusterstate.queries.pods import find_pod_id, pod_overlay
from tests.clock import NOW, after
from tests.creating import create_pod

LATER = after(300)


def verified(*arguments: str) -> str:
    """Return what ``manage.py auditlog`` prints; it fails where a line or a seal was changed."""
    out = io.StringIO()
    call_command("auditlog", *arguments, stdout=out)
    return out.getvalue()


def pod(name: str = "", *, namespace: str = "default", **parts: Any) -> dict[str, Any]:
    """Return a pod manifest; ``labels``, ``annotations`` and ``finalizers`` go to the metadata."""
    metadata: dict[str, Any] = {"namespace": namespace}
    if name:
        metadata["name"] = name
    for key in ("labels", "annotations", "finalizers", "generateName"):
        if key in parts:
            metadata[key] = parts.pop(key)
    cpu = parts.pop("cpu", "100m")
    container = {
        "name": "main",
        "image": "nginx:1",
        "resources": {"requests": {"cpu": cpu, "memory": "64Mi"}},
    }
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": metadata,
        "spec": {"containers": [container], **parts},
    }


def node(name: str, **parts: Any) -> dict[str, Any]:
    """Return a node manifest of 4 CPUs, 32 GiB and 110 pods."""
    metadata: dict[str, Any] = {"name": name}
    if "labels" in parts:
        metadata["labels"] = parts.pop("labels")
    allocatable = {"cpu": "4", "memory": "32Gi", "pods": "110"} | parts.pop("allocatable", {})
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": metadata,
        "spec": parts,
        "status": {"allocatable": allocatable, "capacity": allocatable},
    }


def create_node(name: str, **parts: Any) -> int:
    return objects.create("Node", "", node(name, **parts), now=NOW).revision


def new_pod(name: str, **parts: Any) -> int:
    """Create a pod and return its id."""
    namespace = parts.get("namespace", "default")
    create_pod(pod(name, **parts), now=NOW)
    found = find_pod_id(namespace, name)
    assert found is not None
    return found


def bind(pod_id: int, node_name: str) -> bool:
    result = bind_pods([Binding(pod_id, node_name)], snapshot_revision=changes.watermark(), now=NOW)
    return bool(result.bound)


def manifest(kind: str, namespace: str, name: str) -> dict[str, Any]:
    return get_manifest(kind, namespace, name)


def items(page: Page) -> dict[tuple[str, str], dict[str, Any]]:
    """Return a page's objects by namespace and name; fails on one that is there twice."""
    found = {}
    for item in page.items:
        decoded = decode_object(item)
        key = (decoded["metadata"].get("namespace", ""), decoded["metadata"]["name"])
        assert key not in found, f"{key} is listed twice"
        found[key] = decoded
    return found


def names(page: Page) -> list[str]:
    return [decode_object(item)["metadata"]["name"] for item in page.items]


def everything_since(cursor: int, kind: str | None = None) -> list[Change]:
    result: list[Change] = []
    while True:
        read = changes.read_since(
            cursor, kinds=None if kind is None else [kind], limit=500, documents=None
        )
        result += read.items
        cursor = read.cursor
        if not read.more:
            return result


def composed(change: Change) -> dict[str, Any]:
    assert change.text is not None
    overlay = pod_overlay(
        change.node_name, change.scheduled_at, change.unschedulable, change.eviction
    )
    return document.decode(change.text, change.revision, overlay)


def replay(
    state: dict[tuple[str, str], dict[str, Any]], log: list[Change]
) -> dict[tuple[str, str], dict[str, Any]]:
    """Apply a watch's events to a list, as an informer does; fails where one is missing."""
    state = dict(state)
    last = 0
    for change in log:
        assert change.revision > last, "events out of order"
        last = change.revision
        key = (change.namespace, change.name)
        if change.verb == changes.ADDED:
            assert key not in state, f"{key} was listed and is added again"
            state[key] = composed(change)
        else:
            assert key in state, f"{key} changes but was never seen"
            known = int(state[key]["metadata"]["resourceVersion"])
            assert change.previous_revision == known, f"{key}: an event is missing or repeated"
            if change.verb == changes.MODIFIED:
                state[key] = composed(change)
            else:
                del state[key]
    return state


class Worker(threading.Thread):
    """A thread with its own connection; ``result`` re-raises what happened in it."""

    def __init__(self, work: Callable[[], Any]) -> None:
        super().__init__(daemon=True)
        self._work = work
        self._value: Any = None
        self._error: BaseException | None = None
        self.start()

    def run(self) -> None:
        try:
            self._value = self._work()
        except BaseException as error:  # noqa: BLE001 - result() raises it again
            self._error = error
        finally:
            connection.close()

    def result(self, seconds: float = 20) -> Any:
        self.join(seconds)
        assert not self.is_alive(), "the thread did not end"
        if self._error is not None:
            raise self._error
        return self._value
