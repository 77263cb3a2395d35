"""Input of admission: the request, its user, and the objects that may be looked up."""

import uuid
from collections.abc import Sequence
from typing import Any, Final, Protocol

import msgspec

from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.values.actor import Actor
from clusterstate.objects.values.compatibility import NEWEST, Compatibility
from clusterstate.objects.values.errors import BadRequest, Forbidden
from clusterstate.objects.values.meta import Manifest

CREATE = "CREATE"
UPDATE = "UPDATE"
DELETE = "DELETE"


class User(msgspec.Struct, frozen=True, kw_only=True):
    """The authenticated user of a request; all empty for the service's own processes.

    ``extra``: further attributes, each with its values. ``impersonator``: the user who sent the
    request on this user's behalf, else empty. ``request``: the audit id of the request.
    """

    name: str = ""
    groups: tuple[str, ...] = ()
    uid: str = ""
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()
    impersonator: str = ""
    request: uuid.UUID | None = None

    @property
    def actor(self) -> Actor | None:
        """Return the actor of this user's changes; ``None``: the thread's current actor."""
        return Actor(self.name, self.impersonator, self.request) if self.name else None


NOBODY: Final = User()
"""One of the service's own parts: it is not authenticated and no admission plugin restricts it."""


class AdmissionSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The switches of admission, with Kubernetes' defaults except for ``service_account_tokens``.

    ``service_account_tokens`` mounts tokens of their accounts in new pods, as Kubernetes does; it
    is off, and costs a query for each new pod if it is on. ``dedicated_nodes`` is on, and affects
    only pods of annotated namespaces. ``limit_pod_hard_anti_affinity_topology`` is off, except in
    namespaces with its annotation. ``compatibility`` and ``profiles`` (the names of all profiles,
    ``None`` if unknown) come from the scheduler's configuration (`decisions.admission_rules`).
    ``cluster_default_tolerations`` and ``cluster_toleration_whitelist`` configure
    PodTolerationRestriction; ``None`` means not configured.
    """

    not_ready_toleration_seconds: int = 300
    unreachable_toleration_seconds: int = 300
    runtime_class: bool = True
    wait_for_runtime_class: bool = False
    limit_pod_hard_anti_affinity_topology: bool = False
    extended_resource_toleration: bool = False
    pod_toleration_restriction: bool = False
    dedicated_nodes: bool = True
    limit_ranger: bool = True
    node_restriction: bool = True
    taint_nodes_by_condition: bool = True
    priority: bool = True
    service_account: bool = True
    service_account_tokens: bool = False
    resource_quota: bool = True
    default_toleration_seconds: bool = True
    taint_toleration_comparison_operators: bool = False
    compatibility: Compatibility = NEWEST
    profiles: frozenset[str] | None = None
    cluster_default_tolerations: tuple[Manifest, ...] | None = None
    cluster_toleration_whitelist: tuple[Manifest, ...] | None = None


class Context(Protocol):
    """Stored manifests that plugins may look up; ``None`` for one that does not exist."""

    @property
    def settings(self) -> AdmissionSettings:
        """Return the settings of admission."""

    def runtime_class(self, name: str) -> Manifest | None:
        """Return the RuntimeClass called ``name``."""

    def priority_class(self, name: str) -> Manifest | None:
        """Return the PriorityClass called ``name``."""

    def default_priority_class(self) -> Manifest | None:
        """Return the PriorityClass with ``globalDefault``; of several the lowest in value."""

    def limit_ranges(self, namespace: str) -> Sequence[Manifest]:
        """Return the LimitRanges of a namespace, ordered by name."""

    def namespace(self, name: str) -> Manifest | None:
        """Return the Namespace called ``name``."""

    def node(self, name: str) -> Manifest | None:
        """Return the Node called ``name``."""

    def pod(self, namespace: str, name: str) -> Manifest | None:
        """Return the Pod ``namespace/name``."""

    def classes(self, kind: str) -> Sequence[Manifest]:
        """Return all IngressClasses or StorageClasses, as ``kind`` says."""

    def service_account(self, namespace: str, name: str) -> Manifest | None:
        """Return the ServiceAccount ``namespace/name``."""


class Request(msgspec.Struct, kw_only=True):
    """One request, passed to each plugin; mutating plugins edit ``manifest`` in place.

    ``kind`` is the kind of the object that the path names (``Pod`` also for ``pods/eviction``); the
    kind of the body is in the manifest. ``manifest`` is empty for a deletion.
    """

    kind: str
    operation: str
    manifest: Manifest
    old: Manifest | None
    subresource: str
    namespace: str
    name: str
    user: User
    context: Context
    warnings: list[str] = []

    def display_name(self) -> str:
        """Return the name for messages: the name, else generateName, else ``Unknown``."""
        if self.name:
            return self.name
        meta: dict[str, Any] = self.manifest.get("metadata") or {}
        return meta.get("name") or meta.get("generateName") or "Unknown"

    def forbidden(self, reason: str) -> Forbidden:
        """Return the error ``pods "x" is forbidden: reason`` (apiserver admission/errors.go)."""
        name, resource = self.display_name(), KINDS[self.kind].resource
        return Forbidden(
            f'{resource} "{name}" is forbidden: {reason}', {"name": name, "kind": resource}
        )

    def is_pod(self) -> bool:
        """Return whether the request creates or changes a pod itself, no subresource."""
        return self.kind == "Pod" and not self.subresource

    def require_pod_body(self) -> None:
        """Raise BadRequest if the path is of pods and the body of another kind."""
        kind = self.manifest.get("kind")
        if kind is not None and kind != "Pod":
            raise BadRequest("Resource was marked with kind Pod but was unable to be converted")
