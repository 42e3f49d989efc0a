"""The temporary folders of Tune and Train: a killed process's go with the next one made there, a living one's stay."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from memsweep.sweep.ray.scratch import scratch_folder

HOLDS = (
    "from memsweep.sweep.ray.scratch import scratch_folder\nwith scratch_folder() as f: print(f, flush=True); input()"
)


def test_the_folder_of_a_killed_driver_is_removed_and_that_of_a_living_one_is_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    (tmp_path / "memsweep-ray-new").mkdir()  # its driver has not made its lock yet
    with subprocess.Popen(
        [sys.executable, "-c", HOLDS],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        env=os.environ | {"TMPDIR": str(tmp_path)},
    ) as driver:
        assert driver.stdout is not None
        held = Path(driver.stdout.readline().strip())
        (held / "state").mkdir()
        with scratch_folder() as own:
            assert sorted(tmp_path.iterdir()) == sorted([tmp_path / "memsweep-ray-new", held, own])
        driver.kill()
        driver.wait()
    assert held.exists()
    with scratch_folder() as own:
        assert sorted(tmp_path.iterdir()) == sorted([tmp_path / "memsweep-ray-new", own])
    assert [folder.name for folder in tmp_path.iterdir()] == ["memsweep-ray-new"]
