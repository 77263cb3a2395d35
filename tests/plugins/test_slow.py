"""A plugin that keeps everybody waiting is named, but not in every line."""

from typing import Any

import pytest
import structlog

from scheduling.framework.configuration import PluginUse, Profile
from scheduling.framework.runtime import Framework
from scheduling.framework.status import SUCCESS
from scheduling.worker.scheduler import SlowPlugins


class Slow:
    """A plugin that takes as long as it is told; the clock is its own."""

    name = "Slow"

    def __init__(self) -> None:
        self.now = 0.0
        self.takes = 0.0

    def pre_enqueue(self, pod: Any) -> Any:
        self.now += self.takes
        return SUCCESS


@pytest.mark.parametrize("takes", [0.5, 1.5])
def test_a_slow_call_is_named_once_a_minute(takes: float) -> None:
    plugin = Slow()
    profile = Profile(points={"preEnqueue": (PluginUse("Slow"),)})
    meter = SlowPlugins(clock=lambda: plugin.now)
    framework = Framework(profile, {"Slow": plugin}, meter=meter)
    plugin.takes = takes
    with structlog.testing.capture_logs() as lines:
        framework.pre_enqueue(None)  # type: ignore[arg-type]
        framework.pre_enqueue(None)  # type: ignore[arg-type]
        plugin.now += 60
        framework.pre_enqueue(None)  # type: ignore[arg-type]
    told = [(line["event"], line["plugin"], line["point"], line["seconds"]) for line in lines]
    assert told == ([("plugin_slow", "Slow", "PreEnqueue", takes)] * 2 if takes > 1 else [])
