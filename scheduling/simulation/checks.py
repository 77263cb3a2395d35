"""Checks what a plugin declares about itself; for the tests of packages with plugins.

The fast path caches the answers of a plugin whose locality is NODE (``framework.interface``). If
the plugin reads more than it declares, cached answers are wrong, and nothing would show it.
"""

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt

from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.node import Node
from clusterstate.objects.values.pod import Pod
from scheduling.engine.snapshot import Snapshot
from scheduling.engine.snapshot.requirements import from_pod
from scheduling.framework.interface import CycleState, Locality
from scheduling.framework.node_table import Rows
from scheduling.framework.types import PodInfo
from scheduling.framework.vectors import default_normalize

_Columns = dict[str, npt.NDArray[np.int64]]


class UntruePlugin(AssertionError):
    """A plugin's results contradict its declared locality, keys or scaling."""


def check_plugin(plugin: Any, nodes: Iterable[Manifest], pods: Sequence[Manifest]) -> None:
    """Call a plugin of locality NODE in several ways that must give equal answers.

    Args:
        plugin: has ``filter``, ``score`` or both, over rows.
        nodes: manifests, two of them or more.
        pods: manifests; they are also placed on the nodes, one after the other.

    Raises:
        UntruePlugin: the plugin does not declare the locality NODE, its answers change when
            pods are placed, rows get other answers together than alone, rows with equal keys get
            different answers, or scores declared as scaled are not.
    """
    for name in ("filter_locality", "score_locality"):
        if getattr(plugin, name, None) is not Locality.NODE:
            raise UntruePlugin(f"{plugin.name}: {name} is not Locality.NODE")
    snapshot = Snapshot()
    for node in nodes:
        snapshot.set_node(msgspec.convert(node, Node))
    infos = [snapshot.intern(from_pod(msgspec.convert(pod, Pod))) for pod in pods]
    rows = snapshot.rows()
    before = [_ask(plugin, info, snapshot, rows) for info in infos]
    for info, answers in zip(infos, before, strict=True):
        alone = [_ask(plugin, info, snapshot, rows[at : at + 1]) for at in range(len(rows))]
        for what, column in answers.items():
            each = [one[what].tolist()[0] for one in alone]
            _compare(plugin, what, "asked row by row", column.tolist(), each)
        _check_scores(plugin, info, snapshot, rows)
    for number, info in enumerate(infos):
        snapshot.assume(("pod", number), info, int(rows[number % len(rows)]))
    for info, answers in zip(infos, before, strict=True):
        for what, column in _ask(plugin, info, snapshot, rows).items():
            _compare(plugin, what, "after pods came", answers[what].tolist(), column.tolist())


def _ask(plugin: Any, info: PodInfo, snapshot: Snapshot, rows: Rows) -> _Columns:
    """Return a plugin's answers about rows: codes of Filter, and scores before NormalizeScore."""
    state = CycleState()
    found: _Columns = {}
    if hasattr(plugin, "pre_filter"):
        plugin.pre_filter(state, info, snapshot)
    if hasattr(plugin, "filter"):
        result = plugin.filter(state, info, snapshot, rows)
        codes = np.zeros(len(rows)) if result is None else result.codes
        found["Filter"] = np.asarray(codes, np.int64)
    if hasattr(plugin, "pre_score"):
        plugin.pre_score(state, info, snapshot, rows, np.ones(len(rows), np.int64))
    if hasattr(plugin, "score"):
        found["Score"] = np.asarray(plugin.score(state, info, snapshot, rows), np.int64)
    return found


def _check_scores(plugin: Any, info: PodInfo, snapshot: Snapshot, rows: Rows) -> None:
    """Check that rows with equal keys get equal normalised scores, and check the scaling."""
    if not hasattr(plugin, "normalize"):
        return
    raw = _ask(plugin, info, snapshot, rows)["Score"]
    scores = plugin.normalize(CycleState(), info, snapshot, rows, raw.copy())
    keys = [column.tolist() for column in plugin.group_keys(info, snapshot, rows)]
    first: dict[tuple[int, ...], int] = {}
    for at, score in enumerate(scores.tolist()):
        key = tuple([column[at] for column in keys])
        first_score = first.setdefault(key, score)
        _compare(plugin, "NormalizeScore", f"of rows with the equal keys {key}", first_score, score)
    in_reverse = getattr(plugin, "scaled_in_reverse", None)
    if in_reverse is not None:
        scaled = default_normalize(raw.copy(), reverse=in_reverse)
        _compare(plugin, "NormalizeScore", "said to be scaled", scaled.tolist(), scores.tolist())


def _compare(plugin: Any, what: str, when: str, expected: object, found: object) -> None:
    if expected != found:
        raise UntruePlugin(f"{plugin.name}: {what} {when}: {found}, not {expected}")
