"""An analysis of another distribution is on page and terminal, in files, JSON and MLflow, with no edit here."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pandas as pd
import pytest

from distribution import installed
from sweeping import FAST, environment, memsweep, runs_of

pytestmark = pytest.mark.more

ANALYSIS = '''
from memsweep.registry import register_analysis
from memsweep.report.values.analysis import Analysis


@register_analysis("luck")
class Luck(Analysis):
    """How far the seeds of a condition lie apart."""

    section = "far_analysis.section:section"


@register_analysis("luckier")
class Luckier(Analysis):
    """Which study has luckier seeds."""

    studies = "far_analysis.section:luckier"
'''
SECTION = """
from memsweep.report.analysis.losses import Spread
from memsweep.report.values.chart import chart, spread_point
from memsweep.report.values.section import Section
from memsweep.report.values.side_by_side import Compared
from memsweep.report.values.table import Column, Table, condition_columns


def luckier(contents, letters):
    least = {name: min((min(row.losses) for row in each.trained), default=0.0) for name, each in contents.items()}
    columns = [
        Column("study", lambda name: letters[name]),
        Column("least loss", lambda name: least[name], key="least"),
    ]
    table = Table("luckier", "Luckier seeds", [name for name in contents if contents[name].trained], columns)
    words = "The least loss of all seeds."
    return Compared(["Luck is compared."], [Section(table.title, words, table, heading="The least of all losses")])


def section(contents):
    rows = list(contents.trained)
    columns = [
        *condition_columns(contents.grouping.columns, contents.labels),
        Column("width", lambda row: row.width),
        Column("worst over best seed", lambda row: max(row.losses) / min(row.losses), key="luck"),
    ]
    lines = {"all": [spread_point(row.width, Spread.of(row.losses)) for row in rows]}
    charts = [chart("Luck", "width", "loss", "xy", lines)] if rows else []
    metrics = {
        identity: {"luck/worst_over_best": float(max(row.losses) / min(row.losses))}
        for row in rows
        for identity in row.identities
    }
    answer = ["Seeds lie %d conditions apart." % len(rows)]
    table = Table("luck", "Luck of the seeds", rows, columns)
    words = "The largest loss over the smallest of all seeds."
    return Section(table.title, words, table, charts, metrics, answer=answer)
"""
SUITES = """
import far_analysis

from memsweep.testing import AnalysisSuite


class TestLuck(AnalysisSuite):
    analysis = "luck"


class TestLuckier(AnalysisSuite):
    analysis = "luckier"


del AnalysisSuite
"""
FAULTS = '''
import inspect

import pytest

from memsweep.registry import register_analysis
from memsweep.report.values.analysis import Analysis
from memsweep.report.values.section import Section
from memsweep.report.values.table import Column, Table
from memsweep.testing import AnalysisSuite as Suite

calls = []


@register_analysis("clumsy")
class Clumsy(Analysis):
    """Does all that an analysis must not."""

    section = "test_faults:section"


def section(contents):
    calls.append(contents)
    contents.measured.tables["replicas"]["error"] = len(calls)
    table = Table("losses", "Losses", [len(calls)], [Column("calls", lambda row: row)])
    return Section("", "no sentence", table, metrics={"nobody": {"a": 1.0}})


@pytest.mark.parametrize("name", [name for name in vars(Suite) if name.startswith("test_") and "plain" not in name])
def test_the_suite_finds_each_fault(name, tmp_path):
    suite = Suite()
    suite.analysis = "clumsy"
    with pytest.raises(AssertionError):
        test = getattr(suite, name)
        test(*[tmp_path][: len(inspect.signature(test).parameters)])
'''
STUDY = f"""
# How far do the seeds lie apart?
task: {{name: flip_flop, horizon: 8}}
model: {{name: residual_stack, features: 4, layers: 1, unit: {{name: rnn}}}}
{FAST}
grid:
  model.width: [2, 3]
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return installed("far_analysis", {"__init__.py": ANALYSIS, "section.py": SECTION}, tmp_path_factory)


def test_an_analysis_from_outside_is_everywhere(site: Path, tmp_path: Path) -> None:
    (tmp_path / "search_spaces").mkdir()
    (tmp_path / "search_spaces" / "luck.yaml").write_text(STUDY.lstrip())
    env = environment(site)

    described = memsweep("describe", "luck", cwd=tmp_path, env=env)
    assert "How far the seeds of a condition lie apart." in described.stdout
    swept = memsweep("sweep", "luck", "perturbation.balls=[]", "--inline", cwd=tmp_path, env=env)
    assert swept.returncode == 0, swept.stdout + swept.stderr
    assert "worst over best seed" in swept.stdout
    assert "The largest loss over the smallest of all seeds." in swept.stdout

    folder = tmp_path / "results" / "luck"
    exported = pd.read_csv(folder / "report" / "luck.csv")
    assert (exported["luck"] >= 1).all()
    page = (folder / "report" / "index.html").read_text(encoding="utf-8")
    assert '<section id="luck">' in page
    assert "Seeds lie 2 conditions apart." in page
    assert "luck/worst_over_best" in {key for run in runs_of(tmp_path / "results")[2] for key in run.data.metrics}

    told = memsweep("report", "luck", "--figures", "pdf", "--json", cwd=tmp_path, env=env)
    assert told.returncode == 0, told.stderr
    assert len(json.loads(told.stdout)["report"]["tables"]["luck"]) == len(exported) == 2
    assert (folder / "report" / "figures" / "luck.pdf").read_bytes().startswith(b"%PDF")

    other = shutil.copytree(folder, tmp_path / "other" / "luck")
    words = ("report", "luck", str(other), "--out", "beside")
    beside = memsweep(*words, "--json", cwd=tmp_path, env=env)
    assert beside.returncode == 0, beside.stderr
    found = json.loads(beside.stdout)["comparison"]
    assert "Luck is compared." in found["answers"]
    assert len(found["tables"]["luckier"]) == len(pd.read_csv(tmp_path / "beside" / "luckier.csv")) == 2
    assert "<h2>Luckier seeds</h2>" in (tmp_path / "beside" / "index.html").read_text(encoding="utf-8")
    assert "The least of all losses:" in memsweep(*words, cwd=tmp_path, env=env).stdout

    without = memsweep("report", "luck", cwd=tmp_path)  # where the distribution is not installed
    assert without.returncode == 0, without.stderr
    assert "worst over best seed" not in without.stdout


def test_its_own_tests_run_the_suite_which_finds_faults(site: Path, tmp_path: Path) -> None:
    (tmp_path / "test_analysis.py").write_text(SUITES)
    (tmp_path / "test_faults.py").write_text(FAULTS)
    words = ["-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)]
    options = {"cwd": tmp_path, "env": environment(site), "capture_output": True, "text": True, "timeout": 600}
    ended = subprocess.run([sys.executable, *words], **options)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "17 passed" in ended.stdout
