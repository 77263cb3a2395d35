"""Files that have no end, grow when they are unpacked, or are nested without sense."""

import gzip
import io
import json
import struct
import zlib
from datetime import UTC, datetime
from pathlib import Path

import msgspec
import pytest

from clusterstate.database import archive
from scheduling.management import files
from scheduling.scenarios import trace_files, traces

SMALL = 1 << 16


def piece(kind: bytes, payload: bytes) -> bytes:
    packed = zlib.compress(payload)
    return struct.pack(">cII", kind, len(packed), zlib.crc32(packed)) + packed


def head(**fields: object) -> bytes:
    about = {
        "version": "1", "taken_at": "", "history": "", "mark": 1, "migrations": [],
        "tables": {"pod": ["id"]}, **fields,
    }  # fmt: skip
    return archive.MAGIC + piece(b"H", msgspec.json.encode(about))


def test_a_piece_of_a_backup_that_unpacks_without_an_end_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(archive, "_LARGEST_BYTES", SMALL)
    data = head() + piece(b"T", b'"pod"') + piece(b"D", b"\0" * 100 * SMALL)
    _, rows = next(archive.Reader(io.BytesIO(data)).tables())
    with pytest.raises(archive.Damaged, match="too large when unpacked"):
        next(rows)


@pytest.mark.parametrize(
    "moments",
    [
        ["0001-01-01T00:00:00Z"],
        ["9999-12-31T23:00:00Z"],
        ["2026-01-01T00:00:00"],
        [datetime(2026, 1, 1, tzinfo=UTC).isoformat()] * 20_001,
    ],
)
def test_partitions_that_cannot_be_are_refused(moments: list[str]) -> None:
    with pytest.raises(archive.Damaged, match="partitions that cannot exist"):
        archive.Reader(io.BytesIO(head(decided_at=moments)))


def test_a_device_is_not_read_for_ever(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_MAX_BYTES", SMALL)
    with pytest.raises(files.FileError, match="/dev/zero: is larger than 65536 bytes"):
        list(files.documents("/dev/zero"))


def test_a_trace_that_unpacks_without_an_end_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(trace_files, "_MOST_BYTES", SMALL)
    bomb = tmp_path / "nodes.csv.gz"
    bomb.write_bytes(gzip.compress(b"sn" + b"\n" * 100 * SMALL))
    with pytest.raises(trace_files.TraceError, match="has more than 65536 bytes when unpacked"):
        traces.read("openb", [bomb, bomb])


def test_lists_in_lists_are_read_however_deep(tmp_path: Path) -> None:
    deep = tmp_path / "deep.json"
    deep.write_text("[" * 900 + json.dumps({"kind": "Node"}) + "]" * 900)
    assert list(files.single(files.documents(str(deep)))) == [{"kind": "Node"}]
