"""What of a pod a reason of the scheduler is about."""

from typing import Any

import msgspec
import pytest

from clusterstate.objects.rules.stated_terms import terms_for
from clusterstate.objects.values.pod import PodSpec

NODES = "node(s) didn't match Pod's node affinity/selector"
APART = "node(s) didn't match pod anti-affinity rules"
REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
SSD = {"key": "disk", "operator": "In", "values": ["ssd"]}
BY_ZONE = {"topologyKey": "zone", "labelSelector": {"matchLabels": {"app": "a"}}}


def told(reason: str, affinity: Any) -> tuple[str, ...]:
    spec = msgspec.convert({"containers": [], "affinity": affinity}, PodSpec)
    return terms_for(spec, reason)


@pytest.mark.parametrize(
    ("terms", "text"),
    [
        ([{"matchExpressions": [SSD]}], "disk=ssd"),
        ([{}, {"matchExpressions": [SSD]}], "disk=ssd"),
        ([{}], "no node"),
    ],
)
def test_a_term_without_requirements_matches_no_node(terms: list[Any], text: str) -> None:
    assert told(NODES, {"nodeAffinity": {REQUIRED: {"nodeSelectorTerms": terms}}}) == (text,)


@pytest.mark.parametrize(
    ("chosen", "text"),
    [
        ({}, ""),
        ({"namespaces": ["b", "a"]}, " in a,b"),
        ({"namespaceSelector": {}}, " in all namespaces"),
        ({"namespaceSelector": {"matchLabels": {"t": "x"}}}, " in namespaces with t=x"),
        ({"namespaces": ["b"], "namespaceSelector": {}}, " in b,all namespaces"),
    ],
)
def test_a_term_about_pods_says_in_which_namespaces(chosen: dict[str, Any], text: str) -> None:
    terms = [{**BY_ZONE, **chosen}]
    assert told(APART, {"podAntiAffinity": {REQUIRED: terms}}) == (f"app=a{text} by zone",)
