"""What a terminal of 80 columns shows: no line is wider, whatever a study or a task says of itself."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import struct
import subprocess
import sys
import termios
from collections.abc import Sequence
from pathlib import Path

import pytest
from rich.cells import cell_len

from memsweep.config.describe import STUDY, listing, listing_text

COLUMNS = 80
ROOT = Path(__file__).parents[2]


def shown(words: Sequence[str]) -> list[str]:
    """The lines that a command writes to a terminal of 80 columns, without colours."""
    leader, follower = pty.openpty()
    fcntl.ioctl(leader, termios.TIOCSWINSZ, struct.pack("HHHH", 40, COLUMNS, 0, 0))
    environment = {name: value for name, value in os.environ.items() if name != "COLUMNS"} | {"TERM": "xterm-256color"}
    command = [sys.executable, "-m", "memsweep", *words]
    child = subprocess.Popen(command, stdin=follower, stdout=follower, stderr=follower, cwd=ROOT, env=environment)
    os.close(follower)
    read = b""
    with os.fdopen(leader, "rb", buffering=0) as terminal:
        try:
            while part := terminal.read(65536):
                read += part
        except OSError:  # Linux says so when the last writer has closed the terminal
            pass
    assert child.wait() == 0, read.decode()
    return re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", read.decode()).splitlines()


@pytest.mark.more
@pytest.mark.parametrize(
    "words",
    [
        ["list", "studies"],
        [
            "describe",
            "torch.nn:GRU",
            "width_argument=hidden_size",
            "arguments={input_size: 2, batch_first: true}",
            "--outputs=8",
        ],
        ["plan", "quickstart", "--no-probe"],
    ],
    ids=" ".join,
)
def test_no_line_is_wider_than_the_terminal(words: list[str], tmp_path: Path) -> None:
    results = ["--results", str(tmp_path)] if words[0] == "plan" else []
    lines = shown([*words, *results])
    assert len(lines) > 5
    assert [line for line in lines if cell_len(line) > COLUMNS] == []


def test_a_pipe_gets_one_line_for_each_study() -> None:
    items = listing(STUDY, ROOT)
    assert len(listing_text(items, None).splitlines()) == len(items)
    assert max(map(len, listing_text(items, COLUMNS).splitlines())) <= COLUMNS
