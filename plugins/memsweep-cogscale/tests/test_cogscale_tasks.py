"""Every task of CogScale that the plug-in has keeps the contract of a task, with CogScale's own numbers."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

pytest.importorskip("cogscale", reason="the package cogscale is not installed")

import cogscale
from memsweep_cogscale.task import SIZES, SOLVED, CogScale

from memsweep.data.api import NOTHING, TEST, Stream
from memsweep.testing import TaskSuite

README = (Path(__file__).parents[1] / "README.md").read_text(encoding="utf-8")


@pytest.fixture(params=SOLVED)
def problem(request: pytest.FixtureRequest) -> str:
    name: str = request.param
    return name


class TestSmallTask(TaskSuite):
    task = "cogscale"
    chance_metric = 0.08  # more than three standard deviations of a third in 512 sequences

    @pytest.fixture(autouse=True)
    def _of(self, problem: str) -> None:
        self.config = CogScale.Config(problem=problem)


@pytest.mark.parametrize("size", SIZES)
def test_sequences_and_score_are_those_of_cogscale(problem: str, size: str) -> None:
    """CogScale's own score of answers is what the accuracy leaves; drawing changes none of its tables."""
    task = CogScale(CogScale.Config(problem=problem, size=size))
    before = dict(SIZES[size][problem]["params"])
    batch = task.draw(Stream(0, TEST), 0, 3)
    assert SIZES[size][problem]["params"] == before
    seed = int(Stream(0, TEST).generator(0).integers(2**63))
    theirs = SIZES[size][problem]["fct"](**{**before, "n_train": 3, "n_valid": 0, "n_test": 0, "seed": seed})
    np.testing.assert_array_equal(batch.inputs.numpy(), theirs["X_train"])
    assert theirs["category"] == "classification"
    right = task.oracle(batch.inputs)
    answers = right.clone()
    answers[0] = answers[0].roll(1, -1)  # one sequence of three is wrong
    for each, missed in ((right, 0.0), (answers, 1 / 3)):
        score = cogscale.compute_score(theirs["Y_train"], each.numpy(), "classification")
        assert score == pytest.approx(missed)
        assert 1 - float(task.metrics(each, batch)["accuracy"]) == pytest.approx(missed)
    assert bool((batch.targets != NOTHING).any(-1).all())


def test_the_readme_names_what_is_there_and_what_is_left_out() -> None:
    there, _, left = README.partition("Left out")
    assert {*re.findall(r"^\| `(\w+)` \|", there, re.MULTILINE)} == {*SOLVED}
    assert {*re.findall(r"`(\w+)`", left.partition("\n\n")[0])} == {*cogscale.tasks} - {*SOLVED}


def test_a_study_names_it_as_the_readme_says(tmp_path: Path) -> None:
    """In a process that has only its entry point to find it by; the tasks are an axis of the grid."""
    (study,) = re.findall(r"```yaml\n(.*?)```", README, re.DOTALL)
    file = tmp_path / "search_spaces" / "mine.yaml"
    file.parent.mkdir()
    file.write_text(study)
    words = [sys.executable, "-m", "memsweep", "plan", "mine", "--no-probe"]
    done = subprocess.run(words, cwd=tmp_path, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr
    assert "2 trials" in done.stdout
