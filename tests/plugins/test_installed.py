"""Plugins of other packages: found, checked, and told apart from those that cannot be used."""

import sys
from importlib.metadata import EntryPoint
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterstate.objects.values.errors import Invalid
from scheduling.engine.reference.cycle import Options, PodToPlace, schedule_batch, schedule_pod
from scheduling.engine.snapshot import Snapshot
from scheduling.engine.snapshot.requirements import from_pod
from scheduling.framework.configuration import PluginInfo
from scheduling.framework.configuration.documents import load
from scheduling.framework.runtime import ConfigurationError, Framework
from scheduling.plugins import catalogue, installed
from tests.builders import make_node, make_pod
from tests.plugins.packages import OUTSIDE, install, on_path

LIGHTS = "example.com/blinking-lights"


@pytest.fixture(scope="module")
def package(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The plugins of `tests/plugins/outside`, installed into a folder."""
    folder = tmp_path_factory.mktemp("outside")
    install(OUTSIDE, folder)
    return folder


@pytest.fixture
def framework(package: Path):
    """Make the default profile with more plugins: name to (weight, arguments)."""
    with on_path(package):

        def make(**plugins: tuple[int, dict[str, object]]) -> Framework:
            document = {
                "apiVersion": "kubescheduler.config.k8s.io/v1",
                "kind": "KubeSchedulerConfiguration",
                "profiles": [
                    {
                        "plugins": {
                            "multiPoint": {
                                "enabled": [
                                    {"name": name, "weight": weight}
                                    for name, (weight, _) in plugins.items()
                                ]
                            }
                        },
                        "pluginConfig": [
                            {"name": name, "args": args}
                            for name, (_, args) in plugins.items()
                            if args
                        ],
                    }
                ],
            }
            return catalogue.build_framework(catalogue.load_configuration(document).profiles[0])

        yield make


def cluster(lights: list[int]) -> Snapshot:
    snapshot = Snapshot()
    for number, count in enumerate(lights):
        snapshot.set_node(make_node(f"n{number}").labelled({LIGHTS: str(count)}).build())
    return snapshot


def decide(framework: Framework, snapshot: Snapshot):
    pod = PodToPlace("p", snapshot.intern(from_pod(make_pod("p").build())))
    return schedule_pod(snapshot, framework, pod, Options(tie_break="first", full=True))


def test_a_plugin_of_another_package_ranks_nodes(framework) -> None:
    """R158, R168, R169: the seeds' BlinkingLightScorer, found by its entry point."""
    run = framework(BlinkingLightScorer=(10, {}))
    decision = decide(run, cluster([2, 0, 4]))
    assert decision.node_name == "n2"
    table = decision.full.nodes
    assert [table[name].raw["BlinkingLightScorer"] for name in sorted(table)] == [2, 0, 4]
    assert [table[name].normalized["BlinkingLightScorer"] for name in sorted(table)] == [50, 0, 100]
    assert table["n2"].weighted["BlinkingLightScorer"] == 1000
    assert run.third_party == {"BlinkingLightScorer"}


@given(st.lists(st.integers(0, 10**6), min_size=1, max_size=8))
def test_no_division_by_zero_and_no_score_out_of_range(lights: list[int]) -> None:
    """C19: all nodes dark, or some, or none."""
    namespace: dict[str, object] = {}
    exec((OUTSIDE / "blinking_lights.py").read_text(), namespace)
    scorer = namespace["BlinkingLightScorer"]()  # type: ignore[operator]
    scores = {f"n{number}": count for number, count in enumerate(lights)}
    scorer.normalize_scores(scores)
    assert all(0 <= score <= 100 for score in scores.values())
    highest = max(lights)
    assert max(scores.values()) == (100 if highest else 0)


def test_a_vectorised_plugin_of_another_package_sees_the_columns(framework) -> None:
    snapshot = Snapshot()
    for name, rack in (("a", "one"), ("b", "one"), ("c", "two")):
        snapshot.set_node(make_node(name).labelled({"rack": rack}).build())
    snapshot.add_pod("x", snapshot.intern(from_pod(make_pod("x").build())), "a")
    run = framework(QuietRack=(100, {"rackLabel": "rack"}))
    decision = decide(run, snapshot)
    assert decision.node_name == "c"
    assert decision.full.nodes["b"].raw["QuietRack"] == 1


def test_a_batch_with_such_plugins_decides_as_one_by_one(framework) -> None:
    run = framework(BlinkingLightScorer=(10, {}))
    snapshot = cluster([1, 3])
    info = snapshot.intern(from_pod(make_pod("p").build()))
    decided = schedule_batch(snapshot, run, [PodToPlace(number, info) for number in range(3)])
    assert {decision.node_name for decision in decided} == {"n1"}


def refused(document: dict[str, object], **plugins: PluginInfo) -> list[str]:
    with pytest.raises(Invalid) as caught:
        load(
            {"apiVersion": "kubescheduler.config.k8s.io/v1", **document},
            extra_plugins=plugins,
        )
    return [f"{error.field}: {error.detail}" for error in caught.value.errors]


def entry(name: str, value: str) -> EntryPoint:
    return EntryPoint(name, value, installed.GROUP)


@pytest.mark.parametrize(
    ("value", "problem"),
    [
        ("nowhere:Plugin", "cannot be loaded: ModuleNotFoundError"),
        ("json:dumps", "json:dumps is not a class"),
        ("json:JSONDecoder", "the class JSONDecoder names itself None"),
    ],
)
def test_what_cannot_be_used_says_why_when_it_is_named(value: str, problem: str) -> None:
    found = installed.read([entry("Odd", value)])
    assert problem in found["Odd"].info.problem
    profile = {"plugins": {"score": {"enabled": [{"name": "Odd"}]}}}
    errors = refused(
        {"kind": "KubeSchedulerConfiguration", "profiles": [profile]}, Odd=found["Odd"].info
    )
    assert errors[0].startswith("profiles[0].plugins.score.enabled[0].name: plugin of an unknown")
    assert problem in errors[0]
    with pytest.raises(ConfigurationError, match="Odd"):
        found["Odd"].make(installed.NoArgs())


def test_two_packages_with_the_same_plugin_are_told_apart_from_neither() -> None:
    found = installed.read([entry("Odd", "json:dumps"), entry("Odd", "json:loads")])
    assert "both" in found["Odd"].info.problem


def test_a_default_plugin_cannot_be_replaced() -> None:
    assert installed.read([entry("NodeName", "json:JSONDecoder")]) == {}


def test_arguments_are_checked_where_they_stand(framework) -> None:
    with pytest.raises(Invalid) as caught:
        framework(Gang=(1, {"size": 0}), BlinkingLightScorer=(1, {"colour": "red"}))
    fields = [error.field for error in caught.value.errors]
    assert fields == ["profiles[0].pluginConfig[0].args.size", "profiles[0].pluginConfig[1].args"]


def test_a_package_that_came_later_is_found_when_a_configuration_names_its_plugin(
    tmp_path: Path,
) -> None:
    """Nothing is started again; without it the plugin is unknown, as before."""
    document = {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "profiles": [{"plugins": {"score": {"enabled": [{"name": "BlinkingLightScorer"}]}}}],
    }
    with pytest.raises(Invalid):
        catalogue.load_configuration(document)
    install(OUTSIDE, tmp_path)
    sys.path.insert(0, str(tmp_path))
    try:
        (profile,) = catalogue.load_configuration(document).profiles
        assert "BlinkingLightScorer" in catalogue.build_plugins(profile)
    finally:
        sys.path.remove(str(tmp_path))
        for module in tmp_path.glob("*.py"):
            sys.modules.pop(module.stem, None)
        assert installed.look_again()
    with pytest.raises(Invalid):
        catalogue.load_configuration(document)
