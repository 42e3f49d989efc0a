"""Charts of a study of learning rates: the loss and the gradient-over-weight criterion against the rate."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from memsweep.analyses.rates.curves import RateStudy, rate_of
from memsweep.report.analysis.losses import CRITERIA, LossRow
from memsweep.report.naming.numbers import show
from memsweep.report.values.chart import Chart, chart, spread_point

_CRITERION = CRITERIA[0]


def rate_charts(studies: Iterable[RateStudy]) -> Iterator[Chart]:
    """The test loss of each study, chosen by its name, and beside it the criterion where it was measured."""
    for study in studies:
        yield _loss(study)
        slopes = {
            name: [spread_point(rate_of(row), row.spread(_CRITERION)) for row in line]
            for name, line in study.lines.items()
        }
        if any(point[1] > 0 for line in slopes.values() for point in line):
            yield chart(_title(study), "learning rate", "max |gradient| / |weight|", "xy", slopes)


def _title(study: RateStudy) -> str:
    return f"{study.memory}, {study.machine}"


def _loss(study: RateStudy) -> Chart:
    rows = [row for line in study.lines.values() for row in line]
    levels = {row.memoryless: "memoryless" for row in rows if row.memoryless > 0}
    levels |= {row.zero_loss: "L₀" for row in rows if row.zero_loss > 0}
    found = {name: [row for row in line if row.diverged] for name, line in study.lines.items()}
    said = [
        f"{name} at {show(rate_of(row))}: {row.diverged} of {row.seeds}" for name, line in found.items() for row in line
    ]
    lost = {name: [[rate_of(row), _partly(row)] for row in line] for name, line in found.items()}
    return chart(
        _title(study),
        "learning rate",
        "test loss",
        "xy",
        {name: [_point(row) for row in line] for name, line in study.lines.items()},
        levels=[*map(list, levels.items())],
        lost=[[name, at] for name, at in lost.items() if at],
        note=f"Seeds that diverged: {'; '.join(said)}." if said else "",
        choice={"shown": _title(study)},
    )


def _partly(row: LossRow) -> str:
    """Beside a mark; a bare mark: all of them."""
    return f"{row.diverged}/{row.seeds}" if row.diverged < row.seeds else ""


def _point(row: LossRow) -> list[object]:
    words = f"{row.diverged} of {row.seeds} seeds diverged" if row.diverged else ""
    return [*spread_point(rate_of(row), row.loss), row.identities[0], words]
