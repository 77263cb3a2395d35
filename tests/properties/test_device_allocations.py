"""Whatever the allocator gives is valid, and it gives something wherever a search of all finds it.

Small random worlds: whole devices, parts of cards with shared counters, two kinds of devices, and
claims with counts and constraints. Validity is judged by the checker of the fault machine, which
shares no code with the service; what can be given at all is found by trying every choice.
"""

import itertools
from collections import Counter
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from clusterstate.objects.values.meta import Manifest
from scheduling.engine.snapshot import Snapshot
from scheduling.engine.snapshot.requirements import from_pod
from scheduling.framework.device_claims import new_attempt
from tests.builders import make_node, make_pod
from tests.faults import claims as checker

DRIVER = "gpu.example.com"
SLOTS = 3
"""Counters of each card."""


@st.composite
def devices(draw: st.DrawFn) -> list[Manifest]:
    """Draw up to five devices of a node: of two kinds, on two boards, some of them parts."""
    found = []
    for number in range(draw(st.integers(1, 5))):
        one: Manifest = {
            "name": f"d{number}",
            "attributes": {
                "kind": {"string": draw(st.sampled_from("ab"))},
                "board": {"int": draw(st.integers(0, 1))},
            },
        }
        if slots := draw(st.sampled_from((0, 0, 1, 2))):
            counters = {"slots": {"value": str(slots)}}
            one["consumesCounters"] = [{"counterSet": "card", "counters": counters}]
        found.append(one)
    return found


@st.composite
def claim_specs(draw: st.DrawFn) -> Manifest:
    """Draw one or two requests for devices, perhaps all of one board or each of another."""
    requests = []
    for number in range(draw(st.integers(1, 2))):
        kind = draw(st.sampled_from(("a", "b", "")))
        exactly: Manifest = {"deviceClassName": "any", "allocationMode": "ExactCount"}
        exactly["count"] = draw(st.integers(1, 2))
        if kind:
            expression = f"device.attributes['{DRIVER}'].kind == '{kind}'"
            exactly["selectors"] = [{"cel": {"expression": expression}}]
        requests.append({"name": f"r{number}", "exactly": exactly})
    how = draw(st.sampled_from(("", "matchAttribute", "distinctAttribute")))
    constraints = [{how: f"{DRIVER}/board"}] if how else []
    return {"devices": {"requests": requests, "constraints": constraints}}


def wants(request: Manifest) -> str:
    """Return the kind that a request is for, empty for any."""
    selectors = request["exactly"].get("selectors") or ()
    return str(selectors[0]["cel"]["expression"].rpartition("== '")[2][0]) if selectors else ""


def is_right(spec: Manifest, given: list[tuple[Manifest, str]], taken: list[Manifest]) -> bool:
    """Whether devices, each with the kind that is asked for, meet a claim beside those taken."""
    chosen = [device for device, _ in given]
    names = [one["name"] for one in (*chosen, *taken)]
    if len(set(names)) < len(names):
        return False
    if any(kind and one["attributes"]["kind"]["string"] != kind for one, kind in given):
        return False
    used: Counter[str] = Counter()
    for one in (*chosen, *taken):
        for part in one.get("consumesCounters") or ():
            used["slots"] += int(part["counters"]["slots"]["value"])
    boards = {one["attributes"]["board"]["int"] for one in chosen}
    for constraint in spec["devices"]["constraints"]:
        if "matchAttribute" in constraint and len(boards) > 1:
            return False
        if "distinctAttribute" in constraint and len(boards) < len(chosen):
            return False
    return used["slots"] <= SLOTS


def can_be_met(spec: Manifest, there: list[Manifest], taken: list[Manifest]) -> bool:
    """Try every choice of devices."""
    kinds = [
        wants(one) for one in spec["devices"]["requests"] for _ in range(one["exactly"]["count"])
    ]
    return any(
        is_right(spec, list(zip(chosen, kinds, strict=True)), taken)
        for chosen in itertools.permutations(there, len(kinds))
    )


@given(devices(), st.lists(claim_specs(), min_size=1, max_size=4))
def test_what_can_be_given_is_given_and_is_valid(
    there: list[Manifest], specs: list[Manifest]
) -> None:
    snapshot = Snapshot(capacity=4)
    snapshot.set_node(make_node("n").build())
    row = snapshot.row_of("n")
    assert row is not None
    table = snapshot.devices
    pool = {"name": "n", "generation": 1, "resourceSliceCount": 2}
    base: dict[str, Any] = {"driver": DRIVER, "pool": pool, "nodeName": "n"}
    card = {"name": "card", "counters": {"slots": {"value": str(SLOTS)}}}
    slices = [
        {"metadata": {"name": "card"}, "spec": {**base, "sharedCounters": [card]}},
        {"metadata": {"name": "devices"}, "spec": {**base, "devices": there}},
    ]
    for one in slices:
        table.set("ResourceSlice", one)
    table.set("DeviceClass", {"metadata": {"name": "any"}, "spec": {}})
    taken: list[Manifest] = []
    given_to: list[Manifest] = []
    by_name = {one["name"]: one for one in there}
    for number, spec in enumerate(specs):
        meta = {"name": f"c{number}", "namespace": "default", "uid": f"u{number}"}
        table.set("ResourceClaim", {"metadata": meta, "spec": spec})
        entry = [{"name": "x", "resourceClaimName": f"c{number}"}]
        pod = make_pod(f"p{number}").with_("spec", "resourceClaims", value=entry)
        info = snapshot.intern(from_pod(pod.build()))
        attempt = new_attempt(info, table)
        assert attempt.pre_filter(info.requests).ok
        fits = table.judge(attempt, snapshot.node(row)).ok
        assert fits == can_be_met(spec, there, taken)
        if not fits:
            continue
        snapshot.assume(number, info, row)
        (claim,) = table.assumed(number) or ()
        results = claim["status"]["allocation"]["devices"]["results"]
        asked = {one["name"]: wants(one) for one in spec["devices"]["requests"]}
        counts = Counter(one["request"] for one in results)
        assert counts == {
            one["name"]: one["exactly"]["count"] for one in spec["devices"]["requests"]
        }
        chosen = [(by_name[one["device"]], asked[one["request"]]) for one in results]
        assert is_right(spec, chosen, taken)
        taken += [device for device, _ in chosen]
        given_to.append(claim)
        lists = dict.fromkeys(checker.KINDS, ()) | {
            "ResourceClaim": given_to, "ResourceSlice": slices,
        }  # fmt: skip
        assert checker.held_twice(lists) == []
