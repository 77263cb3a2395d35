"""Compiling a loop, and keeping its code on disk until any source of this package changes.

Numba on its own looks at the file of the loop alone, and would go on with old code after a change
to a function that the loop calls from another file. Whatever loops call, constants included, must
stand in this package or in ``framework.formulas``. Nor does Numba open what it kept without reading
all of it, types by their names included, and it fails where an upgrade took such a name away: so
the version that it looks at first says of which sources the code is.
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
    """Return a digest of all sources of this package, and of the formulas."""
    digest = hashlib.sha256()
    for path in (*sorted(Path(__file__).parent.glob("*.py")), Path(formulas.__file__)):
        digest.update(path.name.encode() + b"\0" + path.read_bytes())
    return digest.digest()


class PackageLocator:
    """Finds Numba's usual cache directory; the code's stamp is the digest of the whole package."""

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
    """Compile a function that Python calls; keep its code on disk, with that of all it calls."""
    config: Any = numba.config
    before = config.CACHE_LOCATOR_CLASSES
    config.CACHE_LOCATOR_CLASSES = f"{__name__}.{PackageLocator.__name__}"
    try:
        compiled_: Any = _compiled(function, cache=True, no_cfunc_wrapper=True)
    finally:
        config.CACHE_LOCATOR_CLASSES = before
    cache = getattr(compiled_, "_cache", None)  # none where Numba is told to compile nothing
    if cache is not None:
        cache._cache_file._version += f" of {sources().hex()}"
    compiled: Function = compiled_
    return compiled


def is_kept(loop: Any) -> bool:
    """Return whether a loop needs no compiling: its code is on disk, or Numba is switched off."""
    cache = getattr(loop, "_cache", None)  # none where Numba is told to compile nothing
    return cache is None or bool(cache._cache_file._load_index())


@contextmanager
def one_at_a_time(loop: Any) -> Iterator[None]:
    """Let one process of this machine compile a loop, and the others wait and load its code.

    A service starts several processes that need the same loops: without this each of them would
    compile for a minute on a new machine. Where the code is on disk nobody waits, and where no file
    can be written each process compiles for itself.
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
    except (AttributeError, OSError):  # Numba may be told to compile nothing, and keep nothing
        yield
        return
    with file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield


def inner(function: Function) -> Function:
    """Compile a function that only other compiled functions call."""
    return _compiled(function, no_cpython_wrapper=True, no_cfunc_wrapper=True)


def inlined(function: Function) -> Function:
    """Inline a function that is called for every row: passing it arrays would cost more than it."""
    return _compiled(function, inline="always")


def _compiled(function: Function, **options: Any) -> Function:
    """Compile a function without reference counts of arrays: ``_nrt``.

    The arguments of a loop live as long as it runs, and it allocates no array. Counting would need
    two calls wherever an array or a slice gets a name, and LLVM spends half of its time to find out
    that most of them cancel out.
    """
    njit: Any = numba.njit  # its types do not know all options
    compiled: Function = njit(nogil=True, error_model="numpy", _nrt=False, **options)(function)
    return compiled
