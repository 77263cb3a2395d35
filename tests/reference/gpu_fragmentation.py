"""GPUFragmentation stated plainly: one node and one typical pod at a time (Weng et al., 2023)."""

from collections.abc import Sequence

from scheduling.framework.v1 import milli_amount, whole_amount
from scheduling.plugins.shipped.gpu_fragmentation import WHOLE, Task


def fragment_plainly(free: tuple[int, int, int], model: str, tasks: Sequence[Task]) -> int:
    """Return a node's fragmentation times the sum of the weights: the rule, one pod at a time.

    Args:
        free: cpu in thousandths, memory in bytes, GPUs in thousandths.
        model: of the node's GPUs, empty for none.
        tasks: the typical pods.
    """
    cpu, memory, gpu = free
    gpu = max(gpu, 0)
    total = 0
    for task in tasks:
        fits = (
            milli_amount(task.cpu) <= cpu
            and whole_amount(task.memory) <= memory
            and task.gpu_milli <= gpu
            and (not task.models or model in task.models)
        )
        in_part = gpu % WHOLE
        if not fits:
            unusable = gpu
        elif task.gpu_milli >= WHOLE or in_part < task.gpu_milli:
            unusable = in_part
        else:
            unusable = 0
        total += task.weight * unusable
    return total


def score_plainly(before: int, after: int, weights: int) -> int:
    """Return 0 to 100 for a fragmentation (times the weights) that becomes another one.

    50 where it stays, more where it falls; a whole GPU is worth 25 points, and no change is worth
    50 (the paper takes a logistic curve; this one needs no floating point).
    """
    gain = (before - after) // weights
    return 50 + 50 * gain // (WHOLE + abs(gain))
