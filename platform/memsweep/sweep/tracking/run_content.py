"""A stored result as the content of one MLflow run. Pure: nothing here talks to MLflow."""

from __future__ import annotations

import datetime
import json
import math
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import MISSING, dataclass, field
from typing import TYPE_CHECKING, Any

from memsweep.config.core.reflect import config_of, default, keys, value_of
from memsweep.config.schema.canonical import flatten, plain, to_dict
from memsweep.config.schema.trial import TrialConfig
from memsweep.outcome import Outcome
from memsweep.sweep.planning.identity import without_later
from memsweep.sweep.store import record as records_json
from memsweep.sweep.store.journal import State
from memsweep.sweep.store.tables import CURVES, HISTORY, MEMORY, SIZE, tracked

if TYPE_CHECKING:
    import pandas as pd

    from memsweep.config.schema.study import SweepConfig

POINTS = 100
"""Largest number of points of one metric; the store has them all."""

IDENTITY, OUTCOME, NONFINITE = "memsweep.identity", "memsweep.outcome", "memsweep.nonfinite"
HEADLINE, ANSWERS, DECIDE = "memsweep.headline", "memsweep.answers", "memsweep.decide"
NOTE = "mlflow.note.content"  # MLflow shows this tag as the run's description
_SIZES = ("model.width", "task.horizon")
_SHORT = {"model.width": "m", "task.horizon": "T", "training.learning_rate": "lr"}
"""Letters of the report's figures, and a usual abbreviation."""
_WORDED = (str, int, float, list)
_PARTS = ("model", "model.parameterization", "model.unit", "model.units", "task", "task.kernel", "training.rule")


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
class Verdicts:
    """A finished study's words about one of its trials, or about the whole of it.

    Attributes:
        metrics: as ``ball_recurrent/radius``.
        tags: as ``ball_recurrent/verdict``.
        time: Unix time in milliseconds of the newest result behind them; MLflow shows the newest value of a metric.
    """

    metrics: Mapping[str, float]
    tags: Mapping[str, str]
    time: int


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


def shown() -> tuple[str, ...]:
    """The tables of a result that its run shows."""
    return (HISTORY, *_files())


def _files() -> tuple[str, ...]:
    return (CURVES, MEMORY, *tracked())


def stamp_of_result(record: Mapping[str, Any]) -> Stamp:
    """The stamp of a stored result."""
    provenance = record["provenance"]
    ended = milliseconds(provenance["finished"])
    return Stamp(record["outcome"], "FINISHED", ended - int(1000 * float(provenance.get("seconds", 0.0))), ended)


def stamp_of_failure(failure: Mapping[str, Any]) -> Stamp:
    """The stamp of a stored failure; one whose file is damaged has no time, and gets 1970."""
    outcome = str(failure["outcome"])
    when = milliseconds(failure["time"]) if "time" in failure else 1
    return Stamp(outcome, "KILLED" if outcome == Outcome.PREEMPTED else "FAILED", when, when)


def milliseconds(time: str) -> int:
    """Unix time of a record's time."""
    return int(datetime.datetime.fromisoformat(time).timestamp() * 1000)


def finished_run(
    record: Mapping[str, Any], tables: Mapping[str, pd.DataFrame], varied: Collection[str] = ()
) -> ChildRun:
    """The run of a stored result.

    Args:
        record: as the store gives it; its summary becomes ``final/<key>`` metrics (numbers) and tags (texts).
        tables: of ``shown``. ``history`` becomes metrics by step (median over seeds, and the worst validation loss);
            the others become artifacts.
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
        params=parameters(record["config"], varied),
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
        params=parameters(config, varied),
        tags={
            IDENTITY: identity,
            OUTCOME: stamp.outcome,
            NOTE: f"{State(stamp.outcome).explanation}\n\n{failure.get('error', '')}",
        },
        artifacts={"traceback.txt": str(failure.get("traceback") or failure.get("error", "")).encode()},
    )


def parameters(config: Mapping[str, Any], varied: Collection[str] = ()) -> dict[str, str]:
    """Dotted path -> text of what differs from the defaults, of the sizes and of what names the run.

    ``record.json`` among the artifacts has the whole config. Floats are in full, lists as ``a, b``. The parts of the
    config must be registered: of a part that is not, nothing is known to be a default, and all its fields are given.
    """
    flat, shown = flatten(config), {*_SIZES, *varied}
    changed = flatten(_changed(config, TrialConfig, None))
    return {
        path: ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
        for path, value in flat.items()
        if path in changed or (part := path.removesuffix(".name")) in changed or part in shown
    }


def _changed(data: Mapping[str, Any], cls: type | None, standard: Any) -> dict[str, Any]:
    """The part of a canonical config that differs from the defaults.

    Args:
        data: the config.
        cls: its class; None where it is not known: nothing is a default then.
        standard: the instance that it has by default; None: the defaults of its class.
    """
    kept = {}
    for key, value in data.items():
        field = keys(cls).get(key)
        if cls is None or field is None:  # a part's name, or arguments, whose names are not the engine's
            if key != "name" or standard is None or standard.name != value:
                kept[key] = value
            continue
        usual = default(field) if standard is None else value_of(standard, field)
        if not isinstance(value, Mapping):
            kept |= {key: value} if usual is MISSING or plain(usual) != value else {}
            continue
        below = config_of(cls, field, value)
        same = isinstance(usual, below) if below is not None else False
        inner = _changed(value, below, usual if same else None)
        kept |= {key: inner} if inner else {}
    return kept


def run_name(config: Mapping[str, Any], varied: Collection[str]) -> str:
    """The name of a run in a list, by what the study varies: ``m=4 T=100 exp polynomial``.

    Args:
        config: of the trial.
        varied: of ``varied_fields``, in the order of the words.
    """
    flat = _fields(config)
    words = [_word(path, flat[path]) for path in varied if isinstance(flat.get(path), _WORDED)]
    return " ".join(words) or f"{flat['model']} {flat['task']}"


def _word(path: str, value: Any) -> str:
    if isinstance(value, str):
        return value
    name = _SHORT.get(path, path.rpartition(".")[2])
    if isinstance(value, list):
        return f"{name}={','.join(map(str, value))}"
    return f"{name}={value:.4g}" if isinstance(value, float) else f"{name}={value}"


def varied_fields(configs: Iterable[Mapping[str, Any]]) -> list[str]:
    """Dotted paths of the fields that tell canonical configs apart, without those that follow from the others.

    Chosen are width and horizon, then the names of parts, then what else is needed, texts before numbers. Those come
    first whose words tell most per letter, because MLflow's page shows the beginning of a name.
    """
    flat = [_fields(config) for config in configs]
    values = {path: [str(each.get(path)) for each in flat] for path in {path for each in flat for path in each}}
    differ = {path for path, texts in values.items() if len(set(texts)) > 1}
    chosen = [path for path in (*_SIZES, *_PARTS) if path in differ]
    rest = sorted(differ.difference(chosen), key=lambda p: (not any(isinstance(e.get(p), str) for e in flat), p))
    for path in rest:
        if _told_apart([*chosen, path], values) > _told_apart(chosen, values):
            chosen.append(path)
    return sorted(chosen, key=lambda path: -_told_per_letter(path, flat))


def _told_per_letter(path: str, flat: Sequence[Mapping[str, Any]]) -> float:
    """The logarithm of the number of a field's words, per letter of them."""
    words = {_word(path, each[path]) for each in flat if isinstance(each.get(path), _WORDED)}
    return math.log(len(words)) / (sum(map(len, words)) / len(words) + 1) if words else 0.0


def _told_apart(paths: Collection[str], values: Mapping[str, Sequence[str]]) -> int:
    """How many kinds of configs the values at these paths tell apart."""
    return len({*zip(*(values[path] for path in paths), strict=True)})


def _fields(config: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted path -> value; the name of a part stands at the part's own path."""
    return {path.removesuffix(".name"): value for path, value in flatten(config).items()}


def _tags(record: Mapping[str, Any]) -> dict[str, str]:
    provenance, outcome = record["provenance"], Outcome(record["outcome"])
    tags = {IDENTITY: record["identity"], OUTCOME: outcome.value, "memsweep.computed_by": record["study"]}
    for key in ("code_revision", "code_fingerprint", "host", "device"):
        if provenance.get(key):
            tags[f"memsweep.{key}"] = str(provenance[key])
    if versions := provenance.get("versions"):
        tags["memsweep.versions"] = ", ".join(f"{package} {version}" for package, version in versions.items())
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
    for name in _files():
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


def naming_fields(sweep: SweepConfig) -> list[str]:
    """The fields that name a study's runs: what its grid varies, its search and the confirmation of its winners."""
    varied = varied_fields(map(to_dict, sweep.rows))
    if (search := sweep.search) is not None:
        varied = [*search.space, *(path for path in varied if path not in search.space)]
        varied += ["training.until"] if search.settings.scheduler.name != "none" else []
    if (confirm := sweep.confirm) is not None:
        fresh = confirm.seeds == sweep.rows[0].training.seeds
        varied += ["training.first_seed" if fresh else "training.seeds"]
    return varied


def sweep_params(sweep: SweepConfig) -> dict[str, Any]:
    """Flat settings of the sweep as a whole, for MLflow: the grid, axis by axis, the resources, the search."""
    from memsweep.config.schema.search import Search
    from memsweep.config.search.sections import search_to_dict

    counted = "trials" if sweep.search is None else "cells"
    params: dict[str, Any] = {counted: len(sweep.rows), "protocol": sweep.protocol}
    params |= {f"grid.{path}": json.dumps(values, default=str) for path, values in sweep.grid.items()}
    for name, value in without_later(to_dict(sweep.resources), sweep.resources).items():
        params[f"resources.{name}"] = json.dumps(value) if isinstance(value, list | dict) else value
    for part, section in (("search", sweep.search), ("confirm", sweep.confirm)):
        if section is not None:
            content = search_to_dict(section) if isinstance(section, Search) else to_dict(section)
            params |= {f"{part}.{path}": json.dumps(value, default=str) for path, value in content.items()}
    return params
