"""Blocks that a process gives back stay its own, as glibc's own books say."""

from __future__ import annotations

import ctypes
import subprocess
import sys

import pytest

FREE_AFTER = """
import ctypes, torch
from memsweep.recurrence.freed_memory import keep_freed_memory
class Books(ctypes.Structure):
    _fields_ = [(name, ctypes.c_size_t) for name in (
        "arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")]
books = ctypes.CDLL(None).mallinfo2
books.restype = Books
for keep in (lambda: True, keep_freed_memory):
    assert keep()
    held = [torch.zeros(20 * 2**20, dtype=torch.uint8) for _ in range(8)]
    del held
    print(books().fordblks)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="the setting, and the books, are glibc's")
def test_freed_tensors_stay_with_the_process():
    run = subprocess.run([sys.executable, "-c", FREE_AFTER], capture_output=True, text=True, check=True)
    default, kept = map(int, run.stdout.split())
    assert default < 40 * 2**20 < 160 * 2**20 <= kept
