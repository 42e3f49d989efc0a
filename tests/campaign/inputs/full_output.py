"""A standard output that takes nothing: a full disk, or a reader that has gone; the command ends in words."""

from __future__ import annotations

import os
import random
import subprocess
from pathlib import Path

from sweeping import BASE
from tests.campaign.inputs.answers import places, started

_WORDS = (
    ["--help"], ["--version"], ["list"], ["describe", "training"], ["describe", "training", "--json"], ["catalogue"],
    ["plan", "small.yaml", "--no-probe"], ["plan", "small.yaml", "--no-probe", "--json"],
    ["sweep", "small.yaml", "--inline"], ["sweep", "small.yaml", "--inline", "--json"], ["status", "small"],
)  # fmt: skip


def full_output(luck: random.Random, folder: Path) -> None:
    """No traceback on standard error, no code but 0, 1, 2 and 141 (as after SIGPIPE), and what is computed is kept."""
    (folder / "small.yaml").write_text(BASE)
    words = [str(folder / word) if word == "small.yaml" else word for word in luck.choice(_WORDS)]
    if words[0] in ("plan", "sweep", "status"):
        words += places(folder)[: 2 if words[0] == "status" else 4]
    how = luck.choice(["full", "closed pipe"])
    if how == "full":
        with open("/dev/full", "w") as out:
            process = started(words, folder, out)
    else:
        reader, writer = os.pipe()
        process = started(words, folder, writer)
        os.close(writer)
        os.close(reader)
    try:
        _, said = process.communicate(timeout=300)
    except subprocess.TimeoutExpired:
        process.kill()
        said = process.communicate()[1] + "it did not end"
    if process.returncode not in (0, 1, 2, 141) or "Traceback" in said or "Exception ignored" in said:
        raise AssertionError(f"memsweep {words!r}, standard output {how}, ended with {process.returncode}: {said}")
    if words[0] == "sweep" and not list((folder / "results" / "small" / "records").glob("*.json")):
        raise AssertionError(f"memsweep {words!r}, standard output {how}, has stored nothing: {said}")
