"""Reads public traces of clusters, in their published formats, as scripts.

``read(FORMAT, FILES)``. The files of each format, gzipped or not:

``openb``         Alibaba GPU 2023: nodes, pods
``gpu-2020``      Alibaba GPU 2020 (MLaaS): pai_machine_spec, pai_task_table
``cluster-2018``  Alibaba cluster trace 2018: machine_meta, batch_task, perhaps container_meta
``borg-2019``     Google Borg 2019, exported as JSON lines: machine_events, instance_events
``azure``         Azure packing trace 2020: the SQLite file
``swf``           Standard Workload Format of parallel machines (Feitelson): one file
``csv``           nodes and pods with named columns

A pod is created at its submission; it leaves after its running time in the trace times ``stretch``,
counted from its binding. If a source has shares of its largest machine instead of amounts, the
options ``cores`` and ``gib`` state that machine's size. Shared GPUs are counted in thousandths
(``RESOURCE``), others whole (``WHOLE_RESOURCE``); the node label ``MODEL`` names their model.
docs/traces.md explains each column.
"""

import contextlib
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
from scheduling.scenarios import trace_files
from scheduling.scenarios.script import Arrival, Gone, Script, Step
from scheduling.scenarios.trace_files import Row, TraceError

RESOURCE: Final = "stowage.dev/gpu-milli"
WHOLE_RESOURCE: Final = "nvidia.com/gpu"
MODEL: Final = "gpu-model"
_ZONE: Final = "topology.kubernetes.io/zone"
_PODS_PER_NODE: Final = "256"
_MOST_PODS: Final = 1_000_000
_MOST: Final = 2**50
_LAST: Final = 2**62
"""Microseconds; Google's trace has 2^63 - 1 for times after its end."""
_DAY: Final = 86_400.0


class _TracePod(NamedTuple):
    """A pod of a trace: its arrival, line, manifest, running and waiting time, in seconds."""

    at: float
    order: int
    manifest: Manifest
    runs: float | None = None
    waited: float | None = None


class _Trace(msgspec.Struct):
    """The parsed content of a trace.

    ``changes``: nodes added (manifest) or removed (name) after the beginning, by second.
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
        files: the format's files, in the order above.
        stretch: factor of every pod's running time.
        share_of_nodes: the part of the nodes to use, evenly from the file.
        seed: for the choice among equal nodes.
        options: further arguments of the format.

    Raises:
        TraceError: a file cannot be read or is of another format, or an option is not known.
    """
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
    """Yield the steps by time; seconds count from the first pod."""
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
    """Return a name valid in Kubernetes: lower case, letters, digits and dashes."""
    plain = "".join(c if c.isascii() and c.isalnum() else "-" for c in name.lower())
    return plain.strip("-")[:200] or "unnamed"


def _amounts(cores: float | None, gib: float | None) -> dict[str, str]:
    return {
        "cpu": f"{max(0, round((cores or 0) * 1000))}m",
        "memory": f"{max(0, round((gib or 0) * 1024))}Mi",
    }


def _between(start: float | None, end: float | None) -> float | None:
    return None if start is None or end is None or end < start else end - start


# --- Alibaba ------------------------------------------------------------------------------------

_OPENB_NODES: Final = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
_OPENB_PODS: Final = (
    "name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec", "qos", "creation_time",
    "deletion_time", "scheduled_time",
)  # fmt: skip


def _openb(files: Sequence[Path], *, shares: str | bool = "true") -> _Trace:
    """Read cluster-trace-gpu-v2023: Weng et al., "Beware of Fragmentation" (USENIX ATC 2023).

    ``shares``: whether pods share GPUs; else (``"false"``) each gets whole ones.
    """
    node_file, pod_file = files
    if (text := str(shares).lower()) not in ("true", "false"):
        raise TraceError(f"openb: shares must be true or false: {shares}")
    shared = text == "true"
    gpu = RESOURCE if shared else WHOLE_RESOURCE

    def whole(row: Row, column: str) -> int:
        return row.count(column, none=0, most=_MOST)

    def amounts(row: Row) -> dict[str, str]:
        return _amounts(whole(row, "cpu_milli") / 1000, whole(row, "memory_mib") / 1024)

    nodes = []
    for row in trace_files.named_columns(node_file, _OPENB_NODES):
        offers = amounts(row)
        if gpus := whole(row, "gpu"):
            offers[gpu] = str(gpus * 1000 if shared else gpus)
        nodes.append(_node(row["sn"], offers, {MODEL: row["model"]} if gpus else {}))
    pods = []
    for row in trace_files.named_columns(pod_file, _OPENB_PODS):
        requests = amounts(row)
        if gpus := whole(row, "num_gpu"):
            requests[gpu] = str(gpus * whole(row, "gpu_milli") if shared else gpus)
        pod = _pod(row["name"], {}, labels={"qos": row["qos"].lower()})
        # Amounts that are 0 are stated, as in the trace.
        pod["spec"]["containers"][0]["resources"] = {"requests": requests, "limits": requests}
        if models := sorted({model for model in row["gpu_spec"].split("|") if model}):
            term = {"matchExpressions": [{"key": MODEL, "operator": "In", "values": models}]}
            required = {"nodeSelectorTerms": [term]}
            pod["spec"]["affinity"] = {
                "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": required}
            }
        came = whole(row, "creation_time")
        bound = whole(row, "scheduled_time") if row["scheduled_time"] else None
        waited = None if bound is None else float(max(bound - came, 0))
        runs = None
        if row["deletion_time"]:
            runs = whole(row, "deletion_time") - (came if bound is None else bound)
        pods.append(_TracePod(float(came), row.line, pod, runs, waited))
    return _Trace(nodes, pods, (gpu, "cpu", "memory"))


_MACHINE_SPEC: Final = ("machine", "gpu_type", "cap_cpu", "cap_mem", "cap_gpu")
_PAI_TASK: Final = (
    "job_name", "task_name", "inst_num", "status", "start_time", "end_time", "plan_cpu",
    "plan_mem", "plan_gpu", "gpu_type",
)  # fmt: skip


def _gpu_2020(files: Sequence[Path]) -> _Trace:
    """Read cluster-trace-gpu-v2020: an instance of a task is a pod; plan_cpu 600 is 6 cores."""
    machine_file, task_file = files
    nodes = []
    for row in trace_files.table(machine_file, _MACHINE_SPEC, 5):
        offers = _amounts(row.number("cap_cpu"), row.number("cap_mem"))
        if gpus := int(row.number("cap_gpu") or 0):
            offers[RESOURCE] = str(gpus * 1000)
        labels = {MODEL: row["gpu_type"]} if gpus else {}
        nodes.append(_node(_plain(row["machine"]), offers, labels))
    pods: list[_TracePod] = []
    for row in trace_files.table(task_file, _PAI_TASK, 9):
        came = row.number("start_time")
        if came is None:  # it never started: its time of arrival is unknown
            continue
        requests = _amounts((row.number("plan_cpu") or 0) / 100, row.number("plan_mem"))
        selector = {}
        if gpu := (row.number("plan_gpu") or 0) * 10:
            requests[RESOURCE] = str(round(gpu))
            if row["gpu_type"] and row["gpu_type"] != "MISC":
                selector = {MODEL: row["gpu_type"]}
        runs = _between(came, row.number("end_time"))
        name = _plain(f"{row['job_name'][:40]}-{row['task_name'][:20]}-{row.line}")
        for at in range(row.count("inst_num", none=1, most=_MOST_PODS)):
            pod = _pod(f"{name}-{at}", requests, selector=selector)
            pods.append(_TracePod(came, row.line, pod, runs))
    return _Trace(nodes, pods, (RESOURCE, "cpu", "memory"))


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
    """Read cluster-trace-v2018; memory is in percent of the largest machine's ``gib``."""
    machine_file, task_file, *container_files = files
    unit = float(gib) / 100
    nodes: dict[str, Manifest] = {}
    for row in trace_files.table(machine_file, _MACHINE_META, 6):
        offers = _amounts(row.number("cpu_num"), (row.number("mem_size") or 0) * unit)
        name = _plain(row["machine_id"])
        nodes.setdefault(name, _node(name, offers, {_ZONE: row["failure_domain_1"]}))
    pods: list[_TracePod] = []

    def add(row: Row, came: float, name: str, cpu: str, memory: str, **more: Any) -> None:
        runs, count = more.pop("runs", None), more.pop("count", 1)
        amounts = _amounts((row.number(cpu) or 0) / 100, (row.number(memory) or 0) * unit)
        for at in range(count):
            pod = _pod(f"{_plain(name)}-{at}", amounts, **more)
            pods.append(_TracePod(came, row.line, pod, runs))

    for row in trace_files.table(task_file, _BATCH_TASK, 8):
        if (came := row.number("start_time")) is not None:
            add(
                row, came, f"{row['job_name'][:40]}-{row['task_name'][:40]}-{row.line}",
                "plan_cpu", "plan_mem", labels={"kind": "batch"},
                runs=_between(came, row.number("end_time")),
                count=row.count("instance_num", none=1, most=_MOST_PODS),
            )  # fmt: skip
    containers: set[str] = set()
    for path in container_files:
        for row in trace_files.table(path, _CONTAINER_META, 7):
            came, name = row.number("time_stamp"), row["container_id"]
            if came is not None and name not in containers:  # the first line has its arrival
                containers.add(name)
                labels = {"kind": "service", "app-du": _plain(row["app_du"])[:63]}
                add(row, came, name, "cpu_request", "mem_size", labels=labels)
    return _Trace(list(nodes.values()), pods)


# --- Google -------------------------------------------------------------------------------------

_MACHINE_EVENTS: Final = ("UNKNOWN", "ADD", "REMOVE", "UPDATE")
_INSTANCE_EVENTS: Final = (
    "SUBMIT", "QUEUE", "ENABLE", "SCHEDULE", "EVICT", "FAIL", "FINISH", "KILL", "LOST",
    "UPDATE_PENDING", "UPDATE_RUNNING",
)  # fmt: skip
_ENDS: Final = frozenset({"EVICT", "FAIL", "FINISH", "KILL", "LOST"})


def _borg_2019(files: Sequence[Path], cores: float = 64.0, gib: float = 256.0) -> _Trace:
    """Read Borg 2019; amounts are shares of the largest machine; each submission is a pod."""
    machine_file, instance_file = files

    def amounts(event: Row, column: str) -> dict[str, str]:
        given = event.get(column)
        shares = Row(given if isinstance(given, dict) else {}, event.path, event.line)
        cpus, memory = shares.number("cpus") or 0, shares.number("memory") or 0
        return _amounts(cpus * float(cores), memory * float(gib))

    nodes: list[Manifest] = []
    changes: list[tuple[float, Manifest | str]] = []
    for event in trace_files.json_lines(machine_file):
        at, name = _moment(event), f"m-{event.get('machine_id')}"
        what = _type(event, _MACHINE_EVENTS)
        if what == "REMOVE":
            changes.append((at, name))
        elif event.get("capacity"):
            node = _node(name, amounts(event, "capacity"))
            if at <= 0 and what == "ADD":
                nodes.append(node)
            else:
                changes.append((at, node))
    found = [
        (_moment(event), event.line, event, _type(event, _INSTANCE_EVENTS))
        for event in trace_files.json_lines(instance_file)
        # Instances inside an alloc instance are left out: the trace has the alloc instance itself.
        if not int(event.number("alloc_collection_id") or 0)
    ]
    found.sort(key=lambda one: one[:2])
    pods: list[_TracePod] = []
    pending: dict[tuple[str, str], tuple[float, Row, float | None]] = {}
    turns: Counter[tuple[str, str]] = Counter()

    def close(key: tuple[str, str], ended: float | None) -> None:
        came, event, bound = pending.pop(key)
        turns[key] += 1
        priority = event.number("priority")
        pod = _pod(
            _plain(f"c{key[0]}-{key[1]}-{turns[key]}"),
            amounts(event, "resource_request"),
            priority=None if priority is None else int(priority),
        )
        waited = None if bound is None else bound - came
        pods.append(_TracePod(came, event.line, pod, _between(bound, ended), waited))

    for at, _, event, what in found:
        key = (str(event.get("collection_id")), str(event.get("instance_index", 0)))
        if what == "SUBMIT":
            if key in pending:
                close(key, at)
            pending[key] = at, event, None
        elif key in pending and what == "SCHEDULE":
            pending[key] = (*pending[key][:2], at)
        elif key in pending and what in _ENDS:
            close(key, at)
    for key in list(pending):
        close(key, None)
    return _Trace(nodes, pods, changes=changes)


def _moment(event: Row) -> float:
    micros = event.number("time")
    if micros is None:
        raise event.error("no time")
    return min(micros, _LAST) / 1e6


def _type(event: Row, names: Sequence[str]) -> str:
    """Return the name of an event's type, which the file has as number or name."""
    text = str(event.get("type")).upper()
    number = natural(text)
    if number is not None and number < len(names):
        return names[number]
    if text not in names:
        raise event.error(f"type is none of {', '.join(names)}: {text}")
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
    """Read AzureTracesForPacking2020: ``nodes`` machines of one type, VM types as shares of it.

    ``machine``: the machineId; by default the one for which most VM types are listed. Other VM
    types are left out.
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
        of_all = {name: float(shares.get(name) or 0) for name in ("core", "memory", *_AZURE_EXTRA)}
        extra = {
            f"stowage.dev/{name}": str(round(of_all[name] * _AZURE_UNIT)) for name in _AZURE_EXTRA
        }
        return _amounts(of_all["core"] * float(cores), of_all["memory"] * float(gib)) | extra

    whole = amounts(dict.fromkeys(("core", "memory", *_AZURE_EXTRA), 1))
    pods = []
    for line, values in enumerate(rows, 1):
        row = Row(dict(values), path, line)
        kind, start = types.get(row["vmTypeId"]), row.number("starttime")
        if kind is None or start is None:
            continue
        runs = _between(start, row.number("endtime"))
        pod = _pod(
            f"vm-{row['vmId']}",
            amounts(kind),
            labels={"vm-type": str(row["vmTypeId"])},
            # 0 is the higher priority of the trace, 1 the lower.
            priority=1 - int(row["priority"] or 0),
        )
        pods.append(_TracePod(start * _DAY, line, pod, None if runs is None else runs * _DAY))
    return _Trace([_node(f"machine-{number}", whole) for number in range(int(nodes))], pods)


# --- Parallel machines, and the user's own tables -----------------------------------------------

_SWF: Final = (
    "job", "submit", "wait", "run", "procs", "cpu_used", "memory_used", "procs_asked",
    "time_asked", "memory_asked",
)  # fmt: skip


def _swf(
    files: Sequence[Path], nodes: int | None = None, cores: int | None = None, gib: float = 64.0
) -> _Trace:
    """Read the Standard Workload Format: a job becomes one pod for each node that it fills.

    ``nodes``, and ``cores`` of each, are by default MaxNodes and MaxProcs of the header. -1 means
    unknown.
    """
    (path,) = files
    head: dict[str, int] = {}
    jobs: list[Row] = []
    for line, text in enumerate(trace_files.text_of(path).splitlines(), 1):
        if text.startswith(";"):
            name, _, given = text.lstrip("; ").partition(":")
            if (first := given.split()) and (whole := natural(first[0])) is not None:
                head[name.strip()] = whole
        elif fields := text.split():
            jobs.append(Row(dict(zip(_SWF, fields, strict=False)), path, line))
            if len(fields) < 11:
                raise jobs[-1].error(f"{len(fields)} fields, where 18 belong")
    procs = head.get("MaxProcs") or head.get("MaxNodes") or 0
    count = int(nodes or head.get("MaxNodes") or procs)
    if count < 1:
        raise TraceError(
            f"{path}: its header has neither MaxNodes nor MaxProcs: give the options nodes and"
            " cores"
        )
    each = int(cores or max(1, procs // count))
    pods = []
    for job in jobs:
        numbers = {
            name: number
            for name in _SWF
            if (number := job.number(name)) is not None and number >= 0
        }
        processors = int(numbers.get("procs_asked") or numbers.get("procs") or 0)
        if "submit" not in numbers or processors < 1:
            continue
        memory = numbers.get("memory_asked") or numbers.get("memory_used") or 0  # KiB, by processor
        for at in range(math.ceil(processors / each)):
            share = min(each, processors - at * each)
            pod = _pod(
                f"job-{job['job']}-{at}",
                _amounts(share, memory * share / (1 << 20)),
                labels={"job": f"job-{job['job']}"},
            )
            times = numbers["submit"], job.line, pod, numbers.get("run"), numbers.get("wait")
            pods.append(_TracePod(*times))
    offers = _amounts(each, float(gib))
    return _Trace([_node(f"node-{number}", offers) for number in range(count)], pods)


_LABEL: Final = "label:"


def _csv(files: Sequence[Path], **columns: str) -> _Trace:
    """Read a file of nodes and a file of pods, each with a header.

    Nodes: ``name``, ``cpu``, ``memory``, perhaps ``pods``, ``gpu``, ``zone``. Pods: ``name``,
    ``arrives`` (seconds), ``cpu``, ``memory``, perhaps ``runs`` (seconds), ``namespace``,
    ``priority``, ``gpu``, ``count``. Amounts are quantities (``500m``, ``2Gi``) or numbers of cores
    and bytes. A column ``label:KEY`` is a label. ``columns``: other names of columns in the files,
    such as ``arrives="submit_time"``.
    """
    node_file, pod_file = files
    nodes = []
    for row in _named(node_file, ("name", "cpu", "memory"), columns):
        offers, labels = _quantities(row), _labels(row)
        if row.get("pods"):
            offers["pods"] = row["pods"]
        if row.get("zone"):
            labels[_ZONE] = row["zone"]
        nodes.append(_node(row["name"], offers, labels))
    pods = []
    for row in _named(pod_file, ("name", "arrives", "cpu", "memory"), columns):
        came, priority = row.number("arrives"), row.number("priority")
        if came is None:
            raise row.error(f"no {columns.get('arrives', 'arrives')}")
        count = row.count("count", none=1, most=_MOST_PODS)
        for at in range(count):
            pod = _pod(
                row["name"] if count == 1 else f"{row['name']}-{at}",
                _quantities(row),
                namespace=row.get("namespace") or "default",
                labels=_labels(row),
                priority=None if priority is None else int(priority),
            )
            pods.append(_TracePod(came, row.line, pod, row.number("runs")))
    has_gpus = any(WHOLE_RESOURCE in one["status"]["capacity"] for one in nodes)
    scored = ("cpu", "memory")
    return _Trace(nodes, pods, (WHOLE_RESOURCE, *scored) if has_gpus else scored)


def _named(path: Path, needed: Sequence[str], columns: Mapping[str, str]) -> Iterator[Row]:
    """Yield rows with this module's column names."""
    ours = {theirs: name for name, theirs in columns.items()}
    for row in trace_files.named_columns(path, [columns.get(name, name) for name in needed]):
        texts = {ours.get(name, name): (text or "").strip() for name, text in row.items() if name}
        yield Row(texts, path, row.line)


def _labels(row: Row) -> dict[str, str]:
    return {name[len(_LABEL) :]: text for name, text in row.items() if name.startswith(_LABEL)}


def _quantities(row: Row) -> dict[str, str]:
    found: dict[str, str] = {}
    for name, resource, check in (
        ("cpu", "cpu", milli_value), ("memory", "memory", value), ("gpu", WHOLE_RESOURCE, value),
    ):  # fmt: skip
        if text := row.get(name):
            try:
                negative = check(text) < 0
            except QuantityError as error:
                raise row.error(f"{name}: {error}") from error
            if negative:
                raise row.error(f"{name} is negative: {text}")
            found[resource] = text
    return found


_READERS: Final[Mapping[str, tuple[Callable[..., _Trace], int, int]]] = {
    "openb": (_openb, 2, 2),
    "gpu-2020": (_gpu_2020, 2, 2),
    "cluster-2018": (_cluster_2018, 2, 3),
    "borg-2019": (_borg_2019, 2, 2),
    "azure": (_azure, 1, 1),
    "swf": (_swf, 1, 1),
    "csv": (_csv, 2, 2),
}
"""By format: a function of its files and options, and the least and most number of files."""
FORMATS: Final = tuple(_READERS)
