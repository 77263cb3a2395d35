"""Area schedule: one pod through the default profile, all nodes evaluated."""

from tests import harness
from tests.conformance.cluster_cases import (
    Case,
    Outcome,
    differences,
    read_cluster,
    read_pod,
    status,
)
from tests.conformance.implementations import check_all


def run_reference(case: Case) -> Outcome:
    """Return what the plain scheduler decides."""
    from tests.reference.scheduler import default_rules, schedule

    decision = schedule(read_pod(case), read_cluster(case), default_rules(empty_term="none"))
    return {
        "feasible": sorted(decision.feasible),
        "rejected": {
            name: status(v.code, v.reasons, plugin=v.plugin)
            for name, v in decision.rejected.items()
        },
        "preFilterMsg": decision.pre_filter_message,
        "fitError": decision.message,
        "scores": {
            name: {"weighted": weighted, "total": decision.totals[name]}
            for name, weighted in decision.weighted.items()
        },
        "best": sorted(decision.best),
    }


def compare(case: Case, found: Outcome) -> list[str]:
    """Say what differs; a plugin that skipped may be missing or 0."""
    expect = {**case["expect"]}
    for scores in (expect.get("scores"), found["scores"]):
        for entry in (scores or {}).values():
            entry["weighted"] = {name: n for name, n in entry["weighted"].items() if n}
    for key in ("feasible", "best"):
        if key in expect:
            expect[key] = sorted(expect[key])
    return [
        text for key, wanted in expect.items() for text in differences(wanted, found.get(key), key)
    ]


UNREAD = {"kind"}
"""How many nodes are feasible."""


def check(case: Case) -> str | None:
    """Return what differs, None if nothing does."""
    return check_all(case, compare, reference=run_reference, engine=harness.run_schedule_case)
