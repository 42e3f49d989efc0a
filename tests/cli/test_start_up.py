"""Start-up of the command line: lists and refusals import no library that computes."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest

from memsweep.cli import main

HEAVY = ("torch", "scipy", "pandas", "mlflow", "ray", "matplotlib", "optuna")
_RUN = f"""
import sys
from memsweep.cli import main
try:
    code = main(sys.argv[1:])
except SystemExit as ended:
    code = ended.code
print("code", code, "imported", *[name for name in {HEAVY} if name in sys.modules], file=sys.stderr)
"""


@pytest.mark.parametrize(
    ("words", "code", "said"),
    [
        (("--help",), 0, "memsweep sweep quickstart"),
        (("list", "studies"), 0, "quickstart"),
        (("plan", "quickstrat"), 2, "Did you mean 'quickstart'?"),
        (("sweep", "quickstart", "training.steps==="), 2, "cannot be read"),
        (("sweep", "wrong.yaml"), 2, "is not valid YAML in line 3"),
        (("resume", "quickstrat"), 2, "there are no results of a study 'quickstrat'"),
        (("report", "quickstrat"), 2, "there are no results of a study 'quickstrat'"),
        (("status", "quickstrat"), 2, "there are no results of a study 'quickstrat'"),
    ],
)
def test_lists_and_refusals_import_nothing_that_computes(
    words: tuple[str, ...], code: int, said: str, tmp_path: Path
) -> None:
    (tmp_path / "wrong.yaml").write_text("task: x\ngrid: [1\nresources: 2\n")
    ended = subprocess.run(
        [sys.executable, "-c", _RUN, *words], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert said in ended.stdout + ended.stderr
    assert ended.stderr.splitlines()[-1].split() == ["code", str(code), "imported"]


def test_a_study_that_is_wrong_is_refused_without_pandas_and_mlflow(tmp_path: Path) -> None:
    """Fields of models and tasks are known to their classes alone, which import torch."""
    words = [sys.executable, "-c", _RUN, "plan", "quickstart", "training.stepz=1"]
    ended = subprocess.run(words, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert "Did you mean 'steps'?" in ended.stderr
    assert {*ended.stderr.splitlines()[-1].split()} & {"pandas", "mlflow", "ray", "matplotlib", "optuna"} == set()


def test_a_plan_of_many_trials_is_twenty_lines_and_all_lists_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ["plan", "quickstart", "--no-probe", "--results", str(tmp_path)]
    assert main(words) == 0
    short = capsys.readouterr().out
    assert len(short.splitlines()) <= 20
    assert re.search(r"model\.width +2, 3, 4, 6, 8 *\n", short)
    assert "120 trials, 0 done or reused, 120 to run" in short
    assert "--all" in short
    assert "--inline" not in short  # minutes of work
    assert main([*words, "--all"]) == 0
    whole = capsys.readouterr().out
    assert len(re.findall(r"^ ?[0-9a-f]{12} .* to run, pack ", whole, re.MULTILINE)) == 120
    assert "--all" not in whole


def test_a_plan_of_seconds_of_work_runs_without_ray_and_says_what_ray_costs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    words = ("task.horizon=50", "model.width=2", "--no-probe", "--results", str(tmp_path))
    assert main(["plan", "quickstart", *words]) == 0
    told = " ".join(capsys.readouterr().out.split())
    assert "runs in this process: it is short by the cost model" in told
    assert "of work" not in told
    assert "expected in this process: " in told
    assert "s for Ray and its workers to start, and 30 s of the processor or more" in told


def test_no_garbage_is_looked_for_while_a_command_imports(tmp_path: Path) -> None:
    """Each full search would go through all that torch made; later ones leave it out."""
    code = (
        "import gc, sys\n"
        "from memsweep.cli import main\n"
        "full = []\n"
        "gc.callbacks.append(lambda phase, info: full.append(phase) if info['generation'] == 2 else None)\n"
        "code = main(['list', 'tasks'])\n"
        "print('found', code, len(full), 'torch' in sys.modules, gc.isenabled(), gc.get_freeze_count() > 100_000)"
    )
    ended = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False, cwd=tmp_path)
    assert ended.stdout.splitlines()[-1] == "found 0 0 True True True"
