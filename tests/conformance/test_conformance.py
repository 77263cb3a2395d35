"""The conformance vectors as tests, one per area, and the runner's own behaviour."""

import io
import json

import pytest

from tests.conformance import area_quantity, choose, runner

AREAS = runner.files(runner.folders())


@pytest.mark.skipif(not AREAS, reason=runner.missing(runner.folders()))
@pytest.mark.parametrize("area", sorted(AREAS))
def test_every_vector_of_the_area_passes(area):
    outcomes = list(runner.run_area(area, AREAS[area]))
    failed = [o for o in outcomes if o.verdict == "failed"]
    if runner.load(area) is runner.not_judged:
        pytest.skip(f"{area}: {outcomes[0].message} ({len(outcomes)} cases)")
    assert not failed, "\n".join(f"{o.case}: {o.message[:500]}" for o in failed[:10])


def run(monkeypatch, folder, *arguments):
    monkeypatch.setenv("CONFORMANCE_VECTORS", str(folder))
    out, log = io.StringIO(), io.StringIO()
    status = runner.main(list(arguments), out, log)
    return status, out.getvalue().splitlines(), log.getvalue()


def test_the_total_comes_last_and_success_is_zero(monkeypatch, tmp_path):
    case = {"op": "parse", "input": "1+1.0M", "error": "x"}
    good = {"id": "q1", "op": "cmp", "a": {"string": "1Ki"}, "b": {"string": "1k"}, "result": 1}
    (tmp_path / "quantity.more.jsonl").write_text(json.dumps(good) + "\n\n")
    status, rows, _ = run(monkeypatch, tmp_path)
    assert (status, rows[-1]) == (0, "1 passed, 0 failed, 0 skipped")
    assert rows[0].split() == ["quantity", "1", "0", "0"]
    (tmp_path / "quantity.worse.jsonl").write_text(json.dumps(case) + "\n")
    status, rows, log = run(monkeypatch, tmp_path)
    assert (status, rows[-1]) == (1, "1 passed, 1 failed, 0 skipped")
    assert "quantity.worse.jsonl:1" in log


def test_the_areas_of_several_folders_add_up_and_one_that_waits_is_skipped(monkeypatch, tmp_path):
    good = {"id": "q1", "op": "cmp", "a": {"string": "1Ki"}, "b": {"string": "1k"}, "result": 1}
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "quantity.open.jsonl").write_text(json.dumps(good) + "\n")
    (tmp_path / "two" / "waits.open.jsonl").write_text("{}\n")
    monkeypatch.setattr(runner, "NOT_JUDGED_YET", {"waits"})
    status, rows, log = run(monkeypatch, f"{tmp_path / 'one'}:{tmp_path / 'two'}", "-v")
    assert (status, rows[-1]) == (0, "2 passed, 0 failed, 1 skipped")
    assert "this area is not judged yet" in log


@pytest.mark.parametrize(
    ("name", "line"),
    [
        ("unheardof.open.jsonl", "{}"),
        ("quantity.open.jsonl", '{"op": "par'),
        ("quantity.open.jsonl", "[]"),
        ("quantity.open.jsonl", '{"op": "unheard of"}'),
        ("quantity.open.jsonl", "{}"),
        ("../evil.jsonl".replace("../", "Evil-"), "{}"),
    ],
)
def test_what_cannot_be_judged_fails(monkeypatch, tmp_path, name, line):
    (tmp_path / name).write_text(line + "\n")
    status, rows, log = run(monkeypatch, tmp_path)
    assert (status, rows[-1]) == (1, "0 passed, 1 failed, 0 skipped")
    assert log.startswith("failed ")


def test_a_missing_folder_is_skipped_with_a_message(monkeypatch, tmp_path):
    status, rows, log = run(monkeypatch, tmp_path / "nowhere")
    assert (status, rows) == (0, ["0 passed, 0 failed, 0 skipped"])
    assert "CONFORMANCE_VECTORS" in log


def test_a_field_that_nobody_looks_at_fails(monkeypatch, tmp_path):
    good = {"id": "q1", "op": "cmp", "a": {"string": "1Ki"}, "b": {"string": "1k"}, "result": 1}
    more = {**good, "id": "q2", "rounded": "up", "notes": [], "gates": {"Rounding": False}}
    lines = "\n".join(map(json.dumps, (good, more)))
    (tmp_path / "quantity.open.jsonl").write_text(lines)
    status, rows, log = run(monkeypatch, tmp_path, "-v")
    assert (status, rows[-1]) == (1, "2 passed, 3 failed, 0 skipped")
    assert [line.split("'")[1] for line in log.splitlines()] == [
        "rounded",
        "gates",
        "gates.Rounding",
    ]
    monkeypatch.setattr(area_quantity, "UNREAD", {"rounded", "gates"}, raising=False)
    assert run(monkeypatch, tmp_path)[0] == 0


def test_chosen_lines_take_all_ways_together_and_none_is_chosen_that_adds_nothing():
    ways = {"short": {1, 2}, "longer line": {1, 2, 3}, "other": {4}, "same": {4, 1}}
    assert choose.chosen(ways) == ["same", "short", "longer line"]


def test_ways_are_told_apart_by_lines_by_how_often_and_by_small_values():
    judge = runner.load("quantity")

    def ways(a, b):
        case = {"op": "cmp", "a": {"string": a}, "b": {"string": b}, "result": 0}
        return choose.ways_of(lambda: judge(case))

    difference, taken = ways("1", "1")
    assert difference is None
    assert taken
    assert ways("1", "1")[1] <= taken
    assert ways("1", "1Ki")[0] is not None


def test_each_area_that_is_judged_has_vectors_here():
    here = {path.name.split(".")[0] for path in runner.OWN_FOLDER.glob("*.jsonl")}
    areas = {path.stem.removeprefix("area_") for path in runner.OWN_FOLDER.parent.glob("area_*.py")}
    assert here == areas
