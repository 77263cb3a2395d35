"""Which EndpointSlices and Endpoints a Service has, given the pods that it selects."""

import pytest

from scheduling.controllers.endpoints import legacy, mirrors, slices
from scheduling.controllers.endpoints.targets import PodPort, Target

ZONES = {"n1": "a", "n2": "b", "n3": ""}


def service(*, labels=None, **spec):
    ports = [{"name": "http", "port": 80, "targetPort": 8080, "protocol": "TCP"}]
    return {
        "metadata": {"name": "web", "namespace": "ns", "uid": "s", "labels": labels or {}},
        "spec": {"clusterIP": "10.0.0.1", "selector": {"app": "web"}, "ports": ports, **spec},
    }


def target(number, **fields):
    facts = {"node_name": "n1", "is_ready": True, "phase": "Running", "is_leaving": False}
    facts |= {"addresses": (f"10.1.{number // 250}.{number % 250 + 1}",)}
    return Target(uid=f"u{number}", name=f"p{number}", **{**facts, **fields})


def carried_out(actions, present=(), of=None):
    """Return the slices that are there once the writes are carried out."""
    gone = {one["metadata"]["uid"] for one in actions.delete}
    changed = {one["metadata"]["uid"]: made for one, made in actions.update}
    left = [
        {**one, **changed.get(one["metadata"]["uid"], {})}
        for one in present
        if one["metadata"]["uid"] not in gone
    ]
    for number, made in enumerate(actions.create):
        new = slices.new_slice("ns", slices.marks_of(of or service()), "IPv4", made)
        new["metadata"]["uid"] = f"new{len(present)}-{number}"
        left.append(new)
    for one in left:
        one["metadata"] = {
            **one["metadata"],
            "labels": dict(slices.marks_of(of or service()).labels),
        }
    return left


def reconciled(present, targets, of=None):
    return slices.reconcile(of or service(), present, targets, ZONES, "IPv4")


def is_nothing(actions):
    return not (actions.create or actions.update or actions.delete)


def test_an_endpoint_says_where_its_pod_is_and_how_it_is():
    (made,) = reconciled([], [target(1, node_name="n2")]).create
    assert made["ports"] == [{"name": "http", "port": 8080, "protocol": "TCP"}]
    assert made["endpoints"] == [
        {
            "addresses": ["10.1.0.2"],
            "conditions": {"ready": True, "serving": True, "terminating": False},
            "nodeName": "n2",
            "targetRef": {"kind": "Pod", "namespace": "ns", "name": "p1", "uid": "u1"},
            "zone": "b",
        }
    ]


@pytest.mark.parametrize(
    ("fields", "publishes", "conditions"),
    [
        ({"is_ready": False}, False, (False, False, False)),
        ({"is_leaving": True}, False, (False, True, True)),
        ({"is_leaving": True, "is_ready": False}, False, (False, False, True)),
        ({"is_ready": False}, True, (True, False, False)),
        ({"is_leaving": True}, True, (True, True, True)),
    ],
)
def test_ready_is_who_serves_and_does_not_leave(fields, publishes, conditions):
    (made,) = reconciled(
        [], [target(1, **fields)], service(publishNotReadyAddresses=publishes)
    ).create
    found = made["endpoints"][0]["conditions"]
    assert tuple(found[one] for one in ("ready", "serving", "terminating")) == conditions


@pytest.mark.parametrize(
    "fields", [{"phase": "Succeeded"}, {"addresses": ()}, {"addresses": ("fd00::1",)},
               {"node_name": "gone"}],
)  # fmt: skip
def test_who_is_no_endpoint_leaves_an_empty_slice(fields):
    actions = reconciled([], [target(1, **fields)])
    assert actions.create == [{"endpoints": [], "ports": []}]
    there = carried_out(actions)
    assert is_nothing(reconciled(there, [target(1, **fields)]))
    # The first endpoint takes the place of the empty slice.
    first = reconciled(there, [target(2)])
    assert [len(made["endpoints"]) for _, made in first.update] == [1]
    assert not first.create
    assert not first.delete


def test_a_named_port_is_the_containers_own():
    ports = [{"name": "http", "port": 80, "targetPort": "web", "protocol": "TCP"}]
    pods = [
        target(1, ports=(PodPort("web", "TCP", 8001),)),
        target(2, ports=(PodPort("web", "TCP", 8002),)),
        target(3, ports=(PodPort("web", "UDP", 8003),)),
    ]
    made = reconciled([], pods, service(ports=ports)).create
    found = {tuple(port["port"] for port in one["ports"]): len(one["endpoints"]) for one in made}
    assert found == {(): 1, (8001,): 1, (8002,): 1}


def test_a_hundred_endpoints_fill_a_slice_and_few_slices_change():
    pods = [target(number) for number in range(250)]
    there = carried_out(reconciled([], pods))
    assert [len(one["endpoints"]) for one in there] == [100, 100, 50]
    assert is_nothing(reconciled(there, pods))
    # Two that go and two that come: the slices they leave take those who come.
    others = [*pods[1:150], *pods[151:], target(300), target(301)]
    actions = reconciled(there, others)
    assert not actions.create
    assert not actions.delete
    assert len(actions.update) == 2
    there = carried_out(actions, there)
    assert sum(len(one["endpoints"]) for one in there) == 250
    assert max(len(one["endpoints"]) for one in there) == 100
    assert is_nothing(reconciled(there, others))
    # One more goes where there is room, and only there.
    actions = reconciled(there, [*others, target(302)])
    assert [len(made["endpoints"]) for _, made in actions.update] == [51]
    # All but one go: empty slices go, too.
    actions = reconciled(there, others[-1:])
    assert len(carried_out(actions, there)) == 1


def test_labels_of_the_service_are_those_of_its_slices():
    labelled = service(labels={"team": "a", slices.SERVICE_NAME: "other"})
    there = carried_out(reconciled([], [target(1)], labelled), of=labelled)
    assert there[0]["metadata"]["labels"] == {
        "team": "a", slices.SERVICE_NAME: "web", slices.MANAGED_BY: slices.CONTROLLER,
    }  # fmt: skip
    headless = service(clusterIP="None")
    actions = reconciled(there, [target(1)], headless)
    assert [one["metadata"]["uid"] for one, _ in actions.update] == ["new0-0"]
    assert slices.marks_of(headless).labels[slices.HEADLESS] == ""


@pytest.mark.parametrize(
    ("distribution", "hints"),
    [
        (None, None),
        ("PreferClose", {"forZones": [{"name": "a"}]}),
        ("PreferSameZone", {"forZones": [{"name": "a"}]}),
        ("PreferSameNode", {"forZones": [{"name": "a"}], "forNodes": [{"name": "n1"}]}),
    ],
)
def test_hints_say_from_where_an_endpoint_is_preferred(distribution, hints):
    asked = service(trafficDistribution=distribution) if distribution else service()
    (made,) = reconciled([], [target(1), target(2, is_ready=False)], asked).create
    assert [one.get("hints") for one in made["endpoints"]] == [hints, None]


def test_endpoints_hold_the_ready_ones_and_the_others_apart():
    pods = [target(2), target(1), target(3, is_ready=False), target(4, is_leaving=True)]
    found, too_many = legacy.subsets(service(), pods, ZONES)
    assert not too_many
    (subset,) = found
    assert [one["ip"] for one in subset["addresses"]] == ["10.1.0.2", "10.1.0.3"]
    assert [one["ip"] for one in subset["notReadyAddresses"]] == ["10.1.0.4"]
    assert subset["ports"] == [{"name": "http", "port": 8080, "protocol": "TCP"}]
    assert legacy.subsets(service(), [], ZONES) == ([], False)


def test_endpoints_beyond_a_thousand_are_cut_and_said_to_be():
    pods = [target(number, is_ready=number % 2 == 0) for number in range(1500)]
    found, too_many = legacy.subsets(service(), pods, ZONES)
    assert too_many
    assert len(found[0]["addresses"]) == 750
    assert len(found[0]["notReadyAddresses"]) == 250


def test_a_host_has_a_name_in_the_domain_of_its_service():
    named = target(1, hostname="web-0", subdomain="web")
    stranger = target(2, hostname="web-1", subdomain="db")
    (made,) = reconciled([], [named, stranger]).create
    assert [one.get("hostname") for one in made["endpoints"]] == ["web-0", None]


# Endpoints that somebody wrote ------------------------------------------------------------------


def by_hand(*subsets, **metadata):
    return {"metadata": {"name": "web", "namespace": "ns", "uid": "e", **metadata},
            "subsets": list(subsets)}  # fmt: skip


def subset(*addresses, waiting=(), port=80):
    return {
        "addresses": [{"ip": one} for one in addresses],
        "notReadyAddresses": [{"ip": one} for one in waiting],
        "ports": [{"name": "http", "port": port, "protocol": "TCP"}],
    }


def shown(actions):
    return [
        (one["addresses"][0], one["conditions"]["ready"], made["ports"][0]["port"])
        for made in actions.create
        for one in made["endpoints"]
    ]


def test_each_subset_is_shown_with_its_ports_and_each_family_by_itself():
    written = by_hand(
        subset("10.0.0.1", "fd00::1", waiting=["10.0.0.2"]), subset("10.0.0.3", port=81)
    )
    actions = mirrors.reconcile(written, [], "IPv4")
    assert shown(actions) == [
        ("10.0.0.1", True, 80),
        ("10.0.0.2", False, 80),
        ("10.0.0.3", True, 81),
    ]
    assert shown(mirrors.reconcile(written, [], "IPv6")) == [("fd00::1", True, 80)]


def test_slices_of_endpoints_have_their_labels_and_annotations():
    written = by_hand(
        subset("10.0.0.1"), labels={"team": "a"},
        annotations={"why": "so", "endpoints.kubernetes.io/last-change-trigger-time": "t"},
    )  # fmt: skip
    (made,) = mirrors.reconcile(written, [], "IPv4").create
    metadata = slices.new_slice("ns", mirrors.marks_of(written), "IPv4", made)["metadata"]
    assert metadata["labels"] == {
        "team": "a", slices.SERVICE_NAME: "web", slices.MANAGED_BY: mirrors.CONTROLLER,
    }  # fmt: skip
    assert metadata["annotations"] == {"why": "so"}
    assert (metadata["generateName"], metadata["ownerReferences"][0]["kind"]) == (
        "web-",
        "Endpoints",
    )


def test_a_thousand_addresses_of_a_subset_are_shown():
    written = by_hand(
        subset(*(f"10.0.{n // 250}.{n % 250 + 1}" for n in range(1100)), waiting=["10.9.9.9"])
    )
    actions = mirrors.reconcile(written, [], "IPv4")
    assert [len(made["endpoints"]) for made in actions.create] == [100] * 10


@pytest.mark.parametrize(
    "metadata",
    [{"labels": {mirrors.SKIP: "true"}},
     {"annotations": {"control-plane.alpha.kubernetes.io/leader": "{}"}},
     {"deletionTimestamp": "2026-01-01T00:00:00Z"}],
)  # fmt: skip
def test_some_endpoints_are_not_shown(metadata):
    assert not mirrors.is_mirrored(by_hand(**metadata))
    assert mirrors.is_mirrored(by_hand())
