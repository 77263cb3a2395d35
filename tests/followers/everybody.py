"""Everybody who follows the log, and every page, one after the other over the same rows."""

import json
from datetime import datetime, timedelta

from django.contrib import admin
from django.contrib.admin.utils import quote
from django.test import Client

from api import hub
from clusterstate import changes, sql
from clusterstate.objects.kinds import KINDS
from clusterstate.queries.eviction_timers import unforeseen
from scheduling.answers import questions
from scheduling.controllers import (
    cluster_roles,
    garbage,
    manager,
    namespace_defaults,
    runtime_classes,
)
from scheduling.controllers.budgets import statuses
from scheduling.controllers.endpoints import follower as endpoints
from scheduling.controllers.evictions import timers
from scheduling.controllers.nodes import lifecycle
from scheduling.controllers.pods import deletion, podgc
from scheduling.controllers.workloads import follower as workloads
from scheduling.worker import profiles
from scheduling.worker.scheduler import Scheduler
from tests.controllers import support

TABLE = "application/json;as=Table;v=v1;g=meta.k8s.io,application/json"


def follow(now: datetime) -> None:
    """Let every controller look, and fire what is due; what fails, raises."""
    timers.follow(now)
    if unforeseen(now + timedelta(seconds=30), limit=1):
        questions.foresee(now)
    support.fire(now)
    deletion.finish(now)
    statuses.follow(now)
    runtime_classes.follow(now)
    namespace_defaults.follow(now)
    cluster_roles.follow(now)
    workloads.follow(now)
    endpoints.follow(now)
    garbage.follow(now)
    podgc.collect(now)
    manager.run(now)
    lifecycle.run(now)
    timers.follow(now)


def schedule(now: datetime) -> None:
    """Run the scheduler from a cold start until nothing is left to try."""
    scheduler = Scheduler(profiles.default(), lambda: 7)
    scheduler.load(now.timestamp())
    while scheduler.cycle(now.timestamp()):
        scheduler.binder.finish_batch(now.timestamp())
    scheduler.binder.finish_batch(now.timestamp())
    scheduler.binder.write_records(now.timestamp())


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
    failed = []
    for kind in KINDS.values():
        path = f"{'/api' if not kind.group else '/apis'}/{kind.api_version}/{kind.plural}"
        for accept in ("application/json", TABLE):
            answer = client.get(path, HTTP_ACCEPT=accept, HTTP_AUTHORIZATION=f"Bearer {token}")
            if answer.status_code >= 500:
                failed.append(f"{path} ({accept[:24]}): {answer.content[:300]!r}")
    return failed


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
