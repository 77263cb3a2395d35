"""What authors of plugins may import: the names are pinned, and the guide uses no others."""

import re
from pathlib import Path

from scheduling.framework import v1

ROOT = Path(__file__).resolve().parents[2]
PROMISED = {
    "SUCCESS", "VERSION", "Action", "ClusterEvent", "Code", "CycleState", "Diagnosis",
    "FilterResult", "Handle", "Int64", "LabelColumn", "Locality", "Mask", "NodeTable", "Nomination",
    "Placement", "PodGroup", "PodInfo", "PodRecord", "PreFilterResult", "Registration", "Resource",
    "Rows", "Status", "StoredPods", "WaitingPod", "WaitingPods", "default_normalize",
    "milli_amount", "unresolvable",
    "unschedulable", "whole_amount",
}  # fmt: skip
CODES = {
    "SUCCESS": 0, "ERROR": 1, "UNSCHEDULABLE": 2, "UNSCHEDULABLE_AND_UNRESOLVABLE": 3, "WAIT": 4,
    "SKIP": 5, "PENDING": 6,
}  # fmt: skip


def test_no_promised_name_is_taken_back() -> None:
    """A name may be added; one that is missing here breaks the packages of others."""
    assert set(v1.__all__) == PROMISED
    assert all(hasattr(v1, name) for name in PROMISED)
    assert {code.name: int(code) for code in v1.Code} == CODES


def test_what_is_promised_of_a_cycles_state_and_of_the_table_is_there() -> None:
    state = v1.CycleState()
    for name in ("write", "read", "get", "delete", "pod_key", "pod_name", "pod_uid", "draw_below",
                 "pods_to_activate"):  # fmt: skip
        assert hasattr(state, name)
    for name in ("allow", "reject", "preempt", "pending_plugins"):
        assert hasattr(v1.WaitingPod, name)
    for name in ("rows", "row_of", "node", "node_name", "resource", "label_column", "counter"):
        assert hasattr(v1.NodeTable, name)


def test_the_guide_imports_nothing_else() -> None:
    text = (ROOT / "docs" / "plugins.md").read_text()
    imported = set(re.findall(r"^(?:from|import) (scheduling[\w.]*)", text, re.MULTILINE))
    assert imported == {"scheduling.framework.v1", "scheduling.simulation.checks"}
