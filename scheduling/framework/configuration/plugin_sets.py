"""The plugin sets of a profile: read, merged over the defaults, expanded to extension points.

A document names plugins at ``multiPoint`` and at single extension points, enabled or disabled.
Rules: apis/config/v1/default_plugins.go and framework/runtime/framework.go, v1.36.
"""

from collections.abc import Mapping

import msgspec

from clusterstate.objects.values.errors import (
    DUPLICATE,
    INVALID,
    NOT_SUPPORTED,
    REQUIRED,
    FieldError,
)
from scheduling.framework.configuration import (
    API_VERSION,
    DEFAULT_MULTI_POINT,
    EXTENSION_POINTS,
    REMOVED,
    WITHOUT_EFFECT,
    PluginInfo,
    PluginUse,
)
from scheduling.framework.configuration.reading import Field
from scheduling.framework.interface import MAX_NODE_SCORE, MAX_TOTAL_SCORE


class PluginSet(msgspec.Struct):
    """A plugin set as given: enabled with weights (0: not given) and paths, disabled names."""

    enabled: list[tuple[PluginUse, str]] = []
    disabled: set[str] = set()


def read_plugin_sets(
    field: Field, infos: Mapping[str, PluginInfo], warnings: list[str]
) -> dict[str, PluginSet]:
    """Return a profile's own sets by extension point, and by ``multiPoint``; collects errors."""
    sets = {
        point: PluginSet(enabled=[], disabled=set()) for point in ("multiPoint", *EXTENSION_POINTS)
    }
    plugins = field.object("plugins")
    if plugins is None:
        return sets
    for point, target in sets.items():
        plugin_set = plugins.object(point)
        if plugin_set is None:
            continue
        for entry in plugin_set.objects("enabled"):
            name = entry.text("name")
            weight = entry.integer("weight", 0)
            entry.finish()
            path = entry.path
            if not check_plugin_name(name, entry, infos, warnings):
                continue
            if weight < 0:
                entry.error("weight", weight, "must not be negative")
            if point not in ("multiPoint", *infos[name].points):
                detail = f'plugin "{name}" does not extend {point}'
                field.errors.append(FieldError(INVALID, f"{path}.name", name, detail))
                continue
            if any(use.name == name for use, _ in target.enabled):
                field.errors.append(FieldError(DUPLICATE, f"{path}.name", name))
                continue
            target.enabled.append((PluginUse(name, weight), path))
        for entry in plugin_set.objects("disabled"):
            name = entry.text("name")
            entry.integer("weight", 0)
            entry.finish()
            if name == "*" or check_plugin_name(name, entry, infos, None):
                target.disabled.add(name)
        plugin_set.finish()
    plugins.finish()
    return sets


def check_plugin_name(
    name: str, entry: Field, infos: Mapping[str, PluginInfo], warnings: list[str] | None
) -> bool:
    """Return whether the plugin exists here; adds an error, or a warning if it has no effect."""
    path = entry.child("name")
    if not name:
        entry.errors.append(FieldError(REQUIRED, path))
    elif name in infos and infos[name].problem:
        entry.errors.append(FieldError(INVALID, path, name, infos[name].problem))
    elif name in infos:
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


def expand(
    sets: Mapping[str, PluginSet], infos: Mapping[str, PluginInfo], field: Field
) -> dict[str, tuple[PluginUse, ...]]:
    """Return the effective plugins by extension point.

    The custom multiPoint set is merged over the default one in place (mergePluginSet). At a point,
    its own plugins come first if multiPoint has them too, then those of multiPoint alone, then the
    rest of its own (expandMultiPointPlugins). A weight of 0 means 1.
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
        plugin_set = sets[point]
        at_point = [use for use, _ in plugin_set.enabled]
        names = {use.name for use in at_point}
        implied: list[PluginUse] = []
        overridden: set[str] = set()
        if "*" not in plugin_set.disabled:
            for use in multi:
                if point not in infos[use.name].points:
                    continue
                # Disabled and enabled at the same point: it runs, after those of multiPoint.
                if use.name in plugin_set.disabled:
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
