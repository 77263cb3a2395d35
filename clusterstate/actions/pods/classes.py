"""Scheduling classes of pods: found by digest, inserted when new, cached by each process.

A pod's class has everything of the pod that influences scheduling
(`objects.rules.scheduling_class`).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec
from django.db import connection, transaction

from clusterstate import catalogue
from clusterstate.database import sql
from clusterstate.objects.rules import resources, scheduling_class
from clusterstate.objects.values.pod import Pod
from clusterstate.objects.values.remembered import remembered
from clusterstate.processes import memory

_CLASS_CACHE = 200_000
_encoder = msgspec.json.Encoder(order="sorted")


class KnownClass(msgspec.Struct, frozen=True):
    """A scheduling class that is stored: its row's id, and the QoS class of its pods."""

    id: int
    qos: str


known_classes: dict[bytes, KnownClass] = {}
memory.when_replaced(known_classes.clear)
catalogue.with_epoch(known_classes.clear)


def class_facts(spec: str) -> tuple[str, str, str, int, int, int, str]:
    """Return (qos class, namespace, labels, cpu, memory, ephemeral, extended) of a class."""
    return _facts(scheduling_class.shared(spec))


@remembered(4096, longest=16_384)
def _facts(spec: str) -> tuple[str, str, str, int, int, int, str]:
    pod = msgspec.json.decode(spec, type=Pod)
    requests = resources.pod_request_ints(pod)
    cpu = requests.pop("cpu", 0)
    memory = requests.pop("memory", 0)
    ephemeral = requests.pop("ephemeral-storage", 0)
    return (
        resources.qos_class(pod),
        pod.metadata.namespace,
        as_json(pod.metadata.labels),
        cpu,
        memory,
        ephemeral,
        as_json(requests),
    )


def as_json(value: Any) -> str:
    """Return a value as JSON, its keys sorted."""
    return _encoder.encode(value).decode()


def remember_classes(found: Iterable[tuple[bytes, int, str]]) -> None:
    """Cache class ids after the commit: a rolled back class must not be cached."""

    def remember() -> None:
        if len(known_classes) > _CLASS_CACHE:
            known_classes.clear()
        for digest, id_, qos in found:
            known_classes[digest] = KnownClass(id_, qos)

    if connection.in_atomic_block:
        transaction.on_commit(remember)
    else:
        remember()


def class_ids_of(classes: Sequence[tuple[bytes, str, int]]) -> list[int]:
    """Return the ids of scheduling classes, inserted if they are new, by one statement.

    ``classes``: digest and spec of each, and the present class id of its pod, which is not deleted
    while the pod has it. The cached id of any other class is not used, since that may have been
    deleted meanwhile: its row is read, and locked until the pod is written.
    """
    specs = {}
    for digest, spec, present in classes:
        cached = known_classes.get(digest)
        if cached is None or cached.id != present:
            specs[digest] = spec
    ids = {} if not specs else _inserted(dict(sorted(specs.items())))
    return [ids.get(digest, present) for digest, _, present in classes]


def _inserted(specs: Mapping[bytes, str]) -> dict[bytes, int]:
    """Return the ids of classes by digest; rows are locked in the order of ``specs``."""
    qos, namespaces, labels, cpu, memory_, ephemeral, extended = zip(
        *map(class_facts, specs.values()), strict=True
    )
    rows = sql.fetch(
        """
        INSERT INTO scheduling_class (digest, spec, namespace, labels, cpu_milli, memory_bytes,
                                      ephemeral_bytes, extended)
        SELECT n.digest, n.spec, n.namespace, n.labels::jsonb, n.cpu, n.memory, n.ephemeral,
               n.extended::jsonb
        FROM unnest(%s, %s, %s, %s, %s, %s, %s, %s)
             AS n(digest, spec, namespace, labels, cpu, memory, ephemeral, extended)
        ON CONFLICT (digest) DO UPDATE SET digest = excluded.digest RETURNING digest, id
        """,
        (
            sql.Byteas(list(specs)),
            sql.Texts(list(specs.values())),
            sql.Texts(list(namespaces)),
            sql.Texts(list(labels)),
            sql.Int8s(list(cpu)),
            sql.Int8s(list(memory_)),
            sql.Int8s(list(ephemeral)),
            sql.Texts(list(extended)),
        ),
    )
    ids = {bytes(digest): id_ for digest, id_ in rows}
    remember_classes([(digest, ids[digest], one) for digest, one in zip(specs, qos, strict=True)])
    return ids
