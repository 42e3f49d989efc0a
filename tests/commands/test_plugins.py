"""A task and a model of another distribution are swept with no edit here, and a broken plugin costs one sentence."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from sweeping import FAST, environment, memsweep

PYPROJECT = """
[build-system]
requires = ["setuptools"]
build-backend = "setuptools.build_meta"

[project]
name = "far-away"
version = "1.0"

[project.entry-points."memsweep.plugins"]
squares = "far_away.parts"
rotten = "far_away.rotten:Part"
quitter = "far_away.quitter"
"""
PARTS = '''
from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import torch

from memsweep.config.core.fields import setting
from memsweep.data.api import Batch, Stream, Task
from memsweep.models.base import Model, Part, Role
from memsweep.registry import register_model, register_task


@register_task("delayed_square")
class DelayedSquare(Task):
    """Answer with the square of what came some steps ago: no linear model can."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """The square of an earlier input."""

        horizon: int = setting(8, "sequence length", at_least=2)
        delay: int = setting(1, "steps between an input and its answer", at_least=0, at_most=100)

    @property
    def horizon(self) -> int:
        return self.config.horizon

    def draw(self, stream: Stream, index: int, size: int) -> Batch:
        noise = stream.generator(index).standard_normal((size, self.horizon, 1))
        inputs = torch.from_numpy(noise)
        padded = torch.cat([torch.zeros(size, self.config.delay, 1, dtype=inputs.dtype), inputs], 1)
        return Batch(inputs, padded[:, : self.horizon].square())

    def loss(self, outputs, batch: Batch):
        return (outputs - batch.targets).square().mean((-1, -2, -3))

    def chance(self) -> float:
        return 2.0 * max(0, self.horizon - self.config.delay) / self.horizon  # a squared normal has variance 2

    def oracle(self, inputs):
        answers = torch.zeros_like(inputs)
        for time in range(self.config.delay, self.horizon):
            answers[:, time] = inputs[:, time - self.config.delay] ** 2
        return answers


@register_model("leaky_tanh")
class LeakyTanh(Model):
    """Leaky units that are driven through a tanh."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """Leaky units."""

        width: int = setting(4, "number of units", at_least=1)

    @classmethod
    def roles(cls, config):
        return {
            "leak": Role(Part.RECURRENT, ("width",), diagonal=True),
            "drive": Role(Part.ENCODER, ("width", "input")),
            "drive_bias": Role(Part.BIAS, ("width",)),
            "readout": Role(Part.READOUT, ("output", "width")),
        }

    @classmethod
    def initial(cls, config, signature, rng: np.random.Generator) -> dict[str, np.ndarray]:
        return {
            "leak": rng.uniform(-1.0, 1.0, config.width),
            "drive": rng.standard_normal((config.width, signature.inputs)),
            "drive_bias": rng.standard_normal(config.width),
            "readout": rng.standard_normal((signature.outputs, config.width)) / config.width,
        }

    def forward(self, inputs):
        drive = torch.tanh(inputs @ self.drive.T + self.drive_bias)
        state, states = torch.zeros_like(drive[:, 0]), []
        for now in drive.unbind(1):
            state = torch.sigmoid(self.leak) * state + now
            states.append(state)
        return torch.stack(states, 1) @ self.readout.T
'''
SUITES = """
import far_away.parts

from memsweep.testing import ModelSuite, TaskSuite


class TestDelayedSquare(TaskSuite):
    task = "delayed_square"


class TestLongDelay(TaskSuite):
    task = "delayed_square"
    config = far_away.parts.DelayedSquare.Config(delay=3)


class TestLeakyTanh(ModelSuite):
    model = "leaky_tanh"


del ModelSuite, TaskSuite
"""
STUDY = f"""
# Do squares need memory?
task: {{name: delayed_square, horizon: 8}}
model: {{name: leaky_tanh}}
{FAST}
grid:
  task.delay: [0, 2]
  model.width: [2, 3]
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder into which pip has installed the distribution, as it would into site-packages."""
    source, target = tmp_path_factory.mktemp("source"), tmp_path_factory.mktemp("site")
    package = source / "src" / "far_away"
    package.mkdir(parents=True)
    (source / "pyproject.toml").write_text(PYPROJECT)
    (package / "__init__.py").touch()
    (package / "parts.py").write_text(PARTS)
    (package / "rotten.py").write_text("import a_library_that_nobody_has\n")
    (package / "quitter.py").write_text("import sys\n\nsys.exit('I only run on Tuesdays')\n")
    words = ["install", "--quiet", "--no-index", "--no-deps", "--no-build-isolation", "--target", target, source]
    subprocess.run([sys.executable, "-m", "pip", *map(str, words)], check=True, capture_output=True, timeout=600)
    return target


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    """A workspace that has no task of its own."""
    (tmp_path / "search_spaces").mkdir()
    (tmp_path / "search_spaces" / "squares.yaml").write_text(STUDY.lstrip())
    return tmp_path


def warnings_of(text: str) -> list[str]:
    return [line for line in text.splitlines() if line.startswith("warning: ")]


@pytest.mark.more
@pytest.mark.parametrize("how", ["--inline", "--ray"])
def test_parts_of_another_distribution_are_swept(site: Path, workspace: Path, how: str) -> None:
    ended = memsweep("sweep", "squares", how, cwd=workspace, env=environment(site))
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "4/4 done" in ended.stdout
    quitter, rotten = sorted(warnings_of(ended.stderr))
    assert quitter.startswith(
        "warning: plugin 'quitter' of 'far-away' (far_away.quitter) was skipped: SystemExit: I only"
    )
    assert rotten.startswith(
        "warning: plugin 'rotten' of 'far-away' (far_away.rotten:Part) was skipped: ModuleNotFound"
    )
    assert ended.stderr.count("\n") == 2

    folder = workspace / "results" / "squares"
    curves, replicas = pd.read_parquet(folder / "curves"), pd.read_parquet(folder / "replicas")
    trials = pd.read_csv(folder / "report" / "trials.csv")
    assert set(trials["task"]) == {"delayed_square"}
    assert set(trials["model"]) == {"leaky_tanh"}
    assert not {"kernel", "task.kernel", "activation", "model.parameterization"} & {*trials, *curves}
    assert np.isfinite(curves["error"]).all()
    for _, curve in curves.groupby(["identity", "seed", "ball"]):
        assert curve.sort_values("radius")["error"].is_monotonic_increasing
    assert sorted(set(replicas["width"])) == [2, 3]
    assert (replicas["error"] > 0).all()
    assert replicas["margin"].isna().all()  # only a linear model has eigenvalues
    verdicts = pd.read_csv(folder / "report" / "verdicts.csv")
    assert len(verdicts) == 2  # two delays
    assert set(verdicts["verdict"]) == {"inconclusive"}  # two widths and one horizon say nothing about a slope


@pytest.mark.more
def test_the_parts_are_listed_and_described(site: Path, workspace: Path) -> None:
    env = environment(site)
    tasks = memsweep("list", "tasks", cwd=workspace, env=env)
    assert tasks.returncode == 0
    assert re.search(r"^delayed_square +Answer with the square", tasks.stdout, re.MULTILINE)
    assert len(warnings_of(tasks.stderr)) == 2
    assert "leaky_tanh" in memsweep("list", "models", cwd=workspace, env=env).stdout
    described = memsweep("describe", "delayed_square", cwd=workspace, env=env)
    assert described.returncode == 0
    assert "steps between an input and its answer" in described.stdout


@pytest.mark.more
def test_a_mistake_in_a_plugin_s_field_is_told_like_any_other(site: Path, workspace: Path) -> None:
    ended = memsweep("sweep", "squares", "task.delay=-1", "model.with=3", cwd=workspace, env=environment(site))
    assert ended.returncode == 2
    problems = [line for line in ended.stderr.splitlines() if line.startswith("  - ")]
    assert len(problems) == 2, ended.stderr
    assert "Did you mean 'width'?" in ended.stderr
    assert not (workspace / "results").exists()


@pytest.mark.more
def test_the_conformance_suites_run_in_the_plugin_s_own_tests(site: Path, tmp_path: Path) -> None:
    (tmp_path / "test_parts.py").write_text(SUITES)
    ended = subprocess.run(
        [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(tmp_path), str(tmp_path)],
        cwd=tmp_path,
        env=environment(site),
        capture_output=True,
        text=True,
        timeout=600,
    )
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert " passed" in ended.stdout
    assert "skipped" not in ended.stdout
    assert os.linesep + "FAILED" not in ended.stdout
