"""Everybody who follows the log, and every page, one after the other over the same rows."""

import json
import re
from collections.abc import Iterable, Iterator
from datetime import datetime, timedelta
from importlib import import_module
from inspect import isfunction, signature
from itertools import product
from pkgutil import walk_packages
from typing import Any
from urllib.parse import quote as quoted

from django.contrib import admin
from django.contrib.admin.utils import quote
from django.test import Client
from django.urls import reverse

from api import resources
from api.console import urls as console
from api.server import metrics
from api.stowage import decision_search
from api.streaming import events_stream, hub, state_metrics
from clusterstate.actions import past
from clusterstate.actions.scheduler import seals
from clusterstate.change_log import changes
from clusterstate.database import sql
from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.registry.kinds import ALL_KINDS, KINDS
from clusterstate.objects.values.actor import acting
from clusterstate.objects.values.errors import StatusError
from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.evictions.eviction_timers import unforeseen
from clusterstate.queries.objects import decode_object
from clusterstate.queries.objects.lists import list_page
from scheduling import controllers
from scheduling.answers import registry
from scheduling.controllers import manager, operations
from scheduling.controllers.evictions import brake, timekeeper, timers
from scheduling.controllers.nodes import lifecycle
from scheduling.controllers.pods import deletion
from scheduling.controllers.webhooks import delivery
from scheduling.processes import duties, landings
from tests.controllers import support

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"
BY_THEMSELVES = (timers, lifecycle, operations, delivery)
"""Followers that the manager does not run; ``follow`` calls each. `timekeeper` runs `timers`."""


def followers() -> set[str]:
    """Return the modules of controllers that look at the cluster, the manager's but for itself."""
    found = set()
    for module in walk_packages(controllers.__path__, f"{controllers.__name__}."):
        loaded = import_module(module.name)
        for one in ("follow", "run", "collect", "settle", "deliver_due"):
            function = getattr(loaded, one, None)
            if not isfunction(function) or function.__module__ != module.name:
                continue
            if next(iter(signature(function).parameters), "") == "now":  # others are frames
                found.add(module.name)
    return found - {manager.__name__, timekeeper.__name__}


def follow(now: datetime) -> None:
    """Let every controller look, and fire what is due; what fails, raises."""
    timers.follow(now)
    brake.judge(now, changed=True)
    if unforeseen(now + timedelta(seconds=30), limit=1):
        landings.foresee(now)
    support.fire(now)
    deletion.finish(now)
    for one in manager.CONTROLLERS.values():
        with acting(one.actor):
            one.look(now)
    lifecycle.run(now)
    operations.run(lambda: now)
    delivery.deliver_due(now)
    timers.follow(now)


def remember(now: datetime) -> None:
    """Seal decisions, pack the past, count what waits, and drop what is old."""
    seals.seal()
    while past.pack(now=now, until=changes.watermark()).changes:
        pass
    duties.trim()


def watch(cursor: int) -> int:
    """Build the events of all that came after, as watches get them; return up to where."""
    while True:
        read = changes.read_since(cursor, documents=None, previous=None)
        for event in hub.events_of(read.items):
            json.loads(event.line(b"MODIFIED"))
            assert event.new["metadata"]["name"]
            assert event.old is None or event.old["metadata"]["name"]
        cursor = read.cursor
        if not read.more:
            return cursor


def set_aside() -> list[tuple[str, str, str, str]]:
    """Return what anybody set aside: follower, kind, name and error."""
    return sql.fetch("SELECT follower, kind, name, error FROM set_aside ORDER BY 1, 2, 3")


def read_everything(client: Client, token: str) -> list[str]:
    """Read every list, as JSON and as a table; return what was answered with an error."""
    paths = (list_path(kind) for kind in ALL_KINDS)
    return [*_failed(client, token, product(paths, ("application/json", TABLE)))]


def read_past_and_answers(client: Client, token: str) -> list[str]:
    """Read every list as of a revision, and what else is read; return what failed."""
    at = f"?at={changes.watermark()}"
    paths = (*(f"{list_path(kind)}{at}" for kind in ALL_KINDS), *own_paths())
    return [*_failed(client, token, ((path, "application/json") for path in paths))]


def list_path(kind: Kind) -> str:
    """Return where all objects of a kind are listed."""
    return f"{'/api' if not kind.group else '/apis'}/{kind.api_version}/{kind.plural}"


def _failed(client: Client, token: str, wanted: Iterable[tuple[str, str]]) -> Iterator[str]:
    for path, accept in wanted:
        answer = client.get(path, HTTP_ACCEPT=accept, HTTP_AUTHORIZATION=f"Bearer {token}")
        if answer.status_code >= 500:
            yield f"{path} ({accept[:24]}): {answer.content[:300]!r}"


def named(kind: Kind) -> list[tuple[str, str]]:
    """Return namespace and name of the objects of a kind."""
    found = [decode_object(one)["metadata"] for one in list_page(kind).items]
    return [(one.get("namespace", ""), one["name"]) for one in found]


def stored() -> Iterator[tuple[str, str, str]]:
    """Yield kind, namespace and name of every object."""
    for kind in ALL_KINDS:
        for namespace, name in named(kind):
            yield kind.name, namespace, name


def changed() -> Iterator[tuple[str, str, str, int]]:
    """Yield kind, namespace, name and the revision of its last change of every object."""
    for kind in ALL_KINDS:
        for one in list_page(kind).items:
            metadata = decode_object(one)["metadata"]
            revision = int(metadata["resourceVersion"])
            yield kind.name, metadata.get("namespace", ""), metadata["name"], revision


def decided() -> list[tuple[str, str, int]]:
    """Return namespace, name and number of decisions."""
    return sql.fetch("SELECT namespace, name, id FROM decision ORDER BY id LIMIT 60")


def filled(names: Iterable[str]) -> Iterator[dict[str, Any]]:
    """Yield values for what a path leaves open: every object that it can be about.

    A path with a name that is not known here fails: say here what it is the name of.
    """
    wanted = set(names)
    nodes = [name for _, name in named(KINDS["Node"])]
    pods = named(KINDS["Pod"])
    known: dict[frozenset[str], Iterable[dict[str, Any]]] = {
        frozenset(): [{}],
        frozenset({"namespace"}): [{"namespace": "default"}],
        frozenset({"node"}): [{"node": one} for one in nodes],
        frozenset({"name"}): [{"name": one} for one in (*nodes, *(k.plural for k in ALL_KINDS))],
        frozenset({"key"}): [{"key": "zone.a"}],
        frozenset({"runtimeclass"}): [{"runtimeclass": "any"}],
        frozenset({"namespace", "name"}): [{"namespace": a, "name": b} for a, b in pods],
        frozenset({"namespace", "pod"}): [{"namespace": a, "pod": b} for a, b in pods],
        frozenset({"namespace", "pod", "name"}): [
            {"namespace": a, "pod": b, "name": "1"} for a, b in pods
        ],
        frozenset({"namespace", "name", "decision"}): [
            {"namespace": a, "name": b, "decision": c} for a, b, c in decided()
        ],
        frozenset({"node", "name"}): [{"node": one, "name": "1"} for one in nodes],
        frozenset({"namespace", "name", "number"}): [
            {"namespace": a, "name": b, "number": c} for a, b, c in decided()
        ],
        # Every list is asked for these: not before a path wants them.
        frozenset({"kind_name", "namespace", "name"}): (
            {"kind_name": kind, "namespace": namespace or "-", "name": name}
            for kind, namespace, name in stored()
        ),
        frozenset({"kind_name", "namespace", "name", "revision"}): (
            {"kind_name": kind, "namespace": namespace or "-", "name": name, "revision": revision}
            for kind, namespace, name, revision in changed()
        ),
    }
    yield from list(known[frozenset(wanted)])


def own_paths() -> Iterator[str]:
    """Yield every path that is read and is no kind's: answers of advisors, trails, searches."""
    for path, _, actions in resources.router.served(""):
        if "get" not in actions:
            continue
        for values in filled(re.findall(r"\{(\w+)\}", path)):
            filling = {name: quoted(str(value), safe="") for name, value in values.items()}
            yield f"/{path.format(**filling)}"
    for kind, namespace, name in stored():
        yield f"/apis/stowage.dev/v1/changes?kind={kind}&namespace={namespace}&name={quoted(name)}"


def export_everything() -> None:
    """Write every export and every scrape: metrics, state, decisions, events."""
    assert metrics.text()
    whole = state_metrics.Request(
        list(state_metrics.FAMILIES.values()), state_metrics.Selection(), compressed=True
    )
    stream = state_metrics._Stream(whole)
    for family in whole.families:
        after: int | None = 0
        while after is not None:
            after, _ = stream.page(family, after)
    for form in decision_search.FORMS.values():
        before = 1
        while before:
            export = decision_search._Export(decision_search.read({}), form())
            _, before = decision_search._page(export, 0 if before == 1 else before)
    teller = events_stream.Teller(events_stream.read({"types": ",".join(events_stream.TYPES)}), "s")
    read = changes.read_since(0, documents=None, previous=None, limit=100_000)
    assert teller.messages(hub.events_of(read.items))


def ask_everything(pods: list[Manifest], nodes: list[Manifest]) -> list[str]:
    """Ask an advisor every question, about these objects; return what it failed to answer."""
    imagined = [_renamed(one, f"imagined-{number}") for number, one in enumerate(pods)]
    added = [_renamed(one, f"added-{number}") for number, one in enumerate(nodes)]
    names = [name for _, name in named(KINDS["Node"])]
    of_nodes = ({"cordon": {"nodes": names}}, {"drain": {"nodes": names, "force": True}},
                {"delete": {"nodes": names[:1]}})  # fmt: skip
    simulated = {"base": "live", "explain": "full", "preemption": "perform"}
    shapes = [{"name": f"s{i}", "price": 1, "node": one} for i, one in enumerate(nodes)]
    asked: dict[str, list[Any]] = {
        "simulation": [
            *({"spec": {**simulated, "pods": [one]}} for one in imagined),
            *({"spec": {**simulated, "objects": [one], "pods": imagined[:1]}} for one in added),
        ],
        "placement": [{"spec": {**simulated, "pods": [one]}} for one in imagined],
        "headroom": [{"spec": {"base": "live", "pod": one}} for one in imagined],
        "room": [{}],
        "node-advice": [{"spec": {"catalogue": [one]}} for one in shapes],
        "packing": [{"spec": {"base": "live", "pods": imagined, "seconds": 0.1}}],
        "landings": [named(KINDS["Pod"])],
        "why": [
            {"namespace": a, "name": b, "world": world}
            for a, b in named(KINDS["Pod"])
            for world in ("now", "then")
        ],
        "waiting-groups": [{"remedies": True}, {"namespace": "default"}],
        "plan": [
            {"spec": {"changes": [one]}}
            for one in (
                *of_nodes,
                *({"pods": {"objects": [one]}} for one in imagined),
                *({"add": {"objects": [one]}} for one in added),
            )
        ],
        "comparison": [{"spec": {"hours": 1}}],
        "decision": [{"namespace": a, "name": b, "id": c} for a, b, c in decided()],
    }
    assert asked.keys() == registry.QUESTIONS.keys(), "say here what an advisor is asked"
    failed = []
    for question, documents in asked.items():
        for document in documents:
            try:
                registry.answer(question, json.loads(json.dumps(document)))
            except StatusError as error:
                if error.code >= 500:
                    failed.append(f"{question} {document}: {error}")
            except Exception as error:  # noqa: BLE001  # told with all others
                failed.append(f"{question} {document}: {error!r}")
    return failed


def _renamed(manifest: Manifest, name: str) -> Manifest:
    return {**manifest, "metadata": {**manifest["metadata"], "name": name}}


def open_console(client: Client) -> list[str]:
    """Open every page of the console, about everything; return what answered an error."""
    failed = []
    for entry in console.urlpatterns:
        converters = entry.pattern.converters
        for values in filled(converters):
            path = reverse(f"console:{entry.name}", kwargs=values)
            for query in ("", *QUERIES.get(entry.name, ())):
                answer = client.get(path + query)
                if answer.status_code >= 500:
                    failed.append(f"{path}{query}: {answer.status_code}")
    return failed


QUERIES = {"change": tuple(f"?do={do}&node=n1" for do in ("cordon", "drain", "delete", "edit"))}


def open_every_page(client: Client) -> list[str]:
    """Open every list of the admin, and the page of every row; return what answered an error."""
    failed = []
    for model in sorted(admin.site._registry, key=str):
        base = f"/admin/{model._meta.app_label}/{model._meta.model_name}/"
        rows = model.objects.values_list("pk", flat=True)[:50]
        for path in (base, *(f"{base}{quote(key)}/change/" for key in rows)):
            answer = client.get(path)
            if answer.status_code >= 400:
                failed.append(f"{path}: {answer.status_code}")
    if client.get("/admin/").status_code >= 400:
        failed.append("/admin/")
    return failed
