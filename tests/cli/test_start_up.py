"""What a person waits for at the command line: lists and refusals import no library that computes."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

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
        (("resume", "quickstrat"), 1, "there are no results of a study 'quickstrat'"),
        (("report", "quickstrat"), 1, "there are no results of a study 'quickstrat'"),
        (("status", "quickstrat"), 1, "there are no results of a study 'quickstrat'"),
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
