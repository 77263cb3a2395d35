"""Reads the files of public traces: text or gzip, tables, and rows that know file and line."""

import csv
import gzip
import math
import zlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any, Final

import msgspec

_MOST_BYTES: Final = 1 << 30


class TraceError(ValueError):
    """A file is not a valid trace; the message names the file and the problem."""


class Row(dict[str, Any]):
    """A row of a table, or a JSON object, with its file and line for errors."""

    def __init__(self, values: Mapping[str, Any], path: Path, line: int) -> None:
        super().__init__(values)
        self.path, self.line = path, line

    def error(self, text: str) -> TraceError:
        """Return an error about this row, with its file and line."""
        return TraceError(f"{self.path}: line {self.line}: {text}")

    def number(self, column: str) -> float | None:
        """Return the number in a column, ``None`` if it is empty or NaN.

        Raises:
            TraceError: the text is not a number, or out of range.
        """
        text = self.get(column)
        if text is None or text == "":
            return None
        try:
            found = float(text)
        except (TypeError, ValueError) as error:
            raise self.error(f"{column} is not a number: {text!r}") from error
        if math.isnan(found):
            return None
        if not abs(found) < 2**64:
            raise self.error(f"{column} is out of range: {text}")
        return found

    def count(self, column: str, *, none: int, most: int) -> int:
        """Return the whole number in a column, from 0 to ``most``; ``none`` if it is empty.

        Raises:
            TraceError: see ``number``.
        """
        found = self.number(column)
        count = none if found is None else int(found)
        if not 0 <= count <= most:
            raise self.error(f"{column} is out of range: {self[column]}")
        return count


def text_of(path: Path) -> str:
    """Return a file's text, unpacked if it is gzipped.

    Raises:
        TraceError: the file cannot be read, is not text, or is too large.
    """
    try:
        with path.open("rb") as file:
            packed = file.peek(2)[:2] == b"\x1f\x8b"  # a pipe cannot be read from its start again
            data = (gzip.GzipFile(fileobj=file) if packed else file).read(_MOST_BYTES + 1)
        if len(data) > _MOST_BYTES:
            raise TraceError(f"{path}: has more than {_MOST_BYTES} bytes when unpacked")
        return data.decode()
    except (OSError, EOFError, UnicodeDecodeError, zlib.error) as error:
        raise TraceError(f"{path}: {error}") from error


def table(path: Path, columns: Sequence[str], needed: int) -> Iterator[Row]:
    """Yield the rows of a CSV file without a header, or with the published one.

    Raises:
        TraceError: a line has fewer than ``needed`` columns.
    """
    try:
        for line, values in enumerate(csv.reader(text_of(path).splitlines()), 1):
            if not values or (line == 1 and values[0] == columns[0]):
                continue
            row = Row(dict(zip(columns, [*values, *[""] * len(columns)], strict=False)), path, line)
            if len(values) < needed:
                raise row.error(f"{len(values)} columns, where {', '.join(columns)} belong")
            yield row
    except csv.Error as error:
        raise TraceError(f"{path}: {error}") from error


def named_columns(path: Path, columns: Sequence[str]) -> list[Row]:
    """Return the rows of a CSV file with a header that has at least these columns.

    Raises:
        TraceError: see ``text_of``; or columns or values are missing.
    """
    try:
        reader = csv.DictReader(text_of(path).splitlines())
        if missing := set(columns) - set(reader.fieldnames or ()):
            raise TraceError(f"{path}: no column {', '.join(sorted(missing))}")
        rows = [Row(values, path, line) for line, values in enumerate(reader, 2)]
    except csv.Error as error:
        raise TraceError(f"{path}: {error}") from error
    for row in rows:
        lacking = [column for column in columns if row[column] is None]
        if lacking or not row[columns[0]]:
            raise row.error(f"no {', '.join(lacking) or columns[0]}")
    return rows


def json_lines(path: Path) -> Iterator[Row]:
    """Yield the JSON objects of a file, one on each line.

    Raises:
        TraceError: see ``text_of``; or a line is not a JSON object.
    """
    for line, text in enumerate(text_of(path).splitlines(), 1):
        if not text.strip():
            continue
        try:
            yield Row(msgspec.json.decode(text, type=dict[str, Any]), path, line)
        except msgspec.ValidationError as error:
            raise TraceError(f"{path}: line {line}: not a JSON object") from error
        except msgspec.DecodeError as error:
            raise TraceError(f"{path}: line {line}: {error}") from error
