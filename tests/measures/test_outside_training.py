"""A measure of another distribution that sees the gradient of each training step, with no edit here."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from distribution import installed
from sweeping import FAST, environment, memsweep, runs_of

pytestmark = pytest.mark.more

MEASURE = '''
from dataclasses import dataclass

import torch

from memsweep.config.core.fields import setting
from memsweep.learning.training.observer import Observer
from memsweep.registry import register_measure
from memsweep.stability.optional import TrainingMeasure


@register_measure("gradient_size")
class GradientSize(TrainingMeasure):
    """The size of the gradient in training, of the first seed alone."""

    table = "gradient_size"
    columns = {"step": "int64", "size": "float64"}
    is_tracked = True
    section = "far_gradients.section:section"

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """At which steps."""

        gradient_size_every: int = setting(0, "steps between measurements (0: none)", at_least=0)
        gradient_size_scale: float = setting(1.0, "what sizes are multiplied by", above=0.0)

    @classmethod
    def is_asked(cls, asked):
        return asked.gradient_size_every > 0

    @classmethod
    def gradients(cls, asked, training):
        return 0.0

    @classmethod
    def observer(cls, asked, ensemble, training):
        return Sizes(cls.table, ensemble, asked)

    @classmethod
    def summary(cls, rows):
        return {"largest_gradient": max(row["size"] for row in rows)}


class Sizes(Observer):
    def __init__(self, table, ensemble, asked):
        super().__init__(table, ensemble.rows, asked.gradient_size_every)
        self.seeds, self.scale = [each.seed for each in ensemble.replicas], asked.gradient_size_scale

    def expected(self, step):
        return -(-step // self.every)

    def pattern(self, device):
        return torch.full((self.rows,), torch.nan, dtype=torch.float64, device=device)

    def of(self, row, steps):
        places = [place for place in range(len(self.measured)) if place * self.every < steps and self.seeds[row] == 0]
        return [{"step": place * self.every, "size": float(self.measured[place][row])} for place in places]

    def differentiated(self, learner, task_loss, data, step, gradient):
        if self.is_due(step):
            self.measured.append(self.scale * gradient.double().norm(dim=-1))
'''
SECTION = """
from memsweep.report.values.chart import chart, over_seeds
from memsweep.report.values.section import Section


def section(contents):
    part = contents.measured.of("gradient_size", [*contents.measured.records])
    sizes = {"gradient": over_seeds(part.groupby("step")["size"])}
    return Section("Sizes of gradients", "The size of the gradient.", charts=[chart("all", "step", "size", "y", sizes)])
"""
SUITES = """
import far_gradients

from memsweep.testing import MeasureSuite


class TestGradientSize(MeasureSuite):
    measure = "gradient_size"
    config = far_gradients.GradientSize.Config(gradient_size_every=5)


del MeasureSuite
"""
STUDY = f"""
# How large are gradients?
task: {{name: linear_functional, kernel: exponential, horizon: 8}}
model: {{name: diagonal_rnn, width: 2}}
{FAST}
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which pip has installed the distribution, as it would into site-packages."""
    return installed("far_gradients", {"__init__.py": MEASURE, "section.py": SECTION}, tmp_path_factory)


def test_a_measure_from_outside_sees_the_gradients_of_training(site: Path, tmp_path: Path) -> None:
    """Where one seed alone has rows, the training is read from the store, too, and measured in another way."""
    (tmp_path / "search_spaces").mkdir()
    (tmp_path / "search_spaces" / "sizes.yaml").write_text(STUDY.lstrip())
    env, folder = environment(site), tmp_path / "results" / "sizes"
    asked = ("sizes", "training.gradient_size_every=5", "--inline", "--no-page")
    swept = memsweep("sweep", *asked, cwd=tmp_path, env=env)
    assert swept.returncode == 0, swept.stdout + swept.stderr
    stored = pd.read_parquet(folder / "gradient_size")
    assert stored[["seed", "step"]].to_numpy().tolist() == [[0, 0], [0, 5], [0, 10], [0, 15]]
    assert np.isfinite(stored["size"]).all()
    (run,) = [run for run in runs_of(tmp_path / "results")[2] if "final/largest_gradient" in run.data.metrics]
    assert run.data.metrics["final/largest_gradient"] == stored["size"].max()
    assert '<section id="gradient-size">' in (folder / "report" / "index.html").read_text(encoding="utf-8")

    again = memsweep("sweep", *asked, "perturbation.starts=2", cwd=tmp_path, env=env)
    assert again.returncode == 0, again.stdout + again.stderr
    assert "1 of them only measured, from stored weights" in again.stdout
    both = pd.read_parquet(folder / "gradient_size").groupby("step")["size"]
    assert (both.count() == 2).all()
    assert (both.nunique() == 1).all()


def test_what_is_set_and_not_asked_for_measures_nothing(site: Path, tmp_path: Path) -> None:
    (tmp_path / "search_spaces").mkdir()
    (tmp_path / "search_spaces" / "sizes.yaml").write_text(STUDY.lstrip())
    swept = memsweep(
        "sweep", "sizes", "training.gradient_size_scale=2", "--inline", "--no-page", cwd=tmp_path, env=environment(site)
    )
    assert swept.returncode == 0, swept.stdout + swept.stderr
    assert not (tmp_path / "results" / "sizes" / "gradient_size").exists()


@pytest.mark.long
def test_its_own_tests_run_the_suite(site: Path, tmp_path: Path) -> None:
    (tmp_path / "test_measure.py").write_text(SUITES)
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)]
    ended = subprocess.run(
        [sys.executable, *words], cwd=tmp_path, env=environment(site), capture_output=True, text=True, timeout=600
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "9 passed" in ended.stdout
