"""GPUFragmentation: places pods so that the most free GPU capacity stays usable for typical pods.

After Weng et al., "Beware of Fragmentation: Scheduling GPU-Sharing Workloads with Fragmentation
Gradient Descent" (USENIX ATC 2023). GPUs are counted in thousandths, so that pods may share one. A
node's *fragment* for a typical pod is the amount, in thousandths, of its free GPUs that the pod
cannot use:

* all of it, if the pod does not fit: too little cpu, memory or GPU, or another model;
* the rest of a partly used GPU (``free % 1000``), if that is less than the pod's share of one GPU,
  or if the pod requests whole GPUs;
* else 0.

A node's fragmentation is the mean of its fragments over the typical pods, weighted by their share
of the workload; a node scores high if the pod reduces it, or raises it least.

The paper accounts for each GPU. Kubernetes counts one amount per node, so the plugin assumes that a
node's GPUs fill one after the other: at most one is partly used. Typical pods without a GPU request
are ignored, since for them every free GPU on every node would be a fragment.

The plugin is the shipped example of one with a compiled program: it imports nothing of Stowage but
``scheduling.framework.v1``, as the packages of others do. ``tests/reference/gpu_fragmentation.py``
states the rule for people; a property test holds the compiled form equal.
"""

from collections.abc import Sequence
from functools import cache
from typing import Annotated, Any, Final

import msgspec
import numpy as np

from scheduling.framework.v1 import (
    CycleState,
    Int64,
    Mask,
    NodeTable,
    PodInfo,
    Rows,
    milli_amount,
    whole_amount,
)

NAME: Final = "GPUFragmentation"
WHOLE: Final = 1000
"""Thousandths of one GPU."""
_Positive = Annotated[int, msgspec.Meta(ge=1)]


class Task(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """A typical pod: its requests, the GPU models on which it may run (none: any), its weight."""

    gpu_milli: _Positive
    cpu: str = "0"
    memory: str = "0"
    models: tuple[str, ...] = ()
    weight: _Positive = 1


class FragmentationArgs(msgspec.Struct, frozen=True, forbid_unknown_fields=True, rename="camel"):
    """``resource``: that of GPUs, in thousandths. ``modelLabel``: the node label with the model."""

    tasks: Annotated[tuple[Task, ...], msgspec.Meta(min_length=1, max_length=1000)]
    resource: str = "stowage.dev/gpu-milli"
    model_label: str = "gpu-model"


class GPUFragmentation:
    """Scores nodes by how the pod changes their fragmentation; 50 means no change."""

    name = NAME
    Args = FragmentationArgs

    def __init__(self, args: FragmentationArgs) -> None:
        self._resources = ("cpu", "memory", args.resource)
        self._model_label = args.model_label
        self._tasks = args.tasks
        self._cpu = np.array([milli_amount(task.cpu) for task in args.tasks], np.int64)
        self._memory = np.array([whole_amount(task.memory) for task in args.tasks], np.int64)
        self._gpu = np.array([task.gpu_milli for task in args.tasks], np.int64)
        self._weight = np.array([task.weight for task in args.tasks], np.int64)
        self._allowed_on: tuple[tuple[str, ...], Mask] = ((), self._allowed(()))

    def score(self, state: CycleState, pod: PodInfo, snapshot: NodeTable, rows: Rows) -> Int64:
        """Return the score of each row, int64 (rows,), from 0 to 100."""
        columns = np.array([snapshot.resource(name) for name in self._resources], np.intp)
        free = snapshot.allocatable[np.ix_(rows, columns)]
        free -= snapshot.requested[np.ix_(rows, columns)]
        request = np.array([pod.requests.get(name, 0) for name in self._resources], np.int64)
        label = snapshot.label_column(self._model_label)
        models = tuple(label.values)
        if models != self._allowed_on[0]:
            self._allowed_on = models, self._allowed(models)
        ids = label.ids[rows].astype(np.int64)
        found: Int64 = _program().scores(
            free, request, np.where(ids < 0, len(models), ids), self._cpu, self._memory, self._gpu,
            self._weight, self._allowed_on[1],
        )  # fmt: skip
        return found

    def _allowed(self, models: Sequence[str]) -> Mask:
        """Return on which GPU models typical pods may run, bool (models + 1, pods).

        The last row is for nodes without a model label.
        """
        found = np.zeros((len(models) + 1, len(self._tasks)), np.bool_)
        for number, task in enumerate(self._tasks):
            found[:, number] = not task.models
            for line, model in enumerate(models):
                found[line, number] |= model in task.models
        return found


class _Program:
    """Computes the scores of many nodes; compiled at the first use, in half a second."""

    def __init__(self) -> None:
        import numba

        @numba.njit(inline="always")
        def fragment(
            free_cpu: int, free_memory: int, free_gpu: int, model: int, cpu: Int64, memory: Int64,
            gpu: Int64, weight: Int64, allowed: Mask,
        ) -> int:  # fmt: skip
            free_gpu = max(free_gpu, 0)
            in_part = free_gpu % WHOLE
            total = 0
            for task in range(len(gpu)):
                fits = (
                    cpu[task] <= free_cpu
                    and memory[task] <= free_memory
                    and gpu[task] <= free_gpu
                    and allowed[model, task]
                )
                if not fits:
                    total += weight[task] * free_gpu
                elif gpu[task] >= WHOLE or in_part < gpu[task]:
                    total += weight[task] * in_part
            return total

        @numba.njit
        def scores(
            free: Int64, request: Int64, model: Int64, cpu: Int64, memory: Int64, gpu: Int64,
            weight: Int64, allowed: Mask,
        ) -> Int64:  # fmt: skip
            weights = weight.sum()
            found = np.empty(len(free), np.int64)
            for row in range(len(free)):
                before = fragment(
                    free[row, 0], free[row, 1], free[row, 2], model[row], cpu, memory, gpu, weight,
                    allowed,
                )  # fmt: skip
                after = fragment(
                    free[row, 0] - request[0], free[row, 1] - request[1], free[row, 2] - request[2],
                    model[row], cpu, memory, gpu, weight, allowed,
                )  # fmt: skip
                gain = (before - after) // weights
                found[row] = 50 + 50 * gain // (WHOLE + abs(gain))
            return found

        self.scores: Any = scores


@cache
def _program() -> _Program:
    return _Program()
