"""Time of a perturbation step against the memory that its slices may take.

It is what ``memsweep.stability.perturbation.ascent.BUDGETS`` was chosen by. For some ensembles, the whole step (worst
case, the ball of all weights) is run with every budget in turn; a row says, for one budget, the highest peak of the
tensors' bytes, the seconds, and their ratio to the budget that is in use.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass, replace
from functools import partial
from typing import Any, Final

import torch

from benchmarks import harness
from benchmarks.harness import Options, Row
from memsweep import registry
from memsweep.config.schema.trial import PerturbationConfig, RadiiConfig
from memsweep.learning.ensemble.flat_layout import SAMPLED_SLOTS, SLOTS, slots
from memsweep.learning.ensemble.replicas import Replica, build
from memsweep.learning.loss.carried import task_loss_for
from memsweep.learning.memory import live_bytes
from memsweep.models.base import Signature
from memsweep.stability.perturbation.ascent import BUDGETS
from memsweep.stability.perturbation.error import perturbation_error
from memsweep.streams import TEST, Stream

MEBIBYTE: Final = 1 << 20
SIZES: Final = (1, 4, 8, 16, 32, 64, 128, 512)
HORIZON: Final = 100


@dataclass(frozen=True)
class Case:
    """One ensemble: a linear model on the population, or another one on some sequences."""

    model: str
    width: int
    activation: str = "linear"
    sequences: int = 0
    radii: int = 20


CASES: Final = (
    Case("diagonal_rnn", 8, radii=10),
    Case("diagonal_rnn", 64, radii=5),
    Case("dense_rnn", 8, radii=5),
    Case("diagonal_rnn", 8, "tanh", sequences=32, radii=5),
    Case("diagonal_rnn", 64, "tanh", sequences=8, radii=5),
)


def prepared(case: Case) -> Any:
    """The step of a case, as a function of the budget."""
    model_class = registry.get(registry.MODEL, case.model)
    task_class = registry.get(registry.TASK, "linear_functional")
    task = task_class(task_class.Config(horizon=HORIZON))
    exact = case.activation == "linear"
    task_loss = task_loss_for([task], exact, torch.float64)
    model = model_class.Config(width=case.width, activation=case.activation)
    full = SLOTS if exact else SAMPLED_SLOTS
    replicas = [Replica(0, model, seed, 0.01) for seed in range(slots(case.width, full))]
    signature = Signature(1, 1, HORIZON)
    (ensemble,) = build(model_class, replicas, signature, torch.float64, partial(slots, full=full))
    data = task_loss.population() if exact else task_loss.data(Stream(0, TEST), 0, case.sequences)
    targets = ensemble.spread([task_loss.target(0)] * len(replicas))
    config = PerturbationConfig(radii=replace(RadiiConfig(), count=case.radii))
    return partial(perturbation_error, ensemble, task_loss, data, ensemble.initial, targets, "all", config)


def measured(case: Case, sizes: tuple[int, ...], pairs: int) -> list[Row]:
    """A row per budget."""
    step = prepared(case)
    in_use = BUDGETS["cpu"] // MEBIBYTE
    sides = {str(size): partial(step, budget=size * MEBIBYTE) for size in sizes}
    seconds = harness.alternate(sides, pairs=pairs)
    return [
        {"model": case.model, "width": case.width, "activation": case.activation, "budget_mib": int(size)}
        | {"peak_mib": live_bytes(side).peak / MEBIBYTE, "seconds": harness.median(seconds[size])}
        | {"ratio": harness.ratio(seconds[size], seconds[str(in_use)])}
        for size, side in sides.items()
    ]


def run(options: Options) -> None:
    """Measure, print, write."""
    harness.one_thread()
    registry.discover(harness.ROOT)
    cases, sizes, pairs = (CASES[:1], (4, 16), 2) if options.quick else (CASES, SIZES, harness.PAIRS)
    rows = [row for case in cases for row in measured(case, sizes, pairs)]
    harness.table(rows, "perturbation step by budget")
    settings = {"horizon": HORIZON, "pairs": pairs, "cases": [asdict(case) for case in cases]}
    harness.write("budget", settings, rows, options.out)
