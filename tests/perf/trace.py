"""A public trace as a workload: which of its pods fit, in the order of creation, if none leaves.

The files are read as ``manage.py replay`` reads them (``scheduling.scenarios.traces``).
"""

from pathlib import Path

from scheduling.scenarios import traces
from tests.perf.workloads import Workload


def read(nodes: Path, pods: Path, *, shared: bool = False) -> Workload:
    """Return the workload of a trace's two files.

    ``shared``: GPUs in thousandths, so that pods share one; else each pod gets whole ones.

    Raises:
        TraceError: a file cannot be read or is not such a trace.
    """
    script = traces.read("openb", [nodes, pods], shares="true" if shared else "false")
    made_nodes = script.objects
    made_pods = [arrival.manifest for step in script.steps for arrival in step.arrivals]
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
        shares=script.scored,
    )
