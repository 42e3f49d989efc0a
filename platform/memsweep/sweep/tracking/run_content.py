"""A stored result as the content of one MLflow run. Pure: nothing here talks to MLflow."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from memsweep.config.schema.canonical import flatten
from memsweep.outcome import Outcome
from memsweep.sweep.store import record as records_json
from memsweep.sweep.store.tables import ALIGNMENT, CURVES, HISTORY, MEMORY, SIZE

if TYPE_CHECKING:
    import pandas as pd

POINTS = 100
"""Largest number of points of one metric; the store has them all."""

IDENTITY, OUTCOME, NONFINITE = "memsweep.identity", "memsweep.outcome", "memsweep.nonfinite"
NOTE = "mlflow.note.content"  # MLflow shows this tag as the run's description
_FIRST = ("model.width", "task.horizon")


@dataclass(frozen=True)
class Point:
    """One value of a metric at an optimizer step."""

    key: str
    value: float
    step: int = 0


@dataclass(frozen=True)
class Stamp:
    """Marks the result or failure that a run shows; another one of the same trial has another stamp.

    Attributes:
        status: MLflow's word for the end: FINISHED (there is a result), FAILED or KILLED.
        started, ended: Unix time in milliseconds.
    """

    outcome: str
    status: str
    started: int
    ended: int


@dataclass(frozen=True)
class ChildRun:
    """The content of the run of one trial; it depends only on the stored result or failure.

    Attributes:
        artifacts: file name -> bytes.
    """

    identity: str
    name: str
    stamp: Stamp
    params: dict[str, str]
    tags: dict[str, str]
    metrics: list[Point] = field(default_factory=list)
    artifacts: dict[str, bytes] = field(default_factory=dict)


def stamp_of_result(record: Mapping[str, Any]) -> Stamp:
    """The stamp of a stored result."""
    provenance = record["provenance"]
    ended = _milliseconds(provenance["finished"])
    return Stamp(record["outcome"], "FINISHED", ended - int(1000 * float(provenance.get("seconds", 0.0))), ended)


def stamp_of_failure(failure: Mapping[str, Any]) -> Stamp:
    """The stamp of a stored failure; one whose file is damaged has no time, and gets 1970."""
    outcome = str(failure["outcome"])
    when = _milliseconds(failure["time"]) if "time" in failure else 1
    return Stamp(outcome, "KILLED" if outcome == Outcome.PREEMPTED else "FAILED", when, when)


def _milliseconds(time: str) -> int:
    return int(datetime.datetime.fromisoformat(time).timestamp() * 1000)


def finished_run(
    record: Mapping[str, Any], tables: Mapping[str, pd.DataFrame], varied: Collection[str] = ()
) -> ChildRun:
    """The run of a stored result.

    Args:
        record: as the store gives it; its summary becomes ``final/<key>`` metrics (numbers) and tags (texts).
        tables: ``history`` becomes metrics by step (median over seeds, and the worst validation loss);
            ``curves`` and ``memory`` become artifacts.
        varied: the fields that name the run.
    """
    summary = record["summary"]
    numbers = {f"final/{key}": float(value) for key, value in summary.items() if not isinstance(value, str)}
    texts = {f"memsweep.{key}": value for key, value in summary.items() if isinstance(value, str)}
    metrics = [*(Point(key, value) for key, value in numbers.items()), *_by_step(tables.get(HISTORY))]
    nonfinite = _nonfinite(metrics)
    return ChildRun(
        identity=record["identity"],
        name=run_name(record["config"], varied),
        stamp=stamp_of_result(record),
        params=parameters(record["config"]),
        # MLflow stores an infinity as the largest float: the tag keeps the truth.
        tags=texts | _tags(record) | ({NONFINITE: nonfinite} if nonfinite else {}),
        metrics=metrics,
        artifacts=_artifacts(record, tables),
    )


def failed_run(
    identity: str, failure: Mapping[str, Any], config: Mapping[str, Any], varied: Collection[str] = ()
) -> ChildRun:
    """The run of a trial without a result: its outcome and its traceback.

    Args:
        failure: ``outcome``, ``error``, ``traceback`` and ``time`` as the store keeps them.
        config: the canonical dict of the trial.
        varied: the fields that name the run.
    """
    stamp = stamp_of_failure(failure)
    return ChildRun(
        identity=identity,
        name=run_name(config, varied),
        stamp=stamp,
        params=parameters(config),
        tags={
            IDENTITY: identity,
            OUTCOME: stamp.outcome,
            NOTE: f"{Outcome(stamp.outcome).explanation}\n\n{failure.get('error', '')}",
        },
        artifacts={"traceback.txt": str(failure.get("traceback") or failure.get("error", "")).encode()},
    )


def parameters(config: Mapping[str, Any]) -> dict[str, str]:
    """Dotted path -> text for a canonical config; floats in full, lists as ``a, b``."""
    return {
        path: ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        for path, value in flatten(config).items()
    }


def run_name(config: Mapping[str, Any], varied: Collection[str]) -> str:
    """The name of a run in a list, by what the study varies: ``width=4 horizon=100 exp polynomial``.

    Width and horizon come first, because MLflow's page shows about fifteen characters of a name.
    """
    flat = flatten(config)
    paths = dict.fromkeys([*(path for path in _FIRST if path in varied), *sorted(varied)])
    words = [_word(path, flat[path]) for path in paths if isinstance(flat.get(path), str | int | float)]
    return " ".join(words) or f"{flat['model.name']} {flat['task.name']}"


def _word(path: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    return f"{path.rpartition('.')[2]}={value:g}" if isinstance(value, float) else f"{path.rpartition('.')[2]}={value}"


def varied_fields(configs: Iterable[Mapping[str, Any]]) -> list[str]:
    """Dotted paths of the fields that differ between canonical configs, sorted."""
    values: dict[str, set[str]] = {}
    flat = [flatten(config) for config in configs]
    for path in {path for each in flat for path in each}:
        values[path] = {str(each.get(path)) for each in flat}
    return sorted(path for path, different in values.items() if len(different) > 1)


def _tags(record: Mapping[str, Any]) -> dict[str, str]:
    provenance, outcome = record["provenance"], Outcome(record["outcome"])
    tags = {IDENTITY: record["identity"], OUTCOME: outcome.value, "memsweep.computed_by": record["study"]}
    for key in ("code_revision", "code_fingerprint", "host", "device"):
        if provenance.get(key):
            tags[f"memsweep.{key}"] = str(provenance[key])
    for package, version in provenance.get("versions", {}).items():
        tags[f"memsweep.version.{package}"] = str(version)
    if outcome is not Outcome.DONE:
        tags[NOTE] = outcome.explanation
    return tags


def _by_step(history: pd.DataFrame | None) -> list[Point]:
    import numpy as np

    if history is None or history.empty:
        return []
    history = history.sort_values("step")
    steps, starts = np.unique(history["step"].to_numpy(), return_index=True)
    trains = np.split(history["train_loss"].to_numpy(), starts[1:])
    validations = np.split(history["validation_loss"].to_numpy(), starts[1:])
    points = []
    for place in np.unique(np.linspace(0, len(steps) - 1, min(POINTS, len(steps))).round().astype(int)):
        step, train, validation = int(steps[place]), trains[place], validations[place]
        if step > 0 or not np.isnan(train).all():  # before the first step there is no training loss
            points.append(Point("train_loss", float(np.median(train)), step))
        points += [  # numpy, not pandas: a NaN of one seed must reach the metric
            Point("validation_loss", float(np.median(validation)), step),
            Point("validation_loss_worst", float(np.max(validation)), step),
        ]
    return points


def _nonfinite(metrics: list[Point]) -> str:
    """One line per metric with infinities or NaN: their kinds, their number, their first step."""
    lines = []
    for key in sorted({point.key for point in metrics}):
        points = [point for point in metrics if point.key == key]
        wrong = [point for point in points if not math.isfinite(point.value)]
        if wrong and len(points) == 1:
            lines.append(f"{key} = {wrong[0].value}")
        elif wrong:
            kinds = ", ".join(dict.fromkeys(str(point.value) for point in wrong))
            lines.append(f"{key} = {kinds} at {len(wrong)} of {len(points)} points, first at step {wrong[0].step}")
    return "\n".join(lines)


def _artifacts(record: Mapping[str, Any], tables: Mapping[str, pd.DataFrame]) -> dict[str, bytes]:
    """The record as JSON, and tables as CSV without identity, width and horizon, which tags and params hold."""
    words = {key: value if _is_json(value) else str(float(value)) for key, value in record["summary"].items()}
    files = {"record.json": records_json.to_json({**record, "summary": words}, f"the record of {record['identity']}")}
    for name in (CURVES, MEMORY, ALIGNMENT):
        frame = tables.get(name)
        if frame is not None and not frame.empty:
            columns = [column for column in frame.columns if column not in SIZE]
            files[f"{name}.csv"] = frame[columns].to_csv(index=False, na_rep="nan").encode()
    return files


def _is_json(value: Any) -> bool:
    return isinstance(value, str) or math.isfinite(value)


def sweep_key(study: str, params: Mapping[str, Any], tags: Mapping[str, Any]) -> str:
    """A short hash under which the parent run of the same sweep is found again."""
    import hashlib

    text = json.dumps([study, dict(params), dict(tags)], sort_keys=True, default=str)
    return hashlib.sha256(text.encode("utf-8", errors="surrogatepass")).hexdigest()[:16]
