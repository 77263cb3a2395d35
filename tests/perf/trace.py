"""A public trace as a workload: the nodes and pods of alibaba/clusterdata, cluster-trace-gpu-v2023.

The trace is that of Weng et al., "Beware of Fragmentation" (USENIX ATC 2023): a node file with the
columns ``sn, cpu_milli, memory_mib, gpu, model`` and a pod file with ``name, cpu_milli,
memory_mib, num_gpu, gpu_milli, gpu_spec, qos, pod_phase, creation_time, deletion_time,
scheduled_time``, comma-separated with a head line, gzipped or not. The trace is not shipped.

As Kubernetes objects: a node's GPU model is its label ``MODEL``, a pod's ``gpu_spec`` (alternatives
with ``|``) a required node affinity to that label. GPUs are counted whole (``nvidia.com/gpu``) or
in thousandths (``SHARED_GPU``), so that pods may share one. Pods come in the order of creation and
none leaves: the question is how many fit.
"""

import csv
import gzip
from pathlib import Path
from typing import Any

from tests.perf.workloads import HOSTNAME, Manifest, Workload, node_affinity

MODEL = "gpu-model"
WHOLE_GPU = "nvidia.com/gpu"
SHARED_GPU = "example.com/gpu-milli"


class TraceError(ValueError):
    """A file is not such a trace; the message names the file and what is wrong with it."""


def _rows(path: Path, columns: tuple[str, ...]) -> list[dict[str, str]]:
    try:
        data = path.read_bytes()
        text = (gzip.decompress(data) if path.suffix == ".gz" else data).decode()
    except (OSError, EOFError, UnicodeDecodeError) as error:
        raise TraceError(f"{path}: {error}") from error
    reader = csv.DictReader(text.splitlines())
    missing = set(columns) - set(reader.fieldnames or ())
    if missing:
        raise TraceError(f"{path}: no column {', '.join(sorted(missing))}")
    return list(reader)


def _number(row: dict[str, str], column: str, path: Path, line: int) -> int:
    try:
        return int(float(row[column] or 0))
    except (TypeError, ValueError) as error:
        raise TraceError(f"{path}: line {line}: {column} is no number: {row[column]!r}") from error


def _node(row: dict[str, str], path: Path, line: int, *, shared: bool) -> Manifest:
    gpus = _number(row, "gpu", path, line)
    offer: dict[str, Any] = {
        "cpu": f"{_number(row, 'cpu_milli', path, line)}m",
        "memory": f"{_number(row, 'memory_mib', path, line)}Mi",
        "pods": "256",
    }
    labels = {HOSTNAME: row["sn"]}
    if gpus:
        offer[SHARED_GPU if shared else WHOLE_GPU] = str(gpus * 1000 if shared else gpus)
        labels[MODEL] = row["model"]
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": row["sn"], "labels": labels},
        "status": {
            "capacity": offer,
            "allocatable": offer,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def _pod(row: dict[str, str], path: Path, line: int, *, shared: bool) -> Manifest:
    requests: dict[str, Any] = {
        "cpu": f"{_number(row, 'cpu_milli', path, line)}m",
        "memory": f"{_number(row, 'memory_mib', path, line)}Mi",
    }
    if gpus := _number(row, "num_gpu", path, line):
        milli = gpus * _number(row, "gpu_milli", path, line)
        requests[SHARED_GPU if shared else WHOLE_GPU] = str(milli if shared else gpus)
    models = [model for model in row["gpu_spec"].split("|") if model]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": row["name"], "labels": {"app": "trace", "qos": row["qos"].lower()}},
        "spec": {
            "containers": [
                {
                    "name": "main",
                    "image": "registry.k8s.io/pause:3.10.1",
                    "resources": {"requests": requests, "limits": requests},
                }
            ],
            **({"affinity": node_affinity(MODEL, *sorted(set(models)))} if models else {}),
        },
    }


def read(nodes: Path, pods: Path, *, shared: bool = False) -> Workload:
    """Return the workload of a trace's two files.

    ``shared``: GPUs in thousandths, so that pods share one; else each pod gets whole ones.

    Raises:
        TraceError: a file cannot be read or is not such a trace.
    """
    node_rows = _rows(nodes, ("sn", "cpu_milli", "memory_mib", "gpu", "model"))
    pod_rows = _rows(
        pods,
        ("name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "qos",
         "creation_time"),
    )  # fmt: skip
    made_nodes = [_node(row, nodes, line, shared=shared) for line, row in enumerate(node_rows, 2)]
    order = sorted(
        enumerate(pod_rows, 2), key=lambda at: (_number(at[1], "creation_time", pods, at[0]), at[0])
    )
    made_pods = [_pod(row, pods, line, shared=shared) for line, row in order]
    classes = {repr(made["spec"]) + made["metadata"]["labels"]["qos"] for made in made_pods}
    return Workload(
        name="Trace",
        about=f"{len(made_nodes)} nodes and {len(made_pods)} pods of {pods.name}",
        node=lambda number: made_nodes[number],
        pod=lambda number: made_pods[number],
        node_count=len(made_nodes),
        measured=lambda _: len(made_pods),
        classes=len(classes),
        warms=False,
        overfull=True,
        shares=(SHARED_GPU if shared else WHOLE_GPU, "cpu", "memory"),
    )
