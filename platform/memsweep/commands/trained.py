"""``memsweep measure --sequences``: a trained model of others on sequences, measured against its own outputs."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from memsweep.commands import console
from memsweep.commands.module import SOURCE, is_required, module_fields
from memsweep.commands.outputs import check_file, write_file
from memsweep.config.load.foreign import users_faults
from memsweep.documents import Answer
from memsweep.documents.keys.runs import MeasuredItem, RunDocument
from memsweep.errors import ConfigError, filled
from memsweep.sweep.driver.launch import LIMITS
from memsweep.sweep.store.layout import default_results

if TYPE_CHECKING:
    from torch import Tensor, nn

    from memsweep.studies.python.measurement import Measurement

_MODEL = "model."
_OF_MEASUREMENT = ("model.roles.", "model.causal=")
"""Words about the model that are no arguments of its factory."""
_OF_RUNS = ("address", "nodes", "node", "max_nodes", *(f"max_{name}" for name in LIMITS))
"""Where and for how long the trials of a study run."""


@users_faults()
def measure_trained(args: argparse.Namespace, words: Sequence[str], item: Callable[..., MeasuredItem]) -> Answer:
    """Measures the model of ``args.factory`` with ``args.weights`` on ``args.sequences``.

    Args:
        args, words: of the command line.
        item: makes the document of a trial from its tables.

    Raises:
        ConfigError: something is missing or wrong; with all of it.
        ModuleError: the module cannot be built or run.
        WeightsFileError: the file holds no weights of the module.
    """
    from memsweep.studies.python.door import measure
    from memsweep.studies.python.own_outputs import read_sequences

    _refuse(args, words)
    if args.page:
        check_file(Path(args.page), "--page FILE")
    begun = time.monotonic()
    args.discover(Path(args.workspace))
    sequences = read_sequences(args.sequences)
    module, said = _module(args, words, sequences)
    settings = [word for word in words if not word.startswith(_MODEL) or word.startswith(_OF_MEASUREMENT)]
    found = measure(module, *settings, sequences=sequences, workspace=args.workspace)
    text = "\n".join(filter(None, [said, repr(found)]))
    if args.page:
        write_file(Path(args.page), found.page().text.encode())
        text += f"\npage: {console.shown(Path(args.page))}"
    return Answer(_document(found, time.monotonic() - begun, item), text=filled(text, sys.stdout))


def _refuse(args: argparse.Namespace, words: Sequence[str]) -> None:
    """Refuses what is missing, and what would be ignored."""
    from memsweep.models.module.hugging_face import PREFIX

    given, problems = vars(args), []
    if args.model or not args.factory:
        problems.append("--sequences measures a module: give --factory my_nets:Net (or hf:FOLDER).")
    if args.task:
        problems.append("--task and --sequences are two questions: give one of them.")
    elsewhere = ["--ray"] if args.inline is False else []
    elsewhere += [f"--{name.replace('_', '-')}" for name in _OF_RUNS if given[name] is not None]
    if elsewhere:
        problems.append(
            f"--sequences is one computation in this process, without limits: leave out {', '.join(elsewhere)}."
        )
    if args.results != default_results():
        problems.append("--sequences stores nothing: leave out --results.")
    sizes = [*(f"--{name}" for name in ("inputs", "outputs") if given[name] is not None), *_own(words)]
    if sizes and (args.factory or "").startswith(PREFIX):
        problems.append(f"{args.factory} has its sizes from its config: leave out {', '.join(sizes)}.")
    if problems:
        raise ConfigError(problems, SOURCE)


def _module(args: argparse.Namespace, words: Sequence[str], sequences: Tensor) -> tuple[nn.Module, str]:
    """The module with its trained weights, and a sentence about where they lay."""
    from memsweep.learning.state.found_weights import find_weights
    from memsweep.models.module.hugging_face import PREFIX, load

    if args.factory.startswith(PREFIX):
        return load(args.factory, args.weights, trust=args.trust)
    module = _built(args, words, sequences)
    if not args.weights:
        return module, f"no --weights: {args.factory} gives the model its weights, trained or not"
    found = find_weights(Path(args.weights), module.state_dict(keep_vars=True))
    module.load_state_dict(found.tensors, strict=False)  # all that are needed are there
    return module, f"weights: {found.said}"


def _built(args: argparse.Namespace, words: Sequence[str], sequences: Tensor) -> nn.Module:
    from memsweep.config.core.build import config_from
    from memsweep.models.base import Signature
    from memsweep.models.module.config import ModuleConfig
    from memsweep.models.module.factory import resolve

    given = module_fields(_own(words), Path(args.workspace))
    config = config_from(ModuleConfig, {"factory": args.factory, **given}, SOURCE)
    if config.wrap:
        raise ConfigError(["model.wrap adds an encoder and a readout that nobody trained: leave it out."], SOURCE)
    signature = Signature(_inputs(args.inputs, sequences), args.outputs or 1, sequences.shape[1])
    width, factory, name = config.width if "width" in given else None, resolve(args.factory), config.names.width
    if width is None and name not in config.arguments.plain() and is_required(factory.make, name):
        raise ConfigError([f"{args.factory} needs the argument {name}: give it as model.width=16, say"], SOURCE)
    return factory.build(signature, width, config.arguments.plain(), config.names)


def _own(words: Sequence[str]) -> list[str]:
    """The words that are arguments of the factory."""
    return [word for word in words if word.startswith(_MODEL) and not word.startswith(_OF_MEASUREMENT)]


def _inputs(given: int | None, sequences: Tensor) -> int:
    """The size of an input, or the number of ids, which may be more than the sequences show."""
    if sequences.is_floating_point():
        if given not in (None, size := sequences.shape[-1]):
            raise ConfigError([f"--inputs {given}: the inputs of the sequences have the size {size}."], SOURCE)
        return size
    fewest = int(sequences.max()) + 1
    if given is not None and given < fewest:
        raise ConfigError([f"--inputs {given}: the sequences have ids up to {fewest - 1}."], SOURCE)
    return given or fewest


def _document(found: Measurement, seconds: float, item: Callable[..., MeasuredItem]) -> RunDocument:
    measured: list[MeasuredItem] = [
        item(
            str(identity),
            own,
            found.curves.query("identity == @identity"),
            found.memory.query("identity == @identity"),
            found.guesses(str(identity)),
        )
        for identity, own in found.replicas.groupby("identity", sort=False)
    ]
    outcomes = {str(row.identity): str(row.outcome) for row in found.replicas.itertuples()}
    return {
        "study": found.name,
        "trials": len(outcomes),
        "reused": 0,
        "finished": outcomes,
        "diverged": 0,
        "failed": [],
        "left": 0,
        "stopped": None,
        "seconds": seconds,
        "inline": True,
        "time": {"seconds": seconds, "slots": 1, "phases": {}},
        "report": None,
        "tracking": None,
        "tracking_lacks": None,
        "measured": measured,
    }
