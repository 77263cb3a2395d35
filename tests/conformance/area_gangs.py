"""Area gangs: groups of pods, their cycle, their placements and whom they displace, of 1.36."""

from datetime import UTC, datetime
from typing import Any

import msgspec

from clusterstate.objects.registry import older_pod_groups
from clusterstate.objects.values.moments import parse
from clusterstate.objects.values.pod import Pod
from clusterstate.objects.values.pod_group import PodGroup, with_condition
from scheduling.framework import pod_groups as rules
from scheduling.framework.status import Code, Status
from scheduling.framework.types import Diagnosis, FitError, group_key
from tests.conformance.cluster_cases import Case

NOW = datetime(2026, 6, 1, 12, tzinfo=UTC)
FAKE = "FakePodGroupPlugin"
PLACEMENT = "FakePlacementPlugin"
_CODES = {code.wire: code for code in Code}


def check(case: Case) -> str | None:
    """Return what differs, None if nothing does."""
    wanted = case["expect"]
    found = _OPS[case["op"]](case)
    return None if found == wanted else f"{found} instead of {wanted}"


def status_of(said: dict[str, Any] | None) -> Status:
    said = said or {}
    return Status(_CODES[said.get("code", "Success")], tuple(said.get("reasons", ())))


def told(status: Status) -> dict[str, Any]:
    reasons = {"reasons": list(status.reasons)} if status.reasons else {}
    return {"code": status.code.wire, **reasons}


def group_of(manifest: dict[str, Any]) -> PodGroup:
    stored = older_pod_groups.stored(manifest, "v1alpha2")
    return msgspec.convert({**stored, "status": {}}, PodGroup)


def pod_of(manifest: dict[str, Any]) -> Pod:
    return msgspec.convert(manifest, Pod)


def gang_flow(case: Case) -> dict[str, Any]:
    pod = pod_of(case["pod"])
    key = group_key(pod)
    groups = {one.key: one for one in map(group_of, case.get("podGroups", ()))}
    group = groups.get(key) if key else None
    members = [one for one in map(pod_of, case.get("pods", ())) if group_key(one) == key]
    first = rules.pre_enqueue(key, group, len(members) + 1)
    result: dict[str, Any] = {"preEnqueue": told(first)}
    if not first.ok:
        return result
    held = [one for one in map(pod_of, case.get("waitingOnPermit", ())) if group_key(one) == key]
    second = rules.permit(group, len(held) + 1)
    result["permit"] = told(second)
    if key is None or group is None or not group.is_gang or case.get("podGroupCycle"):
        return result
    waiting = {one.metadata.uid for one in held}
    if second.code is Code.WAIT:
        rest = sorted(one.metadata.uid for one in members if one.metadata.uid not in waiting)
        if rest:
            result["activated"] = rest
    else:
        result["allowed"] = sorted([pod.metadata.uid, *waiting])
    return result


def attempt(case: Case, name: str, node: str) -> rules.MemberResult:
    """Try one pod with the one fake plugin of upstream's tests."""
    judged = status_of(case["filter"].get(name))
    nominated = ""
    requires = False
    if judged.code is Code.ERROR:
        text = f'running "{FAKE}" filter plugin: {judged.message}'
        return rules.MemberResult(status=Status(Code.ERROR, (text,)))
    if not judged.ok:
        post = case.get("postFilter", {}).get(name)
        requires = post is not None and status_of(post).ok
        nominated = case["postFilterNominated"].get(name, "") if requires else ""
        after = "" if post else "default fake postfilter failure"
        judged = Status(Code.UNSCHEDULABLE, (unfit(after, case),))
        if not nominated:
            return rules.MemberResult(status=judged)
    permitted = status_of(case["permit"].get(name))
    if permitted.code is Code.ERROR:
        text = f'running Permit plugin "{FAKE}": {permitted.message}'
        return rules.MemberResult(status=Status(Code.ERROR, (text,)))
    if permitted.code.rejects:
        return rules.MemberResult(status=Status(permitted.code, (unfit("", case),)))
    return rules.MemberResult(
        status=judged, host=node, nominated=nominated, requires_preemption=requires,
        permit=None if permitted.ok else permitted,
    )  # fmt: skip


def unfit(after: str, case: Case) -> str:
    diagnosis = Diagnosis(counts=(), post_filter_message=after)
    return FitError(node_count=1, diagnosis=diagnosis).message()


def result_of(result: rules.MemberResult) -> dict[str, Any]:
    found: dict[str, Any] = {
        "host": result.host, "requiresPreemption": result.requires_preemption,
        "status": told(result.status),
    }  # fmt: skip
    if not result.status.ok:
        found["nominatedNode"] = result.nominated
    if result.permit is not None:
        found["permit"] = told(result.permit)
    return found


def algorithm(case: Case) -> dict[str, Any]:
    def tried(node: str) -> rules.GroupOutcome:
        return rules.try_members(case["pods"], lambda name: attempt(case, name, node))

    if case["topologyAware"]:
        outcome = rules.best_placement([case["node"]], tried, lambda found: [0] * len(found))
    else:
        outcome = tried(case["node"])
    return {
        "status": told(outcome.status),
        "waitingOnPreemption": outcome.waiting_on_preemption,
        "podResults": list(map(result_of, outcome.results)),
    }


def placements(case: Case) -> dict[str, Any]:
    generated = case.get("generate") or {}
    status = status_of(case.get("generateStatus"))
    if not status.ok:
        return {"status": told(status), "podResults": []}

    def tried(name: str) -> rules.GroupOutcome:
        node = next((one for one in generated[name] if status_of(case["filter"].get(one)).ok), "")
        if node:
            return rules.try_members([node], lambda host: rules.MemberResult(host=host))
        refused = Status(Code.UNSCHEDULABLE, (unfit("", case),))
        return rules.try_members([""], lambda host: rules.MemberResult(status=refused))

    answers = case.get("scoreStatus") or {}
    failing: list[str] = []

    def score(found: Any) -> list[int]:
        statuses = [status_of(answers.get(name)) for name, _ in found]
        failing.extend(one.message for one in statuses if not one.ok)
        return [(case.get("scores") or {}).get(name, 0) for name, _ in found]

    outcome = rules.best_placement(list(generated), tried, score)
    if failing:
        text = f'running PlacementScore plugins: plugin "{PLACEMENT}" failed with: {failing[0]}'
        return {"status": told(Status(Code.ERROR, (text,))), "podResults": []}
    return {
        "status": told(outcome.status), "podResults": list(map(result_of, outcome.results)),
    }  # fmt: skip


def placement_scoring(case: Case) -> dict[str, Any]:
    names = list(case["placements"])
    totals = [
        sum(plugin.get("weight", 1) * plugin["scores"].get(name, 0) for plugin in case["plugins"])
        for name in names
    ]
    chosen = names[max(range(len(names)), key=lambda place: totals[place])]
    nodes = case["placements"][chosen]
    return {"chosen": chosen, "host": nodes[0] if isinstance(nodes, list) else nodes}


def submit(case: Case) -> dict[str, Any]:
    results = [
        rules.MemberResult(
            status=status_of(one["status"]), host=one["host"],
            nominated=one.get("nominatedNode", ""), requires_preemption=one["requiresPreemption"],
            permit=status_of(one["permit"]) if "permit" in one else None,
        )
        for one in case["podResults"]
    ]  # fmt: skip
    outcome = rules.GroupOutcome(
        status_of(case["status"]), tuple(results), case["waitingOnPreemption"]
    )
    bound, preempting, failed = rules.split(outcome, case["pods"])
    return {
        "bound": bound, "preempting": preempting, "failed": failed,
        **conditions(case, rules.condition_of(outcome.status)),
    }  # fmt: skip


def condition(case: Case) -> dict[str, Any]:
    given = {**case["condition"], "type": rules.INITIALLY_SCHEDULED}
    return conditions(case, given)


def conditions(case: Case, new: dict[str, Any]) -> dict[str, Any]:
    group = older_pod_groups.stored(case["podGroup"], "v1alpha2")
    before = (group.get("status") or {}).get("conditions") or []
    generation = group["metadata"].get("generation", 0)
    after = with_condition(before, new, generation=generation, now=NOW)
    shown = []
    for one in before if after is None else after:
        kept = {**one, "type": "PodGroupScheduled"}
        if kept["lastTransitionTime"] == "2026-06-01T12:00:00Z":
            kept["lastTransitionTime"] = "now"
        shown.append(kept)
    return {"conditions": shown}


def generate(case: Case) -> dict[str, Any]:
    def labels(field: str) -> dict[str, dict[str, str]]:
        nodes = case.get(field, ())
        return {one["metadata"]["name"]: one["metadata"].get("labels", {}) for one in nodes}

    namespace = case["podGroup"].get("metadata", {}).get("namespace", "default")
    scheduled = {f"{namespace}/{pod}": node for pod, node in case.get("scheduledPods", {}).items()}
    found, status = rules.generate_placements(
        group_of(case["podGroup"]), scheduled, labels("nodes"), labels("otherNodes"),
        case.get("parentPlacement", ""),
    )  # fmt: skip
    return {"status": told(status), "placements": found}


def score_placement(case: Case) -> dict[str, Any]:
    key = "default", case["podGroup"]
    known = [one for one in map(pod_of, case.get("assumedPods", ())) if group_key(one) == key]
    known += [one for one in map(pod_of, case.get("assignedPods", ())) if group_key(one) == key]
    return {"score": len(known) + len(case["proposed"]), "status": {"code": "Success"}}


def normalize(case: Case) -> dict[str, Any]:
    result = rules.normalize_placement_scores(case["scores"])
    return {"result": result, "status": {"code": "Success"}}


def victim_of(said: dict[str, Any]) -> rules.Victim[int]:
    started = said.get("earliestStartTime")
    return rules.Victim(
        pods=tuple(range(said["pods"])), priority=said["priority"],
        in_group=said.get("podGroup", False),
        started_at=parse(started).timestamp() if started else 0.0,
    )  # fmt: skip


def more_important(case: Case) -> dict[str, Any]:
    first, second = victim_of(case["victim"]), victim_of(case["other"])
    return {"result": first.importance > second.importance}


def select(case: Case) -> dict[str, Any]:
    groups = {one.key[1]: one for one in map(group_of, case.get("podGroups", ()))}
    pods = case.get("pods", [])
    preemptor = case["preemptor"]
    units = units_of(list(map(pod_of, pods)), groups)
    placed = {pod["metadata"]["name"]: pod["spec"]["nodeName"] for pod in pods}
    needed = len(preemptor["pods"])

    away: set[str] = set()

    def names_of(one: Any) -> set[str]:
        return {pod.metadata.name for pod in one.pods}

    def fits() -> bool:
        there = set(placed) - away
        room = sum(
            rule["capacity"]
            for rule in case.get("blockingRules", ())
            if not there & set(rule["blockingVictims"])
        )
        return room >= needed

    def without(leaving: Any) -> Status:
        away.update(name for one in leaving for name in names_of(one))
        return Status() if fits() else Status(Code.UNSCHEDULABLE, ("no room",))

    def reprieve(one: Any) -> bool:
        away.difference_update(names_of(one))
        if fits():
            return True
        away.update(names_of(one))
        return False

    def violating(ordered: Any) -> list[int]:
        allowed = [one["status"].get("disruptionsAllowed", 0) for one in case.get("pdbs", ())]
        return [sum(breaks(pod, case.get("pdbs", ()), allowed) for pod in one.pods)
                for one in ordered]  # fmt: skip

    group = preemptor.get("podGroup")
    priority = None if group is None else group["spec"].get("priority")
    chosen = rules.select_victims(
        units,
        priority=preemptor["pods"][0]["spec"].get("priority", 0) if priority is None else priority,
        policies=[pod["spec"].get("preemptionPolicy") for pod in preemptor["pods"]],
        without=without,
        reprieve=reprieve,
        violating=violating,
    )
    if not chosen.status.ok:
        return {"status": told(chosen.status)}
    names = [pod.metadata.name for one in chosen.victims for pod in one.pods]
    # 1.36 counts the budgets that are broken and does not tell: it is 0 in all recordings.
    return {
        "status": {"code": "Success"}, "victims": names, "numPDBViolations": 0,
    }  # fmt: skip


def breaks(pod: Pod, budgets: Any, allowed: list[int]) -> bool:
    broken = False
    for place, budget in enumerate(budgets):
        wanted = budget["spec"]["selector"].get("matchLabels", {})
        if wanted and wanted.items() <= pod.metadata.labels.items():
            allowed[place] -= 1
            broken |= allowed[place] < 0
    return broken


def units_of(pods: list[Pod], groups: dict[str, PodGroup]) -> list[rules.Victim[Pod]]:
    return rules.victims_of(
        pods,
        group_of=lambda pod: groups.get((group_key(pod) or ("", ""))[1]),
        key_of=group_key,
        priority_of=lambda pod: pod.spec.priority or 0,
        started_at=lambda pod: (
            parse(pod.status.start_time).timestamp() if pod.status.start_time else NOW.timestamp()
        ),
    )


def preempt(case: Case) -> dict[str, Any]:
    namespace, _, name = case["podGroup"].partition("/")
    key = namespace, name
    groups = {one.key: one for one in map(group_of, case.get("podGroups") or ())}
    problem = rules.preemption_problem(
        key, groups.get(key), registered=case.get("pluginRegistered", False)
    )
    return {"status": told(problem or status_of(case["pluginStatus"]))}


def same_group(case: Case) -> dict[str, Any]:
    one, other = group_key(pod_of(case["pod"])), group_key(pod_of(case["other"]))
    return {"result": one is not None and one == other}


def pod_order(case: Case) -> dict[str, Any]:
    first = case["pod"], case["podInitialAttempt"]
    waiting = [(one["pod"], one["initialAttempt"]) for one in case["queued"]]
    members = [
        (pod, since) for pod, since in waiting if pod["metadata"]["name"] in case["unscheduledPods"]
    ]
    ordered = sorted(
        [first, *members],
        key=lambda one: rules.order_key(one[0]["spec"].get("priority", 0), one[1], 0),
    )
    return {"order": [pod["metadata"]["name"] for pod, _ in ordered]}


_OPS = {
    "gangFlow": gang_flow,
    "generatePlacements": generate,
    "moreImportantVictim": more_important,
    "normalizePlacementScore": normalize,
    "placementAlgorithm": placements,
    "placementScoring": placement_scoring,
    "podGroupAlgorithm": algorithm,
    "podGroupOrder": pod_order,
    "sameGroup": same_group,
    "scorePlacement": score_placement,
    "selectVictimsOnDomain": select,
    "submitPodGroupResult": submit,
    "updatePodGroupCondition": condition,
    "workloadAwarePreemption": preempt,
}
