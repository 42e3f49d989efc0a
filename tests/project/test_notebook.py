"""docs/notebook.ipynb: its cells run one after the other, and give the audit and the verdict that stand in it."""

from __future__ import annotations

import ast
from pathlib import Path

import notebook
import pytest

import memsweep as ms


def test_every_cell_compiles_calls_what_there_is_and_has_its_output() -> None:
    stored = notebook.read()
    assert stored["nbformat"] == 4
    for cell in notebook.codes(stored):
        tree = ast.parse(notebook.source(cell))
        called = {
            each.attr
            for each in ast.walk(tree)
            if isinstance(each, ast.Attribute) and isinstance(each.value, ast.Name) and each.value.id == "ms"
        }
        assert called <= {*dir(ms)}
        assert cell["execution_count"]
        assert bool(cell["outputs"]) == (isinstance(tree.body[-1], ast.Expr))
        assert "/results" not in notebook.said(cell)  # a path of one machine
    assert "image/png" in notebook.codes(stored)[-1]["outputs"][-1]["data"]


@pytest.mark.more
def test_the_cells_give_the_verdict_that_stands_in_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    stored = notebook.read()
    before = [notebook.said(cell) for cell in notebook.codes(stored)]
    for cell, outputs in zip(notebook.codes(stored), notebook.run(stored), strict=True):
        cell["outputs"] = outputs
    after = [notebook.said(cell) for cell in notebook.codes(stored)]
    assert after[1] == before[1]  # the audit, with time enough
    assert after[-2] == before[-2]  # verdict and slopes, to two places
    assert (tmp_path / "radius.pdf").read_bytes()[:4] == b"%PDF"
