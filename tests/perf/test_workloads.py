"""The benchmark's workloads, small: each asks of the engine what its description says."""

import gzip
import json
from pathlib import Path

import pytest

from scheduling.scenarios import trace_files, traces
from tests.console import served
from tests.forms import few
from tests.perf import command, console, engine, trace, why
from tests.perf.catalogue import WORKLOADS, by_name
from tests.perf.workloads import Workload

NODES = 24


def test_why_is_answered_in_full() -> None:
    told = {one["question"]: one for one in why.run(nodes=NODES, say=quiet)}
    assert told["remedies"]["remedies"] > 0
    assert told["groups"]["groups"] < told["groups"]["classes"]
    assert told["headroom"]["fits"] > 0
    assert told["node advice"]["placed"] > 0


def quiet(line: str) -> None:
    pass


@pytest.mark.parametrize("workload", few(WORKLOADS, 8), ids=lambda workload: workload.name)
def test_a_workload_is_placed_or_refused_as_it_says(workload: Workload) -> None:
    result = engine.run(workload, NODES, say=quiet)
    assert result["pods"] > 0
    if workload.refused:
        assert result["placed"] == 0
    elif workload.preempts:
        assert result["preempted_for"] == result["pods"]
    elif not workload.beside:
        assert result["placed"] == result["pods"]


def test_pods_of_deployments_are_spread_by_default() -> None:
    """Without its Service a Deployment's pods have no spread terms, and the workload is no test."""
    workload = by_name("Deployments300")
    world = engine._World(workload, NODES)
    world.place(world.pods(workload.template(NODES), 0, 50))
    info = world.info(workload.pod(0))
    assert world.snapshot.default_selector(info) is not None


def test_a_class_of_the_trace_mix_has_a_heavy_tail() -> None:
    from tests.perf.realistic import _heavy_tail

    drawn = [_heavy_tail(number, 4_000) for number in range(20_000)]
    assert min(drawn) == 0
    assert max(drawn) < 4_000
    assert len(set(drawn)) > 2_000
    assert 0.4 < sum(number < 63 for number in drawn) / len(drawn) < 0.6


def excerpt(folder: Path, *, packed: bool = False) -> tuple[Path, Path]:
    """Write a trace of the public format, made up: two nodes with GPUs, one without, five pods."""
    ending = ".csv.gz" if packed else ".csv"
    nodes, pods = folder / f"nodes{ending}", folder / f"pods{ending}"
    node_text = (
        "sn,cpu_milli,memory_mib,gpu,model\na,8000,8192,2,T4\nb,8000,8192,1,G2\nc,4000,4096,0,\n"
    )
    pod_text = (
        "name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,"
        "deletion_time,scheduled_time\n"
        "late,1000,512,1,1000,T4|G2,LS,Running,90,100,90\n"
        "first,1000,512,1,600,T4,LS,Running,0,100,0\n"
        "second,1000,512,1,400,T4,BE,Running,10,100,10\n"
        "plain,1000,512,0,0,,LS,Running,20,100,20\n"
        "nowhere,1000,512,1,1000,V100,LS,Pending,30,,\n"
    )
    for path, text in ((nodes, node_text), (pods, pod_text)):
        path.write_bytes(gzip.compress(text.encode()) if packed else text.encode())
    return nodes, pods


@pytest.mark.parametrize("packed", [False, True])
def test_a_trace_is_read_in_the_order_of_creation(tmp_path: Path, packed: bool) -> None:
    workload = trace.read(*excerpt(tmp_path, packed=packed))
    assert workload.node_count == 3
    names = [workload.pod(number)["metadata"]["name"] for number in range(5)]
    assert names == ["first", "second", "plain", "nowhere", "late"]
    result = engine.run(workload, 500, say=quiet)
    assert (result["nodes"], result["placed"]) == (3, 4)
    assert result["shares"][traces.WHOLE_RESOURCE] == 1.0


def test_gpus_in_thousandths_are_shared(tmp_path: Path) -> None:
    result = engine.run(trace.read(*excerpt(tmp_path), shared=True), 500, say=quiet)
    assert result["placed"] == 4
    assert result["shares"][traces.RESOURCE] == round(2000 / 3000, 4)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("sn,cpu_milli\na,1\n", "no column gpu, memory_mib, model"),
        ("sn,cpu_milli,memory_mib,gpu,model\na,many,1,0,\n", "line 2: cpu_milli is not a number"),
    ],
)
def test_what_is_no_trace_is_refused_by_file_and_line(
    tmp_path: Path, text: str, message: str
) -> None:
    nodes, pods = excerpt(tmp_path)
    nodes.write_text(text)
    with pytest.raises(SystemExit, match=message):
        command.main(["--trace", str(nodes), str(pods)])
    with pytest.raises(trace_files.TraceError, match="No such file"):
        trace.read(tmp_path / "absent.csv", pods)


def test_the_command_prints_one_line_for_a_trace(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    command.main(["--trace", *map(str, excerpt(tmp_path))])
    (line,) = capsys.readouterr().out.splitlines()
    assert json.loads(line)["workload"] == "Trace"


def test_every_page_of_the_console_is_measured() -> None:
    measured = {
        served.name_of(path.replace("{decision}", "1").replace("{change}", "1"))
        for path in console.PAGES
    }
    assert measured == served.pages()
