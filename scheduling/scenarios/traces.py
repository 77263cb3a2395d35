"""Public traces of clusters in the formats in which they are published, as scripts to play.

``read(FORMAT, FILES)``. Of each format the files that are named here, gzipped or not:

``openb``         Alibaba GPU 2023: nodes, pods (``openb``)
``gpu-2020``      Alibaba GPU 2020 (MLaaS): pai_machine_spec, pai_task_table
``cluster-2018``  Alibaba cluster trace 2018: machine_meta, batch_task, perhaps container_meta
``borg-2019``     Google Borg 2019, exported as JSON lines: machine_events, instance_events
``azure``         Azure packing trace 2020: the SQLite file
``swf``           Standard Workload Format of parallel machines (Feitelson): the one file
``csv``           nodes and pods with named columns

A pod comes when it was submitted; it leaves when it has run as long as in the trace, counted from
where it is bound, times ``stretch``. Where a source gives shares of its largest machine in place of
amounts, that machine has ``cores`` and ``gib`` (options). docs/traces.md says what becomes of each
column.
"""

import contextlib
import csv
import inspect
import math
import sqlite3
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from clusterstate.objects.values.meta import Manifest
from clusterstate.objects.values.node import HOSTNAME
from clusterstate.objects.values.numbers import natural
from clusterstate.objects.values.quantity import QuantityError, milli_value, value
from scheduling.scenarios import openb
from scheduling.scenarios.openb import MODEL, RESOURCE, WHOLE_RESOURCE, TraceError
from scheduling.scenarios.script import Arrival, Gone, Script, Step

_ZONE: Final = "topology.kubernetes.io/zone"
_PODS_PER_NODE: Final = "256"
_MOST_PODS: Final = 1_000_000
_LAST: Final = 2**62
"""Microseconds; Google writes what lies after its trace as 2^63 - 1."""
_DAY: Final = 86_400.0


class _TracePod(NamedTuple):
    """A pod of a trace: second of arrival, line, manifest, seconds it ran, seconds it waited."""

    at: float
    order: int
    manifest: Manifest
    runs: float | None = None
    waited: float | None = None


class _Trace(msgspec.Struct):
    """The content of a source, before it is replayed.

    ``changes``: nodes that come (manifest) or go (name) after the beginning, by second.
    """

    nodes: list[Manifest]
    pods: list[_TracePod]
    scored: tuple[str, ...] = ("cpu", "memory")
    changes: list[tuple[float, Manifest | str]] = []


def read(
    form: str,
    files: Sequence[Path],
    *,
    stretch: float = 1.0,
    share_of_nodes: float = 1.0,
    seed: int = 0,
    **options: Any,
) -> Script:
    """Return a trace as a script.

    Args:
        form: one of ``FORMATS``.
        files: those of the format, in its order.
        stretch: every pod runs this many times as long.
        share_of_nodes: so large a part of the nodes is there, evenly over the file.
        seed: for ties.
        options: those of the format, by keyword.

    Raises:
        TraceError: a file cannot be read or is of another format, or an option is not known.
    """
    if form == "openb":
        if len(files) != 2 or options:
            raise TraceError("openb: needs two files, NODES PODS, and has no options of its own")
        nodes, pods = files
        return openb.read(nodes, pods, stretch=stretch, share_of_nodes=share_of_nodes, seed=seed)
    if form not in _READERS:
        raise TraceError(f"{form}: unknown trace format; the formats are {', '.join(FORMATS)}")
    reader, fewest, most = _READERS[form]
    if not fewest <= len(files) <= most:
        count = str(fewest) if fewest == most else f"{fewest} or {most}"
        raise TraceError(f"{form}: needs {count} files")
    parameters = inspect.signature(reader).parameters
    for name in options:
        if (name not in parameters and "columns" not in parameters) or name == "files":
            listed = ", ".join(one for one in parameters if one != "files")
            raise TraceError(f"{form}: no option {name}; options are {listed or 'none'}")
    try:
        found = reader(files, **options)
    except TraceError:
        raise
    except (TypeError, ValueError, OverflowError) as error:  # an option is no number
        raise TraceError(f"{form}: {error}") from error
    if len(found.pods) > _MOST_PODS:
        raise TraceError(f"{files[-1]}: has {len(found.pods)} pods, more than {_MOST_PODS}")
    nodes_kept = [
        one
        for at, one in enumerate(found.nodes)
        if int((at + 1) * share_of_nodes) > int(at * share_of_nodes)
    ]
    pods_by_time = sorted(found.pods, key=lambda one: (one.at, one.order))
    first = pods_by_time[0].at if pods_by_time else 0.0
    return Script(
        title=files[-1].name.partition(".")[0],
        objects=nodes_kept,
        steps=list(_steps(found, pods_by_time, first, stretch)),
        seed=seed,
        admission=False,
        scored=found.scored,
    )


def _steps(
    found: _Trace, pods: Iterable[_TracePod], first: float, stretch: float
) -> Iterator[Step]:
    """Yield what happens by time; seconds count from the first pod."""
    arrivals: dict[float, list[Arrival]] = {}
    for at, together in groupby(pods, key=lambda one: one.at):
        arrivals[max(0.0, at - first)] = [
            Arrival(
                one.manifest,
                runs=None if one.runs is None else max(0.0, one.runs) * stretch,
                recorded_wait=one.waited,
            )
            for one in together
        ]
    changes: dict[float, list[Manifest | str]] = {}
    for at, change in found.changes:
        changes.setdefault(max(0.0, at - first), []).append(change)
    for at in sorted({*arrivals, *changes}):
        of_nodes = changes.get(at, [])
        yield Step(
            at,
            gone=tuple(Gone("Node", "", one) for one in of_nodes if isinstance(one, str)),
            objects=tuple(one for one in of_nodes if not isinstance(one, str)),
            arrivals=tuple(arrivals.get(at, ())),
        )


def _node(
    name: str, offers: Mapping[str, str], labels: Mapping[str, str] | None = None
) -> Manifest:
    offer = {"pods": _PODS_PER_NODE, **offers}
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {"name": name, "labels": {HOSTNAME: name, **(labels or {})}},
        "status": {
            "capacity": offer,
            "allocatable": offer,
            "conditions": [{"type": "Ready", "status": "True"}],
        },
    }


def _pod(
    name: str,
    requests: Mapping[str, str],
    *,
    namespace: str = "default",
    labels: Mapping[str, str] | None = None,
    priority: int | None = None,
    selector: Mapping[str, str] | None = None,
) -> Manifest:
    nonzero = {key: amount for key, amount in requests.items() if amount not in ("0", "0m", "0Mi")}
    spec: Manifest = {
        "containers": [{"name": "main", "image": "pause", "resources": {"requests": nonzero}}]
    }
    if priority is not None:
        spec["priority"] = priority
    if selector:
        spec["nodeSelector"] = dict(selector)
    meta = {"name": name, "namespace": namespace, "labels": {"app": "trace", **(labels or {})}}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": meta, "spec": spec}


def _plain(name: str) -> str:
    """Return a name as Kubernetes takes it: lower case, letters, digits and dashes."""
    plain = "".join(c if c.isascii() and c.isalnum() else "-" for c in name.lower())
    return plain.strip("-")[:200] or "unnamed"


def _milli(cores: float) -> str:
    return f"{max(0, round(cores * 1000))}m"


def _mebi(gibi: float) -> str:
    return f"{max(0, round(gibi * 1024))}Mi"


def _table(path: Path, columns: Sequence[str], needed: int) -> Iterator[tuple[int, dict[str, str]]]:
    """Yield line and row of a CSV file without a head line, or with the one that is published.

    Raises:
        TraceError: a line has fewer than ``needed`` columns.
    """
    try:
        for line, row in enumerate(csv.reader(openb.text_of(path).splitlines()), 1):
            if not row or (line == 1 and row[0] == columns[0]):
                continue
            if len(row) < needed:
                raise TraceError(
                    f"{path}: line {line}: {len(row)} columns, where {', '.join(columns)} belong"
                )
            yield line, dict(zip(columns, [*row, *[""] * len(columns)], strict=False))
    except csv.Error as error:
        raise TraceError(f"{path}: {error}") from error


def _number(row: Mapping[str, Any], column: str, path: Path, line: int) -> float | None:
    """Return a number, ``None`` where there is none (empty, NaN).

    Raises:
        TraceError: it is something else, or out of range.
    """
    text = row.get(column)
    if text is None or text == "":
        return None
    try:
        found = float(text)
    except (TypeError, ValueError) as error:
        raise TraceError(f"{path}: line {line}: {column} is no number: {text!r}") from error
    if math.isnan(found):
        return None
    if not abs(found) < 2**64:
        raise TraceError(f"{path}: line {line}: {column} is out of range: {text}")
    return found


def _between(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None or end < start else end - start


# --- Alibaba ------------------------------------------------------------------------------------

_MACHINE_SPEC: Final = ("machine", "gpu_type", "cap_cpu", "cap_mem", "cap_gpu")
_PAI_TASK: Final = (
    "job_name", "task_name", "inst_num", "status", "start_time", "end_time", "plan_cpu",
    "plan_mem", "plan_gpu", "gpu_type",
)  # fmt: skip


def _gpu_2020(files: Sequence[Path]) -> _Trace:
    """Read cluster-trace-gpu-v2020: an instance of a task is a pod; plan_cpu 600 is 6 cores."""
    machines, tasks = files
    nodes = []
    for line, row in _table(machines, _MACHINE_SPEC, 5):
        gpus = int(_number(row, "cap_gpu", machines, line) or 0)
        offers = {
            "cpu": _milli(_number(row, "cap_cpu", machines, line) or 0),
            "memory": _mebi(_number(row, "cap_mem", machines, line) or 0),
        }
        if gpus:
            offers[RESOURCE] = str(gpus * 1000)
        nodes.append(
            _node(_plain(row["machine"]), offers, {MODEL: row["gpu_type"]} if gpus else {})
        )
    pods: list[_TracePod] = []
    for line, row in _table(tasks, _PAI_TASK, 9):
        came = _number(row, "start_time", tasks, line)
        if came is None:  # it was never started: nothing says when it came
            continue
        gpu = (_number(row, "plan_gpu", tasks, line) or 0) * 10
        requests = {
            "cpu": _milli((_number(row, "plan_cpu", tasks, line) or 0) / 100),
            "memory": _mebi(_number(row, "plan_mem", tasks, line) or 0),
        }
        selector = {}
        if gpu:
            requests[RESOURCE] = str(round(gpu))
            if row["gpu_type"] and row["gpu_type"] != "MISC":
                selector = {MODEL: row["gpu_type"]}
        runs = _between(came, _number(row, "end_time", tasks, line))
        name = _plain(f"{row['job_name'][:40]}-{row['task_name'][:20]}-{line}")
        for at in range(_count(row, "inst_num", tasks, line)):
            pod = _pod(f"{name}-{at}", requests, selector=selector)
            pods.append(_TracePod(came, line, pod, runs))
    return _Trace(nodes, pods, (RESOURCE, "cpu", "memory"))


def _count(row: Mapping[str, str], column: str, path: Path, line: int) -> int:
    found = _number(row, column, path, line)
    count = 1 if found is None else int(found)
    if not 0 <= count <= _MOST_PODS:
        raise TraceError(f"{path}: line {line}: {column} is out of range: {row[column]}")
    return count


_MACHINE_META: Final = (
    "machine_id", "time_stamp", "failure_domain_1", "failure_domain_2", "cpu_num", "mem_size",
    "status",
)  # fmt: skip
_BATCH_TASK: Final = (
    "task_name", "instance_num", "job_name", "task_type", "status", "start_time", "end_time",
    "plan_cpu", "plan_mem",
)  # fmt: skip
_CONTAINER_META: Final = (
    "container_id", "machine_id", "time_stamp", "app_du", "status", "cpu_request", "cpu_limit",
    "mem_size",
)  # fmt: skip


def _cluster_2018(files: Sequence[Path], gib: float = 100.0) -> _Trace:
    """Read cluster-trace-v2018; memory is in hundredths of the largest machine's ``gib``."""
    machines, tasks = files[:2]
    nodes: dict[str, Manifest] = {}
    unit = float(gib) / 100
    for line, row in _table(machines, _MACHINE_META, 6):
        offers = {
            "cpu": _milli(_number(row, "cpu_num", machines, line) or 0),
            "memory": _mebi((_number(row, "mem_size", machines, line) or 0) * unit),
        }
        name = _plain(row["machine_id"])
        nodes.setdefault(name, _node(name, offers, {_ZONE: row["failure_domain_1"]}))
    pods: list[_TracePod] = []
    for path in files[1:]:
        is_batch = path is tasks
        columns, needed = (_BATCH_TASK, 8) if is_batch else (_CONTAINER_META, 7)
        containers: set[str] = set()
        for line, row in _table(path, columns, needed):
            came = _number(row, "start_time" if is_batch else "time_stamp", path, line)
            if came is None or (not is_batch and row["container_id"] in containers):
                continue  # of a container the first line tells when it came
            cpu = _number(row, "plan_cpu" if is_batch else "cpu_request", path, line) or 0
            memory = _number(row, "plan_mem" if is_batch else "mem_size", path, line) or 0
            requests = {"cpu": _milli(cpu / 100), "memory": _mebi(memory * unit)}
            if is_batch:
                runs = _between(came, _number(row, "end_time", path, line))
                name = _plain(f"{row['job_name'][:40]}-{row['task_name'][:40]}-{line}")
                count = _count(row, "instance_num", path, line)
                labels = {"kind": "batch"}
            else:
                containers.add(row["container_id"])
                runs, name, count = None, _plain(row["container_id"]), 1
                labels = {"kind": "service", "app-du": _plain(row["app_du"])[:63]}
            for at in range(count):
                pod = _pod(f"{name}-{at}", requests, labels=labels)
                pods.append(_TracePod(came, line, pod, runs))
    return _Trace(list(nodes.values()), pods)


# --- Google -------------------------------------------------------------------------------------

_MACHINE_EVENTS: Final = ("UNKNOWN", "ADD", "REMOVE", "UPDATE")
_INSTANCE_EVENTS: Final = (
    "SUBMIT", "QUEUE", "ENABLE", "SCHEDULE", "EVICT", "FAIL", "FINISH", "KILL", "LOST",
    "UPDATE_PENDING", "UPDATE_RUNNING",
)  # fmt: skip
_ENDS: Final = frozenset({"EVICT", "FAIL", "FINISH", "KILL", "LOST"})


def _borg_2019(files: Sequence[Path], cores: float = 64.0, gib: float = 256.0) -> _Trace:
    """Read Borg 2019: shares of the largest machine; each submission of an instance is a pod."""
    machine_file, instance_file = files

    def amounts(shares_: Any, path: Path, line: int) -> dict[str, str]:
        shares = shares_ if isinstance(shares_, dict) else {}
        return {
            "cpu": _milli((_number(shares, "cpus", path, line) or 0) * float(cores)),
            "memory": _mebi((_number(shares, "memory", path, line) or 0) * float(gib)),
        }

    nodes: list[Manifest] = []
    changes: list[tuple[float, Manifest | str]] = []
    for line, event in _lines(machine_file):
        at, name = _moment(event, machine_file, line), f"m-{event.get('machine_id')}"
        what = _type(event, _MACHINE_EVENTS, machine_file, line)
        if what == "REMOVE":
            changes.append((at, name))
        elif event.get("capacity"):
            node = _node(name, amounts(event["capacity"], machine_file, line))
            if at <= 0 and what == "ADD":
                nodes.append(node)
            else:
                changes.append((at, node))
    found: list[tuple[float, int, Mapping[str, Any], str]] = []
    for line, event in _lines(instance_file):
        if int(_number(event, "alloc_collection_id", instance_file, line) or 0):
            continue  # it runs in the room of an alloc instance, which is in the trace itself
        what = _type(event, _INSTANCE_EVENTS, instance_file, line)
        found.append((_moment(event, instance_file, line), line, event, what))
    found.sort(key=lambda one: one[:2])
    pods: list[_TracePod] = []
    pending: dict[tuple[str, str], tuple[float, int, Mapping[str, Any], float | None]] = {}
    turns: Counter[tuple[str, str]] = Counter()

    def close(key: tuple[str, str], ended: float | None) -> None:
        came, line, event, bound = pending.pop(key)
        turns[key] += 1
        priority = _number(event, "priority", instance_file, line)
        pod = _pod(
            _plain(f"c{key[0]}-{key[1]}-{turns[key]}"),
            amounts(event.get("resource_request"), instance_file, line),
            priority=None if priority is None else int(priority),
        )
        waited = None if bound is None else bound - came
        pods.append(_TracePod(came, line, pod, _between(bound, ended), waited))

    for at, line, event_, what in found:
        key = (str(event_.get("collection_id")), str(event_.get("instance_index", 0)))
        if what == "SUBMIT":
            if key in pending:
                close(key, at)
            pending[key] = at, line, event_, None
        elif key in pending and what == "SCHEDULE":
            pending[key] = (*pending[key][:3], at)
        elif key in pending and what in _ENDS:
            close(key, at)
    for key in list(pending):
        close(key, None)
    return _Trace(nodes, pods, changes=changes)


def _lines(path: Path) -> Iterator[tuple[int, dict[str, Any]]]:
    for line, text in enumerate(openb.text_of(path).splitlines(), 1):
        if not text.strip():
            continue
        try:
            found = msgspec.json.decode(text)
        except msgspec.DecodeError as error:
            raise TraceError(f"{path}: line {line}: {error}") from error
        if not isinstance(found, dict):
            raise TraceError(f"{path}: line {line}: is no JSON object")
        yield line, found


def _moment(event: Mapping[str, Any], path: Path, line: int) -> float:
    micros = _number(event, "time", path, line)
    if micros is None:
        raise TraceError(f"{path}: line {line}: no time")
    return min(micros, _LAST) / 1e6


def _type(event: Mapping[str, Any], names: Sequence[str], path: Path, line: int) -> str:
    """Return an event's type, which is a number or a name."""
    text = str(event.get("type")).upper()
    number = natural(text)
    if number is not None and number < len(names):
        return names[number]
    if text not in names:
        raise TraceError(f"{path}: line {line}: type is none of {', '.join(names)}: {text}")
    return text


# --- Azure --------------------------------------------------------------------------------------

_AZURE_UNIT: Final = 1_000_000
_AZURE_EXTRA: Final = ("hdd", "ssd", "nic")


def _azure(
    files: Sequence[Path],
    machine: int | None = None,
    nodes: int = 100,
    cores: float = 64.0,
    gib: float = 256.0,
) -> _Trace:
    """Read AzureTracesForPacking2020: VM types as shares of one machine type, ``nodes`` of it.

    ``machine``: the machineId; by default that on which most VM types can be. Other VM types are
    left out.
    """
    (path,) = files
    try:
        opened = sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)
        with contextlib.closing(opened) as base:
            base.row_factory = sqlite3.Row
            chosen = machine
            if chosen is None:
                most = base.execute(
                    "SELECT machineId FROM vmType GROUP BY machineId"
                    " ORDER BY count(DISTINCT vmTypeId) DESC, machineId LIMIT 1"
                ).fetchone()
                chosen = most[0] if most else 0
            types = {
                row["vmTypeId"]: dict(row)
                for row in base.execute("SELECT * FROM vmType WHERE machineId = ?", [int(chosen)])
            }
            rows = base.execute(
                "SELECT vmId, vmTypeId, priority, starttime, endtime FROM vm"
                " ORDER BY starttime, vmId LIMIT ?",
                [_MOST_PODS + 1],
            ).fetchall()
    except (sqlite3.Error, OSError) as error:
        raise TraceError(f"{path}: {error}") from error
    if not types:
        raise TraceError(f"{path}: no VM type can be on machine {chosen}")

    def amounts(shares: Mapping[str, Any]) -> dict[str, str]:
        found = {
            "cpu": _milli(float(shares.get("core") or 0) * float(cores)),
            "memory": _mebi(float(shares.get("memory") or 0) * float(gib)),
        }
        for name in _AZURE_EXTRA:
            found[f"stowage.dev/{name}"] = str(round(float(shares.get(name) or 0) * _AZURE_UNIT))
        return found

    whole = amounts(dict.fromkeys(("core", "memory", *_AZURE_EXTRA), 1))
    pods = []
    for line, row in enumerate(rows, 1):
        kind = types.get(row["vmTypeId"])
        start = _number(dict(row), "starttime", path, line)
        if kind is None or start is None:
            continue
        runs = _between(start, _number(dict(row), "endtime", path, line))
        pod = _pod(
            f"vm-{row['vmId']}",
            amounts(kind),
            labels={"vm-type": str(row["vmTypeId"])},
            # 0 is the higher priority of the trace, 1 the lower.
            priority=1 - int(row["priority"] or 0),
        )
        pods.append(_TracePod(start * _DAY, line, pod, None if runs is None else runs * _DAY))
    all_nodes = [_node(f"machine-{number}", whole) for number in range(int(nodes))]
    return _Trace(all_nodes, pods)


# --- Parallel machines, and tables of one's own ---------------------------------------------------

_SWF: Final = (
    "job", "submit", "wait", "run", "procs", "cpu_used", "memory_used", "procs_asked",
    "time_asked", "memory_asked", "status", "user", "group", "executable", "queue", "partition",
    "preceding", "think",
)  # fmt: skip


def _swf(
    files: Sequence[Path], nodes: int | None = None, cores: int | None = None, gib: float = 64.0
) -> _Trace:
    """Read the Standard Workload Format: a job is as many pods as nodes that its processors fill.

    ``nodes`` and ``cores`` of each: by default MaxNodes and MaxProcs of the head.
    """
    (path,) = files
    head: dict[str, int] = {}
    jobs: list[tuple[int, dict[str, str]]] = []
    for line, text in enumerate(openb.text_of(path).splitlines(), 1):
        if text.startswith(";"):
            name, _, value = text.lstrip("; ").partition(":")
            if (first := value.split()) and (number := natural(first[0])) is not None:
                head[name.strip()] = number
        elif fields := text.split():
            if len(fields) < 11:
                raise TraceError(f"{path}: line {line}: {len(fields)} fields, where 18 belong")
            jobs.append((line, dict(zip(_SWF, fields, strict=False))))
    procs = head.get("MaxProcs") or head.get("MaxNodes") or 0
    count = int(nodes or head.get("MaxNodes") or procs)
    if count < 1:
        raise TraceError(f"{path}: its head has neither MaxNodes nor MaxProcs: say nodes and cores")
    each = int(cores or max(1, procs // count))
    pods = []
    for line, job in jobs:
        numbers = {name: _known_number(job, name, path, line) for name in _SWF[:10]}
        came, processors = numbers["submit"], int(numbers["procs_asked"] or numbers["procs"] or 0)
        if came is None or processors < 1:
            continue
        memory = numbers["memory_asked"] or numbers["memory_used"] or 0  # KiB for each processor
        for at in range(math.ceil(processors / each)):
            share = min(each, processors - at * each)
            requests = {"cpu": _milli(share), "memory": _mebi(memory * share / (1 << 20))}
            pod = _pod(f"job-{job['job']}-{at}", requests, labels={"job": f"job-{job['job']}"})
            pods.append(_TracePod(came, line, pod, numbers["run"], numbers["wait"]))
    offers = {"cpu": _milli(each), "memory": _mebi(float(gib))}
    return _Trace([_node(f"node-{number}", offers) for number in range(count)], pods)


def _known_number(row: Mapping[str, str], column: str, path: Path, line: int) -> float | None:
    """Return a number of the Standard Workload Format, in which -1 stands for what is not known."""
    found = _number(row, column, path, line)
    return None if found is None or found < 0 else found


_LABEL: Final = "label:"


def _csv(files: Sequence[Path], **columns: str) -> _Trace:
    """Read nodes and pods with a head line each.

    Nodes: ``name``, ``cpu``, ``memory``, perhaps ``pods``, ``gpu``, ``zone``. Pods: ``name``,
    ``arrives`` (seconds), ``cpu``, ``memory``, perhaps ``runs`` (seconds), ``namespace``,
    ``priority``, ``gpu``, ``count``. Amounts are quantities (``500m``, ``2Gi``) or numbers of cores
    and bytes. A column ``label:KEY`` is a label. ``columns``: what a column is called in the files:
    ``arrives="submit_time"``.
    """
    node_file, pod_file = files
    nodes = []
    for line, row in enumerate(_named(node_file, ("name", "cpu", "memory"), columns), 2):
        offers = _amounts(row, node_file, line)
        if row.get("pods"):
            offers["pods"] = row["pods"]
        labels = _labels(row)
        if row.get("zone"):
            labels[_ZONE] = row["zone"]
        nodes.append(_node(row["name"], offers, labels))
    pods = []
    for line, row in enumerate(_named(pod_file, ("name", "arrives", "cpu", "memory"), columns), 2):
        came = _number(row, "arrives", pod_file, line)
        if came is None:
            raise TraceError(f"{pod_file}: line {line}: no {columns.get('arrives', 'arrives')}")
        priority = _number(row, "priority", pod_file, line)
        count = _count({"count": row.get("count", "")}, "count", pod_file, line)
        for at in range(count):
            pod = _pod(
                row["name"] if count == 1 else f"{row['name']}-{at}",
                _amounts(row, pod_file, line),
                namespace=row.get("namespace") or "default",
                labels=_labels(row),
                priority=None if priority is None else int(priority),
            )
            pods.append(_TracePod(came, line, pod, _number(row, "runs", pod_file, line)))
    has_gpus = any(WHOLE_RESOURCE in one["status"]["capacity"] for one in nodes)
    scored = ("cpu", "memory")
    return _Trace(nodes, pods, (WHOLE_RESOURCE, *scored) if has_gpus else scored)


def _named(path: Path, needed: Sequence[str], columns: Mapping[str, str]) -> list[dict[str, str]]:
    """Return rows by our names of the columns."""
    rows = openb.rows_of(path, tuple(columns.get(name, name) for name in needed))
    ours = {theirs: name for name, theirs in columns.items()}
    return [
        {ours.get(name, name): (text or "").strip() for name, text in row.items() if name}
        for row in rows
    ]


def _labels(row: Mapping[str, str]) -> dict[str, str]:
    return {name[len(_LABEL) :]: text for name, text in row.items() if name.startswith(_LABEL)}


def _amounts(row: Mapping[str, str], path: Path, line: int) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, resource, check in (
        ("cpu", "cpu", milli_value), ("memory", "memory", value), ("gpu", WHOLE_RESOURCE, value),
    ):  # fmt: skip
        if text := row.get(name):
            try:
                negative = check(text) < 0
            except QuantityError as error:
                raise TraceError(f"{path}: line {line}: {name}: {error}") from error
            if negative:
                raise TraceError(f"{path}: line {line}: {name} is negative: {text}")
            found[resource] = text
    return found


_READERS: Final[Mapping[str, tuple[Callable[..., _Trace], int, int]]] = {
    "gpu-2020": (_gpu_2020, 2, 2),
    "cluster-2018": (_cluster_2018, 2, 3),
    "borg-2019": (_borg_2019, 2, 2),
    "azure": (_azure, 1, 1),
    "swf": (_swf, 1, 1),
    "csv": (_csv, 2, 2),
}
"""How each format is read: a function of its files and options, and how many files it has."""
FORMATS: Final = ("openb", *_READERS)
