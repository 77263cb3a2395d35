"""Plugins run in their order, and what they answer ends or continues the cycle (R149-R168)."""

from typing import Any

import msgspec
import numpy as np
import pytest

from clusterstate.objects.rules import scheduling_class
from clusterstate.objects.values.pod import Pod
from scheduling.engine.deciding import Decider
from scheduling.engine.reference.cycle import Options, PodToPlace, schedule_batch, schedule_pod
from scheduling.engine.reference.decision import ERROR, SCHEDULED, UNSCHEDULABLE, Decision
from scheduling.engine.snapshot import Snapshot
from scheduling.engine.snapshot.requirements import from_pod
from scheduling.framework.configuration import PluginUse, Profile
from scheduling.framework.interface import CycleState, FilterResult, PreFilterResult
from scheduling.framework.outcomes import PluginFailed
from scheduling.framework.runtime import ConfigurationError, Framework
from scheduling.framework.status import SKIP, SUCCESS, Code, Status, unresolvable, unschedulable
from scheduling.framework.types import Nomination
from tests.builders import make_node, make_pod

NODES = ("node-a", "node-b", "node-c")


class Recorder:
    """A plugin for any extension point that notes its calls and answers as it is told."""

    def __init__(self, name: str, calls: list[str], **answers: Any) -> None:
        self.name = name
        self.calls = calls
        self.answers = answers

    def _answer(self, point: str, default: Any) -> Any:
        self.calls.append(f"{point} {self.name}")
        answer = self.answers.get(point, default)
        if isinstance(answer, Exception):
            raise answer
        return answer

    def pre_enqueue(self, pod: Any) -> Any:
        return self._answer("pre_enqueue", SUCCESS)

    def pre_filter(self, state: Any, pod: Any, snapshot: Any) -> Any:
        return self._answer("pre_filter", (None, SUCCESS))

    def filter(self, state: Any, pod: Any, snapshot: Any, rows: Any) -> Any:
        answer = self._answer("filter", None)
        if isinstance(answer, dict):  # status by node name
            names = [snapshot.node_name(row) for row in rows.tolist()]
            self.calls.append(f"judged {' '.join(names)}")
            found = [answer.get(name, SUCCESS) for name in names]
            return FilterResult(
                np.array([s.code for s in found], np.uint8),
                np.arange(len(found), dtype=np.int32),
                tuple(s.reasons for s in found),
            )
        return answer

    def post_filter(self, state: Any, pod: Any, snapshot: Any, diagnosis: Any, handle: Any) -> Any:
        return self._answer("post_filter", (None, unschedulable("no help")))

    def pre_score(self, state: Any, pod: Any, snapshot: Any, rows: Any, multiplicity: Any) -> Any:
        return self._answer("pre_score", SUCCESS)

    def score(self, state: Any, pod: Any, snapshot: Any, rows: Any) -> Any:
        answer = self._answer("score", 0)
        return np.full(len(rows), answer, np.int64) if isinstance(answer, int) else answer

    def reserve(self, state: Any, pod: Any, node_name: str) -> Any:
        return self._answer("reserve", SUCCESS)

    def unreserve(self, state: Any, pod: Any, node_name: str) -> None:
        self._answer("unreserve", None)

    def permit(self, state: Any, pod: Any, node_name: str) -> Any:
        return self._answer("permit", (SUCCESS, 0.0))

    def pre_bind(self, state: Any, pod: Any, node_name: str) -> Any:
        return self._answer("pre_bind", SUCCESS)

    def bind(self, state: Any, pod: Any, node_name: str) -> Any:
        return self._answer("bind", SUCCESS)

    def post_bind(self, state: Any, pod: Any, node_name: str) -> None:
        self._answer("post_bind", None)


def framework(points: dict[str, list[Any]], weights: dict[str, int] | None = None) -> Framework:
    uses = {
        point: tuple(PluginUse(p.name, (weights or {}).get(p.name, 1)) for p in plugins)
        for point, plugins in points.items()
    }
    plugins = {p.name: p for found in points.values() for p in found}
    return Framework(Profile(points=uses), plugins)


class Meter:
    """Notes what it is told; each look at its clock is a second later."""

    def __init__(self) -> None:
        self.now = 0.0
        self.calls: list[tuple[str, str, str]] = []
        self.points: list[tuple[str, str, str]] = []

    def clock(self) -> float:
        self.now += 1
        return self.now

    def note(self, plugin: str, point: str, code: Code, seconds: float) -> None:
        assert seconds > 0
        self.calls.append((plugin, point, code.wire))

    def note_point(self, profile: str, point: str, code: Code, seconds: float) -> None:
        assert seconds > 0
        self.points.append((profile, point, code.wire))


def cluster() -> Snapshot:
    snapshot = Snapshot()
    for name in NODES:
        snapshot.set_node(make_node(name).build())
    return snapshot


def decide(run: Framework, snapshot: Snapshot | None = None, **options: Any) -> Decision:
    snapshot = snapshot or cluster()
    pod = PodToPlace("default/p", snapshot.intern(from_pod(make_pod("p").build())))
    return schedule_pod(snapshot, run, pod, Options(**{"tie_break": "first", **options}))


def test_a_failing_pre_filter_ends_the_cycle() -> None:
    """R153."""
    calls: list[str] = []
    bad = Recorder("Bad", calls, pre_filter=(None, Status(Code.ERROR, ("broken",))))
    after = Recorder("After", calls)
    decision = decide(framework({"preFilter": [bad, after], "filter": [after]}))
    assert decision.outcome == ERROR
    assert decision.message == 'running PreFilter plugin "Bad": broken'
    assert decision.rejected_by == ("Bad",)
    assert calls == ["pre_filter Bad"]


def test_a_pre_filter_that_skips_leaves_out_its_filter() -> None:
    calls: list[str] = []
    idle = Recorder("Idle", calls, pre_filter=(None, SKIP), filter={"node-a": unschedulable("x")})
    same = Recorder("Same", [])
    decision = decide(framework({"preFilter": [idle], "filter": [idle], "score": [same]}))
    assert decision.feasible == 3
    assert calls == ["pre_filter Idle"]


@pytest.mark.parametrize("percentage", [100, 50])
def test_where_nothing_scores_the_first_node_that_fits_is_taken(percentage: int) -> None:
    """TestSchedulerSchedulePod, schedule_one_test.go, v1.36: no extra nodes are evaluated."""
    calls: list[str] = []
    full = Recorder("Full", calls, filter={"node-b": unschedulable("full")})
    run = framework({"filter": [full]})
    profile = msgspec.structs.replace(run.profile, percentage_of_nodes_to_score=percentage)
    run = Framework(profile, {"Full": full})
    snapshot = cluster()
    pods = [
        PodToPlace(f"default/{number}", snapshot.intern(from_pod(make_pod("p").build())))
        for number in range(4)
    ]
    found = schedule_batch(snapshot, run, pods, decider=Decider(snapshot, run))
    assert [(one.node_name, one.evaluated, one.feasible) for one in found] == [
        ("node-a", 1, 1), ("node-c", 2, 1), ("node-a", 1, 1), ("node-c", 2, 1),
    ]  # fmt: skip
    names = PreFilterResult(frozenset({"node-a", "node-c"}))
    named = Recorder("Named", calls, pre_filter=(names, SUCCESS))
    decision = decide(framework({"preFilter": [named]}))
    assert (decision.evaluated, decision.feasible) == (1, 1)
    scored = decide(framework({"preFilter": [named], "score": [Recorder("Same", calls)]}))
    assert (scored.evaluated, scored.feasible) == (2, 2)


class Outside(Recorder):
    """An extender; ``filters_nodes``: whether it has a filter."""

    def __init__(self, *, filters_nodes: bool) -> None:
        super().__init__("Outside", [])
        self.filters_nodes = filters_nodes

    def process_preemption(self, state: Any, pod: Any, snapshot: Any, candidates: Any) -> Any:
        return candidates


@pytest.mark.parametrize(("filters", "evaluated"), [(True, 3), (False, 1)])
def test_an_extender_that_filters_is_asked_about_more_than_one_node(
    filters: bool, evaluated: int
) -> None:
    """``hasExtenderFilters``, schedule_one.go, v1.36."""
    assert decide(framework({"filter": [Outside(filters_nodes=filters)]})).evaluated == evaluated


def test_pre_filters_that_exclude_each_other_say_so() -> None:
    calls: list[str] = []
    one = Recorder("One", calls, pre_filter=(PreFilterResult(frozenset({"node-a"})), SUCCESS))
    two = Recorder("Two", calls, pre_filter=(PreFilterResult(frozenset({"node-b"})), SUCCESS))
    decision = decide(framework({"preFilter": [one, two]}))
    assert decision.message == (
        "0/3 nodes are available: node(s) didn't satisfy plugin(s) [One Two] simultaneously."
    )
    assert decision.rejected_by == ("One", "Two")
    only = decide(framework({"preFilter": [one], "filter": [two]}))
    assert only.node_name == "node-a"
    assert only.evaluated == 1


@pytest.mark.parametrize("named", ["node-a", "elsewhere"])
def test_who_names_nodes_that_do_not_fit_is_among_those_that_rejected(named: str) -> None:
    """That it names others may help, too: TestSchedulerSchedulePod, schedule_one_test.go, v1.36."""
    calls: list[str] = []
    one = Recorder("One", calls, pre_filter=(PreFilterResult(frozenset({named})), SUCCESS))
    two = Recorder("Two", calls, filter={"node-a": unschedulable("full")})
    decision = decide(framework({"preFilter": [one], "filter": [two]}))
    assert decision.outcome == UNSCHEDULABLE
    assert decision.rejected_by == (("One", "Two") if named == "node-a" else ("One",))


def test_who_answers_pending_for_a_node_is_told_apart() -> None:
    """AddPluginStatus, framework/types.go, v1.36; PreFilter cannot answer so."""
    calls: list[str] = []
    waits = Status(Code.PENDING, ("not yet",))
    one = Recorder("One", calls, filter={"node-a": waits, "node-b": unschedulable("full")})
    two = Recorder("Two", calls, filter={"node-c": unschedulable("far")})
    decision = decide(framework({"filter": [one, two]}))
    assert decision.outcome == UNSCHEDULABLE
    assert (decision.rejected_by, decision.pending_by) == (("One", "Two"), ("One",))
    early = Recorder("Early", calls, pre_filter=(None, waits))
    decision = decide(framework({"preFilter": [early]}))
    assert decision.outcome == ERROR
    assert decision.message == 'running PreFilter plugin "Early": not yet'


def test_of_several_pre_filters_that_reject_the_last_one_says_why() -> None:
    """Those that named nodes are waited for as well: RunPreFilterPlugins, framework.go, v1.36."""
    calls: list[str] = []
    names = Recorder("Names", calls, pre_filter=(PreFilterResult(frozenset({"node-a"})), SUCCESS))
    one = Recorder("One", calls, pre_filter=(None, unschedulable("first")))
    two = Recorder("Two", calls, pre_filter=(None, unschedulable("second")))
    decision = decide(framework({"preFilter": [names, one, two]}))
    assert decision.message == "0/3 nodes are available: second."
    assert decision.rejected_by == ("Names", "Two")


def test_a_rejected_node_is_not_shown_to_later_filters() -> None:
    """R154: plugins run in order, the first rejection stops the rest for that node."""
    calls: list[str] = []
    first = Recorder("First", calls, filter={"node-b": unschedulable("full", "dark")})
    second = Recorder("Second", calls, filter={"node-c": unresolvable("far")})
    points = {"filter": [first, second], "score": [Recorder("Same", [])]}
    decision = decide(framework(points), full=True)
    assert calls == [
        "filter First",
        "judged node-a node-b node-c",
        "filter Second",
        "judged node-a node-c",
    ]
    assert decision.node_name == "node-a"
    assert decision.full is not None
    assert decision.full.nodes["node-b"].rejected == Status(
        Code.UNSCHEDULABLE, ("full", "dark"), "First"
    )
    assert {(r.status.plugin, r.nodes) for r in decision.rejections} == {
        ("First", 1), ("Second", 1),
    }  # fmt: skip


def test_post_filter_runs_only_without_feasible_nodes_and_until_one_helps() -> None:
    """R155."""
    calls: list[str] = []
    none = dict.fromkeys(NODES, unschedulable("full"))
    helps = (Nomination(node_name="node-b"), SUCCESS)
    points = {
        "filter": [Recorder("No", calls, filter=none)],
        "postFilter": [
            Recorder("Idle", calls),
            Recorder("Helps", calls, post_filter=helps),
            Recorder("Late", calls),
        ],
    }
    decision = decide(framework(points))
    assert decision.outcome == UNSCHEDULABLE
    assert decision.nomination == Nomination(node_name="node-b")
    assert [c for c in calls if c.startswith("post")] == ["post_filter Idle", "post_filter Helps"]
    calls.clear()
    points["filter"] = [Recorder("Yes", calls)]
    assert decide(framework(points)).outcome == SCHEDULED
    assert not [c for c in calls if c.startswith("post")]


@pytest.mark.parametrize("failing", [ValueError("lost"), (None, Status(Code.ERROR, ("lost",)))])
def test_a_pod_whose_post_filter_fails_waits_like_any_other_that_does_not_fit(failing: Any) -> None:
    """TestPostFilterPlugin, test/integration/scheduler/plugins, v1.36: it is unschedulable."""
    calls: list[str] = []
    none = dict.fromkeys(NODES, unschedulable("full"))
    points = {
        "filter": [Recorder("No", calls, filter=none)],
        "postFilter": [Recorder("Bad", calls, post_filter=failing), Recorder("Late", calls)],
    }
    decision = decide(framework(points))
    assert decision.outcome == UNSCHEDULABLE
    assert decision.message.startswith("0/3 nodes are available: 3 full. ")
    assert decision.message.endswith("lost")
    assert decision.rejected_by == ("No",)
    assert decision.nomination is None, "it stays as it was"
    assert calls[-1] == "post_filter Bad"


def test_who_fails_before_post_filter_or_has_none_is_nominated_no_longer() -> None:
    """schedulingCycle, schedule_one.go, v1.36."""
    calls: list[str] = []
    none = dict.fromkeys(NODES, unschedulable("full"))
    refuses = Recorder("No", calls, filter=none)
    for points in (
        {"filter": [refuses]},
        {"filter": [Recorder("Bad", calls, filter=ValueError("lost"))]},
        {"preFilter": [Recorder("Bad", calls, pre_filter=ValueError("lost"))]},
        {"score": [Recorder("Bad", calls, score=ValueError("lost"))]},
    ):
        assert decide(framework(points)).nomination == Nomination()
    assert decide(framework({"filter": [refuses]}), Snapshot()).nomination == Nomination()


def test_a_failing_pre_score_ends_the_cycle() -> None:
    """R156."""
    calls: list[str] = []
    bad = Recorder("Bad", calls, pre_score=Status(Code.ERROR, ("broken",)))
    decision = decide(framework({"preScore": [bad], "score": [bad]}))
    assert decision.outcome == ERROR
    assert "score Bad" not in calls


def test_scores_are_weighed_after_normalising() -> None:
    """R157, R159: weights apply to normalised scores; a plugin normalises once, all its own."""
    given = []

    class Doubling(Recorder):
        def score(self, state: Any, pod: Any, snapshot: Any, rows: Any) -> Any:
            return np.arange(len(rows), dtype=np.int64) * 10

        def normalize(self, state: Any, pod: Any, snapshot: Any, rows: Any, scores: Any) -> Any:
            given.append(scores.tolist())
            return scores * 5

    plugins = [Doubling("Doubling", []), Recorder("Flat", [], score=7)]
    run = framework({"score": plugins}, {"Doubling": 3, "Flat": 2})
    decision = decide(run, full=True)
    assert decision.full is not None
    verdict = decision.full.nodes["node-c"]
    assert given == [[0, 10, 20]]
    assert verdict.raw == {"Doubling": 20, "Flat": 7}
    assert verdict.normalized == {"Doubling": 100, "Flat": 7}
    assert verdict.weighted == {"Doubling": 300, "Flat": 14}
    assert (decision.node_name, decision.total, decision.margin) == ("node-c", 314, 150)


def test_a_score_out_of_range_is_an_error_that_names_the_plugin() -> None:
    decision = decide(framework({"score": [Recorder("Wild", [], score=101)]}))
    assert decision.outcome == ERROR
    assert decision.message == (
        'plugin "Wild" returns an invalid score 101, it should in the range of [0, 100] '
        "after normalizing"
    )


class BlinkingLight:
    """The design's example: how often a node's light blinks, scaled to the highest (R158)."""

    name = "BlinkingLight"

    def __init__(self, blinks: dict[str, int]) -> None:
        self.blinks = blinks

    def score_node(self, pod: Any, node: Any) -> int:
        return self.blinks[node.metadata.name]

    def normalize_scores(self, scores: dict[str, int]) -> None:
        highest = max(scores.values())
        for name, score in scores.items():
            scores[name] = score * 100 // highest if highest else 0


@pytest.mark.parametrize(
    ("blinks", "normalized"), [((1, 4, 2), (25, 100, 50)), ((0, 0, 0), (0, 0, 0))]
)
def test_a_plugin_for_single_nodes_scores_and_normalises(
    blinks: tuple[int, ...], normalized: tuple[int, ...]
) -> None:
    """R158: the highest becomes 100; nothing is divided by zero (C19)."""
    plugin = BlinkingLight(dict(zip(NODES, blinks, strict=True)))
    decision = decide(framework({"score": [plugin]}), full=True)
    assert decision.full is not None
    found = [decision.full.nodes[name].normalized["BlinkingLight"] for name in NODES]
    assert tuple(found) == normalized


def test_a_filter_for_single_nodes_rejects_with_its_reasons() -> None:
    class OnlyB:
        name = "OnlyB"

        def filter_node(self, pod: Any, node: Any) -> Status | None:
            return None if node.metadata.name == "node-b" else unschedulable("not b")

    decision = decide(framework({"filter": [OnlyB()], "score": [Recorder("Same", [])]}))
    assert decision.node_name == "node-b"
    assert [(r.status.reasons, r.nodes) for r in decision.rejections] == [(("not b",), 2)]


class AffinityByAnnotation:
    """Lets an annotation replace what the pod's own affinity says about racks."""

    name = "AffinityByAnnotation"
    key = f"{scheduling_class.ANNOTATIONS}nodes"

    def filter_node(self, pod: Any, node: Any) -> Status | None:
        wanted = pod.pod.metadata.annotations.get(self.key, "")
        if not wanted or node.metadata.name in wanted.split(","):
            return None
        return unschedulable("annotation")


@pytest.mark.parametrize(
    ("annotations", "node_name"),
    [
        ({AffinityByAnnotation.key: "node-c"}, "node-c"),
        ({AffinityByAnnotation.key: "node-b"}, "node-b"),
        ({AffinityByAnnotation.key: "elsewhere"}, ""),
    ],
)
def test_annotations_can_add_affinity_rules(annotations: dict[str, str], node_name: str) -> None:
    """R27: a plugin takes them into account, and pods that differ in them are decided apart."""
    run = framework({"filter": [AffinityByAnnotation()]})
    snapshot = cluster()
    plain = {"metadata": {"name": "p"}, "spec": {}}
    stored = {**plain, "metadata": {"name": "p", "annotations": {**annotations, "tool.dev/x": "1"}}}
    digest, text = scheduling_class.encode(stored)
    assert digest != scheduling_class.encode(plain)[0]
    assert "tool.dev" not in text
    pod = msgspec.json.decode(text, type=Pod)
    decision = schedule_pod(snapshot, run, PodToPlace("default/p", snapshot.intern(from_pod(pod))))
    assert decision.node_name == node_name


@pytest.mark.parametrize(
    ("point", "answers", "text"),
    [
        ("filter", {"filter": ValueError("boom")}, "ValueError: boom"),
        ("filter", {"filter": "yes"}, "returned str, wanted FilterResult"),
        ("preFilter", {"pre_filter": SUCCESS}, "returned Status, wanted a pair"),
        ("preScore", {"pre_score": None}, "returned NoneType, wanted Status"),
        ("score", {"score": np.zeros(2, np.int64)}, "scores have shape (2,), wanted (3,)"),
        ("score", {"score": np.zeros(3)}, "scores are float64, wanted int64"),
        (
            "filter",
            {"filter": FilterResult(np.zeros(1, np.uint8), np.zeros(3, np.int32), ())},
            "codes has shape (1,), wanted (3,)",
        ),
    ],
)
def test_a_broken_plugin_is_named_and_the_next_pod_is_decided(
    point: str, answers: dict[str, Any], text: str
) -> None:
    calls: list[str] = []
    broken = Recorder("Broken", calls, **answers)
    run = framework({"score": [Recorder("Same", calls)], point: [broken]})
    snapshot = cluster()
    infos = [snapshot.intern(from_pod(make_pod(name).build())) for name in ("p", "q")]
    pods = [PodToPlace(f"default/{n}", info) for n, info in enumerate(infos)]
    decisions = schedule_batch(snapshot, run, pods)
    assert [d.outcome for d in decisions] == [ERROR, ERROR]
    assert text in decisions[0].message
    assert '"Broken"' in decisions[0].message


def test_a_failed_reservation_stops_and_all_are_undone_in_reverse() -> None:
    """R160, R161."""
    calls: list[str] = []
    plugins = [
        Recorder("A", calls),
        Recorder("B", calls, reserve=unschedulable("taken")),
        Recorder("C", calls),
    ]
    run = framework({"reserve": plugins})
    pod = from_pod(make_pod("p").build())
    status = run.reserve(None, pod, "node-a")  # type: ignore[arg-type]
    assert status == Status(Code.UNSCHEDULABLE, ("taken",), "B")
    run.unreserve(None, pod, "node-a")  # type: ignore[arg-type]
    assert calls == ["reserve A", "reserve B", "unreserve C", "unreserve B", "unreserve A"]


def test_a_plugin_extends_several_points_and_keeps_a_state_of_its_own() -> None:
    """R149: what it saw at Reserve decides at Filter for later pods, where it is enabled there."""

    class OnePodEach(Recorder):
        def reserve(self, state: Any, pod: Any, node_name: str) -> Any:
            self.answers.setdefault("filter", {})[node_name] = unschedulable("taken")
            return super().reserve(state, pod, node_name)

    pod = from_pod(make_pod("p").build())
    plugin = OnePodEach("OnePodEach", [], filter={})
    both = framework({"filter": [plugin], "reserve": [plugin]})
    placed = []
    for _ in NODES:
        placed.append(decide(both).node_name)
        assert both.reserve(None, pod, placed[-1]).ok  # type: ignore[arg-type]
    assert placed == list(NODES)
    assert decide(both).outcome == UNSCHEDULABLE
    calls: list[str] = []
    one = framework({"filter": [OnePodEach("OnePodEach", calls, filter={})]})
    assert one.reserve(None, pod, "node-a").ok  # type: ignore[arg-type]
    assert calls == []


def test_permit_waits_unless_someone_rejects() -> None:
    """R162, R163."""
    pod = from_pod(make_pod("p").build())
    wait = Recorder("Wait", [], permit=(Status(Code.WAIT), 15.0))
    fine = Recorder("Fine", [])
    status, waits = framework({"permit": [wait, fine]}).permit(None, pod, "n")  # type: ignore[arg-type]
    assert status.code is Code.WAIT
    assert waits == {"Wait": 15.0}
    no = Recorder("No", [], permit=(unschedulable("denied"), 0.0))
    status, waits = framework({"permit": [wait, no]}).permit(None, pod, "n")  # type: ignore[arg-type]
    assert status == Status(Code.UNSCHEDULABLE, ("denied",), "No")
    assert not waits


def test_unreserve_may_not_fail_and_reaches_every_plugin() -> None:
    """R161."""
    calls: list[str] = []
    plugins = [Recorder("A", calls), Recorder("B", calls, unreserve=RuntimeError("no")),
               Recorder("C", calls)]  # fmt: skip
    run = framework({"reserve": plugins})
    failures = run.unreserve(None, from_pod(make_pod("p").build()), "n")  # type: ignore[arg-type]
    assert calls == ["unreserve C", "unreserve B", "unreserve A"]
    assert [failure.plugin for failure in failures] == ["B"]


def test_post_bind_is_told_to_every_plugin() -> None:
    """R167."""
    calls: list[str] = []
    plugins = [Recorder("A", calls, post_bind=RuntimeError("no")), Recorder("B", calls)]
    run = framework({"postBind": plugins})
    failures = run.post_bind(None, from_pod(make_pod("p").build()), "n")  # type: ignore[arg-type]
    assert calls == ["post_bind A", "post_bind B"]
    assert [failure.plugin for failure in failures] == ["A"]


@pytest.mark.parametrize(
    ("point", "answer", "said"),
    [
        ("reserve", Status(Code.ERROR, ("broken",)), 'running Reserve plugin "P": broken'),
        ("reserve", Status(Code.WAIT), 'running Reserve plugin "P": answered Wait'),
        ("reserve", None, 'running Reserve plugin "P": returned NoneType, wanted Status'),
        ("permit", SUCCESS, 'running Permit plugin "P": returned Status, wanted a pair'),
        ("permit", (Status(Code.WAIT), "soon"), "timeout is not a number of seconds"),
        ("permit", (Status(Code.WAIT), float("inf")), "timeout is not a number of seconds"),
        ("permit", (SKIP, 0), 'running Permit plugin "P": answered Skip'),
        ("pre_bind", ValueError("x"), 'running PreBind plugin "P": ValueError: x'),
        ("bind", Status(Code.ERROR, ("broken",)), 'running Bind plugin "P": broken'),
    ],
)
def test_who_breaks_the_contract_is_named(point: str, answer: Any, said: str) -> None:
    """R151, R160, R162, R165."""
    name = {"pre_bind": "preBind"}.get(point, point)
    run = framework({name: [Recorder("P", [], **{point: answer})]})
    with pytest.raises(PluginFailed) as failed:
        getattr(run, point)(None, from_pod(make_pod("p").build()), "n")
    assert said in failed.value.status.message
    assert (failed.value.status.plugin, failed.value.status.code) == ("P", Code.ERROR)


def test_nobody_waits_longer_than_a_quarter_of_an_hour() -> None:
    wait = Recorder("Wait", [], permit=(Status(Code.WAIT), 3600))
    pod = from_pod(make_pod("p").build())
    assert framework({"permit": [wait]}).permit(None, pod, "n")[1] == {"Wait": 900.0}  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("codes", "reason", "reasons", "said"),
    [
        ([9, 0, 0], [0, 0, 0], (("x",),), "code 9 with reason 0"),
        ([2, 0, 0], [5, 0, 0], (("x",),), "code 2 with reason 5"),
        ([2, 0, 0], [0, 0, 0], ("text",), "reasons must be tuples of strings"),
        ([2.0, 0.0, 0.0], [0, 0, 0], (("x",),), "codes is float64, wanted integers"),
        ([2, 0], [0, 0], (("x",),), "codes has shape (2,), wanted (3,)"),
    ],
)
def test_a_filter_that_answers_nonsense_is_named(
    codes: list[float], reason: list[int], reasons: Any, said: str
) -> None:
    result = FilterResult(np.array(codes), np.array(reason), reasons)
    decision = decide(framework({"filter": [Recorder("Bad", [], filter=result)]}))
    assert decision.outcome == ERROR
    assert decision.message.startswith('running Filter plugin "Bad": ')
    assert said in decision.message


def test_binding_goes_to_the_first_plugin_that_does_not_decline() -> None:
    """R165, R166, R167."""
    calls: list[str] = []
    pod = from_pod(make_pod("p").build())
    plugins = [Recorder("A", calls, bind=SKIP), Recorder("B", calls), Recorder("C", calls)]
    run = framework({"preBind": plugins, "bind": plugins, "postBind": plugins})
    assert run.pre_bind(None, pod, "n").ok  # type: ignore[arg-type]
    assert run.bind(None, pod, "n") == Status(Code.SUCCESS, (), "B")  # type: ignore[arg-type]
    run.post_bind(None, pod, "n")  # type: ignore[arg-type]
    assert calls[3:] == ["bind A", "bind B", "post_bind A", "post_bind B", "post_bind C"]
    failing = framework({"preBind": [Recorder("X", calls, pre_bind=unschedulable("no"))]})
    assert failing.pre_bind(None, pod, "n").plugin == "X"  # type: ignore[arg-type]


def test_a_profile_that_names_an_unknown_plugin_cannot_be_built() -> None:
    profile = Profile(points={"filter": (PluginUse("Nobody"),)})
    with pytest.raises(ConfigurationError, match="'Nobody' does not exist"):
        Framework(profile, {})


def test_a_plugin_must_extend_the_point_where_the_profile_puts_it() -> None:
    profile = Profile(points={"bind": (PluginUse("BlinkingLight"),)})
    with pytest.raises(ConfigurationError, match="does not extend bind"):
        Framework(profile, {"BlinkingLight": BlinkingLight({})})


def test_a_meter_is_told_of_each_call_and_of_each_point_with_what_they_answered() -> None:
    calls: list[str] = []
    run = framework(
        {
            "preFilter": [Recorder("Idle", calls, pre_filter=(None, SKIP))],
            "filter": [Recorder("Fits", calls)],
            "preScore": [Recorder("Ready", calls)],
            "score": [Recorder("Likes", calls)],
            "reserve": [Recorder("Holds", calls)],
            "permit": [Recorder("Waits", calls, permit=(Status(Code.WAIT), 5.0))],
            "preBind": [Recorder("Full", calls, pre_bind=unschedulable("full"))],
            "bind": [Recorder("Other", calls, bind=SKIP)],
            "postBind": [Recorder("Breaks", calls, post_bind=ValueError("x"))],
        }
    )
    run.meter = meter = Meter()
    assert decide(run).outcome == SCHEDULED
    state, pod = CycleState(), from_pod(make_pod("p").build())
    for point in (run.reserve, run.permit, run.pre_bind, run.bind, run.post_bind):
        point(state, pod, "node-a")
    assert meter.calls == [
        ("Idle", "PreFilter", "Skip"), ("Fits", "Filter", "Success"),
        ("Ready", "PreScore", "Success"), ("Likes", "Score", "Success"),
        ("Holds", "Reserve", "Success"), ("Waits", "Permit", "Wait"),
        ("Full", "PreBind", "Unschedulable"), ("Other", "Bind", "Skip"),
        ("Breaks", "PostBind", "Error"),
    ]  # fmt: skip
    assert meter.points == [
        ("default-scheduler", point, told)
        for point, told in (
            ("PreFilter", "Success"), ("Filter", "Success"), ("PreScore", "Success"),
            ("Score", "Success"), ("Reserve", "Success"), ("Permit", "Wait"),
            ("PreBind", "Unschedulable"), ("Bind", "Skip"), ("PostBind", "Error"),
        )
    ]  # fmt: skip


def test_a_meter_is_told_of_what_rejects_and_of_what_fails() -> None:
    calls: list[str] = []
    none = dict.fromkeys(NODES, unschedulable("full"))
    run = framework(
        {"filter": [Recorder("No", calls, filter=none)], "postFilter": [Recorder("Try", calls)]}
    )
    run.meter = meter = Meter()
    assert decide(run).outcome == UNSCHEDULABLE
    assert [(point, told) for _, point, told in meter.points] == [
        ("PreFilter", "Success"), ("Filter", "Success"), ("PostFilter", "Unschedulable"),
    ]  # fmt: skip
    run = framework({"preFilter": [Recorder("Bad", calls, pre_filter=ValueError("broken"))]})
    run.meter = meter = Meter()
    assert decide(run).outcome == ERROR
    assert meter.calls == [("Bad", "PreFilter", "Error")]
    assert meter.points == [("default-scheduler", "PreFilter", "Error")]
