"""The search for the worst push: which part of it a study's search finds, and what a trial's measurement takes.

Two tables, a row of ``worst_push.json`` each:

- ``found``: for each family of models, trained for a moment, the error that the search finds at the shipped settings
  over the one that 60 starts of 60 steps find, at the two radii that decide (the first beyond the smallest threshold
  and the first beyond the largest), the smaller of both. And the processor's time of the two.
- ``trial``: a minGRU as a plain torch module, width 16, with everything at its default: processor seconds of training
  and of the whole measurement (five seeds, both balls, 30 radii), and what ``memsweep plan`` expects of them.
"""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, Final

from benchmarks import harness
from benchmarks.harness import ROOT, Options, Row
from memsweep import registry, trial
from memsweep.config.load.study import study_of
from memsweep.config.schema.study import ResourcesConfig
from memsweep.config.schema.trial import TrialConfig
from memsweep.stability import evaluation
from memsweep.stability.perturbation.error import perturbation_error, stronger_change
from memsweep.stability.verdict.radius import THRESHOLDS
from memsweep.sweep.estimate.benchmark import benchmark
from memsweep.sweep.planning.identity import Arithmetic

MIN_GRU: Final = {"name": "module", "factory": "tests/support/nets/min_gru.py:MinGRU"}
FAMILIES: Final[dict[str, dict[str, Any]]] = {
    "diagonal, exp": {"name": "diagonal_rnn", "parameterization": "exp"},
    "diagonal, exp, normalized": {"name": "diagonal_rnn", "parameterization": "exp", "normalize": True},
    "lru, normalized": {"name": "lru", "normalize": True},
    "dense, exp": {"name": "dense_rnn", "parameterization": "exp"},
    "diagonal, exp, tanh": {"name": "diagonal_rnn", "parameterization": "exp", "activation": "tanh"},
    "vanilla, tanh": {"name": "vanilla_rnn", "activation": "tanh"},
    "expRNN, modReLU": {"name": "exp_rnn", "activation": "modrelu"},
    "stable_ssm, relative": {"name": "stable_ssm", "frequency": "relative"},
    "two LRU layers": {"name": "residual_stack", "layers": 2, "mixing": "none", "norm": "none"},
    "minGRU": MIN_GRU,
}
_MATRIX: Final = {"activation": "linear", "initialization": "random_orthogonal", "width": 32}
ORTHOGONAL_MEMORY: Final[dict[str, dict[str, Any]]] = {
    "free matrix": {"name": "rnn", **_MATRIX},
    "nnRNN": {"name": "nn_rnn", **_MATRIX},
}
"""Of the study orthogonal_memory, with its task and its few radii."""
PROBE: Final = 120.0
"""Seconds of the clock for the measurement of a few steps; `memsweep plan` takes 20, on a machine that is not busy."""
STARTS, STEPS = 10, 20
"""The stronger search takes three times as many random starts, as many random signs, and three times the steps."""


def run(options: Options) -> None:
    """Measure both tables."""
    harness.one_thread()
    registry.discover(ROOT)
    rows = [_found(name, model, options.quick) for name, model in (FAMILIES | ORTHOGONAL_MEMORY).items()]
    rows.append(_trial(options.quick))
    harness.publish("worst_push", {"starts": 6 * STARTS, "steps": 3 * STEPS}, rows, options)


def _config(model: dict[str, Any], quick: bool, **training: Any) -> TrialConfig:
    """A trial that learns an exponential memory; what is not given is at its default."""
    study: dict[str, Any] = {
        "name": "worst_push",
        "task": {"name": "linear_functional", "kernel": "exponential", "rate": 0.2, "horizon": 8 if quick else 64},
        "model": model,
        "training": training,
    }
    if model in ORTHOGONAL_MEMORY.values():
        study["task"] |= {"rate": 1.0, "horizon": 8 if quick else 24}
        study["training"] |= {"batch_size": 32, "validation_size": 256}
        study["perturbation"] = {"radii": {"from": 0.001, "to": 1, "count": 9}}
    if quick:
        study["perturbation"] = {"radii": {"count": 3}, "starts": 1, "ascent_steps": 1, "test_size": 8}
    (config,) = study_of(study, (), ROOT, "").rows
    return config


def _found(name: str, model: dict[str, Any], quick: bool) -> Row:
    """The worst error that the usual search found, for one seed and the recurrent weights."""
    config = _config({"width": 2 if quick else 8, **model}, quick, seeds=1, steps=4 if quick else 400)
    trained = trial.train_replicas([config])
    ((_, _, pack),) = trained.ensembles
    loss = pack.split(trained.loss)
    targets = pack.ensemble.spread([loss.target(replica.trial) for replica in pack.ensemble.replicas])
    ((rows, part, data, sample),) = evaluation.parts_of(pack.ensemble, loss, config)
    own = (pack.weights[rows], targets[rows], "recurrent")
    began = time.process_time()
    chance = trained.tasks[0].chance()
    limits = pack.weights.new_tensor([chance * THRESHOLDS[0], chance * THRESHOLDS[-1]]).expand(len(rows), -1)
    usual = perturbation_error(part, loss, data, *own, config.perturbation, sample, limits=limits)
    between = time.process_time()
    effort = config.perturbation if quick else replace(config.perturbation, starts=STARTS, ascent_steps=STEPS)
    stronger = stronger_change(part, loss, data, *own, effort, usual.crossings, usual.at_crossings, sample)
    seconds, more = between - began, time.process_time() - between
    shares = (usual.at_crossings / stronger)[0]
    row: Row = {"table": "found", "model": name, "width": config.model.width}
    row |= {"unperturbed": float(usual.errors[0, 0]) / chance, "found": float(shares.min())}
    row |= {"seconds": seconds, "stronger_seconds": more}
    harness.tell(row)
    return row


def _trial(quick: bool) -> Row:
    """Training and measurement of a whole trial, and the plan's seconds of it."""
    config = _config({"width": 4 if quick else 16, **MIN_GRU}, quick, seeds=2 if quick else 5)
    if quick:
        config = replace(config, training=replace(config.training, steps=4))
    planned = benchmark({"": [config]}, Arithmetic.of(ResourcesConfig()), 1, ROOT, PROBE).measured[""]
    seconds: dict[str, float] = {}

    @contextmanager
    def phase(name: str) -> Iterator[None]:
        began = time.process_time()
        yield
        seconds[name] = seconds.get(name, 0.0) + time.process_time() - began

    trial.run_trial(config, trial.RunOptions(phase=phase))
    row: Row = {"table": "trial", "model": "minGRU", "width": config.model.width}
    row |= {"seconds": seconds["perturbation"], "training_seconds": seconds["training"]}
    row |= {
        "planned_seconds": planned.seconds([config]),
        "planned_over_taken": planned.seconds([config]) / sum(seconds.values()),
    }
    harness.tell(row)
    return row
