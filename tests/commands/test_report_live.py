"""Verdicts while a sweep runs: one line per condition and ball, and none where nothing asks for a verdict."""

from __future__ import annotations

from pathlib import Path

import pandas as pd

from config_study import BASE, load
from memsweep.report.analysis.live_verdicts import LiveVerdicts


def tables(config: object, balls: tuple[str, ...]) -> dict[str, pd.DataFrame]:
    """Curves and replicas of one seed, with columns as a trial writes them."""
    about = {"width": config.model.width, "horizon": getattr(config.task, "horizon", 9)}  # type: ignore[attr-defined]
    curve = [
        {**about, "seed": 0, "ball": ball, "radius": radius, "error": 0.1 * radius, "zero_loss": 1.0}
        for ball in balls
        for radius in (0.0, 0.01, 0.1, 1.0)
    ]
    return {"curves": pd.DataFrame(curve), "replicas": pd.DataFrame([{**about, "seed": 0, "slowest_rate": 0.1}])}


def test_a_condition_is_judged_when_its_last_trial_is_there(tmp_path: Path) -> None:
    grid = "grid: {model.width: [2, 3], model.parameterization: [direct, exp]}\ntraining: {seeds: 1}\n"
    rows = dict(enumerate(load(tmp_path, BASE + grid).rows))
    live = LiveVerdicts((str(key), config) for key, config in rows.items())
    lines = [live.add(str(key), tables(config, ("recurrent", "weights"))) for key, config in rows.items()]
    assert [len(found) for found in lines] == [0, 0, 2, 2]
    assert lines[2][0].startswith("exponential direct, recurrent weights: inconclusive (")
    assert lines[3][1].startswith("exponential exp, ")
    assert live.add("0", tables(rows[0], ("recurrent",))) == []  # seen already


def test_nothing_is_said_where_nothing_was_perturbed(tmp_path: Path) -> None:
    (config,) = load(tmp_path, BASE + "training: {seeds: 1}\n").rows
    live = LiveVerdicts([("a", config)])
    assert live.add("a", tables(config, ())) == []


def test_nothing_is_said_of_a_task_without_a_kernel_and_one_size(tmp_path: Path) -> None:
    text = """
task: {name: copying_bits}
model: {name: residual_stack, width: 4}
training: {seeds: 1}
"""
    (config,) = load(tmp_path, text).rows
    live = LiveVerdicts([("a", config)])
    assert live.add("a", tables(config, ("recurrent",))) == []
