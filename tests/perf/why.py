"""Why pods wait, what would help, and the room that is left: no database, one thread.

Half of the nodes are tainted, a tenth is cordoned, none has the label that some waiting pods ask
for; pods fill the rest unevenly.
"""

import gzip
import time
from collections.abc import Callable, Iterator
from typing import Any

import msgspec
import numpy as np

from clusterstate.objects.values.node import Node
from clusterstate.objects.values.pod import Pod
from clusterstate.processes import collector
from scheduling.engine import deciding
from scheduling.engine.reference.cycle import PodToPlace
from scheduling.engine.snapshot import Snapshot
from scheduling.engine.snapshot.copying import copy_snapshot
from scheduling.engine.snapshot.requirements import from_pod
from scheduling.framework.configuration.documents import default_configuration
from scheduling.plugins.catalogue import build_framework
from scheduling.simulation import explanation
from scheduling.simulation.groups import grouped
from scheduling.simulation.headroom import headroom_of
from scheduling.simulation.node_advice import Offer, advise
from scheduling.simulation.remedies import Question, remedies
from scheduling.simulation.verdicts import judge, scores_of
from tests.perf.engine import Progress
from tests.perf.workloads import HOSTNAME, Manifest

_TIMES = 5
_PODS_PER_NODE = 20
_WAITING = 2_000
_CLASSES = 50


def _node(number: int) -> Manifest:
    offer = {"cpu": "32", "memory": "128Gi", "pods": "110"}
    taints = [{"key": "team", "value": f"t{number % 4}", "effect": "NoSchedule"}]
    return {
        "metadata": {
            "name": f"node-{number}",
            "labels": {HOSTNAME: f"node-{number}", "zone": f"zone-{number % 3}"},
        },
        "spec": {"taints": taints if number % 2 else [], "unschedulable": number % 10 == 0},
        "status": {"capacity": offer, "allocatable": offer},
    }


def _pod(name: str, cpu: int, **spec: Any) -> Manifest:
    requests = {"cpu": f"{cpu}m", "memory": "256Mi"}
    container = {"name": "main", "image": "app", "resources": {"requests": requests}}
    return {"metadata": {"name": name, "namespace": "default"},
            "spec": {"containers": [container], **spec}}  # fmt: skip


def _world(nodes: int) -> Snapshot:
    snapshot = Snapshot()
    for number in range(nodes):
        snapshot.set_node(msgspec.convert(_node(number), Node))
    infos = [
        snapshot.intern(from_pod(msgspec.convert(_pod("p", 200 * (1 + kind)), Pod)))
        for kind in range(5)
    ]
    count = nodes * _PODS_PER_NODE
    classes = np.array([infos[number % 5].index for number in range(count)], np.int32)
    rows = snapshot.rows()[np.arange(count) % nodes].astype(np.int32)
    snapshot.add_pods([f"default/p-{number}" for number in range(count)], classes, rows)
    return snapshot


def _waiting(snapshot: Snapshot) -> list[PodToPlace]:
    infos = []
    for kind in range(_CLASSES):
        spec: Manifest = {"nodeSelector": {"disktype": "ssd"}} if kind % 3 == 0 else {}
        manifest = _pod("w", 25_000 + 100 * kind, **spec)
        infos.append(snapshot.intern(from_pod(msgspec.convert(manifest, Pod))))
    return [PodToPlace(f"default/w-{n}", infos[n % _CLASSES]) for n in range(_WAITING)]


def _median(task: Callable[[], Any]) -> tuple[float, Any]:
    """Return the median of the seconds that a task took, and what it returned at last."""
    taken, found = [], None
    for _ in range(_TIMES):
        began = time.perf_counter()
        found = task()
        taken.append(time.perf_counter() - began)
    return round(sorted(taken)[len(taken) // 2], 4), found


def run(*, nodes: int, say: Progress) -> Iterator[dict[str, Any]]:
    """Yield one line for each question: seconds at the median, and what was answered."""
    say(f"why: {nodes} nodes, {nodes * _PODS_PER_NODE} pods, {_WAITING} that wait")
    deciding.warm()
    profile = default_configuration().profile("default-scheduler")
    assert profile is not None
    framework = build_framework(profile)
    snapshot = _world(nodes)
    waiting = _waiting(snapshot)
    collector.calm()

    def line(question: str, seconds: float, **more: Any) -> dict[str, Any]:
        return {"question": question, "nodes": nodes, "seconds": seconds, **more}

    yield line("copy", _median(lambda: copy_snapshot(snapshot))[0])

    def explained(pod: PodToPlace) -> bytes:
        verdicts = judge(snapshot, framework, pod)
        scores = scores_of(snapshot, framework, pod.info, verdicts)
        whole = explanation.explain(snapshot, verdicts, scores, weights=framework.weights)
        document = {**explanation.head(whole), "table": explanation.page(whole, limit=nodes)}
        return gzip.compress(msgspec.json.encode(document), 5, mtime=0)

    small = snapshot.intern(from_pod(msgspec.convert(_pod("s", 100), Pod)))
    for name, pod in (("waits", waiting[0]), ("fits", PodToPlace("default/s", small))):
        seconds, body = _median(lambda pod=pod: explained(pod))  # type: ignore[misc]
        yield line(f"why: {name}", seconds, bytes=len(body))
    verdicts = judge(snapshot, framework, waiting[0])
    seconds, found = _median(
        lambda: remedies(snapshot, framework, Question(waiting[0], waiting), verdicts)
    )
    yield line("remedies", seconds, remedies=len(found))
    seconds, (groups, _) = _median(lambda: grouped(snapshot, lambda name: framework, waiting))
    yield line("groups", seconds, pods=len(waiting), classes=_CLASSES, groups=len(groups))
    for cpu in (500, 2_000, 8_000):
        info = snapshot.intern(from_pod(msgspec.convert(_pod("h", cpu), Pod)))
        seconds, status = _median(lambda info=info: headroom_of(snapshot, framework, info))  # type: ignore[misc]
        yield line("headroom", seconds, cpu_milli=cpu, fits=status["fits"])
    offers = [
        Offer(f"offer-{cpu}", price, msgspec.convert(_offered(cpu), Node))
        for cpu, price in ((32, 1.0), (64, 1.9), (128, 4.0))
    ]
    began = time.perf_counter()
    advice = advise(snapshot, framework, waiting, offers)
    yield line(
        "node advice", round(time.perf_counter() - began, 3),
        added=sum(advice.counts), price=advice.price, placed=len(advice.placed),
    )  # fmt: skip


def _offered(cpu: int) -> Manifest:
    amounts = {"cpu": str(cpu), "memory": "512Gi", "pods": "110"}
    labels = {"disktype": "ssd"}
    return {
        "metadata": {"labels": labels},
        "status": {"capacity": amounts, "allocatable": amounts},
    }
