"""Time of one full optimizer step per model, against the published per-sample loop.

A round runs the baseline and then a step of each pack, so that all of them meet the same machine; ``ratio`` is the
median over the rounds of the baseline's time by the pack's time per model. Both sides find the sequences of their
batch drawn; what drawing them takes, once for all models of a pack, is the column ``drawing_milliseconds``. Our step
makes the batch's statistics within the time, and takes the penalty of the default training with it, which the
baseline has not.
Both have the same weights at the start, and compute in the row's dtype (the published code: float64).

``dense_rnn`` has the published code's trained basis (``free``); the rows with basis ``orthogonal`` show this
package's default, which is another model of the same cost to the published code.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any, Final

from benchmarks import harness
from benchmarks.harness import Options, Row
from benchmarks.published.loop import PublishedLoop, PublishedTraining
from benchmarks.steps.product import Pack, first_model, sequences, trial_config

BATCH: Final = 512
HORIZON: Final = 100
PACKS: Final = (1, 8, 64)
WIDTHS: Final = (8, 16, 32, 64, 512)
ACTIVATIONS: Final = ("linear", "hardtanh", "tanh")
FREE, ORTHOGONAL = "free", "orthogonal"
FEWER: Final = {"diagonal_rnn": 128, "dense_rnn": 32}
"""Sequences at width 512 with an activation, on both sides: with the whole batch a round would take minutes.

Both sides then take time in proportion to the sequences. That of a linear model of ours does not depend on them: it
meets the whole batch.
"""

TARGETS: Final = {
    ("diagonal_rnn", "linear", 8): 600.0,
    ("diagonal_rnn", "linear", 64): 4000.0,
    ("diagonal_rnn", "hardtanh", 64): 120.0,
    ("diagonal_rnn", "tanh", 64): 60.0,
    ("dense_rnn", "linear", 8): 500.0,
    ("dense_rnn", "linear", 64): 500.0,
    ("dense_rnn", "tanh", 64): 12.0,
}
"""Ratios to reach with packs of 64 in float64."""


@dataclass(frozen=True)
class Case:
    """One comparison: a baseline, and packs of the same model."""

    model: str
    activation: str
    width: int
    basis: str | None = None
    dtype: str = "float64"

    @property
    def sequences(self) -> int:
        slow = self.activation != "linear" and self.width == 512
        return FEWER[self.model] if slow else BATCH

    def config(self, models: int, quick: bool, basis: str | None) -> Any:
        batch, horizon = (min(self.sequences, 64), 20) if quick else (self.sequences, HORIZON)
        fields: dict[str, Any] = {"basis": basis} if basis else {}
        return trial_config(
            self.model,
            horizon=horizon,
            seeds=models,
            batch_size=batch,
            dtype=self.dtype,
            width=self.width,
            activation=self.activation,
            **fields,
        )


def cases() -> list[Case]:
    """In the order of the table."""
    diagonal = [Case("diagonal_rnn", activation, width) for activation in ACTIVATIONS for width in WIDTHS]
    dense = [Case("dense_rnn", activation, width, FREE) for activation in ACTIVATIONS for width in WIDTHS]
    ours = [Case("dense_rnn", activation, width, ORTHOGONAL) for activation in ("linear", "tanh") for width in (8, 64)]
    single = [Case("diagonal_rnn", "tanh", 64, dtype="float32")]
    return [*diagonal, *single, *dense, *ours]


def measured(case: Case, packs: tuple[int, ...], pairs: int, quick: bool) -> list[Row]:
    """A row per pack."""
    published = case.config(1, quick, FREE if case.basis else None)
    data = sequences(published, published.training.batch_size)
    baseline = PublishedTraining(PublishedLoop.like(first_model(published)), *data)
    ours = {models: Pack.of(case.config(models, quick, case.basis)) for models in packs}
    sides = {"baseline": baseline.step, "drawing": next(iter(ours.values())).draw}
    sides |= {str(models): pack.step for models, pack in ours.items()}
    times = harness.alternate(sides, pairs=pairs, shortest=0.002 if quick else harness.SHORTEST)
    rows = []
    for models, pack in ours.items():
        pack.check()
        each = [seconds / models for seconds in times[str(models)]]
        wanted = models == 64 and case.dtype == "float64"
        rows.append(
            asdict(case)
            | {"models": models}
            | {"milliseconds_per_model": 1e3 * harness.median(each), "ratio": harness.ratio(times["baseline"], each)}
            | {"target": TARGETS.get((case.model, case.activation, case.width)) if wanted else None}
            | {"baseline_milliseconds": 1e3 * harness.median(times["baseline"])}
            | {"drawing_milliseconds": 1e3 * harness.median(times["drawing"])}
            | {"pairs": pairs, "sequences": published.training.batch_size}
        )
    return rows


def run(options: Options) -> None:
    """Measure, print and write ``step.json``."""
    harness.one_thread()
    pairs, packs = (2, (1, 8)) if options.quick else (harness.PAIRS, PACKS)
    wanted = [case for case in cases() if options.wants(asdict(case)) and not (options.quick and case.width > 8)]
    rows = []
    for case in wanted:
        for row in measured(case, packs, pairs, options.quick):
            harness.tell(row)
            rows.append(row)
    settings = {
        "baseline": "published per-sample loop, one model, same dtype, batch ready",
        "clock": "CPU time of the process, one thread",
        "horizon": 20 if options.quick else HORIZON,
        "ratio": "median over the rounds of baseline time by our time per model",
        "sequences": f"{BATCH}; at width 512 with an activation fewer on both sides, as the row says",
    }
    harness.publish("step", settings, rows, options)
