"""Another time of day for the processes of a service: a small library that is loaded before libc.

The offset lies in a file that all of them map, so that the clock of running processes can step.
Only CLOCK_REALTIME moves, as it does when somebody sets the clock.
"""

import shutil
import struct
import subprocess
from pathlib import Path

_SOURCE = r"""
#define _GNU_SOURCE
#include <dlfcn.h>
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static volatile long long *offset;

__attribute__((constructor)) static void begin(void) {
    const char *path = getenv("SOAK_CLOCK");
    int file = path ? open(path, O_RDONLY | O_CLOEXEC) : -1;
    if (file < 0) return;
    void *found = mmap(NULL, 8, PROT_READ, MAP_SHARED, file, 0);
    if (found != MAP_FAILED) offset = found;
    close(file);
}

int clock_gettime(clockid_t id, struct timespec *now) {
    int result = syscall(SYS_clock_gettime, id, now);
    if (!result && offset && (id == CLOCK_REALTIME || id == CLOCK_REALTIME_COARSE))
        now->tv_sec += *offset;
    return result;
}

int gettimeofday(struct timeval *restrict now, void *restrict zone) {
    struct timespec found;
    int result = clock_gettime(CLOCK_REALTIME, &found);
    if (now) { now->tv_sec = found.tv_sec; now->tv_usec = found.tv_nsec / 1000; }
    return result;
}

time_t time(time_t *where) {
    struct timespec found;
    clock_gettime(CLOCK_REALTIME, &found);
    if (where) *where = found.tv_sec;
    return found.tv_sec;
}
"""


class Clock:
    """The clock of one service. ``environment`` is empty where no compiler is: it never moves."""

    def __init__(self, folder: Path) -> None:
        self.offset = 0
        self.environment: dict[str, str] = {}
        self._file = folder / "clock"
        self._file.write_bytes(struct.pack("q", 0))
        self._file.chmod(0o644)
        compiler = shutil.which("cc")
        if compiler is None:
            return
        source, library = folder / "clock.c", folder / "clock.so"
        source.write_text(_SOURCE)
        done = subprocess.run(
            [compiler, "-shared", "-fPIC", "-O1", "-o", str(library), str(source), "-ldl"],
            check=False, capture_output=True,
        )  # fmt: skip
        if done.returncode == 0:
            library.chmod(0o755)
            self.environment = {"LD_PRELOAD": str(library), "SOAK_CLOCK": str(self._file)}

    @property
    def works(self) -> bool:
        return bool(self.environment)

    def step(self, seconds: int) -> None:
        """Move the clock of all processes, those that run included."""
        self.offset += seconds
        with self._file.open("r+b") as file:
            file.write(struct.pack("q", self.offset))
