"""The least of a ReplicaSet controller: evicted pods that somebody owns are replaced (R136).

Deployments have one ReplicaSet for their current template; ReplicaSets and ReplicationControllers
have as many live pods as they ask for. What deleting an owner means for what it owned is the
garbage collector's business. There is no rolling update, no adoption and no history: who needs
these runs Kubernetes' own controllers against the API and turns this one off (STOWAGE_REPLICAS=0).

Pods are counted by scheduling class, which names the owner: one grouped query for a namespace.
"""

import hashlib
from collections import defaultdict
from collections.abc import Callable, Mapping
from datetime import datetime
from functools import partial
from typing import Any, TypeVar

import msgspec
import structlog
from django.conf import settings

from clusterstate import changes
from clusterstate.actions import aside, evictions, objects
from clusterstate.actions.aside import Which
from clusterstate.actions.pods.create import create_pods
from clusterstate.objects.errors import AlreadyExists, NotFound, StatusError
from clusterstate.objects.meta import Manifest
from clusterstate.queries.lists import list_page
from clusterstate.queries.namespaces import changed_namespaces, owner_namespaces
from clusterstate.queries.objects import decode_object
from clusterstate.queries.replicas import class_counts, surplus
from clusterstate.queries.stays import class_specs

logger = structlog.get_logger(__name__)

NAME = "replicas"
OWNERS = ("Deployment", "ReplicaSet", "ReplicationController")
_COUNTED = ("ReplicaSet", "ReplicationController")
_API = {"Deployment": "apps/v1", "ReplicaSet": "apps/v1", "ReplicationController": "v1"}
_BURST = 500
HASH_LABEL = "pod-template-hash"
_encode = msgspec.json.Encoder(order="sorted").encode

Result = TypeVar("Result")
Owner = tuple[str, str]
"""Kind and name."""


def follow(now: datetime) -> int:
    """Create and delete what changed owners and pods ask for; return how many pods.

    Does nothing while another pass runs, whose pods would be made twice.
    """
    if not settings.REPLICAS:
        return 0
    with changes.alone(changes.REPLICAS_LOCK) as mine:
        return _pass(now) if mine else 0


def _pass(now: datetime) -> int:
    cursor = evictions.cursor(NAME)
    mark = changes.watermark()
    owned = set(owner_namespaces())
    done = 0
    found = None
    if cursor is not None:
        if mark <= cursor:
            return 0
        found = changed_namespaces(cursor, mark, ("Pod", *OWNERS))
    full = False
    for namespace in sorted(owned if found is None else owned & set(found)):
        count = sum(
            aside.each(
                NAME,
                [namespace],
                lambda names: sum(sync(name, now) for name in names),
                which=lambda name: Which("Namespace", name=name),
                now=now,
            )
        )
        done += count
        full = full or count >= _BURST
    if not full:
        evictions.set_cursor(NAME, mark)
    return done


def sync(namespace: str, now: datetime) -> int:
    """Bring the owners of a namespace to what they ask for; return how many pods came or went."""
    for deployment in _list("Deployment", namespace):
        _alone("Deployment", deployment, lambda one: _one_replica_set(one, now), now)
    live = _live(namespace)
    done = 0
    for kind in _COUNTED:
        count_up = partial(_count_up, kind, live=live, now=now)
        done += sum(_alone(kind, owner, count_up, now) or 0 for owner in _list(kind, namespace))
    return done


def _alone(
    kind: str, owner: Manifest, work: Callable[[Manifest], Result], now: datetime
) -> Result | None:
    """Work on one owner; ``None`` if it was set aside. Each once: pods must not be made twice."""
    metadata = owner["metadata"]
    which = Which(kind, namespace=metadata["namespace"], name=metadata["name"])
    done = aside.each(NAME, [owner], lambda some: work(some[0]), which=lambda one: which, now=now)
    return done[0] if done else None


def _count_up(
    kind: str, owner: Manifest, *, live: Mapping[Owner, Mapping[int, int]], now: datetime
) -> int:
    """Make an owner's pods as many as it asks for; return how many came or went."""
    metadata = owner["metadata"]
    if metadata.get("deletionTimestamp"):
        return 0
    classes = live.get((kind, metadata["name"]), {})
    replicas = (owner.get("spec") or {}).get("replicas")
    missing = (1 if replicas is None else replicas) - sum(classes.values())
    done = 0
    if missing > 0:
        done = _create(kind, owner, min(missing, _BURST), now)
    elif missing < 0:
        done = _remove(list(classes), -missing, now)
    _report(kind, owner, sum(classes.values()), now)
    return done


def _list(kind: str, namespace: str) -> list[Manifest]:
    return [decode_object(item) for item in list_page(kind, namespace).items]


def _live(namespace: str) -> dict[Owner, dict[int, int]]:
    """Return how many live pods each owner has, by class."""
    result: dict[Owner, dict[int, int]] = defaultdict(dict)
    counts = class_counts(namespace)
    for class_id, spec in class_specs(sorted(counts)).items():
        for owner in msgspec.json.decode(spec)["metadata"].get("ownerReferences") or ():
            if owner.get("controller"):
                result[owner["kind"], owner["name"]][class_id] = counts[class_id]
    return result


def _one_replica_set(deployment: Manifest, now: datetime) -> None:
    """Make the ReplicaSet of the current template have all replicas, and others none."""
    metadata, spec = deployment["metadata"], deployment["spec"]
    digest = hashlib.sha256(_encode(spec["template"])).hexdigest()[:10]
    wanted = f"{metadata['name']}-{digest}"
    replicas = 1 if spec.get("replicas") is None else spec["replicas"]
    present = False
    for one in _list("ReplicaSet", metadata["namespace"]):
        if not _is_owned(one, "Deployment", metadata["name"]):
            continue
        name = one["metadata"]["name"]
        present = present or name == wanted
        number = replicas if name == wanted else 0
        if one["spec"].get("replicas") != number:

            def scale(manifest: Manifest, number: int = number) -> Manifest:
                return {**manifest, "spec": {**manifest["spec"], "replicas": number}}

            objects.update("ReplicaSet", metadata["namespace"], name, scale, now=now)
    if present or metadata.get("deletionTimestamp"):
        return
    template = spec["template"]
    labels = {**((template.get("metadata") or {}).get("labels") or {}), HASH_LABEL: digest}
    selector = spec.get("selector") or {}
    replica_set = {
        "apiVersion": "apps/v1",
        "kind": "ReplicaSet",
        "metadata": {
            "name": wanted,
            "namespace": metadata["namespace"],
            "labels": labels,
            "ownerReferences": [_reference("Deployment", metadata)],
        },
        "spec": {
            "replicas": replicas,
            "selector": {
                **selector,
                "matchLabels": {**(selector.get("matchLabels") or {}), HASH_LABEL: digest},
            },
            "template": {
                **template,
                "metadata": {**(template.get("metadata") or {}), "labels": labels},
            },
        },
    }
    try:
        objects.create("ReplicaSet", metadata["namespace"], replica_set, now=now)
    except AlreadyExists:
        logger.warning("replica_set_is_someone_elses", namespace=metadata["namespace"], name=wanted)


def _is_owned(manifest: Manifest, kind: str, name: str) -> bool:
    return any(
        owner.get("controller") and owner.get("kind") == kind and owner.get("name") == name
        for owner in manifest["metadata"].get("ownerReferences") or ()
    )


def _reference(kind: str, metadata: Manifest) -> Manifest:
    return {
        "apiVersion": _API[kind],
        "kind": kind,
        "name": metadata["name"],
        "uid": metadata["uid"],
        "controller": True,
        "blockOwnerDeletion": True,
    }


def _create(kind: str, owner: Manifest, count: int, now: datetime) -> int:
    metadata, template = owner["metadata"], (owner.get("spec") or {}).get("template")
    if not template:
        return 0
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            **(template.get("metadata") or {}),
            "generateName": f"{metadata['name']}-",
            "namespace": metadata["namespace"],
            "ownerReferences": [_reference(kind, metadata)],
        },
        "spec": template["spec"],
    }
    try:
        return len(create_pods([pod] * count, now=now))
    except StatusError as error:
        logger.warning("replica_refused", owner=metadata["name"], error=error.message)
        return 0


def _remove(class_ids: list[int], count: int, now: datetime) -> int:
    for namespace, name, uid in surplus(class_ids, count):
        try:
            objects.delete("Pod", namespace, name, {"preconditions": {"uid": uid}}, now=now)
        except StatusError:
            continue
    return count


def _report(kind: str, owner: Manifest, live: int, now: datetime) -> None:
    """Keep ``status.replicas`` current; who owns a Deployment reads it there too."""
    if (owner.get("status") or {}).get("replicas") == live:
        return
    metadata = owner["metadata"]

    def change(manifest: Manifest) -> Manifest:
        status: dict[str, Any] = {
            **(manifest.get("status") or {}),
            "replicas": live,
            "observedGeneration": manifest["metadata"].get("generation") or 0,
        }
        return {**manifest, "status": status}

    try:
        objects.update(
            kind, metadata["namespace"], metadata["name"], change, subresource="status", now=now
        )
    except NotFound:
        return
