"""The effective configuration: each profile's plugins by extension point, and their sources.

A configuration document names few plugins: reading it joins the default ones, those at
``multiPoint`` and those at single points (``framework.configuration.plugin_sets``). This module
lists, for each plugin, its extension points, its weight, the source of both, and where it is
disabled.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, Final

import msgspec

from clusterstate.objects.values.meta import Manifest
from scheduling.framework.configuration import (
    BUILT_IN,
    DEFAULT_MULTI_POINT,
    EXTENSION_POINTS,
    KubeSchedulerConfiguration,
    Profile,
)
from scheduling.plugins.catalogue import load_configuration

DEFAULT: Final = "default"
_MULTI: Final = "multiPoint"


class Use(msgspec.Struct, frozen=True):
    """A plugin at an extension point.

    ``order``: its place there, from 1; 0 if it is disabled there. ``origin``: ``default``, or the
    plugin set of the profile that names it. ``weight``: 0 except at the point ``score``.
    """

    point: str
    order: int
    weight: int
    origin: str


class PluginRow(msgspec.Struct, frozen=True):
    """A plugin of a profile: its uses in the order of ``POINTS``, and its arguments."""

    plugin: str
    origin: str
    uses: tuple[Use | None, ...]
    args: Manifest

    @property
    def arguments(self) -> list[str]:
        """Return the arguments as texts ``name: JSON``."""
        return [f"{name}: {msgspec.json.encode(one).decode()}" for name, one in self.args.items()]


class EffectiveProfile(msgspec.Struct, frozen=True):
    """A profile with its plugins; ``disabled``: default plugins without any extension point."""

    name: str
    rows: tuple[PluginRow, ...]
    disabled: tuple[str, ...]
    percentage: int


POINTS: Final = EXTENSION_POINTS


def effective(document: Manifest) -> list[EffectiveProfile]:
    """Return the profiles of a stored document, in its order. Never queries.

    Raises:
        Invalid: the document cannot be used, for example because a plugin is no longer installed.
    """
    document = {key: value for key, value in document.items() if key != "metadata"}
    configuration = load_configuration(document)
    return [_profile(one, _own(configuration, one)) for one in configuration.profiles]


def _own(configuration: KubeSchedulerConfiguration, profile: Profile) -> Manifest:
    """Return the document's entry for a profile, ``{}`` without one."""
    for one in configuration.document.get("profiles") or ():
        if one.get("schedulerName", profile.scheduler_name) == profile.scheduler_name:
            found: Manifest = one
            return found
    return {}


def _profile(profile: Profile, config: Manifest) -> EffectiveProfile:
    sets: Mapping[str, Any] = config.get("plugins") or {}
    enabled = {point: _names(sets, point, "enabled") for point in (_MULTI, *POINTS)}
    disabled = {point: _names(sets, point, "disabled") for point in (_MULTI, *POINTS)}
    defaults = [use.name for use in DEFAULT_MULTI_POINT]
    acting = profile.all_plugins()
    args = {str(one.get("name")): one.get("args") or {} for one in config.get("pluginConfig") or ()}
    rows = []
    for name in acting:
        uses = tuple(_use(profile, point, name, enabled, disabled) for point in POINTS)
        origin = _MULTI if name in enabled[_MULTI] else DEFAULT if name in defaults else "points"
        rows.append(PluginRow(name, origin, uses, args.get(name, {})))
    gone = tuple(name for name in defaults if name not in acting)
    return EffectiveProfile(
        profile.scheduler_name, tuple(rows), gone, profile.percentage_of_nodes_to_score
    )


def _names(sets: Mapping[str, Any], point: str, which: str) -> set[str]:
    return {str(one.get("name")) for one in (sets.get(point) or {}).get(which) or ()}


def _use(
    profile: Profile,
    point: str,
    name: str,
    enabled: Mapping[str, set[str]],
    disabled: Mapping[str, set[str]],
) -> Use | None:
    for place, use in enumerate(profile.plugins(point), 1):
        if use.name == name:
            origin = point if name in enabled[point] else DEFAULT
            if origin == DEFAULT and name in enabled[_MULTI]:
                origin = _MULTI
            return Use(point, place, use.weight if point == "score" else 0, origin)
    if name in disabled[point] or ("*" in disabled[point] and _could(name, point)):
        return Use(point, 0, 0, point)
    return None


def _could(name: str, point: str) -> bool:
    """Return whether a built-in plugin implements an extension point."""
    return name in BUILT_IN and point in BUILT_IN[name].points


def differences(
    old: Sequence[EffectiveProfile], new: Sequence[EffectiveProfile]
) -> list[tuple[str, str, str, str, str]]:
    """Return the differences as (profile, plugin, extension point, before, after)."""
    before, after = _acting(old), _acting(new)
    return [
        (*key, before.get(key, "-"), after.get(key, "-"))
        for key in dict.fromkeys([*after, *before])
        if before.get(key) != after.get(key)
    ]


def _acting(profiles: Iterable[EffectiveProfile]) -> dict[tuple[str, str, str], str]:
    found = {}
    for profile in profiles:
        for row in profile.rows:
            for use in row.uses:
                if use is not None and use.order:
                    text = f"weight {use.weight}" if use.weight else "acts"
                    found[profile.name, row.plugin, use.point] = text
            if row.args:
                text = msgspec.json.encode(row.args, order="sorted").decode()
                found[profile.name, row.plugin, "arguments"] = text
    return found
