"""A trial's result: the measurements of its replicas as a summary and tables."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from torch import Tensor

from memsweep import registry
from memsweep.config.schema.trial import TrialConfig, asked_of, refers_elsewhere
from memsweep.data.api import LinearFunctionalTask, Task
from memsweep.outcome import Outcome
from memsweep.stability.evaluation import evaluated_exactly
from memsweep.stability.measure import Measurement

if TYPE_CHECKING:
    import pandas as pd

    from memsweep.stability.optional import Measure


@dataclass(frozen=True)
class TrialResult:
    """The result of a trial.

    Attributes:
        config: of the trial.
        outcome: done, diverged or stopped_early; a failure raises instead.
        summary: scalars over the replicas, for tables and tracking.
        tables: by names of ``memsweep.sweep.store.tables.names``.
        weights: seed -> trained weights, by the model's own names, without padding.
    """

    config: TrialConfig
    outcome: Outcome
    summary: dict[str, float | int | str]
    tables: dict[str, pd.DataFrame]
    weights: dict[int, Mapping[str, Tensor]]


def result_of(config: TrialConfig, task: Task, measured: list[Measurement]) -> TrialResult:
    """The summary and the tables of a trial from the measurements of its replicas."""
    import pandas as pd

    size: dict[str, Any] = {"horizon": task.horizon, "width": getattr(config.model, "width", None)}
    zero_loss, memoryless = task.chance(), task.memoryless_loss()
    curves = [
        size | {"seed": m.trained.seed} | {**row, "zero_loss": zero_loss}
        for m in measured
        for row in (*_curve_rows(config, m), *m.tables.get("curves", ()))
    ]
    if refers_elsewhere(config.perturbation):
        scales, reference = {m.trained.seed: m.scale for m in measured}, config.perturbation.reference
        curves = [row | {"zero_loss": scales[row["seed"]]} if row["reading"] == reference else row for row in curves]
    replicas = [
        size
        | {
            "seed": m.trained.seed,
            "outcome": str(m.trained.outcome),
            "steps": m.trained.steps,
            "best_step": m.trained.best_step,
        }
        | {"validation_loss": m.trained.validation_loss, "error": m.error, "zero_loss": zero_loss}
        | {"memoryless_loss": memoryless}
        | _metric(m)
        | {"margin": m.margin, "slowest_rate": _slowest_rate(m.margin)}
        | {"encoder_norm": m.encoder_norm, "readout_norm": m.readout_norm}
        | {f"gradient_over_weight_{name}": value for name, value in m.trained.gradient_over_weight.items()}
        for m in measured
    ]
    metrics = [
        {"seed": m.trained.seed, "metric": name, "value": value}
        for m in measured
        for name, value in list(m.metrics.items())[1:]
    ]
    target = task.kernel().abs().tolist() if isinstance(task, LinearFunctionalTask) else None
    memory = [
        {"seed": m.trained.seed, "lag": lag, "learned": value, "target": target[lag] if target else math.nan}
        | {"gradient": _at(m.gradient, lag), "gradient_bound": _at(m.gradient_bound, lag)}
        for m in measured
        for lag, value in enumerate(m.memory)
    ]
    history = [
        {"seed": m.trained.seed, "step": step, "train_loss": loss, "validation_loss": valid}
        for m in measured
        for step, loss, valid in m.trained.history
    ]
    tables = {"curves": curves, "replicas": replicas, "metrics": metrics, "memory": memory, "history": history}
    optional = _optional(config, measured, size)
    return TrialResult(
        config=config,
        outcome=_outcome(measured),
        summary=_summary(measured, replicas, zero_loss)
        | {name: value for measure, rows in optional.items() for name, value in measure.summary(rows).items()}
        | _micro_batch(config, measured)
        | _failures(measured),
        tables={
            name: pd.DataFrame(rows)
            for name, rows in (*tables.items(), *((measure.table, rows) for measure, rows in optional.items()))
        },
        weights={m.trained.seed: m.trained.weights for m in measured},
    )


def _curve_rows(config: TrialConfig, measured: Measurement) -> Iterator[dict[str, Any]]:
    """The curves of a replica in each ball, a row for each point."""
    perturbation = config.perturbation
    how = {"norm": perturbation.norm, "method": perturbation.method, "exact": evaluated_exactly(config)}
    for ball, points in measured.curves.items():
        for point in points:
            yield {"ball": ball, "reading": measured.reading} | how | point._asdict()


def _optional(
    config: TrialConfig, measured: list[Measurement], size: dict[str, Any]
) -> dict[type[Measure], list[dict[str, Any]]]:
    """The rows of the tables of the measures that were asked for, as far as there are any."""
    found = {}
    for asked in (*asked_of(config.training), *asked_of(config.perturbation)):
        measure: type[Measure] = registry.get(registry.MEASURE, asked.name)
        sizes = size if measure.has_sizes else {}
        rows = [
            sizes | {"seed": m.trained.seed, **row}
            for m in measured
            for row in {**m.trained.observed, **m.tables}.get(measure.table, ())
        ]
        if rows and measure.table != "curves":
            found[measure] = rows
    return found


def _micro_batch(config: TrialConfig, measured: list[Measurement]) -> dict[str, int]:
    """The sequences of a training batch that were computed at a time, where batches are split."""
    size = measured[0].micro_batch
    return {} if size is None else {"micro_batch": min(size, config.training.batch_size)}


def _failures(measured: list[Measurement]) -> dict[str, float | int | str]:
    """The measurements that failed, and why, in one text."""
    texts = dict.fromkeys(text for measurement in measured for text in measurement.failures)
    return {"not_measured": "; ".join(texts)} if texts else {}


def _at(values: list[float], lag: int) -> float:
    """The value at a lag; nan where there is none."""
    return values[lag] if lag < len(values) else math.nan


def _metric(measurement: Measurement) -> dict[str, Any]:
    """The task's first metric; the others are a table of their own."""
    name = next(iter(measurement.metrics), None)
    return {"metric": name, "test_metric": measurement.metrics[name] if name else math.nan}


def _slowest_rate(margin: float) -> float:
    """-log max|eigenvalue| per step: negative when the recurrence is unstable."""
    largest = 1.0 - margin
    return -math.log(largest) if largest > 0 else math.inf if largest == 0 else math.nan


def _outcome(measured: list[Measurement]) -> Outcome:
    outcomes = {measurement.trained.outcome for measurement in measured}
    if Outcome.DIVERGED in outcomes:
        return Outcome.DIVERGED
    return Outcome.STOPPED_EARLY if outcomes == {Outcome.STOPPED_EARLY} else Outcome.DONE


def _summary(
    measured: list[Measurement], replicas: list[dict[str, Any]], zero_loss: float
) -> dict[str, float | int | str]:
    import pandas as pd

    frame = pd.DataFrame(replicas)
    medians = (
        "validation_loss",
        "margin",
        "slowest_rate",
        *(c for c in map(str, frame.columns) if c.startswith("gradient_over")),
    )
    memoryless = float(frame["memoryless_loss"].iloc[0])
    baseline = {} if math.isnan(memoryless) else {"memoryless_loss": memoryless}
    metrics = {f"test_{name}": [m.metrics[name] for m in measured] for name in measured[0].metrics}
    return {
        "replicas": len(measured),
        "diverged_replicas": sum(m.trained.outcome is Outcome.DIVERGED for m in measured),
        "steps": max(m.trained.steps for m in measured),
        "zero_loss": zero_loss,
        **baseline,
        "error": float(frame["error"].median(skipna=False)),
        "relative_error": float((frame["error"] / zero_loss).median(skipna=False)),
        **{name: float(frame[name].median(skipna=False)) for name in medians},
        **{name: float(pd.Series(values).median(skipna=False)) for name, values in metrics.items()},
    }
