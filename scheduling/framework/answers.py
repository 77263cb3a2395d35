"""Calls a plugin, and checks that its answer has the type that the extension point requires.

Anything wrong becomes ``PluginFailed``, which names the plugin and the point.
"""

from collections.abc import Callable, Iterable
from typing import TypeVar

import numpy as np

from scheduling.framework.interface import FilterResult, Plugin
from scheduling.framework.outcomes import PluginFailed, PreFiltered
from scheduling.framework.status import Code, Status

R = TypeVar("R")


def rejected(plugin: Plugin, point: str, status: Status) -> Status:
    """Return a rejecting status with the plugin's name.

    Raises:
        PluginFailed: the status is an error, or a code that this extension point does not allow.
    """
    if status.code.rejects:
        return status.by(plugin.name)
    raise wrong(plugin, point, status.message or f"answered {status.code.wire}")


def failed(plugin: Plugin, text: str) -> PluginFailed:
    """Return the failure of a plugin, with a message."""
    return PluginFailed(Status(Code.ERROR, (text,), plugin.name))


def call(plugin: Plugin, point: str, function: Callable[..., R], *arguments: object) -> R:
    """Call a method of a plugin; turn its exceptions into PluginFailed, which names ``point``.

    Raises:
        PluginFailed: the plugin raised.
    """
    try:
        return function(*arguments)
    except PluginFailed:
        raise
    except Exception as cause:
        text = f'running {point} plugin "{plugin.name}": {type(cause).__name__}: {cause}'
        raise failed(plugin, text) from cause


def wrong(plugin: Plugin, point: str, text: str) -> PluginFailed:
    """Return the failure of a plugin at an extension point."""
    return failed(plugin, f'running {point} plugin "{plugin.name}": {text}')


def code_of(answer: object) -> Code:
    """Return the status code of a plugin result, for metrics.

    The code of a Status, or of the first Status in a tuple; Success otherwise.
    """
    if isinstance(answer, tuple):
        answer = next((one for one in answer if isinstance(one, Status)), None)
    if isinstance(answer, PreFiltered):
        answer = answer.status
    return answer.code if isinstance(answer, Status) else Code.SUCCESS


def status_of(plugin: Plugin, point: str, answer: object) -> Status:
    """Return an answer if it is a Status.

    Raises:
        PluginFailed: it is not a Status.
    """
    if not isinstance(answer, Status):
        raise wrong(plugin, point, f"returned {type(answer).__name__}, wanted Status")
    return answer


def pair_of(plugin: Plugin, point: str, answer: object) -> tuple[object, object]:
    """Return an answer if it is a tuple of two.

    Raises:
        PluginFailed: it is not a tuple of two.
    """
    if not isinstance(answer, tuple) or len(answer) != 2:
        raise wrong(plugin, point, f"returned {type(answer).__name__}, wanted a pair")
    return answer


def check_filter_result(plugin: Plugin, result: object, count: int) -> None:
    """Check types and shapes of the arrays that Filter returned for ``count`` rows.

    Raises:
        PluginFailed: a type or shape is wrong.
    """
    if not isinstance(result, FilterResult):
        raise wrong(plugin, "Filter", f"returned {type(result).__name__}, wanted FilterResult")
    for name in ("codes", "reason"):
        shape = getattr(getattr(result, name), "shape", None)
        if shape != (count,):
            raise wrong(plugin, "Filter", f"{name} has shape {shape}, wanted {(count,)}")
        kind = getattr(result, name).dtype
        if kind.kind not in "iu":
            raise wrong(plugin, "Filter", f"{name} is {kind}, wanted integers")


def rejection_of(plugin: Plugin, result: FilterResult, code: int, reason: int) -> Status:
    """Return a rejected node's status; ``reason`` is an index into the result's ``reasons``."""
    try:
        reasons = result.reasons[reason]
        status_code = Code(code)
    except (IndexError, ValueError) as cause:
        raise wrong(plugin, "Filter", f"code {code} with reason {reason}: {cause}") from cause
    if not isinstance(reasons, tuple):
        raise wrong(plugin, "Filter", "reasons must be tuples of strings")
    return Status(status_code, reasons, plugin.name)


def check_scores(plugin: Plugin, point: str, scores: object, count: int) -> None:
    """Check type and shape of scores for ``count`` rows.

    Raises:
        PluginFailed: the type or shape is wrong.
    """
    shape = getattr(scores, "shape", None)
    if not isinstance(scores, np.ndarray) or shape != (count,):
        raise wrong(plugin, point, f"scores have shape {shape}, wanted {(count,)}")
    if scores.dtype.kind not in "iu":
        raise wrong(plugin, point, f"scores are {scores.dtype}, wanted int64")


def go_list(names: Iterable[str]) -> str:
    """Return names as Go prints a list."""
    return f"[{' '.join(names)}]"
