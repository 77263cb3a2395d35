"""Runs the plugins of a profile at the extension points from Reserve to PostBind.

``filter_point`` and ``runtime.Framework`` run the points before. Source:
pkg/scheduler/framework/runtime/framework.go, v1.36 (R160-R169).
"""

from collections.abc import Callable
from functools import wraps
from typing import Concatenate, ParamSpec, Protocol, TypeVar

from scheduling.framework.answers import call, code_of, pair_of, rejected, status_of, wrong
from scheduling.framework.interface import (
    Bind,
    CycleState,
    Permit,
    Plugin,
    PostBind,
    PreBind,
    Reserve,
    Selective,
)
from scheduling.framework.outcomes import PluginFailed
from scheduling.framework.status import SUCCESS, Code, Status
from scheduling.framework.types import PodInfo

R = TypeVar("R")
P = ParamSpec("P")

LONGEST_PERMIT_SECONDS = 15 * 60.0
"""A Permit plugin's longer timeout is cut to this (framework.go ``maxTimeout``)."""


class Meter(Protocol):
    """Measures how long plugins take; its owner supplies the clock."""

    def clock(self) -> float:
        """Return monotonic seconds."""
        ...

    def note(self, plugin: str, point: str, code: Code, seconds: float) -> None:
        """Note one call of a plugin and its code; Error if it raised."""
        ...

    def note_point(self, profile: str, point: str, code: Code, seconds: float) -> None:
        """Note the total time of one extension point."""
        ...


F = TypeVar("F", bound="BindingPoints")


def metered(
    point: str,
) -> Callable[[Callable[Concatenate[F, P], R]], Callable[Concatenate[F, P], R]]:
    """Return a decorator for methods that run an extension point: it reports to the meter."""

    def decorated(method: Callable[Concatenate[F, P], R]) -> Callable[Concatenate[F, P], R]:
        @wraps(method)
        def measured(framework: F, /, *arguments: P.args, **named: P.kwargs) -> R:
            meter = framework.meter
            if meter is None:
                return method(framework, *arguments, **named)
            begun, code = meter.clock(), Code.ERROR
            try:
                answer = method(framework, *arguments, **named)
                code = code_of(answer)
                return answer
            finally:
                seconds = meter.clock() - begun
                meter.note_point(framework.scheduler_name, point, code, seconds)

        return measured

    return decorated


class BindingPoints:
    """The extension points after a node is chosen, and how a plugin is called at any point.

    ``meter`` gets the duration of each call; the lists hold the plugins in their order.
    """

    scheduler_name: str
    meter: Meter | None
    reserve_plugins: list[Reserve]
    permit_plugins: list[Permit]
    pre_bind_plugins: list[PreBind]
    bind_plugins: list[Bind]
    post_bind_plugins: list[PostBind]

    def _call(
        self, plugin: Plugin, point: str, function: Callable[..., R], *arguments: object
    ) -> R:
        if self.meter is None:
            return call(plugin, point, function, *arguments)
        begun, code = self.meter.clock(), Code.ERROR
        try:
            answer = call(plugin, point, function, *arguments)
            code = code_of(answer)
            return answer
        finally:
            self.meter.note(plugin.name, point, code, self.meter.clock() - begun)

    def _ask(
        self, plugin: Plugin, point: str, function: Callable[..., object], *arguments: object
    ) -> Status:
        return status_of(plugin, point, self._call(plugin, point, function, *arguments))

    @metered("Reserve")
    def reserve(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Run Reserve; the first failure ends it, and the caller must unreserve (R160).

        Raises:
            PluginFailed: a plugin failed; the caller must unreserve too.
        """
        for plugin in self.reserve_plugins:
            status = self._ask(plugin, "Reserve", plugin.reserve, state, pod, node_name)
            if not status.ok:
                return rejected(plugin, "Reserve", status)
        return SUCCESS

    def unreserve(self, state: CycleState, pod: PodInfo, node_name: str) -> tuple[Status, ...]:
        """Run Unreserve of all Reserve plugins, in reverse order (R161).

        Unreserve may not fail: exceptions are returned as statuses, and the other plugins still
        run.
        """
        failures: list[Status] = []
        for plugin in reversed(self.reserve_plugins):
            try:
                self._call(plugin, "Unreserve", plugin.unreserve, state, pod, node_name)
            except PluginFailed as failure:
                failures.append(failure.status)
        return tuple(failures)

    @metered("Permit")
    def permit(
        self, state: CycleState, pod: PodInfo, node_name: str
    ) -> tuple[Status, dict[str, float]]:
        """Run Permit (R162): Success, a rejection, or Wait with timeouts in seconds by plugin.

        Raises:
            PluginFailed: a plugin failed.
        """
        waits: dict[str, float] = {}
        for plugin in self.permit_plugins:
            answer = self._call(plugin, "Permit", plugin.permit, state, pod, node_name)
            verdict, timeout = pair_of(plugin, "Permit", answer)
            status = status_of(plugin, "Permit", verdict)
            if status.code is Code.WAIT:
                if not isinstance(timeout, int | float) or not 0 <= timeout < float("inf"):
                    raise wrong(plugin, "Permit", "timeout is not a number of seconds")
                waits[plugin.name] = min(float(timeout), LONGEST_PERMIT_SECONDS)
            elif not status.ok:
                return rejected(plugin, "Permit", status), {}
        if waits:
            text = f'one or more plugins asked to wait and no plugin rejected pod "{pod!r}"'
            return Status(Code.WAIT, (text,)), waits
        return SUCCESS, {}

    # --- binding cycle ---------------------------------------------------------------------------

    @metered("PreBind")
    def pre_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Run PreBind; the first plugin that does not succeed ends it (R165).

        A plugin of this package may answer Wait: the caller must run it again later.

        Raises:
            PluginFailed: a plugin failed.
        """
        for plugin in self.pre_bind_plugins:
            status = self._ask(plugin, "PreBind", plugin.pre_bind, state, pod, node_name)
            if status.code is Code.WAIT and isinstance(plugin, Selective):
                return status.by(plugin.name)
            if not status.ok:
                return rejected(plugin, "PreBind", status)
        return SUCCESS

    @metered("Bind")
    def bind(self, state: CycleState, pod: PodInfo, node_name: str) -> Status:
        """Run Bind until a plugin does not decline (R166); Skip if all decline or there is none.

        Raises:
            PluginFailed: a plugin failed.
        """
        status = Status(Code.SKIP)
        for plugin in self.bind_plugins:
            status = self._ask(plugin, "Bind", plugin.bind, state, pod, node_name)
            if status.ok:
                return status.by(plugin.name)
            if status.code is not Code.SKIP:
                return rejected(plugin, "Bind", status)
        return status

    @metered("PostBind")
    def post_bind(self, state: CycleState, pod: PodInfo, node_name: str) -> tuple[Status, ...]:
        """Run PostBind (R167); it is informational, so exceptions are returned as statuses."""
        failures: list[Status] = []
        for plugin in self.post_bind_plugins:
            try:
                self._call(plugin, "PostBind", plugin.post_bind, state, pod, node_name)
            except PluginFailed as failure:
                failures.append(failure.status)
        return tuple(failures)
