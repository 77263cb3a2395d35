"""A search finds a placement of a group whenever there is one, and proves it where there is none.

Random worlds of unlike pods that keep apart, beside each other and in one rack; whether a placement
exists is found by trying all of them.
"""

import itertools
import os
import resource
import signal
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduling.engine.groups import schedule_group
from scheduling.engine.reference.cycle import Options, PodToPlace
from scheduling.engine.snapshot import Snapshot
from scheduling.packing import child_process
from scheduling.packing.gang_facts import assignment, gang_problem
from scheduling.packing.gangs import FOUND, IMPOSSIBLE, LATE, GangSearch, search
from tests.builders import PodBuilder
from tests.engine.test_groups import RACK, cluster, group, in_rack, member
from tests.forms import many
from tests.harness import kubernetes_framework, to_place
from tests.waiting import until

pytest.importorskip("ortools")


def term(app: str, key: str) -> dict[str, Any]:
    return {"labelSelector": {"matchLabels": {"app": app}}, "topologyKey": key}


def with_terms(pod: PodBuilder, kind: str, app: str, key: str) -> PodBuilder:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": [term(app, key)]}
    return pod.with_("spec", "affinity", value={kind: required})


def places(snapshot: Snapshot, pods: list[PodBuilder]) -> list[PodToPlace]:
    return [to_place(snapshot, one.build()) for one in pods]


def names_of(snapshot: Snapshot) -> list[str]:
    return [snapshot.node_name(row) for row in snapshot.rows().tolist()]


def exists(world: Any, pods: list[PodBuilder], made: Any) -> bool:
    """Return whether some order and choice of nodes is let by every filter, one after the other."""
    count = len(pods)
    for order in itertools.permutations(range(count)):
        for nodes in itertools.product([f"n{n}" for n in range(world[0])], repeat=count):
            snapshot = world[1]()
            snapshot.groups.set(made)
            given_nodes = {f"default/p{order[at]}": node for at, node in enumerate(nodes)}
            ready = places(snapshot, [pods[at] for at in order])
            found = schedule_group(
                snapshot, kubernetes_framework(), made.key, ready,
                Options(seed=1, preempt=False), assigned=given_nodes,
            )  # fmt: skip
            if found.placed and all(one.scheduled for one in found.decisions):
                return True
    return False


def test_unlike_pods_that_the_order_misses_are_placed() -> None:
    """A small pod goes where the large one had to: decided in order, the group does not fit."""
    pods = [
        member("p0", cpu="1"),
        member("p1", cpu="3"),
        member("p2", cpu="3"),
        member("p3", cpu="1"),
    ]
    for seed in range(20):
        snapshot = cluster("4", "4")
        made = group(count=4)
        snapshot.groups.set(made)
        ready, framework = places(snapshot, pods), kubernetes_framework()
        problem = gang_problem(snapshot, framework, made, ready, 0)
        assert problem is not None
        answer = search(problem, 5.0)
        assert answer.outcome == FOUND
        found = schedule_group(
            snapshot, framework, made.key, ready, Options(seed=seed),
            assigned=assignment(names_of(snapshot), ready, answer),
        )  # fmt: skip
        assert found.placed
        assert snapshot.assumed_count == 4


def test_what_cannot_be_is_proved() -> None:
    snapshot = cluster("4", "4")
    made = group(count=3)
    ready = places(snapshot, [member(f"p{n}", cpu="3") for n in range(2)] + [member("p2", cpu="2")])
    problem = gang_problem(snapshot, kubernetes_framework(), made, ready, 0)
    assert problem is not None
    assert search(problem, 5.0).outcome == IMPOSSIBLE


def test_a_search_beside_answers_and_ends_with_who_asked() -> None:
    snapshot = cluster("4", "4")
    ready = places(snapshot, [member("p0", cpu="3"), member("p1", cpu="1")])
    problem = gang_problem(snapshot, kubernetes_framework(), group(count=2), ready, 0)
    assert problem is not None
    asked = GangSearch(5.0)
    asked.ask("g", problem)
    found: list[Any] = []
    until(lambda: found.extend(asked.answers()) or found, seconds=90)
    assert [(key, one.outcome) for key, one in found] == [("g", FOUND)]
    asked.close()


def test_a_search_that_stands_still_is_ended_and_one_that_dies_is_made_again():
    """And its process may take no more memory than the packer's."""
    snapshot = cluster("4", "4")
    ready = places(snapshot, [member("p0", cpu="3"), member("p1", cpu="1")])
    problem = gang_problem(snapshot, kubernetes_framework(), group(count=2), ready, 0)
    assert problem is not None
    asked = GangSearch(0.5)
    asked.ask("g", problem)
    found: list[Any] = []
    until(lambda: found.extend(asked.answers()) or found, seconds=90)
    child = asked._child
    assert child is not None
    limits = resource.prlimit(child.pid, resource.RLIMIT_DATA)
    assert limits == (child_process.MOST_MEMORY,) * 2
    os.kill(child.pid, signal.SIGSTOP)
    asked.ask("h", problem)
    until(lambda: found.extend(asked.answers()) or len(found) == 2, seconds=90)
    asked.ask("i", problem)
    until(lambda: found.extend(asked.answers()) or len(found) == 3, seconds=90)
    child = asked._child
    assert child is not None
    os.kill(child.pid, signal.SIGSTOP)
    asked.ask("j", problem)
    os.kill(child.pid, signal.SIGKILL)
    until(lambda: found.extend(asked.answers()) or len(found) == 4, seconds=90)
    asked.close()
    outcomes = [("g", FOUND), ("h", LATE), ("i", FOUND), ("j", FOUND)]
    assert [(key, one.outcome) for key, one in found] == outcomes


def test_a_pod_that_is_company_enough_for_itself_may_have_to_come_first():
    """Where another pod of its labels is, it has to be beside that one, and there is no room."""
    pods = [
        member("p0", cpu="1").labelled(app="a"),
        with_terms(member("p1", cpu="1").labelled(app="a"), "podAffinity", "a", HOST),
    ]
    made = group(count=2)
    snapshot = cluster("1", "1", racks=("x", "y"))
    snapshot.groups.set(made)
    ready, framework = places(snapshot, pods), kubernetes_framework()
    problem = gang_problem(snapshot, framework, made, ready, 0)
    assert problem is not None
    answer = search(problem, 10.0)
    found = schedule_group(
        snapshot, framework, made.key, ready, Options(seed=1),
        assigned=assignment(names_of(snapshot), ready, answer),
    )  # fmt: skip
    assert (answer.outcome, found.placed) == (FOUND, True)


HOST = "kubernetes.io/hostname"
WISHES = [None, ("podAffinity", "a"), ("podAntiAffinity", "a"), ("podAntiAffinity", "b")]
pod_kinds = st.tuples(
    st.integers(1, 3), st.sampled_from(["a", "b"]),
    st.sampled_from(WISHES),
    st.sampled_from([HOST, RACK]),
)  # fmt: skip


@settings(max_examples=many(8, 120), deadline=None)
@given(
    st.lists(st.integers(1, 4), min_size=2, max_size=3),
    st.lists(pod_kinds, min_size=2, max_size=3),
    st.booleans(),
    st.data(),
)
def test_a_placement_is_found_whenever_it_exists(sizes, kinds, racked, data):
    racks = tuple(data.draw(st.sampled_from("xy")) for _ in sizes)
    pods = []
    for number, (cpu, app, wish, key) in enumerate(kinds):
        pod = member(f"p{number}", cpu=str(cpu)).labelled(app=app)
        pods.append(with_terms(pod, *wish, key) if wish else pod)
    made = group(count=len(pods), **(in_rack() if racked else {}))

    def world() -> Snapshot:
        return cluster(*map(str, sizes), racks=racks)

    snapshot = world()
    snapshot.groups.set(made)
    ready, framework = places(snapshot, pods), kubernetes_framework()
    problem = gang_problem(snapshot, framework, made, ready, 0)
    assert problem is not None
    answer = search(problem, 10.0)
    there = exists((len(sizes), world), pods, made)
    assert (answer.outcome == FOUND) >= there
    if answer.outcome == IMPOSSIBLE:
        assert not there
    if there:
        found = schedule_group(
            snapshot, framework, made.key, ready, Options(seed=1),
            assigned=assignment(names_of(snapshot), ready, answer),
        )  # fmt: skip
        assert found.placed
