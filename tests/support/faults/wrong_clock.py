"""A system clock that a test sets for some processes alone, while they run.

A library that is loaded before the C library's answers ``clock_gettime(CLOCK_REALTIME)``, ``gettimeofday`` and ``time``
with an offset. Monotonic clocks, sleeps and the times of files stay as they are, as on a machine whose clock is set.
libfaketime does not serve: its version 0.9.10 also moves the end of every sleep on the monotonic clock.
"""

from __future__ import annotations

import struct
import subprocess
from dataclasses import dataclass
from pathlib import Path

_SOURCE = r"""
#define _GNU_SOURCE
#include <fcntl.h>
#include <stdlib.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <sys/time.h>
#include <time.h>
#include <unistd.h>

static const volatile long *offset;

__attribute__((constructor)) static void open_offset(void) {
    const char *name = getenv("MEMSWEEP_TEST_CLOCK");
    int file = name ? open(name, O_RDONLY | O_CLOEXEC) : -1;
    void *page = file < 0 ? MAP_FAILED : mmap(0, sizeof(long), PROT_READ, MAP_SHARED, file, 0);
    if (file >= 0) close(file);
    if (page != MAP_FAILED) offset = page;
}

int clock_gettime(clockid_t clock, struct timespec *time) {
    int failed = syscall(SYS_clock_gettime, clock, time);
    if (!failed && offset && (clock == CLOCK_REALTIME || clock == CLOCK_REALTIME_COARSE)) time->tv_sec += *offset;
    return failed;
}

int gettimeofday(struct timeval *restrict time, void *restrict zone) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    time->tv_sec = now.tv_sec;
    time->tv_usec = now.tv_nsec / 1000;
    return 0;
}

time_t time(time_t *seconds) {
    struct timespec now;
    clock_gettime(CLOCK_REALTIME, &now);
    if (seconds) *seconds = now.tv_sec;
    return now.tv_sec;
}
"""


@dataclass(frozen=True)
class WrongClock:
    """The clock of all processes that have its ``environment``.

    Attributes:
        folder: an existing folder of its own.
    """

    folder: Path

    @classmethod
    def make(cls, folder: Path) -> WrongClock:
        """A clock that is right for now."""
        folder.mkdir(parents=True)
        (folder / "clock.c").write_text(_SOURCE)
        command = ["cc", "-shared", "-fPIC", "-O1", "-o", folder / "clock.so", folder / "clock.c"]
        subprocess.run(command, check=True)
        clock = cls(folder)
        clock.set(0)
        return clock

    @property
    def environment(self) -> dict[str, str]:
        return {"LD_PRELOAD": str(self.folder / "clock.so"), "MEMSWEEP_TEST_CLOCK": str(self.folder / "offset")}

    def set(self, seconds: int) -> None:
        """So many seconds ahead of the right time (negative: behind it), from now on."""
        file = self.folder / "offset"
        with file.open("r+b" if file.exists() else "wb") as page:  # in place: the processes have it in their memory
            page.write(struct.pack("l", seconds))
