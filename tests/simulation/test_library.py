"""`from stowage import Cluster, simulate`: the decision core in a program of one's own."""

import ast
import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

import stowage
from scheduling.simulation import Base, read, run
from stowage import Cluster, Invalid, compare, pod, read_trace, simulate

ROOT = Path(__file__).resolve().parents[2]


def program(code: str, folder: Path) -> str:
    """Run a program of its own; return what it prints."""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=folder, env={"PYTHONPATH": str(ROOT), "PATH": os.environ["PATH"]},
        capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_nothing_heavy_is_loaded_before_it_is_used(tmp_path: Path) -> None:
    code = (
        "import sys; from stowage import Cluster, simulate\n"
        "print({'django', 'numpy', 'numba', 'httpx', 'celery'} & set(sys.modules))"
    )
    assert program(code, tmp_path) == "set()"


def test_a_program_simulates_without_django_and_with_names_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "scheduling.py").write_text("MINE = 1\n")
    (tmp_path / "api.py").write_text("MINE = 1\n")
    code = (
        "import sys\n"
        "from stowage import Cluster, pod, simulate\n"
        "found = simulate(Cluster().add_nodes(3), [pod('a', cpu='1')])\n"
        "import api, scheduling\n"
        "print(found.decisions[0].node, api.MINE + scheduling.MINE, 'django' in sys.modules)"
    )
    assert program(code, tmp_path).startswith("node-")
    assert program(code, tmp_path).endswith(" 2 False")


def test_decisions_are_those_of_the_core() -> None:
    cluster = Cluster().add_nodes(50, cpu="8", zones=("a", "b"))
    pods = [pod(f"p{number}", cpu=f"{1 + number % 3}") for number in range(120)]
    found = simulate(cluster, pods, seed=7)
    document = {
        "spec": {
            "base": "empty", "objects": cluster.objects, "pods": pods, "seed": 7,
            "explain": "none", "preemption": "perform",
        }
    }  # fmt: skip
    answer = run(read(document, default_base="empty"), Base())
    assert [one.node for one in found] == [one["nodeName"] for one in answer["status"]["results"]]
    assert [one.node for one in simulate(cluster, pods, seed=7)] == [one.node for one in found]


def test_one_goes_on_from_what_was_placed() -> None:
    first = simulate(Cluster().add_nodes(2, cpu="4"), [pod(cpu="3"), pod(cpu="3"), pod(cpu="3")])
    assert [len(first.placed), len(first.unplaced)] == [2, 1]
    second = simulate(first.cluster.add_nodes(1, cpu="4", name="more"))
    (late,) = second.decisions
    assert (late.node, late.scheduled) == ("more", True)
    assert len(second.cluster.objects) == 3 + 3


def test_a_victim_leaves_the_cluster_that_comes_of_it() -> None:
    low = simulate(Cluster().add_nodes(1, cpu="2"), [pod("low", cpu="2")])
    high = simulate(low.cluster, [pod("high", cpu="2", priority=9)], admission=False)
    assert [one.name for one in high.placed] == ["high"]
    assert [one["metadata"]["name"] for one in high.cluster.objects] == ["node-0", "high"]


def test_a_cluster_is_read_from_files_and_folders(tmp_path: Path) -> None:
    (tmp_path / "nodes.json").write_text(
        json.dumps({"kind": "List", "items": Cluster().add_nodes(2).objects})
    )
    (tmp_path / "web.yaml").write_text(
        "apiVersion: apps/v1\nkind: Deployment\nmetadata: {name: web}\nspec:\n  replicas: 3\n"
        "  selector: {matchLabels: {app: web}}\n  template:\n    metadata: {labels: {app: web}}\n"
        "    spec: {containers: [{name: a, image: b}]}\n---\nkind: Widget\nmetadata: {name: x}\n"
    )
    cluster = Cluster.read(tmp_path)
    assert len(simulate(cluster).placed) == 3
    assert cluster.left_out == {"Widget": 1}
    with pytest.raises(Invalid, match="nowhere"):
        Cluster.read(tmp_path / "nowhere.yaml")


def test_what_is_wrong_is_named_and_the_cluster_stays() -> None:
    cluster = Cluster().add_nodes(1)
    broken = {"metadata": {"name": "x"}, "status": {"capacity": {"cpu": "much"}}}
    with pytest.raises(Invalid, match=r"status\.capacity"):
        simulate(Cluster([{"apiVersion": "v1", "kind": "Node", **broken}]), [pod()])
    with pytest.raises(Invalid, match="short names are default, least"):
        simulate(cluster, [pod()], configuration="no-such")
    assert simulate(cluster, [pod("Wrong_Name")]).decisions[0].status == "invalid"
    assert len(cluster.objects) == 1


def test_policies_decide_by_name_file_or_document(tmp_path: Path) -> None:
    cluster = Cluster().add_nodes(4, cpu="8", memory="32Gi")
    pods = [pod(f"p{number}", cpu="1", memory="4Gi") for number in range(8)]
    packed = simulate(cluster, pods, configuration="packing")
    spread = simulate(cluster, pods, configuration="least")
    assert len({one.node for one in packed}) == 1
    assert len({one.node for one in spread}) == 4
    file = tmp_path / "mine.json"
    policies = stowage._product.module("scheduling.scenarios.policies")
    script = stowage._product.module("scheduling.scenarios.script").Script("", (), ())
    file.write_text(json.dumps(policies.document("packing", script)))
    assert simulate(cluster, pods, configuration=file).columns() == packed.columns()


def test_a_result_is_a_table_for_others() -> None:
    nanoarrow = pytest.importorskip("nanoarrow")
    found = simulate(Cluster().add_nodes(2), [pod("a"), pod("b", cpu="99")])
    rows = nanoarrow.ArrayStream(found).read_all().to_pylist()
    assert [(one["name"], one["status"]) for one in rows] == [
        ("a", "scheduled"),
        ("b", "unschedulable"),
    ]
    pytest.importorskip("pandas")
    frame = found.to_pandas()
    assert list(frame["node"]) == [one.node for one in found]


def test_policies_are_compared_on_a_trace(tmp_path: Path) -> None:
    nodes, pods = tmp_path / "nodes.csv", tmp_path / "pods.csv"
    nodes.write_text("name,cpu,memory\n" + "".join(f"n{n},8,32Gi\n" for n in range(4)))
    pods.write_text(
        "name,arrives,runs,cpu,memory\n" + "".join(f"p{n},{n},100,1,4Gi\n" for n in range(16))
    )
    found = compare(read_trace("csv", nodes, pods), ["least", "packing"])
    used = found.figures["nodes in use, most"]
    assert used["packing"] < used["least"]
    assert "<svg" in found._repr_html_()
    assert found.html().startswith("<!DOCTYPE html>")
    with pytest.raises(Invalid, match="no column arrives"):
        read_trace("csv", nodes, nodes)


def test_a_thousand_nodes_and_twenty_thousand_pods_take_seconds(tmp_path: Path) -> None:
    """The figure of docs/library.md is 3 s; a machine that does other things takes longer."""
    code = (
        "import time; began = time.monotonic()\n"
        "from stowage import Cluster, pod, simulate\n"
        "cluster = Cluster().add_nodes(1000, cpu='64', memory='256Gi')\n"
        "found = simulate(cluster, [pod(f'p{n}', cpu='2') for n in range(20_000)])\n"
        "print(len(found.placed), time.monotonic() - began)"
    )
    program(code, tmp_path)  # on a new machine the loops are compiled first
    count, seconds = program(code, tmp_path).split()
    assert count == "20000"
    assert float(seconds) < 15


def test_the_notebook_of_the_examples_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a notebook does: cell after cell in one namespace; the last expression is shown."""
    pytest.importorskip("pandas")
    monkeypatch.chdir(ROOT / "examples")
    notebook = json.loads(Path("policies.ipynb").read_text())
    names: dict[str, object] = {}
    shown = []
    for cell in notebook["cells"]:
        if cell["cell_type"] == "code":
            assert cell["outputs"] == []
            *statements, last = ast.parse("".join(cell["source"])).body
            exec(compile(ast.Module(statements, []), "cell", "exec"), names)
            if isinstance(last, ast.Expr):
                shown.append(eval(compile(ast.Expression(last.value), "cell", "eval"), names))
            else:
                exec(compile(ast.Module([last], []), "cell", "exec"), names)
    figures = names["figures"]
    assert isinstance(figures, dict)
    assert figures["packing"] < figures["default"]
    assert any("<svg" in one._repr_html_() for one in shown if hasattr(one, "_repr_html_"))


def test_pods_are_packed_together() -> None:
    pytest.importorskip("ortools")
    cluster = Cluster().add_nodes(2, cpu="4")
    pods = [pod(f"p{number}", cpu=cpu) for number, cpu in enumerate("11331")]
    found = stowage.pack(cluster, pods[:4])
    assert (found["placed"], found["of"]) == (4, 4)
    with pytest.raises(Invalid, match=r"spec\.seconds"):
        stowage.pack(cluster, pods, seconds=-1)
