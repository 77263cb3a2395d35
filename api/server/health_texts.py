"""The texts of health: of all parts, of some, or of a single one.

``verbose``, ``exclude`` and paths of single parts are those of Kubernetes' API server (apiserver
``server/healthz/healthz.go``, v1.36). Without them ``/livez`` and ``/healthz`` say ok, and
``/readyz`` names each part and its problem. A failing part gives 503.
"""

from collections.abc import Sequence
from typing import Final
from urllib.parse import parse_qs

import msgspec


class Part(msgspec.Struct, frozen=True):
    """One part and its problem, empty when it works.

    ``needed`` False: without it the service works, only slower or with less, so it stays ready.
    """

    name: str
    problem: str = ""
    needed: bool = True


ALIVE: Final = (Part("ping"),)
"""What ``/livez`` and ``/healthz`` are about: who answers is alive."""
_HOOKS: Final = {
    "start-apiserver-admission-initializer": "database",
    "generic-apiserver-start-informers": "log",
    "storage-object-count-tracker-hook": "database",
    "start-system-namespaces-controller": "database",
    "storage-readiness": "database",
    "rbac/bootstrap-roles": "database",
    "scheduling/bootstrap-system-priority-classes": "database",
    **dict.fromkeys(
        (
            "priority-and-fairness-config-consumer", "priority-and-fairness-filter",
            "start-apiextensions-informers", "start-apiextensions-controllers",
            "crd-informer-synced", "peer-endpoint-reconciler-controller",
            "start-cluster-authentication-info-controller",
            "start-kube-apiserver-identity-lease-controller",
            "start-kube-apiserver-identity-lease-garbage-collector",
            "start-legacy-token-tracking-controller", "start-service-ip-repair-controllers",
            "priority-and-fairness-config-producer", "bootstrap-controller",
            "start-kubernetes-service-cidr-controller", "aggregator-reload-proxy-client-cert",
            "start-kube-aggregator-informers", "apiservice-status-local-available-controller",
            "apiservice-status-remote-available-controller", "apiservice-registration-controller",
            "apiservice-discovery-controller", "kube-apiserver-autoregistration",
            "apiservice-openapi-controller", "apiservice-openapiv3-controller",
        ),
        "web",
    ),
}  # fmt: skip
"""What Kubernetes' API server waits for when it starts (v1.36), and the part that does it here.

The database works when it has all tables; roles, classes and namespaces are made with them. What
this service does not have, or any other part does, needs nothing but the web process.
"""
_THERE: Final = {
    "ping": "web",
    "etcd": "database",
    "etcd-readiness": "database",
    "informer-sync": "log",
    **{f"poststarthook/{name}": part for name, part in _HOOKS.items()},
    "autoregister-completion": "web",
    "shutdown": "web",
}
"""What Kubernetes calls a part."""
_OF_LIFE: Final = ("log", *(one for one in _THERE if one not in ("informer-sync", "shutdown")))
"""Parts that ``/livez`` and ``/healthz`` name as well; they fail neither."""


NO_ANSWER: Final = "does not answer"
"""How the problem of a database that does not answer begins."""
UNREAD: Final = "unknown, since the database cannot be read"
"""The problem of a part that only the database knows about, while it does not answer."""


class Trouble(msgspec.Struct, frozen=True):
    """A failing part, in the words of the console; ``needed`` as of a ``Part``.

    ``effect``: what a user of the service notices, empty if the problem says so.
    """

    name: str
    problem: str
    effect: str
    needed: bool


_EFFECTS: Final = {
    "database": "nothing can be read or changed, and no pod is scheduled or evicted",
    "scheduler": "no pod is scheduled",
    "timers": "no pod is evicted, and lost nodes are not noticed",
    "controllers": "Deployments, Jobs and other workloads do not create or replace pods",
    "log": "pages and watches do not show what is new",
    "followers": "their reactions to changes come later than usual",
    "advisor": "previews, what-if and remedies are not available",
}


def troubles(parts: Sequence[Part]) -> list[Trouble]:
    """Return the failing parts, needed ones first.

    If the database fails, only that: the problems of the others follow from it.
    """
    found = [
        Trouble(part.name, part.problem, _EFFECTS.get(part.name, ""), part.needed)
        for part in parts
        if part.problem not in ("", UNREAD)
    ]
    return sorted(found, key=lambda one: not one.needed)


def alive(parts: Sequence[Part]) -> tuple[Part, ...]:
    """Return the parts of ``/livez`` and ``/healthz``, given those of ``/readyz``."""
    problems = {part.name: part.problem for part in parts}
    names = [name for name in _OF_LIFE if name != "ping" and _THERE.get(name, name) in problems]
    more = [Part(name, problems[_THERE.get(name, name)], needed=False) for name in names]
    return (*ALIVE, *more)


def of(endpoint: str, parts: Sequence[Part], query: str) -> tuple[int, str]:
    """Return status and text of an endpoint, for these query parameters."""
    parameters = parse_qs(query, keep_blank_values=True)
    excluded = {_name(parts, one): one for one in parameters.get("exclude", ())}
    counted = [part for part in parts if part.name not in excluded]
    failed = [part.name for part in counted if part.problem and part.needed]
    status = 503 if failed else 200
    if "verbose" not in parameters and endpoint != "readyz":
        return status, "ok"
    if "verbose" not in parameters:
        last = f"not ready: {', '.join(failed)}" if failed else "ready"
        return status, "\n".join([*map(_line, counted), last, ""])
    lines = [
        f"[+]{name} excluded: ok" if part.name in excluded else _line_there(name, part)
        for name, part in [*((part.name, part) for part in parts), *_by_their_names(parts)]
    ]
    if unknown := sorted(excluded[name] for name in excluded.keys() - {one.name for one in parts}):
        shown = ",".join(f'"{name}"' for name in unknown)
        lines.append(f"warn: some health checks cannot be excluded: no matches for {shown}")
    lines.append(f"{endpoint} check {'failed' if failed else 'passed'}")
    return status, "\n".join([*lines, ""])


def of_one(parts: Sequence[Part], name: str) -> tuple[int, str] | None:
    """Return status and text of a single part, ``None`` if there is no such part."""
    found = next((part for part in parts if part.name == _name(parts, name)), None)
    if found is None:
        return None
    return (503, f"{found.problem}\n") if found.problem and found.needed else (200, "ok")


def _name(parts: Sequence[Part], name: str) -> str:
    return name if any(part.name == name for part in parts) else _THERE.get(name, name)


def _line(part: Part) -> str:
    if not part.problem:
        return f"[+] {part.name} ok"
    return f"[{'-' if part.needed else '!'}] {part.name}: {part.problem}"


def _by_their_names(parts: Sequence[Part]) -> list[tuple[str, Part]]:
    """Return the parts that Kubernetes has, too, by Kubernetes' names."""
    found = {part.name: part for part in parts}
    return [
        (name, found[ours]) for name, ours in _THERE.items() if name not in found and ours in found
    ]


def _line_there(name: str, part: Part) -> str:
    if part.problem and part.needed:
        return f"[-]{name} failed: {part.problem}"
    return f"[+]{name} ok" + (f" ({part.problem})" if part.problem else "")
