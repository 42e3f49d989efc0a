"""Blocks that a process gives back stay its own: counted in page faults, each of which the kernel must clear."""

from __future__ import annotations

import subprocess
import sys

import pytest

from memsweep.recurrence.memory import keep_freed_memory

FAULTS = """
import resource, sys, torch
from memsweep.recurrence.memory import keep_freed_memory
if sys.argv[1] == "keep":
    assert keep_freed_memory()
def work():
    for _ in range(20):
        torch.zeros(4 * 2**20, dtype=torch.uint8)
work()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
work()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="the setting is glibc's")
def test_tensors_of_the_same_size_take_the_same_pages():
    def faults(how: str) -> int:
        command = [sys.executable, "-c", FAULTS, how]
        return int(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    pages = 20 * 4 * 2**20 // 4096
    assert faults("keep") < 0.01 * pages < faults("default")


def test_it_is_set_once():
    assert keep_freed_memory() is keep_freed_memory()
