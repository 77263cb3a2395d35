"""Plugins of other packages, found by their entry points in the group ``stowage.plugins``.

A package names a class for each plugin; the entry point's name is the plugin's::

    [project.entry-points."stowage.plugins"]
    BlinkingLightScorer = "blinking_lights:BlinkingLightScorer"

The class needs no base class. Its methods determine its extension points (``METHODS``). ``Args``, a
msgspec Struct, states the types of its arguments; without it the plugin takes none. If a plugin
cannot be loaded, the error is kept, and a configuration that names the plugin is refused with that
reason. Packages are looked for once per process, and again when a configuration names an unknown
plugin (``look_again``). An upgraded package needs new processes, because loaded code stays as it is
(``manage.py reload``). ``docs/plugins.md`` is the guide for authors (R149, R168, R169).
"""

import importlib
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from importlib.metadata import EntryPoint, entry_points
from typing import Any, Final

import msgspec

from scheduling.framework.configuration import BUILT_IN, PluginInfo
from scheduling.framework.interface import Plugin
from scheduling.framework.runtime import ConfigurationError

GROUP: Final = "stowage.plugins"

SHIPPED: Final = (
    EntryPoint(
        "GPUFragmentation", "scheduling.plugins.shipped.gpu_fragmentation:GPUFragmentation", GROUP
    ),
)
"""Plugins in this package, with entry points; no profile uses them by default."""

METHODS: Final[Mapping[str, tuple[tuple[str, ...], ...]]] = {
    "preEnqueue": (("pre_enqueue",),),
    "queueSort": (("sort_key",),),
    "preFilter": (("pre_filter",),),
    "filter": (("filter",), ("filter_node",)),
    "postFilter": (("post_filter",),),
    "preScore": (("pre_score",),),
    "score": (("score",), ("score_node",)),
    "reserve": (("reserve", "unreserve"),),
    "permit": (("permit",),),
    "preBind": (("pre_bind",),),
    "bind": (("bind",),),
    "postBind": (("post_bind",),),
    "placementGenerate": (("generate_placements",),),
    "placementFeasible": (("placement_feasible",),),
    "placementScore": (("score_placement",),),
    "podGroupPostFilter": (("pod_group_post_filter",),),
}
"""Extension points, each with alternative sets of methods; a plugin there needs one of the sets."""


class InstalledPlugin(msgspec.Struct, frozen=True):
    """A plugin of another package: its facts for the configuration, and its class."""

    info: PluginInfo
    make: Callable[[msgspec.Struct], Plugin]
    package: str


@cache
def plugins() -> Mapping[str, InstalledPlugin]:
    """Return the installed plugins by name; imports their packages at the first call."""
    return read([*SHIPPED, *entry_points(group=GROUP)])


def look_again() -> bool:
    """Look for packages that were installed or removed; return whether the plugins changed."""
    before = {name: one.info.problem for name, one in plugins().items()}
    importlib.invalidate_caches()
    plugins.cache_clear()
    return before != {name: one.info.problem for name, one in plugins().items()}


def infos() -> dict[str, PluginInfo]:
    """Return, by name, what ``documents.load`` needs to know of the installed plugins."""
    return {name: plugin.info for name, plugin in plugins().items()}


def read(found: Iterable[EntryPoint]) -> dict[str, InstalledPlugin]:
    """Return the plugins of entry points by name; one that does not load has a problem."""
    result: dict[str, InstalledPlugin] = {}
    for point in sorted(found, key=lambda one: (one.name, _package(one))):
        if point.name in BUILT_IN:
            continue  # a package cannot replace what everybody relies on
        if point.name in result:
            both = f"both {result[point.name].package} and {_package(point)} provide it"
            result[point.name] = _broken(point, both)
            continue
        result[point.name] = _read(point)
    return result


def _read(point: EntryPoint) -> InstalledPlugin:
    try:
        kind = point.load()
    except Exception as cause:  # noqa: BLE001  # importing somebody's package may raise anything
        return _broken(point, f"cannot be loaded: {type(cause).__name__}: {cause}")
    if not isinstance(kind, type):
        return _broken(point, f"{point.value} is not a class")
    name = getattr(kind, "name", None)
    if name != point.name:
        return _broken(point, f"the class {kind.__qualname__} names itself {name!r}")
    args_type = getattr(kind, "Args", None)
    if args_type is not None and not (
        isinstance(args_type, type) and issubclass(args_type, msgspec.Struct)
    ):
        return _broken(point, "Args is not a msgspec Struct")
    points = frozenset(
        extension
        for extension, choices in METHODS.items()
        if any(all(callable(getattr(kind, method, None)) for method in one) for one in choices)
    )
    if not points:
        return _broken(point, f"the class {kind.__qualname__} has no method of any extension point")

    def make(args: msgspec.Struct) -> Plugin:
        try:
            plugin: Plugin = kind() if args_type is None else kind(args)
        except Exception as cause:
            text = f"plugin {point.name!r} cannot be made: {type(cause).__name__}: {cause}"
            raise ConfigurationError(text) from cause
        return plugin

    info = PluginInfo(points=points, args_type=args_type or NoArgs)
    return InstalledPlugin(info, make, _package(point))


class NoArgs(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Arguments of a plugin that declares none."""


def _broken(point: EntryPoint, problem: str) -> InstalledPlugin:
    package = _package(point)

    def make(_: msgspec.Struct) -> Plugin:
        raise ConfigurationError(f"plugin {point.name!r} of {package} {problem}")

    info = PluginInfo(points=frozenset(METHODS), problem=f"plugin of {package}: {problem}")
    return InstalledPlugin(info, make, package)


def _package(point: EntryPoint) -> str:
    if point in SHIPPED:
        return "stowage"
    distribution: Any = point.dist
    return "an unknown package" if distribution is None else str(distribution.name)
