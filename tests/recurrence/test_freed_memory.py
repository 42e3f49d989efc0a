"""Blocks that a process frees stay its own until it gives them back, as the kernel counts its pages."""

from __future__ import annotations

import ctypes
import os
import subprocess
import sys

import pytest

from paths import python_path

HELD = """
import resource, sys, torch
def held():
    return int(open("/proc/self/statm").read().split()[1]) * resource.getpagesize()
"""
TENSORS = """
from memsweep.recurrence.freed_memory import give_back_freed_memory, keep_freed_memory
def after_tensors():
    tensors = [torch.ones(20 * 2**20, dtype=torch.uint8) for _ in range(8)]
    del tensors
    return held() - before
before = held()
default = after_tensors()
assert keep_freed_memory()
kept = after_tensors()
assert give_back_freed_memory()
print(default, kept, held() - before)
"""
SIZES = """
import memsweep.trial as packs
from engine import trial
torch.set_num_threads(1)
give_back, at_rest = packs.give_back_freed_memory, []
def measured():
    given = give_back()
    at_rest.append(held())
    return given
packs.give_back_freed_memory = measured
for horizon in (20, 20, 150, 90, 20):
    few = {"starts": 1, "ascent_steps": 1, "test_size": 10_000}
    packs.run_trial(
        trial(task={"horizon": horizon}, model={"activation": "hardtanh"}, training={"steps": 2}, perturbation=few)
    )
print(*at_rest[1:])
"""

glibc = pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="the settings are glibc's")


def python(code: str) -> list[int]:
    command, paths = [sys.executable, "-c", HELD + code], {"PYTHONPATH": python_path()}
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=os.environ | paths)
    return [int(word) for word in done.stdout.split()]


@pytest.mark.more
@glibc
def test_freed_tensors_stay_with_the_process_until_it_gives_them_back() -> None:
    default, kept, given_back = python(TENSORS)
    assert default < 40 * 2**20 < 160 * 2**20 <= kept
    assert given_back < 40 * 2**20


@pytest.mark.more
@glibc
def test_a_pack_does_not_hold_the_memory_of_the_sizes_before_it() -> None:
    first, *later = python(SIZES)
    assert len(later) == 3  # each pack gives back before it starts
    assert max(later) - first < 10 * 2**20
