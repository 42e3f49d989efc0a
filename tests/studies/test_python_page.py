"""docs/python.md: its blocks, one after the other, in the folder of a stranger."""

from __future__ import annotations

import ast
import inspect
import re
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import memsweep as ms
from memsweep import registry
from memsweep.config.core.reflect import keys
from memsweep.config.schema.training import TrainingConfig
from memsweep.config.schema.trial import PerturbationConfig
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


SECTIONS = {"task": registry.TASK, "model": registry.MODEL, "unit": registry.UNIT}
SENTENCES = re.sub(r"```.*?```", "", PAGE, flags=re.DOTALL)
PIECES = [piece for piece in re.findall(r"`([^`]+)`", SENTENCES) if piece.startswith(("ms.", "{"))]


def names_in(code: ast.AST, section: str) -> Iterator[tuple[str, Any]]:
    """The names of parts in code that writes a section, each with the section that it belongs to."""
    if isinstance(code, ast.Dict):
        for key, value in zip(code.keys, code.values, strict=True):
            own = ast.literal_eval(key) if key is not None else ""
            yield from [(section, ast.literal_eval(value))] if own == "name" else names_in(value, own)
    else:
        for node in ast.iter_child_nodes(code):
            yield from names_in(node, section)


@pytest.mark.parametrize("piece", PIECES)
def test_code_within_a_sentence_names_what_there_is(piece: str) -> None:
    """No block has it, so nothing runs it. Three dots before a bracket stand for more of the same."""
    code = ast.parse(re.sub(r", \.\.\.(?=[)}])", "", piece), mode="eval").body
    registry.discover(ROOT)
    called = "measure"
    if isinstance(code, ast.Call):
        assert isinstance(code.func, ast.Attribute)
        called = code.func.attr
        given = {str(each.arg): each.value for each in code.keywords}
        inspect.signature(getattr(ms, called)).bind(*code.args, **given)
    for section, name in names_in(code, "task" if called == "measure" else "study"):
        assert section == "study" or name in registry.names(SECTIONS[section]), f"{piece}: there is no {section} {name}"


def test_fields_within_sentences_are_there() -> None:
    settings = {"perturbation": PerturbationConfig, "training": TrainingConfig}
    named = re.findall(r"[`\"](perturbation|training)\.(\w+)[`\"]", SENTENCES)
    assert len(named) > 5
    assert not [(section, field) for section, field in named if field not in keys(settings[section])]


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
