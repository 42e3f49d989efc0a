"""Time of a perturbation sweep of one model, against what the published evaluation computes for it.

A sweep is 631 copies of a model, 21 radii with 30 random draws each and the model itself, each judged on 12 800 test
sequences of 100 steps. The published code runs its loop over all of them, in batches of 512, for every copy; one copy
is measured and counted 631 times. That it also generates its data anew at every copy is left out.

Ours is ``memsweep.stability.perturbation.error`` with the same draws. A linear model's loss on the test sequences is
an exact quadratic form of its impulse response; making the form, once for all models of a pack, is part of the time. A
tanh model runs over the sequences: two shares of the copies are measured, and the line through them says what all cost.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any, Final

import torch

from benchmarks import harness
from benchmarks.harness import Options, Row
from benchmarks.published.loop import PublishedLoop
from benchmarks.steps.product import Pack, first_model, sequences, trial_config
from memsweep.config.schema.trial import PerturbationConfig, RadiiConfig
from memsweep.stability.perturbation.error import perturbation_error
from memsweep.streams import TEST, Stream

RADII, DRAWS = 21, 30
COPIES: Final = RADII * DRAWS + 1
SEQUENCES: Final = 12_800
BATCH: Final = 512
HORIZON: Final = 100
PUBLISHED: Final = PerturbationConfig(
    radii=RadiiConfig(from_=1e-3, to=1.024, count=RADII), norm="entrywise", balls=("all",), method="random",
    repeats=DRAWS, balance=False, error="sampled", test_size=SEQUENCES,
)  # fmt: skip
SHARES: Final = ((2, 10), (2, 30))
"""Radii and draws of the two shares of a tanh model's copies."""
TARGETS: Final = {"linear": 9000.0, "tanh": 9.0}


@dataclass(frozen=True)
class Case:
    """One model, or a pack of them."""

    activation: str
    width: int
    models: int


CASES: Final = tuple(
    [Case("linear", width, models) for width in (8, 64) for models in (1, 64)]
    + [Case("tanh", width, 1) for width in (8, 64)]
)


class Sweep:
    """Our side: the errors of every model of a pack at every radius.

    Args:
        pack: the models, at their initial weights.
        drawn: the test sequences.
        config: radii and draws.
    """

    def __init__(self, pack: Pack, drawn: Any, config: PerturbationConfig) -> None:
        self.pack, self.drawn, self.config = pack, drawn, config
        self.copies = config.radii.count * config.repeats + 1

    def run(self) -> list[torch.Tensor]:
        data = self.pack.task_loss.prepare(self.drawn)
        return [
            perturbation_error(
                learner.ensemble, self.pack.task_loss, data, learner.weights, learner.targets, "all", self.config
            ).errors
            for learner in self.pack.learners
        ]


def evaluated(loop: PublishedLoop, data: tuple[torch.Tensor, ...]) -> float:
    """The published evaluation of one copy: the mean of its batches' losses."""
    inputs, targets, weights = data
    with torch.no_grad():
        batches = zip(inputs.split(BATCH), targets.split(BATCH), strict=True)
        losses = [loop.loss(x, y, weights) * len(x) for x, y in batches]
    return float(torch.stack(losses).sum() / len(inputs))


def measured(case: Case, size: int, pairs: int) -> Row:
    """A row; ``size`` test sequences."""
    config = trial_config(
        "diagonal_rnn", horizon=HORIZON, seeds=case.models, width=case.width, activation=case.activation
    )
    pack = Pack.of(config)
    data = sequences(config, size)
    drawn = pack.task_loss.draw(Stream(0, TEST), 0, size)
    loop = PublishedLoop.like(first_model(config))
    shares = SHARES if case.activation == "tanh" else ((RADII, DRAWS),)
    sweeps = [Sweep(pack, drawn, _share(radii, draws)) for radii, draws in shares]
    sides = {"baseline": lambda: evaluated(loop, data)} | {str(sweep.copies): sweep.run for sweep in sweeps}
    times = harness.alternate(sides, pairs=pairs, shortest=harness.SHORTEST if size == SEQUENCES else 0.002)
    ours = [seconds / case.models for seconds in _whole([times[str(s.copies)] for s in sweeps], sweeps)]
    published = [seconds * COPIES for seconds in times["baseline"]]
    return (
        {"model": "diagonal_rnn", "activation": case.activation, "width": case.width, "models": case.models}
        | {"milliseconds_per_model": 1e3 * harness.median(ours), "ratio": harness.ratio(published, ours)}
        | {"target": TARGETS[case.activation], "baseline_seconds": harness.median(published), "pairs": pairs}
        | {"copies": COPIES, "copies_measured": ", ".join(str(sweep.copies) for sweep in sweeps), "sequences": size}
    )


def _share(radii: int, draws: int) -> PerturbationConfig:
    return replace(PUBLISHED, radii=replace(PUBLISHED.radii, count=radii), repeats=draws)


def _whole(times: list[list[float]], sweeps: list[Sweep]) -> list[float]:
    """Seconds of all copies, round by round: measured, or on the line through the two shares."""
    if len(sweeps) == 1:
        return times[0]
    few, many = sweeps
    part = (COPIES - many.copies) / (many.copies - few.copies)
    return [more + part * (more - less) for less, more in zip(*times, strict=True)]


def run(options: Options) -> None:
    """Measure, print and write ``perturbation.json``."""
    harness.one_thread()
    size, pairs = (64, 2) if options.quick else (SEQUENCES, harness.PAIRS)
    wanted = [case for case in CASES if not (options.quick and case.width > 8) and options.wants(vars(case))]
    settings = {
        "baseline": f"published loop, forward only, batches of {BATCH}, one copy measured, times {COPIES}",
        "clock": "CPU time of the process, one thread",
        "copies": f"{RADII} radii x {DRAWS} draws + 1",
        "horizon": HORIZON,
        "linear": "the quadratic form of the test sequences is made within the time",
        "tanh": "the line through the two measured numbers of copies, at all of them",
    }
    rows = []
    for case in wanted:
        rows.append(measured(case, size, pairs))
        harness.tell(rows[-1])
    harness.publish("perturbation", settings, rows, options)
