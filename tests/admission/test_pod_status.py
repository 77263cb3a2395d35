"""What an agent may report: pkg/apis/core/validation ``ValidatePodStatusUpdate``, v1.36."""

from typing import Any

import pytest

from clusterstate.admission.validation.core.options import CURRENT
from clusterstate.admission.validation.pods.pod_status import (
    may_run_again,
    validate_pod_status_update,
)
from clusterstate.objects.values.meta import Manifest

ENDED_WELL: Manifest = {"terminated": {"exitCode": 0}}
FAILED: Manifest = {"terminated": {"exitCode": 42}}
RUNNING: Manifest = {"running": {}}


def pod(status: Manifest, **spec: Any) -> Manifest:
    return {
        "metadata": {"name": "p", "namespace": "default", "resourceVersion": "1"},
        "spec": {"containers": [{"name": "c"}], "restartPolicy": "Always", **spec},
        "status": status,
    }


def told(status: Manifest, before: Manifest | None = None, **spec: Any) -> list[tuple[str, str]]:
    """Return field and words of what is wrong with a status that follows on ``before``."""
    errors = validate_pod_status_update(pod(status, **spec), pod(before or {}, **spec), CURRENT)
    return [(error.field, error.detail) for error in errors]


def of(state: Manifest, field: str = "containerStatuses", name: str = "c") -> Manifest:
    return {field: [{"name": name, "state": state}]}


def rule(action: str, operator: str = "In", *codes: int) -> Manifest:
    return {"action": action, "exitCodes": {"operator": operator, "values": list(codes)}}


# Containers that run again --------------------------------------------------------------------

AGAIN = "may not be transitioned to non-terminated state"


@pytest.mark.parametrize(
    ("of_pod", "own", "rules", "state", "may"),
    [
        ("Always", None, [], ENDED_WELL, True),
        ("OnFailure", None, [], FAILED, True),
        ("OnFailure", None, [], ENDED_WELL, False),
        ("Never", None, [], FAILED, False),
        ("Never", "Always", [], ENDED_WELL, True),
        ("Never", "OnFailure", [], FAILED, True),
        ("Never", "OnFailure", [], ENDED_WELL, False),
        ("Always", "Never", [], FAILED, False),
        ("Always", "OnFailure", [], ENDED_WELL, False),
        ("Never", "Never", [rule("Restart", "In", 42)], FAILED, True),
        ("Never", "Never", [rule("Restart", "In", 42)], ENDED_WELL, False),
        ("Never", "Never", [rule("Restart", "NotIn", 0)], FAILED, True),
        ("Never", "Never", [rule("Restart", "NotIn", 42)], FAILED, False),
        ("Never", "Always", [rule("Restart", "In", 1)], ENDED_WELL, True),
    ],
)
@pytest.mark.parametrize(
    ("field", "spec_field"),
    [("containerStatuses", "containers"), ("initContainerStatuses", "initContainers")],
)
def test_a_container_runs_again_where_its_policy_says_so(
    of_pod, own, rules, state, may, field, spec_field
):
    container = {"name": "x", "restartPolicyRules": rules}
    if own:
        container["restartPolicy"] = own
    spec = {"restartPolicy": of_pod, spec_field: [container]}
    found = told(of(RUNNING, field, "x"), of(state, field, "x"), **spec)
    assert found == ([] if may else [(f"status.{field}[0].state", AGAIN)])
    assert told(of(state, field, "x"), of(state, field, "x"), **spec) == []


def test_a_rule_to_restart_all_lets_each_container_run_again() -> None:
    watched = {
        "name": "w",
        "restartPolicy": "Never",
        "restartPolicyRules": [rule("RestartAllContainers", "In", 7)],
    }
    spec = {"restartPolicy": "Never", "containers": [{"name": "c"}, watched]}
    assert told(of(RUNNING), of(ENDED_WELL), **spec) == []
    assert may_run_again({"name": "c"}, spec, 0)
    assert not may_run_again({"name": "c"}, {"restartPolicy": "Never"}, 0)


def test_an_ephemeral_container_and_one_the_spec_lacks_never_run_again() -> None:
    field = "ephemeralContainerStatuses"
    spec = {"ephemeralContainers": [{"name": "e"}]}
    found = told(of(RUNNING, field, "e"), of(FAILED, field, "e"), **spec)
    assert found == [(f"status.{field}[0].state", AGAIN)]
    assert told(of(RUNNING, name="other"), of(FAILED, name="other")) == [
        ("status.containerStatuses[0].state", AGAIN)
    ]


# Parts of a status ----------------------------------------------------------------------------

CLAIMS: Any = {"resourceClaims": [{"name": "a", "resourceClaimTemplateName": "t"}]}
DEVICE: Any = {
    "containers": [
        {
            "name": "c",
            "resources": {
                "requests": {"example.com/gpu": "1"},
                "claims": [{"name": "a"}, {"name": "b", "request": "first"}],
            },
        }
    ]
}


def allocated(name: str, *resources: Manifest) -> Manifest:
    one: Manifest = {"name": name, "resources": list(resources)}
    return {"containerStatuses": [{"name": "c", "allocatedResourcesStatus": [one]}]}


def user(**numbers: Any) -> Manifest:
    return {"containerStatuses": [{"name": "c", "user": {"linux": numbers}}]}


def mapped(*mappings: tuple[str, str, str], claim: str = "made") -> Manifest:
    names = ("containerName", "resourceName", "requestName")
    listed = [dict(zip(names, one, strict=True)) for one in mappings]
    return {"extendedResourceClaimStatus": {"requestMappings": listed, "resourceClaimName": claim}}


GPU = ("c", "example.com/gpu", "container-0-request-0")
OF_CLAIMS = "status.resourceClaimStatuses"
OF_DEVICES = "status.containerStatuses[0].allocatedResourcesStatus[0]"
OF_EXTENDED = "status.extendedResourceClaimStatus"


@pytest.mark.parametrize(
    ("status", "spec", "fields"),
    [
        ({"conditions": [{"type": "Ready"}, {"type": "example.com/x"}]}, {}, []),
        ({"conditions": [{"type": "-"}]}, {}, ["status.conditions[0].Type"]),
        (
            {"conditions": [{"type": "Ready", "observedGeneration": -1}]},
            {},
            ["status.conditions[0].observedGeneration"],
        ),
        ({"observedGeneration": -1}, {}, ["status.observedGeneration"]),
        ({"qosClass": "Guaranteed"}, {}, ["status.qosClass"]),
        ({"nominatedNodeName": "n"}, {}, []),
        ({"nominatedNodeName": "N"}, {}, ["status.nominatedNodeName"]),
        ({"nominatedNodeName": "n"}, {"nodeName": "m"}, ["status.nominatedNodeName"]),
        ({"podIPs": [{"ip": "10.0.0.1"}, {"ip": "2001:db8::1"}]}, {}, []),
        ({"podIPs": [{"ip": "10.0.0.1"}, {"ip": "10.0.0.2"}]}, {}, ["status.podIPs"]),
        ({"podIPs": [{"ip": "10.0.0.x"}]}, {}, ["status.podIPs[0]"]),
        ({"podIPs": [{"ip": "010.0.0.1"}]}, {}, ["status.podIPs[0]"]),
        (
            {"podIPs": [{"ip": "10.0.0.1"}, {"ip": "2001:db8::1"}, {"ip": "10.0.0.3"}]},
            {},
            ["status.podIPs"],
        ),
        ({"hostIP": "10.0.0.1", "hostIPs": [{"ip": "10.0.0.1"}]}, {}, []),
        ({"hostIPs": [{"ip": "10.0.0.1"}]}, {}, ["status.hostIPs[0].ip"]),
        ({"hostIP": "x", "hostIPs": [{"ip": "x"}]}, {}, ["status.hostIPs[0]"]),
        (
            {"hostIP": "::1", "hostIPs": [{"ip": "::1"}, {"ip": "::2"}]},
            {},
            ["status.hostIPs"],
        ),
        ({"resourceClaimStatuses": [{"name": "a", "resourceClaimName": "p-a-x"}]}, CLAIMS, []),
        ({"resourceClaimStatuses": [{"name": "a"}]}, CLAIMS, []),
        ({"resourceClaimStatuses": [{"name": "b"}]}, CLAIMS, [f"{OF_CLAIMS}[0].name"]),
        (
            {"resourceClaimStatuses": [{"name": "a"}, {"name": "a"}]},
            CLAIMS,
            [f"{OF_CLAIMS}[1].name"],
        ),
        (
            {"resourceClaimStatuses": [{"name": "a", "resourceClaimName": "%$!#"}]},
            CLAIMS,
            [f"{OF_CLAIMS}[0].name"],
        ),
        (user(uid=0, gid=0, supplementalGroups=[100]), {}, []),
        (user(uid=1), {"os": {"name": "windows"}}, ["status.containerStatuses[0].user.linux"]),
        (
            user(uid=-1, gid=2**31, supplementalGroups=[1, -1]),
            {"os": {"name": "linux"}},
            [
                "status.containerStatuses[0].user.linux.uid",
                "status.containerStatuses[0].user.linux.gid",
                "status.containerStatuses[0].user.linux.supplementalGroups[1]",
            ],
        ),
        (allocated("example.com/gpu", {"resourceID": "g1", "health": "Healthy"}), DEVICE, []),
        (allocated("claim:a"), DEVICE, []),
        (allocated("claim:b/first"), DEVICE, []),
        (allocated("claim:b"), DEVICE, [f"{OF_DEVICES}.name"]),
        (allocated("cpu"), DEVICE, [f"{OF_DEVICES}.name"]),
        (
            allocated(
                "example.com/gpu",
                {"resourceID": "g1", "health": "Healthy"},
                {"resourceID": "g1", "health": "bad"},
            ),
            DEVICE,
            [f"{OF_DEVICES}.resources[1].health", f"{OF_DEVICES}.resources[1].resourceID"],
        ),
        (
            {
                "ephemeralContainerStatuses": [
                    {"name": "e", "allocatedResourcesStatus": [{"name": "cpu"}]}
                ]
            },
            {},
            ["status.ephemeralContainerStatuses[0].allocatedResourcesStatus"],
        ),
        (mapped(GPU), DEVICE, []),
        (mapped(), DEVICE, [f"{OF_EXTENDED}.requestMappings"]),
        (mapped(GPU, claim=""), DEVICE, [f"{OF_EXTENDED}.resourceClaimName"]),
        (mapped(GPU, claim="-"), DEVICE, [f"{OF_EXTENDED}.resourceClaimName"]),
        (
            mapped(("other", *GPU[1:])),
            DEVICE,
            [f"{OF_EXTENDED}.requestMappings[0].containerName"],
        ),
        (
            mapped(("c", "example.com/other", "r")),
            DEVICE,
            [f"{OF_EXTENDED}.requestMappings[0].resourceName"],
        ),
        (mapped(("c", "example.com/gpu", "R")), DEVICE, [f"{OF_EXTENDED}.requestName"]),
        (
            mapped(GPU, GPU),
            DEVICE,
            [
                f"{OF_EXTENDED}.requestMappings[1].{name}"
                for name in ("containerName", "resourceName", "requestName")
            ],
        ),
    ],
)
def test_what_an_agent_may_not_say(status, spec, fields):
    assert [field for field, _ in told(status, **spec)] == fields


def test_malformed_addresses_that_were_there_may_stay() -> None:
    status = {"podIPs": [{"ip": "x"}], "hostIP": "y", "hostIPs": [{"ip": "y"}]}
    assert told(status, status) == []
