r"""The format of a backup file: a header, tables in pieces, an end; each piece with a checksum.

::

    STOWAGE BACKUP 1\n
    H  header: version, migrations, time, history, tables with their columns
    T  a table begins: its name          D  rows, as COPY writes them      E  it ends: rows
    S  sequences and their values
    Z  the end: SHA-256 of everything before it

A piece is its kind (one byte), the length and the CRC-32 of the payload (unsigned, 32 bits, big
endian), and the payload, compressed by zlib; all but D are JSON. The file is written and read from
front to end in bounded memory. A file cut off has no end, and in a changed one a checksum differs:
a restore finds both before it writes anything.
"""

import hashlib
import struct
import zlib
from collections.abc import Iterator
from datetime import datetime
from typing import IO, Any

import msgspec

MAGIC = b"STOWAGE BACKUP 1\n"
_MAGIC_OF_ANY = b"STOWAGE BACKUP "
_HEAD = struct.Struct(">cII")
_PIECE_BYTES = 1 << 20
_LARGEST_BYTES = 1 << 28
"""The largest size of a piece, compressed or not."""
_LEVEL = 3
_MOST_PARTITIONS = 20_000
"""As many as in ten years of decisions and more of the past."""
_FIRST_YEAR, _LAST_YEAR = 2000, 9000


class Damaged(Exception):
    """The file is no backup, or an incomplete one; the message is a sentence."""


class Head(msgspec.Struct, frozen=True, kw_only=True):
    """The header of a backup.

    ``tables`` maps names to columns, in the order of the file. ``decided_at`` has one time in each
    partition of the decisions, ``packed_at`` in each of the past: a restore creates these
    partitions before it loads rows.
    """

    version: str
    taken_at: str
    history: str
    mark: int
    migrations: list[str]
    tables: dict[str, list[str]]
    decided_at: list[datetime] = []
    packed_at: list[datetime] = []


class Writer:
    """Writes a backup to a file that is open for writing."""

    def __init__(self, file: IO[bytes], head: Head) -> None:
        self._file = file
        self._sum = hashlib.sha256()
        self._rows = bytearray()
        self.bytes = 0
        self._put(MAGIC)
        self._piece(b"H", msgspec.json.encode(head))

    def begin(self, table: str) -> None:
        """Write the beginning of a table."""
        self._piece(b"T", msgspec.json.encode(table))

    def rows(self, data: bytes | bytearray | memoryview) -> None:
        """Write rows of the table, as COPY sends them."""
        self._rows += data
        if len(self._rows) >= _PIECE_BYTES:
            self._flush()

    def end(self, rows: int) -> None:
        """Write the end of the table, with its number of rows."""
        self._flush()
        self._piece(b"E", msgspec.json.encode(rows))

    def close(self, sequences: dict[str, int]) -> None:
        """Write the last values of all sequences, and the end of the file."""
        self._piece(b"S", msgspec.json.encode(sequences))
        self._piece(b"Z", msgspec.json.encode(self._sum.hexdigest()))
        self._file.flush()

    def _flush(self) -> None:
        if self._rows:
            self._piece(b"D", bytes(self._rows))
            self._rows.clear()

    def _piece(self, kind: bytes, payload: bytes) -> None:
        packed = zlib.compress(payload, _LEVEL)
        self._put(_HEAD.pack(kind, len(packed), zlib.crc32(packed)) + packed)

    def _put(self, data: bytes) -> None:
        self._sum.update(data)
        self._file.write(data)
        self.bytes += len(data)


class Reader:
    """Reads a backup from a file that is open for reading, at its beginning."""

    def __init__(self, file: IO[bytes]) -> None:
        """Read the header.

        Raises:
            Damaged: the file is no backup, or of another format.
        """
        self._file = file
        self._sum = hashlib.sha256()
        start = file.read(len(MAGIC))
        self._sum.update(start)
        if start != MAGIC:
            if start.startswith(_MAGIC_OF_ANY):
                raise Damaged(
                    "The backup has a newer format: restore it with the version it names."
                )
            raise Damaged("The file is no backup of Stowage.")
        kind, payload = self._piece()
        if kind != b"H":
            raise Damaged("The backup is damaged: its header is missing.")
        self.head: Head = _decoded(payload, Head)
        moments = (*self.head.decided_at, *self.head.packed_at)
        if len(moments) > _MOST_PARTITIONS or any(
            one.tzinfo is None or not _FIRST_YEAR <= one.year <= _LAST_YEAR for one in moments
        ):
            raise Damaged("The backup is damaged: its header names partitions that cannot exist.")
        self.sequences: dict[str, int] = {}
        """The sequences' values; set after all tables were read."""

    def tables(self) -> Iterator[tuple[str, Iterator[bytes]]]:
        """Yield each table's name and its rows in pieces; read the rows before the next table.

        Raises:
            Damaged: while reading, when a checksum is wrong or a piece is missing.
        """
        found: list[str] = []
        while True:
            kind, payload = self._piece()
            if kind != b"T":
                break
            name = _decoded(payload, str)
            found.append(name)
            yield name, self._rows(name)
        if kind != b"S" or found != list(self.head.tables):
            raise Damaged("The backup is damaged: tables that its header names are missing.")
        self.sequences = _decoded(payload, dict[str, int])
        expected = self._sum.hexdigest()
        kind, payload = self._piece()
        if kind != b"Z" or _decoded(payload, str) != expected or self._file.read(1):
            raise Damaged("The backup is damaged or incomplete: its checksum does not match.")

    def _rows(self, name: str) -> Iterator[bytes]:
        lines = 0
        while True:
            kind, payload = self._piece()
            if kind == b"D":
                lines += payload.count(b"\n")  # in COPY's text a line's end is never data
                yield payload
            elif kind == b"E" and _decoded(payload, int) == lines:
                return
            else:
                raise Damaged(f"The backup's table {name} does not have all of its rows.")

    def _piece(self) -> tuple[bytes, bytes]:
        kind, length, crc = _HEAD.unpack(self._take(_HEAD.size))
        if length > _LARGEST_BYTES:
            raise Damaged("The backup is damaged: a block has an impossible length.")
        packed = self._take(length)
        if zlib.crc32(packed) != crc:
            raise Damaged("The backup is damaged: a block does not match its checksum.")
        unpacking = zlib.decompressobj()
        try:
            payload = unpacking.decompress(packed, _LARGEST_BYTES)
        except zlib.error as error:
            raise Damaged(f"The backup is damaged: {error}.") from error
        if not unpacking.eof:  # a megabyte of nothing but zeros packs into a kilobyte
            raise Damaged("The backup is damaged: a block is cut off, or too large when unpacked.")
        return kind, payload

    def _take(self, count: int) -> bytes:
        data = self._file.read(count)
        if len(data) != count:
            raise Damaged("The backup is cut off.")
        self._sum.update(data)
        return data


def _decoded(payload: bytes, kind: Any) -> Any:
    try:
        return msgspec.json.decode(payload, type=kind)
    except msgspec.MsgspecError as error:
        raise Damaged(f"The backup is damaged: {error}.") from error
