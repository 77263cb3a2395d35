"""A remedy that is applied for real lets the pod in, in worlds of chance."""

from typing import Any

from hypothesis import event, given
from hypothesis import strategies as st

from clusterstate.objects.rules import scheduling_class
from scheduling.engine.fast import fast_lane
from scheduling.engine.preemption import row_program
from scheduling.engine.reference.cycle import Options, schedule_batch
from scheduling.simulation.remedies import Question, Trial, remedies
from scheduling.simulation.verdicts import judge
from tests import harness
from tests.conformance.cluster_cases import read_pod
from tests.engine import lanes
from tests.strategies import Manifest, by_chance, clusters, pods


def merged(manifest: Any, patch: Any) -> Any:
    """Return a manifest with a merge patch applied (RFC 7386)."""
    if not isinstance(patch, dict):
        return patch
    found = dict(manifest) if isinstance(manifest, dict) else {}
    for key, change in patch.items():
        if change is None:
            found.pop(key, None)
        else:
            found[key] = merged(found.get(key), change)
    return found


def detailed(pod: Manifest) -> Manifest:
    """Return the pod with what scheduling does not look at, and a template still needs."""
    spec = dict(pod["spec"])
    for field in ("containers", "initContainers"):
        if field in spec:
            spec[field] = [
                {
                    **one, "name": f"{field}-{number}", "command": ["run", str(number)],
                    "env": [{"name": "A", "value": str(number)}],
                    "ports": [
                        {**port, "name": f"port-{at}", "containerPort": 8000 + at}
                        for at, port in enumerate([*one.get("ports", ()), {}])
                    ],
                }
                for number, one in enumerate(spec[field])
            ]  # fmt: skip
    return {**pod, "spec": {**spec, "serviceAccountName": "somebody"}}


def without_sense(pod: Manifest) -> Manifest:
    """Return what scheduling does not look at of a pod."""
    spec = {**pod["spec"]}
    for field in ("containers", "initContainers"):
        if field in spec:
            spec[field] = [
                {
                    **{key: one[key] for key in ("name", "command", "env")},
                    "ports": [(port["name"], port["containerPort"]) for port in one["ports"]],
                }
                for one in spec[field]
            ]
    kept = ("containers", "initContainers", "serviceAccountName")
    return {key: spec[key] for key in kept if key in spec}


@by_chance
@given(clusters(most_nodes=5, most_pods=6), pods())
def test_a_remedy_applied_for_real_lets_the_pod_in(world: Manifest, pod: Manifest) -> None:
    """The patch goes into the manifests; a cluster that is built anew then places the pod there."""
    snapshot = harness.build_snapshot(world)
    framework = harness.kubernetes_framework()
    pod = detailed(pod)
    first = harness.to_place(snapshot, read_pod({"pod": scheduling_class.reduce(pod)}))
    verdicts = judge(snapshot, framework, first)
    if len(verdicts.feasible):
        return
    question = Question(first, [first], [(1000, "high")], stored=pod)
    found = remedies(snapshot, framework, question, verdicts)
    event(f"{len(found)} remedies")
    for remedy in found:
        if remedy.target == "Pod":
            changed, after = merged(pod, remedy.patch), world
            assert without_sense(changed) == without_sense(pod), remedy
        else:
            changed = pod
            nodes = [
                merged(node, remedy.patch) if node["metadata"]["name"] == remedy.names[0] else node
                for node in world["nodes"]
            ]
            after = {**world, "nodes": nodes}
        decision = harness.decide(after, read_pod({"pod": changed}), preempt=True)
        if remedy.preempts:
            assert decision.nomination is not None
            assert decision.nomination.node_name in remedy.names
            assert len(decision.nomination.victims) == remedy.preempts
            continue
        assert decision.scheduled, remedy
        assert decision.full is not None
        feasible = {name for name, one in decision.full.nodes.items() if one.rejected is None}
        assert set(remedy.names[:1] if remedy.target == "Node" else remedy.names) <= feasible


@by_chance
@given(clusters(most_nodes=5, most_pods=4), st.lists(pods(), min_size=1, max_size=4), st.data())
def test_as_many_pods_find_room_as_the_scheduler_places(
    world: Manifest, kinds: list[Manifest], data: st.DataObject
) -> None:
    """Without working out why others find none, as with it; and nobody stays there."""
    framework = harness.kubernetes_framework()
    snapshot, again = harness.build_snapshot(world), harness.build_snapshot(world)
    chosen = data.draw(st.lists(st.sampled_from(range(len(kinds))), max_size=12))
    waiting, expected = [], []
    for number, kind in enumerate(chosen):
        metadata = {**kinds[kind].get("metadata", {}), "name": f"waits-{number}"}
        pod = read_pod({"pod": {**kinds[kind], "metadata": metadata}})
        waiting.append(harness.to_place(snapshot, pod))
        expected.append(harness.to_place(again, pod))
    if not waiting:
        return
    before = snapshot.pod_total
    trial = Trial(snapshot, framework, Question(waiting[0], waiting))
    options = Options(preempt=False, tie_break="first")
    placed = list(schedule_batch(again, framework, expected, options).placed())
    event(f"{len(placed)} of {len(waiting)}")
    for loops in ((fast_lane, row_program), ()):
        with lanes.only(*loops):
            assert trial.placed(waiting) == len(placed)
    assert snapshot.pod_total == before
