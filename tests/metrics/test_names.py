"""Names, types, labels and buckets are those of Kubernetes."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from api.forms import exposition
from api.server import metrics
from clusterstate.telemetry.metrics import families
from tests.metrics.kubernetes import PROGRAMS

_PREFIXES = ("apiserver_", "scheduler_", "kube_", "process_", "stowage_")


def test_what_has_kubernetes_name_has_its_type_labels_and_buckets() -> None:
    found = {
        family.name: (
            family.kind,
            " ".join(family.labels),
            " ".join(map(exposition.bound_text, family.bounds)),
        )
        for family in families.FAMILIES.values()
        if family.source
    }
    assert found == {name: PROGRAMS[name] for name in found}


def test_what_is_our_own_has_our_prefix() -> None:
    ours = [family.name for family in families.FAMILIES.values() if not family.source]
    assert [name for name in ours if not name.startswith("stowage_")] == []


def test_labels_are_written_so_that_any_value_can_be_read_back() -> None:
    value = 'a "quoted"\\ \n value'
    text = f"# TYPE x gauge\nx{{{families.labels_text([('l', value)])}}} 1\n"
    (family,) = text_string_to_metric_families(text)
    assert family.samples[0].labels == {"l": value}


@pytest.mark.django_db(transaction=True)
def test_a_scrape_can_be_parsed_and_each_metric_is_told_once() -> None:
    series = metrics.apiserver.durations.of(
        "GET", "", "", "v1", "pods", "", "resource", "apiserver"
    )
    series.observe(0.07)
    text = metrics.text()
    found = list(text_string_to_metric_families(text))
    names = [family.name for family in found]
    assert len(names) == len(set(names))
    assert [name for name in names if not name.startswith(_PREFIXES)] == []
    for family in found:
        assert family.documentation
        name = family.name + ("_total" if family.type == "counter" else "")
        if name not in PROGRAMS:
            continue
        type_, labels, bounds = PROGRAMS[name]
        assert family.type == type_
        for sample in family.samples:
            assert sample.labels.keys() - {"le"} == set(labels.split()), sample
        told = {s.labels["le"] for s in family.samples if s.name.endswith("_bucket")}
        assert not told or told == {*bounds.split(), "+Inf"}
