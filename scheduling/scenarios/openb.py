"""Public GPU traces in their own format: alibaba/clusterdata, cluster-trace-gpu-v2023 ("openb").

The trace is that of Weng et al., "Beware of Fragmentation" (USENIX ATC 2023): a node file with the
columns ``sn, cpu_milli, memory_mib, gpu, model`` and a pod file with ``name, cpu_milli,
memory_mib, num_gpu, gpu_milli, gpu_spec, qos, pod_phase, creation_time, deletion_time,
scheduled_time`` (seconds), comma-separated with a head line, gzipped or not.

As Kubernetes objects: GPUs are counted in thousandths (``RESOURCE``), so that pods share them, or
whole (``WHOLE_RESOURCE``); a node's GPU model is its label ``MODEL``, a pod's ``gpu_spec``
(alternatives with ``|``) a required node affinity to that label. A pod comes at its creation; it
leaves when it has run as long as in the trace, counted from where it is bound, times ``stretch``.
"""

import csv
import gzip
import zlib
from itertools import groupby
from pathlib import Path
from typing import Any, Final

from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.node import HOSTNAME
from scheduling.scenarios.script import Arrival, Script, Step

RESOURCE: Final = "stowage.dev/gpu-milli"
WHOLE_RESOURCE: Final = "nvidia.com/gpu"
MODEL: Final = "gpu-model"
_NODE_COLUMNS: Final = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
_POD_COLUMNS: Final = (
    "name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "qos", "creation_time",
    "deletion_time", "scheduled_time",
)  # fmt: skip
_PODS_PER_NODE: Final = "256"
_MOST_BYTES: Final = 1 << 30


class TraceError(ValueError):
    """A file is not such a trace; the message names the file and what is wrong with it."""


def read(
    nodes: Path,
    pods: Path,
    *,
    stretch: float = 1.0,
    share_of_nodes: float = 1.0,
    seed: int = 0,
    shares: bool = True,
) -> Script:
    """Return the trace as a script.

    Args:
        nodes: the node file.
        pods: the pod file.
        stretch: every pod runs this many times as long.
        share_of_nodes: so large a part of the nodes is there, evenly over the file.
        seed: for ties.
        shares: whether pods share GPUs, or each gets whole ones.

    Raises:
        TraceError: a file cannot be read or is not such a trace.
    """
    node_rows = rows_of(nodes, _NODE_COLUMNS)
    pod_rows = rows_of(pods, _POD_COLUMNS)
    selected_rows = [
        (at + 2, row)
        for at, row in enumerate(node_rows)
        if int((at + 1) * share_of_nodes) > int(at * share_of_nodes)
    ]
    coming: list[tuple[int, int, Arrival]] = []
    for line, row in enumerate(pod_rows, 2):
        came = _number(row, "creation_time", pods, line)
        bound = _number(row, "scheduled_time", pods, line) if row["scheduled_time"] else None
        runs: float | None = None
        if row["deletion_time"]:
            ended = _number(row, "deletion_time", pods, line)
            runs = max(ended - (came if bound is None else bound), 0) * stretch
        wait = None if bound is None else float(max(bound - came, 0))
        arrival = Arrival(_pod(row, pods, line, shares=shares), runs=runs, recorded_wait=wait)
        coming.append((came, line, arrival))
    coming.sort(key=lambda one: one[:2])
    first = coming[0][0] if coming else 0
    return Script(
        title=pods.name.partition(".")[0],
        objects=[_node(row, nodes, line, shares=shares) for line, row in selected_rows],
        steps=[
            Step(float(at - first), arrivals=tuple(one[2] for one in together))
            for at, together in groupby(coming, key=lambda one: one[0])
        ],
        seed=seed,
        admission=False,
        scored=(RESOURCE if shares else WHOLE_RESOURCE, "cpu", "memory"),
    )


def text_of(path: Path) -> str:
    """Return what a file holds, unpacked if it is gzipped.

    Raises:
        TraceError: it cannot be read, is no text, or is too large.
    """
    try:
        with path.open("rb") as file:
            packed = file.peek(2)[:2] == b"\x1f\x8b"  # a pipe cannot be read from its start again
            data = (gzip.GzipFile(fileobj=file) if packed else file).read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise TraceError(f"{path}: is larger than {_MOST_BYTES} bytes, unpacked")
        return data.decode()
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise TraceError(f"{path}: {error}") from error


def rows_of(path: Path, columns: tuple[str, ...]) -> list[dict[str, str]]:
    """Return the rows of a CSV file with a head line, each with these columns and a first one.

    Raises:
        TraceError: as ``text_of``, or columns or values are missing.
    """
    text = text_of(path)
    try:
        reader = csv.DictReader(text.splitlines())
        missing = set(columns) - set(reader.fieldnames or ())
        if missing:
            raise TraceError(f"{path}: no column {', '.join(sorted(missing))}")
        rows = list(reader)
    except csv.Error as error:
        raise TraceError(f"{path}: {error}") from error
    for line, row in enumerate(rows, 2):
        lacking = [column for column in columns if row[column] is None]
        if lacking or not row[columns[0]]:
            raise TraceError(f"{path}: line {line}: no {', '.join(lacking) or columns[0]}")
    return rows


def _number(row: dict[str, str], column: str, path: Path, line: int) -> int:
    try:
        found = int(float(row[column] or 0))
    except (TypeError, ValueError, OverflowError) as error:
        raise TraceError(f"{path}: line {line}: {column} is no number: {row[column]!r}") from error
    if not 0 <= found < 2**50:
        raise TraceError(f"{path}: line {line}: {column} is out of range: {row[column]}")
    return found


def _node(row: dict[str, str], path: Path, line: int, *, shares: bool) -> Manifest:
    gpus = _number(row, "gpu", path, line)
    offer: dict[str, Any] = {
        "cpu": f"{_number(row, 'cpu_milli', path, line)}m",
        "memory": f"{_number(row, 'memory_mib', path, line)}Mi",
        "pods": _PODS_PER_NODE,
    }
    labels = {HOSTNAME: row["sn"]}
    if gpus:
        offer[RESOURCE if shares else WHOLE_RESOURCE] = str(gpus * 1000 if shares else gpus)
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


def _pod(row: dict[str, str], path: Path, line: int, *, shares: bool) -> Manifest:
    requests = {
        "cpu": f"{_number(row, 'cpu_milli', path, line)}m",
        "memory": f"{_number(row, 'memory_mib', path, line)}Mi",
    }
    if gpus := _number(row, "num_gpu", path, line):
        milli = gpus * _number(row, "gpu_milli", path, line)
        requests[RESOURCE if shares else WHOLE_RESOURCE] = str(milli if shares else gpus)
    spec: Manifest = {
        "containers": [
            {
                "name": "main",
                "image": "pause",
                "resources": {"requests": requests, "limits": requests},
            },
        ],
    }
    if models := sorted({model for model in row["gpu_spec"].split("|") if model}):
        term = {"matchExpressions": [{"key": MODEL, "operator": "In", "values": models}]}
        required = {"nodeSelectorTerms": [term]}
        spec["affinity"] = {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}
        }
    labels = {"app": "trace", "qos": row["qos"].lower()}
    meta = {"name": row["name"], "namespace": "default", "labels": labels}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}
