"""The test set's own part of the spread of radii over seeds, where errors are means over test sequences.

Models of the study curse_of_memory with an activation are trained once and measured on several test sets that have no
sequence in common. A seed's log radii, and its limit slope in the horizon, then vary with the test set alone; over
seeds they vary with weights, test set and search. ``test_sets.json`` has a row for each condition, size of the test
sets and threshold: both standard deviations, and the share of the test set in the variance over seeds, of which a
verdict's interval is made. ``seconds`` are the processor's, of measuring the condition's four trials on one test set.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import replace
from typing import Final

import numpy as np
import pandas as pd

from benchmarks import harness
from benchmarks.harness import ROOT, Options, Row
from memsweep import trial
from memsweep.config.load.study import load_study
from memsweep.config.schema.canonical import to_dict
from memsweep.config.schema.trial import TrialConfig
from memsweep.learning.state.trained import Trained
from memsweep.stability.verdict.radius import THRESHOLDS, stability_radii
from memsweep.stability.verdict.trend import slope_weights

HORIZONS: Final = (16, 32, 64, 128)
OVERRIDES: Final = (
    f"grid.rows=[{', '.join(f'{{task: {{horizon: {horizon}}}}}' for horizon in HORIZONS)}]",
    "grid.model=[{name: diagonal_rnn, activation: tanh, parameterization: direct}, "
    "{name: vanilla_rnn, activation: tanh}]",
    "model.width=8",
    "perturbation.balls=[recurrent]",
    "perturbation.stronger_every=0",
)
QUICK: Final = (
    "grid.model=[{name: diagonal_rnn, activation: tanh, parameterization: exp}]",
    "grid.task=[{kernel: exponential}]",
    "training.seeds=2",
    "training.steps=400",
    "perturbation.radii.count=4",
    "perturbation.ascent_steps=1",
)
SIZES: Final = (64, 512, 4096)
TEST_SETS: Final = 5


def run(options: Options) -> None:
    """Measure, print and write ``test_sets.json``."""
    harness.one_thread()
    conditions: dict[tuple[str, str], list[TrialConfig]] = {}
    for config in load_study("curse_of_memory", (*OVERRIDES, *(QUICK if options.quick else ())), ROOT).rows:
        conditions.setdefault((config.model.name, to_dict(config.task)["kernel"]), []).append(config)
    rows: list[Row] = []
    for (model, kernel), configs in conditions.items():
        own: Row = {"model": model, "kernel": kernel}
        if options.wants(own):
            trained = [_trained(config) for config in configs]
            for size in (2, 4) if options.quick else SIZES:
                rows += [own | {"test_size": size} | row for row in _rows(configs, trained, size)]
    harness.publish("test_sets", {"test_sets": TEST_SETS}, rows, options)


def _trained(config: TrialConfig) -> dict[int, Trained]:
    """The trained weights of each seed."""
    pack = trial.train_replicas([config])
    return {one.seed: one for _, _, ensemble in pack.ensembles for one in ensemble.replicas.values()}


def _rows(configs: list[TrialConfig], trained: list[dict[int, Trained]], size: int) -> Iterator[Row]:
    """A row for the smallest threshold and one for the largest; None where a radius is outside of the grid."""
    began = time.process_time()
    numbers = range(TEST_SETS)
    radii = pd.concat([_radii(*one, size, n) for n in numbers for one in zip(configs, trained, strict=True)])
    seconds = (time.process_time() - began) / TEST_SETS
    weights = slope_weights(np.array(HORIZONS, dtype=float), 1.0)
    for threshold in (THRESHOLDS[0], THRESHOLDS[-1]):
        own = radii[radii["threshold"] == threshold]
        fitting = own.groupby("test_set")["valid"].sum()
        row: Row = {"threshold": threshold, "models": len(own) // TEST_SETS}
        row |= {"fit_least": int(fitting.min()), "fit_most": int(fitting.max())}
        known = own["radius"].where(own["censored"] == "")
        table = own.assign(radius=known).pivot(index=["test_set", "seed"], columns="horizon", values="radius")
        logs = np.log(table.to_numpy()).reshape(TEST_SETS, -1, len(HORIZONS))
        for name, values in (("radius", logs), ("slope", logs @ weights)):
            test_set, seeds = values.var(0, ddof=1).mean(), values.var(1, ddof=1).mean()
            row |= {f"{name}_sd_test_set": math.sqrt(test_set), f"{name}_sd_seeds": math.sqrt(seeds)}
            row |= {f"{name}_share": test_set / seeds}
        row = {name: None if value != value else value for name, value in row.items()} | {"seconds": seconds}
        harness.tell(row)
        yield row


def _radii(config: TrialConfig, trained: dict[int, Trained], size: int, number: int) -> pd.DataFrame:
    """The radii of the trained models on another test set, with its number."""
    other = replace(
        config,
        training=replace(config.training, data_seed=config.training.data_seed + number),
        perturbation=replace(config.perturbation, test_size=size),
    )
    result = trial.run_trial(other, trial.RunOptions(trained=[trained]))
    return stability_radii(result.tables["curves"]).assign(test_set=number)
