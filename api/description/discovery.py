"""What the server offers, read from the registry of kinds: ``/api``, ``/apis``, ``/version``.

kubectl asks all of it on an empty cache, once per group-version, and keeps it for minutes. A group
is listed only when it has resources: kubectl never caches an empty one. Shapes: apimachinery
``meta/v1/types.go``, v1.36.
"""

from functools import cache
from typing import Any

from clusterstate.objects.kind import Kind
from clusterstate.objects.kinds import ALL_KINDS, VIEWS

COLLECTION_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update"]
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


def _reviews(*kinds: str) -> list[dict[str, Any]]:
    """Return the entries of questions about access."""
    return [
        {
            "name": f"{kind.lower()}s",
            "singularName": kind.lower(),
            "namespaced": kind.startswith("Local"),
            "kind": kind,
            "verbs": ["create"],
        }
        for kind in kinds
    ]


# Resources that are answered but never stored: (group, version) -> entries.
_VIRTUAL: dict[tuple[str, str], list[dict[str, Any]]] = {
    ("", "v1"): [
        {
            "name": "bindings",
            "singularName": "binding",
            "namespaced": True,
            "kind": "Binding",
            "verbs": ["create"],
        },
        {
            "name": "pods/decisions",
            "singularName": "",
            "namespaced": True,
            "kind": "DecisionList",
            "group": "stowage.dev",
            "version": "v1",
            "verbs": ["get"],
        },
    ],
    ("authentication.k8s.io", "v1"): _reviews("SelfSubjectReview", "TokenReview"),
    ("authorization.k8s.io", "v1"): _reviews(
        "LocalSubjectAccessReview",
        "SelfSubjectAccessReview",
        "SelfSubjectRulesReview",
        "SubjectAccessReview",
    ),
    ("stowage.dev", "v1"): [
        {
            "name": "audit",
            "singularName": "audit",
            "namespaced": False,
            "kind": "AuditEvent",
            "verbs": ["get"],
        },
        {
            "name": "changes",
            "singularName": "change",
            "namespaced": False,
            "kind": "Change",
            "verbs": ["get"],
        },
        {
            "name": "decisions",
            "singularName": "decision",
            "namespaced": False,
            "kind": "Decision",
            "verbs": ["get"],
        },
        {
            "name": "evictions",
            "singularName": "eviction",
            "namespaced": True,
            "kind": "Eviction",
            "verbs": ["get", "list"],
        },
        {
            "name": "selections",
            "singularName": "selection",
            "namespaced": True,
            "kind": "Selection",
            "verbs": ["list"],
        },
        {
            "name": "waitinggroups",
            "singularName": "waitinggroup",
            "namespaced": True,
            "kind": "WaitingGroup",
            "verbs": ["get", "list"],
        },
        {
            "name": "waitingtimes",
            "singularName": "waitingtimes",
            "namespaced": True,
            "kind": "WaitingTimes",
            "verbs": ["get"],
        },
        {
            "name": "waitingpods",
            "singularName": "waitingpod",
            "namespaced": True,
            "kind": "WaitingPod",
            "verbs": ["get", "list"],
        },
        {
            "name": "webhooks",
            "singularName": "webhook",
            "namespaced": False,
            "kind": "Webhook",
            "verbs": ["create", "delete", "get", "list", "update"],
        },
        {
            "name": "webhooks/deliveries",
            "singularName": "",
            "namespaced": False,
            "kind": "DeliveryList",
            "verbs": ["get"],
        },
        {
            "name": "webhooks/replay",
            "singularName": "",
            "namespaced": False,
            "kind": "Replay",
            "verbs": ["create"],
        },
        {
            "name": "waitingpods/permit",
            "singularName": "",
            "namespaced": True,
            "kind": "Permit",
            "verbs": ["create"],
        },
        {
            "name": "brakes",
            "singularName": "brake",
            "namespaced": False,
            "kind": "Brake",
            "verbs": ["list"],
        },
        {
            "name": "brakes/approve",
            "singularName": "",
            "namespaced": False,
            "kind": "Brake",
            "verbs": ["create"],
        },
        {
            "name": "plans",
            "singularName": "plan",
            "namespaced": False,
            "kind": "Plan",
            "verbs": ["create", "get", "list"],
        },
        {
            "name": "canaries",
            "singularName": "canary",
            "namespaced": False,
            "kind": "Canary",
            "verbs": ["create", "get", "list"],
        },
        *(
            {
                "name": f"canaries/{what}",
                "singularName": "",
                "namespaced": False,
                "kind": kind,
                "verbs": [verb],
            }
            for what, kind, verb in (
                ("cancel", "Canary", "create"),
                ("report", "Comparison", "get"),
                ("return", "Canary", "create"),
                ("switch", "Canary", "create"),
            )
        ),
        *(
            {
                "name": f"plans/{what}",
                "singularName": "",
                "namespaced": False,
                "kind": "Plan",
                "verbs": ["create"],
            }
            for what in ("apply", "cancel", "pause", "resume", "undo")
        ),
        *(
            {
                "name": plural,
                "singularName": kind.lower(),
                "namespaced": False,
                "kind": kind,
                "verbs": verbs,
            }
            for plural, kind, verbs in (
                ("comparisons", "Comparison", ["create"]),
                ("headroom", "Headroom", ["create", "list"]),
                ("nodeadvice", "NodeAdvice", ["create"]),
                ("simulations", "Simulation", ["create"]),
            )
        ),
    ],
    ("node.k8s.io", "v1"): [
        {
            "name": "runtimeclasses/nodes",
            "singularName": "",
            "namespaced": False,
            "kind": "NodeList",
            "group": "",
            "version": "v1",
            "verbs": ["get"],
        }
    ],
}

# Subresource -> the kind that it speaks, with group and version, and its verbs.
_SUBRESOURCES: dict[str, dict[str, Any]] = {
    "status": {"verbs": ["get", "patch", "update"]},
    "approval": {"verbs": ["get", "patch", "update"]},
    "finalize": {"verbs": ["update"]},
    "binding": {"kind": "Binding", "verbs": ["create"]},
    "eviction": {"kind": "Eviction", "group": "policy", "version": "v1", "verbs": ["create"]},
    "token": {
        "kind": "TokenRequest",
        "group": "authentication.k8s.io",
        "version": "v1",
        "verbs": ["create"],
    },
    "scale": {
        "kind": "Scale",
        "group": "autoscaling",
        "version": "v1",
        "verbs": ["get", "patch", "update"],
    },
}


def _entries(kind: Kind) -> list[dict[str, Any]]:
    main: dict[str, Any] = {
        "name": kind.plural,
        "singularName": kind.singular,
        "namespaced": kind.namespaced,
        "kind": kind.name,
        "verbs": [*COLLECTION_VERBS, "watch"],
    }
    if kind.short_names:
        main["shortNames"] = list(kind.short_names)
    if kind.categories:
        main["categories"] = list(kind.categories)
    return [
        main,
        *(
            {
                "name": f"{kind.plural}/{subresource}",
                "singularName": "",
                "namespaced": kind.namespaced,
                "kind": kind.name,
                **_SUBRESOURCES[subresource],
            }
            for subresource in kind.subresources
        ),
    ]


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
    versions = [version for known, version in group_versions() if known == name]
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

    It says in one answer what the documents of all groups and versions say. Shape: k8s.io/api
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
    """Return resources with their subresources below them."""
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
    """Return the paths that are worth knowing, as ``/`` lists them."""
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
