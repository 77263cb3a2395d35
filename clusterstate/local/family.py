"""Processes that are forked from the supervisor, which has imported their common modules.

Ten interpreters that each import the same two thousand modules take 900 MB, and 20 s of a core at
every start. A forked process shares the pages of its parent's modules, of NumPy and of the compiled
loops with all others, and works at once. It behaves like ``python ARGUMENTS``: it reads the
settings again, by its own environment, and runs the same module. ``ps`` and ``/proc`` show its own
arguments and environment.

The parent must have a single thread, no session of the database and no connection to Redis. Work of
the parent that needs these runs in a process of its own (``aside``). The collector freezes the
parent's heap, since scanning it would copy every page. Packages of plugins are not shared: a forked
process reads their code from the disk as it is then.
"""

import contextlib
import ctypes
import gc
import importlib
import json
import mmap
import os
import runpy
import signal
import struct
import subprocess
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from django.conf import settings
from django.core.management.base import CommandError
from django.db import DatabaseError, connections

from clusterstate.processes import collector

_LIBC = ctypes.CDLL(None, use_errno=True)
_PR_SET_MM, _PR_SET_MM_MAP = 35, 14
_M_ARENA_MAX: Final = -8
_ARENAS: Final = 2
"""Limits malloc's arenas: otherwise each thread takes 64 MB of address space."""
_LOOK_SECONDS: Final = 0.01


class ForkedProcess:
    """A forked process, with the part of ``subprocess.Popen`` that the supervisor uses."""

    def __init__(self, pid: int) -> None:
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        """Return the exit code, negative for a signal; ``None`` while the process runs."""
        if self.returncode is None:
            pid, status = os.waitpid(self.pid, os.WNOHANG)
            if pid:
                self.returncode = os.waitstatus_to_exitcode(status)
        return self.returncode

    def wait(self, timeout: float) -> int:
        """Return the exit code.

        Raises:
            subprocess.TimeoutExpired: the process has not ended in time.
        """
        end = time.monotonic() + timeout
        while (code := self.poll()) is None:
            if time.monotonic() > end:
                raise subprocess.TimeoutExpired("", timeout)
            time.sleep(_LOOK_SECONDS)
        return code

    def send_signal(self, number: int) -> None:
        """Send a signal unless the process has ended."""
        if self.poll() is None:
            os.kill(self.pid, number)


Process = subprocess.Popen[bytes] | ForkedProcess


def share(modules: Iterable[str], calls: Iterable[str]) -> None:
    """Import the modules that all processes share, call functions, and freeze the heap.

    A function is named as ``module:function``.
    """
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # more are threads of this process
    for module in modules:
        importlib.import_module(module)
    for call in calls:
        module, _, function = call.partition(":")
        getattr(importlib.import_module(module), function)()
    gc.collect()
    gc.freeze()
    _unmap_files()


def _unmap_files() -> None:
    """Return pages of libraries to the kernel: LLVM's start alone reads tens of megabytes.

    The kernel reads a page again at its next use.
    """
    with contextlib.suppress(OSError), open("/proc/self/smaps") as file:
        for begin, end in _unchanged_files(file):
            size = ctypes.c_size_t(end - begin)
            _LIBC.madvise(ctypes.c_void_p(begin), size, mmap.MADV_DONTNEED)


def _unchanged_files(smaps: Iterable[str]) -> Iterator[tuple[int, int]]:
    """Yield the address ranges of mapped files that are unchanged in memory.

    Linking changes pages, and changed ones may be in swap space. ``smaps``: the lines of that file
    in ``/proc``.
    """
    begin = end = 0
    for line in smaps:
        first, *rest = line.split()
        if "-" in first:
            begin, end = (int(one, 16) for one in first.split("-"))
            if not rest[-1].startswith("/") or rest[0] not in ("r--p", "r-xp"):
                begin = end
        elif first == "Anonymous:" and rest[0] != "0":
            begin = end
        elif first == "Swap:" and rest[0] == "0" and begin < end:
            yield begin, end


def can_fork() -> bool:
    """Return whether this process has a single thread: locks of other threads would stay locked."""
    return len(os.listdir("/proc/self/task")) == 1


def fork(
    arguments: Sequence[str],
    *,
    environment: Mapping[str, str],
    output: int,
    forget: Callable[[], object],
    prepare: Callable[[], object],
) -> ForkedProcess:
    """Start ``python ARGUMENTS`` (``-m`` and a module's arguments) as a forked process.

    Args:
        arguments: of the interpreter.
        environment: all of it.
        output: becomes standard output and error.
        forget: called in the child; closes descriptors that only the parent uses.
        prepare: called in the child in its own session, as a ``preexec_fn``.
    """
    return _forked(lambda: _become(arguments, environment, output, forget, prepare))


def aside(do: Callable[[], Any]) -> Any:
    """Call ``do`` in a forked process that ends afterwards; return its result, which is JSON.

    Raises:
        CommandError: it raised that, or its failure was printed.
        DatabaseError: it raised one.
    """
    read, write = os.pipe()

    def work() -> None:
        result: dict[str, Any] = {"failed": "see above"}
        try:
            result = {"found": do()}
        except CommandError as error:
            result = {"failed": str(error)}
        except DatabaseError as error:
            result = {"database": str(error)}
        finally:
            os.write(write, json.dumps(result).encode())

    process = _forked(work)
    os.close(write)
    with open(read, "rb") as file:
        answer = file.read()
    while process.poll() is None:
        time.sleep(_LOOK_SECONDS)
    result = json.loads(answer or '{"failed": "it was ended"}')
    if "database" in result:
        raise DatabaseError(result["database"])
    if "failed" in result:
        raise CommandError(result["failed"])
    return result["found"]


def _forked(work: Callable[[], object]) -> ForkedProcess:
    """Fork a child that calls ``work`` and ends, whatever it raises."""
    sys.stdout.flush()
    sys.stderr.flush()
    pid = os.fork()
    if pid:
        return ForkedProcess(pid)
    code: Any = 1
    try:
        work()
        code = 0
    except SystemExit as end:
        code = end.code or 0
        if not isinstance(code, int):
            sys.stderr.write(f"{code}\n")
            code = 1
    except BaseException:  # noqa: BLE001  # the parent's code must not go on here
        traceback.print_exc()
    finally:
        with contextlib.suppress(Exception):
            sys.stdout.flush()
            sys.stderr.flush()
        os._exit(code)


def _become(
    arguments: Sequence[str],
    environment: Mapping[str, str],
    output: int,
    forget: Callable[[], object],
    prepare: Callable[[], object],
) -> None:
    """Become the process of these arguments, as after ``exec``, and run its module."""
    signal.set_wakeup_fd(-1)
    for number in (signal.SIGTERM, signal.SIGHUP, signal.SIGUSR1, signal.SIGCHLD):
        signal.signal(number, signal.SIG_DFL)
    signal.signal(signal.SIGINT, signal.default_int_handler)
    os.setsid()
    prepare()
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    os.dup2(output, 1)
    os.dup2(output, 2)
    for one in (nothing, output):
        os.close(one)
    forget()
    os.environ.clear()
    os.environ.update(environment)
    _show(["python", *arguments], [f"{name}={value}" for name, value in environment.items()])
    _LIBC.mallopt(_M_ARENA_MAX, _ARENAS)
    collector.inherited()
    _read_settings()
    _, module, *rest = arguments
    sys.argv = [module, *rest]
    runpy.run_module(module, run_name="__main__", alter_sys=True)


def _read_settings() -> None:
    """Read the settings again, since the child's environment differs from the parent's."""
    from django.utils.functional import empty
    from django.utils.log import configure_logging

    del sys.modules["clusterstate.settings"]
    before = vars(settings._wrapped)  # type: ignore[misc]
    settings._wrapped = empty
    for name, value in before.items():
        if name.isupper() and not hasattr(settings, name):  # an application's own default
            setattr(settings, name, value)
    connections.__dict__.pop("settings", None)
    connections._settings = None  # type: ignore[attr-defined]
    for connection in connections.all(initialized_only=True):
        del connections[connection.alias]
    configure_logging(settings.LOGGING_CONFIG, settings.LOGGING)


_shown: list[Any] = []
"""The arguments and variables in ``/proc``: the kernel reads this memory, so it must stay."""


def _show(arguments: Sequence[str], variables: Sequence[str]) -> None:
    """Make ``/proc`` show these arguments and variables; without effect on some kernels.

    Source: the structure ``prctl_mm_map`` of prctl(2). All other addresses stay as they are.
    """
    fields = open("/proc/self/stat").read().rpartition(")")[2].split()  # noqa: SIM115
    now = {number: int(fields[number - 3]) for number in (*range(26, 29), *range(45, 52))}
    first = b"".join(one.encode(errors="surrogateescape") + b"\0" for one in arguments)
    then = b"".join(one.encode(errors="surrogateescape") + b"\0" for one in variables)
    text = ctypes.create_string_buffer(first + then, len(first + then))
    begin = ctypes.addressof(text)
    middle, end = begin + len(first), begin + len(first + then)
    _LIBC.sbrk.restype = ctypes.c_void_p
    code, data, heap = (now[26], now[27]), (now[45], now[46]), (now[47], _LIBC.sbrk(0))
    places = (*code, *data, *heap, now[28], begin, middle, middle, end)
    packed = struct.pack("12QIi", *places, 0, 0, -1)
    buffer = ctypes.create_string_buffer(packed, len(packed))
    size = ctypes.c_ulong(len(packed))
    none = ctypes.c_ulong(0)
    if not _LIBC.prctl(_PR_SET_MM, _PR_SET_MM_MAP, ctypes.byref(buffer), size, none):
        _shown[:] = [text]
