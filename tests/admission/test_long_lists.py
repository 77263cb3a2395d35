"""Judging an object takes time in proportion to its length: nobody's list stops the others.

A body may have 3 MiB. What compares each entry with all others takes a minute of the interpreter
for it, in which the process answers nobody.
"""

import time

import pytest

from clusterstate.objects.values.errors import Invalid
from tests.admission.context import create, pod

LONG = 5_000
SECONDS = 1.5
"""Of the processor, on a slow machine; what compares each with all others takes twice as much."""
SELECTOR = {"matchLabels": {"app": "web"}}


def container(**more):
    return {"name": "main", "image": "nginx", **more}


def each(make):
    return [make(number) for number in range(LONG)]


def spread(key):
    return {
        "maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": "DoNotSchedule",
        "labelSelector": SELECTOR,
    }  # fmt: skip


def job(values):
    rule = {"action": "Ignore", "onExitCodes": {"operator": "In", "values": values}}
    template = {"spec": {"containers": [container()], "restartPolicy": "Never"}}
    return {
        "apiVersion": "batch/v1", "kind": "Job",
        "metadata": {"name": "j", "namespace": "default"},
        "spec": {"template": template, "podFailurePolicy": {"rules": [rule] * 20}},
    }  # fmt: skip


CASES = {
    "spread": pod({"topologySpreadConstraints": each(lambda n: spread(f"k{n}"))}),
    "claims": pod(
        {
            "resourceClaims": each(lambda n: {"name": f"c{n}", "resourceClaimName": "x"}),
            "containers": [container(resources={"claims": each(lambda n: {"name": f"c{n}"})})],
        }
    ),
    "unknown claims": pod(
        {
            "resourceClaims": each(lambda n: {"name": f"c{n}", "resourceClaimName": "x"}),
            "containers": [container(resources={"claims": each(lambda n: {"name": f"u{n}"})})],
        }
    ),
    "exit codes": job(list(range(1, LONG))),
    "tolerations": pod({"tolerations": each(lambda n: {"key": f"k{n}", "operator": "Exists"})}),
    "ports": pod({"containers": [container(ports=each(lambda n: {"containerPort": n + 1}))]}),
    "containers": pod({"containers": each(lambda n: {"name": f"c{n}", "image": "nginx"})}),
    "mounts": pod(
        {
            "volumes": each(lambda n: {"name": f"v{n}", "emptyDir": {}}),
            "containers": [
                container(volumeMounts=each(lambda n: {"name": f"v{n}", "mountPath": f"/m{n}"}))
            ],
        }
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_a_long_list_is_judged_in_time(name):
    body = CASES[name]
    began = time.process_time()
    text = ""
    try:
        create(body, kind=body["kind"])
    except Invalid as error:
        text = str(error)
    assert time.process_time() - began < SECONDS
    assert len(text) < 10_000_000


def test_a_pair_that_stands_twice_is_told_where_it_stands_first():
    with pytest.raises(Invalid) as found:
        create(pod({"topologySpreadConstraints": [spread("a"), spread("b"), spread("a")]}))
    causes = found.value.details["causes"]
    assert [one["field"].split(".")[1] for one in causes] == ["topologySpreadConstraints[0]"]


def test_a_claim_overlaps_with_each_of_its_requests():
    claims = [{"name": "c", "request": r} for r in ("a", "b", "a")] + [{"name": "c"}]
    body = pod(
        {
            "resourceClaims": [{"name": "c", "resourceClaimName": "x"}],
            "containers": [container(resources={"claims": claims})],
        }
    )
    with pytest.raises(Invalid) as found:
        create(body)
    fields = [one["field"].rpartition(".")[2] for one in found.value.details["causes"]]
    assert fields == ["claims[2]", "claims[3]", "claims[3]"]
