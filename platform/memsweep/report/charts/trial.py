"""Charts of one trial: its training, its impulse response, and its error in each ball."""

from __future__ import annotations

from collections.abc import Iterator

from memsweep.report.analysis.summary import MOVES
from memsweep.report.charts.error import error_chart
from memsweep.report.charts.memory import memory_chart
from memsweep.report.read.study import Study
from memsweep.report.values.chart import Chart, chart, over_seeds


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
        found = error_chart(part, f"error when {MOVES.get(str(ball), str(ball))}")
        if found is not None:
            yield found
