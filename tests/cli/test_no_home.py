"""A user without a home folder, as a number in a container is one, keeps nothing between runs, and fails nowhere."""

from __future__ import annotations

from pathlib import Path

import pytest

from memsweep.home import cache_folder, state_folder
from memsweep.report.publish import _copies
from memsweep.sweep.store.filesystem import Location
from memsweep.trust.gate import known


def test_nothing_is_kept_and_nothing_fails(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def nowhere() -> Path:
        raise RuntimeError("Could not determine home directory.")

    for name in ("XDG_STATE_HOME", "XDG_CACHE_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(Path, "home", nowhere)
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    for folder in (state_folder(), cache_folder()):
        with pytest.raises(OSError, match="nonexistent"):
            folder.mkdir(parents=True)
    assert known() == frozenset()
    assert _copies(Location.at("s3://bucket/study")).parent == tmp_path
