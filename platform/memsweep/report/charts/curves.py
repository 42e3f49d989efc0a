"""Charts of curves: drift or error against the radius, memory and gradient against the lag, loss against the step."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from typing import Any

import numpy as np
import pandas as pd

from memsweep.config.schema.trial import DRIFT, ERROR, EXCESS, METRIC, SELF
from memsweep.report.analysis.contents import Finding
from memsweep.report.analysis.losses import LossRow, largest
from memsweep.report.naming.conditions import Labels
from memsweep.report.naming.numbers import percent
from memsweep.report.read.study import Study
from memsweep.report.rows.verdicts import MOVES
from memsweep.report.values.chart import ORDERED, TARGET, Chart, chart, over_seeds, size_words
from memsweep.stability.verdict.radius import change, of_grid, readings

_CEILING = 100.0  # beyond a hundred times the zero predictor, how much worse tells nothing
_RADIUS = "perturbation radius β"
_SHARE = {
    DRIFT: "√(drift / L₀)",
    EXCESS: "√((E(β) − E(0)) / L₀)",
    ERROR: "√(E(β) / L₀)",
    METRIC: "√(growth of the error rate / way to chance)",
    SELF: "√(drift / variance of the outputs)",
}
"""What is drawn, by what radii are read from."""
_WHOLE = {METRIC: "chance", SELF: "variance"}
"""Where it is 1, by readings of another reference than L₀."""


def error_charts(findings: Sequence[Finding], labels: Labels) -> Iterator[Chart]:
    """One chart per condition, at its longest horizon; their axes agree, so that they can be compared by eye."""
    parts = [_at_longest(finding) for finding in findings]
    if not any(map(len, parts)):
        return
    curves, thresholds = pd.concat(parts), findings[0].judgement.criteria.thresholds
    limits, rail = {"x": _across(curves), "y": _up(curves)}, bool(np.isinf(curves["relative"]).any())
    for finding, part in zip(findings, parts, strict=True):
        title = ", ".join(filter(None, labels.names(finding.condition)))
        yield _chart(title, part, limits, _levels(part, thresholds, limits["y"])) | {"rail": rail}


def error_chart(rows: pd.DataFrame, title: str) -> Chart | None:
    """What radii of one trial in one ball are read from; None where nothing was measured."""
    part = _relative(rows)
    if part.empty:
        return None
    limits = {"x": _across(part), "y": _up(part)}
    lines, lost = _lines({"": part})
    return chart(title, _RADIUS, _share(part), "xy", lines, lost=lost, limits=limits, levels=[_whole(part)])


def _at_longest(finding: Finding) -> pd.DataFrame:
    return _relative(finding.curves[finding.curves["horizon"] == finding.horizon])


def _relative(curves: pd.DataFrame) -> pd.DataFrame:
    """The curves with the root of what radii are read from, over L0: 1 is as bad as predicting zero."""
    part = of_grid(curves[curves["radius"] > 0])
    return part.assign(relative=(change(part) / part["zero_loss"]).pow(0.5))


def _share(part: pd.DataFrame) -> str:
    return " or ".join(_SHARE[name] for name in dict.fromkeys(readings(part)))


def _whole(part: pd.DataFrame) -> list[Any]:
    return [1.0, " or ".join(dict.fromkeys(_WHOLE.get(name, "L₀") for name in readings(part)))]


def _across(curves: pd.DataFrame) -> list[float]:
    return [float(curves["radius"].min()) / 1.15, float(curves["radius"].max()) * 1.15]


def _up(curves: pd.DataFrame) -> list[float]:
    errors = curves["relative"][np.isfinite(curves["relative"]) & (curves["relative"] > 0)]
    low, high = (float(errors.min()), float(errors.max())) if len(errors) else (0.1, 1.0)
    high = min(max(high * 1.2, 2.0), _CEILING)
    return [max(min(low / 1.5, 0.05), high * 1e-8), high]


def _levels(part: pd.DataFrame, thresholds: Sequence[float], limits: Sequence[float]) -> list[list[Any]]:
    crowded = limits[1] > 1e3 * limits[0]  # then only the outer thresholds' labels keep apart
    named = (thresholds[0], thresholds[-1]) if crowded else thresholds
    return [_whole(part), *([t**0.5, percent(t) if t in named else ""] for t in thresholds)]


def _chart(title: str, part: pd.DataFrame, limits: dict[str, list[float]], levels: Sequence[Any]) -> Chart:
    by_width = {f"width {width:g}": rows for width, rows in part.groupby("width")}
    lines, lost = _lines(by_width)
    return chart(title, _RADIUS, _share(part), "xy", lines, lost=lost, limits=limits, levels=levels, look=ORDERED)


def _lines(parts: dict[str, pd.DataFrame]) -> tuple[dict[str, Any], list[Any]]:
    """Name -> medians with their ends; and the radii at which the median is infinite."""
    lines, lost = dict[str, Any](), list[Any]()
    for name, rows in parts.items():
        table = rows.groupby("radius")["relative"].agg(["median", "min", "max"])
        lines[name] = [[float(x), *map(float, ends)] for x, ends in zip(table.index, table.to_numpy(), strict=True)]
        lost.append([name, [[point[0], ""] for point in lines[name] if math.isinf(point[1])]])
    return lines, lost


_DEPTH = 1e-5  # how far below the target's peak the chart reaches


def memory_charts(findings: Sequence[Finding], labels: Labels) -> Iterator[Chart]:
    """One per condition that has a memory function: the smallest and the largest width at the longest horizon."""
    for finding in {finding.key: finding for finding in findings}.values():
        widths = finding.replicas[["identity", "seed", "width", "horizon"]]
        rows = finding.memory.merge(widths, on=["identity", "seed"])
        rows = rows[rows["horizon"] == finding.horizon]
        if not rows.empty:
            ends = dict.fromkeys((float(rows["width"].max()), float(rows["width"].min())))
            parts = {f"learned, width {width:g}": rows[rows["width"] == width] for width in ends}
            yield memory_chart(", ".join(filter(None, labels.names(finding.condition))), parts)


def memory_chart(title: str, parts: dict[str, pd.DataFrame]) -> Chart:
    """The learned memory of each part beside the target's, where the task has one.

    Args:
        title: of the chart.
        parts: name -> rows of the table memory.
    """
    rows = pd.concat([*parts.values()])
    target = rows.groupby("lag")["target"].first().abs()
    # A task that is no linear functional has no target memory: the axes then follow what was learned.
    seen = target.dropna() if target.notna().any() else rows["learned"].abs().groupby(rows["lag"]).max()
    seen = seen[np.isfinite(seen)]
    peak = float(seen.max()) if len(seen) and seen.max() > 0 else 1.0
    power = _decays_like_a_power(target)
    learned = {name: _shifted(part.assign(size=part["learned"].abs()), "size", power) for name, part in parts.items()}
    lines = {TARGET: [point[:2] for point in _shifted(rows.assign(size=rows["target"].abs()), "size", power)]}
    lines = learned if target.isna().all() else lines | learned
    above = seen.index[seen > peak * _DEPTH]
    across = (
        {}
        if power
        else {"x": [-1.0, min(float(above.max() if len(above) else 1) * 1.25 + 2, float(rows["lag"].max()) + 1)]}
    )
    limits = {"y": [max(peak * _DEPTH, float(seen.min()) / 8 if len(seen) else 0.0), peak * 3], **across}
    words = "lag + 1 (steps)" if power else "lag (steps)"
    return chart(title, words, "|memory|", "xy" if power else "y", lines, limits=limits)


def _shifted(rows: pd.DataFrame, column: str, power: bool) -> list[list[Any]]:
    """The values by lag; one step to the right on a logarithmic axis, where a lag of 0 has no place."""
    known = rows[rows[column].notna()]
    points = over_seeds(known.groupby("lag")[column], geometric=power)
    return [[point[0] + power, *point[1:]] for point in points]


def _decays_like_a_power(target: pd.Series) -> bool:
    """Whether log|target| is nearer to a line in log(lag + 1) than in lag."""
    seen = target[target > target.max() * 1e-12]
    if len(seen) < 4 or seen.nunique() < 2:
        return False
    height, lag = np.log(seen.to_numpy(float)), seen.index.to_numpy(float)
    power, exponential = (abs(np.corrcoef(x, height)[0, 1]) for x in (np.log1p(lag), lag))
    return bool(power > exponential)


_TOGETHER = 8  # lines in one chart that can be told apart
_ABOVE = 30.0  # a loss so many times the baseline is off the chart
_DEEPEST, _HIGHEST = 1e-12, 1e12  # of the gradient: beyond them a picture tells nothing more
_ROOM = 1000.0  # above what was measured, for its bound


def training_charts(rows: Sequence[LossRow], study: Study, labels: Labels) -> Iterator[Chart]:
    """A chart per task, width and horizon, of at most 8 conditions; those of one task and size share their axis."""
    together = dict[tuple[Any, ...], list[tuple[LossRow, pd.DataFrame]]]()
    for row in rows:
        part = study.of("history", row.identities)
        if not part.empty:
            together.setdefault((labels.memory(row.condition), row.width, row.horizon), []).append((row, part))
    several = len({key[1:] for key in together}) > 1
    for (memory, width, horizon), members in together.items():
        limits = _limits(members)
        for places in np.array_split(np.arange(len(members)), math.ceil(len(members) / _TOGETHER)):
            some = [members[place] for place in places]
            words = [labels.machine(some[0][0].condition)] if len(some) == 1 else []
            title = ", ".join([memory, *size_words(width, horizon, several=several), *words])
            lines = {labels.machine(row.condition): over_seeds(_by_step(table)) for row, table in some}
            levels = [[level, "memoryless"] for level in sorted({r.memoryless for r, _ in some if r.memoryless > 0})]
            more = {"levels": levels, "limits": {"y": limits}}
            yield chart(title, "training step", "validation loss", "y", lines, **more)


def _by_step(table: pd.DataFrame) -> Any:
    return table.groupby("step")["validation_loss"]


def _limits(members: Sequence[tuple[LossRow, pd.DataFrame]]) -> list[float]:
    values = np.concatenate([table["validation_loss"].to_numpy(float) for _, table in members])
    values = values[np.isfinite(values) & (values > 0)]
    known = [row.memoryless for row, _ in members if row.memoryless > 0]
    low, high = (values.min(), values.max()) if values.size else (0.1, 1.0)
    if known:
        low, high = min(low, min(known)), max(min(high, max(known) * _ABOVE), max(known))
    return [float(low) / 1.3, max(float(high) * 1.3, float(low) * 2.0)]


def gradient_charts(rows: Sequence[LossRow], study: Study, labels: Labels) -> Iterator[Chart]:
    """A chart per condition: at its longest horizon, and there of the widest; none where no gradient was measured."""
    for row in largest(rows):
        part = study.of("memory", row.identities)
        if part["gradient"].notna().any():
            yield _gradient(", ".join(labels.names(row.condition)), part)


def _gradient(title: str, part: pd.DataFrame) -> Chart:
    learned = part["learned"].abs()
    peak = learned.groupby([part["identity"], part["seed"]]).transform("max")
    by_lag = part.assign(share=learned / peak.where(peak > 0)).groupby("lag")
    bound = [point[:2] for point in over_seeds(by_lag["gradient_bound"])]
    lines = {
        "gradient norm": over_seeds(by_lag["gradient"]),
        "its bound": bound,
        "memory function": over_seeds(by_lag["share"]),
    }
    measured = [point[1] for name in ("gradient norm", "memory function") for point in lines[name]]
    known = [value for value in measured if math.isfinite(value) and value > 0] or [1.0]
    # A bound that grows without end leaves through the top, and what was measured can still be read.
    above = [value for _, value in bound if math.isfinite(value)]
    bottom = max(min(known), _DEEPEST) / 1.5
    top = max(1.0, min(max([*known, *above]), max(known) * _ROOM)) * 1.5
    limits = {"y": [bottom, max(min(top, _HIGHEST), bottom * 10)]}
    return chart(title, "lag (steps)", "share left", "y", lines, limits=limits)


def trial_charts(study: Study, identity: str) -> Iterator[Chart]:
    """What was stored of a trial; those that were not measured are left out."""
    history = study.of("history", [identity])
    if history["validation_loss"].notna().any():
        points = over_seeds(history.groupby("step")["validation_loss"])
        yield chart("training", "training step", "validation loss", "y", {"": points})
    memory = study.of("memory", [identity])
    if memory["learned"].notna().any():
        yield memory_chart("impulse response", {"learned": memory})
    for ball, part in study.of("curves", [identity]).groupby("ball"):
        read = ", ".join(dict.fromkeys(readings(part)))
        found = error_chart(part, f"{read} when {MOVES.get(str(ball), str(ball))}")
        if found is not None:
            yield found
