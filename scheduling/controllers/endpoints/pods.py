"""The pods of a namespace that Services may select, as targets.

Documents of pods are cached by id, since they never change; one without an address, as of pods that
no agent reported, is not even read. Pods are found by the labels of their scheduling classes, which
are far fewer, and classes by any of their labels.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

import msgspec

from clusterstate.objects.values import document
from clusterstate.processes import memory
from clusterstate.queries.objects.workloads import (
    PodRow,
    documents_with_addresses,
    labels_of_classes,
    labels_of_classes_in,
    pods_of_classes,
)
from scheduling.controllers.endpoints.targets import PodPort, Target

_MOST: Final = 200_000
"""Pods that are remembered; beyond it all are forgotten, and read when they are met again."""


class _Address(msgspec.Struct, frozen=True):
    ip: str = ""


class _Condition(msgspec.Struct, frozen=True):
    type: str = ""
    status: str = ""


class _Port(msgspec.Struct, frozen=True, rename="camel"):
    container_port: int
    name: str = ""
    protocol: str = "TCP"


class _Container(msgspec.Struct, frozen=True, rename="camel"):
    ports: tuple[_Port, ...] = ()
    restart_policy: str = ""


class _Spec(msgspec.Struct, frozen=True, rename="camel"):
    containers: tuple[_Container, ...] = ()
    init_containers: tuple[_Container, ...] = ()
    hostname: str = ""
    subdomain: str = ""


class _Status(msgspec.Struct, frozen=True):
    conditions: tuple[_Condition, ...] = ()
    pod_ip: str = msgspec.field(default="", name="podIP")
    pod_ips: tuple[_Address, ...] = msgspec.field(default=(), name="podIPs")


class _Pod(msgspec.Struct, frozen=True):
    spec: _Spec = _Spec()
    status: _Status = _Status()


_WITHOUT_ADDRESS: Final = _Pod()
_decode = msgspec.json.Decoder(_Pod).decode
_decode_labels = msgspec.json.Decoder(dict[str, str]).decode

_pods: dict[int, _Pod] = {}
"""What documents of pods say, by id."""
memory.when_replaced(_pods.clear)


class Pods:
    """The pods of a namespace that some selectors select, read once for all of these."""

    def __init__(self, namespace: str, selectors: Iterable[Mapping[str, str]]) -> None:
        """Read the pods that any of the selectors chooses. Queries up to five times."""
        all_selectors = list(selectors)
        mark, labels = labels_of_classes_in(namespace)
        self._classes = _Classes(labels)
        rows = pods_of_classes(namespace, sorted(self._chosen_by_any(all_selectors)), mark)
        rows = [row for row in rows if row.node_name]
        self._classes.add(labels_of_classes({row.class_id for row in rows} - labels.keys()))
        chosen = self._chosen_by_any(all_selectors)
        rows = [row for row in rows if row.class_id in chosen]
        self._by_class: dict[int, list[tuple[int, Target]]] = {}
        self.count = 0
        for place, (class_id, target) in enumerate(_targets(rows)):
            self._by_class.setdefault(class_id, []).append((place, target))
            self.count += 1

    def _chosen_by_any(self, selectors: Iterable[Mapping[str, str]]) -> set[int]:
        return {id_ for selector in selectors for id_ in self._classes.chosen_by(selector)}

    def chosen_by(self, selector: Mapping[str, str]) -> list[Target]:
        """Return the pods that have all of these labels, in the order of their creation."""
        parts = [self._by_class.get(one, []) for one in self._classes.chosen_by(selector)]
        if len(parts) == 1:
            return [target for _, target in parts[0]]
        return [target for _, target in sorted((one for part in parts for one in part), key=_place)]


def _place(one: tuple[int, Target]) -> int:
    return one[0]


class _Classes:
    """The scheduling classes of a namespace by each of their labels."""

    def __init__(self, labels: Mapping[int, str]) -> None:
        self._by_label: dict[tuple[str, str], set[int]] = {}
        self.add(labels)

    def add(self, labels: Mapping[int, str]) -> None:
        """Add classes with their labels, as JSON."""
        for class_id, text in labels.items():
            for label in _decode_labels(text).items():
                self._by_label.setdefault(label, set()).add(class_id)

    def chosen_by(self, selector: Mapping[str, str]) -> set[int]:
        """Return the classes that have all of these labels; there is at least one label."""
        found = [self._by_label.get(label, set()) for label in selector.items()]
        return set.intersection(*found)


def _targets(rows: Sequence[PodRow]) -> Iterable[tuple[int, Target]]:
    """Yield the pods that have an address, each with its class."""
    _read([row.document_id for row in rows])
    for row in rows:
        pod = _pods.get(row.document_id)
        if pod is None or pod is _WITHOUT_ADDRESS:
            continue  # deleted since, or it has no address
        yield (
            row.class_id,
            Target(
                uid=row.uid,
                name=row.name,
                phase=row.phase,
                node_name=row.node_name,
                is_ready=any(
                    one.type == "Ready" and one.status == "True" for one in pod.status.conditions
                ),
                is_leaving=row.is_leaving,
                addresses=_addresses(pod.status),
                hostname=pod.spec.hostname,
                subdomain=pod.spec.subdomain,
                ports=tuple(_ports(pod.spec)),
            ),
        )


def _read(ids: Sequence[int]) -> None:
    """Read those of these documents that are not cached."""
    fresh = documents_with_addresses([one for one in ids if one not in _pods])
    if len(_pods) + len(fresh) > _MOST:
        _pods.clear()
        fresh = documents_with_addresses(ids)
    for key, text in fresh.items():
        if text is None:
            _pods[key] = _WITHOUT_ADDRESS
        else:
            _pods[key] = _decode(text.replace(document.SLOT, ""))


def _addresses(status: _Status) -> tuple[str, ...]:
    found = [status.pod_ip, *(one.ip for one in status.pod_ips)]
    return tuple(dict.fromkeys(one for one in found if one))


def _ports(spec: _Spec) -> Iterable[PodPort]:
    """Yield the named ports of containers and sidecars."""
    beside = (one for one in spec.init_containers if one.restart_policy == "Always")
    for container in (*spec.containers, *beside):
        for port in container.ports:
            if port.name:
                yield PodPort(port.name, port.protocol, port.container_port)
