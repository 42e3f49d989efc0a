"""Training losses of every task with every model that it has trials with, over ten steps, guard against silent change.

A change that is meant to move them says why in its commit, after

    MEMSWEEP_GOLDEN=write make test ARGS="tests/trial/test_golden.py"
"""

from __future__ import annotations

import dataclasses
import json
import os
from pathlib import Path
from typing import Any

import pytest

from arena_files import write_arena
from engine import usual_model
from image_files import write_cifar, write_mnist
from memsweep import registry
from memsweep.config.schema.training import LINEAR_PENALTY, NONLINEAR_PENALTY, TrainingConfig
from memsweep.config.schema.trial import PerturbationConfig, TrialConfig
from memsweep.trial import run_trial
from paths import ROOT
from text_files import write_ptb, write_text

registry.discover(ROOT)
FILE = Path(__file__).parent / "golden_losses.json"
TRAINING = TrainingConfig(seeds=2, steps=10, batch_size=8, validation_size=8, validate_every=1, learning_rate=0.01)
PERTURBATION = PerturbationConfig(balls=(), test_size=8)
SMALL = {"width": 4, "state_size": 4}
SHORT = {"horizon": 12, "delay": 12, "pairs": 3, "noise": 8}
LONGER = {"mackey_glass": {"horizon": 30}}  # than twice the delay
ARENA = ("imdb", "pathfinder", "retrieval", "sequential_cifar")
FEW = {
    "permuted_digits": ("rnn", "vanilla_rnn"),  # images in order have them all
    "copying_bits": ("lru", "vanilla_rnn"),
    "listops": ("lru", "vanilla_rnn"),
    **dict.fromkeys(("mqar", "stacked_mqar", "selective_copying", "induction_heads"), ("residual_stack",)),
    **dict.fromkeys(("adding", "memory_capacity", "narma", "mackey_glass", "lag_kernel"), ("lru", "vanilla_rnn")),
    **dict.fromkeys(("parity", "modular_counter", "flip_flop", "word_problem"), ("residual_stack",)),
    "temporal_order": ("residual_stack",),
    **dict.fromkeys(("permuted_mnist", *ARENA), ("vanilla_rnn",)),
}


def config_of(kind: str, name: str, **wanted: int) -> object:
    """The default Config of a part, made small."""
    config = registry.get(kind, name).Config
    if kind == registry.MODEL:
        return usual_model(
            name, **{field: value for field, value in wanted.items() if field in config.__dataclass_fields__}
        )
    return config(**{field: value for field, value in wanted.items() if field in config.__dataclass_fields__})


def go_together(task: str, model: str) -> bool:
    """Whether there is a trial of the two: a text is for models that carry their states."""
    if model == "module":  # one task is enough for a module that is not ours
        return task == "copying_memory"
    if not registry.get(registry.TASK, task).carries_states:
        return model in FEW.get(task, (model,))
    return bool(registry.get(registry.MODEL, model).traits(config_of(registry.MODEL, model, **SMALL)).carries_states)


PAIRS = [
    (task, model)
    for task in registry.names(registry.TASK)
    for model in registry.names(registry.MODEL)
    if go_together(task, model)
]


def losses(task: str, model: str) -> list[list[float]]:
    """Training losses: a row per seed, a column per step."""
    chosen: Any = config_of(registry.MODEL, model, **SMALL)
    linear = registry.get(registry.MODEL, model).traits(chosen).linear
    # with the penalty of a study of stability, which the gradient must have too
    penalty = LINEAR_PENALTY if linear else NONLINEAR_PENALTY
    trial = TrialConfig(
        task=config_of(registry.TASK, task, **SHORT | LONGER.get(task, {})),
        model=chosen,
        training=dataclasses.replace(TRAINING, amplitude_penalty=penalty),
        perturbation=PERTURBATION,
    )
    history = run_trial(trial).tables["history"]
    taken = history[history["step"] > 0].sort_values(["seed", "step"])
    return [part["train_loss"].tolist() for _, part in taken.groupby("seed")]


@pytest.mark.parametrize(("task", "model"), PAIRS, ids=[f"{task}-{model}" for task, model in PAIRS])
def test_the_first_ten_losses_are_the_recorded_ones(
    task: str, model: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write_mnist(tmp_path / "mnist")
    if task in ARENA:
        write_cifar(tmp_path / "cifar10")
        write_arena(tmp_path)
    write_ptb(tmp_path / "ptb")
    write_text(tmp_path / "text.txt")
    monkeypatch.setenv("MEMSWEEP_DATA", str(tmp_path))
    found, known = losses(task, model), json.loads(FILE.read_text()) if FILE.exists() else {}
    name = f"{task} {model}"
    if os.environ.get("MEMSWEEP_GOLDEN") == "write":
        known[name] = found
        FILE.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
    assert name in known, f"no golden losses of {name}: record them (see the head of this file)"
    for ours, theirs in zip(found, known[name], strict=True):
        assert len(ours) == 10
        assert ours == pytest.approx(theirs, rel=1e-6)  # rounding differs between processors, not more
