"""Reads the ``Simulation`` document, and collects all errors in one."""

from collections.abc import Iterable, Sequence
from typing import Any, Final, cast

import msgspec

from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.registry.schema import is_plain, type_problem
from clusterstate.objects.registry.schema import unknown_fields as all_unknown_fields
from clusterstate.objects.values.errors import (
    INVALID,
    NOT_SUPPORTED,
    REQUIRED,
    TYPE_INVALID,
    FieldError,
    Invalid,
)
from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.remembered import remembered
from scheduling.engine.reference.cycle import TieBreak
from scheduling.framework.configuration import KubeSchedulerConfiguration, reading
from scheduling.framework.configuration.reading import Errors, Field
from scheduling.plugins.catalogue import load_configuration

GROUP: Final = "stowage.dev"
API_VERSION: Final = f"{GROUP}/v1"
KIND: Final = "Simulation"

NONE, SUMMARY, FULL = "none", "summary", "full"
DESCRIBE, PERFORM = "describe", "perform"
_LIST_KINDS: Final = frozenset({"List", *(f"{kind}List" for kind in KINDS)})
_LARGEST_SEED: Final = 2**63 - 1


class Gone(msgspec.Struct, frozen=True):
    """An object to delete from the world; ``path``: its field in the document."""

    kind: str
    namespace: str
    name: str
    path: str


class Given(msgspec.Struct, frozen=True):
    """An object of the document, with its path there."""

    manifest: Manifest
    path: str


class Simulation(msgspec.Struct, frozen=True, kw_only=True):
    """A parsed document: the changes of the world, the pods to place, and options.

    ``percentage_of_nodes_to_score``: ``None`` for the configuration's. ``performs_preemption``:
    victims leave and the pod takes their place; else they are only listed.
    """

    metadata: Manifest
    live: bool
    objects: tuple[Given, ...]
    delete: tuple[Gone, ...]
    pods: tuple[Given, ...]
    sequential: bool
    configuration: KubeSchedulerConfiguration | None
    percentage_of_nodes_to_score: int | None
    seed: int
    tie_break: TieBreak
    admission: bool
    explain: str
    performs_preemption: bool = False
    warnings: tuple[str, ...] = ()


def read(document: object, *, default_base: str = "live") -> Simulation:
    """Return a parsed ``Simulation`` document.

    Args:
        document: the JSON object.
        default_base: the default of ``spec.base``.

    Raises:
        Invalid: with every wrong field; also every unknown one.
        BadRequest: the document is nested too deeply.
    """
    errors: Errors = []
    head = reading.document(document, api_version=API_VERSION, kind=KIND, errors=errors)
    spec = head.spec
    live = _choice(spec, "base", ("live", "empty"), default_base) == "live"
    warnings: list[str] = []
    found = Simulation(
        metadata=head.metadata,
        live=live,
        objects=tuple(_objects(spec, warnings)),
        delete=tuple(_deletions(spec)),
        pods=tuple(_pods(spec)),
        sequential=_choice(spec, "mode", ("sequential", "independent")) == "sequential",
        configuration=_configuration(spec, warnings),
        percentage_of_nodes_to_score=_percentage(spec, warnings),
        seed=_seed(spec),
        tie_break=cast("TieBreak", _choice(spec, "tieBreak", ("random", "first"))),
        admission=spec.boolean("admission", default=True),
        explain=_choice(spec, "explain", (NONE, SUMMARY, FULL), SUMMARY),
        performs_preemption=_choice(spec, "preemption", (DESCRIBE, PERFORM)) == PERFORM,
        warnings=tuple(warnings),
    )
    if found.performs_preemption and not found.sequential:
        detail = 'pods that are placed independently preempt nobody: mode must be "sequential"'
        spec.error("preemption", PERFORM, detail)
    head.finish()
    if errors:
        raise Invalid(KIND, head.name, errors, GROUP)
    return found


def _choice(spec: Field, name: str, words: tuple[str, ...], default: str = "") -> str:
    value = spec.text(name, default or words[0])
    if value not in words:
        listed = ", ".join(f'"{word}"' for word in words)
        path = spec.child(name)
        spec.errors.append(FieldError(NOT_SUPPORTED, path, value, f"supported values: {listed}"))
    return value


def _seed(spec: Field) -> int:
    seed = spec.integer("seed", 0)
    if not 0 <= seed <= _LARGEST_SEED:
        spec.error("seed", seed, f"must be between 0 and {_LARGEST_SEED}")
    return seed


def _percentage(spec: Field, warnings: list[str]) -> int | None:
    """Read percentageOfNodesToScore as configurations do: 0 adaptive, above 100 as 100 (C18)."""
    name = "percentageOfNodesToScore"
    if not spec.has(name):
        return None
    value = spec.integer(name, 100)
    if value < 0:
        spec.error(name, value, "not in valid range [0-100]")
    if value > 100:
        warnings.append(f"{spec.child(name)}: {value} acts as 100")
    return min(value, 100)


def _configuration(spec: Field, warnings: list[str]) -> KubeSchedulerConfiguration | None:
    field = spec.object("configuration")
    if field is None:
        return None
    try:
        found = _loaded(msgspec.json.encode(field.rest()))
    except Invalid as invalid:
        spec.errors += [below(field.path, error) for error in invalid.errors]
        return None
    warnings += [f"{field.path}: {text}" for text in found.warnings]
    return found


def without(
    spec: Manifest, own: Iterable[str], refused: Iterable[str], errors: list[FieldError]
) -> Manifest:
    """Return ``spec`` less the members in ``own`` and ``refused``: what describes the cluster.

    Each refused member that is there is added to the errors.
    """
    inner = {key: value for key, value in spec.items() if key not in own}
    for member in refused:
        if member in inner:
            del inner[member]
            errors.append(FieldError(INVALID, f"spec.{member}", None, "unknown field"))
    return inner


def read_world(kind: str, world: Manifest, errors: Sequence[FieldError]) -> Simulation:
    """Return the cluster that a document of another kind describes in fields of a ``Simulation``.

    Raises:
        Invalid: of this kind, with ``errors`` and those of the world.
    """
    try:
        found = read({**world, "spec": world.get("spec", {})})
    except Invalid as invalid:
        raise Invalid(kind, "", [*errors, *invalid.errors], GROUP) from None
    if errors:
        raise Invalid(kind, "", list(errors), GROUP)
    return found


def below(path: str, error: FieldError) -> FieldError:
    """Return the error with ``path``, the path of its object, before its own."""
    field = error.field
    joined = f"{path}{field}" if field.startswith("[") else f"{path}.{field}" if field else path
    return FieldError(error.type, joined, error.bad_value, error.detail)


def _objects(spec: Field, warnings: list[str]) -> Iterable[Given]:
    for entry in _flattened(spec.items("objects"), spec.child("objects"), spec.errors):
        manifest, path = entry.manifest, entry.path
        kind = manifest.get("kind")
        if not kind:
            spec.errors.append(FieldError(REQUIRED, f"{path}.kind"))
        elif not isinstance(kind, str) or not isinstance(KINDS.get(kind), msgspec.Struct):
            detail = "no such kind is known here"
            spec.errors.append(FieldError(NOT_SUPPORTED, f"{path}.kind", kind, detail))
        elif is_plain(kind, manifest) and manifest.get("metadata", {}).get("name"):
            yield entry
        else:
            problem = type_error(kind, manifest)
            if problem is not None:
                spec.errors.append(below(path, problem))
                continue
            name = (manifest.get("metadata") or {}).get("name")
            if not name and kind != "Pod":
                spec.errors.append(FieldError(REQUIRED, f"{path}.metadata.name"))
            warnings += [
                f"{path}.{field}: unknown field" for field in unknown_fields(kind, manifest)
            ]
            yield entry


def _flattened(items: list[Any], path: str, errors: Errors) -> Iterable[Given]:
    """Yield the objects; those of a list (``kubectl get -o yaml``) one by one."""
    for number, item in enumerate(items):
        where = f"{path}[{number}]"
        if not isinstance(item, dict):
            errors.append(FieldError(TYPE_INVALID, where, item, "must be an object"))
        elif isinstance(item.get("kind"), str) and item["kind"] in _LIST_KINDS:
            inner = item.get("items") or []
            if not isinstance(inner, list):
                detail = "must be a list"
                errors.append(FieldError(TYPE_INVALID, f"{where}.items", None, detail))
                continue
            kind = item["kind"].removesuffix("List")
            if kind:
                inner = [{"kind": kind, **i} if isinstance(i, dict) else i for i in inner]
            yield from _flattened(inner, f"{where}.items", errors)
        else:
            yield Given(item, where)


def _pods(spec: Field) -> Iterable[Given]:
    for entry in _flattened(spec.items("pods"), spec.child("pods"), spec.errors):
        kind = entry.manifest.get("kind", "Pod")
        if kind != "Pod":
            path = f"{entry.path}.kind"
            spec.errors.append(FieldError(NOT_SUPPORTED, path, kind, 'supported values: "Pod"'))
        yield entry


def _deletions(spec: Field) -> Iterable[Gone]:
    for entry in spec.objects("delete"):
        entry.take("apiVersion")
        kind, name = entry.text("kind"), entry.text("name")
        namespace = entry.text("namespace")
        entry.finish()
        for member, value in (("kind", kind), ("name", name)):
            if not value and not entry.has(member):
                entry.errors.append(FieldError(REQUIRED, entry.child(member)))
        served = KINDS.get(kind)
        if kind and not served:
            detail = "no such kind is known here"
            entry.errors.append(FieldError(NOT_SUPPORTED, entry.child("kind"), kind, detail))
        if served:
            namespace = (namespace or "default") if served.namespaced else ""
            yield Gone(kind, namespace, name, entry.path)


def type_error(kind: str, manifest: Manifest) -> FieldError | None:
    """Return the first field of the wrong JSON type, with its path in the object."""
    problem = type_problem(manifest, KINDS[kind].wire_type)
    if not problem:
        return None
    where, colon, reason = problem.partition(": ")
    if not colon:
        where, reason = "", problem
    return FieldError(TYPE_INVALID, where, None, reason)


def unknown_fields(kind: str, manifest: Manifest) -> list[str]:
    """Return the paths of the fields that objects of the kind do not have."""
    paths = all_unknown_fields(kind, manifest)
    return [path for path in paths if path not in ("apiVersion", "kind")]


@remembered(64, longest=65_536)
def _loaded(document: bytes) -> KubeSchedulerConfiguration:
    return load_configuration(cast("dict[str, Any]", msgspec.json.decode(document)))
