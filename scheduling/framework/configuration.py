"""The scheduler's configuration as a value: profiles, their plugins, weights and arguments.

``load`` takes a ``KubeSchedulerConfiguration`` document (a mapping, or YAML or JSON text) and
returns the value that the live cycle and the simulations run with. Documents of older versions
and ``kind: Policy`` go through ``legacy.translate`` first. Nothing here reads a file, a clock or a
database, and a document that is wrong raises ``Invalid`` with every wrong field.

Three steps, each a section below:

1. *read*: typed reading that collects an error for every field instead of stopping at the first;
2. *merge and expand*: custom plugin sets over the default ones, then ``multiPoint`` over the
   extension points (rules: apis/config/v1/default_plugins.go and framework/runtime/framework.go,
   v1.36);
3. *check*: Kubernetes' rules (apis/config/validation, v1.36), then advice (R87, R179) as warnings.

Where this differs from Kubernetes: ``percentageOfNodesToScore`` is 100 when it is absent, since
scoring every node is cheap here; 0 asks for the adaptive formula; values above 100 act as 100 with
a warning (R170, C18). ``minFeasibleNodesToFind`` (default 50, R175) and
``podMaxInUnschedulablePodsSeconds`` (default 300) are fields of the document. Plugins for volumes
and devices are known by name, have no effect, and are named in a warning.
"""

from collections.abc import Mapping, Sequence
from typing import Any, ClassVar

import msgspec

from clusterstate.objects.errors import (
    DUPLICATE,
    FORBIDDEN,
    INVALID,
    NOT_SUPPORTED,
    REQUIRED,
    BadRequest,
    FieldError,
    Invalid,
    TooLarge,
)
from clusterstate.objects.meta import strip_nulls
from clusterstate.objects.pod import NodeAffinity, NodeSelector, NodeSelectorTerm
from clusterstate.objects.reading import read_yaml
from scheduling.framework import legacy
from scheduling.framework.plugin_args import (
    READERS,
    Args,
    DefaultPreemptionArgs,
    InterPodAffinityArgs,
    NodeAffinityArgs,
    NodeResourcesBalancedAllocationArgs,
    NodeResourcesFitArgs,
    PodTopologySpreadArgs,
    RawArgs,
)
from scheduling.framework.reading import Errors, Field

GROUP = "kubescheduler.config.k8s.io"
KIND = "KubeSchedulerConfiguration"
API_VERSION = f"{GROUP}/v1"
DEFAULT_SCHEDULER = "default-scheduler"

EXTENSION_POINTS = (
    "preEnqueue",
    "queueSort",
    "preFilter",
    "filter",
    "postFilter",
    "preScore",
    "score",
    "reserve",
    "permit",
    "preBind",
    "bind",
    "postBind",
)
"""The extension points in the order in which a pod meets them."""

MAX_TOTAL_SCORE = 2**63 - 1
MAX_NODE_SCORE = 100


# --- the value -----------------------------------------------------------------------------------


class PluginInfo(msgspec.Struct, frozen=True, kw_only=True):
    """What the loader must know of a plugin: where it may act, and the type of its arguments.

    ``args_type`` is a msgspec Struct (camelCase names by its own ``rename``) or None: any object.
    ``problem`` says why a plugin that is installed cannot be used.
    """

    points: frozenset[str]
    args_type: type[msgspec.Struct] | None = None
    problem: str = ""


class PluginUse(msgspec.Struct, frozen=True):
    """A plugin at an extension point; ``weight`` counts at the point ``score`` only."""

    name: str
    weight: int = 1


class Profile(msgspec.Struct, frozen=True, kw_only=True):
    """One way to schedule, chosen by a pod's ``spec.schedulerName``.

    ``points`` holds the effective plugins by extension point, in order; ``args`` the arguments of
    every effective plugin that takes any. ``percentage_of_nodes_to_score`` is already resolved
    against the global one: 1-100, or 0 for the adaptive formula.
    """

    scheduler_name: str = DEFAULT_SCHEDULER
    percentage_of_nodes_to_score: int = 100
    min_feasible_nodes_to_find: int = 50
    points: dict[str, tuple[PluginUse, ...]] = {}
    args: dict[str, Args] = {}

    def plugins(self, point: str) -> tuple[PluginUse, ...]:
        """Return the plugins to run at ``point``, in order."""
        return self.points.get(point, ())

    def names(self, point: str) -> tuple[str, ...]:
        """Return the names of the plugins to run at ``point``, in order."""
        return tuple(use.name for use in self.points.get(point, ()))

    def weights(self) -> dict[str, int]:
        """Return the weight of each score plugin, in order."""
        return {use.name: use.weight for use in self.points.get("score", ())}

    def uses(self, name: str) -> bool:
        """Tell whether the plugin acts at any extension point of this profile."""
        return any(use.name == name for uses in self.points.values() for use in uses)

    def all_plugins(self) -> tuple[str, ...]:
        """Return each effective plugin once, in the order of its first extension point."""
        found = {use.name: None for p in EXTENSION_POINTS for use in self.points.get(p, ())}
        return tuple(found)


class KubeSchedulerConfiguration(msgspec.Struct, frozen=True, kw_only=True):
    """The whole configuration. ``document`` is its v1 form, ``warnings`` is advice for people."""

    API_VERSION: ClassVar[str] = API_VERSION

    profiles: tuple[Profile, ...]
    parallelism: int = 16
    percentage_of_nodes_to_score: int = 100
    min_feasible_nodes_to_find: int = 50
    pod_initial_backoff_seconds: int = 1
    pod_max_backoff_seconds: int = 10
    pod_max_in_unschedulable_pods_seconds: int = 300
    document: dict[str, Any] = {}
    warnings: tuple[str, ...] = ()

    def profile(self, scheduler_name: str) -> Profile | None:
        """Return the profile that a pod with this ``schedulerName`` uses; None leaves it alone."""
        for profile in self.profiles:
            if profile.scheduler_name == scheduler_name:
                return profile
        return None


# --- what is known -------------------------------------------------------------------------------


def _info(*points: str, args: type[msgspec.Struct] | None = None) -> PluginInfo:
    return PluginInfo(points=frozenset(points), args_type=args)


BUILT_IN: dict[str, PluginInfo] = {
    "SchedulingGates": _info("preEnqueue"),
    "PrioritySort": _info("queueSort"),
    "NodeUnschedulable": _info("filter"),
    "NodeName": _info("filter"),
    "TaintToleration": _info("filter", "preScore", "score"),
    "NodeAffinity": _info("preFilter", "filter", "preScore", "score", args=NodeAffinityArgs),
    "NodePorts": _info("preFilter", "filter"),
    "NodeResourcesFit": _info(
        "preFilter", "filter", "preScore", "score", args=NodeResourcesFitArgs
    ),
    "PodTopologySpread": _info(
        "preFilter", "filter", "preScore", "score", args=PodTopologySpreadArgs
    ),
    "InterPodAffinity": _info(
        "preFilter", "filter", "preScore", "score", args=InterPodAffinityArgs
    ),
    "DefaultPreemption": _info("postFilter", args=DefaultPreemptionArgs),
    "NodeResourcesBalancedAllocation": _info(
        "preScore", "score", args=NodeResourcesBalancedAllocationArgs
    ),
    "ImageLocality": _info("score"),
    "DefaultBinder": _info("bind"),
}
"""The plugins of this package, in the order of Kubernetes' default set."""

DEFAULT_MULTI_POINT: tuple[PluginUse, ...] = tuple(
    PluginUse(
        name,
        {
            "TaintToleration": 3,
            "NodeAffinity": 2,
            "PodTopologySpread": 2,
            "InterPodAffinity": 2,
        }.get(name, 1),
    )
    for name in BUILT_IN
)
"""Kubernetes' default plugins and weights (default_plugins.go, v1.36), no volumes, no devices."""

WITHOUT_EFFECT = frozenset(
    {
        "VolumeRestrictions",
        "NodeVolumeLimits",
        "VolumeBinding",
        "VolumeZone",
        "DynamicResources",
        "NodeDeclaredFeatures",
        "GangScheduling",
        "DeferredPodScheduling",
    }
)
"""Kubernetes' plugins for things that this service does not have."""

REMOVED = frozenset({"AzureDiskLimits", "CinderLimits", "EBSLimits", "GCEPDLimits"})


# --- load ----------------------------------------------------------------------------------------


def load(
    document: Mapping[str, Any] | str | bytes,
    *,
    extra_plugins: Mapping[str, PluginInfo] | None = None,
) -> KubeSchedulerConfiguration:
    """Return the configuration that ``document`` describes, with all defaults filled in.

    Args:
        document: a mapping, or YAML or JSON text, of kind KubeSchedulerConfiguration (v1,
            v1beta3, v1beta2, v1beta1, v1alpha2, v1alpha1) or Policy (v1).
        extra_plugins: plugins from elsewhere, by name; they may be named in the document.

    Raises:
        Invalid: with every wrong field, in ``errors``.
    """
    errors: Errors = []
    warnings: list[str] = []
    source = parse(document)
    current = legacy.translate(source, errors, warnings)
    known = {**BUILT_IN, **(extra_plugins or {})}
    configuration = _read(current, known, errors, warnings)
    if errors or configuration is None:
        raise Invalid(str(source.get("kind") or KIND), "", errors, GROUP)
    return configuration


def default_configuration() -> KubeSchedulerConfiguration:
    """Return what an empty document means: one profile, ``default-scheduler``."""
    return load({"apiVersion": API_VERSION, "kind": KIND})


def parse(document: Mapping[str, Any] | str | bytes) -> dict[str, Any]:
    """Return a document as an object without nulls.

    Raises:
        Invalid: it is neither YAML nor JSON, or not an object.
    """
    if isinstance(document, bytes):
        document = document.decode(errors="replace")
    if isinstance(document, str):
        # A line "..." stands for "left out" in printed examples (the seeds' v1alpha1 one); to YAML
        # it ends the document, so that the rest would be a second one.
        text = "\n".join(line for line in document.splitlines() if line.strip() != "...")
        try:
            value = read_yaml(text.encode("utf-8", "replace"))
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
    known: Mapping[str, PluginInfo],
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
    if top.items("extenders"):
        errors.append(
            FieldError(
                FORBIDDEN, "extenders", None, "extenders are not supported; write a plugin instead"
            )
        )
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
            known=known,
            warnings=warnings,
        )
        for field in fields
    ]
    _check_profiles(profiles, errors)
    if errors:
        return None
    _advise([p for p, _ in profiles], percentage, warnings)
    return KubeSchedulerConfiguration(
        profiles=tuple(profile for profile, _ in profiles),
        parallelism=parallelism,
        percentage_of_nodes_to_score=percentage,
        min_feasible_nodes_to_find=floor,
        pod_initial_backoff_seconds=initial,
        pod_max_backoff_seconds=longest,
        pod_max_in_unschedulable_pods_seconds=flush,
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
            f"{path}: {value} leaves most nodes unexamined; below 10 placements get worse"
        )
    return value


def _check_profiles(profiles: Sequence[tuple[Profile, Field]], errors: Errors) -> None:
    """Names differ; all profiles sort the queue by the same plugin with the same arguments."""
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


# --- profiles ------------------------------------------------------------------------------------


class _Set(msgspec.Struct):
    """A plugin set as given: enabled with weights (0: not given) and paths, disabled names."""

    enabled: list[tuple[PluginUse, str]] = []
    disabled: set[str] = set()


def _profile(
    field: Field,
    *,
    default_name: bool,
    percentage: int,
    floor: int,
    known: Mapping[str, PluginInfo],
    warnings: list[str],
) -> tuple[Profile, Field]:
    name = field.text("schedulerName", DEFAULT_SCHEDULER if default_name else "")
    if not name:
        field.errors.append(FieldError(REQUIRED, field.child("schedulerName")))
    own = _percentage(field, None, warnings)
    sets = _plugin_sets(field, known, warnings)
    points = _expand(sets, known, field)
    given = _plugin_config(field, known, warnings)
    field.finish()
    used = {use.name for uses in points.values() for use in uses}
    args: dict[str, Args] = {}
    for plugin in sorted(used | set(given)):
        info = known.get(plugin)
        if plugin in given:
            args[plugin] = given[plugin]
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
    )
    return profile, field


def _plugin_sets(
    field: Field, known: Mapping[str, PluginInfo], warnings: list[str]
) -> dict[str, _Set]:
    sets = {point: _Set(enabled=[], disabled=set()) for point in ("multiPoint", *EXTENSION_POINTS)}
    plugins = field.object("plugins")
    if plugins is None:
        return sets
    for point, target in sets.items():
        given = plugins.object(point)
        if given is None:
            continue
        for entry in given.objects("enabled"):
            name = entry.text("name")
            weight = entry.integer("weight", 0)
            entry.finish()
            path = entry.path
            if not _check_plugin_name(name, entry, known, warnings):
                continue
            if weight < 0:
                entry.error("weight", weight, "must not be negative")
            if point not in ("multiPoint", *known[name].points):
                detail = f'plugin "{name}" does not extend {point}'
                field.errors.append(FieldError(INVALID, f"{path}.name", name, detail))
                continue
            if any(use.name == name for use, _ in target.enabled):
                field.errors.append(FieldError(DUPLICATE, f"{path}.name", name))
                continue
            target.enabled.append((PluginUse(name, weight), path))
        for entry in given.objects("disabled"):
            name = entry.text("name")
            entry.integer("weight", 0)
            entry.finish()
            if name == "*" or _check_plugin_name(name, entry, known, None):
                target.disabled.add(name)
        given.finish()
    plugins.finish()
    return sets


def _check_plugin_name(
    name: str, entry: Field, known: Mapping[str, PluginInfo], warnings: list[str] | None
) -> bool:
    """Tell whether the plugin exists here; note an error, or a warning for one without effect."""
    path = entry.child("name")
    if not name:
        entry.errors.append(FieldError(REQUIRED, path))
    elif name in known and known[name].problem:
        entry.errors.append(FieldError(INVALID, path, name, known[name].problem))
    elif name in known:
        return True
    elif name in WITHOUT_EFFECT:
        if warnings is not None:
            warnings.append(f"{path}: {name} has no effect in this service")
    elif name in REMOVED:
        detail = f'was invalid in version "{API_VERSION}"'
        entry.errors.append(FieldError(INVALID, path, name, detail))
    else:
        entry.errors.append(FieldError(NOT_SUPPORTED, path, name, "no plugin of that name"))
    return False


def _expand(
    sets: Mapping[str, _Set], known: Mapping[str, PluginInfo], field: Field
) -> dict[str, tuple[PluginUse, ...]]:
    """Return the effective plugins by extension point.

    The custom multiPoint set is merged over the default one in place (mergePluginSet); at a point,
    plugins named there come first if multiPoint names them too, then those of multiPoint alone,
    then the rest of the point's own (expandMultiPointPlugins). A weight of 0 is 1.
    """
    custom = sets["multiPoint"]
    own = {use.name: use for use, _ in custom.enabled}
    multi: list[PluginUse] = []
    if "*" not in custom.disabled:
        multi = [
            own.get(use.name, use) for use in DEFAULT_MULTI_POINT if use.name not in custom.disabled
        ]
    present = {use.name for use in multi}
    multi += [use for use, _ in custom.enabled if use.name not in present]

    points: dict[str, tuple[PluginUse, ...]] = {}
    for point in EXTENSION_POINTS:
        given = sets[point]
        at_point = [use for use, _ in given.enabled]
        names = {use.name for use in at_point}
        implied: list[PluginUse] = []
        overridden: set[str] = set()
        if "*" not in given.disabled:
            for use in multi:
                if point not in known[use.name].points:
                    continue
                # Disabled and enabled at the same point: it runs, after those of multiPoint.
                if use.name in given.disabled:
                    continue
                if use.name in names:
                    overridden.add(use.name)
                else:
                    implied.append(use)
        ordered = [use for use in at_point if use.name in overridden]
        ordered += implied
        ordered += [use for use in at_point if use.name not in overridden]
        points[point] = tuple(PluginUse(use.name, use.weight or 1) for use in ordered)

    path = field.child("plugins")
    sorts = [use.name for use in points["queueSort"]]
    if len(sorts) > 1:
        detail = "only one queue sort plugin can be enabled"
        field.errors.append(FieldError(INVALID, f"{path}.queueSort.enabled", sorts, detail))
    if not sorts:
        detail = "a queue sort plugin is needed"
        field.errors.append(FieldError(REQUIRED, f"{path}.queueSort", None, detail))
    if not points["bind"]:
        detail = "at least one bind plugin is needed"
        field.errors.append(FieldError(REQUIRED, f"{path}.bind", None, detail))
    total = sum(use.weight for use in points["score"])
    if total * MAX_NODE_SCORE > MAX_TOTAL_SCORE:
        detail = "total score of score plugins could overflow"
        field.errors.append(FieldError(INVALID, f"{path}.score", total, detail))
    return {point: uses for point, uses in points.items() if uses}


# --- arguments -----------------------------------------------------------------------------------


def _plugin_config(
    field: Field, known: Mapping[str, PluginInfo], warnings: list[str]
) -> dict[str, Args]:
    found: dict[str, Args] = {}
    for entry in field.objects("pluginConfig"):
        name = entry.text("name")
        if name in found:
            entry.errors.append(FieldError(DUPLICATE, entry.path, name))
            continue
        if not _check_plugin_name(name, entry, known, warnings):
            continue
        args = entry.object("args") or Field({}, entry.child("args"), entry.errors)
        entry.finish()
        reader = READERS.get(name)
        if reader is not None:
            _check_type_meta(args, name)
            found[name] = reader(args)
            args.finish()
        else:
            found[name] = _foreign_args(args, known[name])
    return found


def _check_type_meta(args: Field, name: str) -> None:
    """``apiVersion`` and ``kind`` may stand in args; the kind must then be the plugin's."""
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


# --- advice --------------------------------------------------------------------------------------


def _advise(profiles: Sequence[Profile], percentage: int, warnings: list[str]) -> None:
    """Warn about what is legal but surprising: hidden affinities (R87), no default scheduler."""
    with_added: list[Profile] = []
    for i, profile in enumerate(profiles):
        args = profile.args.get("NodeAffinity")
        if not isinstance(args, NodeAffinityArgs) or args.added_affinity is None:
            continue
        with_added.append(profile)
        path = f"profiles[{i}].pluginConfig: addedAffinity"
        if profile.scheduler_name == DEFAULT_SCHEDULER:
            warnings.append(
                f"{path} on {DEFAULT_SCHEDULER}: users cannot see it, and pods of DaemonSets, which"
                " know no profiles, may stay unschedulable"
            )
        elif not _names_the_profile(args.added_affinity, profile.scheduler_name):
            warnings.append(
                f"{path} is invisible to users: choose a node label whose key or value names the"
                f" profile {profile.scheduler_name}"
            )
    names = [profile.scheduler_name for profile in profiles]
    if DEFAULT_SCHEDULER not in names:
        warnings.append(
            f"profiles: none is named {DEFAULT_SCHEDULER}; pods that name no scheduler stay pending"
        )
    elif with_added and len(with_added) == len(profiles):
        warnings.append(
            "profiles: every profile has an addedAffinity; keep one without it for DaemonSets"
        )


def _names_the_profile(affinity: NodeAffinity, scheduler_name: str) -> bool:
    """Tell whether a label key or value shares a word with the scheduler's name."""
    words = {w for w in _words(scheduler_name) if w not in ("scheduler", "default", "profile")}
    terms: list[NodeSelectorTerm] = []
    selectors: tuple[NodeSelector | None, ...] = (
        affinity.required_during_scheduling_ignored_during_execution,
        affinity.required_during_scheduling_required_during_execution,
    )
    for selector in selectors:
        if selector is not None:
            terms += selector.node_selector_terms
    terms += [t.preference for t in affinity.preferred_during_scheduling_ignored_during_execution]
    found: set[str] = set()
    for term in terms:
        for requirement in (*term.match_expressions, *term.match_fields):
            found.update(_words(requirement.key))
            for value in requirement.values:
                found.update(_words(value))
    return bool(words & found)


def _words(text: str) -> list[str]:
    return "".join(c.lower() if c.isalnum() else " " for c in text).split()
