"""Format and output of log lines. Logging never raises, and never blocks for long.

The text form is `TIME LEVEL LOGGER EVENT key=value ...`, with exceptions below it, indented.
Unprintable characters are escaped: texts come from clients, and a line break or a terminal's
command in one of them must not look like another log line, or act on the reader's terminal.

A line that cannot be written (the disk is full, the pipe is full because its reader was stopped,
the terminal is gone, a field cannot be formatted) is dropped and counted; the next line that can be
written has the number of lost ones. A process must not end, fail or stop because of its log.
"""

import contextlib
import errno
import logging
import os
import select
import sys
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TextIO

import structlog
from structlog.processors import KeyValueRenderer
from structlog.typing import EventDict, WrappedLogger

from clusterstate.telemetry import blanking

_FIELDS = KeyValueRenderer(sort_keys=True, repr_native_str=False)
_PATIENCE_SECONDS = 0.1
_AT_ONCE = select.PIPE_BUF
"""A writable pipe takes this many bytes without blocking."""


def render_text(logger: WrappedLogger, name: str, event: EventDict) -> str:
    """Return one line for a person, and below it the traceback, if there is one, indented."""
    exception = event.pop("exception", "")
    head = [str(event.pop(key, "-")) for key in ("timestamp", "level", "logger", "event")]
    fields = _FIELDS(logger, name, event)
    line = " ".join([head[0], f"{head[1]:<7}", *head[2:], *([str(fields)] if fields else [])])
    below = [f"  {printable(one)}" for one in str(exception).split("\n")] if exception else []
    return "\n".join([printable(line), *below])


def blanked(logger: WrappedLogger, name: str, line: str) -> str:
    """Return a finished line, with tokens and passwords blanked."""
    return blanking.text(line)


def printable(text: str) -> str:
    """Return a text with unprintable characters escaped."""
    if text.isprintable():
        return text
    return "".join(
        one if one.isprintable() else one.encode("unicode_escape").decode() for one in text
    )


class Outlet:
    """Writes lines to a descriptor; drops lines while that fails, and logs their number later."""

    def __init__(self, descriptor: Callable[[], int]) -> None:
        """Write to the descriptor that ``descriptor`` returns; it may raise if there is none."""
        self._descriptor = descriptor
        self._lock = threading.RLock()  # a signal's handler may write while a line is written
        self.dropped = 0
        self.reason = ""

    def write(self, line: str) -> bool:
        """Write the line and a line break. Return whether all of it was written."""
        with self._lock:
            try:
                descriptor = self._descriptor()
                if self.dropped:
                    notice = f"{self.dropped} log lines were not written: {self.reason}\n"
                    self._put(descriptor, notice.encode())
                    self.dropped = 0
                self._put(descriptor, f"{line}\n".encode(errors="backslashreplace"))
            except (OSError, ValueError) as error:
                self.dropped += 1
                self.reason = getattr(error, "strerror", None) or str(error)
                return False
            return True

    def _put(self, descriptor: int, data: bytes) -> None:
        """Write all the data, without blocking. Raises OSError."""
        patience = 0.0 if self.dropped else _PATIENCE_SECONDS
        for start in range(0, len(data), _AT_ONCE):
            poll = select.poll()
            poll.register(descriptor, select.POLLOUT)
            if not poll.poll(patience * 1000):
                raise BlockingIOError(errno.EAGAIN, "nobody reads them")
            piece = data[start : start + _AT_ONCE]
            while piece:
                piece = piece[os.write(descriptor, piece) :]


def outlet_of(stream: TextIO | None) -> Outlet:
    """Return an outlet to a stream's descriptor; without a descriptor it drops all lines."""

    def descriptor() -> int:
        if stream is None:
            raise OSError(errno.EBADF, "there is no output")
        return stream.fileno()

    return Outlet(descriptor)


class LogFile:
    """A file of lines, limited in size; the older half of a long run is in NAME.1.

    If the file cannot be opened, each further line tries again. Only its owner may read it.
    """

    def __init__(self, path: Path, *, largest: int) -> None:
        """Open the file; ``largest`` is in bytes. Never raises."""
        self._path = path
        self._largest = largest
        self._file = -1
        self._outlet = Outlet(self._open)

    def write(self, line: str) -> bool:
        """Write the line. Return whether it was written."""
        done = self._outlet.write(line)
        with contextlib.suppress(OSError):
            if self._file >= 0 and os.fstat(self._file).st_size > self._largest:
                self._path.replace(self._path.with_name(f"{self._path.name}.1"))
                self.close()
        return done

    def close(self) -> None:
        """Close the file; the next line opens it again."""
        if self._file >= 0:
            os.close(self._file)
            self._file = -1

    def _open(self) -> int:
        if self._file < 0:
            flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC
            self._file = os.open(self._path, flags, 0o600)
            os.fchmod(self._file, 0o600)  # earlier versions left it to the umask
        return self._file


class StandardError(logging.Handler):
    """The log handler of every process: writes to the present ``sys.stderr`` and never fails."""

    def __init__(self) -> None:
        super().__init__()
        self._outlet = Outlet(self._descriptor)

    @staticmethod
    def _descriptor() -> int:
        return sys.stderr.fileno()

    def emit(self, record: logging.LogRecord) -> None:
        """Write the record; never raises."""
        try:
            line = self.format(record)
        except Exception as error:  # noqa: BLE001  # a field's own repr may raise anything
            text = f"- {record.levelname} {record.name} {record.msg!s:.200} [{error!r:.200}]"
            line = printable(text)
        try:
            self._descriptor()
        except (OSError, ValueError, AttributeError):
            # Closed, or replaced by something without a descriptor.
            with contextlib.suppress(Exception):
                sys.stderr.write(f"{line}\n")
        else:
            self._outlet.write(line)


class Logger(structlog.stdlib.BoundLogger):
    """structlog's logger; errors in its processors do not reach the caller."""

    def _proxy_to_logger(
        self, method_name: str, event: str | None = None, *event_args: str, **event_kw: Any
    ) -> Any:
        try:
            return super()._proxy_to_logger(method_name, event, *event_args, **event_kw)
        except Exception as error:  # noqa: BLE001  # a line is lost, not the work
            with contextlib.suppress(Exception):
                logging.getLogger(__name__).warning("%s could not be logged: %r", event, error)
        return None
