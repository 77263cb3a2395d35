"""Traces in openb's format: an excerpt of our own making, and the real one where it is."""

import gzip
import os
from pathlib import Path

import pytest

from scheduling.scenarios import policies, trace_files, traces
from scheduling.scenarios.comparing import compare
from scheduling.scenarios.outcome import Outcome
from scheduling.scenarios.page import page
from scheduling.scenarios.playing import play
from scheduling.scenarios.script import Script
from scheduling.scenarios.tables import comparison_table, json_lines

NODES = """sn,cpu_milli,memory_mib,gpu,model
node-0,32000,131072,2,T4
node-1,32000,131072,2,G2
node-2,16000,65536,0,
"""
HEAD = (
    "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,"
    "deletion_time,scheduled_time\n"
)
PODS = (
    HEAD
    + """late,4000,8192,1,1000,,LS,Running,500,900,510
shared-a,4000,8192,1,400,,LS,Running,100,1000,100
shared-b,4000,8192,1,400,T4|G2,BE,Running,100,1000,100
double,8000,16384,2,1000,T4,LS,Pending,200,1000,
plain,8000,16384,0,0,,Burstable,Succeeded,200,300,200
"""
)


@pytest.fixture
def trace(tmp_path: Path) -> tuple[Path, Path]:
    nodes, pods = tmp_path / "nodes.csv", tmp_path / "pods.csv.gz"
    nodes.write_text(NODES)
    pods.write_bytes(gzip.compress(PODS.encode()))
    return nodes, pods


def _played(script: Script) -> list[Outcome]:
    names = ("least", "most", "packing", "fragmentation")
    return [play(script, policies.load(name, script), title=name) for name in names]


@pytest.mark.parametrize("packed", [False, True])
def test_a_trace_may_come_through_a_pipe(trace: tuple[Path, Path], *, packed: bool) -> None:
    """As with ``--trace openb nodes.csv <(xz -dc pods.csv.xz)``."""
    reads, writes = os.pipe()
    try:
        os.write(writes, gzip.compress(PODS.encode()) if packed else PODS.encode())
        os.close(writes)
        found = traces.read("openb", [trace[0], Path(f"/dev/fd/{reads}")])
    finally:
        os.close(reads)
    assert found.steps == traces.read("openb", trace).steps


def test_a_trace_is_read_as_nodes_arrivals_and_running_times(trace: tuple[Path, Path]) -> None:
    script = traces.read("openb", trace)
    assert [node["metadata"]["name"] for node in script.objects] == ["node-0", "node-1", "node-2"]
    assert script.objects[0]["status"]["allocatable"][traces.RESOURCE] == "2000"
    assert traces.RESOURCE not in script.objects[2]["status"]["allocatable"]
    coming = [(step.at, a.manifest["metadata"]["name"], a.runs, a.recorded_wait)
              for step in script.steps for a in step.arrivals]  # fmt: skip
    assert coming == [
        (0.0, "shared-a", 900.0, 0.0),
        (0.0, "shared-b", 900.0, 0.0),
        (100.0, "double", 800.0, None),
        (100.0, "plain", 100.0, 0.0),
        (400.0, "late", 390.0, 10.0),
    ]
    requests = script.steps[1].arrivals[0].manifest["spec"]["containers"][0]["resources"]
    assert requests["requests"][traces.RESOURCE] == "2000"


def test_running_times_stretch_and_nodes_are_thinned(trace: tuple[Path, Path]) -> None:
    script = traces.read("openb", trace, stretch=3, share_of_nodes=0.34)
    assert [node["metadata"]["name"] for node in script.objects] == ["node-2"]
    assert [a.runs for a in script.steps[0].arrivals] == [2700.0, 2700.0]


def test_the_fragmentation_aware_scorer_keeps_whole_gpus_free(trace: tuple[Path, Path]) -> None:
    """LeastAllocated puts the two shared pods on two nodes, and the double one waits for a T4."""
    script = traces.read("openb", trace)
    waits = {
        outcome.title: {fate.pod: fate.waited for fate in outcome.fates}
        for outcome in _played(script)
    }
    assert waits["least"]["default/double"] != 0.0
    assert waits["fragmentation"]["default/double"] == 0.0


def test_outcomes_are_compared_as_table_lines_and_page(trace: tuple[Path, Path]) -> None:
    outcomes = _played(traces.read("openb", trace))
    found = compare(outcomes)
    table = comparison_table(found)
    assert table.splitlines()[0].split() == ["least", "most", "packing", "fragmentation"]
    assert "never bound" in table
    lines = list(json_lines(outcomes, found))
    assert sum(b'"type":"pod"' in line for line in lines) == 4 * 5
    assert sum(b'"type":"summary"' in line for line in lines) == 4
    html = page("A <trace>", ("One & all.",), outcomes, found)
    assert "A &lt;trace&gt;" in html
    assert html.count('<svg viewBox="0 0 720') == 7
    for loaded in ("src=", "href=", "@import", "url(", "<script"):
        assert loaded not in html, "the page stands by itself"


@pytest.mark.parametrize(
    ("file", "text", "problem"),
    [
        (0, "sn,cpu_milli\n", "no column gpu, memory_mib, model"),
        (0, NODES.replace("131072,2,T4", "much,2,T4"), "line 2: memory_mib is not a number"),
        (1, PODS.replace("late,4000", "late,-4000"), "line 2: cpu_milli is out of range"),
        (1, "\x1f\x8b broken", "pods.csv"),
        (1, PODS + "short,4000\n", "line 7: no memory_mib"),
        (0, NODES + ",1,1,0,\n", "line 5: no sn"),
    ],
)
def test_a_file_that_is_no_trace_says_where(
    tmp_path: Path, file: int, text: str, problem: str
) -> None:
    texts = [NODES, PODS]
    texts[file] = text
    paths = [tmp_path / "nodes.csv", tmp_path / "pods.csv"]
    for path, content in zip(paths, texts, strict=True):
        path.write_bytes(content.encode("latin-1"))
    with pytest.raises(trace_files.TraceError, match=problem):
        traces.read("openb", paths)


def test_shares_is_true_or_false(trace: tuple[Path, Path]) -> None:
    assert traces.read("openb", trace, shares=False).scored[0] == traces.WHOLE_RESOURCE
    assert traces.read("openb", trace, shares="True").scored[0] == traces.RESOURCE
    with pytest.raises(trace_files.TraceError, match="shares must be true or false: no"):
        traces.read("openb", trace, shares="no")


def test_a_trace_that_is_not_there_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(trace_files.TraceError, match="nowhere"):
        traces.read("openb", [tmp_path / "nowhere.csv"] * 2)
