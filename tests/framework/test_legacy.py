"""What documents of older versions and ``kind: Policy`` mean (R71, R104-R107, R111, R174)."""

import pytest

from clusterstate.objects.values.errors import Invalid
from scheduling.framework.configuration.documents import default_configuration, load
from tests.framework.test_configuration import ADDED_AFFINITY, only, wrong


def test_the_v1alpha1_example_of_the_seeds_is_loaded_as_printed():
    """R170, R174: algorithmSource, and a line of dots in the middle."""
    configuration = load(
        "apiVersion: kubescheduler.config.k8s.io/v1alpha1\n"
        "kind: KubeSchedulerConfiguration\n"
        "algorithmSource:\n"
        "  provider: DefaultProvider\n"
        "...\n"
        "percentageOfNodesToScore: 50\n"
    )
    assert configuration.percentage_of_nodes_to_score == 50
    assert configuration.profiles[0].points == default_configuration().profiles[0].points


def test_lines_are_counted_as_they_are_written_also_after_dots():
    with pytest.raises(Invalid, match="line 4 repeats 'kind'"):
        load("kind: Policy\n...\napiVersion: v1\nkind: Policy\n")


def test_v1alpha1_providers_preemption_and_hard_weight_are_translated():
    profile = only(
        {
            "apiVersion": "kubescheduler.config.k8s.io/v1alpha1",
            "kind": "KubeSchedulerConfiguration",
            "schedulerName": "mine",
            "algorithmSource": {"provider": "ClusterAutoscalerProvider"},
            "hardPodAffinitySymmetricWeight": 12,
            "disablePreemption": True,
        }
    )
    assert profile.scheduler_name == "mine"
    assert profile.args["NodeResourcesFit"].scoring_strategy.type == "MostAllocated"
    assert profile.args["InterPodAffinity"].hard_pod_affinity_weight == 12
    assert profile.names("postFilter") == ()


POLICY = """
apiVersion: v1
kind: Policy
# ...
priorities:
# ...
- name: RequestedToCapacityRatioPriority
  weight: 2
  argument:
    requestedToCapacityRatioArguments:
      shape:
        - utilization: 0
          score: 0
        - utilization: 100
          score: 10
      resources:
        - name: intel.com/foo
          weight: 3
        - name: intel.com/bar
          weight: 5
"""


def test_the_policy_of_the_seeds_is_translated():
    """R104, R111, C16."""
    profile = only(POLICY)
    assert profile.weights() == {"NodeResourcesFit": 2}
    strategy = profile.args["NodeResourcesFit"].scoring_strategy
    assert strategy.type == "RequestedToCapacityRatio"
    assert [(p.utilization, p.score) for p in strategy.shape] == [(0, 0), (100, 10)]
    assert [(r.name, r.weight) for r in strategy.resources] == [
        ("intel.com/foo", 3),
        ("intel.com/bar", 5),
    ]
    # No predicates in the document: the default filters.
    assert profile.names("filter") == default_configuration().profiles[0].names("filter")


def test_resources_default_to_cpu_and_memory_and_may_be_written_in_capitals():
    """R106, R107."""
    without = POLICY[: POLICY.index("      resources:")]
    strategy = only(without).args["NodeResourcesFit"].scoring_strategy
    assert [(r.name, r.weight) for r in strategy.resources] == [("cpu", 1), ("memory", 1)]
    capitals = without + "      resources: [{name: CPU, weight: 3}, {name: Memory}]\n"
    strategy = only(capitals).args["NodeResourcesFit"].scoring_strategy
    assert [(r.name, r.weight) for r in strategy.resources] == [("cpu", 3), ("memory", 1)]


def test_a_reversed_shape_is_least_requested():
    """R105."""
    text = POLICY.replace("score: 0\n", "score: X\n").replace("score: 10", "score: 0")
    strategy = only(text.replace("score: X", "score: 10")).args["NodeResourcesFit"].scoring_strategy
    assert [(p.utilization, p.score) for p in strategy.shape] == [(0, 10), (100, 0)]


def test_predicates_of_a_policy_become_filters():
    """R71."""
    profile = only(
        {
            "kind": "Policy",
            "apiVersion": "v1",
            "predicates": [
                {"name": "GeneralPredicates"},
                {"name": "NoDiskConflict"},
                {
                    "name": "Region",
                    "argument": {"labelsPresence": {"labels": ["r"], "presence": True}},
                },
            ],
            "priorities": [
                {"name": "LeastRequestedPriority", "weight": 1},
                {"name": "SelectorSpreadPriority", "weight": 2},
                {"name": "EvenPodsSpreadPriority", "weight": 3},
            ],
            "hardPodAffinitySymmetricWeight": 10,
        }
    )
    assert profile.names("filter") == (
        "NodeUnschedulable",
        "NodeName",
        "TaintToleration",
        "NodeAffinity",
        "NodePorts",
        "NodeResourcesFit",
    )
    assert profile.weights() == {"NodeResourcesFit": 1, "PodTopologySpread": 5}
    added = profile.args["NodeAffinity"].added_affinity
    term = added.required_during_scheduling_ignored_during_execution.node_selector_terms[0]
    assert (term.match_expressions[0].key, term.match_expressions[0].operator) == ("r", "Exists")
    assert profile.args["InterPodAffinity"].hard_pod_affinity_weight == 10


def test_what_a_policy_gets_wrong_is_named_in_the_policy():
    assert wrong(
        {
            "kind": "Policy",
            "apiVersion": "v1",
            "predicates": [{"name": "Nonsense"}],
            "priorities": [
                {"name": "LeastRequestedPriority", "weight": 1},
                {"name": "MostRequestedPriority", "weight": 1},
                {"name": "ImageLocalityPriority"},
                {"name": "X", "weight": 1, "argument": {"serviceAntiAffinity": {}}},
            ],
            "extenders": [{}],
            "colour": "red",
        }
    ) == {
        ("predicates[0].name", "FieldValueNotSupported"),
        ("priorities[1].name", "FieldValueInvalid"),
        ("priorities[2].weight", "FieldValueInvalid"),
        ("priorities[3].argument", "FieldValueForbidden"),
        ("extenders", "FieldValueForbidden"),
        ("colour", "FieldValueInvalid"),
    }


def test_former_score_plugins_become_strategies():
    text = """
apiVersion: kubescheduler.config.k8s.io/v1beta2
kind: KubeSchedulerConfiguration
profiles:
- schedulerName: default-scheduler
  plugins:
    score:
      disabled: [{name: NodeResourcesLeastAllocated}]
      enabled: [{name: NodeResourcesMostAllocated, weight: 5}]
  pluginConfig:
  - name: NodeResourcesMostAllocated
    args: {resources: [{name: cpu, weight: 2}]}
  - name: NodeResourcesFit
    args: {ignoredResources: [example.com/x]}
"""
    profile = only(text)
    assert profile.weights()["NodeResourcesFit"] == 5
    args = profile.args["NodeResourcesFit"]
    assert args.scoring_strategy.type == "MostAllocated"
    assert [(r.name, r.weight) for r in args.scoring_strategy.resources] == [("cpu", 2)]
    assert args.ignored_resources == ("example.com/x",)


def test_a_translated_document_loads_to_the_same_value():
    for text in (ADDED_AFFINITY, POLICY):
        first = load(text)
        assert load(first.document).profiles == first.profiles


def test_the_time_for_binding_becomes_an_argument_of_volume_binding():
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1alpha1",
        "kind": "KubeSchedulerConfiguration",
        "bindTimeoutSeconds": 30,
    }
    assert only(document).args["VolumeBinding"].bind_timeout_seconds == 30
