"""Callbacks of Tune in a folder that is deleted while packs run."""

from __future__ import annotations

import os
from pathlib import Path
from types import SimpleNamespace

import pytest

from memsweep.sweep.ray.callbacks import RunnerCallback


@pytest.mark.parametrize("again", [True, False])
def test_a_driver_leaves_a_folder_that_was_deleted(
    again: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = tmp_path / "gone"
    folder.mkdir()
    monkeypatch.chdir(folder)
    events = SimpleNamespace(may_start=lambda: True)
    callback = RunnerCallback({}, events, lambda waiting: None)  # type: ignore[arg-type]
    callback.on_step_end(1, [])
    assert Path.cwd() == folder
    folder.rmdir()
    if again:
        folder.mkdir()
    callback.on_experiment_end([])
    assert Path.cwd() == (folder if again else Path(os.sep))
