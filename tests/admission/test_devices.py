"""What is refused of device claims, their statuses, slices and classes; names of addresses."""

import pytest

from clusterstate.admission.request import CREATE, UPDATE, AdmissionSettings
from clusterstate.admission.validation import validate
from clusterstate.admission.validation.core import formats
from clusterstate.objects.registry.kinds import KINDS
from clusterstate.objects.values.errors import Invalid
from tests.admission.context import Known, create

META = {"name": "n", "uid": "u", "resourceVersion": "1"}
IN_NAMESPACE = {**META, "namespace": "ns"}
WANTED = {"deviceClassName": "gpu", "allocationMode": "ExactCount", "count": 1}
REQUEST = {"name": "r", "exactly": WANTED}
CHOICE = {"name": "c", "firstAvailable": [{"name": "big", **WANTED}, {"name": "small", **WANTED}]}
OPAQUE = {"opaque": {"driver": "gpu.example.org", "parameters": {"a": 1}}}
SHARE = "3f2504e0-4f89-11d3-9a0c-0305e82c3301"
RESULT = {"request": "r", "driver": "gpu.example.org", "pool": "node-1", "device": "gpu-0"}
PLACE = {key: value for key, value in RESULT.items() if key != "request"}
NAME = "gpu.example.org/node-1/gpu-0"
CONDITION = {
    "type": "Ready", "status": "True", "reason": "Fine", "message": "",
    "lastTransitionTime": "2026-01-01T00:00:00Z",
}  # fmt: skip
UID = {"resource": "pods", "name": "p", "uid": "u"}


def told(kind, new, old=None, subresource=""):
    operation = CREATE if old is None else UPDATE
    found = validate(kind, operation, new, old, subresource, AdmissionSettings())
    return {one.field: one.detail for one in found}


def claim(**devices):
    spec = {"devices": {"requests": [REQUEST, CHOICE], **devices}}
    return {"metadata": IN_NAMESPACE, "spec": spec}


def with_status(**status):
    return {**claim(), "status": status}


def allocated(*results, **more):
    return {"devices": {"results": list(results) or [RESULT], **more}}


def test_claims_that_are_taken():
    assert told("ResourceClaim", claim()) == {}
    full = claim(
        constraints=[{"requests": ["r", "c/big"], "matchAttribute": "example.org/zone"}],
        config=[{"requests": ["c"], **OPAQUE}],
    )
    assert told("ResourceClaim", full) == {}
    spec = {"spec": full["spec"]}
    assert told("ResourceClaimTemplate", {"metadata": IN_NAMESPACE, "spec": spec}) == {}


def test_what_the_server_does_not_look_at():
    # validateExactDeviceRequest (validation.go, v1.36): nobody counts the tolerations, nor reads
    # the names of capacities.
    more = {
        "capacity": {"requests": {"no name": "1"}},
        "tolerations": [{"key": f"example.org/{n}", "operator": "Exists"} for n in range(17)],
    }
    request = {**REQUEST, "exactly": {**REQUEST["exactly"], **more}}
    assert told("ResourceClaim", claim(requests=[request])) == {}
    result = {**RESULT, "tolerations": more["tolerations"], "consumedCapacity": {"no name": "1"}}
    new = with_status(allocation=allocated(result))
    assert told("ResourceClaim", new, with_status(), "status") == {}


REQUESTS = "spec.devices.requests"


@pytest.mark.parametrize(
    ("devices", "field", "detail"),
    [
        ({"requests": [REQUEST, REQUEST]}, f"{REQUESTS}[1]", ""),
        ({"requests": [REQUEST] * 33}, REQUESTS, "at most 32"),
        ({"requests": [{**REQUEST, "name": "R"}]}, f"{REQUESTS}[0].name", "RFC 1123 label"),
        ({"requests": [{"name": "r"}]}, f"{REQUESTS}[0]", "exactly one of"),
        ({"requests": [{**REQUEST, **CHOICE}]}, f"{REQUESTS}[0]", "multiple fields"),
        (
            {"requests": [{"name": "r", "exactly": {**WANTED, "count": 0}}]},
            f"{REQUESTS}[0].exactly.count",
            "greater than zero",
        ),
        (
            {"requests": [{"name": "r", "exactly": {**WANTED, "selectors": [{}]}}]},
            f"{REQUESTS}[0].exactly.selectors[0].cel",
            "",
        ),
        (
            {"requests": [{"name": "c", "firstAvailable": [{"name": "x", **WANTED}] * 2}]},
            f"{REQUESTS}[0].firstAvailable[1]",
            "",
        ),
        (
            {"constraints": [{"requests": ["x"], "matchAttribute": "a/b"}]},
            "spec.devices.constraints[0].requests[0]",
            "must be the name of a request",
        ),
        ({"constraints": [{}]}, "spec.devices.constraints[0]", "exactly one of"),
        (
            {"constraints": [{"matchAttribute": "zone"}]},
            "spec.devices.constraints[0].matchAttribute",
            "a domain and a name",
        ),
        ({"config": [{}]}, "spec.devices.config[0].opaque", ""),
        (
            {"config": [{"opaque": {"driver": "d", "parameters": {"a": "b" * 10241}}}]},
            "spec.devices.config[0].opaque.parameters",
            "may not be more than",
        ),
    ],
)
def test_claims_that_are_refused(devices, field, detail):
    found = told("ResourceClaim", claim(**devices))
    assert field in found, found
    assert detail in found[field]


@pytest.mark.parametrize(
    ("labels", "allowed"),
    [({}, False), ({"resource.kubernetes.io/admin-access": "yes"}, False),
     ({"resource.kubernetes.io/admin-access": "true"}, True)],
)  # fmt: skip
@pytest.mark.parametrize("kind", ["ResourceClaim", "ResourceClaimTemplate"])
def test_devices_in_use_are_claimed_in_namespaces_for_that_alone(kind, labels, allowed):
    wanted = {"devices": {"requests": [{"name": "r", "exactly": {**WANTED, "adminAccess": True}}]}}
    spec = wanted if kind == "ResourceClaim" else {"spec": wanted}
    body = {"kind": kind, "metadata": {"name": "n", "namespace": "ns"}, "spec": spec}
    known = Known(namespaces={"ns": {"metadata": {"name": "ns", "labels": labels}}})
    if allowed:
        create(body, known, kind=kind)
    else:
        with pytest.raises(Invalid, match=r"exactly\.adminAccess: Forbidden: admin access to"):
            create(body, known, kind=kind)


def test_what_is_claimed_does_not_change():
    assert "spec" in told("ResourceClaim", claim(requests=[REQUEST]), claim())


def test_statuses_that_are_taken():
    old = with_status()
    device = {
        **PLACE, "conditions": [CONDITION], "data": {"a": 1},
        "networkData": {"interfaceName": "eth0", "ips": ["10.9.8.7/24", "2001:db8::1/64"]},
    }  # fmt: skip
    whole = with_status(allocation=allocated(), reservedFor=[UID], devices=[device])
    assert told("ResourceClaim", whole, old, "status") == {}
    assert told("ResourceClaim", whole, whole, "status") == {}
    shared = with_status(
        allocation=allocated({**RESULT, "shareID": SHARE}), devices=[{**PLACE, "shareID": SHARE}]
    )
    assert told("ResourceClaim", shared, old, "status") == {}


@pytest.mark.parametrize(
    ("status", "field", "detail"),
    [
        ({"reservedFor": [UID]}, "status.reservedFor", "may not be specified when"),
        ({"reservedFor": [{"uid": "u"}]}, "status.reservedFor[0].resource", ""),
        ({"allocation": allocated(), "reservedFor": [UID, UID]}, "status.reservedFor[1]", ""),
        ({"devices": [PLACE]}, "status.devices[0]", "must be an allocated device in the claim"),
        (
            {"allocation": allocated(), "devices": [{**PLACE, "shareID": SHARE}]},
            "status.devices[0]",
            "must be an allocated device in the claim",
        ),
        ({"allocation": allocated(), "devices": [PLACE, PLACE]}, "status.devices[1]", ""),
        (
            {"allocation": allocated(), "devices": [{**PLACE, "conditions": [CONDITION] * 2}]},
            "status.devices[0].conditions[1].type",
            "",
        ),
        (
            {"allocation": allocated(), "devices": [{**PLACE, "conditions": [{"type": "A"}]}]},
            "status.devices[0].conditions[0].reason",
            "must be set",
        ),
        (
            {"allocation": allocated(), "devices": [{**PLACE, "data": {"a": "b" * 10241}}]},
            "status.devices[0].data",
            "may not be more than",
        ),
        (
            {
                "allocation": allocated(),
                "devices": [{**PLACE, "networkData": {"ips": ["10.9.8.7"]}}],
            },
            "status.devices[0].networkData.ips[0]",
            "must be a valid address in CIDR form",
        ),
        (
            {
                "allocation": allocated(),
                "devices": [{**PLACE, "networkData": {"ips": ["2001:DB8::1/64"]}}],
            },
            "status.devices[0].networkData.ips[0]",
            'must be in canonical form ("2001:db8::1/64")',
        ),
        (
            {"allocation": allocated({**RESULT, "request": "x"})},
            "status.allocation.devices.results[0].request",
            "must be the name of a request",
        ),
        (
            {"allocation": allocated({**RESULT, "shareID": SHARE.upper()})},
            "status.allocation.devices.results[0].shareID",
            "RFC 4122 normalized form",
        ),
        (
            {"allocation": allocated(config=[{"source": "Nowhere", **OPAQUE}])},
            "status.allocation.devices.config[0].source",
            "supported values",
        ),
    ],
)
def test_statuses_that_are_refused(status, field, detail):
    found = told("ResourceClaim", with_status(**status), with_status(), "status")
    assert field in found, found
    assert detail in found[field]


def test_an_allocation_stays_as_it_is_until_it_is_taken_back():
    old = with_status(allocation=allocated())
    other = with_status(allocation=allocated({**RESULT, "device": "gpu-1"}))
    assert "status.allocation" in told("ResourceClaim", other, old, "status")
    assert told("ResourceClaim", with_status(), old, "status") == {}


def test_nobody_new_is_admitted_to_a_claim_that_is_being_deleted():
    leaving = {**IN_NAMESPACE, "deletionTimestamp": "2026-01-01T00:00:00Z"}
    old = {**with_status(allocation=allocated(), reservedFor=[UID]), "metadata": leaving}
    more = {**old, "status": {**old["status"], "reservedFor": [UID, {**UID, "uid": "v"}]}}
    assert "status.reservedFor" in told("ResourceClaim", more, old, "status")
    fewer = {**old, "status": {"allocation": allocated()}}
    assert told("ResourceClaim", fewer, old, "status") == {}


def test_what_was_told_of_a_device_goes_with_it():
    """Drivers and schedulers do not know of each other's part of the status."""
    strategy = KINDS["ResourceClaim"].strategy
    second = {**RESULT, "device": "gpu-1"}
    both = [PLACE, {**PLACE, "device": "gpu-1"}]
    old = with_status(allocation=allocated(RESULT, second), devices=both)
    one = with_status(allocation=allocated(RESULT), devices=both)
    strategy.prepare_for_update(one, old, "status")
    assert one["status"]["devices"] == [PLACE]
    none = with_status(devices=both)
    strategy.prepare_for_update(none, old, "status")
    assert none["status"] == {}
    kept = with_status(allocation=allocated(RESULT, second), devices=both)
    strategy.prepare_for_update(kept, old, "status")
    assert kept["status"]["devices"] == both


def a_slice(**fields):
    spec = {
        "driver": "gpu.example.org", "nodeName": "node-1", "devices": [{"name": "gpu-0"}],
        "pool": {"name": "node-1", "generation": 1, "resourceSliceCount": 1}, **fields,
    }  # fmt: skip
    return {"metadata": META, "spec": {key: one for key, one in spec.items() if one is not None}}


SELECTOR = {"nodeSelectorTerms": [{"matchExpressions": [{"key": "a", "operator": "Exists"}]}]}


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"nodeName": None, "allNodes": True},
        {"nodeName": None, "nodeSelector": SELECTOR},
        {
            "nodeName": None, "perDeviceNodeSelection": True,
            "devices": [{"name": "a", "nodeName": "n"}, {"name": "b", "allNodes": True}],
        },
        {"devices": [{"name": "a", "attributes": {"model": {"string": "x"}, "a.b/c": {"int": 1}}}]},
        {"pool": {"name": "rack/node-1", "generation": 1, "resourceSliceCount": 1}},
    ],
)  # fmt: skip
def test_slices_that_are_taken(fields):
    assert told("ResourceSlice", a_slice(**fields)) == {}


@pytest.mark.parametrize(
    ("fields", "field", "detail"),
    [
        ({"nodeName": None}, "spec", "exactly one of `nodeName`, `nodeSelector`, `allNodes`,"),
        ({"allNodes": True}, "spec", "but multiple fields are set"),
        ({"nodeName": None, "allNodes": False}, "spec.allNodes", "unset or set to true"),
        ({"devices": [{"name": "a"}] * 2}, "spec.devices[1]", ""),
        ({"devices": [{"name": f"d{i}"} for i in range(129)]}, "spec.devices", "at most 128"),
        (
            {
                "devices": [
                    {"name": f"d{i}", "taints": [{"key": "k", "effect": "NoSchedule"}]}
                    for i in range(65)
                ]
            },
            "spec.devices",
            "at most 64",
        ),
        ({"devices": [{"name": "a", "nodeName": "n"}]}, "spec.devices[0]", "can only be set if"),
        (
            {"nodeName": None, "perDeviceNodeSelection": True},
            "spec.devices[0]",
            "`nodeName`, `nodeSelector`, or `allNodes` is required when",
        ),
        (
            {"devices": [{"name": "a", "attributes": {"1a": {"int": 1}}}]},
            "spec.devices[0].attributes",
            "C identifier",
        ),
        (
            {"devices": [{"name": "a", "attributes": {"a": {"int": 1, "bool": True}}}]},
            "spec.devices[0].attributes[a]",
            "exactly one value",
        ),
        (
            {"devices": [{"name": "a", "capacity": {"a/b/c": {"value": "1"}}}]},
            "spec.devices[0].capacity",
            "more than one slash",
        ),
        (
            {"devices": [{"name": "a", "taints": [{"key": "k", "effect": "Never"}]}]},
            "spec.devices[0].taints[0].effect",
            "supported values",
        ),
        (
            {"devices": [{"name": "a", "attributes": {"a": {"ints": []}}}]},
            "spec.devices[0].attributes[a].ints",
            "must not be empty if specified",
        ),
        (
            {"devices": [{"name": "a", "attributes": {"a" * 97: {}}}]},
            f"spec.devices[0].attributes[{'a' * 47}...{'a' * 46}]",
            "exactly one value",
        ),
        (
            {"devices": [{"name": "", "attributes": {"a": {"string": "s" * 65, "int": 1}}}]},
            "spec.devices[0].attributes[a].string",
            "64 bytes",
        ),
        ({"devices": [{"name": ""}]}, "spec.devices[0].name", "RFC 1123 label"),
    ],
)
def test_slices_that_are_refused(fields, field, detail):
    found = told("ResourceSlice", a_slice(**fields))
    assert field in found, found
    assert detail in found[field]


@pytest.mark.parametrize(
    ("policy", "refused"),
    [
        ({"validValues": ["1Gi", "10Gi"], "default": "1Gi"}, {}),
        ({"validRange": {"min": "1Gi", "max": "10Gi", "step": "1Gi"}, "default": "2Gi"}, {}),
        ({"validValues": ["1Gi"]}, {"default": "required when validValues is defined"}),
        ({"validRange": {"min": "1Gi"}}, {"default": "required when validRange is defined"}),
        (
            {"validRange": {}, "default": "1Gi"},
            {"validRange.min": "required when validRange is defined"},
        ),
        (
            {"validRange": {"min": "1Gi"}, "validValues": ["1Gi"], "default": "1Gi"},
            {
                "": 'exactly one policy can be specified, cannot specify "validValues" and'
                ' "validRange" at the same time'
            },
        ),
        (
            {"validValues": ["20Gi", "2Gi", "2048Mi"], "default": "1Gi"},
            {
                "validValues[0]": "option is larger than capacity value: 10Gi",
                "validValues[1]": "values must be sorted in ascending order",
                "validValues[2]": "",
                "validValues": "default value is not valid according to the requestPolicy",
            },
        ),
        (
            {"validRange": {"min": "3Gi", "max": "20Gi"}, "default": "2Gi"},
            {
                "validRange.min": "default is less than min: 3Gi",
                "validRange.max": "max is larger than capacity value: 10Gi",
            },
        ),
        (
            {"validRange": {"min": "1Gi", "step": "10Gi"}, "default": "1Gi"},
            {"validRange.step": "one step 11Gi is larger than capacity value: 10Gi"},
        ),
        (
            {"validRange": {"min": "1Gi", "step": "2Gi"}, "default": "2Gi"},
            {"validRange.step": "value is not a multiple of a given step (2Gi) from (1Gi)"},
        ),
    ],
)
def test_the_policy_of_a_capacity(policy, refused):
    """pkg/apis/resource/validation/validation.go (``validateRequestPolicy``), v1.36."""
    device = {"name": "a", "capacity": {"memory": {"value": "10Gi", "requestPolicy": policy}}}
    path = "spec.devices[0].capacity[memory].requestPolicy"
    found = told("ResourceSlice", a_slice(devices=[{**device, "allowMultipleAllocations": True}]))
    assert found == {f"{path}.{field}".rstrip("."): detail for field, detail in refused.items()}
    alone = told("ResourceSlice", a_slice(devices=[device]))
    assert alone == {path: "allowMultipleAllocations must be true"}


def test_what_a_device_had_before_may_stay():
    """What an older version took is not judged anew with the rest of the slice."""
    capacity = {"memory": {"value": "1", "requestPolicy": {"default": "1"}}}
    device = {"name": "a", "capacity": capacity, "taints": [{"key": "k", "effect": "Never"}]}
    old = a_slice(devices=[device])
    assert told("ResourceSlice", a_slice(devices=[device, {"name": "b"}]), old) == {}
    assert len(told("ResourceSlice", a_slice(devices=[{**device, "name": "c"}]), old)) == 2
    rule = {"metadata": META, "spec": {"taint": {"key": "k", "effect": "Never"}}}
    assert told("DeviceTaintRule", rule, rule) == {}
    long = {"opaque": {**OPAQUE["opaque"], "parameters": {"a": "x" * 10240}}}
    spec = {"selectors": [{"cel": {"expression": "1"}}], "config": [long]}
    known = {"metadata": META, "spec": spec}
    assert told("DeviceClass", known, known) == {}
    other = {"metadata": META, "spec": {name: value * 2 for name, value in spec.items()}}
    assert len(told("DeviceClass", other, known)) == 4


def test_the_selector_of_a_device_has_one_term_as_that_of_its_slice_has():
    term = {"matchExpressions": [{"key": "a", "operator": "Exists"}]}
    selector = {"nodeSelector": {"nodeSelectorTerms": [term, term]}}
    found = told("ResourceSlice", a_slice(nodeName=None, **selector))
    assert found.keys() == {"spec.nodeSelector.nodeSelectorTerms"}
    fields = {
        "nodeName": None,
        "perDeviceNodeSelection": True,
        "devices": [{"name": "a", **selector}],
    }
    found = told("ResourceSlice", a_slice(**fields))
    assert found.keys() == {"spec.devices[0].nodeSelector.nodeSelectorTerms"}
    stored = a_slice(**fields)
    assert told("ResourceSlice", a_slice(**fields), stored) == {}, "which was taken by 0.1.0"


def test_the_pool_and_the_node_of_a_slice_do_not_change():
    pool = {"name": "other", "generation": 1, "resourceSliceCount": 1}
    found = told("ResourceSlice", a_slice(pool=pool, nodeName="m"), a_slice())
    assert found.keys() == {"spec.pool.name", "spec.nodeName"}


def test_classes():
    spec = {"selectors": [{"cel": {"expression": "true"}}], "config": [OPAQUE]}
    assert told("DeviceClass", {"metadata": META, "spec": spec}) == {}
    wrong = {"selectors": [{"cel": {}}], "config": [{}]}
    found = told("DeviceClass", {"metadata": META, "spec": wrong})
    assert found.keys() == {"spec.selectors[0].cel.expression", "spec.config[0].opaque"}


@pytest.mark.parametrize("text", ["10.9.8.7", "2001:db8::1", "::1", "fe80::a:0:1"])
def test_an_address_in_the_form_that_names_it(text):
    assert formats.canonical_ip_address(text) == ()


@pytest.mark.parametrize(
    ("text", "detail"),
    [
        ("one", "must be a valid IP address"),
        ("", "must be a valid IP address"),
        ("10.9.8.7/32", "must be a valid IP address"),
        ("fe80::1%eth0", "must be a valid IP address"),
        ("10.09.8.7", "must not have leading 0s"),
        ("::ffff:10.9.8.7", "must not be an IPv4-mapped IPv6 address"),
        ("2001:DB8::1", 'must be in canonical form ("2001:db8::1")'),
        ("2001:db8:0:0::1", 'must be in canonical form ("2001:db8::1")'),
    ],
)
def test_an_address_in_another_form(text, detail):
    assert any(detail in one for one in formats.canonical_ip_address(text))
