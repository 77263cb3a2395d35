"""A `Context` over plain dictionaries, and one call that admits."""

from typing import Any

from clusterstate.admission import CREATE, AdmissionSettings, AdmittedObject, User, admit
from clusterstate.objects.values.errors import Invalid
from clusterstate.objects.values.meta import Manifest

NOBODY = User()


class Known:
    """What admission may look up in a test. Every namespace exists unless said otherwise."""

    def __init__(
        self,
        *,
        runtime_classes: tuple[Manifest, ...] = (),
        priority_classes: tuple[Manifest, ...] = (),
        limit_ranges: tuple[Manifest, ...] = (),
        namespaces: dict[str, Manifest | None] | None = None,
        nodes: tuple[Manifest, ...] = (),
        pods: tuple[Manifest, ...] = (),
        classes: dict[str, tuple[Manifest, ...]] | None = None,
        service_accounts: tuple[Manifest, ...] = (),
        **switches: Any,
    ) -> None:
        self._runtime_classes = _by_name(runtime_classes)
        self._priority_classes = _by_name(priority_classes)
        self._limit_ranges = limit_ranges
        self._namespaces = namespaces or {}
        self._nodes = _by_name(nodes)
        self._pods = {(p["metadata"]["namespace"], p["metadata"]["name"]): p for p in pods}
        self._classes = classes or {}
        self._service_accounts = _by_name(service_accounts)
        self.settings = AdmissionSettings(**switches)

    def runtime_class(self, name: str) -> Manifest | None:
        return self._runtime_classes.get(name)

    def priority_class(self, name: str) -> Manifest | None:
        return self._priority_classes.get(name)

    def default_priority_class(self) -> Manifest | None:
        classes = [c for c in self._priority_classes.values() if c.get("globalDefault")]
        return min(classes, key=lambda c: c["value"], default=None)

    def limit_ranges(self, namespace: str) -> tuple[Manifest, ...]:
        return self._limit_ranges

    def namespace(self, name: str) -> Manifest | None:
        return self._namespaces.get(name, {"metadata": {"name": name}})

    def node(self, name: str) -> Manifest | None:
        return self._nodes.get(name)

    def pod(self, namespace: str, name: str) -> Manifest | None:
        return self._pods.get((namespace, name))

    def classes(self, kind: str) -> tuple[Manifest, ...]:
        return self._classes.get(kind, ())

    def service_account(self, namespace: str, name: str) -> Manifest | None:
        return self._service_accounts.get(name)


def _by_name(manifests: tuple[Manifest, ...]) -> dict[str, Manifest]:
    return {manifest["metadata"]["name"]: manifest for manifest in manifests}


def create(
    manifest: Manifest,
    known: Known | None = None,
    *,
    kind: str = "Pod",
    user: User = NOBODY,
    subresource: str = "",
) -> AdmittedObject:
    return admit(kind, CREATE, manifest, None, subresource, known or Known(), user)


def refusals(manifest: Manifest, kind: str = "Pod") -> dict[str, str]:
    """Create the object and return the wrong fields with their details; of one field the last."""
    try:
        create(manifest, kind=kind)
    except Invalid as refused:
        return {error.field: error.detail for error in refused.errors}
    return {}


def pod(spec: Manifest | None = None, **metadata: Any) -> Manifest:
    """A pod with one container, and with the given parts of spec and metadata."""
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "web", "namespace": "default", **metadata},
        "spec": {"containers": [{"name": "main", "image": "nginx:1.25"}], **(spec or {})},
    }
