"""Area preemption: whom a pod may displace, step by step and as a whole (``ev``)."""

from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

from clusterstate.objects.values.pod import Pod
from tests import harness
from tests.conformance.cluster_cases import (
    Case,
    Outcome,
    differences,
    read,
    read_cluster,
    read_pod,
    status,
    version_of,
)
from tests.conformance.implementations import check_all
from tests.reference import default_preemption as preemption
from tests.reference.cluster import Cluster
from tests.reference.rule import AnyRule, Verdict
from tests.reference.scheduler import (
    Decision,
    FilterRun,
    default_rules,
    find_feasible,
    pre_filter,
)

NOW = datetime(2026, 6, 1, tzinfo=UTC)
"""Stands for the present: later than every start time in the cases."""


def full_name(pod: Pod) -> str:
    return f"{pod.metadata.namespace}/{pod.metadata.name}"


def _victims(victims: preemption.Victims) -> Outcome:
    return {
        "victims": [full_name(pod) for pod in victims.pods],
        "numPDBViolations": victims.violations,
    }


def _statuses(verdicts: dict[str, Verdict]) -> Outcome:
    return {name: status(v.code, v.reasons) for name, v in verdicts.items()}


def _rules(case: Case) -> tuple[AnyRule, ...]:
    rules = default_rules(empty_term="none")
    names = case.get("filterPlugins")
    return rules if names is None else tuple(rule for rule in rules if rule.name in names)


def _begin(case: Case) -> tuple[Pod, Cluster, tuple[AnyRule, ...], FilterRun]:
    pod, cluster, rules = read_pod(case), read_cluster(case), _rules(case)
    return pod, cluster, rules, pre_filter(rules, pod, cluster)


def _full(case: Case) -> Outcome:
    pod, cluster, rules = read_pod(case), read_cluster(case), _rules(case)
    _, decision = find_feasible(rules, pod, cluster)
    outcome = preemption.preempt(rules, pod, cluster, decision, NOW)
    return {
        "nodeStatuses": {
            name: status(v.code, v.reasons, plugin=v.plugin)
            for name, v in decision.rejected.items()
        },
        "potentialNodes": [n.name for n in preemption.potential_nodes(decision, cluster)],
        "eligible": outcome.eligible,
        "message": outcome.message,
        "candidates": {name: _victims(v) for name, v in outcome.candidates.items()},
        "dryRunStatuses": _statuses(outcome.statuses),
        "chosenAnyOf": sorted(outcome.chosen_any_of),
    }


def _select_victims(case: Case) -> Outcome:
    pod, cluster, rules, run = _begin(case)
    node = cluster.node(case["node"])
    assert node is not None
    victims, verdict = preemption.select_victims(rules, run, pod, node, cluster, NOW)
    return {**_victims(victims), "status": status(verdict.code, verdict.reasons)}


def _dry_run(case: Case) -> Outcome:
    pod, cluster, rules, run = _begin(case)
    potential = [node for node in cluster.nodes if node.name in case["potentialNodes"]]
    candidates, statuses = preemption.dry_run(rules, run, pod, potential, cluster, NOW)
    return {
        "candidates": {name: _victims(v) for name, v in candidates.items()},
        "nodeStatuses": _statuses(statuses),
    }


def _preempt(case: Case) -> Outcome:
    pod, cluster, rules, run = _begin(case)
    rejected = {
        name: Verdict(entry["code"], tuple(entry.get("reasons") or ()))
        for name, entry in case["nodeStatuses"].items()
    }
    decision = Decision(rejected=rejected, run=run)
    outcome = preemption.preempt(rules, pod, cluster, decision, NOW)
    if outcome.node:
        return {"status": {"code": "Success"}, "nominatedNode": outcome.chosen_any_of}
    # An empty name clears an earlier nomination; without a result it stays.
    nominated = "" if outcome.eligible else None
    return {"status": status("Unschedulable", [outcome.message]), "nominatedNode": nominated}


def _eligible(case: Case) -> Outcome:
    entry = case.get("nominatedNodeStatus") or {"code": "Success"}
    may, message = preemption.eligible(read_pod(case), read_cluster(case), Verdict(entry["code"]))
    return {"eligible": may, "message": message}


def _select_candidate(case: Case) -> Outcome:
    candidates = {
        name: preemption.Victims(tuple(read(Pod, entry["pods"])), entry["numPDBViolations"])
        for name, entry in case["candidates"].items()
    }
    chosen = preemption.select_candidates(candidates, NOW)
    return {"chosen": chosen, "victims": {n: _victims(candidates[n])["victims"] for n in chosen}}


def _pdb(case: Case) -> Outcome:
    violating, others = preemption.split_by_budgets(
        read(Pod, case["pods"]), read_cluster({"pdbs": case["pdbs"]}).budgets, version_of(case)
    )
    return {
        "violating": [full_name(p) for p in violating],
        "nonViolating": [full_name(p) for p in others],
    }


def _more_important(case: Case) -> Outcome:
    answer = preemption.more_important(read_pod(case), read_pod(case, "other"), NOW)
    return {"moreImportant": answer}


EVENTS: dict[str, Callable[[Case], Outcome]] = {
    "full": _full,
    "selectVictims": _select_victims,
    "dryRun": _dry_run,
    "preempt": _preempt,
    "eligible": _eligible,
    "selectCandidate": _select_candidate,
    "pdb": _pdb,
    "moreImportant": _more_important,
}


def run_reference(case: Case) -> Outcome:
    """Return what the plain rules say."""
    return EVENTS[case["ev"]](case)


def compare(case: Case, found: Outcome) -> list[str]:
    """Say what differs. Where Kubernetes chooses any of several, ``found`` names them all."""
    expect: dict[str, Any] = {**case["expect"]}
    if case["ev"] == "selectCandidate":
        expect["victims"] = {expect["chosen"]: expect["victims"]}
        found["victims"] = {n: v for n, v in found["victims"].items() if n == expect["chosen"]}
    for key in ("chosen", "nominatedNode"):
        if found.get(key) and expect.get(key) in found[key]:
            found[key] = expect[key]
    chosen = found.get("chosenAnyOf") or []
    if len(chosen) == 1 and chosen[0] in expect.get("chosenAnyOf", ()):
        found["chosenAnyOf"] = expect["chosenAnyOf"]  # one of several is enough
    for key in ("chosenAnyOf", "potentialNodes"):
        if key in expect:
            expect[key] = sorted(expect[key])
            found[key] = sorted(found[key])
    return [
        text for key, wanted in expect.items() for text in differences(wanted, found.get(key), key)
    ]


def check(case: Case) -> str | None:
    """Return what differs, None if nothing does."""
    return check_all(case, compare, reference=run_reference, engine=harness.run_preemption_case)
