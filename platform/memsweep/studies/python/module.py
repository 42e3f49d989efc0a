"""The measurement of a model in memory: what a study measures of its trained models, without a study."""

from __future__ import annotations

import contextlib
import hashlib
import json
import shutil
import tempfile
import time
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from memsweep import registry
from memsweep.config.load.overrides import parse
from memsweep.config.load.study import study_of
from memsweep.config.schema.canonical import to_dict
from memsweep.config.schema.study import SweepConfig
from memsweep.config.schema.trial import SELF, TrialConfig
from memsweep.errors import ConfigError, one_of
from memsweep.learning.state.weights_file import to_bytes
from memsweep.models.base import Model
from memsweep.models.contracts import default_dtype
from memsweep.models.module.factory import to_dtype
from memsweep.models.module.model import Module
from memsweep.models.module.steps import step_of, with_steps
from memsweep.report.analysis.contents import Contents, analyse
from memsweep.report.read.known import Known
from memsweep.report.read.study import Study
from memsweep.studies.cells import name_of_callable
from memsweep.studies.overrides import plain, words_of
from memsweep.studies.python.in_memory import copies_of, name_of, named
from memsweep.studies.python.measurement import Measurement
from memsweep.studies.python.own_outputs import LEAST, NAME, OwnOutputs, drawn, read_sequences, write_own_outputs
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.record import SCHEMA
from memsweep.sweep.store.results import Store
from memsweep.sweep.worker.provenance import collect, guesses_of
from memsweep.trial import run_trial

_SOURCE = "the measurement"
_SECTIONS = ("task.", "perturbation.", "model.roles.")
_FIELDS = ("perturbation", "training.dtype", "training.first_seed", "model.tokens", "model.roles", "model.causal")
"""Settings of a measurement; any other would be one of a model that is trained."""
_MOST = 64
"""Test sequences of a model of others, where it is given more and nothing is said."""
_USUAL = (
    "perturbation.balls=[recurrent]",
    "perturbation.starts=1",  # the identity, where theory begins, moves no antisymmetric matrix
    "perturbation.ascent_steps=16",
    "perturbation.stronger_every=0",
    "perturbation.radii={from: 0.001, to: 1, count: 7}",
)
"""Of a measurement on sequences, where nothing else is said: minutes for a model of some million weights."""
_DRAWN = ""
"""In place of a file of weights: a class has none, and its module draws them."""


def measured_in_memory(module: Any, overrides: Sequence[object], workspace: str | Path, sequences: Any) -> Measurement:
    """Measures a model in memory.

    Args:
        module: as of ``measured``.
        overrides: the task first, where there are no sequences.
        workspace: as of ``measured``.
        sequences: as of ``measured_on``; or None.

    Raises:
        ConfigError, ModuleError: as of ``measured`` and ``measured_on``.
    """
    if sequences is not None and overrides and _is_task(overrides[0]):
        wrong = f"got the task {overrides[0]!r} and sequences, which stand in the place of one: give one of the two."
        raise ConfigError([wrong], "measure")
    if sequences is not None:
        return _in_own_folder(measured_on, module, sequences, words_of(overrides), Path(workspace))
    if not overrides:
        names = one_of(registry.names(registry.TASK))
        raise ConfigError(
            [
                "the task is missing: measure(module, 'linear_functional', ...), or without a task "
                f"measure(module, sequences=x). Tasks: {names}."
            ],
            "measure",
        )
    task, *others = overrides
    return _in_own_folder(measured, module, task, words_of(others), Path(workspace))


def _is_task(given: object) -> bool:
    """Whether the first override is a task: its name, or a dict with it."""
    named = isinstance(given, str) and given in registry.names(registry.TASK)
    return named or (isinstance(given, Mapping) and "name" in given)


def _in_own_folder(measure: Callable[..., Contents], *arguments: Any) -> Measurement:
    """Measures in a temporary folder, which goes with the results.

    Args:
        measure: ``measured`` or ``measured_on``.
        arguments: its own, but for the folder.
    """
    folder = Path(tempfile.mkdtemp(prefix="memsweep-"))
    try:
        contents = measure(*arguments, folder)
    except BaseException:
        shutil.rmtree(folder, ignore_errors=True)
        raise
    # the weights are read from there, by these results and by those that are judged by other criteria
    weakref.finalize(contents.study, shutil.rmtree, folder, True)
    return Measurement(Location.at(folder / "results"), contents)


def measured(
    module: nn.Module | Callable[..., nn.Module], task: Any, words: Sequence[str], workspace: Path, folder: Path
) -> Contents:
    """Measures a model in memory on a task.

    Args:
        module: a user's, or a registered model; it is not changed. Or a class or function that makes one.
        task: its name, or a dict with ``name`` and its fields.
        words: overrides.
        workspace: folder that may hold tasks/.
        folder: empty; the weights and the results of the measurement go there.

    Raises:
        ConfigError: a setting is wrong.
        ModuleError: the module cannot be measured.
    """
    if not isinstance(module, nn.Module) and callable(module):
        factory = name_of_callable(module)
        section = {"name": "module", "factory": factory}
        sweep = _study(factory.partition(":")[2], section, _DRAWN, task, words, workspace)
        return analyse(_measured(sweep, Store(folder / "results")))
    copies_of(module)  # refuses what is no module
    with _section(module, folder) as (model, weights):
        sweep = _study(name_of(module), model, weights, task, words, workspace)
        return analyse(_measured(sweep, Store(folder / "results")))


def measured_on(module: nn.Module, sequences: Any, words: Sequence[str], workspace: Path, folder: Path) -> Contents:
    """Measures a model in memory on sequences, against its own outputs.

    Args:
        module: a user's; it is not changed.
        sequences: as of ``read_sequences``.
        words, workspace, folder: as of ``measured``.

    Raises:
        ConfigError, ModuleError: as of ``measured`` and ``read_sequences``.
    """
    given = read_sequences(sequences)
    own = with_steps(copies_of(module)()).eval()
    to_dtype(own, torch.float64, "cpu")
    ids, steps = not given.is_floating_point(), step_of(own) is not None
    measures = [registry.get(registry.MEASURE, name) for name in registry.names(registry.MEASURE)]
    asked = [word for measure in measures for word in measure.in_short(steps=steps, ids=ids)]
    form = ["model.tokens=true"] if ids else []

    def study(count: int) -> SweepConfig:
        """The study of ``count`` sequences. Errors are shares of their variance, so all of them are tested."""
        file = folder / f"{count}_sequences.safetensors"
        with default_dtype(torch.float64):
            write_own_outputs(own, drawn(given, count), file, len(given))
        usual = [f"perturbation.reference={SELF}", f"perturbation.test_size={count}", *_USUAL, *asked]
        task = {"name": NAME, "file": str(file)}
        return _study(name_of(module), model, weights, task, [*form, *usual, *words], workspace)

    with registry.lent(registry.TASK, NAME, OwnOutputs), _section(own, folder) as (model, weights):
        sweep = study(count := min(len(given), _asked(words)))
        sizes = sorted({row.perturbation.test_size for row in sweep.rows})
        if len(sizes) > 1:
            wrong = f"perturbation.test_size has the values {', '.join(map(str, sizes))}; give one for each measurement"
            raise ConfigError(
                [f"{wrong}: errors are shares of the variance over the sequences that are tested."], _SOURCE
            )
        if (asked_for := min(len(given), *sizes)) != count:
            sweep = study(asked_for)
        return analyse(_measured(sweep, Store(folder / "results")))


@contextlib.contextmanager
def _section(module: nn.Module, folder: Path) -> Iterator[tuple[dict[str, Any], str]]:
    """The section ``model`` of a study of this module, and the file of its weights."""
    file = folder / "weights.safetensors"
    whole = {name: value.detach().cpu().clone() for name, value in module.state_dict().items()}  # tied ones, too
    file.write_bytes(to_bytes(whole))
    if isinstance(module, Model) and not isinstance(module, Module):
        yield to_dict(module.config), str(file)
        return
    with named(module) as factory:
        yield {"name": "module", "factory": factory, "width_argument": None}, str(file)


def _asked(words: Sequence[str]) -> int:
    """The number of test sequences that overrides ask for; a section as a whole is read by the study alone.

    Raises:
        ConfigError: too few.
    """
    count = dict(parse(words).values).get("perturbation.test_size", _MOST)
    if type(count) is not int:
        return _MOST  # the check of the study tells what is wrong
    if count < LEAST:
        wrong = f"perturbation.test_size is {count}; at least {LEAST} sequences are needed"
        raise ConfigError([f"{wrong}: errors are shares of what differs among them."], _SOURCE)
    return count


def _study(
    name: str, model: Mapping[str, Any], weights: str, task: Any, words: Sequence[str], workspace: Path
) -> SweepConfig:
    """A study that trains nothing. Nothing may change the weights: no step, and no merging of modes."""
    paths = [word.partition("=")[0].lstrip("+~").removeprefix("grid.") for word in words]
    sections = _SECTIONS if weights != _DRAWN else (*_SECTIONS, "model.")
    refused = [path for path in paths if not path.startswith(sections) and path not in _FIELDS]
    if refused:
        others = [name for name in _FIELDS if not f"{name}.".startswith(sections)]
        allowed = ", ".join([*(f"{section}*" for section in sections), *others])
        rule = f"this measures one model and trains nothing: got {', '.join(refused)}, allowed are {allowed}."
        raise ConfigError([f"{rule} To train models like it, sweep a study."], _SOURCE)
    training = {"steps": 0, "seeds": 1, "merge_redundant": False, "weights": weights}
    section = plain(task) if isinstance(task, Mapping) else {"name": str(task)}
    written = {"name": name, "task": section, "model": dict(model), "training": training}
    return study_of(written, words, workspace, f"{name} with its weights, as they are.", _SOURCE)


def _measured(sweep: SweepConfig, store: Store) -> Study:
    rows = {_identity(row): row for row in sweep.rows}
    for identity, row in rows.items():
        _measure(sweep.name, identity, row, store)
    known = Known()
    known.read(store, [*rows])
    return Study(
        name=sweep.name,
        description=sweep.description,
        planned=len(rows),
        records=known.records,
        tables=known.tables([*rows]),
        missing=(),
        left_out=0,
        claims=None,
        protocol=sweep.protocol,
        rows={identity: record["config"] for identity, record in known.records.items()},
    )


def _identity(trial: TrialConfig) -> str:
    """Of a measurement that is not stored: its settings alone tell it from the others."""
    return hashlib.sha256(json.dumps(to_dict(trial), sort_keys=True, default=str).encode()).hexdigest()


def _measure(study: str, identity: str, trial: TrialConfig, store: Store) -> None:
    begun, guesses = time.monotonic(), guesses_of(trial)
    result = run_trial(trial)
    provenance = collect("", seconds={"measurement": time.monotonic() - begun}, pack=[identity]) | guesses
    record = {
        "schema": SCHEMA,
        "identity": identity,
        "study": study,
        "outcome": str(result.outcome),
        "config": to_dict(result.config),
        "summary": result.summary,
        "provenance": provenance,
    }
    tables = {table: frame.assign(identity=identity) for table, frame in result.tables.items()}
    store.write(identity, record, tables, result.weights)
