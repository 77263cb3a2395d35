"""Reads a ``KubeSchedulerConfiguration`` document into a configuration.

``load`` takes the document (a mapping, or YAML or JSON text). Documents of older versions and
``kind: Policy`` go through ``legacy.translate`` first. Nothing here reads a file, a clock or a
database. An invalid document raises ``Invalid`` with every wrong field.

Three steps:

1. *read* (``reading``): typed reading that collects an error for every field instead of stopping at
   the first;
2. *merge and expand* (``plugin_sets``): custom plugin sets over the default ones, then
   ``multiPoint`` over the extension points;
3. *check*: Kubernetes' rules (apis/config/validation, v1.36), then warnings about surprising
   settings (``advice``).

Differences from Kubernetes: ``percentageOfNodesToScore`` is 100 when it is absent, since scoring
every node is cheap here; 0 means the adaptive formula; values above 100 act as 100 with a warning
(R170, C18). ``minFeasibleNodesToFind`` (default 50, R175), ``podMaxInUnschedulablePodsSeconds``
(default 300) and ``compatibility`` (``objects.compatibility``) are fields of the document.
"""

from collections.abc import Mapping, Sequence
from functools import cache
from typing import Any

import msgspec

from clusterstate.objects.values import compatibility
from clusterstate.objects.values.compatibility import Compatibility
from clusterstate.objects.values.errors import (
    DUPLICATE,
    INVALID,
    REQUIRED,
    BadRequest,
    FieldError,
    Invalid,
    TooLarge,
)
from clusterstate.objects.values.meta import strip_nulls
from clusterstate.objects.wire.reading import read_yaml, refuse_repeated_keys
from scheduling.framework.configuration import (
    API_VERSION,
    BUILT_IN,
    DEFAULT_SCHEDULER,
    GROUP,
    KIND,
    KubeSchedulerConfiguration,
    PluginInfo,
    Profile,
    extenders,
    legacy,
)
from scheduling.framework.configuration.advice import advise
from scheduling.framework.configuration.plugin_args import READERS, Args, RawArgs
from scheduling.framework.configuration.plugin_sets import (
    check_plugin_name,
    expand,
    read_plugin_sets,
)
from scheduling.framework.configuration.reading import Errors, Field


def load(
    document: Mapping[str, Any] | str | bytes,
    *,
    extra_plugins: Mapping[str, PluginInfo] | None = None,
) -> KubeSchedulerConfiguration:
    """Return the configuration that ``document`` describes, with all defaults filled in.

    Args:
        document: a mapping, or YAML or JSON text, of kind KubeSchedulerConfiguration (v1,
            v1beta3, v1beta2, v1beta1, v1alpha2, v1alpha1) or Policy (v1).
        extra_plugins: plugins of other packages, by name, that the document may use.

    Raises:
        Invalid: with every wrong field, in ``errors``.
    """
    errors: Errors = []
    warnings: list[str] = []
    source = parse(document)
    current = legacy.translate(source, errors, warnings)
    plugins = {**BUILT_IN, **(extra_plugins or {})}
    configuration = _read(current, plugins, errors, warnings)
    if errors or configuration is None:
        raise Invalid(str(source.get("kind") or KIND), "", errors, GROUP)
    return configuration


@cache
def default_configuration() -> KubeSchedulerConfiguration:
    """Return the configuration of an empty document: one profile, ``default-scheduler``; cached."""
    return load({"apiVersion": API_VERSION, "kind": KIND})


def parse(document: Mapping[str, Any] | str | bytes) -> dict[str, Any]:
    """Return a document as an object without nulls.

    Raises:
        Invalid: it is neither YAML nor JSON, or not an object.
    """
    if isinstance(document, bytes):
        document = document.decode(errors="replace")
    if isinstance(document, str):
        # Printed examples write "..." for an omission. In YAML that line would end the document.
        lines = document.splitlines()
        text = "\n".join("" if line.strip() == "..." else line for line in lines)
        try:
            raw = text.encode("utf-8", "replace")
            value = read_yaml(raw)
            refuse_repeated_keys(raw)
        except (BadRequest, TooLarge) as error:
            detail = f"does not parse as YAML or JSON: {error.message}"
            raise Invalid(KIND, "", [FieldError(INVALID, "", None, detail)], GROUP) from error
    else:
        value = document
    if not isinstance(value, Mapping):
        raise Invalid(KIND, "", [FieldError(INVALID, "", value, "must be an object")], GROUP)
    stripped: dict[str, Any] = strip_nulls(dict(value))
    return stripped


_WITHOUT_EFFECT_FIELDS = (
    "leaderElection",
    "clientConnection",
    "healthzBindAddress",
    "metricsBindAddress",
    "enableProfiling",
    "enableContentionProfiling",
    "delayCacheUntilActive",
)


def _read(
    document: dict[str, Any],
    plugins: Mapping[str, PluginInfo],
    errors: Errors,
    warnings: list[str],
) -> KubeSchedulerConfiguration | None:
    top = Field(document, "", errors)
    top.text("apiVersion")
    top.text("kind")
    ignored = [name for name in _WITHOUT_EFFECT_FIELDS if top.take(name) is not None]
    warnings += [f"{name}: has no effect in this service" for name in ignored]
    parallelism = top.integer("parallelism", 16)
    if parallelism <= 0:
        top.error("parallelism", parallelism, "should be an integer value greater than zero")
    percentage = _percentage(top, 100, warnings)
    assert percentage is not None
    floor = top.integer("minFeasibleNodesToFind", 50)
    if floor < 1:
        top.error("minFeasibleNodesToFind", floor, "must be greater than 0")
    initial = top.integer("podInitialBackoffSeconds", 1)
    if initial <= 0:
        top.error("podInitialBackoffSeconds", initial, "must be greater than 0")
    longest = top.integer("podMaxBackoffSeconds", 10)
    if longest < initial:
        top.error(
            "podMaxBackoffSeconds",
            longest,
            "must be greater than or equal to PodInitialBackoffSeconds",
        )
    flush = top.integer("podMaxInUnschedulablePodsSeconds", 300)
    if flush <= 0:
        top.error("podMaxInUnschedulablePodsSeconds", flush, "must be greater than 0")
    version = _compatibility(top)
    extending = extenders.read(top, warnings)
    fields = top.objects("profiles")
    top.finish()
    if not document.get("profiles"):
        fields = [Field({}, "profiles[0]", errors)]
    profiles = [
        _profile(
            field,
            default_name=len(fields) == 1,
            percentage=percentage,
            floor=floor,
            version=version,
            plugins=plugins,
            warnings=warnings,
        )
        for field in fields
    ]
    _check_profiles(profiles, errors)
    if errors:
        return None
    advise([p for p, _ in profiles], warnings)
    return KubeSchedulerConfiguration(
        profiles=tuple(extenders.extended(profile, extending) for profile, _ in profiles),
        parallelism=parallelism,
        percentage_of_nodes_to_score=percentage,
        min_feasible_nodes_to_find=floor,
        pod_initial_backoff_seconds=initial,
        pod_max_backoff_seconds=longest,
        pod_max_in_unschedulable_pods_seconds=flush,
        compatibility=version,
        document=document,
        warnings=tuple(warnings),
    )


def _percentage(field: Field, default: int | None, warnings: list[str]) -> int | None:
    """Read percentageOfNodesToScore, 0-100; more acts as 100, with a warning (R170, C18)."""
    if not field.has("percentageOfNodesToScore"):
        return default
    value = field.integer("percentageOfNodesToScore", 0)
    path = field.child("percentageOfNodesToScore")
    if value < 0:
        field.error("percentageOfNodesToScore", value, "not in valid range [0-100]")
        return default
    if value > 100:
        warnings.append(f"{path}: {value} acts as 100")
        return 100
    if 0 < value < 10:
        warnings.append(
            f"{path}: with {value}, most nodes are not scored; below 10, placements get worse"
        )
    return value


def _compatibility(top: Field) -> Compatibility:
    """Read the Kubernetes version whose behaviour applies; the newest if absent."""
    text = top.take("compatibility")
    if text is None:
        return compatibility.NEWEST
    found = compatibility.parse(text)
    if found is None:
        supported = ", ".join(f'"{one.text}"' for one in Compatibility)
        top.error("compatibility", text, f"must be one of {supported}")
        return compatibility.NEWEST
    return found


def _check_profiles(profiles: Sequence[tuple[Profile, Field]], errors: Errors) -> None:
    """Check that names differ, and that all profiles sort the queue alike, with equal arguments."""
    seen: dict[str, str] = {}
    for profile, field in profiles:
        if profile.scheduler_name in seen:
            path = field.child("schedulerName")
            errors.append(FieldError(DUPLICATE, path, seen[profile.scheduler_name]))
        else:
            seen[profile.scheduler_name] = field.child("schedulerName")
    if not profiles:
        return
    first = profiles[0][0]
    canon = first.names("queueSort")
    for profile, field in profiles[1:]:
        names = profile.names("queueSort")
        if names != canon:
            path = field.child("plugins.queueSort")
            errors.append(
                FieldError(INVALID, path, list(names), "must be the same for all profiles")
            )
        elif any(profile.args.get(name) != first.args.get(name) for name in names):
            path = field.child("pluginConfig")
            errors.append(
                FieldError(
                    INVALID, path, list(names), "queueSort must be the same for all profiles"
                )
            )


def _profile(
    field: Field,
    *,
    default_name: bool,
    percentage: int,
    floor: int,
    version: Compatibility,
    plugins: Mapping[str, PluginInfo],
    warnings: list[str],
) -> tuple[Profile, Field]:
    name = field.text("schedulerName", DEFAULT_SCHEDULER if default_name else "")
    if not name:
        field.errors.append(FieldError(REQUIRED, field.child("schedulerName")))
    own = _percentage(field, None, warnings)
    sets = read_plugin_sets(field, plugins, warnings)
    points = expand(sets, plugins, field)
    plugin_args = _plugin_config(field, plugins, warnings)
    field.finish()
    used = {use.name for uses in points.values() for use in uses}
    args: dict[str, Args] = {}
    for plugin in sorted(used | set(plugin_args)):
        info = plugins.get(plugin)
        if plugin in plugin_args:
            args[plugin] = plugin_args[plugin]
        elif info is not None and info.args_type is not None:
            try:
                args[plugin] = msgspec.convert({}, info.args_type)
            except msgspec.ValidationError as error:
                field.error("pluginConfig", plugin, f"{plugin} needs arguments: {error}")
    profile = Profile(
        scheduler_name=name,
        percentage_of_nodes_to_score=percentage if own is None else own,
        min_feasible_nodes_to_find=floor,
        points=points,
        args=args,
        compatibility=version,
    )
    return profile, field


def _plugin_config(
    field: Field, plugins: Mapping[str, PluginInfo], warnings: list[str]
) -> dict[str, Args]:
    found: dict[str, Args] = {}
    for entry in field.objects("pluginConfig"):
        name = entry.text("name")
        if name in found:
            entry.errors.append(FieldError(DUPLICATE, entry.path, name))
            continue
        if not check_plugin_name(name, entry, plugins, warnings):
            continue
        args = entry.object("args") or Field({}, entry.child("args"), entry.errors)
        entry.finish()
        reader = READERS.get(name)
        if reader is not None:
            _check_type_meta(args, name)
            found[name] = reader(args)
            if name == "DynamicResources" and args.has("filterTimeout"):
                warnings.append(f"{args.child('filterTimeout')}: has no effect in this service")
            args.finish()
        else:
            found[name] = _foreign_args(args, plugins[name])
    return found


def _check_type_meta(args: Field, name: str) -> None:
    """Check ``apiVersion`` and ``kind`` in args, if given: the kind must be the plugin's."""
    version = args.text("apiVersion")
    if version and not version.startswith(f"{GROUP}/"):
        args.error("apiVersion", version, f"must be of the group {GROUP}")
    kind = args.text("kind")
    if kind and kind != f"{name}Args":
        args.error("kind", kind, "has to match plugin args")


def _foreign_args(args: Field, info: PluginInfo) -> Args:
    if info.args_type is None:
        return RawArgs(value=args.rest())
    try:
        return msgspec.convert(args.rest(), info.args_type)
    except msgspec.ValidationError as error:
        text, _, where = str(error).partition(" - at `$")
        path = args.path + where.rstrip("`")
        args.errors.append(FieldError(INVALID, path, None, text))
        return RawArgs()
