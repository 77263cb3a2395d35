"""Processes that are forked from the supervisor are what they would be after ``exec``."""

import json
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest
from django.core.management.base import CommandError
from django.db import DatabaseError, OperationalError

from clusterstate.local import family
from tests.live import ROOT


def test_a_forked_process_has_its_own_settings_arguments_and_environment(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-m", "tests.platform.relative"],
        cwd=ROOT,
        env={**os.environ, "STOWAGE_STATE": str(tmp_path), "STOWAGE_PROCESS": "manage"},
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    child, parent = (json.loads(line) for line in done.stdout.splitlines())
    assert parent == {"code": 7, "process": "manage"}
    assert child["process"] == "timers"
    assert child["session"].startswith("stowage-timers-")
    assert child["arguments"] == ["child", "--name", "timers"]
    assert child["seen"] == ["python", "-m", "tests.platform.relative", *child["arguments"]]
    assert set(child["variables"]) == {
        "STOWAGE_PROCESS=timers", "DJANGO_SETTINGS_MODULE=clusterstate.settings",
        f"STOWAGE_STATE={tmp_path}",
    }  # fmt: skip
    assert child["leads"]
    assert not child["handled"]
    assert child["frozen"] > 10_000  # its parent's heap, which it did not look through


def test_pages_of_libraries_are_given_back_and_there_again() -> None:
    shown = """
import ctypes, re
from clusterstate.local import family
from llvmlite import binding
def mapped():
    sizes = re.findall("^Rss: +([0-9]+)", open("/proc/self/smaps").read(), re.M)
    return sum(map(int, sizes))
binding.get_default_triple()
before = mapped()
family._unmap_files()
print(before - mapped() > 20_000, binding.get_default_triple() != "")
"""
    environment = {**os.environ, "DJANGO_SETTINGS_MODULE": "clusterstate.settings"}
    done = subprocess.run(
        [sys.executable, "-c", shown], cwd=ROOT, env=environment, capture_output=True, text=True,
        timeout=60, check=True,
    )  # fmt: skip
    assert done.stdout == "True True\n"


def test_nothing_is_given_back_that_was_changed_in_memory_or_is_in_the_swap_space() -> None:
    def mapped(begin: int, rights: str, path: str, anonymous: int, swapped: int) -> list[str]:
        return [
            f"{begin:x}-{begin + 4096:x} {rights} 00000000 fe:00 9     {path}\n",
            "Size:                  4 kB\n",
            f"Anonymous:      {anonymous:8} kB\n",
            f"Swap:           {swapped:8} kB\n",
            f"SwapPss:        {swapped:8} kB\n",
        ]

    lines = [
        *mapped(0x1000, "r-xp", "/usr/lib/a.so", 0, 0),
        *mapped(0x3000, "r--p", "/usr/lib/a.so", 4, 0),
        *mapped(0x5000, "r--p", "/usr/lib/a.so", 0, 4),
        *mapped(0x7000, "rw-p", "/usr/lib/a.so", 0, 0),
        *mapped(0x9000, "r--p", "", 0, 0),
    ]
    assert list(family._unchanged_files(lines)) == [(0x1000, 0x2000)]


def test_what_is_done_aside_comes_back_or_says_why_not() -> None:
    here = os.getpid()
    assert family.aside(lambda: [os.getpid() != here, 7]) == [True, 7]

    def refuse() -> None:
        raise CommandError("no")

    def lose() -> None:
        raise OperationalError("away")

    with pytest.raises(CommandError, match=r"^no$"):
        family.aside(refuse)
    with pytest.raises(DatabaseError, match=r"^away$"):
        family.aside(lose)
    with pytest.raises(CommandError, match="ended"):
        family.aside(lambda: os.kill(os.getpid(), signal.SIGKILL))


def test_no_process_is_forked_while_there_are_threads() -> None:
    """A lock that another thread holds would stay locked in the child."""
    before = len(os.listdir("/proc/self/task"))
    assert family.can_fork() == (before == 1)
    ended = threading.Event()
    thread = threading.Thread(target=ended.wait)
    thread.start()
    assert not family.can_fork()
    ended.set()
    thread.join()
