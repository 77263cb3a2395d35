"""Prepares the pods of a document for placement: checks and admits them, finds their class.

The pods of a workload differ only in their names. The first one is checked and admitted; the result
is reused for others whose JSON differs only in a simple name (``Ready``).
"""

import re
from collections.abc import Mapping
from typing import Final

import msgspec

from clusterstate.admission import CREATE, admit
from clusterstate.admission.defaults import set_defaults
from clusterstate.objects.registry.schema import is_plain
from clusterstate.objects.values.errors import INVALID, FieldError, Invalid, StatusError
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.quantity import QuantityError
from scheduling.framework.outcomes import PluginFailed
from scheduling.framework.runtime import Framework
from scheduling.framework.types import PodInfo
from scheduling.simulation import claims
from scheduling.simulation.document import type_error, unknown_fields
from scheduling.simulation.world import FINISHED, NOBODY, World, is_stored

_SIMPLE_NAME: Final = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?\Z")
"""A DNS label: valid as a pod's name, and without a warning."""
_MOST_REMEMBERED: Final = 20_000
_DEPENDS_ON_NAME: Final = re.compile(rb'"ephemeral"|"resourceClaimTemplateName"')
"""A pod with such a field has claims of its own, named after the pod."""


class Ready(msgspec.Struct, frozen=True):
    """A pod that can be placed.

    ``manifest``: the admitted one, ``None`` if an equal pod with another name was admitted before.
    """

    namespace: str
    name: str
    title: str
    info: PodInfo
    framework: Framework
    nominated: str
    manifest: Manifest | None
    warnings: tuple[str, ...] = ()


class Set(msgspec.Struct, frozen=True):
    """A pod that already has a node: it takes room there and is not scheduled."""

    namespace: str
    name: str
    title: str
    info: PodInfo
    manifest: Manifest
    node_name: str
    warnings: tuple[str, ...] = ()


class UnplacedStatus(msgspec.Struct, frozen=True):
    """A pod that is not placed; ``status``: its entry in the results.

    ``place``: namespace and name of a valid pod.
    """

    title: str
    status: str
    message: str = ""
    errors: tuple[FieldError, ...] = ()
    warnings: tuple[str, ...] = ()
    place: tuple[str, str] | None = None


class Preparer:
    """Prepares pods of one world; caches the results of equal pods with other names.

    Args:
        world: for admission and scheduling classes; its PriorityClasses, RuntimeClasses, namespaces
            and limits must not change meanwhile.
        frameworks: the profiles by scheduler name.
        remembers: False if each pod's own manifest is needed.
    """

    def __init__(
        self, world: World, frameworks: Mapping[str, Framework], *, remembers: bool = True
    ) -> None:
        self._world = world
        self._frameworks = frameworks
        self._remembers = remembers
        self._cache: dict[bytes, Ready] = {}

    def prepare(self, manifest: Manifest, number: int) -> Ready | Set | UnplacedStatus:
        """Return the pod at index ``number`` of the document, prepared or with its error."""
        key = self._shape(manifest) if self._remembers else b""
        if key:
            cached = self._cache.get(key)
            if cached is not None:
                name = manifest["metadata"]["name"]
                title = f"{cached.namespace}/{name}"
                return Ready(
                    cached.namespace, name, title, cached.info, cached.framework, cached.nominated,
                    None, cached.warnings,
                )  # fmt: skip
        found = self._prepared(manifest, number)
        if key and isinstance(found, Ready):
            if len(self._cache) >= _MOST_REMEMBERED:
                self._cache.clear()
            self._cache[key] = found
        return found

    @staticmethod
    def _shape(manifest: Manifest) -> bytes:
        """Return the pod without its name as JSON; empty if its name may matter."""
        meta = manifest.get("metadata")
        if not isinstance(meta, dict):
            return b""
        name = meta.get("name")
        if not isinstance(name, str) or not _SIMPLE_NAME.match(name):
            return b""
        try:
            text = msgspec.json.encode({**manifest, "metadata": {**meta, "name": ""}})
        except (TypeError, ValueError, RecursionError):
            return b""
        return b"" if _DEPENDS_ON_NAME.search(text) else text

    def _prepared(self, manifest: Manifest, number: int) -> Ready | Set | UnplacedStatus:
        warnings: list[str] = []
        if not is_plain("Pod", manifest):
            problem = type_error("Pod", manifest)
            if problem is not None:
                return UnplacedStatus(display(manifest, number), "invalid", errors=(problem,))
            warnings += [f"{field}: unknown field" for field in unknown_fields("Pod", manifest)]
        manifest = _named(manifest, number)
        title = display(manifest, number)
        try:
            manifest = with_claims(admitted(manifest, self._world, warnings), self._world)
            info = self._world.intern(manifest)
        except Invalid as invalid:
            return UnplacedStatus(title, "invalid", invalid.message, tuple(invalid.errors))
        except StatusError as error:
            refusal = FieldError(error.reason, "", None, error.message)
            return UnplacedStatus(title, "invalid", error.message, (refusal,))
        except QuantityError as error:
            refusal = FieldError(INVALID, "spec", None, str(error))
            return UnplacedStatus(title, "invalid", str(error), (refusal,))
        meta, status = manifest.get("metadata") or {}, manifest.get("status") or {}
        namespace, name = meta.get("namespace") or "default", meta.get("name") or ""
        place, all_warnings = (namespace, name), tuple(warnings)
        if node_name := manifest["spec"].get("nodeName") or "":
            return Set(namespace, name, title, info, manifest, node_name, all_warnings)
        if status.get("phase") in FINISHED:
            return UnplacedStatus(title, "skipped", "the pod is finished", (), all_warnings, place)
        framework = self._frameworks.get(info.scheduler_name)
        if framework is None:
            text = f'no profile is named "{info.scheduler_name}": the scheduler ignores the pod'
            return UnplacedStatus(title, "skipped", text, (), all_warnings, place)
        try:
            gate = framework.pre_enqueue(info)
        except PluginFailed as failure:
            return UnplacedStatus(title, "error", failure.status.message, (), all_warnings, place)
        if not gate.ok:
            outcome = "gated" if gate.code.rejects else "error"
            return UnplacedStatus(title, outcome, gate.message, (), all_warnings, place)
        nominated = status.get("nominatedNodeName") or ""
        return Ready(namespace, name, title, info, framework, nominated, manifest, all_warnings)


def admitted(manifest: Manifest, world: World, warnings: list[str]) -> Manifest:
    """Return a pod to place as it would be stored; without admission it gets defaults only.

    A pod that a server stored before, as from ``kubectl get``, also gets defaults only.

    Raises:
        Invalid: with every wrong field.
        Forbidden, NotFound, Conflict, BadRequest: from the admission plugin that refused it.
    """
    if world.admission and not is_stored(manifest):
        found = admit("Pod", CREATE, manifest, None, None, world, NOBODY)
        warnings += found.warnings
        return found.manifest
    if world.admission:
        world.namespace(manifest["metadata"]["namespace"])
    copied: Manifest = msgspec.json.decode(msgspec.json.encode(manifest))
    set_defaults("Pod", copied)
    return copied


def with_claims(manifest: Manifest, world: World) -> Manifest:
    """Return a pod with the claims that controllers create for it; adds them to the world."""
    namespace = manifest["metadata"]["namespace"]
    return claims.make(
        world.snapshot,
        manifest,
        lambda name: world.find("ResourceClaimTemplate", namespace, name),
    )


def display(manifest: Manifest, number: int) -> str:
    """Return ``namespace/name`` of the pod at index ``number``, even if it is invalid."""
    meta = manifest.get("metadata")
    if not isinstance(meta, dict):
        meta = {}
    return f"{meta.get('namespace') or 'default'}/{meta.get('name') or f'pod-{number}'}"


def _named(manifest: Manifest, number: int) -> Manifest:
    """Return the pod with namespace and, from ``generateName``, a name, as the API gives them."""
    meta = dict(manifest.get("metadata") or {})
    meta["namespace"] = meta.get("namespace") or "default"
    if not meta.get("name") and meta.get("generateName"):
        meta["name"] = f"{meta['generateName']}{number}"
    return {**manifest, "metadata": meta}
