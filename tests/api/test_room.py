"""Room on the disk is looked at now and then, by many threads."""

import os
import sys
import threading
from pathlib import Path

from api.server.room import _Room


def test_threads_that_ask_first_find_the_room_there_is(settings, tmp_path: Path) -> None:
    """A thread that came while another looked found no room at all, and a write was refused."""
    settings.DATABASE_FOLDER = tmp_path
    interval = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        for _ in range(200):
            room = _Room()
            found: list[int | None] = []
            start = threading.Barrier(4)

            def ask(room=room, found=found, start=start) -> None:
                start.wait()
                found.append(room.free())

            threads = [threading.Thread(target=ask) for _ in range(4)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
            assert 0 not in found
    finally:
        sys.setswitchinterval(interval)


def test_a_folder_that_cannot_be_looked_at_refuses_nothing(settings, tmp_path: Path) -> None:
    settings.DATABASE_FOLDER = tmp_path / "absent"
    room = _Room()
    assert (room.free(), room.free()) == (None, None)
    settings.DATABASE_FOLDER = tmp_path
    assert os.statvfs(tmp_path).f_bavail > 0
