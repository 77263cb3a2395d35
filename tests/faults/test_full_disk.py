"""A full disk: writes are refused with a sentence, reads go on, all heals when there is room."""

import contextlib
import os
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path

import psycopg
import pytest

from tests import faults
from tests.live import Service, node, pod, state_folder
from tests.waiting import until

pytestmark = faults.MARKS
PODS = "/api/v1/namespaces/default/pods"


class Disk:
    """A small file system, which ``fill`` leaves so many bytes of."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._filler = folder / "filler"

    def fill(self, leave: int) -> None:
        """Take all room but ``leave`` bytes."""
        with self._filler.open("ab", buffering=0) as file, contextlib.suppress(OSError):
            while (rest := self.free() - leave) > 0:
                file.write(b"x" * min(rest, 1 << 20))

    def free(self) -> int:
        status = os.statvfs(self.folder)
        return status.f_bavail * status.f_frsize

    def relieve(self) -> None:
        """Give the room back."""
        self._filler.unlink()


@pytest.fixture
def disk() -> Iterator[Disk]:
    with state_folder() as state:
        folder = state.parent / "disk"
        folder.mkdir()
        done = subprocess.run(
            ["mount", "-t", "tmpfs", "-o", "size=420m,mode=0711", "tmpfs", folder],
            capture_output=True, text=True, check=False,
        )  # fmt: skip
        if done.returncode:
            pytest.skip(f"a small file system cannot be mounted here: {done.stderr.strip()}")
        try:
            yield Disk(folder)
        finally:
            subprocess.run(["umount", "--lazy", folder], check=False)


def post(service: Service, name: str) -> tuple[int, str]:
    try:
        status, answer = service.request("POST", PODS, pod(name, cpu="1m"), seconds=60)
    except OSError:
        return 0, "no answer"
    return status, answer.get("message", "") if isinstance(answer, dict) else answer


def names(service: Service) -> set[str]:
    status, answer = service.request("GET", PODS)
    assert status == 200
    return {item["metadata"]["name"] for item in answer["items"]}


@pytest.mark.long
def test_writes_are_refused_reads_go_on_and_all_heals(disk: Disk) -> None:
    service = Service(disk.folder / "state")
    service.log = disk.folder.parent / "up.log"
    try:
        service.start()
        assert service.request("POST", "/api/v1/nodes", node("n", pods="500"))[0] == 201
        for number in range(3):
            assert post(service, f"before-{number}")[0] == 201

        disk.fill(leave=20 << 20)
        until(lambda: post(service, "early")[0] == 507, seconds=10, what="writes to be refused")
        status, message = post(service, "refused")
        assert status == 507
        assert re.fullmatch(
            r"nothing was written, because the disk is full: \d+ MiB are free on the disk of"
            r" the database, and the last 64 MiB are reserved",
            message,
        )
        assert {"before-0", "before-1", "before-2"} <= names(service)
        path = f"{PODS}/before-0?gracePeriodSeconds=0"
        assert service.request("DELETE", path)[0] == 200
        assert names(service) & {"before-0", "before-1", "refused"} == {"before-1"}
        disk.relieve()
        until(lambda: post(service, "after")[0] in (201, 409), seconds=10, what="writes again")

        # Not a byte for anybody: not for PostgreSQL's log, Redis's file, or the supervisor's.
        # The connection is made before, since a new one may want to write a file of its own.
        with service.database() as database:
            disk.fill(leave=0)
            with pytest.raises(psycopg.errors.DiskFull):
                database.execute(
                    "CREATE TABLE hog AS SELECT repeat('x', 500) FROM generate_series(1, 1000000)"
                )
            assert names(service)
            with pytest.raises(psycopg.OperationalError):
                database.execute(
                    "SELECT count(pg_logical_emit_message(false, 'hog', repeat('x', 8000)))"
                    " FROM generate_series(1, 100000)"
                )
        until(lambda: "PANIC" in service.log.read_text(), what="PostgreSQL to give up")
        assert post(service, "nowhere")[0] in (0, 503, 507)
        assert service.process.poll() is None
        disk.relieve()
        until(service.ready, seconds=90, what="ready again without a hand")
        until(lambda: post(service, "healed")[0] in (201, 409), seconds=30, what="writes again")
        until(
            lambda: service.request("GET", f"{PODS}/healed")[1]["spec"].get("nodeName") == "n",
            seconds=30, what="the pod to be bound",
        )  # fmt: skip
        assert {"before-1", "before-2", "after", "healed"} <= names(service)
        assert service.process.poll() is None
    finally:
        service.stop()
