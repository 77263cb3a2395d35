"""Answers a ``Packing``: a placement of many pods together."""

from collections.abc import Hashable

from clusterstate.objects.values.meta import Manifest
from clusterstate.queries.pods.waiting import waiting
from scheduling.answers.live import LiveBase, LiveWorld, empty_base
from scheduling.answers.present import Present
from scheduling.engine.reference.cycle import PodToPlace
from scheduling.simulation.packing import MOST_PODS, read_packing, run_packing


def packing(world: LiveWorld, document: object) -> Manifest:
    """Return the best placement found for many pods, and bounds of any other placement.

    In the live world the waiting pods come first, then those of the document. Queries.

    Raises:
        Invalid: with every wrong field.
        ServiceUnavailable: the solver is not installed.
    """
    question = read_packing(document)
    if not question.simulation.live:
        return run_packing(question, empty_base(world))
    present = Present(world)
    base = LiveBase(world, present.snapshot)
    rows = waiting(most=MOST_PODS)
    names: dict[Hashable, str] = {row.id: f"{row.namespace}/{row.name}" for row in rows}
    pods: list[PodToPlace] = []
    for name in dict.fromkeys(row.scheduler_name for row in rows):
        pods += present.queue(name, rows)
    answer = run_packing(question, base, pods, names.get)
    answer["status"]["revision"] = str(world.revision)
    return answer
