"""A remedy that is applied for real lets the pod in, in worlds of chance."""

from typing import Any

from hypothesis import event, given

from scheduling.simulation.remedies import Question, remedies
from scheduling.simulation.verdicts import judge
from tests import harness
from tests.conformance.cluster_cases import read_pod
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


@by_chance
@given(clusters(most_nodes=5, most_pods=6), pods())
def test_a_remedy_applied_for_real_lets_the_pod_in(world: Manifest, pod: Manifest) -> None:
    """The patch goes into the manifests; a cluster that is built anew then places the pod there."""
    snapshot = harness.build_snapshot(world)
    framework = harness.kubernetes_framework()
    first = harness.to_place(snapshot, read_pod({"pod": pod}))
    verdicts = judge(snapshot, framework, first)
    if len(verdicts.feasible):
        return
    found = remedies(snapshot, framework, Question(first, [first], [(1000, "high")]), verdicts)
    event(f"{len(found)} remedies")
    for remedy in found:
        if remedy.target == "Pod":
            changed, after = merged(pod, remedy.patch), world
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
