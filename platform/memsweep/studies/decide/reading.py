"""Reads the open questions of a study off its stored tables."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from memsweep.config.grid.first_plan import longest, scale_of
from memsweep.config.grid.time_scale import USABLE_SCALES, time_scale
from memsweep.config.schema.canonical import to_dict
from memsweep.config.schema.trial import TrialConfig
from memsweep.data.sizes import horizon_field
from memsweep.report.analysis.contents import Contents, Finding, target_of
from memsweep.report.analysis.effort import key_of
from memsweep.stability.verdict.cells import Cells, Radii
from memsweep.stability.verdict.judgement import SMALLEST_GRID, SMALLEST_SEEDS, Verdict
from memsweep.stability.verdict.radius import VALID_ERROR
from memsweep.studies.decide.question import HORIZON, WIDTH, Design, Question

Cell = tuple[int, int]
"""Width and horizon."""


@dataclass(frozen=True)
class Subject:
    """A condition in one ball, with its trials.

    Attributes:
        key: of the condition, the same in every round.
        name: in words, with the ball.
        finding: its judgement.
        trials: identity -> config, of every trial of the condition that has a result.
        cells: identity -> width and horizon.
    """

    key: str
    name: str
    finding: Finding
    trials: Mapping[str, TrialConfig]
    cells: Mapping[str, Cell]

    @property
    def is_open(self) -> bool:
        """Whether it has no verdict."""
        return self.finding.judgement.verdict is Verdict.INCONCLUSIVE


def subjects(contents: Contents, trials: Mapping[str, TrialConfig]) -> Iterator[Subject]:
    """Every condition and ball that needs a verdict.

    Args:
        contents: of the study's report.
        trials: identity -> config, of the plan.
    """
    members = {tuple(condition.values()): names for condition, names in contents.grouping.members()}
    for finding in contents.verdicts:
        own = {name: trials[name] for name in members[finding.key] if name in trials}
        sizes = finding.replicas.drop_duplicates("identity").dropna(subset=["width", "horizon"])
        rows = zip(sizes["identity"], sizes["width"], sizes["horizon"], strict=True)
        cells = {str(name): (int(width), int(horizon)) for name, width, horizon in rows}
        name = ", ".join(filter(None, contents.labels.names(finding.condition)))
        yield Subject(key_of(finding.condition), f"{name} ({finding.ball})", finding, own, cells)


def kind_of(config: TrialConfig) -> str:
    """A text that trials share which differ in size, training and measurement alone."""
    data = to_dict(config)
    sizeless = [{**data["task"], horizon_field(config.task) or "horizon": 0}, {**data["model"], "width": 0}]
    return json.dumps(sizeless, sort_keys=True, default=str)


def question_of(subject: Subject, possible: Callable[[int, int], bool]) -> Question:
    """The question of a condition without a verdict, and whether it can have a width and a horizon."""
    finding = subject.finding
    judgement, radii = finding.judgement, Radii.of(finding.radii, _no_change)
    design = design_of(subject, judgement.width)
    target = target_of(finding.memory)
    at_top, along = _fitting(radii.valid[:, :, -1], design.seeds), _along(radii, design)
    lacks = at_top.columns.size < SMALLEST_GRID or not along.columns.size
    regained, kept = regainable(radii.valid[:, :, -1], at_top.columns)
    return Question(
        key=subject.key,
        name=subject.name,
        by_threshold=judgement.by_threshold,
        growth=judgement.growth,
        limited=judgement.horizon_limited,
        criteria=judgement.criteria,
        design=design,
        valid_widths=at_top.columns.size,
        valid_horizons=along.columns.size,
        complete=min((each.rows.size for each in (at_top, along) if each.columns.size), default=0),
        since=0.0 if target is None else USABLE_SCALES * _scale(target, finding.config["task"]),
        entering=(at_top.columns.size, len(radii.widths) - int(at_top.columns[0] if at_top.columns.size else 0)),
        regained=regained,
        kept=kept,
        kept_along=float(radii.valid[:, radii.widths.index(design.top)].all(1).mean()),
        misfit=_misfit(radii, design) if lacks else {},
        below=_ends(radii, below=True),
        above=_ends(radii, below=False),
        found=finding.found_share,
        grows=tuple(axis for axis in _axes(subject) if axis != HORIZON or target is not None),
        possible=possible,
        reasons=judgement.reasons,
    )


def _scale(target: np.ndarray, task: Mapping[str, Any]) -> float:
    """The time scale of a memory; of one that outlasts the horizons so far, by the lags of longer ones."""
    found = time_scale(target)
    if found == math.inf and (made := longest(task)) is not None and hasattr(made, "kernel"):
        found = scale_of(made)
    return found or 0.0


def _no_change(*_: object) -> np.ndarray:
    raise NotImplementedError("the change at a radius is the rule's own")


def _fitting(valid: np.ndarray, seeds: int) -> Cells:
    """The cells ``[S, X]`` in which as many seeds approximate the target as a verdict needs, or all of fewer."""
    columns = np.flatnonzero(valid.sum(0) >= min(SMALLEST_SEEDS, seeds))
    rows = np.flatnonzero(valid[:, columns].all(1)) if columns.size else columns
    return Cells(rows=rows, columns=columns)


def regainable(valid: np.ndarray, entered: np.ndarray) -> tuple[int, float]:
    """Widths that more seeds would bring in, and the share of the seeds that approximate the target at all of these.

    Args:
        valid: ``[seeds, widths]``, at the longest horizon.
        entered: places of the widths that enter a slope now.
    """
    known = valid.mean(0) >= 0.5 if valid.size else np.zeros(valid.shape[1], bool)
    known[entered] = True
    return int(known.sum()) - len(entered), float(valid[:, known].all(1).mean()) if known.any() else 0.0


def _along(radii: Radii, design: Design) -> Cells:
    """Those along the horizons, at the largest width that fits at all of them."""
    for place in reversed(range(len(radii.widths))):
        found = _fitting(radii.valid[:, place], design.seeds)
        if found.columns.size == len(radii.horizons):
            return found
    return Cells()


def design_of(subject: Subject, top: int | None) -> Design:
    """The cells of a condition that decide, as far as they are there."""
    widths = sorted({width for width, _ in subject.cells.values()})
    horizons = sorted({horizon for _, horizon in subject.cells.values()})
    if top is None:  # the width with most horizons, the largest of them
        here = {width: sum(cell[0] == width for cell in {*subject.cells.values()}) for width in widths}
        top = max(widths, key=lambda width: (here[width], width))
    counts: dict[Cell, int] = {}
    for name, cell in subject.cells.items():
        counts[cell] = counts.get(cell, 0) + subject.trials[name].training.seeds
    design = Design(0, tuple(widths), tuple(horizons), top)
    there = [counts[cell] for cell in design.cells if cell in counts]
    return Design(min(there), design.widths, design.horizons, top)


def _misfit(radii: Radii, design: Design) -> dict[Cell, float]:
    """The cells in which fewer seeds than a verdict needs approximate the target, and by how much the others miss."""
    found = {}
    for width, horizon in design.cells:
        place = radii.widths.index(width), radii.horizons.index(horizon)
        valid, fits = radii.valid[:, place[0], place[1]], radii.fit[:, place[0], place[1]]
        trained = ~np.isnan(fits)
        if trained.any() and valid.sum() < min(SMALLEST_SEEDS, trained.sum()):
            found[width, horizon] = float(np.median(fits[trained & ~valid])) / VALID_ERROR
    return found


def _ends(radii: Radii, *, below: bool) -> bool:
    """Whether a radius that enters a slope ends below, or above, the radii that were tried.

    A threshold at which all of them end above is left out of the verdict, where another one is left.
    """
    ends = radii.low == 0.0 if below else np.isposinf(radii.high)
    known = radii.valid[..., None] & ~np.isnan(radii.low)
    parts = [
        (part & here, here) for part, here in zip(np.moveaxis(ends, -1, 0), np.moveaxis(known, -1, 0), strict=True)
    ]
    inside = [bool((part != here).any()) for part, here in parts]
    return any(
        bool(part.any()) and (below or there or not any(inside)) for (part, _), there in zip(parts, inside, strict=True)
    )


def _axes(subject: Subject) -> tuple[str, ...]:
    """The axes of which the trials name a value, which can be another one."""
    configs = subject.trials.values()
    if any(config.chain is not None for config in configs):
        return ()
    known = {
        HORIZON: all(horizon_field(each.task) is not None for each in configs),
        WIDTH: all(hasattr(each.model, "width") and not each.training.weights for each in configs),
    }
    return tuple(axis for axis, is_named in known.items() if is_named)
