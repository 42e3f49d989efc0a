"""docs/python.md: its blocks, one after the other, in the folder of a stranger."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest

from memsweep import registry
from memsweep.studies.python.results import Results
from memsweep.sweep.store.tables import of_measures
from paths import ROOT

PAGE = (ROOT / "docs" / "python.md").read_text(encoding="utf-8")


def test_the_page_names_every_table() -> None:
    registry.find_in(registry.MEASURES)
    named = re.findall(r"^\| `(\w+)` \|", PAGE, re.MULTILINE)
    properties = {name: part.fget for name, part in vars(Results).items() if isinstance(part, property)}
    tables = {name for name, read in properties.items() if read.__annotations__["return"] == "pd.DataFrame"}
    assert {*named} == tables | of_measures().keys()


@pytest.mark.more
def test_every_block_runs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    for folder in ("tasks", "search_spaces"):
        shutil.copytree(ROOT / folder, tmp_path / folder, ignore=shutil.ignore_patterns("__pycache__"))
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```(\w+)\n(.*?)```", PAGE, re.DOTALL)
    assert {language for language, _ in blocks} == {"python"}
    names: dict[str, Any] = {}
    for _, code in blocks:
        exec(compile(code, "docs/python.md", "exec"), names)
    shown = capsys.readouterr().out
    assert "study small: 6 trials, 0 done or reused, 6 to run" in shown
    assert "small: 6 of 6 trials have a result" in shown
    assert "Did you mean 'width'?" in shown
    assert (tmp_path / "error.pdf").stat().st_size > 1000
    assert set(names["strict"].radii["threshold"]) == {0.02, 0.05}
    assert "small: 6 of 6 trials have a result (6 done); not running" in shown
    assert "No fault" in shown
    assert "radius when the recurrent weights move" in shown
    assert names["outputs"].shape == (1, 20, 1)
    assert names["rates"].shape == (4,)
