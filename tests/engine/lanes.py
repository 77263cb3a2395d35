"""Which of the compiled loops decide while a test runs, whatever ran in its process before."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from types import ModuleType

from scheduling.engine.fast import fast_lane
from scheduling.engine.preemption import row_program

_ALL = (fast_lane, row_program)


@contextmanager
def only(*loops: ModuleType) -> Iterator[None]:
    """Turn on these compiled loops and no other; afterwards let be on what was on before.

    A process that once ran a scheduler keeps all loops on, so a test that asks which one decides
    must say for each whether it is on.
    """
    before = [loop for loop in _ALL if loop.enabled()]
    try:
        _turn_on(loops)
        yield
    finally:
        _turn_on(before)


def _turn_on(loops: Sequence[ModuleType]) -> None:
    for loop in _ALL:
        if loop in loops:
            assert loop.warm()
        else:
            loop._on = False
            if loop is row_program:
                row_program._examine = row_program.examine
