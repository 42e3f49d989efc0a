"""A person edits the file of a module while its trial runs: the trial is of the code that it began with."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from engine import trial
from memsweep import registry
from memsweep.config.schema.canonical import to_dict, trial_from_dict
from memsweep.models.module.factory import resolve
from memsweep.sweep.planning.identity import identity, identity_of
from memsweep.sweep.store.results import Store
from memsweep.sweep.worker.execute import execute_pack
from memsweep.sweep.worker.job import PackJob
from memsweep.trial import run_pack

CODE = """
from torch import nn


class Net(nn.Module):
    def __init__(self, inputs, outputs, width):
        super().__init__()
        self.cell = nn.RNN(inputs, width, batch_first=True)
        self.head = nn.Linear(width, outputs)

    def forward(self, x):
        return self.head(self.cell(x)[0])
"""
EDITS = {"none": CODE, "broken": "def broken(:", "other": CODE.replace("self.head(", "3 * self.head(")}


@pytest.fixture
def workspace(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setattr(registry, "_folders", [tmp_path])
    yield tmp_path
    (tmp_path / "edited_nets.py").write_text(CODE)


def test_an_edit_while_a_trial_runs_costs_and_changes_nothing(workspace: Path) -> None:
    short = {"balls": ["recurrent"], "starts": 0, "ascent_steps": 1, "test_size": 64, "stronger_every": 0}
    plain = trial(task={"horizon": 5}, training={"steps": 4, "validate_every": 2}, perturbation=short)
    found = []
    for edit, text in EDITS.items():
        (workspace / "edited_nets.py").write_text(CODE)
        config = trial_from_dict(
            {**to_dict(plain), "model": {"name": "module", "factory": "edited_nets:Net", "width": 2}}
        )
        name, began = identity(config), identity_of(config)

        def edited(configs: Any, options: Any, text: str = text) -> Any:
            (workspace / "edited_nets.py").write_text(text)
            return run_pack(configs, options)

        folder = workspace / edit
        job = PackJob("p", "s", str(folder), str(workspace), ((name, to_dict(config)),))
        report = execute_pack(job, lambda *_: None, edited)
        assert list(report.finished) == [name], (edit, report.failed)
        record = json.loads((folder / "records" / f"{name}.json").read_text())
        assert record["provenance"]["identity_of"] == began
        found.append((name, record["summary"], Store(folder).tables(name)["curves"]))
    (first, numbers, curves), *others = found
    for name, own, table in others:
        assert (name, own) == (first, numbers)
        assert table.equals(curves)
    assert not registry.files_are_held()


def test_files_of_one_name_in_two_folders_are_two_while_a_trial_runs(workspace: Path) -> None:
    for folder, text in (("one", CODE), ("two", EDITS["other"])):
        (workspace / folder).mkdir()
        (workspace / folder / "same_net.py").write_text(text)
    with registry.files_held():
        one, two, again = (resolve(f"{folder}/same_net.py:Net").file for folder in ("one", "two", "one"))
    assert one == again == workspace / "one" / "same_net.py"
    assert two == workspace / "two" / "same_net.py"
