"""Who counts whom, found in an index: the same as when everybody is compared with everybody."""

import random

from scheduling.engine.requirements import from_pod
from scheduling.engine.snapshot import Snapshot
from scheduling.framework.reach import anchors, anchors_of, term_anchors
from tests.builders import make_node, make_pod
from tests.engine.test_programs import pod_of
from tests.harness import kubernetes_framework


def test_a_counter_within_its_reach_weighs_whom_it_would_weigh_among_all() -> None:
    """For every counter that the plugins make, over classes that come before and after it."""
    framework = kubernetes_framework()
    for seed in range(20):
        dice = random.Random(seed)
        snapshot = Snapshot()
        for number in range(4):
            snapshot.set_node(make_node(f"n{number}").build())
        for number in range(12):
            info = snapshot.intern(from_pod(pod_of(number, dice)))
            snapshot.assume(("pod", number), info, number % 4)
            for plugin in framework.pre_filter_plugins:
                if plugin.name == "InterPodAffinity":
                    plugin.affinity_terms(info, snapshot)
                    plugin.untouched_terms(info, snapshot)
        assert snapshot._counters or seed
        for counter in snapshot._counters.values():
            for info in snapshot.classes:
                weight = counter.weigh(info)
                found = [w for c, w in snapshot.counted_by(info) if c is counter]
                assert found == ([weight] if weight else [])
            expected = [0] * 4
            for number, info in enumerate(snapshot.classes):
                expected[number % 4] += counter.weigh(info)
            assert counter.rows[:4].tolist() == expected


def test_a_new_term_marks_only_the_classes_that_it_means() -> None:
    snapshot = Snapshot()
    web = snapshot.intern(from_pod(make_pod("w").labelled(app="web").build()))
    db = snapshot.intern(from_pod(make_pod("d").labelled(app="db").build()))
    other = snapshot.intern(
        from_pod(
            make_pod("o").labelled(app="web").with_("metadata", "namespace", value="far").build()
        )
    )
    before = [snapshot.peer_stamp(info) for info in (web, db, other)]
    term = {
        "topologyKey": "kubernetes.io/hostname",
        "labelSelector": {"matchLabels": {"app": "web"}},
    }
    rules = {"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}}
    shy = make_pod("s").labelled(app="shy").with_("spec", "affinity", value=rules).build()
    info = snapshot.intern(from_pod(shy))
    now = [snapshot.peer_stamp(info) for info in (web, db, other)]
    assert now == [before[0] + 1, before[1], before[2]]
    assert [snapshot.has_term_about(one) for one in (web, db, other)] == [True, False, False]
    assert list(snapshot.anti_affinity_keys(web)) == ["kubernetes.io/hostname"]
    assert set(term_anchors(info.anti_affinity[0])) <= set(anchors_of(web))
    assert anchors(info.anti_affinity[0].selector, None) == ((None, "app", "web"),)
