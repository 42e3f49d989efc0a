"""Terminals of 80 columns: no line is wider, whatever a study or a task says of itself."""

from __future__ import annotations

import fcntl
import io
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

from memsweep.commands import console
from memsweep.documents.keys.parts import ListItem
from memsweep.errors import columns_of, filled
from memsweep.reference.describe import STUDY, listing, listing_text
from memsweep.studies.ending import Ending
from memsweep.sweep.driver.runner import RunSummary
from memsweep.sweep.store.filesystem import Location

COLUMNS = 80
ROOT = Path(__file__).parents[2]


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def shown(words: Sequence[str], code: int = 0) -> list[str]:
    """The lines that a command with this exit code writes to a terminal of 80 columns, without colours."""
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
    assert child.wait() == code, read.decode()
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


def test_a_pipe_gets_one_line_for_each_study_below_that_of_its_room() -> None:
    items = listing(STUDY, ROOT)
    lines = listing_text(items, None).splitlines()
    rooms = [line.rstrip(":") for line in lines if not line.startswith(" ")]
    assert rooms == ["start", "memory", "tasks", "units", "published", "cluster"]
    assert [line.split()[0] for line in lines if line.startswith(" ")] == [item["name"] for item in items]
    assert len(lines) == len(rooms) + len(items)
    narrow = listing_text(items, COLUMNS)
    assert max(map(len, narrow.splitlines())) <= COLUMNS
    assert re.findall(r"\w-$", narrow, re.MULTILINE) == []  # no word is broken at its hyphen


def test_marks_of_code_are_quotes_on_a_terminal() -> None:
    item: ListItem = {"name": "rnn", "room": None, "description": "Linear with the activation ``linear``."}
    assert listing_text([item], None) == "rnn  Linear with the activation 'linear'."


def test_a_wrong_command_line_is_told_within_the_terminal() -> None:
    lines = shown(["list"], code=2)
    assert max(map(cell_len, lines)) <= COLUMNS
    assert any("rules|measures|studies" in line for line in lines)


def test_a_text_is_broken_between_words_and_what_is_copied_stays_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    path, command = f"/{'folder/' * 14}", "memsweep resume quickstart"
    text = f"  stopped in {path} after a while, {'word ' * 5}and here one goes on: {command} --inline\nend"
    first, *others = filled(text, Terminal()).split("\n")
    assert first == "  stopped in"
    assert (others[0].strip(), others[-1]) == (path, "end")
    assert all(line.startswith("    ") and len(line) <= COLUMNS for line in others[1:-1])
    assert any(f"{command} --inline" in line for line in others)
    assert filled(text, io.StringIO()) == text


def test_a_pipe_has_the_columns_of_the_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    for said, columns in (("80", 80), ("", 110), ("0", 110), ("wide", 110), (None, 110)):
        monkeypatch.delenv("COLUMNS", raising=False) if said is None else monkeypatch.setenv("COLUMNS", said)
        assert columns_of(io.StringIO(), 110) == columns


def test_an_ending_fits_and_addresses_stand_on_lines_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    monkeypatch.setattr(sys, "stdout", terminal := Terminal())
    tracking = (f"sqlite:////{'folder/' * 9}mlflow.db", "1", f"/#/experiments/1/runs?searchFilter={'x' * 90}")
    summary = RunSummary(interrupted=True, limit="4 trials of this run have a result (--max-trials 4)")
    console.print_ending(
        Ending(3, "quickstart", 9, 0, 5, summary, None, 3.0, tracking, "", True, "memsweep resume quickstart"),
        Location.at(Path("results")),
    )
    wide = [line for line in terminal.getvalue().splitlines() if cell_len(line) > COLUMNS]
    assert [re.split(r"  +", line.strip())[-1].split()[0] for line in wide] == [
        "mlflow",
        f"http://127.0.0.1:5000{tracking[2]}",
    ]
    assert "memsweep resume quickstart" in terminal.getvalue()
