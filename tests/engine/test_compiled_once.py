"""Loops are compiled by one process of a machine, and loaded by the others."""

import multiprocessing
import os
import time
from multiprocessing.synchronize import Event
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from scheduling.engine.compiled import caching


def loop_in(folder: Path) -> Any:
    """Return what stands for a loop whose code is kept in a folder: there once a file is."""
    index = SimpleNamespace(_load_index=lambda: (folder / "code").exists())
    return SimpleNamespace(
        _cache=SimpleNamespace(_cache_file=index, cache_path=str(folder / "cache"))
    )


def compile_slowly(folder: Path, begun: Event) -> None:
    with caching.one_at_a_time(loop_in(folder)):
        begun.set()
        time.sleep(0.5)
        (folder / "code").write_text(str(os.getpid()))


def test_a_second_process_waits_for_the_code_of_the_first(tmp_path: Path) -> None:
    spawn = multiprocessing.get_context("spawn")
    begun = spawn.Event()
    first = spawn.Process(target=compile_slowly, args=(tmp_path, begun))
    first.start()
    assert begun.wait(60)
    assert not (tmp_path / "code").exists()
    with caching.one_at_a_time(loop_in(tmp_path)):
        assert (tmp_path / "code").read_text() == str(first.pid)
    first.join(60)
    assert first.exitcode == 0


def test_nobody_waits_where_the_code_is_or_no_file_can_be(tmp_path: Path) -> None:
    (tmp_path / "cache").write_text("a file, where a folder would have to be")
    with caching.one_at_a_time(loop_in(tmp_path)):
        pass
    (tmp_path / "code").touch()
    with caching.one_at_a_time(loop_in(tmp_path)):
        pass
    with caching.one_at_a_time(SimpleNamespace()):
        pass
