"""Counters of pods have names that every process and the database share."""

from hypothesis import assume, given
from hypothesis import strategies as st

from clusterstate.objects.rules.footprint import counter_id
from clusterstate.objects.values.labels import (
    Selector,
    parse_selector,
    selector_from_label_selector,
    selector_from_set,
)
from clusterstate.objects.values.pod import LabelSelector, SelectorRequirement
from scheduling.engine.snapshot import Snapshot
from scheduling.engine.snapshot.requirements import from_pod
from scheduling.framework.footprints import footprint_of, term_counter
from tests.builders import make_pod
from tests.harness import kubernetes_framework

KEYS = st.sampled_from(["app", "tier", "zone"])
VALUES = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=3, unique=True)
REQUIREMENTS = st.builds(
    lambda key, operator, values: (key, operator, tuple(values)),
    KEYS,
    st.sampled_from(["In", "NotIn"]),
    VALUES,
)
TERMS = st.lists(REQUIREMENTS, min_size=1, max_size=3)
SPACES = st.lists(st.sampled_from(["default", "kube-system", "a"]), min_size=1, unique=True)
EVERY_POD = [
    {key: value for key, value in (("app", app), ("tier", tier), ("zone", zone)) if value}
    for app in ("", "a", "b", "c")
    for tier in ("", "a", "b", "c")
    for zone in ("", "a", "b", "c")
]


def selector(requirements: list[tuple[str, str, tuple[str, ...]]]) -> Selector:
    return selector_from_label_selector(
        LabelSelector(
            match_expressions=tuple(
                SelectorRequirement(key=key, operator=operator, values=values)
                for key, operator, values in requirements
            )
        )
    )


@given(TERMS, SPACES, st.randoms())
def test_the_order_in_which_something_was_written_does_not_matter(terms, spaces, random):
    name = counter_id(selector(terms), spaces)
    shuffled = [(key, operator, tuple(sorted(values))) for key, operator, values in terms]
    random.shuffle(shuffled)
    assert counter_id(selector(shuffled), sorted(spaces) + spaces) == name


@given(TERMS, TERMS)
def test_counters_of_different_pods_have_different_names(one, other):
    first, second = selector(one), selector(other)
    assume(any(first.matches(pod) != second.matches(pod) for pod in EVERY_POD))
    assert counter_id(first, ("default",)) != counter_id(second, ("default",))


def test_one_value_among_one_is_that_value():
    by_set, by_list = selector_from_set({"app": "a"}), parse_selector("app in (a)")
    assert counter_id(by_set, ("default",)) == counter_id(by_list, ("default",))


def test_namespaces_and_what_is_counted_are_part_of_the_name():
    about = selector_from_set({"app": "a"})
    names = {
        counter_id(about, ("default",)),
        counter_id(about, ("default", "other")),
        counter_id(about, ("default",), bearers=True),
        counter_id(about, ("default",), selector_from_set({"team": "x"})),
        counter_id(about, ("default",), Selector()),
        counter_id(about, ("default",), Selector(nothing=True)),
        counter_id(Selector(), ("default",)),
        counter_id(Selector(nothing=True), ("default",)),
    }
    assert len(names) == 8
    assert {len(name) for name in names} == {16}


def test_a_name_never_changes():
    """It may stand in a database that an earlier version wrote."""
    name = counter_id(selector_from_set({"app": "a"}), ("default",))
    assert name.hex() == "7b13227a48db590d9a902d3366f9d152"


def footprint(pod):
    snapshot = Snapshot()
    info = snapshot.intern(from_pod(pod.build(), (7).to_bytes(8, "big")))
    return info, footprint_of(info, kubernetes_framework(), snapshot)


def test_a_class_tells_what_it_takes_and_which_counters_its_hard_rules_read():
    pod = make_pod().asks(cpu="2", memory="1Gi").labelled(app="a").priority(5).host_port(80)
    pod = pod.near("zone", app="b").away_from("zone", app="c").spread("zone", app="a")
    pod = pod.near("zone", weight=3, app="soft")
    info, found = footprint(pod)
    assert (found.class_id, found.priority, found.ports, found.complete) == (7, 5, True, True)
    assert dict(found.amounts) == info.requests
    expected = [
        counter_id(selector_from_set({"app": app}), ("default",)) for app in ("a", "b", "c")
    ]
    assert found.reads == frozenset(expected)
    assert found.bears == {term_counter(info.anti_affinity[0], bearers=True)}
    assert not found.bears & found.reads


def test_soft_rules_read_nothing_that_must_still_hold():
    """A stale score is not wrong."""
    _, found = footprint(make_pod().near("zone", weight=3, app="a").away_from("zone", 3, app="b"))
    assert (found.reads, found.bears) == (frozenset(), frozenset())
