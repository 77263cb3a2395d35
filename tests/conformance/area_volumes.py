"""Area volumes: VolumeBinding, VolumeZone, VolumeRestrictions and NodeVolumeLimits, one by one."""

from typing import Any

import numpy as np

from scheduling.engine.snapshot.requirements import from_pod
from scheduling.framework.interface import CycleState
from tests import harness
from tests.conformance.cluster_cases import Case, differences, read_pod, status

UNREAD = {"kind"}
"""All are cases of filters."""


def check(case: Case) -> str | None:
    """Return what differs, None if nothing does."""
    plugin: Any = harness.make_plugin(case)
    snapshot = harness.build_snapshot(case)
    info = snapshot.intern(from_pod(read_pod(case)))
    state, expect = CycleState(), case["expect"]
    result, first = plugin.pre_filter(state, info, snapshot)
    names = None if result is None or result.node_names is None else sorted(result.node_names)
    begun = status(first.code.wire, first.reasons, nodeNames=names)
    texts = differences(expect["preFilter"], begun, "preFilter")
    rows = snapshot.rows()
    if first.ok:
        found = harness.filter_statuses(plugin, state, info, snapshot, rows)
        texts += differences(expect.get("nodes") or {}, found, "nodes")
    passing = harness.rows_of(
        snapshot, [n for n, s in (expect.get("nodes") or {}).items() if s["code"] == "Success"]
    )
    if "preScore" in expect:
        before = plugin.pre_score(state, info, snapshot, passing, np.ones(len(passing), np.int64))
        texts += differences(
            expect["preScore"], status(before.code.wire, before.reasons), "preScore"
        )
    if "scores" in expect:
        # Kubernetes asks for scores of nodes that Filter rejected, too; they have none.
        scored = harness.rows_of(snapshot, expect["scores"])
        scores = harness.by_name(snapshot, scored, plugin.score(state, info, snapshot, scored))
        texts += differences(expect["scores"], scores, "scores")
    return "; ".join(texts) or None
