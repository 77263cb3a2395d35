"""Tables as an Arrow IPC stream, which pandas, Polars, DuckDB and Spark read.

The library nanoarrow, of the Apache Arrow project, writes it: 1 MB, in the extra ``export``.
pyarrow could write Parquet as well, and is a hundred times as large.
"""

import io
from collections.abc import Sequence
from datetime import UTC, datetime, timedelta
from types import ModuleType
from typing import Any, Final, get_args

import msgspec

from clusterstate.objects.values.errors import StatusError

MEDIA_TYPE: Final = "application/vnd.apache.arrow.stream"
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MICROSECOND: Final = timedelta(microseconds=1)


class NotInstalled(StatusError):
    """The library that writes Arrow is not installed."""

    code, reason = 501, "NotImplemented"


def _library() -> ModuleType:
    try:
        import nanoarrow
        import nanoarrow.ipc
    except ImportError:
        raise NotInstalled(
            "Arrow is written by nanoarrow, which is not installed:"
            " .venv/bin/uv pip install -p .venv/bin/python 'nanoarrow>=0.9,<1'"
        ) from None
    found: ModuleType = nanoarrow
    return found


class Writer:
    """Writes rows as an Arrow stream, a batch at a time.

    ``columns`` maps names to ``int``, ``str`` or ``datetime``; any value may be ``None``.

    Raises:
        NotInstalled: nanoarrow is not installed.
    """

    def __init__(self, columns: dict[str, type]) -> None:
        self._library = library = _library()
        types = {
            int: library.int64(),
            str: library.string(),
            datetime: library.timestamp("us", "UTC"),
        }
        self._columns = columns
        self._schema = library.struct({name: types[of] for name, of in columns.items()})
        self._has_begun = False
        self._buffer = io.BytesIO()
        self._writer = library.ipc.StreamWriter.from_writable(self._buffer)

    def batch(self, rows: Sequence[Sequence[Any]]) -> bytes:
        """Return the bytes of these rows; the first call includes the stream's schema."""
        library = self._library
        children = [
            self._child(of, [row[place] for row in rows])
            for place, of in enumerate(self._columns.values())
        ]
        array = library.c_array_from_buffers(self._schema, len(rows), [None], children=children)
        self._writer.write_array(array)
        self._has_begun = True
        return self._take_bytes()

    def _child(self, of: type, values: list[Any]) -> Any:
        library = self._library
        if of is datetime:
            values = [None if one is None else (one - _EPOCH) // _MICROSECOND for one in values]
        return library.c_array(values, library.string() if of is str else library.int64())

    def end(self) -> bytes:
        """Return the end of the stream; without a batch before, a whole stream without rows."""
        head = b"" if self._has_begun else self.batch([])
        self._writer.close()
        return head + self._take_bytes()

    def _take_bytes(self) -> bytes:
        text = self._buffer.getvalue()
        self._buffer.seek(0)
        self._buffer.truncate()
        return text


def columns_of(struct: type[msgspec.Struct]) -> dict[str, type]:
    """Return the names and types of a struct's fields, as ``Writer`` takes them.

    The types are ``int``, ``str`` or ``datetime``; a field may also allow ``None``.
    """
    found = {}
    for field in msgspec.structs.fields(struct):
        types = [one for one in get_args(field.type) or (field.type,) if one is not type(None)]
        found[field.name] = types[0]
    return found
