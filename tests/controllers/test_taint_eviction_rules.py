"""NoExecute taints: who leaves, and when (R112-R123, R130, C22)."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from clusterstate.objects import countdowns
from clusterstate.objects.matching import find_untolerated
from clusterstate.objects.node import Taint
from clusterstate.objects.pod import Toleration
from scheduling.controllers.taint_eviction_rules import (
    Decision,
    min_toleration_seconds,
    process_pod,
)

T0 = datetime(2026, 3, 1, 12, tzinfo=UTC)
LONG_AGO = T0 - timedelta(days=365)


def deadline(tolerations, taints, *, added_at, bound_at=LONG_AGO):
    """Return when a pod must leave that was there before the taints, unless told otherwise."""
    counted = countdowns.countdowns(tolerations, taints, added_at=added_at)
    return countdowns.deadline(counted, bound_at)


def taint(key="key1", effect="NoExecute", value="", at=T0):
    return Taint(key=key, effect=effect, value=value, time_added=at and at.isoformat())


def tolerates(key="key1", seconds=None, effect="NoExecute", operator="Exists", value=""):
    return Toleration(
        key=key, operator=operator, effect=effect, value=value, toleration_seconds=seconds
    )


@pytest.mark.parametrize(
    ("tolerations", "decision", "seconds"),
    [
        ([], Decision.EVICT_NOW, None),
        ([tolerates()], Decision.NEVER, None),
        ([tolerates(seconds=3600)], Decision.EVICT_AFTER, 3600),
        ([tolerates(seconds=0)], Decision.EVICT_AFTER, 0),
        ([tolerates(seconds=-5)], Decision.EVICT_AFTER, 0),
        ([tolerates(effect="NoSchedule")], Decision.EVICT_NOW, None),
        ([tolerates(effect="", seconds=7)], Decision.EVICT_AFTER, 7),
        ([Toleration(operator="Exists")], Decision.NEVER, None),
        ([tolerates(seconds=9), tolerates()], Decision.EVICT_AFTER, 9),
        ([tolerates(), tolerates(seconds=9)], Decision.NEVER, None),
    ],
)
def test_one_taint(tolerations, decision, seconds):
    """R122, R117, R118: at once, never, or for so long; only the first match counts."""
    outcome = process_pod(tolerations, [taint()])
    assert (outcome.decision, outcome.seconds) == (decision, seconds)


def test_both_forms_of_toleration_match_the_taint():
    """R114, R115, R116: Equal with the value, Exists without, Equal by default."""
    tainted = [taint(value="value1")]
    for toleration in (
        tolerates(operator="Equal", value="value1"),
        tolerates(operator="", value="value1"),
        tolerates(),
    ):
        assert process_pod([toleration], tainted).decision is Decision.NEVER
    other = tolerates(operator="Equal", value="value2")
    assert process_pod([other], tainted).decision is Decision.EVICT_NOW


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
    assert process_pod(tolerations, taints).decision is Decision.NEVER
    assert deadline(tolerations, taints, added_at=T0) is None


def test_effects_that_do_not_evict_do_not_evict():
    """R113, R119, R120."""
    taints = [taint(effect="NoSchedule"), taint(effect="PreferNoSchedule")]
    assert process_pod([], taints).decision is Decision.NEVER
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


def test_the_shortest_toleration():
    assert min_toleration_seconds([]) == 0
    assert min_toleration_seconds([tolerates()]) is None
    assert min_toleration_seconds([tolerates(seconds=2), tolerates(), tolerates(seconds=1)]) == 1


SECONDS = st.one_of(st.none(), st.integers(-5, 100))
TOLERATIONS = st.lists(
    st.builds(tolerates, key=st.sampled_from("abc"), seconds=SECONDS), max_size=4
)
TAINTS = st.lists(st.sampled_from("abc"), max_size=3, unique=True).map(
    lambda keys: [taint(key) for key in keys]
)


@given(TOLERATIONS, TAINTS)
def test_taints_of_one_moment_give_the_deadline_that_kubernetes_gives(tolerations, taints):
    outcome = process_pod(tolerations, taints)
    found = deadline(tolerations, taints, added_at=T0)
    if outcome.decision is Decision.NEVER:
        assert found is None
    elif outcome.decision is Decision.EVICT_NOW:
        assert found.due_at == T0
    else:
        assert found.due_at == T0 + timedelta(seconds=outcome.seconds)
