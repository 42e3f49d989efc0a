"""The simulation's curve as a picture."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from benchmarks.harness import ROOT, Row

PICTURE = ROOT / "docs" / "pictures" / "scale.png"


def draw(runs: Sequence[Row], path: Path = PICTURE) -> None:
    """Trials by time, and the driver's memory by trials.

    Args:
        runs: rows of ``study.sweep`` with their points: seconds, finished, handed on, mirrored, MiB.
        path: of the PNG.
    """
    from matplotlib.backends.backend_agg import FigureCanvasAgg
    from matplotlib.figure import Figure

    figure = Figure(figsize=(10, 4), layout="constrained", dpi=150)
    FigureCanvasAgg(figure)
    trials, memory = figure.subplots(1, 2)
    for run in runs:
        seconds, finished, delivered, mirrored, resident = zip(*run["points"], strict=True)
        name = f"{run['trials']:,} trials, {run['place']}"
        (line,) = trials.plot(seconds, finished, label=f"{name}: finished")
        trials.plot(
            seconds, delivered, color=line.get_color(), linestyle="--", label=f"{name}: handed on by the driver"
        )
        if any(mirrored):
            trials.plot(seconds, mirrored, color=line.get_color(), linestyle=":", label=f"{name}: in MLflow")
        memory.plot(finished, resident, color=line.get_color(), label=name)
    trials.set(xlabel="seconds since the sweep began", ylabel="trials")
    memory.set(xlabel="trials finished", ylabel="resident memory of the driver [MiB]")
    memory.set_ylim(bottom=0)
    for axes in (trials, memory):
        axes.grid(alpha=0.3)
        axes.legend(fontsize=8)
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path)
