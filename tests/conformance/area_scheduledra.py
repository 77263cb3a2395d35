"""Area scheduledra: one pod with claims through the default profile, all nodes evaluated."""

import json
from unittest.mock import patch

from clusterstate.objects.dra.attempt import DeviceWorld, Gates, pre_enqueue, stamp
from clusterstate.objects.dra.slicetracker import patched_slices
from scheduling.framework.device_claims import DeviceTable
from tests import harness
from tests.conformance.area_draplugin import NOW, normal, timed
from tests.conformance.area_schedule import compare
from tests.conformance.cluster_cases import Outcome, read_cluster, read_pod, status
from tests.reference.dynamic_resources import DynamicResources
from tests.reference.node_resources_fit import NodeResourcesFit
from tests.reference.scheduler import DEFAULT_WEIGHTS, default_rules, schedule

WEIGHTS = {**DEFAULT_WEIGHTS, "DynamicResources": 2}


def rules_with(devices):
    """Return the default rules; devices come before what is no filter."""
    rules = list(default_rules(empty_term="none"))
    place = next(i for i, r in enumerate(rules) if r.name == "NodeResourcesBalancedAllocation")
    rules.insert(place, devices)
    for rule in rules:
        if isinstance(rule, NodeResourcesFit):
            rule.class_of = devices.world.class_of
    return rules


def run(case) -> Outcome:
    slices = patched_slices(case.get("slices") or (), case.get("deviceTaintRules") or ())
    world = DeviceWorld(timed(case.get("claims") or []), case.get("classes") or (), slices)
    verdict = pre_enqueue(world, case["pod"], Gates())
    if not verdict.ok:
        found = status(verdict.code, [verdict.reason], plugin="DynamicResources")
        return {"preEnqueue": found}
    devices = DynamicResources(world, case["pod"])
    decision = schedule(read_pod(case), read_cluster(case), rules_with(devices), WEIGHTS)
    if decision.error:
        return {"error": decision.message}
    errors = [v for v in decision.rejected.values() if v.code == "Error"]
    if errors:
        return {"error": f'running "{errors[0].plugin}" filter plugin: {errors[0].message}'}
    outcome = {
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
    if "claims" in case["expect"]:
        bound = devices.attempt.bound_claims(decision.best[0], stamp(NOW))
        outcome["claims"] = [{"name": c["metadata"]["name"], "status": c["status"]} for c in bound]
    return outcome


def check(case):
    case = json.loads(json.dumps(case))
    found = run(case)
    expect = case["expect"]
    if "claims" in expect:
        expect["claims"] = claims_of(timed(expect["claims"]), found)
        found["claims"] = claims_of(found["claims"], found)
    found.setdefault("scores", {})
    texts = [f"reference: {text}" for text in compare(case, found)]
    if "preEnqueue" not in found and "error" not in found:
        made = run_engine(case)
        made["claims"] = found.get("claims")
        texts += [f"engine: {text}" for text in compare(case, made)]
    return "; ".join(texts) or None


def run_engine(case) -> Outcome:
    slices = patched_slices(case.get("slices") or (), case.get("deviceTaintRules") or ())
    world = {**case, "slices": slices, "claims": timed(case.get("claims") or [])}
    with patch.object(DeviceTable, "gates", Gates()):  # as recorded: with binding conditions
        return harness.run_schedule_case(world, harness.whole_framework())


def claims_of(claims, found):
    return sorted(json.dumps(normal(one), sort_keys=True) for one in claims)
