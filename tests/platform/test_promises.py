"""What `docs/scheduling.md` says is there, and is so: statements that are duties to document."""

import re
from pathlib import Path

import pytest

from clusterstate.objects.registry import wire_types
from scheduling.framework.configuration.documents import load
from tests.harness import KUBERNETES
from tests.perf.workloads import SCHEDULER_PERF

PAGE = (Path(__file__).resolve().parents[2] / "docs" / "scheduling.md").read_text()
SENTENCES = " ".join(PAGE.split())


@pytest.mark.parametrize(
    "sentence",
    [
        pytest.param("There are no levels of preference", id="R39"),
        pytest.param("Labels are stored as JSON with a GIN index", id="R38"),
        pytest.param("the same as appending it to each of the ORed terms", id="R55"),
        pytest.param("it cannot negate, compare numbers or name sets of values", id="R56"),
        pytest.param("Other scheduling policies, such as affinity, taints and spread", id="R61"),
        pytest.param(
            "Stowage does not detect the features of nodes or label nodes for them", id="R62"
        ),
        pytest.param(
            "Interference between pods is not measured: it counts only if you state it", id="R70"
        ),
        pytest.param("Kubernetes advises against it above several hundred nodes", id="R103"),
        pytest.param("Kubernetes had a feature gate `PodOverhead`", id="R148"),
        pytest.param("does it in `normalize`: it is called once for each cycle", id="R159"),
    ],
)
def test_the_page_says_it(sentence: str) -> None:
    assert sentence in SENTENCES


def test_the_plugins_that_the_page_names_are_on_by_default() -> None:
    """R70."""
    profile = load(KUBERNETES).profile("default-scheduler")
    assert profile is not None
    enabled = {use.name for uses in profile.points.values() for use in uses}
    named = set(re.findall(r"`((?:Node|Taint|Inter|Pod|Image)[A-Z]\w+)`", PAGE)) - {"PodOverhead"}
    assert named >= {"NodeResourcesFit", "InterPodAffinity", "ImageLocality", "TaintToleration"}
    assert named <= enabled


def test_the_cost_of_affinity_between_pods_is_measured_as_the_page_says() -> None:
    """R103: required and preferred, near and away, beside pods that have none."""
    terms = {
        (side, rule)
        for workload in SCHEDULER_PERF
        for pod in (workload.pod, workload.init_pod or workload.pod)
        for number in range(5)
        for side, rules in (pod(number)["spec"].get("affinity") or {}).items()
        for rule in rules
        if side != "nodeAffinity"
    }
    assert len(terms) == 4, terms


def test_a_preference_has_a_weight_and_nothing_else_that_says_how_much() -> None:
    """R39."""
    assert set(wire_types.PreferredSchedulingTerm.__struct_fields__) == {
        "weight", "preference", "matchExpressions", "matchFields",
    }  # fmt: skip


def test_a_runtime_class_selects_by_a_map_of_texts() -> None:
    """R56, R45."""
    fields = wire_types.Scheduling.__annotations__
    assert set(fields) == {"nodeSelector", "tolerations"}
    assert "dict[str, str]" in str(fields["nodeSelector"])


def test_the_pages_that_the_readme_and_other_pages_name_are_there() -> None:
    """R63: what is documented can be found."""
    root = Path(__file__).resolve().parents[2]
    pages = (root / "README.md", *(root / "docs").glob("*.md"))
    assert sum(len(named_in(page)) for page in pages) > 10
    assert [missing for page in pages for missing in missing_in(page)] == []


def named_in(page: Path) -> list[str]:
    return re.findall(r"\]\(([\w/.-]+\.md)\)", page.read_text())


def missing_in(page: Path) -> list[str]:
    return [name for name in named_in(page) if not (page.parent / name).is_file()]


def test_a_page_that_is_not_there_is_found(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("See [this](page.md) and [that](deep/gone.md).")
    assert missing_in(page) == ["deep/gone.md"]
