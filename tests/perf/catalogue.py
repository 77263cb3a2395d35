"""All workloads by name: scheduler_perf's shapes, and those that look like use."""

from tests.perf.claims import CLAIMS
from tests.perf.realistic import REALISTIC
from tests.perf.volumes import VOLUMES
from tests.perf.workloads import SCHEDULER_PERF, Workload

WORKLOADS: tuple[Workload, ...] = (*SCHEDULER_PERF, *REALISTIC, *CLAIMS, *VOLUMES)


def by_name(name: str) -> Workload:
    """Return the workload of that name.

    Raises:
        KeyError: there is none.
    """
    return {workload.name: workload for workload in WORKLOADS}[name]
