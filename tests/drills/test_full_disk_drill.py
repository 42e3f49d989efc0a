"""The disk of the results becomes full at any file that a command touches: a sentence, nothing lost, and it goes on."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from memsweep.sweep.store.results import Store
from sweeping import BASE
from watched import FILL, watched

pytestmark = [pytest.mark.drill, pytest.mark.skipif(os.geteuid() != 0, reason="mounting a disk needs root")]

WORDS = {
    "sweep": ("small", "--inline"),
    "report": ("small", "--figures", "png,svg,pdf"),
    "extend": ("small", "model.width=2,3,4", "--inline"),
    "weights": ("small", "model.width=2", "--seed", "0", "results/out.safetensors"),
    "sync": ("small",),
}
POINTS = {"sweep": 4, "report": 4, "extend": 2, "weights": 2, "sync": 1}
"""Verb -> at how many touches of a file, evenly spread, the disk becomes full."""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """A workspace whose ``results`` is a disk of its own, of 48 MiB."""
    (tmp_path / "search_spaces").mkdir()
    (tmp_path / "search_spaces" / "small.yaml").write_text(f"{BASE}grid: {{model.width: [2, 3]}}\n")
    results = tmp_path / "results"
    results.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=48m", "tmpfs", results], check=True, timeout=30)
    try:
        yield tmp_path
    finally:
        subprocess.run(["umount", "-l", results], check=True, timeout=30)


@pytest.mark.parametrize(
    "verb", [pytest.param(verb, marks=[] if verb in ("sweep", "report") else [pytest.mark.long]) for verb in WORDS]
)
def test_a_disk_that_becomes_full_at_any_file(
    verb: str, disk: Path, tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    words, results = (verb, *WORDS[verb]), disk / "results"
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path_factory.mktemp("apart")))
    monkeypatch.setenv("MEMSWEEP_STORAGE_RETRY", "1")
    monkeypatch.setenv("MEMSWEEP_NO_PAGE", "1")
    if verb != "sweep":
        assert watched(("sweep", *WORDS["sweep"]), disk).code == 0
    kept = tmp_path_factory.mktemp("kept") / "results"
    shutil.copytree(results, kept)
    undisturbed = watched(words, disk, results)
    assert undisturbed.code == 0, undisturbed.told
    count = undisturbed.touches
    verdicts = (results / "small" / "report" / "verdicts.csv").read_bytes()
    for at in sorted({1 + count * point // POINTS[verb] for point in range(POINTS[verb])}):
        empty(results)
        shutil.copytree(kept, results, dirs_exist_ok=True)
        before = whole(results)
        full = watched(words, disk, results, at=at, deed=FILL)
        told = f"full at {at} of {count}: {full.told[-3000:]}"
        assert full.code in ((0, 1, 4) if verb == "sync" else (0, 4)), told
        assert "Traceback" not in full.told, told
        assert full.code == 0 or "No space left" in told or "MiB are needed" in told, told
        assert before <= whole(results), f"a result is lost: {told}"
        (results / "filler").unlink(missing_ok=True)
        again = watched(words, disk, results)
        assert again.code == 0, f"{told}\n{again.told}"
        assert (results / "small" / "report" / "verdicts.csv").read_bytes() == verdicts
        assert "Not in MLflow" not in again.told, again.told[-600:]


def whole(results: Path) -> set[str]:
    """The results that are stored and undamaged."""
    store = Store(results / "small")
    names = store.identities()
    return set(names - store.check(names).keys())


def empty(folder: Path) -> None:
    for path in folder.iterdir():
        if path.is_dir():
            shutil.rmtree(path)
        else:
            path.unlink()
