"""A measure of another distribution is on page and terminal, in files, JSON and MLflow, with no edit here."""

from __future__ import annotations

import json
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

from memsweep.config.core.fields import setting
from memsweep.registry import register_measure
from memsweep.stability.optional import Measure


@register_measure("weight_spread")
class WeightSpread(Measure):
    """How far the weights of a trained model are spread."""

    table = "weight_spread"
    columns = {"weight": "string", "quantile": "float64", "size": "float64"}
    section = "far_measure.section:section"

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """How far the weights are spread."""

        quantiles: tuple[float, ...] = setting((0.5, 1.0), "quantiles of the sizes", at_least=0.0, at_most=1.0)

    @classmethod
    def cost(cls, asked, effort):
        return 0.0

    def rows(self, model, weights, row):
        for name, values in weights.items():
            sizes = values.detach().abs().flatten().double()
            for quantile in self.asked.quantiles:
                yield {"weight": name, "quantile": quantile, "size": float(sizes.quantile(quantile))}
'''
SECTION = """
from memsweep.report.analysis.losses import Spread
from memsweep.report.values.chart import chart, over_seeds
from memsweep.report.values.section import Section
from memsweep.report.values.table import Column, Table, condition_columns


def section(contents):
    rows = []
    for condition, identities in contents.grouping.members():
        part = contents.measured.of("weight_spread", identities)
        rows.append((condition, part))
    columns = [
        *condition_columns(contents.grouping.columns, contents.labels, lambda row: row[0]),
        Column("largest weight", lambda row: Spread.of(row[1]["size"]), key="largest", ends=True),
    ]
    words = "The quantiles of the sizes of the weights, over all trained models."
    charts = [
        chart(contents.labels.machine(condition), "quantile", "size", "", {"weights": over_seeds(sizes)})
        for condition, part in rows
        for sizes in [part.groupby("quantile")["size"]]
    ]
    metrics = {
        identity: {"weight_spread/largest": float(own["size"].max())}
        for _, part in rows
        for identity, own in part.groupby("identity", observed=True)
    }
    table = Table("weight_spread", "Spread of the weights", rows, columns)
    return Section(table.title, words, table, charts, metrics)
"""
SUITES = """
import far_measure

from memsweep.testing import MeasureSuite


class TestWeightSpread(MeasureSuite):
    measure = "weight_spread"


del MeasureSuite
"""
STUDY = f"""
# How far do the weights of two models spread?
task: {{name: linear_functional, kernel: exponential, horizon: 8}}
model: {{name: diagonal_rnn}}
{FAST}
grid:
  model.parameterization: [direct, exp]
  model.width: [2, 3]
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which pip has installed the distribution, as it would into site-packages."""
    return installed("far_measure", {"__init__.py": MEASURE, "section.py": SECTION}, tmp_path_factory)


def test_a_measure_from_outside_is_everywhere(site: Path, tmp_path: Path) -> None:
    (tmp_path / "search_spaces").mkdir()
    (tmp_path / "search_spaces" / "spread.yaml").write_text(STUDY.lstrip())
    env = environment(site)

    described = memsweep("describe", "perturbation", cwd=tmp_path, env=env)
    assert "how far the weights of a trained model are spread; null" in " ".join(described.stdout.split())
    wrong = memsweep("plan", "spread", "perturbation.weight_spread={quantiles: [2]}", cwd=tmp_path, env=env)
    assert wrong.returncode == 2
    assert "perturbation.weight_spread.quantiles" in wrong.stderr

    asked = ("spread", "+perturbation.weight_spread={}", "perturbation.balls=[]")
    swept = memsweep("sweep", *asked, "--inline", cwd=tmp_path, env=env)
    assert swept.returncode == 0, swept.stdout + swept.stderr
    assert "largest weight" in swept.stdout
    assert "The quantiles of the sizes of the weights" in swept.stdout

    folder = tmp_path / "results" / "spread"
    stored = pd.read_parquet(folder / "weight_spread")
    assert len(stored["identity"].unique()) == 4
    assert np.isfinite(stored["size"]).all()
    exported = pd.read_csv(folder / "report" / "weight_spread.csv")
    assert {"largest", "largest_low", "largest_high"} <= {*exported}
    page = (folder / "report" / "index.html").read_text(encoding="utf-8")
    assert '<section id="weight-spread">' in page
    assert "weight_spread/largest" in {key for run in runs_of(tmp_path / "results")[2] for key in run.data.metrics}

    told = memsweep("report", "spread", "--figures", "pdf", "--json", cwd=tmp_path, env=env)
    assert told.returncode == 0, told.stderr
    assert len(json.loads(told.stdout)["report"]["tables"]["weight_spread"]) == len(exported)
    assert (folder / "report" / "figures" / "weight-spread.pdf").read_bytes().startswith(b"%PDF")
    shown = memsweep("report", "spread", "--table", "weight_spread", "--format", "csv", cwd=tmp_path, env=env)
    assert shown.stdout.splitlines()[0].split(",") == [*exported.columns]


def test_its_own_tests_run_the_suite(site: Path, tmp_path: Path) -> None:
    (tmp_path / "test_measure.py").write_text(SUITES)
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)]
    options = {"cwd": tmp_path, "env": environment(site), "capture_output": True, "text": True, "timeout": 600}
    ended = subprocess.run([sys.executable, *words], **options)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "9 passed" in ended.stdout
