"""Older configuration documents, rewritten as ``kubescheduler.config.k8s.io/v1`` documents.

``translate`` is a function from mapping to mapping. What it cannot express becomes an error with
the field of the *old* document, what it drops a warning. The default plugins and weights of a
translated document are today's, not those of its time; a warning says so.

* v1beta3, v1beta2, v1beta1, v1alpha2: the same shape; plugins that were merged into others since
  (NodeResourcesLeastAllocated, NodeResourcesMostAllocated, RequestedToCapacityRatio,
  SelectorSpread) become today's plugin with arguments.
* v1alpha1: one profile at top level, ``algorithmSource`` (R174).
* Policy: predicates and priorities by name (R71, R104, R111). Rules: the last version that had it,
  pkg/scheduler/framework/plugins/legacy_registry.go, v1.22.
"""

from collections.abc import Iterable
from typing import Any

from clusterstate.objects.values.errors import (
    FORBIDDEN,
    INVALID,
    NOT_SUPPORTED,
    REQUIRED,
    FieldError,
)
from scheduling.framework.configuration.reading import Errors, Field

Document = dict[str, Any]

_GROUP = "kubescheduler.config.k8s.io"
_CURRENT = f"{_GROUP}/v1"
_OLD_VERSIONS = tuple(
    f"{_GROUP}/{version}" for version in ("v1beta3", "v1beta2", "v1beta1", "v1alpha2")
)
_OLDEST_VERSION = f"{_GROUP}/v1alpha1"

_STRATEGIES = {
    "NodeResourcesLeastAllocated": "LeastAllocated",
    "NodeResourcesMostAllocated": "MostAllocated",
    "RequestedToCapacityRatio": "RequestedToCapacityRatio",
}
"""Former score plugins that are now scoring strategies of NodeResourcesFit."""

_GONE = frozenset({"NodePreferAvoidPods", "NodeLabel", "ServiceAffinity"})


def translate(document: Document, errors: Errors, warnings: list[str]) -> Document:
    """Return ``document`` as a v1 KubeSchedulerConfiguration; a v1 document unchanged."""
    kind = document.get("kind", "KubeSchedulerConfiguration")
    version = document.get("apiVersion", "")
    if kind == "Policy":
        return _from_policy(Field(document, "", errors), warnings)
    if kind != "KubeSchedulerConfiguration":
        detail = 'supported values: "KubeSchedulerConfiguration", "Policy"'
        errors.append(FieldError(NOT_SUPPORTED, "kind", kind, detail))
        return document
    if version == _CURRENT:
        return document
    if not version:
        errors.append(FieldError(REQUIRED, "apiVersion", None, f"such as {_CURRENT}"))
        return document
    if version in _OLD_VERSIONS:
        result = dict(document)
    elif version == _OLDEST_VERSION:
        result = _from_v1alpha1(Field(document, "", errors))
    else:
        names = (_CURRENT, *_OLD_VERSIONS, _OLDEST_VERSION)
        detail = "supported values: " + ", ".join(f'"{name}"' for name in names)
        errors.append(FieldError(NOT_SUPPORTED, "apiVersion", version, detail))
        return document
    result["apiVersion"] = _CURRENT
    result["kind"] = "KubeSchedulerConfiguration"
    warnings.append(f"apiVersion: {version} was translated to v1; v1's default plugins apply")
    profiles = result.get("profiles")
    if isinstance(profiles, list):
        result["profiles"] = [
            _profile(profile, f"profiles[{i}]", errors, warnings)
            if isinstance(profile, dict)
            else profile
            for i, profile in enumerate(profiles)
        ]
    return result


# --- beta versions -------------------------------------------------------------------------------


def _profile(profile: Document, path: str, errors: Errors, warnings: list[str]) -> Document:
    """Return a profile with former plugins replaced by today's."""
    result = dict(profile)
    strategies: set[str] = set()
    plugins = profile.get("plugins")
    if isinstance(plugins, dict):
        result["plugins"] = {
            point: _plugin_set(plugin_set, f"{path}.plugins.{point}", strategies, errors, warnings)
            if isinstance(plugin_set, dict)
            else plugin_set
            for point, plugin_set in plugins.items()
            # unreserve was merged into reserve, which every such plugin implements.
            if point != "unreserve"
        }
    config = profile.get("pluginConfig")
    entries = [e for e in config if isinstance(e, dict)] if isinstance(config, list) else []
    if not entries and not strategies:
        return result
    fit: Document = {}
    plugin_config: list[Document] = []
    for i, entry in enumerate(entries):
        name = _name(entry)
        args = entry.get("args")
        args = dict(args) if isinstance(args, dict) else {}
        for meta in ("apiVersion", "kind"):
            args.pop(meta, None)
        if name in _STRATEGIES:
            # Arguments of a strategy that is not enabled are ignored.
            if name in strategies:
                fit["scoringStrategy"] = _strategy(name, args)
        elif name == "NodeResourcesFit":
            fit = {**args, **fit}
        elif name in _GONE:
            detail = f"{name} was removed; use node affinity"
            errors.append(FieldError(FORBIDDEN, f"{path}.pluginConfig[{i}]", None, detail))
        elif name == "PodTopologySpread":
            if args.get("defaultConstraints") and "defaultingType" not in args:
                args["defaultingType"] = "List"
            plugin_config.append({"name": name, "args": args})
        else:
            plugin_config.append({**entry, "args": args} if "args" in entry else entry)
    for name in strategies:
        fit.setdefault("scoringStrategy", _strategy(name, {}))
    if fit:
        plugin_config.append({"name": "NodeResourcesFit", "args": fit})
    result["pluginConfig"] = plugin_config
    return result


def _name(entry: Any) -> str:
    """Return the name in an entry, empty if it is missing or no text."""
    name = entry.get("name") if isinstance(entry, dict) else None
    return name if isinstance(name, str) else ""


def _strategy(name: str, args: Document) -> Document:
    """Return the scoring strategy of a former plugin with its arguments."""
    strategy: Document = {"type": _STRATEGIES[name]}
    if args.get("resources"):
        strategy["resources"] = args["resources"]
    if name == "RequestedToCapacityRatio":
        strategy["requestedToCapacityRatio"] = {"shape": args.get("shape", [])}
    return strategy


def _plugin_set(
    plugin_set: Document, path: str, strategies: set[str], errors: Errors, warnings: list[str]
) -> Document:
    if not all(isinstance(plugin_set.get(name, []), list) for name in ("enabled", "disabled")):
        # Of another type: the reader of v1 documents reports it.
        return plugin_set
    enabled: list[Any] = []
    for i, entry in enumerate(plugin_set.get("enabled", [])):
        name = _name(entry)
        where = f"{path}.enabled[{i}].name"
        if name in _STRATEGIES:
            if strategies:
                detail = f"NodeResourcesFit has one scoring strategy; {min(strategies)} is given"
                errors.append(FieldError(INVALID, where, name, detail))
                continue
            strategies.add(name)
            enabled.append({**entry, "name": "NodeResourcesFit"})
        elif name == "SelectorSpread":
            warnings.append(f"{where}: SelectorSpread is PodTopologySpread with system defaults")
            enabled.append({**entry, "name": "PodTopologySpread"})
        elif name in _GONE:
            detail = f"{name} was removed; use node affinity"
            errors.append(FieldError(FORBIDDEN, where, None, detail))
        else:
            enabled.append(entry)
    replaced = bool(strategies)
    disabled: list[Any] = []
    for entry in plugin_set.get("disabled", []):
        name = _name(entry)
        if name in _STRATEGIES:
            # LeastAllocated off and another strategy on is a change of strategy, not of plugins.
            if name == "NodeResourcesLeastAllocated" and not replaced:
                disabled.append({"name": "NodeResourcesFit"})
        elif name == "SelectorSpread" or name in _GONE:
            continue
        else:
            disabled.append(entry)
    result: Document = {}
    if enabled:
        result["enabled"] = _once(enabled)
    if disabled:
        result["disabled"] = disabled
    return result


def _once(entries: list[Any]) -> list[Any]:
    """Return the entries without a second PodTopologySpread, which translation may make."""
    seen: set[str] = set()
    found = []
    for entry in entries:
        name = _name(entry)
        if name == "PodTopologySpread" and name in seen:
            continue
        seen.add(name)
        found.append(entry)
    return found


# --- v1alpha1 ------------------------------------------------------------------------------------

_ALPHA_POINTS = {"postFilter": "preScore"}
"""v1alpha1 called PreScore PostFilter (renamed in v1.18)."""


def _from_v1alpha1(old: Field) -> Document:
    """Return a document with one profile at top level as one with a list (R170, R174)."""
    old.take("apiVersion")
    old.take("kind")
    result: Document = {}
    profile: Document = {}
    source = old.object("algorithmSource")
    strategy: Document | None = None
    if source is not None:
        provider = source.text("provider")
        policy = source.object("policy")
        source.finish()
        if policy is not None:
            policy.rest()
            detail = "a policy in another place cannot be read; load the Policy document itself"
            old.errors.append(FieldError(FORBIDDEN, policy.path, None, detail))
        elif provider == "ClusterAutoscalerProvider":
            strategy = {"type": "MostAllocated"}
        elif provider not in ("", "DefaultProvider"):
            detail = 'supported values: "ClusterAutoscalerProvider", "DefaultProvider"'
            old.errors.append(
                FieldError(NOT_SUPPORTED, "algorithmSource.provider", provider, detail)
            )
    if old.has("schedulerName"):
        profile["schedulerName"] = old.text("schedulerName")
    plugins = old.object("plugins")
    if plugins is not None:
        points = plugins.rest()
        profile["plugins"] = {_ALPHA_POINTS.get(name, name): v for name, v in points.items()}
    config = [entry.rest() for entry in old.objects("pluginConfig")]
    if strategy is not None:
        config.append({"name": "NodeResourcesFit", "args": {"scoringStrategy": strategy}})
    if old.has("hardPodAffinitySymmetricWeight"):
        weight = old.integer("hardPodAffinitySymmetricWeight", 1)
        config.append({"name": "InterPodAffinity", "args": {"hardPodAffinityWeight": weight}})
    if (timeout := old.take("bindTimeoutSeconds")) is not None:
        config.append({"name": "VolumeBinding", "args": {"bindTimeoutSeconds": timeout}})
    if config:
        profile["pluginConfig"] = config
    if old.boolean("disablePreemption", default=False):
        points = profile.setdefault("plugins", {})
        points.setdefault("postFilter", {}).setdefault("disabled", []).append({"name": "*"})
    result.update(old.rest())
    result["profiles"] = [profile]
    return result


# --- Policy --------------------------------------------------------------------------------------

_PREDICATES: dict[str, tuple[str, ...]] = {
    "PodFitsHostPorts": ("NodePorts",),
    "PodFitsPorts": ("NodePorts",),
    "PodFitsResources": ("NodeResourcesFit",),
    "HostName": ("NodeName",),
    "MatchNodeSelector": ("NodeAffinity",),
    "GeneralPredicates": ("NodeResourcesFit", "NodeName", "NodePorts", "NodeAffinity"),
    "PodToleratesNodeTaints": ("TaintToleration",),
    "CheckNodeUnschedulable": ("NodeUnschedulable",),
    "MatchInterPodAffinity": ("InterPodAffinity",),
    "EvenPodsSpread": ("PodTopologySpread",),
}
_PREDICATES_WITHOUT_EFFECT = frozenset(
    {
        "NoDiskConflict",
        "NoVolumeZoneConflict",
        "MaxEBSVolumeCount",
        "MaxGCEPDVolumeCount",
        "MaxAzureDiskVolumeCount",
        "MaxCSIVolumeCountPred",
        "MaxCinderVolumeCount",
        "CheckVolumeBinding",
        # Node conditions became taints (R133).
        "CheckNodeCondition",
        "CheckNodeMemoryPressure",
        "CheckNodeDiskPressure",
        "CheckNodePIDPressure",
    }
)
_MANDATORY = ("NodeUnschedulable", "TaintToleration")
_FILTERS = (
    "NodeUnschedulable",
    "NodeName",
    "TaintToleration",
    "NodeAffinity",
    "NodePorts",
    "NodeResourcesFit",
    "PodTopologySpread",
    "InterPodAffinity",
)
"""The order in which predicates ran, whatever the order in the document."""

_PRE_FILTERS = frozenset(
    {"NodeAffinity", "NodePorts", "NodeResourcesFit", "PodTopologySpread", "InterPodAffinity"}
)
_PRE_SCORES = frozenset(
    {
        "TaintToleration",
        "NodeAffinity",
        "NodeResourcesFit",
        "PodTopologySpread",
        "InterPodAffinity",
        "NodeResourcesBalancedAllocation",
    }
)

_PRIORITIES = {
    "LeastRequestedPriority": "NodeResourcesFit",
    "MostRequestedPriority": "NodeResourcesFit",
    "BalancedResourceAllocation": "NodeResourcesBalancedAllocation",
    "SelectorSpreadPriority": "PodTopologySpread",
    "ServiceSpreadingPriority": "PodTopologySpread",
    "EvenPodsSpreadPriority": "PodTopologySpread",
    "InterPodAffinityPriority": "InterPodAffinity",
    "NodeAffinityPriority": "NodeAffinity",
    "TaintTolerationPriority": "TaintToleration",
    "ImageLocalityPriority": "ImageLocality",
}
_PRIORITIES_WITHOUT_EFFECT = frozenset({"NodePreferAvoidPodsPriority", "EqualPriority"})
_MAX_WEIGHT = 2**63 // 1000


class _Scores:
    """Collects score plugins and their arguments while priorities are read, in order."""

    def __init__(self, errors: Errors) -> None:
        self.errors = errors
        self.weights: dict[str, int] = {}
        self.strategy: Document | None = None
        self.preferred: list[Document] = []

    def add(self, plugin: str, weight: int) -> None:
        """Add a plugin; two priorities that became one plugin add their weights."""
        self.weights[plugin] = self.weights.get(plugin, 0) + weight

    def set_strategy(self, strategy: Document, path: str, weight: int) -> None:
        """Set NodeResourcesFit's strategy; a second one cannot be expressed."""
        if self.strategy is not None:
            detail = f"NodeResourcesFit has one scoring strategy; {self.strategy['type']} is given"
            self.errors.append(FieldError(INVALID, path, strategy["type"], detail))
            return
        self.strategy = strategy
        self.add("NodeResourcesFit", weight)


def _from_policy(policy: Field, warnings: list[str]) -> Document:
    """Return a Policy as a configuration with one profile (C16).

    Absent ``predicates`` or ``priorities`` mean the default plugins; a list, even an empty one,
    means these and no others (but the mandatory predicates).
    """
    policy.take("kind")
    version = policy.text("apiVersion", "v1")
    if version not in ("v1", f"{_GROUP}/v1"):
        policy.error("apiVersion", version, "must be v1")
    policy.take("metadata")
    plugins: Document = {}
    required: list[Document] = []
    scores = _Scores(policy.errors)
    if policy.has("predicates"):
        names = _predicates(policy, required, warnings)
        plugins["preFilter"] = _only(name for name in names if name in _PRE_FILTERS)
        plugins["filter"] = _only(names)
    if policy.has("priorities"):
        _priorities(policy, scores, warnings)
        entries = [{"name": name, "weight": weight} for name, weight in scores.weights.items()]
        plugins["preScore"] = _only(name for name in scores.weights if name in _PRE_SCORES)
        plugins["score"] = {"disabled": [{"name": "*"}], "enabled": entries}
    config: list[Document] = []
    if scores.strategy is not None:
        args: Document = {"scoringStrategy": scores.strategy}
        config.append({"name": "NodeResourcesFit", "args": args})
    if policy.has("hardPodAffinitySymmetricWeight"):
        weight = policy.integer("hardPodAffinitySymmetricWeight", 1)
        config.append({"name": "InterPodAffinity", "args": {"hardPodAffinityWeight": weight}})
    added: Document = {}
    if required:
        term = {"matchExpressions": required}
        added["requiredDuringSchedulingIgnoredDuringExecution"] = {"nodeSelectorTerms": [term]}
    if scores.preferred:
        added["preferredDuringSchedulingIgnoredDuringExecution"] = scores.preferred
    if added:
        config.append({"name": "NodeAffinity", "args": {"addedAffinity": added}})
    if policy.take("alwaysCheckAllPredicates"):
        warnings.append(
            "alwaysCheckAllPredicates: has no effect; explanations always show every reason"
        )
    if policy.items("extenders") or policy.items("extenderConfigs"):
        detail = "not translated from a Policy: state extenders in a KubeSchedulerConfiguration"
        policy.errors.append(FieldError(FORBIDDEN, "extenders", None, detail))
    policy.finish()
    profile: Document = {"schedulerName": "default-scheduler"}
    if plugins:
        profile["plugins"] = plugins
    if config:
        profile["pluginConfig"] = config
    warnings.append("kind: Policy was translated to a profile")
    return {
        "apiVersion": _CURRENT,
        "kind": "KubeSchedulerConfiguration",
        "profiles": [profile],
    }


def _only(names: Iterable[str]) -> Document:
    return {"disabled": [{"name": "*"}], "enabled": [{"name": name} for name in names]}


def _predicates(policy: Field, required: list[Document], warnings: list[str]) -> list[str]:
    """Return the filter plugins; adds the labels of ``labelsPresence`` to ``required``."""
    found = set(_MANDATORY)
    for entry in policy.objects("predicates"):
        name = entry.text("name")
        path = entry.child("name")
        argument = entry.object("argument")
        entry.finish()
        if argument is not None and argument.has("labelsPresence"):
            presence = argument.object("labelsPresence")
            if presence is not None:
                is_required = presence.boolean("presence", default=False)
                operator = "Exists" if is_required else "DoesNotExist"
                labels = presence.texts("labels")
                required += [{"key": label, "operator": operator} for label in labels]
                presence.finish()
            argument.finish()
            found.add("NodeAffinity")
        elif argument is not None:
            names = ", ".join(argument.rest()) or "nothing"
            detail = f"supported: labelsPresence; given: {names}"
            entry.errors.append(FieldError(FORBIDDEN, argument.path, None, detail))
        elif name in _PREDICATES:
            found.update(_PREDICATES[name])
        elif name in _PREDICATES_WITHOUT_EFFECT:
            warnings.append(f"{path}: {name} has no effect in this service")
        elif not name:
            entry.errors.append(FieldError(REQUIRED, path))
        else:
            detail = "no predicate of that name"
            entry.errors.append(FieldError(NOT_SUPPORTED, path, name, detail))
    return [name for name in _FILTERS if name in found]


def _priorities(policy: Field, scores: _Scores, warnings: list[str]) -> None:
    for entry in policy.objects("priorities"):
        name = entry.text("name")
        path = entry.child("name")
        weight = entry.integer("weight", 0)
        argument = entry.object("argument")
        entry.finish()
        if not 0 < weight < _MAX_WEIGHT:
            detail = "should have a positive weight applied to it or it has overflown"
            entry.error("weight", weight, detail)
            continue
        if argument is not None:
            _priority_argument(argument, name, weight, scores)
        elif name == "LeastRequestedPriority":
            scores.set_strategy({"type": "LeastAllocated"}, path, weight)
        elif name == "MostRequestedPriority":
            scores.set_strategy({"type": "MostAllocated"}, path, weight)
        elif name in _PRIORITIES:
            scores.add(_PRIORITIES[name], weight)
        elif name in _PRIORITIES_WITHOUT_EFFECT:
            warnings.append(f"{path}: {name} has no effect in this service")
        elif not name:
            entry.errors.append(FieldError(REQUIRED, path))
        elif name == "RequestedToCapacityRatioPriority":
            detail = "requestedToCapacityRatioArguments must be given"
            entry.errors.append(FieldError(REQUIRED, entry.child("argument"), None, detail))
        else:
            detail = "no priority of that name"
            entry.errors.append(FieldError(NOT_SUPPORTED, path, name, detail))


def _priority_argument(argument: Field, name: str, weight: int, scores: _Scores) -> None:
    """Read the argument of a custom priority, which may have any name."""
    ratio = argument.object("requestedToCapacityRatioArguments")
    preference = argument.object("labelPreference")
    if ratio is not None:
        strategy: Document = {"type": "RequestedToCapacityRatio"}
        shape = ratio.items("shape")
        strategy["requestedToCapacityRatio"] = {"shape": shape}
        resources = ratio.items("resources")
        if resources:
            strategy["resources"] = resources
        ratio.finish()
        scores.set_strategy(strategy, ratio.path, weight)
    if preference is not None:
        label = preference.text("label")
        is_required = preference.boolean("presence", default=False)
        preference.finish()
        operator = "Exists" if is_required else "DoesNotExist"
        term = {"matchExpressions": [{"key": label, "operator": operator}]}
        scores.preferred.append({"weight": 100, "preference": term})
        scores.add("NodeAffinity", weight)
    if ratio is None and preference is None:
        names = ", ".join(argument.rest()) or "nothing"
        detail = (
            "supported: requestedToCapacityRatioArguments, labelPreference;"
            f" given for {name or 'a priority'}: {names}"
        )
        argument.errors.append(FieldError(FORBIDDEN, argument.path, None, detail))
    argument.finish()
