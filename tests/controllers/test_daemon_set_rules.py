"""The rules of DaemonSets, after pkg/controller/daemon of Kubernetes 1.36."""

import msgspec
import pytest

from clusterstate.objects.values.node import Taint
from scheduling.controllers.workloads import daemon_set_rules as rules
from scheduling.controllers.workloads import revision_rules
from scheduling.controllers.workloads.daemon_set_rules import DaemonNode, Verdict
from scheduling.controllers.workloads.pods import OwnedPod
from tests.clock import NOW, after

NEW, OLD = "new", "old"
RUNS, STAYS, LEAVES = Verdict(True, True), Verdict(False, True), Verdict(False, False)


def node(name="n", *, labels=None, taints=()):
    return DaemonNode(name, labels or {}, tuple(Taint(key=k, effect=e) for k, e in taints))


def daemon_set(strategy=None, **spec):
    return {
        "metadata": {"name": "ds", "namespace": "default", "uid": "u", "generation": 3},
        "spec": {
            "template": {"metadata": {"labels": {"app": "d"}}, "spec": {"containers": []}},
            "updateStrategy": strategy or rolling(),
            **spec,
        },
    }


def rolling(unavailable=1, surge=0):
    return {
        "type": "RollingUpdate",
        "rollingUpdate": {"maxUnavailable": unavailable, "maxSurge": surge},
    }


_ids = iter(range(1, 10**6))


def daemon(node, hash_=NEW, *, ready=True, bound=True, **fields):
    number = next(_ids)
    return OwnedPod(
        id=number, uid=f"u{number}", name=f"{hash_}-{node}", owner="u",
        labels={"controller-revision-hash": hash_}, node_name=node if bound else "",
        target=node, created_at=after(fields.pop("age", number / 1000)),
        phase=fields.pop("phase", "Running"), ready_at=NOW if ready else None, **fields,
    )  # fmt: skip


def manage(verdicts, pods, *, resting=(), **options):
    actions = rules.manage(
        daemon_set(**options), verdicts, pods, hash_=NEW, resting=resting, now=NOW
    )
    return sorted(actions.create), sorted(one.name for one in actions.delete)


def roll(pods, *, verdicts=None, managed=None, **options):
    actions = rules.roll(
        daemon_set(**options), verdicts or {rules.place_of(one): RUNS for one in pods}, pods,
        hash_=NEW, now=NOW,
        managed=managed or rules.DaemonSetActions(create=[], delete=[], events=[], failed=[]),
    )  # fmt: skip
    return sorted(actions.create), sorted(one.name for one in actions.delete)


# Where it belongs -----------------------------------------------------------------------------

TAINTS = [
    ("own/NoSchedule", STAYS),
    ("own/NoExecute", LEAVES),
    ("own/PreferNoSchedule", RUNS),
    ("node.kubernetes.io/not-ready/NoExecute", RUNS),
    ("node.kubernetes.io/unreachable/NoExecute", RUNS),
    ("node.kubernetes.io/disk-pressure/NoSchedule", RUNS),
    ("node.kubernetes.io/memory-pressure/NoSchedule", RUNS),
    ("node.kubernetes.io/pid-pressure/NoSchedule", RUNS),
    ("node.kubernetes.io/unschedulable/NoSchedule", RUNS),
    ("node.kubernetes.io/network-unavailable/NoSchedule", STAYS),
    ("node.kubernetes.io/out-of-disk/NoSchedule", STAYS),
]


@pytest.mark.parametrize(("taint", "expected"), TAINTS)
def test_the_controllers_tolerations(taint, expected):
    """R132, R134."""
    key, _, effect = taint.rpartition("/")
    assert rules.Daemon({"spec": {}}).judge(node(taints=[(key, effect)])) == expected


def test_the_network_for_host_network_and_the_disk_for_critical_pods():
    """R134, C17."""
    network = node(taints=[("node.kubernetes.io/network-unavailable", "NoSchedule")])
    disk = node(taints=[("node.kubernetes.io/out-of-disk", "NoSchedule")])
    assert rules.Daemon({"spec": {"hostNetwork": True}}).judge(network) == RUNS
    critical = {"spec": {"priorityClassName": "system-node-critical"}}
    assert rules.Daemon(critical).judge(disk) == RUNS


def test_no_seconds_even_if_the_template_gives_some():
    """R132, R134: tolerations of the template's own stay beside them."""
    own = {
        "key": "node.kubernetes.io/not-ready", "operator": "Exists", "effect": "NoExecute",
        "tolerationSeconds": 5,
    }  # fmt: skip
    found = rules.tolerations({"tolerations": [own, {"operator": "Exists", "key": "gpu"}]})
    assert len(found) == 7
    assert {"operator": "Exists", "key": "gpu"} in found
    assert not any("tolerationSeconds" in one for one in found)


@pytest.mark.parametrize(
    ("spec", "expected"),
    [
        ({}, RUNS),
        ({"nodeSelector": {"disk": "ssd"}}, RUNS),
        ({"nodeSelector": {"disk": "hdd"}}, LEAVES),
        ({"nodeName": "n"}, RUNS),
        ({"nodeName": "other"}, LEAVES),
        ({"affinity": {"key": "disk", "values": ["ssd"]}}, RUNS),
        ({"affinity": {"key": "disk", "values": ["hdd"]}}, LEAVES),
    ],
)
def test_node_selector_affinity_and_name(spec, expected):
    if "affinity" in spec:
        expression = {"operator": "In", **spec["affinity"]}
        terms = [{"matchExpressions": [expression]}]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        spec = {"affinity": {"nodeAffinity": required}}
    assert rules.Daemon({"spec": spec}).judge(node(labels={"disk": "ssd"})) == expected


def test_a_pod_is_pinned_to_its_node_by_name_and_keeps_its_preferences():
    preferred = [{"weight": 1, "preference": {}}]
    spec = {
        "affinity": {
            "podAntiAffinity": {},
            "nodeAffinity": {
                "preferredDuringSchedulingIgnoredDuringExecution": preferred,
                "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": [{}]},
            },
        }
    }
    found = rules.pinned(spec, "n1")["affinity"]
    field = {"key": "metadata.name", "operator": "In", "values": ["n1"]}
    assert found["podAntiAffinity"] == {}
    assert found["nodeAffinity"] == {
        "preferredDuringSchedulingIgnoredDuringExecution": preferred,
        "requiredDuringSchedulingIgnoredDuringExecution": {
            "nodeSelectorTerms": [{"matchFields": [field]}]
        },
    }


# Who is missing and who is too many ------------------------------------------------------------


def test_each_node_gets_one_and_those_that_do_not_belong_go():
    verdicts = {"a": RUNS, "b": RUNS, "c": STAYS, "d": LEAVES, "e": STAYS}
    pods = [daemon("b"), daemon("c"), daemon("d")]
    assert manage(verdicts, pods) == (["a"], ["new-d"])


def test_the_youngest_of_several_go():
    first, second = daemon("a", OLD), daemon("a", NEW)
    assert manage({"a": RUNS}, [second, first]) == ([], ["new-a"])


def test_a_daemon_on_its_way_out_holds_its_place():
    assert manage({"a": RUNS}, [daemon("a", is_leaving=True)]) == ([], [])


def test_what_ended_is_deleted_but_not_again_and_again():
    ended = daemon("a", phase="Failed", ready=False)
    assert manage({"a": RUNS}, [ended]) == ([], ["new-a"])
    assert manage({"a": RUNS}, [ended], resting={"a"}) == ([], [])
    leaving = daemon("a", phase="Failed", ready=False, is_leaving=True)
    assert manage({"a": RUNS}, [leaving]) == (["a"], []), "it needs no place any more"


def test_a_daemon_that_waits_for_a_node_that_is_gone_goes():
    pods = [daemon("gone", bound=False), daemon("gone2")]
    assert manage({}, pods) == ([], ["new-gone"]), "a bound one is the collector's"


# Updates ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("unavailable", "pods", "expected"),
    [
        (1, [("a", OLD, 1), ("b", OLD, 1), ("c", OLD, 1)], ["old-a"]),
        (2, [("a", OLD, 1), ("b", OLD, 1), ("c", OLD, 1)], ["old-a", "old-b"]),
        ("50%", [("a", OLD, 1), ("b", OLD, 1), ("c", OLD, 1)], ["old-a", "old-b"]),
        (1, [("a", NEW, 0), ("b", OLD, 1)], []),  # a new one is not available yet
        (1, [("a", OLD, 0), ("b", OLD, 1)], ["old-a"]),  # what is not available goes first
        (1, [("a", OLD, 0), ("b", OLD, 0)], ["old-a", "old-b"]),
        (1, [("a", NEW, 1), ("b", NEW, 1)], []),
    ],
)
def test_a_rolling_update_replaces_so_many_at_a_time(unavailable, pods, expected):
    found = [daemon(name, hash_, ready=bool(ready)) for name, hash_, ready in pods]
    assert roll(found, strategy=rolling(unavailable)) == ([], expected)


def test_nodes_that_change_anyway_count_as_unavailable():
    pods = [daemon("a", OLD), daemon("b", OLD)]
    managed = rules.DaemonSetActions(create=["c"], delete=[], events=[], failed=[])
    verdicts = dict.fromkeys("abc", RUNS)
    assert roll(pods, verdicts=verdicts, managed=managed) == ([], [])
    more = roll(pods, verdicts=verdicts, managed=managed, strategy=rolling(2))
    assert more == ([], ["old-a"])


def test_on_delete_replaces_nothing_by_itself():
    assert roll([daemon("a", OLD)], strategy={"type": "OnDelete"}) == ([], [])


def test_a_surge_starts_new_ones_first_and_then_ends_the_old():
    strategy = rolling(0, 1)
    pods = [daemon("a", OLD), daemon("b", OLD)]
    assert roll(pods, strategy=strategy) == (["a"], [])
    pods.append(daemon("a", NEW, ready=False))
    assert roll(pods, strategy=strategy) == ([], [])
    assert manage(dict.fromkeys("ab", RUNS), pods, strategy=strategy) == ([], [])
    pods[-1] = msgspec.structs.replace(pods[-1], ready_at=NOW)
    assert roll(pods, strategy=strategy) == (["b"], ["old-a"])


@pytest.mark.parametrize(
    ("pods", "expected"),
    [
        # Where none is to run, the old ones go at once if the others serve enough,
        ([("a", OLD, 1), ("b", OLD, 1), ("gone", OLD, 1)], (["a"], ["old-gone"])),
        ([("a", NEW, 1), ("b", NEW, 1), ("gone", OLD, 1)], ([], ["old-gone"])),
        # and wait while one that is missing elsewhere is started.
        ([("a", OLD, 0), ("b", OLD, 1), ("gone", OLD, 1)], (["a", "b"], [])),
        ([("a", NEW, 0), ("b", OLD, 1), ("gone", OLD, 1)], (["b"], [])),
        (
            [("a", NEW, 0), ("b", OLD, 1), ("gone", OLD, 1), ("gone2", OLD, 1)],
            (["b"], ["old-gone"]),
        ),
        # One that serves nobody keeps nothing up.
        ([("a", NEW, 0), ("b", NEW, 1), ("gone", OLD, 0)], ([], ["old-gone"])),
    ],
)
def test_a_node_where_none_is_to_run_takes_no_part_in_a_surge(pods, expected):
    found = [daemon(name, hash_, ready=bool(ready)) for name, hash_, ready in pods]
    verdicts = {"a": RUNS, "b": RUNS, "gone": STAYS, "gone2": STAYS}
    assert roll(found, verdicts=verdicts, strategy=rolling(0, 1)) == expected


def test_a_successor_that_waits_for_a_node_which_refuses_it_since_is_deleted():
    waiting = daemon("gone", NEW, ready=False, bound=False)
    pods = [daemon("a", OLD), daemon("gone", OLD), waiting]
    verdicts = {"a": RUNS, "gone": STAYS}
    assert roll(pods, verdicts=verdicts, strategy=rolling(0, 1)) == (
        ["a"],
        ["new-gone", "old-gone"],
    )


def test_without_a_surge_nodes_where_none_is_to_run_hold_up_nobody():
    verdicts = {"a": RUNS, "gone": STAYS, "gone2": STAYS}
    pods = [daemon("gone", OLD), daemon("gone2", OLD), daemon("a", OLD)]
    ends = []
    while any(one.name.startswith("old") for one in pods):
        created, deleted = roll(pods, verdicts=verdicts, strategy=rolling(1, 0))
        assert (created, len(deleted)) == ([], 1)
        ends += deleted
        pods = [one for one in pods if one.name not in deleted]
        pods += [daemon("a", NEW)] if deleted == ["old-a"] else []
    assert sorted(ends) == ["old-a", "old-gone", "old-gone2"]


def test_beside_a_new_one_an_old_one_that_is_not_ready_goes():
    pods = [daemon("a", OLD, ready=False), daemon("a", NEW, ready=False)]
    assert manage({"a": RUNS}, pods, strategy=rolling(0, 1)) == ([], ["old-a"])


def test_the_status_counts_nodes_by_their_oldest_daemon():
    verdicts = {"a": RUNS, "b": RUNS, "c": RUNS, "d": STAYS, "e": RUNS}
    pods = [daemon("a"), daemon("b", OLD), daemon("c", ready=False), daemon("d")]
    found, due_at = rules.status(daemon_set(), verdicts, pods, hash_=NEW, now=NOW)
    assert found == {
        "currentNumberScheduled": 3,
        "numberMisscheduled": 1,
        "desiredNumberScheduled": 4,
        "numberReady": 2,
        "observedGeneration": 3,
        "updatedNumberScheduled": 2,
        "numberAvailable": 2,
        "numberUnavailable": 2,
    }
    assert due_at is None


def test_conditions_that_others_set_are_kept():
    owner = daemon_set()
    owner["status"] = {"conditions": [{"type": "Theirs", "status": "True"}]}
    found, _ = rules.status(owner, {"a": RUNS}, [daemon("a")], hash_=NEW, now=NOW)
    assert found["conditions"] == [{"type": "Theirs", "status": "True"}]


def test_what_is_ready_for_too_short_a_time_is_not_available_yet():
    patient = daemon_set(minReadySeconds=10)
    found, due_at = rules.status(patient, {"a": RUNS}, [daemon("a")], hash_=NEW, now=after(3))
    assert (found["numberReady"], found.get("numberAvailable")) == (1, None)
    assert due_at == after(10)


# Revisions --------------------------------------------------------------------------------------


def with_template(image, **status):
    owner = daemon_set(revisionHistoryLimit=1)
    spec = {"containers": [{"name": "c", "image": image}]}
    owner["spec"]["template"] = {"metadata": {"labels": {"app": "d"}}, "spec": spec}
    return {**owner, "status": status}


def test_an_undone_template_is_the_newest_revision_again():
    kept = []
    for number, image in enumerate(("a", "b", "c"), 1):
        history = revision_rules.trace(with_template(image), kept)
        assert history.created
        assert history.current["revision"] == number
        spec = revision_rules.template_of(history.current)["spec"]
        assert [one["image"] for one in spec["containers"]] == [image]
        kept.append(history.current)
    again = revision_rules.trace(with_template("a"), kept)
    assert again.raised
    assert again.current["revision"] == 4
    assert again.current["metadata"]["name"] == kept[0]["metadata"]["name"]
    assert [one["revision"] for one in again.old] == [2, 3]
    assert not revision_rules.trace(with_template("c"), kept).raised


def test_a_template_whose_amounts_are_equal_is_of_the_same_revision():
    owner = with_template("a")

    def asking(cpu):
        container = {"name": "c", "resources": {"requests": {"cpu": cpu}}}
        owner["spec"]["template"]["spec"] = {"containers": [container]}
        return owner

    kept = [revision_rules.trace(asking("0.5"), []).current]
    again = revision_rules.trace(asking("500m"), kept)
    assert (again.created, again.raised, again.current) == (False, False, kept[0])
    assert revision_rules.trace(asking("501m"), kept).created


def test_revisions_beyond_the_limit_go_unless_a_pod_is_of_them():
    kept = [revision_rules.trace(with_template(image), []).current for image in "abc"]
    owner = with_template("d")
    assert revision_rules.beyond(owner, kept, set()) == kept[:2]
    first = revision_rules.hash_of(kept[0])
    assert revision_rules.beyond(owner, kept, {first}) == kept[1:]


def test_a_collision_gives_another_name():
    names = {
        revision_rules.trace(with_template("a", collisionCount=count), []).current["metadata"][
            "name"
        ]
        for count in (0, 1)
    }
    assert len(names) == 2
