"""Compiles a loop, and caches its machine code on disk until any source of this package changes.

Numba compares only the file of the loop itself, and would use old code after a change to a function
that the loop calls from another file. So everything that loops call, constants included, must be in
this package or in ``framework.formulas``. To check a cached file Numba unpickles all of it, which
fails when an upgrade of Numba removed a type that is named there. So the digest of the sources is
part of the version string, which Numba compares before that.
"""

import fcntl
import hashlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any, TypeVar

import numba
from numba.core.caching import CacheImpl

from scheduling.framework import formulas

Function = TypeVar("Function", bound=Callable[..., Any])


@cache
def sources() -> bytes:
    """Return a digest of all source files of this package and of ``framework.formulas``."""
    digest = hashlib.sha256()
    for path in (*sorted(Path(__file__).parent.glob("*.py")), Path(formulas.__file__)):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.digest()


class PackageLocator:
    """Makes Numba compare the digest of the whole package, in Numba's usual cache directory."""

    @classmethod
    def from_function(cls, function: Callable[..., Any], file: str) -> Any:
        """Return Numba's locator for a function of this package, ``None`` if no directory fits."""
        kinds: Any = CacheImpl._locator_classes
        for kind in kinds:
            locator = kind.from_function(function, file)
            if locator is not None:
                locator.get_source_stamp = sources
                return locator
        return None


def outer(function: Function) -> Function:
    """Compile a function that Python calls; cache the code of it and of all it calls on disk."""
    config: Any = numba.config
    before = config.CACHE_LOCATOR_CLASSES
    config.CACHE_LOCATOR_CLASSES = f"{__name__}.{PackageLocator.__name__}"
    try:
        compiled_: Any = _compiled(function, cache=True, no_cfunc_wrapper=True)
    finally:
        config.CACHE_LOCATOR_CLASSES = before
    cache = getattr(compiled_, "_cache", None)  # missing with NUMBA_DISABLE_JIT
    if cache is not None:
        cache._cache_file._version += f" of {sources().hex()}"
    compiled: Function = compiled_
    return compiled


def is_kept(loop: Any) -> bool:
    """Return whether a loop's code is on disk, or Numba is switched off (nothing to compile)."""
    cache = getattr(loop, "_cache", None)  # missing with NUMBA_DISABLE_JIT
    return cache is None or bool(cache._cache_file._load_index())


@contextmanager
def one_at_a_time(loop: Any) -> Iterator[None]:
    """Let one process of this machine compile a loop; others wait here and then load its code.

    A service starts several processes that need the same loops: without this each of them would
    compile for a minute on a new machine. If the code is on disk no process waits; if no file can
    be written each process compiles for itself.
    """
    if is_kept(loop):
        yield
        return
    with alone(loop, "compiling.lock"):
        yield


@contextmanager
def alone(loop: Any, name: str) -> Iterator[None]:
    """Hold the lock file ``name`` in a loop's cache directory; no lock if it is not writable."""
    try:
        folder = Path(loop._cache.cache_path)
        folder.mkdir(parents=True, exist_ok=True)
        file = (folder / name).open("w")
    except (AttributeError, OSError):  # Numba is switched off, or its cache is
        yield
        return
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def inner(function: Function) -> Function:
    """Compile a function that only other compiled functions call."""
    return _compiled(function, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def inlined(function: Function) -> Function:
    """Inline a function that runs for every row; passing it arrays would cost more than it does."""
    return _compiled(function, inline="always")


def _compiled(function: Function, **options: Any) -> Function:
    """Compile a function without reference counts of arrays (``_nrt=False``).

    The arguments of a loop live while it runs, and it allocates no array. Counting would need two
    calls wherever an array or a slice gets a name, and LLVM spends half of its time to find out
    that most of them cancel out.
    """
    njit: Any = numba.njit  # the type stubs lack some options
    compiled: Function = njit(nogil=True, error_model="numpy", _nrt=False, **options)(function)
    return compiled
