"""Traces in the formats of researchers: small samples of our own making in each."""

import gzip
import sqlite3
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from scheduling.plugins.catalogue import load_configuration
from scheduling.scenarios import trace_files, traces
from scheduling.scenarios.playing import play
from scheduling.scenarios.script import Arrival, Script

CONFIGURATION = {
    "apiVersion": "kubescheduler.config.k8s.io/v1",
    "kind": "KubeSchedulerConfiguration",
}

Written = Callable[..., list[Path]]


@pytest.fixture
def written(tmp_path: Path) -> Written:
    def write(*texts: str) -> list[Path]:
        paths = [tmp_path / f"{number}.txt" for number in range(len(texts))]
        for path, text in zip(paths, texts, strict=True):
            path.write_text(text)
        return paths

    return write


def arrivals(script: Script) -> list[tuple[float, Arrival]]:
    return [(step.at, one) for step in script.steps for one in step.arrivals]


def requests(arrival: Arrival) -> dict[str, Any]:
    found: dict[str, Any] = arrival.manifest["spec"]["containers"][0]["resources"]["requests"]
    return found


def placed(script: Script) -> dict[str, str]:
    """Play it; return the node of each pod."""
    outcome = play(script, load_configuration(CONFIGURATION), title="")
    return {fate.pod: fate.node for fate in outcome.fates}


def test_alibabas_gpu_trace_of_2020(written: Written) -> None:
    files = written(
        "machine,gpu_type,cap_cpu,cap_mem,cap_gpu\nM1,V100,96,512,8\nM2,CPU,96,512,0\n",
        "j1,worker,2,Terminated,100,160,600.0,29.5,50.0,V100\n"
        "j2,ps,1,Running,110,,100.0,1,,\n"
        "j3,never,1,Waiting,,,100.0,1,,\n",
    )
    script = traces.read("gpu-2020", files)
    assert [one["status"]["capacity"].get(traces.RESOURCE) for one in script.objects] == [
        "8000",
        None,
    ]
    first, second, third = arrivals(script)
    assert (first[0], first[1].runs, requests(first[1])) == (
        0.0,
        60.0,
        {"cpu": "6000m", "memory": "30208Mi", traces.RESOURCE: "500"},
    )
    assert first[1].manifest["spec"]["nodeSelector"] == {traces.MODEL: "V100"}
    assert second[0] == 0.0
    assert (third[0], third[1].runs) == (10.0, None)
    nodes = placed(script)
    assert {nodes[f"default/j1-worker-1-{at}"] for at in range(2)} == {"m1"}
    assert all(nodes.values())


def test_alibabas_cluster_trace_of_2018(written: Written) -> None:
    files = written(
        "m_1,0,fd1,,96,100,USING\nm_1,900,fd1,,96,100,OFFLINE\nm_2,0,fd2,,96,100,USING\n",
        "task_1,2,j_1,1,Terminated,50,80,50,0.39\n",
        "c_1,m_1,20,app_7,started,400,400,1.56\nc_1,m_1,40,app_7,started,400,400,1.56\n",
    )
    script = traces.read("cluster-2018", files, gib=512)
    assert [one["metadata"]["name"] for one in script.objects] == ["m-1", "m-2"]
    assert script.objects[0]["status"]["capacity"]["memory"] == "524288Mi"
    service, batch, _ = arrivals(script)
    assert (service[0], service[1].runs, requests(service[1])["cpu"]) == (0.0, None, "4000m")
    assert (batch[0], batch[1].runs) == (30.0, 30.0)
    assert requests(batch[1]) == {"cpu": "500m", "memory": "2045Mi"}
    assert len(arrivals(traces.read("cluster-2018", files[:2]))) == 2


def borg(*events: dict[str, Any]) -> str:
    return "".join(msgspec.json.encode(one).decode() + "\n" for one in events)


def test_googles_trace_of_2019(written: Written) -> None:
    """BigQuery writes integers as text, and types as numbers or names."""
    size = {"cpus": 0.5, "memory": 0.25}
    instance = {"collection_id": "9", "instance_index": "0", "priority": "200"}
    asked = {"resource_request": {"cpus": 0.125, "memory": 0.03125}}
    files = written(
        borg(
            {"time": "0", "machine_id": "1", "type": "1", "capacity": size},
            {"time": "5000000", "machine_id": "2", "type": "ADD", "capacity": size},
            {"time": "9000000", "machine_id": "2", "type": 2},
        ),
        borg(
            {"time": "3000000", "type": "0", **instance, **asked},
            {"time": "4000000", "type": "3", **instance},
            {"time": "7000000", "type": "EVICT", **instance},
            {"time": "7500000", "type": "SUBMIT", **instance, **asked},
            {"time": "1", "type": 0, "alloc_collection_id": "4", **instance},
        ),
    )
    script = traces.read("borg-2019", files, cores=64, gib=256)
    assert script.objects[0]["status"]["capacity"]["cpu"] == "32000m"
    first, again = arrivals(script)
    assert (first[0], first[1].recorded_wait, first[1].runs) == (0.0, 1.0, 3.0)
    assert requests(first[1]) == {"cpu": "8000m", "memory": "8192Mi"}
    assert first[1].manifest["spec"]["priority"] == 200
    assert (again[0], again[1].runs) == (4.5, None)
    assert [step.at for step in script.steps if step.objects] == [2.0]
    assert [one.name for step in script.steps for one in step.gone] == ["m-2"]
    assert placed(script)["default/c9-0-1"] == "m-1"


def test_azures_packing_trace(tmp_path: Path) -> None:
    path = tmp_path / "packing.sqlite"
    with sqlite3.connect(path) as base:
        base.execute("CREATE TABLE vmType (id, vmTypeId, machineId, core, memory, hdd, ssd, nic)")
        base.execute("CREATE TABLE vm (vmId, tenantId, vmTypeId, priority, starttime, endtime)")
        base.executemany(
            "INSERT INTO vmType VALUES (?,?,?,?,?,?,?,?)",
            [(0, 0, 16, 0.5, 0.25, None, 0.125, 0.0), (1, 1, 16, 0.25, 0.25, None, 0.1, 0.0),
             (2, 2, 17, 1.0, 1.0, None, 1.0, 0.0)],
        )  # fmt: skip
        base.executemany(
            "INSERT INTO vm VALUES (?,?,?,?,?,?)",
            [(10, 1, 0, 0, -0.5, 0.5), (11, 1, 1, 1, 0.25, None), (12, 1, 2, 0, 0.0, 1.0)],
        )
    script = traces.read("azure", [path], nodes=3)
    assert len(script.objects) == 3
    (at, first), (later, second) = arrivals(script)  # type 2 cannot be on machine 16
    assert (at, first.runs, later, second.runs) == (0.0, 86400.0, 64800.0, None)
    assert requests(first) == {
        "cpu": "32000m", "memory": "65536Mi", "stowage.dev/ssd": "125000",
    }  # fmt: skip
    assert first.manifest["spec"]["priority"] > second.manifest["spec"]["priority"]
    assert all(placed(script).values())
    assert len(arrivals(traces.read("azure", [path], machine="17"))) == 1


SWF = """; Version: 2.2
; MaxNodes: 2
; MaxProcs: 8
;
  1 0 5 3600 6 -1 1024 6 7200 2048 1 1 1 1 1 1 -1 -1
  2 30 -1 10 -1 -1 -1 1 20 -1 0 1 1 1 1 1 -1 -1
  3 40 -1 10 -1 -1 -1 -1 20 -1 5 1 1 1 1 1 -1 -1
"""


def test_the_standard_workload_format(written: Written) -> None:
    script = traces.read("swf", written(SWF))
    assert [one["status"]["capacity"]["cpu"] for one in script.objects] == ["4000m", "4000m"]
    found = [(at, one.manifest["metadata"]["name"], requests(one)) for at, one in arrivals(script)]
    assert found == [
        (0.0, "job-1-0", {"cpu": "4000m", "memory": "8Mi"}),
        (0.0, "job-1-1", {"cpu": "2000m", "memory": "4Mi"}),
        (30.0, "job-2-0", {"cpu": "1000m"}),
    ]
    assert arrivals(script)[0][1].recorded_wait == 5
    assert all(placed(script).values())


def test_tables_with_columns_of_ones_own(written: Written) -> None:
    files = written(
        "host,cpu,memory,gpu,label:disk\nbig,16,64Gi,4,ssd\n",
        "name,submit,runs,cpu,memory,count,gpu\na,10,60,500m,1Gi,3,\nb,20,,2,1073741824,1,2\n",
    )
    with pytest.raises(trace_files.TraceError, match="no column arrives"):
        traces.read("csv", [files[0], files[1]], name="host")
    (tmp := files[0]).write_text(tmp.read_text().replace("host", "name"))
    script = traces.read("csv", files, arrives="submit", stretch=2)
    assert script.objects[0]["metadata"]["labels"]["disk"] == "ssd"
    assert [(at, one.runs) for at, one in arrivals(script)] == [(0.0, 120.0)] * 3 + [(10.0, None)]
    assert set(placed(script).values()) == {"big"}


def test_a_gzipped_file_is_read_as_it_is(tmp_path: Path) -> None:
    packed = tmp_path / "log.swf.gz"
    packed.write_bytes(gzip.compress(SWF.encode()))
    assert traces.read("swf", [packed]).pod_count == 3


@pytest.mark.parametrize(
    ("form", "texts", "problem"),
    [
        ("nothing", ("",), "formats are openb, gpu-2020"),
        ("swf", ("", ""), "needs 1 files"),
        ("swf", ("1 2 3",), "line 1: 3 fields, where 18 belong"),
        ("swf", ("",), "neither MaxNodes nor MaxProcs"),
        ("swf", ("; MaxProcs: ²\n",), "neither MaxNodes nor MaxProcs"),
        ("swf", (SWF.replace("3600", "soon"),), "line 5: run is not a number: 'soon'"),
        ("gpu-2020", ("M1,V100,96", ""), "line 1: 3 columns, where machine"),
        ("gpu-2020", ("", "j,t,-4,x,1,2,1,1,1,V"), "inst_num is out of range"),
        ("cluster-2018", ("m,0,a,,much,100,USING", ""), "cpu_num is not a number: 'much'"),
        ("borg-2019", ("{", ""), "line 1: "),
        ("borg-2019", ('{"time": 1, "type": "MOVE"}', ""), "type is none of UNKNOWN, ADD"),
        ("borg-2019", ('{"time": 1, "type": "²"}', ""), "type is none of UNKNOWN, ADD"),
        ("borg-2019", ('{"type": 1}', ""), "line 1: no time"),
        ("azure", ("no database",), "file is not a database"),
        ("csv", ("name,cpu,memory\na,1,1Gi", "name,arrives,cpu,memory\nb,0,lots,1"), "line 2: cpu"),
        ("csv", ("name,cpu,memory\na,1,1Gi", "name,arrives,cpu,memory\nb,0,-1,1"), "cpu is neg"),
    ],
)
def test_what_is_wrong_is_named(written: Written, form: str, texts: Any, problem: str) -> None:
    with pytest.raises(trace_files.TraceError, match=problem):
        traces.read(form, written(*texts))


def test_an_option_that_the_format_does_not_have_is_named(written: Written) -> None:
    with pytest.raises(
        trace_files.TraceError, match="no option color; options are nodes, cores, gib"
    ):
        traces.read("swf", written(SWF), color="red")
    with pytest.raises(trace_files.TraceError, match="many"):
        traces.read("swf", written(SWF), nodes="many")
