"""Simulations decide the recorded cases as Kubernetes did. Skipped without the vectors."""

import json
from collections.abc import Iterator
from itertools import islice
from typing import Any

import pytest

from tests.conformance.manifests import difference
from tests.conformance.runner import files, folders, missing
from tests.simulation.builders import simulate

CASES = 250
KINDS = {
    "nodes": "Node",
    "pods": "Pod",
    "namespaces": "Namespace",
    "services": "Service",
    "pdbs": "PodDisruptionBudget",
}
CONFIGURATION = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
    "compatibility": "1.36",
    "profiles": [
        {
            "pluginConfig": [
                {"name": "NodeAffinity", "args": {"emptyNodeSelectorTerm": "none"}},
                {
                    "name": "DefaultPreemption",
                    "args": {"minCandidateNodesPercentage": 100, "minCandidateNodesAbsolute": 1000},
                },
            ]
        }
    ],
}


def cases(area: str) -> Iterator[dict[str, Any]]:
    found = files(folders())
    if not found:
        pytest.skip(missing(folders()))
    for file in found.get(area, []):
        with file.open() as lines:
            yield from map(json.loads, lines)


def result(case: dict[str, Any]) -> dict[str, Any]:
    objects = []
    for member, kind in KINDS.items():
        for number, given in enumerate(case.get(member) or ()):
            # Some recorded budgets have no name, and no status where nothing is allowed.
            meta = {"name": f"{member}-{number}", **(given.get("metadata") or {})}
            whole = {**given, "kind": kind, "metadata": meta}
            if kind == "PodDisruptionBudget":
                whole["status"] = {"disruptionsAllowed": 0, **(given.get("status") or {})}
            objects.append(whole)
    spec = {
        "base": "empty",
        "objects": objects,
        "pods": [case["pod"]],
        "admission": False,
        "explain": "full",
        "tieBreak": "first",
        "configuration": CONFIGURATION,
    }
    found: dict[str, Any] = simulate({"kind": "Simulation", "spec": spec})["status"]["results"][0]
    return found


def test_whole_profiles_decide_as_recorded() -> None:
    for case in islice(cases("schedule"), CASES):
        found, expected = result(case), case["expect"]
        scores = {
            name: {"weighted": score["weighted"], "total": score["total"]}
            for name, score in found["scores"].items()
        }
        wanted = {
            "feasible": sorted(expected.get("feasible") or []),
            "rejected": expected.get("rejected"),
            "scores": expected.get("scores"),
            "best": sorted(expected.get("best") or []),
        }
        got = {
            "feasible": found["feasible"],
            "rejected": found["infeasible"],
            "scores": scores,
            "best": found["best"],
        }
        if not found["best"]:
            wanted["message"] = expected["fitError"]
            got["message"] = found["message"][
                : len(expected["fitError"])
            ]  # PostFilter's words follow
        assert difference(wanted, got) is None, case["id"]


def test_room_is_made_as_recorded() -> None:
    full = (case for case in cases("preemption") if case["ev"] == "full")
    for case in islice(full, CASES):
        preemption, expected = result(case).get("preemption") or {}, case["expect"]
        candidates = preemption.get("candidates") or {}
        assert difference(expected.get("candidates") or {}, candidates) is None, case["id"]
        chosen = expected.get("chosenAnyOf") or [""]
        assert preemption.get("nominatedNode", "") in chosen, case["id"]
