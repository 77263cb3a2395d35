"""Requests filled in from their amounts: what the plugins say of each class by itself."""

from typing import Any

import msgspec
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from clusterstate.objects.values.pod import Pod
from scheduling.engine.fast import requests
from scheduling.engine.fast.lane_profile import Profile
from scheduling.engine.fast.lines import Lines
from scheduling.engine.fast.requests import Requests
from scheduling.engine.snapshot import Snapshot
from scheduling.engine.snapshot.requirements import from_pod
from scheduling.framework.types import PodInfo
from tests.builders import make_node, make_pod
from tests.forms import many
from tests.harness import kubernetes_framework

GPU = "example.com/gpu"

asked = st.fixed_dictionaries(
    {},
    optional={
        "cpu": st.sampled_from(["0", "1m", "50m", "3", "1125899906842624"]),
        "memory": st.sampled_from(["0", "1", "100Mi", "7Ti"]),
        "ephemeral-storage": st.sampled_from(["0", "1Gi"]),
        GPU: st.sampled_from(["0", "1", "8"]),
        "hugepages-2Mi": st.sampled_from(["0", "4Mi"]),
    },
)


def requests_of(snapshot: Snapshot) -> tuple[Requests, Profile]:
    profile = Profile(kubernetes_framework())
    rows = max(64, snapshot.capacity)
    return Requests(snapshot, profile, Lines(snapshot, rows, profile.more_scored)), profile


def aspects_of(profile: Profile, info: PodInfo, snapshot: Snapshot) -> list[Any]:
    return [plugin.aspect(info, snapshot) for plugin in profile.aspected]


@settings(max_examples=many(25, 600), deadline=None)
@given(st.lists(st.tuples(asked, st.sampled_from(["", "overhead", "init"])), min_size=2))
def test_what_is_filled_in_is_what_the_plugins_say(wanted: list[tuple[Any, str]]) -> None:
    snapshot = Snapshot()
    snapshot.set_node(make_node("n").build())
    for name in (GPU, "hugepages-2Mi"):
        snapshot.resource(name)
    filled, profile = requests_of(snapshot)
    infos, packed = [], []
    for amounts, more in wanted:
        pod = make_pod("p").asks(**amounts)
        if more == "overhead":
            pod = pod.with_("spec", "overhead", value={"cpu": "10m", "memory": "1Mi"})
        elif more == "init":
            one = {"name": "i", "image": "i", "resources": {"requests": {"cpu": "2"}}}
            pod = pod.with_("spec", "initContainers", value=[one])
        info = snapshot.intern(from_pod(msgspec.convert(pod.manifest, Pod)))
        alone, _ = requests_of(snapshot)
        by_itself = alone._packed(alone._line_of(info))
        for _ in range(2):  # as it is filled in, and as it is known
            assert filled.of(info, aspects_of(profile, info, snapshot)) == by_itself
        infos.append(info)
        packed.append(by_itself)
    aspects = [aspects_of(profile, info, snapshot) for info in infos]
    together = {}
    for places, numbers in filled.of_many(infos, aspects):
        together.update(zip(places, [line.tobytes() for line in numbers], strict=True))
    assert together == {place: packed[place] for place in together}


def test_no_more_requests_are_kept_than_are_worth_it(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pods may ask for other resources, in other amounts, without end."""
    monkeypatch.setattr(requests, "_MOST", 8)
    snapshot = Snapshot()
    snapshot.set_node(make_node("n").build())
    names = [f"example.com/r{number}" for number in range(12)]
    for name in names:
        snapshot.resource(name)
    filled, profile = requests_of(snapshot)
    alone, _ = requests_of(snapshot)
    for name in names:
        for amount in ("1", "2", "3"):
            pod = make_pod("p").asks(cpu="1", memory="1Mi", **{name: amount})
            info = snapshot.intern(from_pod(msgspec.convert(pod.manifest, Pod)))
            by_itself = alone._packed(alone._line_of(info))
            assert filled.of(info, aspects_of(profile, info, snapshot)) == by_itself
            assert 0 < sum(len(form.known) for form in filled._forms.values()) <= 8


def test_plugins_are_asked_once_for_classes_that_ask_for_the_same_resources(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    snapshot = Snapshot()
    snapshot.set_node(make_node("n").build())
    filled, profile = requests_of(snapshot)
    infos = [
        snapshot.intern(from_pod(make_pod("p").asks(cpu=f"{n}m", memory=f"{n}Mi").build()))
        for n in range(1, 30)
    ]
    count = 0
    asked_for = Requests._line_of

    def counting(self: Requests, info: PodInfo) -> list[int] | None:
        nonlocal count
        count += 1
        return asked_for(self, info)

    monkeypatch.setattr(Requests, "_line_of", counting)
    found = {filled.of(info, aspects_of(profile, info, snapshot)) for info in infos}
    assert (len(found), count) == (29, 1)
    aspects = [aspects_of(profile, info, snapshot) for info in infos]
    ((places, numbers),) = filled.of_many(infos, aspects)
    assert places == list(range(29))
    assert ({line.tobytes() for line in numbers}, count) == (found, 1)
