"""NoExecute taints: who leaves, and when (R112-R123, R130, C22)."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterstate.objects.rules import eviction
from clusterstate.objects.rules.matching import find_untolerated
from clusterstate.objects.rules.matching import tolerates as tolerates_
from clusterstate.objects.values.node import Taint
from clusterstate.objects.values.pod import Toleration

T0 = datetime(2026, 3, 1, 12, tzinfo=UTC)
LONG_AGO = T0 - timedelta(days=365)


def deadline(tolerations, taints, *, added_at, bound_at=LONG_AGO):
    """Return when a pod must leave that was there before the taints, unless told otherwise."""
    counted = eviction.countdowns(tolerations, taints, added_at=added_at)
    return eviction.deadline(counted, bound_at)


def seconds_left(tolerations, taints):
    """Return how long a pod stays under taints that come now, ``None`` for ever."""
    found = deadline(tolerations, taints, added_at=T0)
    return None if found is None else (found.due_at - T0).total_seconds()


def kubernetes(tolerations, taints):
    """Return the same by taint_eviction.go: getMinTolerationTime of GetMatchingTolerations."""
    evicting = [taint for taint in taints if taint.effect == "NoExecute"]
    used = [next((t for t in tolerations if tolerates_(t, taint)), None) for taint in evicting]
    if None in used:
        return 0
    limits = [one.toleration_seconds for one in used if one.toleration_seconds is not None]
    return max(min(limits), 0) if limits else None


def taint(key="key1", effect="NoExecute", value="", at=T0):
    return Taint(key=key, effect=effect, value=value, time_added=at and at.isoformat())


def tolerates(key="key1", seconds=None, effect="NoExecute", operator="Exists", value=""):
    return Toleration(
        key=key, operator=operator, effect=effect, value=value, toleration_seconds=seconds
    )


@pytest.mark.parametrize(
    ("tolerations", "seconds"),
    [
        ([], 0),
        ([tolerates()], None),
        ([tolerates(seconds=3600)], 3600),
        ([tolerates(seconds=0)], 0),
        ([tolerates(seconds=-5)], 0),
        ([tolerates(effect="NoSchedule")], 0),
        ([tolerates(effect="", seconds=7)], 7),
        ([Toleration(operator="Exists")], None),
        ([tolerates(seconds=9), tolerates()], 9),
        ([tolerates(), tolerates(seconds=9)], None),
    ],
)
def test_one_taint(tolerations, seconds):
    """R122, R117, R118: at once, never, or for so long; only the first match counts."""
    assert seconds_left(tolerations, [taint()]) == seconds


def test_both_forms_of_toleration_match_the_taint():
    """R114, R115, R116: Equal with the value, Exists without, Equal by default."""
    tainted = [taint(value="value1")]
    for toleration in (
        tolerates(operator="Equal", value="value1"),
        tolerates(operator="", value="value1"),
        tolerates(),
    ):
        assert seconds_left([toleration], tainted) is None
    other = tolerates(operator="Equal", value="value2")
    assert seconds_left([other], tainted) == 0


def test_the_worked_example_of_the_seeds():
    """R121: three taints, two tolerations: cannot be scheduled there, but keeps running."""
    taints = [
        taint("key1", "NoSchedule", "value1"),
        taint("key1", "NoExecute", "value1"),
        taint("key2", "NoSchedule", "value2"),
    ]
    tolerations = [
        tolerates("key1", effect="NoSchedule", operator="Equal", value="value1"),
        tolerates("key1", effect="NoExecute", operator="Equal", value="value1"),
    ]
    assert find_untolerated(taints, tolerations, ("NoSchedule", "NoExecute")) == taints[2]
    assert deadline(tolerations, taints, added_at=T0) is None


def test_effects_that_do_not_evict_do_not_evict():
    """R113, R120: where pods go for them is another matter."""
    taints = [taint(effect="NoSchedule"), taint(effect="PreferNoSchedule")]
    assert deadline([], taints, added_at=T0) is None


def test_an_hour_of_toleration_ends_an_hour_after_the_taint_was_added():
    """R123, C22: counted from timeAdded, whenever it is looked at."""
    found = deadline([tolerates(seconds=3600)], [taint()], added_at=T0 + timedelta(days=1))
    assert found.due_at == T0 + timedelta(seconds=3600)
    assert found.taint == taint()


def test_a_removed_taint_leaves_no_deadline():
    """R123."""
    assert deadline([tolerates(seconds=3600)], [], added_at=T0) is None


def test_the_unreachable_example():
    """R130: tolerationSeconds 6000 for unreachable."""
    key = "node.kubernetes.io/unreachable"
    found = deadline([tolerates(key, 6000)], [taint(key)], added_at=T0)
    assert found.due_at == T0 + timedelta(seconds=6000)


def test_an_untolerated_taint_is_due_when_it_was_added():
    assert deadline([], [taint()], added_at=T0).due_at == T0


def test_the_earliest_taint_decides_and_a_finite_toleration_beats_a_forever_one():
    tolerations = [tolerates("a"), tolerates("b", 100), tolerates("c", 30)]
    taints = [taint("a"), taint("b"), taint("c", at=T0 + timedelta(seconds=60))]
    found = deadline(tolerations, taints, added_at=T0)
    assert (found.taint.key, found.due_at) == ("c", T0 + timedelta(seconds=90))


def test_a_longer_toleration_moves_the_deadline_up_and_a_shorter_one_down():
    """C22: recomputed on any change, in both directions."""
    due = [deadline([tolerates(seconds=s)], [taint()], added_at=T0).due_at for s in (300, 600, 60)]
    assert due == [T0 + timedelta(seconds=s) for s in (300, 600, 60)]


def test_a_taint_without_a_time_counts_from_the_time_given():
    found = deadline([tolerates(seconds=5)], [taint(at=None)], added_at=T0)
    assert found.due_at == T0 + timedelta(seconds=5)


@pytest.mark.parametrize(("bound", "due"), [(-50, 5), (0, 5), (3, 8), (50, 55)])
def test_the_later_of_taint_and_binding_begins_the_count(bound, due):
    """R122, C22: the pod remains bound for the specified amount of time."""
    bound_at = T0 + timedelta(seconds=bound)
    found = deadline([tolerates(seconds=5)], [taint()], added_at=T0, bound_at=bound_at)
    assert found.started_at == max(T0, bound_at)
    assert found.due_at == T0 + timedelta(seconds=due)


def test_how_long_a_taint_is_borne():
    assert eviction.tolerated_seconds(None) == 0
    assert eviction.tolerated_seconds(tolerates()) is None
    assert eviction.tolerated_seconds(tolerates(seconds=-5)) == 0


@pytest.mark.parametrize("keys", ["ab", "ba"])
def test_of_two_that_are_due_at_once_the_first_taint_is_the_reason(keys):
    """It is named in the event and the timer; who reads both orders sees the node's."""
    taints = [taint(key) for key in keys]
    found = deadline([tolerates("a", seconds=5), tolerates("b", seconds=5)], taints, added_at=T0)
    assert (found.taint.key, found.due_at) == (keys[0], T0 + timedelta(seconds=5))


SECONDS = st.one_of(st.none(), st.integers(-5, 100))
TOLERATIONS = st.lists(
    st.builds(tolerates, key=st.sampled_from("abc"), seconds=SECONDS), max_size=4
)
TAINTS = st.lists(st.sampled_from("abc"), max_size=3, unique=True).map(
    lambda keys: [taint(key) for key in keys]
)


@given(TOLERATIONS, TAINTS)
def test_taints_of_one_moment_give_the_deadline_that_kubernetes_gives(tolerations, taints):
    assert seconds_left(tolerations, taints) == kubernetes(tolerations, taints)
