"""Any object that is let in, extremes of every field included, stops no follower and no page."""

import copy
import os
import random
import types
import typing
from datetime import timedelta
from typing import Any

import msgspec
import pytest

from api import clock
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.queries.objects import decode_object, find_object
from scheduling.controllers import manager
from tests.admin.conftest import person
from tests.controllers import support
from tests.followers import everybody
from tests.followers.test_extremes import TAINT, api, create, node, pod, tolerates
from tests.forms import many

__all__ = ["api"]

SEEDS = int(os.environ.get("STOWAGE_OBJECT_SEEDS") or many(1, 8))
TIMES = ["9999-12-31T23:59:59Z", "0001-01-01T00:00:00Z", "9999-12-31T23:59:59-14:00"]
TEXTS = ["", "a", "x" * 63, "a" * 253, "kubernetes.io/hostname", "key", "100%", "Exists", "Never"]
QUANTITIES = ["0", "1n", "100Ei", "9223372036854775807", "1e30", "-1", "0.000000001"]
NUMBERS = [0, 1, -1, 10**12, -(10**12), 2**31 - 1, -(2**31), 2**63 - 1, -(2**63), 65535, 100]


def value_of(kind: Any, rng: random.Random, depth: int = 0) -> Any:
    """Return an extreme value of a wire type: of a structure, one with a few members set."""
    origin, arguments = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Annotated:
        limits = arguments[1]
        if limits.pattern is not None:
            return rng.choice(TIMES)
        return rng.choice([n for n in NUMBERS if limits.ge <= n <= limits.le])
    if origin in (types.UnionType, typing.Union):
        some = [one for one in arguments if one is not types.NoneType]
        if {int, str} <= set(some):
            return rng.choice([*QUANTITIES, *NUMBERS[:6], "100%", "2147483647%"])
        return value_of(some[0], rng, depth)
    if origin is list:
        return [value_of(arguments[0], rng, depth + 1)]
    if origin is dict:
        key = rng.choice(["key", "x" * 63, "cpu", "example.com/thing"])
        return {key: value_of(arguments[1], rng, depth + 1)}
    if isinstance(kind, type) and issubclass(kind, msgspec.Struct):
        fields = msgspec.structs.fields(kind)
        required = [one for one in fields if one.required]
        few = rng.choices(fields, k=rng.randint(0, 2) if depth < 5 else 0)
        return {one.encode_name: value_of(one.type, rng, depth + 1) for one in (*required, *few)}
    if kind is bool:
        return rng.random() < 0.5
    if kind is str:
        return rng.choice(TEXTS)
    if kind is int:
        return rng.choice(NUMBERS)
    return {}


def merged(base: Any, over: Any) -> Any:
    """Return ``base`` with what ``over`` sets; lists of objects are merged in their first entry."""
    if isinstance(base, dict) and isinstance(over, dict):
        return {**base, **{key: merged(base.get(key), value) for key, value in over.items()}}
    if isinstance(base, list) and isinstance(over, list) and base and over:
        return [merged(base[0], over[0]), *base[1:]]
    return over


def replicated(kind: str) -> dict[str, Any]:
    labels = {"app": "web"}
    template = {"metadata": {"labels": labels}, "spec": pod("x")["spec"]}
    selector = labels if kind == "ReplicationController" else {"matchLabels": labels}
    spec = {"replicas": 1, "selector": selector, "template": template}
    return {"apiVersion": KINDS[kind].api_version, "kind": kind, "spec": spec}


def job_spec() -> dict[str, Any]:
    template = {"spec": {**pod("x")["spec"], "restartPolicy": "Never"}}
    return {"template": template, "completions": 2, "completionMode": "Indexed"}


def bases() -> dict[str, dict[str, Any]]:
    budget = {"maxUnavailable": 1, "selector": {}}
    return {
        "Pod": pod("x", nodeName="n1", **tolerates(1)),
        "Node": node("x", taints=[TAINT]),
        "Lease": {"spec": {"holderIdentity": "n1"}},
        "PodDisruptionBudget": {"spec": budget},
        "ReplicaSet": replicated("ReplicaSet"),
        "ReplicationController": replicated("ReplicationController"),
        "Deployment": replicated("Deployment"),
        "DaemonSet": replicated("DaemonSet"),
        "StatefulSet": replicated("StatefulSet"),
        "Job": {"spec": job_spec()},
        "CronJob": {"spec": {"schedule": "* * * * *", "jobTemplate": {"spec": job_spec()}}},
        "HorizontalPodAutoscaler": {
            "spec": {"maxReplicas": 3, "scaleTargetRef": {"kind": "Deployment", "name": "x1"}}
        },
        "ResourceQuota": {"spec": {"hard": {"pods": "100", "count/jobs.batch": "9"}}},
        "Service": {"spec": {"ports": [{"port": 80}]}},
        "PriorityClass": {"value": 1},
        "Event": {"involvedObject": {"kind": "Node", "name": "n1", "namespace": "default"}},
    }


def path_of(kind: str) -> str:
    found = KINDS[kind]
    namespace = "namespaces/default/" if found.namespaced else ""
    return f"{'/apis' if found.group else '/api'}/{found.api_version}/{namespace}{found.plural}"


def test_everybody_is_really_everybody() -> None:
    """A controller that is added is run by the manager, or stands in `everybody`."""
    run = {one.look.__module__ for one in manager.CONTROLLERS.values()}
    known = run | {one.__name__ for one in everybody.BY_THEMSELVES}
    assert everybody.followers() - known == set()


@pytest.mark.slow
@pytest.mark.drawn
@pytest.mark.parametrize("seed", range(SEEDS))
def test_any_object_that_is_let_in_stops_nobody(api, seed) -> None:
    rng = random.Random(seed)
    create(api, node("n1", taints=[TAINT]), plural="nodes", base="/api/v1")
    create(api, node("n2"), plural="nodes", base="/api/v1")
    create(api, pod("neighbour", nodeName="n1", **tolerates(5)))
    create(api, pod("waits"))
    let_in = []
    kinds = sorted(bases())
    for number, kind in enumerate([*kinds, *rng.choices(kinds, k=many(0, 24))]):
        base = copy.deepcopy(bases()[kind])
        base |= {"apiVersion": KINDS[kind].api_version, "kind": kind}
        fields = {one.encode_name: one for one in msgspec.structs.fields(KINDS[kind].wire_type)}
        wanted = [name for name in ("metadata", "spec", "status") if name in fields]
        changes = {name: value_of(fields[name].type, rng) for name in wanted}
        for name in ("namespace", "name", "generateName", "uid", "resourceVersion"):
            changes["metadata"].pop(name, None)
        manifest = merged(base, changes)
        manifest["metadata"]["name"] = f"x{number}"
        answer = api.post(path_of(kind), manifest)
        assert answer.status < 500, (manifest, answer.raw)
        if answer.status == 201:
            let_in.append((kind, f"x{number}", manifest))
            if "status" in changes:
                part = {"status": changes["status"]}
                answer = api.patch(f"{path_of(kind)}/x{number}/status", part)
                assert answer.status < 500, (kind, part, answer.raw)
    assert let_in
    began = clock.now()
    for seconds in (0, 6):
        everybody.follow(began + timedelta(seconds=seconds))
    support.schedule(began + timedelta(seconds=7))
    everybody.watch(0)
    neighbour = decode_object(find_object("Pod", "default", "neighbour"))
    assert "deletionTimestamp" in neighbour["metadata"], let_in
    everybody.follow(began + timedelta(seconds=70))  # a minute on, so that CronJobs are due
    assert everybody.set_aside() == [], let_in
    everybody.export_everything()
    everybody.remember(began + timedelta(seconds=71))
    assert everybody.read_everything(api.client, api.token) == []
    assert everybody.read_past_and_answers(api.client, api.token) == []
    anna = person("anna", superuser=True)
    assert everybody.open_every_page(anna) == []
    assert everybody.open_console(anna) == []
    of_kind = {one: [m for kind, _, m in let_in if kind == one] for one in ("Pod", "Node")}
    assert everybody.ask_everything(of_kind["Pod"], of_kind["Node"]) == []
    for kind, name, manifest in let_in:
        answer = api.delete(f"{path_of(kind)}/{name}")
        assert answer.status < 500, (manifest, answer.raw)
    everybody.follow(began + timedelta(seconds=140))
