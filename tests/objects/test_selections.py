"""What selectors have in common (R41), against asking every selector about every pod."""

from hypothesis import given
from hypothesis import strategies as st

from clusterstate.objects.rules import selections
from clusterstate.objects.rules.selections import LabelledCount, SelectorOwner
from clusterstate.objects.values.labels import (
    NOTHING,
    selector_from_label_selector,
    selector_from_set,
)
from tests.objects.test_labels import LABELS, SELECTORS

PODS = st.lists(st.builds(LabelledCount, LABELS, st.integers(1, 3)), max_size=12)
MEMBERS = st.lists(
    st.tuples(
        st.sampled_from(["Service", "ReplicaSet", "StatefulSet"]),
        st.one_of(st.just(NOTHING), SELECTORS.map(selector_from_label_selector)),
    ),
    max_size=6,
).map(
    lambda rows: [
        SelectorOwner(kind, "ns", f"m{number}", selector)
        for number, (kind, selector) in enumerate(rows)
    ]
)


@given(PODS, MEMBERS)
def test_counts_and_overlaps_are_those_of_asking_every_selector_about_every_pod(pods, members):
    """R41, R38: the index of labels finds what a search through all pods would find."""

    def count(*wanted):
        return sum(p.count for p in pods if all(w.selector.matches(p.labels) for w in wanted))

    found = selections.of_pods(pods, members)
    assert sorted(one.of.name for one in found) == sorted(one.name for one in members)
    for one in found:
        assert one.count == count(one.of)
        expected = {
            (other.kind, other.name, count(one.of, other))
            for other in members
            if other is not one.of
            and selections.ROLES[other.kind] == selections.ROLES[one.of.kind]
            and count(one.of, other)
        }
        assert {(o.kind, o.name, o.count) for o in one.overlaps} == expected
        assert one.overlapping == len(expected)
        assert list(one.overlaps) == sorted(one.overlaps, key=lambda other: -other.count)


def test_of_many_others_those_with_most_in_common_are_named():
    pods = [LabelledCount({"app": "a"}, 5), LabelledCount({"app": "b"})]
    members = [
        SelectorOwner("Service", "ns", f"s{n:04}", selector_from_set({})) for n in range(600)
    ]
    members.append(SelectorOwner("Service", "ns", "alone", selector_from_set({"app": "b"})))
    found = {one.of.name: one for one in selections.of_pods(pods, members)}
    assert {one.count for one in found["s0000"].overlaps} == {6}
    assert (found["s0000"].overlapping, len(found["s0000"].overlaps)) == (600, 20)
    assert (found["alone"].count, found["alone"].overlapping) == (1, 600)
