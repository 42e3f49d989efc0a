"""Advice asks for a horizon by the field that the task has for it, whatever its name."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from memsweep import registry
from memsweep.cli import main
from memsweep.config.schema.canonical import to_dict
from memsweep.data.sizes import horizon_field, horizon_of
from memsweep.report.naming.advice import in_words_of, of_weights

registry.discover()
TASKS = [name for name in registry.names(registry.TASK) if registry.is_own(registry.get(registry.TASK, name))]


def config_of(name: str) -> Any:
    return registry.get(registry.TASK, name).Config()


@pytest.mark.parametrize("name", TASKS)
def test_the_field_of_the_advice_gives_the_horizon(name: str) -> None:
    config = config_of(name)
    asked = ("training.seeds=8", "model.width=4 task.horizon=128,256 training.seeds=5")
    seeds, *others = in_words_of(to_dict(config), asked)
    assert seeds == "training.seeds=8"
    if (field := horizon_field(config)) is None:
        assert not others  # the length of an image is no setting
        return
    (text,) = others
    before, word, after = text.split()
    assert (before, after) == ("model.width=4", "training.seeds=5")
    path, _, values = word.partition("=")
    assert path == f"task.{field}"
    for value, horizon in zip(values.split(","), (128, 256), strict=True):
        made = replace(config, **{field: int(value)})
        assert horizon_of(made) == horizon


def test_copying_has_a_delay() -> None:
    assert in_words_of(to_dict(config_of("copying_memory")), ["task.horizon=440"]) == ("task.delay=420",)


def test_a_task_that_is_not_here_keeps_the_words_of_the_rule() -> None:
    assert in_words_of({"name": "of_another_workspace"}, ["task.horizon=440"]) == ("task.horizon=440",)


@pytest.mark.parametrize(
    ("training", "kept"),
    [
        ({"weights": "", "steps": 0}, [0, 1, 2, 3]),
        ({"weights": "/x.pt", "steps": 0}, [2]),
        ({"weights": "/x.pt", "steps": 10}, [1, 2]),
    ],
)
def test_given_weights_are_advised_no_other_widths_and_without_training_no_seeds(
    training: dict[str, object], kept: list[int]
) -> None:
    asked = ("model.width=2,4", "training.seeds=9", "task.horizon=8,16", "training.seeds=5 model.width=2,4")
    found, why = of_weights(training, asked)
    assert found == tuple(asked[place] for place in kept)
    assert len(why) == {4: 0, 1: 2, 2: 1}[len(kept)]


def test_plan_asks_for_delays(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "copying.yaml").write_text(
        "task: {name: copying_memory, length: 2}\nmodel: {name: vanilla_rnn, width: 2}\n"
        "training: {steps: 2, batch_size: 4, validation_size: 4}\ngrid: {task.delay: [4, 8]}\n"
    )
    assert main(["plan", "copying.yaml", "--no-probe"]) == 0
    assert "task.delay=4,8,20,44,92" in " ".join(capsys.readouterr().out.split())
