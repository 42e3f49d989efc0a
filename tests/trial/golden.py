"""Golden losses: the training losses of every task, model and unit over ten steps, which guard against silent change.

make golden                      records those that are missing, of new parts
make golden NAMES="mqar lru"     records those of these parts again: the commit says why they moved
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from arena_files import write_arena
from engine import usual_model, usual_unit
from image_files import write_cifar, write_mnist
from memsweep import registry
from memsweep.config.schema.training import LINEAR_PENALTY, NONLINEAR_PENALTY, TrainingConfig
from memsweep.config.schema.trial import PerturbationConfig, TrialConfig
from memsweep.data.folder import DATA_VARIABLE
from memsweep.trial import run_trial
from paths import ROOT
from text_files import write_ptb, write_text

FILE = Path(__file__).parent / "golden_losses.json"
TRAINING = TrainingConfig(seeds=2, steps=10, batch_size=8, validation_size=8, validate_every=1, learning_rate=0.01)
PERTURBATION = PerturbationConfig(balls=(), test_size=8)
SMALL = {"width": 4, "state_size": 4}
SHORT = {"horizon": 12, "delay": 12, "pairs": 3, "noise": 8}
LONGER = {"mackey_glass": {"horizon": 30}, "parity_recall": {"pairs": 2}}  # than twice the delay; fewer pairs
ARENA = ("imdb", "pathfinder", "retrieval", "sequential_cifar")
FEW = {
    "permuted_digits": ("rnn", "vanilla_rnn"),  # images in order have them all
    "copying_bits": ("lru", "vanilla_rnn"),
    "listops": ("lru", "vanilla_rnn"),
    **dict.fromkeys(
        ("mqar", "stacked_mqar", "selective_copying", "induction_heads", "parity_recall"), ("residual_stack",)
    ),
    **dict.fromkeys(("adding", "memory_capacity", "narma", "mackey_glass", "lag_kernel"), ("lru", "vanilla_rnn")),
    "copying_variable": ("vanilla_rnn",),
    **dict.fromkeys(("parity", "modular_counter", "flip_flop", "word_problem"), ("residual_stack",)),
    "temporal_order": ("residual_stack",),
    **dict.fromkeys(("permuted_mnist", *ARENA), ("vanilla_rnn",)),
}
STACK, OF_UNITS = "residual_stack", "copying_memory"
"""The model that has units, and the task on which each of them is trained."""

Pair = tuple[str, str]
"""A task and a model, or ``residual_stack.`` and a unit."""


def config_of(kind: str, name: str, **wanted: int) -> Any:
    """The default Config of a part, made small."""
    if kind == registry.UNIT:
        return usual_model(STACK, unit=usual_unit(name), width=8, features=8)
    config = registry.get(kind, name).Config
    fields = {field: value for field, value in wanted.items() if field in config.__dataclass_fields__}
    return usual_model(name, **fields) if kind == registry.MODEL else config(**fields)


def go_together(task: str, model: str) -> bool:
    """Whether there is a trial of the two: a text is for models that carry their states."""
    if model == "module":  # one task is enough for a module that is not ours
        return task == "copying_memory"
    if not registry.get(registry.TASK, task).carries_states:
        return model in FEW.get(task, (model,))
    return bool(registry.get(registry.MODEL, model).traits(config_of(registry.MODEL, model, **SMALL)).carries_states)


def pairs() -> list[Pair]:
    """Every task with every model that it has trials with, and every unit."""
    models = registry.names(registry.MODEL)
    with_models = [
        (task, model) for task in registry.names(registry.TASK) for model in models if go_together(task, model)
    ]
    return [*with_models, *((OF_UNITS, f"{STACK}.{unit}") for unit in registry.names(registry.UNIT))]


def losses(task: str, part: str) -> list[list[float]]:
    """Training losses: a row per seed, a column per step.

    Args:
        task: its name.
        part: see ``Pair``.
    """
    model, _, unit = part.partition(".")
    chosen = config_of(registry.UNIT, unit) if unit else config_of(registry.MODEL, model, **SMALL)
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


def write_data(folder: Path) -> None:
    """The data that tasks read: real formats, random content."""
    write_mnist(folder / "mnist")
    write_cifar(folder / "cifar10")
    write_arena(folder)
    write_ptb(folder / "ptb")
    write_text(folder / "text.txt")


def record(names: Sequence[str], file: Path) -> list[Pair]:
    """Records the losses of these parts again, and those that are missing; the pairs that were trained."""
    known = json.loads(file.read_text()) if file.exists() else {}
    wanted = [pair for pair in pairs() if set(names) & _names(pair) or " ".join(pair) not in known]
    for pair in wanted:
        known[" ".join(pair)] = losses(*pair)
        file.write_text(json.dumps(known, indent=1, sort_keys=True) + "\n")
    return wanted


def _names(pair: Pair) -> set[str]:
    task, part = pair
    return {task, part.rpartition(".")[2]}


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n\n")[0])
    parser.add_argument("names", nargs="*", metavar="NAME", help="tasks, models and units whose losses moved")
    parser.add_argument("--workspace", type=Path, default=ROOT, help="folder whose tasks/ are recorded, too")
    parser.add_argument("--file", type=Path, default=FILE, help="where they are kept (default: %(default)s)")
    given = parser.parse_args()
    for sentence in registry.discover(given.workspace):
        parser.error(sentence)
    known = {name for pair in pairs() for name in _names(pair)}
    if unknown := sorted({*given.names} - known):
        parser.error(f"there is no task, model or unit {', '.join(unknown)}; there are {', '.join(sorted(known))}")
    with tempfile.TemporaryDirectory() as folder:
        write_data(Path(folder))
        os.environ[DATA_VARIABLE] = folder
        taken = record(given.names, given.file)
    told = [f"recorded {task} with {part}" for task, part in taken]
    sys.stdout.write("\n".join(told or ["nothing is missing; NAMES= names parts to be recorded again"]) + "\n")


if __name__ == "__main__":
    main()
