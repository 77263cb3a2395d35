"""Python's garbage collector in processes that live long and make many small objects."""

import ctypes
import gc
import os
from typing import Any, Final

MUCH_BYTES: Final = 32 << 20
"""Freed memory of this size is worth the milliseconds of returning it."""


def seldom() -> None:
    """Let the garbage collector run rarely. Call it as soon as a process begins.

    Nearly all objects made while modules are imported stay alive; scanning them again and again
    takes a sixth of the time of a start.
    """
    gc.set_threshold(20_000, 20, 50)


_shared: dict[int, int] = {}
"""How many objects were frozen when this process was forked, by its pid."""
_MUCH_FROZEN: Final = 200_000


def inherited() -> None:
    """Note that this process was forked from one with a frozen heap.

    Both share memory pages until one writes to them, and the collector writes to every object that
    it scans. So ``calm`` leaves the parent's frozen objects alone, unless this process has frozen
    many itself, some of which may have become garbage.
    """
    _shared[os.getpid()] = gc.get_freeze_count()


def calm() -> None:
    """Freeze all live objects (``gc.freeze``) and raise the thresholds of the garbage collector.

    By default Python scans every object each time a few thousand new ones have survived: tens of
    milliseconds in a process with a cluster in memory, and half of the time of one that decides
    about thousands of pods. Call this after large loads, and again when the loaded data is
    replaced. Takes one full collection.
    """
    shared = _shared.get(os.getpid())
    if shared is None or gc.get_freeze_count() - shared > _MUCH_FROZEN:
        gc.unfreeze()
    gc.collect()
    gc.freeze()
    seldom()


class _Figures(ctypes.Structure):
    """glibc's ``struct mallinfo2``."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena", "ordblks", "smblks", "hblks", "hblkhd",
            "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost",
        )
    ]  # fmt: skip


def _allocator() -> tuple[Any, Any]:
    """Return glibc's ``mallinfo2`` and ``malloc_trim``, None if the C library has neither."""
    library = ctypes.CDLL(None)
    try:
        figures, trim = library.mallinfo2, library.malloc_trim
    except AttributeError:
        return None, None
    figures.restype = _Figures
    trim.argtypes = [ctypes.c_size_t]
    return figures, trim


_figures, _trim = _allocator()


def give_back() -> int:
    """Return freed memory to the system if it is much; return how many bytes were free.

    The C library keeps memory after a burst: a process that answered a few lists of 5,000 pods at
    once was a hundred megabytes larger for ever. Takes milliseconds, in which other threads that
    allocate wait, so call it when the process is idle. Runs without the GIL.
    """
    if _figures is None:
        return 0
    free: int = _figures().fordblks
    if free >= MUCH_BYTES:
        _trim(0)
    return free
