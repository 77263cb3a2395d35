"""Each vectorised plugin judges and scores every node as its plain statement does."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduling.framework.configuration import BUILT_IN
from tests import harness
from tests.conformance import plugin_cases
from tests.conformance.cluster_cases import differences
from tests.strategies import (
    EXTENDED,
    Manifest,
    by_chance,
    clusters,
    node_affinities,
    pods,
    spread_constraints,
    twisted,
)

_weights = st.integers(1, 5)
_resources = st.lists(
    st.builds(
        lambda name, weight: {"name": name, "weight": weight},
        st.sampled_from(("cpu", "memory", "ephemeral-storage", EXTENDED)),
        _weights,
    ),
    min_size=1,
    max_size=4,
    unique_by=lambda entry: entry["name"],
)
_shape = st.builds(
    lambda points: [{"utilization": x, "score": y} for x, y in sorted(points.items())],
    st.dictionaries(st.integers(0, 100), st.integers(0, 10), min_size=1, max_size=3),
)


def _strategy(kind: str, resources: list[Manifest], shape: list[Manifest]) -> Manifest:
    strategy: Manifest = {"type": kind, "resources": resources}
    if kind == "RequestedToCapacityRatio":
        strategy["requestedToCapacityRatio"] = {"shape": shape}
    return strategy


_fit = st.builds(
    lambda strategy, ignored, groups: {
        "scoringStrategy": strategy,
        "ignoredResources": ignored,
        "ignoredResourceGroups": groups,
    },
    st.builds(
        _strategy,
        st.sampled_from(("LeastAllocated", "MostAllocated", "RequestedToCapacityRatio")),
        _resources,
        _shape,
    ),
    st.sampled_from(([], [EXTENDED])),
    st.sampled_from(([], ["example.com"])),
)


def _default_constraint(constraint: Manifest) -> Manifest:
    kept = ("topologyKey", "maxSkew", "whenUnsatisfiable")
    return {key: constraint[key] for key in kept}


_spread = st.one_of(
    st.just({"defaultingType": "System"}),
    st.builds(
        lambda constraints: {"defaultingType": "List", "defaultConstraints": constraints},
        st.lists(
            spread_constraints.map(_default_constraint),
            max_size=2,
            unique_by=lambda c: (c["topologyKey"], c["whenUnsatisfiable"]),
        ),
    ),
)
_inter_pod = st.builds(
    lambda weight, ignore: {
        "hardPodAffinityWeight": weight,
        "ignorePreferredTermsOfExistingPods": ignore,
    },
    st.integers(0, 3),
    st.booleans(),
)
_nothing: st.SearchStrategy[Manifest] = st.just({})
ARGS: dict[str, st.SearchStrategy[Manifest]] = {
    "NodeUnschedulable": _nothing,
    "NodeName": _nothing,
    "TaintToleration": _nothing,
    "NodeAffinity": st.one_of(_nothing, st.builds(lambda a: {"addedAffinity": a}, node_affinities)),
    "NodePorts": _nothing,
    "NodeResourcesFit": _fit,
    "NodeResourcesBalancedAllocation": _resources.map(
        lambda resources: {"resources": [{**entry, "weight": 1} for entry in resources]}
    ),
    "PodTopologySpread": _spread,
    "InterPodAffinity": _inter_pod,
    "ImageLocality": _nothing,
    "NodeDeclaredFeatures": _nothing,
}
FILTERS = [name for name in ARGS if "filter" in BUILT_IN[name].points]
SCORES = [name for name in ARGS if "score" in BUILT_IN[name].points]


def _agree(case: Manifest, data: st.DataObject) -> None:
    case = data.draw(twisted(case))
    plain: dict[str, Any] = plugin_cases.run_reference(case)
    vectorised = harness.run_plugin_case(case)
    assert differences(plain, vectorised) == []


@pytest.mark.parametrize("plugin", FILTERS)
@by_chance
@given(data=st.data())
def test_filter_agrees_with_the_plain_rule(plugin: str, data: st.DataObject) -> None:
    case = data.draw(clusters())
    case |= {"plugin": plugin, "kind": "filter", "pod": data.draw(pods()), "expect": {}}
    case["args"] = data.draw(ARGS[plugin])
    case["expect"]["preFilter"] = {}
    _agree(case, data)


@pytest.mark.parametrize("plugin", SCORES)
@by_chance
@given(data=st.data())
def test_score_agrees_with_the_plain_rule(plugin: str, data: st.DataObject) -> None:
    case = data.draw(clusters())
    names = [node["metadata"]["name"] for node in case["nodes"]]
    case |= {"plugin": plugin, "kind": "score", "pod": data.draw(pods()), "expect": {}}
    case["args"] = data.draw(ARGS[plugin])
    case["candidates"] = data.draw(
        st.one_of(st.just(names), st.lists(st.sampled_from(names), min_size=1, unique=True))
    )
    _agree(case, data)
