"""What a configuration document means (R71-R72, R86-R87, R104-R111, R169-R174, C1, C13, C16)."""

import contextlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clusterstate.objects.values.errors import Invalid
from scheduling.framework.configuration import EXTENSION_POINTS, PluginInfo
from scheduling.framework.configuration.documents import default_configuration, load
from scheduling.framework.configuration.plugin_args import STARTUP_TAINTS, GangSchedulingArgs
from scheduling.plugins.catalogue import build_framework
from tests.forms import many

V1 = "apiVersion: kubescheduler.config.k8s.io/v1\nkind: KubeSchedulerConfiguration\n"


def wrong(text, **kwargs):
    with pytest.raises(Invalid) as caught:
        load(text, **kwargs)
    return {(e.field, e.type) for e in caught.value.errors}


def only(text, **kwargs):
    configuration = load(text, **kwargs)
    assert len(configuration.profiles) == 1
    return configuration.profiles[0]


def one_profile(plugins="{}", config="[]"):
    return (
        f"{V1}profiles:\n- schedulerName: default-scheduler\n"
        f"  plugins: {plugins}\n  pluginConfig: {config}\n"
    )


# --- defaults ---


def test_the_default_is_kubernetes_default_plugins_and_weights():
    profile = default_configuration().profiles[0]
    assert profile.scheduler_name == "default-scheduler"
    assert profile.names("preEnqueue") == ("SchedulingGates", "GangScheduling")
    assert profile.names("queueSort") == ("PrioritySort",)
    assert profile.names("filter") == (
        "NodeUnschedulable",
        "NodeName",
        "TaintToleration",
        "NodeAffinity",
        "NodePorts",
        "NodeResourcesFit",
        "VolumeRestrictions",
        "NodeVolumeLimits",
        "VolumeBinding",
        "VolumeZone",
        "PodTopologySpread",
        "InterPodAffinity",
        "DynamicResources",
        "NodeDeclaredFeatures",
    )
    assert profile.names("reserve") == ("VolumeBinding", "DynamicResources")
    assert profile.names("preBind") == ("VolumeBinding", "DynamicResources")
    assert profile.names("postFilter") == ("DynamicResources", "DefaultPreemption")
    assert profile.weights() == {
        "TaintToleration": 3,
        "NodeAffinity": 2,
        "NodeResourcesFit": 1,
        "VolumeBinding": 1,
        "PodTopologySpread": 2,
        "InterPodAffinity": 2,
        "DynamicResources": 2,
        "NodeResourcesBalancedAllocation": 1,
        "ImageLocality": 1,
    }
    assert profile.names("bind") == ("DefaultBinder",)


def test_default_arguments_are_filled_in():
    args = default_configuration().profiles[0].args
    strategy = args["NodeResourcesFit"].scoring_strategy
    assert strategy.type == "LeastAllocated"
    assert [(r.name, r.weight) for r in strategy.resources] == [("cpu", 1), ("memory", 1)]
    assert args["InterPodAffinity"].hard_pod_affinity_weight == 1
    assert args["DefaultPreemption"].min_candidate_nodes_percentage == 10
    assert args["DefaultPreemption"].min_candidate_nodes_absolute == 100
    assert args["PodTopologySpread"].defaulting_type == "System"
    assert args["NodeAffinity"].empty_node_selector_term == "all"  # C1


def test_priorities_grow_only_where_the_configuration_says_so():
    def framework(text):
        return build_framework(load(text).profiles[0])

    assert build_framework(default_configuration().profiles[0]).age_points_per_minute == 0
    config = "[{name: PrioritySort, args: {agePointsPerMinute: %s}}]"
    assert framework(one_profile(config=config % 7)).age_points_per_minute == 7
    for bad in ("-1", "x", "1000000001"):
        ((field, _),) = wrong(one_profile(config=config % bad))
        assert field == "profiles[0].pluginConfig[0].args.agePointsPerMinute"
    profile = "- schedulerName: %s\n  pluginConfig: " + config + "\n"
    differ = f"{V1}profiles:\n{profile % ('a', 1)}{profile % ('b', 2)}"
    assert wrong(differ) == {("profiles[1].pluginConfig", "FieldValueInvalid")}


def test_how_long_groups_wait_for_starting_nodes_is_read_and_checked():
    def args(text):
        return build_framework(load(text).profiles[0]).gang_args

    default = build_framework(default_configuration().profiles[0]).gang_args
    assert default == GangSchedulingArgs(starting_node_seconds=0, startup_taints=STARTUP_TAINTS)
    config = "[{name: GangScheduling, args: {%s}}]"
    given = args(one_profile(config=config % "startingNodeSeconds: 90, startupTaints: [a.io/new]"))
    assert given == GangSchedulingArgs(starting_node_seconds=90, startup_taints=("a.io/new",))
    for bad, field in (
        ("startingNodeSeconds: -1", "startingNodeSeconds"),
        ("startingNodeSeconds: 86401", "startingNodeSeconds"),
        ("startupTaints: [a b]", "startupTaints[0]"),
        ("startingNode: 1", "startingNode"),
    ):
        ((found, _),) = wrong(one_profile(config=config % bad))
        assert found == f"profiles[0].pluginConfig[0].args.{field}"


def test_the_time_that_devices_may_take_is_read_as_kubernetes_reads_it():
    """Rule: ``ValidateDynamicResourcesArgs``, v1.36."""
    config = "[{name: DynamicResources, args: {kind: DynamicResourcesArgs, %s}}]"

    def read(text):
        return load(one_profile(config=config % text))

    def timeout(configuration):
        return configuration.profiles[0].args["DynamicResources"].binding_timeout

    assert timeout(read("bindingTimeout: 1m30s")) == 90
    kept = read("filterTimeout: 10s")
    assert timeout(kept) == 600
    path = "profiles[0].pluginConfig[0].args"
    assert kept.warnings == (f"{path}.filterTimeout: has no effect in this service",)
    for text in ("bindingTimeout: 999ms", "bindingTimeout: soon", "bindingTimeout: 5"):
        assert {field for field, _ in wrong(one_profile(config=config % text))} == {
            f"{path}.bindingTimeout"
        }
    ((field, _),) = wrong(one_profile(config=config % "filterTimeout: -1s"))
    assert field == f"{path}.filterTimeout"


def test_the_default_scores_all_nodes_and_backs_off_from_one_to_ten_seconds():
    configuration = default_configuration()
    assert configuration.percentage_of_nodes_to_score == 100
    assert configuration.min_feasible_nodes_to_find == 50
    assert configuration.pod_initial_backoff_seconds == 1
    assert configuration.pod_max_backoff_seconds == 10
    assert configuration.warnings == ()


def test_json_yaml_bytes_and_mapping_mean_the_same():
    text = V1 + "percentageOfNodesToScore: 30\n"
    mapping = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "percentageOfNodesToScore": 30,
    }
    assert load(text) == load(text.encode()) == load(mapping)


# --- profiles and plugin sets ---


def test_a_pod_finds_its_profile_by_scheduler_name_and_an_unknown_one_finds_none():
    """R72."""
    configuration = load(V1 + "profiles: [{schedulerName: default-scheduler}, {schedulerName: b}]")
    assert configuration.profile("b").scheduler_name == "b"
    assert configuration.profile("c") is None


def test_a_plugin_is_disabled_at_one_point_only():
    """R169."""
    profile = only(one_profile("{score: {disabled: [{name: NodeResourcesFit}]}}"))
    assert "NodeResourcesFit" not in profile.names("score")
    assert "NodeResourcesFit" in profile.names("filter")


def test_a_star_disables_all_of_a_point():
    profile = only(
        one_profile(
            "{score: {disabled: [{name: '*'}], enabled: [{name: ImageLocality, weight: 9}]}}"
        )
    )
    assert profile.weights() == {"ImageLocality": 9}


def test_multi_point_disables_everywhere_and_a_star_leaves_what_is_named():
    profile = only(
        one_profile(
            "{multiPoint: {disabled: [{name: '*'}],"
            " enabled: [{name: PrioritySort}, {name: DefaultBinder}, {name: NodeName}]}}"
        )
    )
    assert {p: profile.names(p) for p in EXTENSION_POINTS if profile.names(p)} == {
        "queueSort": ("PrioritySort",),
        "filter": ("NodeName",),
        "bind": ("DefaultBinder",),
    }


def test_a_weight_at_score_wins_over_multi_point_and_the_plugin_comes_first():
    profile = only(
        one_profile(
            "{multiPoint: {enabled: [{name: ImageLocality, weight: 7}]},"
            " score: {enabled: [{name: NodeAffinity, weight: 5}]}}"
        )
    )
    assert profile.weights()["NodeAffinity"] == 5
    assert profile.weights()["ImageLocality"] == 7
    assert profile.names("score")[0] == "NodeAffinity"
    assert profile.weights()["TaintToleration"] == 3


def test_disabled_and_enabled_again_at_a_point_runs_last():
    profile = only(
        one_profile("{filter: {disabled: [{name: NodeName}], enabled: [{name: NodeName}]}}")
    )
    assert profile.names("filter")[-1] == "NodeName"
    assert profile.names("filter").count("NodeName") == 1


def test_plugins_from_elsewhere_sit_beside_the_default_ones():
    """R169."""
    extra = {"BlinkingLightScorer": PluginInfo(points=frozenset({"score"}))}
    text = one_profile(
        "{multiPoint: {enabled: [{name: BlinkingLightScorer, weight: 4}]}}",
        "[{name: BlinkingLightScorer, args: {rate: 3}}]",
    )
    profile = only(text, extra_plugins=extra)
    assert profile.weights()["BlinkingLightScorer"] == 4
    assert profile.args["BlinkingLightScorer"].value == {"rate": 3}
    assert wrong(text) == {
        ("profiles[0].plugins.multiPoint.enabled[0].name", "FieldValueNotSupported"),
        ("profiles[0].pluginConfig[0].name", "FieldValueNotSupported"),
    }


def test_plugins_for_what_is_not_here_have_no_effect_and_say_so():
    configuration = load(one_profile("{filter: {enabled: [{name: DeferredPodScheduling}]}}"))
    assert "DeferredPodScheduling" not in configuration.profiles[0].names("filter")
    assert any("DeferredPodScheduling has no effect" in w for w in configuration.warnings)


# --- what is wrong ---


def test_every_error_is_named_with_its_field():
    text = """
apiVersion: kubescheduler.config.k8s.io/v1
kind: KubeSchedulerConfiguration
parallelism: 0
percentageOfNodesToScore: -1
podInitialBackoffSeconds: 0
podMaxBackoffSeconds: -1
wrongName: 1
extenders: [{urlPrefix: http://example.com}]
profiles:
- schedulerName: a
  plugins:
    filter: {enabled: [{name: ImageLocality}]}
    sort: {}
- schedulerName: a
  percentageOfNodesToScore: many
- plugins: {queueSort: {disabled: [{name: '*'}]}, bind: {disabled: [{name: '*'}]}}
"""
    assert wrong(text) == {
        ("parallelism", "FieldValueInvalid"),
        ("percentageOfNodesToScore", "FieldValueInvalid"),
        ("podInitialBackoffSeconds", "FieldValueInvalid"),
        ("podMaxBackoffSeconds", "FieldValueInvalid"),
        ("wrongName", "FieldValueInvalid"),
        ("extenders[0].filterVerb", "FieldValueRequired"),
        ("profiles[0].plugins.filter.enabled[0].name", "FieldValueInvalid"),
        ("profiles[0].plugins.sort", "FieldValueInvalid"),
        ("profiles[1].schedulerName", "FieldValueDuplicate"),
        ("profiles[1].percentageOfNodesToScore", "FieldValueTypeInvalid"),
        ("profiles[2].schedulerName", "FieldValueRequired"),
        ("profiles[2].plugins.queueSort", "FieldValueRequired"),
        ("profiles[2].plugins.queueSort", "FieldValueInvalid"),
        ("profiles[2].plugins.bind", "FieldValueRequired"),
    }


def test_only_one_queue_sort_plugin():
    """R152."""
    extra = {"OtherSort": PluginInfo(points=frozenset({"queueSort"}))}
    text = one_profile("{queueSort: {enabled: [{name: OtherSort}]}}")
    assert wrong(text, extra_plugins=extra) == {
        ("profiles[0].plugins.queueSort.enabled", "FieldValueInvalid")
    }


FIT = "profiles[0].pluginConfig[0].args.scoringStrategy"
RATIO = FIT + ".requestedToCapacityRatio"


@pytest.mark.parametrize(
    ("name", "args", "expected"),
    [
        ("NodeResourcesFit", "{scoringStrategy: {type: Best}}", {(FIT + ".type", "NotSupported")}),
        (
            "NodeResourcesFit",
            "{scoringStrategy: {resources: [{name: cpu, weight: -1}, {name: a, weight: 101}]}}",
            {(FIT + ".resources[0].weight", "Invalid"), (FIT + ".resources[1].weight", "Invalid")},
        ),
        (
            "NodeResourcesFit",
            "{scoringStrategy: {type: RequestedToCapacityRatio}}",
            {(RATIO, "Required")},
        ),
        (
            "NodeResourcesFit",
            "{scoringStrategy: {requestedToCapacityRatio: {shape: []}}}",
            {(RATIO, "Forbidden")},
        ),
        (
            "NodeResourcesFit",
            (
                "{scoringStrategy: {type: RequestedToCapacityRatio,"
                " requestedToCapacityRatio: {shape: []}}}"
            ),
            {(RATIO + ".shape", "Required")},
        ),
        (
            "NodeResourcesFit",
            (
                "{scoringStrategy: {type: RequestedToCapacityRatio,"
                " requestedToCapacityRatio: {shape:"
                " [{utilization: 50, score: 11}, {utilization: 50, score: 0},"
                " {utilization: 101, score: -1}]}}}"
            ),
            {
                (RATIO + ".shape[0].score", "Invalid"),
                (RATIO + ".shape[1].utilization", "Invalid"),
                (RATIO + ".shape[2].utilization", "Invalid"),
                (RATIO + ".shape[2].score", "Invalid"),
            },
        ),
        (
            "NodeResourcesFit",
            "{ignoredResources: [a b], ignoredResourceGroups: [x/y]}",
            {
                ("profiles[0].pluginConfig[0].args.ignoredResources[0]", "Invalid"),
                ("profiles[0].pluginConfig[0].args.ignoredResourceGroups[0]", "Invalid"),
            },
        ),
        (
            "NodeResourcesBalancedAllocation",
            "{resources: [{name: cpu, weight: 2}, {name: cpu}]}",
            {
                ("profiles[0].pluginConfig[0].args.resources[0].weight", "Invalid"),
                ("profiles[0].pluginConfig[0].args.resources[1].name", "Duplicate"),
            },
        ),
        (
            "InterPodAffinity",
            "{hardPodAffinityWeight: 101}",
            {("profiles[0].pluginConfig[0].args.hardPodAffinityWeight", "Invalid")},
        ),
        (
            "DefaultPreemption",
            "{minCandidateNodesPercentage: 0, minCandidateNodesAbsolute: 0}",
            {
                ("profiles[0].pluginConfig[0].args.minCandidateNodesPercentage", "Invalid"),
                ("profiles[0].pluginConfig[0].args.minCandidateNodesAbsolute", "Invalid"),
            },
        ),
        (
            "PodTopologySpread",
            (
                "{defaultConstraints: [{maxSkew: 0, topologyKey: '', whenUnsatisfiable: Never,"
                " labelSelector: {}}]}"
            ),
            {
                ("profiles[0].pluginConfig[0].args.defaultingType", "Invalid"),
                ("profiles[0].pluginConfig[0].args.defaultConstraints[0].maxSkew", "Invalid"),
                ("profiles[0].pluginConfig[0].args.defaultConstraints[0].topologyKey", "Required"),
                (
                    "profiles[0].pluginConfig[0].args.defaultConstraints[0].whenUnsatisfiable",
                    "NotSupported",
                ),
                (
                    "profiles[0].pluginConfig[0].args.defaultConstraints[0].labelSelector",
                    "Forbidden",
                ),
            },
        ),
        (
            "NodeAffinity",
            (
                "{emptyNodeSelectorTerm: some, addedAffinity:"
                " {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms: []}}}"
            ),
            {
                ("profiles[0].pluginConfig[0].args.emptyNodeSelectorTerm", "NotSupported"),
                (
                    (
                        "profiles[0].pluginConfig[0].args.addedAffinity."
                        "requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms"
                    ),
                    "Required",
                ),
            },
        ),
        (
            "NodeAffinity",
            "{kind: NodeResourcesFitArgs, other: 1}",
            {
                ("profiles[0].pluginConfig[0].args.kind", "Invalid"),
                ("profiles[0].pluginConfig[0].args.other", "Invalid"),
            },
        ),
    ],
)
def test_plugin_arguments_are_checked(name, args, expected):
    """R104, R107, C13: shape strictly increasing in 0-100, score 0-10, weights 1-100."""
    found = wrong(one_profile(config=f"[{{name: {name}, args: {args}}}]"))
    assert found == {(field, "FieldValue" + kind) for field, kind in expected}


@pytest.mark.parametrize(
    ("name", "args"),
    [
        ("NodeResourcesFit", "{scoringStrategy: {resources: [{name: cpu, weight: 0}, {name: a}]}}"),
        ("NodeResourcesBalancedAllocation", "{resources: [{name: cpu, weight: 0}, {name: a}]}"),
    ],
)
def test_a_resource_without_a_weight_or_with_0_weighs_1(name, args):
    """R107; apis/config/v1/defaults.go, v1.36."""
    document = one_profile(config=f"[{{name: {name}, args: {args}}}]")
    found = load(document).profiles[0].args[name]
    resources = getattr(found, "scoring_strategy", found).resources
    assert [(one.name, one.weight) for one in resources] == [("cpu", 1), ("a", 1)]


def test_operators_of_an_added_affinity_are_checked():
    args = (
        "{addedAffinity: {requiredDuringSchedulingIgnoredDuringExecution: {nodeSelectorTerms:"
        " [{matchExpressions: [{key: a, operator: In}, {key: b, operator: Gt, values: [x]}]}]},"
        " preferredDuringSchedulingIgnoredDuringExecution: [{weight: 0, preference: {}}]}}"
    )
    found = wrong(one_profile(config=f"[{{name: NodeAffinity, args: {args}}}]"))
    assert len(found) >= 1
    assert all("addedAffinity" in field for field, _ in found)


def test_text_that_is_no_document_is_one_error():
    assert wrong("{") == {("", "FieldValueInvalid")}
    assert wrong("- 1") == {("", "FieldValueInvalid")}
    assert wrong("{kind: Pod}") == {("kind", "FieldValueNotSupported")}
    assert wrong("{kind: KubeSchedulerConfiguration}") == {("apiVersion", "FieldValueRequired")}


# --- percentageOfNodesToScore ---


def test_a_percentage_above_100_acts_as_100_with_a_warning():
    """R170, C18."""
    configuration = load(V1 + "percentageOfNodesToScore: 250")
    assert configuration.percentage_of_nodes_to_score == 100
    assert configuration.warnings == ("percentageOfNodesToScore: 250 acts as 100",)


def test_a_profile_overrides_the_global_percentage_and_zero_is_kept():
    configuration = load(
        V1 + "percentageOfNodesToScore: 50\nprofiles: [{schedulerName: default-scheduler},"
        " {schedulerName: b, percentageOfNodesToScore: 0}]"
    )
    assert [p.percentage_of_nodes_to_score for p in configuration.profiles] == [50, 0]


def test_a_low_percentage_is_warned_about():
    """R179."""
    assert any("below 10" in w for w in load(V1 + "percentageOfNodesToScore: 4").warnings)


# --- the seeds' documents ---

ADDED_AFFINITY = """
apiVersion: kubescheduler.config.k8s.io/v1beta1
kind: KubeSchedulerConfiguration

profiles:
- schedulerName: default-scheduler
- schedulerName: foo-scheduler
  pluginConfig:
    - name: NodeAffinity
      args:
        addedAffinity:
          requiredDuringSchedulingIgnoredDuringExecution:
            nodeSelectorTerms:
            - matchExpressions:
              - key: scheduler-profile
                operator: In
                values:
                - foo
"""


def test_the_added_affinity_of_the_seeds_is_loaded_from_v1beta1():
    """R86, C16."""
    configuration = load(ADDED_AFFINITY)
    plain, foo = configuration.profiles
    assert plain.args["NodeAffinity"].added_affinity is None
    added = foo.args["NodeAffinity"].added_affinity
    term = added.required_during_scheduling_ignored_during_execution.node_selector_terms[0]
    assert term.match_expressions[0].values == ("foo",)
    assert not any("addedAffinity" in w for w in configuration.warnings)
    assert configuration.document["apiVersion"] == "kubescheduler.config.k8s.io/v1"


def test_an_added_affinity_on_the_default_scheduler_is_warned_about():
    """R87."""
    text = ADDED_AFFINITY.replace("- schedulerName: default-scheduler\n", "").replace(
        "foo-scheduler", "default-scheduler"
    )
    assert any("DaemonSets" in w for w in load(text).warnings)


def test_an_added_affinity_whose_labels_do_not_name_the_profile_is_warned_about():
    """R87."""
    text = ADDED_AFFINITY.replace("- foo\n", "- ssd\n").replace(
        "key: scheduler-profile", "key: disk"
    )
    assert any("cannot see why" in w for w in load(text).warnings)


def test_no_profile_for_pods_that_name_no_scheduler_is_warned_about():
    text = V1 + "profiles: [{schedulerName: other}]"
    assert any("stay pending" in w for w in load(text).warnings)


KEYS = st.sampled_from(
    [
        "profiles", "schedulerName", "plugins", "pluginConfig", "name", "args", "enabled",
        "disabled", "score", "filter", "multiPoint", "weight", "scoringStrategy", "type", "shape",
        "resources", "addedAffinity", "requiredDuringSchedulingIgnoredDuringExecution",
        "nodeSelectorTerms", "matchExpressions", "preferredDuringSchedulingIgnoredDuringExecution",
        "key", "operator", "values", "percentageOfNodesToScore", "predicates", "priorities",
        "argument", "requestedToCapacityRatioArguments", "labelsPresence", "algorithmSource",
        "defaultConstraints", "topologyKey", "utilization", "requestedToCapacityRatio", "extenders",
    ]
)  # fmt: skip
LEAVES = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-5, 200),
    st.floats(allow_nan=False),
    st.sampled_from(
        [
            "",
            "*",
            "NodeAffinity",
            "NodeResourcesFit",
            "PodTopologySpread",
            "In",
            "Gt",
            "a/b/c",
            "NodeResourcesMostAllocated",
            "RequestedToCapacityRatio",
            "SelectorSpread",
            "NodeResourcesLeastAllocated",
            "LeastRequestedPriority",
            "GeneralPredicates",
        ]
    ),
)  # fmt: skip
TREES = st.recursive(
    LEAVES,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(KEYS, inner, max_size=5)),
    max_leaves=25,
)
HEADS = st.sampled_from(
    [("v1", "Policy")]
    + [
        (f"kubescheduler.config.k8s.io/{v}", "KubeSchedulerConfiguration")
        for v in ("v1", "v1beta1", "v1beta2", "v1beta3", "v1alpha1", "v1alpha2")
    ]
)
PLUGIN_NAMES = st.sampled_from(
    ["NodeAffinity", "NodeResourcesFit", "PodTopologySpread", "RequestedToCapacityRatio", "X"]
)


@settings(max_examples=many(30, 300), deadline=None)
@given(HEADS, st.dictionaries(KEYS, TREES, max_size=6), PLUGIN_NAMES, TREES, TREES)
def test_any_document_loads_or_says_what_is_wrong(head, body, plugin, args, sets):
    entry = {"plugins": {"score": sets}, "pluginConfig": [{"name": plugin, "args": args}]}
    for extra in (body, {**body, "profiles": [entry, args]}, {"predicates": args, **body}):
        document = {**extra, "apiVersion": head[0], "kind": head[1]}
        with contextlib.suppress(Invalid):
            assert load(document).profiles


@pytest.mark.parametrize("wrong_type", [5, "x", {"a": 1}, [5], [None], ["x"]])
@pytest.mark.parametrize("version", ["v1", "v1beta2", "v1alpha1"])
def test_a_plugin_set_of_another_type_is_named(version, wrong_type):
    plugins = {"score": {"enabled": wrong_type}}
    document = {
        "apiVersion": f"kubescheduler.config.k8s.io/{version}",
        "kind": "KubeSchedulerConfiguration",
        **({"plugins": plugins} if version == "v1alpha1" else {"profiles": [{"plugins": plugins}]}),
    }
    assert all(
        field.startswith("profiles[0].plugins.score.enabled") for field, _ in wrong(document)
    )


def test_a_document_as_kube_scheduler_writes_it_loads():
    """``--write-config-to`` of 1.36, shortened where plugins repeat; 1.37 adds a point."""
    text = """
apiVersion: kubescheduler.config.k8s.io/v1
clientConnection: {acceptContentTypes: "", burst: 100, contentType: application/json, kubeconfig: "", qps: 50}
delayCacheUntilActive: false
enableContentionProfiling: true
enableProfiling: true
kind: KubeSchedulerConfiguration
leaderElection:
  leaderElect: true
  leaseDuration: 15s
  renewDeadline: 10s
  resourceLock: leases
  resourceName: kube-scheduler
  resourceNamespace: kube-system
  retryPeriod: 2s
parallelism: 16
percentageOfNodesToScore: 0
podInitialBackoffSeconds: 1
podMaxBackoffSeconds: 10
profiles:
- pluginConfig:
  - {args: {apiVersion: kubescheduler.config.k8s.io/v1, kind: DefaultPreemptionArgs, minCandidateNodesAbsolute: 100, minCandidateNodesPercentage: 10}, name: DefaultPreemption}
  - {args: {apiVersion: kubescheduler.config.k8s.io/v1, hardPodAffinityWeight: 1, ignorePreferredTermsOfExistingPods: false, kind: InterPodAffinityArgs}, name: InterPodAffinity}
  - {args: {apiVersion: kubescheduler.config.k8s.io/v1, kind: NodeAffinityArgs}, name: NodeAffinity}
  - {args: {apiVersion: kubescheduler.config.k8s.io/v1, defaultingType: System, kind: PodTopologySpreadArgs}, name: PodTopologySpread}
  plugins:
    bind: {}
    filter: {}
    multiPoint:
      enabled: [{name: SchedulingGates, weight: 0}, {name: PrioritySort, weight: 0}, {name: NodeResourcesFit, weight: 1}, {name: TaintToleration, weight: 3}, {name: DefaultBinder, weight: 0}]
    permit: {}
    placementGenerate: {}
    placementScore: {}
    podGroupPostFilter: {}
    postBind: {}
    score: {}
  schedulerName: default-scheduler
"""  # noqa: E501  # as it is written
    configuration = load(text)
    assert not any("placement" in one or "podGroup" in one for one in configuration.warnings)
    assert configuration.percentage_of_nodes_to_score == 0


def test_points_for_groups_of_pods_name_plugins_of_kube_scheduler():
    def plugins(**sets):
        return {
            "apiVersion": "kubescheduler.config.k8s.io/v1",
            "kind": "KubeSchedulerConfiguration",
            "profiles": [{"plugins": sets}],
        }

    known = {"enabled": [{"name": "TopologyPlacementGenerator"}], "disabled": [{"name": "*"}]}
    (warning,) = load(plugins(placementGenerate=known)).warnings
    assert "TopologyPlacementGenerator has no effect" in warning
    with pytest.raises(Invalid) as refused:
        load(plugins(placementScore={"enabled": [{"name": "Mine"}]}))
    (error,) = refused.value.errors
    assert error.field == "profiles[0].plugins.placementScore.enabled[0].name"
