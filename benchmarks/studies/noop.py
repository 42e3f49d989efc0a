"""A study whose trials do nothing: the whole way from a study file to a report, with invented numbers of true shape.

Everything is the product's own (configs, plan, Ray, store, tracking, report) except ``run_pack``: in its place stands
``invented``, which fills the tables that a real trial fills. What is timed is what a trial costs beside its training.
"""

from __future__ import annotations

import json
import math
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path

from benchmarks.studies.whole import Whole, as_json, whole
from memsweep import registry
from memsweep.config.schema.trial import TrialConfig
from memsweep.learning.state.trained import Trained
from memsweep.outcome import Outcome
from memsweep.stability.evaluation import Point
from memsweep.stability.measure import Measurement
from memsweep.stability.perturbation.error import radius_grid
from memsweep.stability.verdict.radius import THRESHOLDS
from memsweep.sweep.worker.execute import PackJob, PackReport, Progress, execute_pack
from memsweep.trial import RunOptions, TrialResult, result_of

PER_RATE = 100
"""Trials of the study for each rate of the kernel: 5 parameterizations x 4 horizons x 5 widths."""

STUDY = """\
# Trials that do nothing.
task: {name: linear_functional, kernel: exponential}
model: {name: diagonal_rnn, width: 2, parameterization: exp}
training: {seeds: 5, steps: 100, batch_size: 8, validation_size: 16, validate_every: 10}
perturbation: {radii: {from: 1e-3, to: 1.0, count: 12}, balls: [recurrent, all], starts: 1, ascent_steps: 2}
grid:
  task.rate: [1.0]
  task.horizon: [8, 16, 32, 64]
  model.parameterization: [direct, exp, softplus, best, sigmoid]
  model.width: [2, 3, 4, 6, 8]
"""


def invented(configs: Sequence[TrialConfig], options: RunOptions) -> list[TrialResult]:
    """Results of the shape that ``memsweep.trial.run_pack`` gives, without training."""
    with options.phase("tables"):
        return [_result(config) for config in configs]


def no_work(job: PackJob, progress: Progress) -> PackReport:
    """Does a worker's part in a job of this study: all of its duties, with invented results."""
    return execute_pack(job, progress, invented)


def _result(config: TrialConfig) -> TrialResult:
    task = registry.get(registry.TASK, config.task.name)(config.task)
    training = config.training
    seeds = range(training.first_seed, training.first_seed + training.seeds)
    return result_of(config, task, [_measurement(config, seed, task.horizon, task.chance()) for seed in seeds])


def _measurement(config: TrialConfig, seed: int, horizon: int, chance: float) -> Measurement:
    """A replica whose radius falls with the horizon, not quite alike for each seed."""
    steps, every = config.training.steps, config.training.validate_every
    reach = horizon ** (-0.5 + 0.01 * (seed % 5))
    error = chance * 1e-3 * (1 + seed / 7)
    radii = radius_grid(config.perturbation.radii).tolist()
    changes = [(radius, chance * (radius / reach) ** 2) for radius in (0.0, *radii)]
    curve = [Point(radius, error + change, change) for radius, change in changes]
    curve += [Point(reach * each**0.5, error + each * chance, each * chance, each) for each in THRESHOLDS]
    trained = Trained(
        seed=seed,
        outcome=Outcome.DONE,
        steps=steps,
        best_step=steps,
        validation_loss=error,
        gradient_over_weight={"max": 1.0, "median": 0.5, "q90": 0.9},
        history=[(step, chance / (1 + step), chance / (1 + step)) for step in range(0, steps + 1, every)],
        observed={},
        weights={},
    )
    return Measurement(
        trained=trained,
        error=error,
        curves={ball: list(curve) for ball in config.perturbation.balls},
        metrics={},
        memory=[math.exp(-lag / 8) for lag in range(horizon)],
        gradient=[1.0] * horizon,
        gradient_bound=[1.0] * horizon,
        margin=0.1,
        encoder_norm=1.0,
        readout_norm=1.0,
        micro_batch=None,
        reading=config.perturbation.reading,
    )


def drill(trials: int, *, apart: bool = False, inline: bool = False) -> Whole:
    """Run the study of so many trials in a folder that is gone afterwards.

    Args:
        trials: a multiple of PER_RATE.
        apart, inline: see ``whole``.
    """
    rates = [round(0.2 + 0.01 * index, 4) for index in range(trials // PER_RATE)]
    with tempfile.TemporaryDirectory(prefix="memsweep-noop-") as folder:
        study = Path(folder) / "noop.yaml"
        study.write_text(STUDY, encoding="utf-8")
        axis = (f"grid.task.rate={json.dumps(rates)}",)
        return whole(str(study), axis, Path(folder) / "results", apart=apart, work=no_work, inline=inline)


if __name__ == "__main__":
    words = sys.argv[2:]
    print(as_json(drill(int(sys.argv[1]), apart="apart" in words, inline="inline" in words)))
