"""Discovery, from the registry of kinds: ``/api``, ``/apis``, ``/version``.

kubectl reads all of it if its cache is empty, once per group-version, and caches it for minutes. A
group is listed only when it has resources: kubectl never caches an empty one. Shapes: apimachinery
``meta/v1/types.go``, v1.36.
"""

from functools import cache
from typing import Any

from clusterstate.objects.registry.kind import Kind
from clusterstate.objects.registry.kinds import ALL_KINDS, VIEWS

_VERBS = "create delete deletecollection get list patch update watch"
VERSION: dict[str, str] = {
    "major": "1",
    "minor": "36",
    "emulationMajor": "1",
    "emulationMinor": "36",
    "minCompatibilityMajor": "1",
    "minCompatibilityMinor": "35",
    "gitVersion": "v1.36.0+stowage",
    "gitCommit": "",
    "gitTreeState": "clean",
    "buildDate": "2026-11-01T00:00:00Z",
    "goVersion": "go0.0",
    "compiler": "cpython",
    "platform": "linux/amd64",
}


def _entry(
    name: str,
    kind: str,
    verbs: str,
    *,
    singular: str | None = None,
    namespaced: bool = False,
    of: str | None = None,
) -> dict[str, Any]:
    """Return the entry of a resource, or of a subresource (``pods/decisions``).

    ``singular``: the resource's name for one object, if it is not the kind's; ``of``: the group and
    version of the kind, if they are not the resource's.
    """
    usual = "" if "/" in name else kind.lower()
    found = {
        "name": name,
        "singularName": usual if singular is None else singular,
        "namespaced": namespaced,
        "kind": kind,
        "verbs": verbs.split(),
    }
    if of is not None:
        found["group"], _, found["version"] = of.rpartition("/")
    return found


def _reviews(*kinds: str) -> list[dict[str, Any]]:
    """Return the entries of the review kinds."""
    return [
        _entry(f"{kind.lower()}s", kind, "create", namespaced=kind.startswith("Local"))
        for kind in kinds
    ]


# Resources that are answered but never stored: (group, version) -> entries.
_VIRTUAL: dict[tuple[str, str], list[dict[str, Any]]] = {
    ("", "v1"): [
        _entry("bindings", "Binding", "create", namespaced=True),
        _entry("componentstatuses", "ComponentStatus", "get list") | {"shortNames": ["cs"]},
        _entry("pods/decisions", "DecisionList", "get", namespaced=True, of="stowage.dev/v1"),
    ],
    ("authentication.k8s.io", "v1"): _reviews(
        "SelfSubjectReview",
        "TokenReview",
    ),
    ("authorization.k8s.io", "v1"): _reviews(
        "LocalSubjectAccessReview",
        "SelfSubjectAccessReview",
        "SelfSubjectRulesReview",
        "SubjectAccessReview",
    ),
    ("stowage.dev", "v1"): [
        _entry("audit", "AuditEvent", "get", singular="audit"),
        _entry("changes", "Change", "get"),
        _entry("decisions", "Decision", "get"),
        _entry("evictions", "Eviction", "get list", namespaced=True),
        _entry("selections", "Selection", "list", namespaced=True),
        _entry("waitinggroups", "WaitingGroup", "get list", namespaced=True),
        _entry("waitingtimes", "WaitingTimes", "get", namespaced=True),
        _entry("waitingpods", "WaitingPod", "get list", namespaced=True),
        _entry("webhooks", "Webhook", "create delete get list update"),
        _entry("webhooks/deliveries", "DeliveryList", "get"),
        _entry("webhooks/replay", "Replay", "create"),
        _entry("waitingpods/permit", "Permit", "create", namespaced=True),
        _entry("brakes", "Brake", "list"),
        _entry("brakes/approve", "Brake", "create"),
        _entry("plans", "Plan", "create get list"),
        _entry("canaries", "Canary", "create get list"),
        _entry("canaries/cancel", "Canary", "create"),
        _entry("canaries/report", "Comparison", "get"),
        _entry("canaries/return", "Canary", "create"),
        _entry("canaries/switch", "Canary", "create"),
        _entry("plans/apply", "Plan", "create"),
        _entry("plans/cancel", "Plan", "create"),
        _entry("plans/pause", "Plan", "create"),
        _entry("plans/resume", "Plan", "create"),
        _entry("plans/undo", "Plan", "create"),
        _entry("comparisons", "Comparison", "create"),
        _entry("headroom", "Headroom", "create list"),
        _entry("schedulerconfiguration", "SchedulerConfiguration", "get update"),
        _entry("nodeadvice", "NodeAdvice", "create"),
        _entry("packings", "Packing", "create"),
        _entry("simulations", "Simulation", "create"),
    ],
    ("node.k8s.io", "v1"): [
        _entry("runtimeclasses/nodes", "NodeList", "get", of="v1"),
    ],
}

# Subresources of kinds: of which kind they are, where it is another one, and their verbs.
_SUBRESOURCES: dict[str, dict[str, Any]] = {
    "status": {"verbs": "get patch update"},
    "approval": {"verbs": "get patch update"},
    "finalize": {"verbs": "update"},
    "binding": {"kind": "Binding", "verbs": "create"},
    "eviction": {"kind": "Eviction", "of": "policy/v1", "verbs": "create"},
    "resize": {"verbs": "get patch update"},
    "token": {"kind": "TokenRequest", "of": "authentication.k8s.io/v1", "verbs": "create"},
    "scale": {"kind": "Scale", "of": "autoscaling/v1", "verbs": "get patch update"},
}


def _entries(kind: Kind) -> list[dict[str, Any]]:
    verbs = _VERBS if kind.deleted_together else _VERBS.replace("deletecollection ", "")
    main = _entry(kind.plural, kind.name, verbs, namespaced=kind.namespaced)
    if kind.short_names:
        main["shortNames"] = list(kind.short_names)
    if kind.categories:
        main["categories"] = list(kind.categories)
    subresources = (
        _entry(
            f"{kind.plural}/{subresource}",
            **{"kind": kind.name, **_SUBRESOURCES[subresource]},
            namespaced=kind.namespaced,
        )
        for subresource in kind.subresources
    )
    return [main, *subresources]


@cache
def group_versions() -> dict[tuple[str, str], list[dict[str, Any]]]:
    """Return the resource entries of every group-version, core first."""
    found: dict[tuple[str, str], list[dict[str, Any]]] = {("", "v1"): []}
    for kind in (*ALL_KINDS, *VIEWS.values()):
        found.setdefault((kind.group, kind.version), []).extend(_entries(kind))
    for key, entries in _VIRTUAL.items():
        found.setdefault(key, []).extend(entries)
    for entries in found.values():
        entries.sort(key=lambda entry: entry["name"])
    return found


def resources(group: str, version: str) -> dict[str, Any] | None:
    """Return the ``APIResourceList`` of a group-version, None when it is not served."""
    entries = group_versions().get((group, version))
    if entries is None:
        return None
    result: dict[str, Any] = {
        "kind": "APIResourceList",
        "groupVersion": f"{group}/{version}" if group else version,
        "resources": entries,
    }
    if group:
        result["apiVersion"] = "v1"
    return result


def _group(name: str, versions: list[str]) -> dict[str, Any]:
    texts = [{"groupVersion": f"{name}/{version}", "version": version} for version in versions]
    return {"name": name, "versions": texts, "preferredVersion": texts[0]}


def group(name: str) -> dict[str, Any] | None:
    """Return the ``APIGroup`` called ``name``, None when it is not served."""
    versions = [version for group_, version in group_versions() if group_ == name]
    if not name or not versions:
        return None
    return {"kind": "APIGroup", "apiVersion": "v1", **_group(name, versions)}


def groups() -> dict[str, Any]:
    """Return the ``APIGroupList``: every group but core."""
    by_name: dict[str, list[str]] = {}
    for name, version in group_versions():
        if name:
            by_name.setdefault(name, []).append(version)
    return {
        "kind": "APIGroupList",
        "apiVersion": "v1",
        "groups": [_group(name, versions) for name, versions in sorted(by_name.items())],
    }


def aggregated(version: str, *, core: bool) -> dict[str, Any]:
    """Return the ``APIGroupDiscoveryList`` of the core group, or of all others.

    It has the content of the documents of all groups and versions. Shape: k8s.io/api
    ``apidiscovery/v2/types.go``, v1.36.
    """
    by_group: dict[str, list[dict[str, Any]]] = {}
    for (group, group_version), entries in group_versions().items():
        if (group == "") is core:
            by_group.setdefault(group, []).append(
                {
                    "version": group_version,
                    "resources": _aggregated(group, group_version, entries),
                    "freshness": "Current",
                }
            )
    return {
        "kind": "APIGroupDiscoveryList",
        "apiVersion": f"apidiscovery.k8s.io/{version}",
        "metadata": {},
        "items": [
            {"metadata": {"name": name, "creationTimestamp": None}, "versions": versions}
            for name, versions in sorted(by_group.items())
        ],
    }


def _aggregated(group: str, version: str, entries: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the entries of resources, each with its subresources inside."""
    found: dict[str, dict[str, Any]] = {}
    for entry in entries:
        name, _, subresource = entry["name"].partition("/")
        response = {
            "group": entry.get("group", group),
            "version": entry.get("version", version),
            "kind": entry["kind"],
        }
        if subresource:
            found.setdefault(name, {}).setdefault("subresources", []).append(
                {
                    "subresource": subresource,
                    "responseKind": response,
                    "verbs": entry["verbs"],
                }
            )
            continue
        resource = found.setdefault(name, {})
        resource |= {
            "resource": name,
            "responseKind": response,
            "scope": "Namespaced" if entry["namespaced"] else "Cluster",
            "singularResource": entry["singularName"],
            "verbs": entry["verbs"],
        }
        for member in ("shortNames", "categories"):
            if member in entry:
                resource[member] = entry[member]
    return [resource for resource in found.values() if "resource" in resource]


def core_versions(server_address: str) -> dict[str, Any]:
    """Return the ``APIVersions`` of the core group; ``server_address`` is ``host:port``."""
    return {
        "kind": "APIVersions",
        "versions": ["v1"],
        "serverAddressByClientCIDRs": [
            {"clientCIDR": "0.0.0.0/0", "serverAddress": server_address}
        ],
    }


def paths() -> dict[str, list[str]]:
    """Return the main paths, as the list that ``/`` answers."""
    served = [
        f"/apis/{group}/{version}" if group else f"/api/{version}"
        for group, version in group_versions()
    ]
    other = [
        "/.well-known/openid-configuration",
        "/api",
        "/apis",
        "/healthz",
        "/livez",
        "/metrics",
        "/openapi/v2",
        "/openapi/v3",
        "/openid/v1/jwks",
        "/readyz",
    ]
    return {"paths": sorted([*served, *other, "/version"])}
