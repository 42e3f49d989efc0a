"""The recorded losses are those of today, and one command records those of a new part."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import golden
import pytest

from memsweep import registry
from memsweep.data.folder import DATA_VARIABLE
from paths import ROOT, python_path
from sweeping import environment

registry.discover(ROOT)


@pytest.fixture(scope="module")
def known(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Any]]:
    """The record, with the data that tasks read."""
    folder = tmp_path_factory.mktemp("data")
    golden.write_data(folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv(DATA_VARIABLE, str(folder))
        yield json.loads(golden.FILE.read_text())


@pytest.mark.parametrize(("task", "part"), golden.pairs(), ids=[f"{task}-{part}" for task, part in golden.pairs()])
def test_the_first_ten_losses_are_the_recorded_ones(known: dict[str, Any], task: str, part: str) -> None:
    name = f"{task} {part}"
    assert name in known, f"no golden losses of {name}: `make golden` records them"
    for ours, theirs in zip(golden.losses(task, part), known[name], strict=True):
        assert len(ours) == 10
        assert ours == pytest.approx(theirs, rel=1e-6)  # rounding differs between processors, not more


TASK = (ROOT / "tasks" / "recall" / "copying_memory.py").read_text().replace('"copying_memory"', '"copying_outside"')
UNIT = """
from dataclasses import dataclass

from memsweep.models.deep.unit_rnn import RNNUnit
from memsweep.registry import register_unit


@register_unit("unit_outside")
class Outside(RNNUnit):
    \"\"\"The RNN under another name.\"\"\"

    @dataclass(frozen=True, kw_only=True)
    class Config(RNNUnit.Config):
        \"\"\"Its fields.\"\"\"
"""


@pytest.mark.more
def test_one_command_records_a_new_task_and_a_new_unit_and_nothing_else(tmp_path: Path) -> None:
    (tmp_path / "tasks").mkdir()
    (tmp_path / "tasks" / "outside.py").write_text(TASK)
    (tmp_path / "tasks" / "unit.py").write_text(UNIT)
    file, before = tmp_path / "losses.json", json.loads(golden.FILE.read_text())
    file.write_text(json.dumps(before))
    recipe = (ROOT / "Makefile").read_text().partition("\ngolden: ")[2].partition("\n\n")[0]
    assert "$(PY) tests/trial/golden.py $(NAMES)" in recipe

    env = environment(PYTHONPATH=python_path())

    def run(*words: str) -> str:
        command = [sys.executable, golden.__file__, *words, "--workspace", str(tmp_path), "--file", str(file)]
        done = subprocess.run(command, cwd=ROOT, env=env, capture_output=True, text=True, timeout=600)
        assert done.returncode == 0, done.stderr
        return done.stdout

    assert "recorded copying_memory with residual_stack.unit_outside" in run()
    now = json.loads(file.read_text())
    assert {name: losses for name, losses in now.items() if name in before} == before
    new = now.keys() - before.keys()
    assert {name for name in new if "outside" not in name} == set()
    for ours, theirs in zip(now["copying_outside lru"], before["copying_memory lru"], strict=True):
        assert ours == pytest.approx(theirs, rel=1e-6)
    new_unit, rnn = (now[f"copying_memory residual_stack.{unit}"] for unit in ("unit_outside", "rnn"))
    assert [len(seed) for seed in new_unit] == [10, 10]
    assert new_unit[0] == pytest.approx(rnn[0], rel=1e-6)
    assert run("unit_outside") == "recorded copying_memory with residual_stack.unit_outside\n"
