"""A plan says that kernels are compiled before it waits for them, which takes minutes on a busy machine."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

STUDY = """
# A plan that waits for the compiler.
task: {name: linear_functional, kernel: exponential, horizon: 8}
model: {name: diagonal_rnn, width: 2}
"""


@pytest.mark.parametrize(("kernels", "gpus", "said"), [("", 0, True), ("plain", 0, False), ("", 1, False)])
def test_that_kernels_are_compiled_is_said_first(tmp_path: Path, kernels: str, gpus: int, said: bool) -> None:
    (tmp_path / "small.yaml").write_text(STUDY)
    env = os.environ | {"MEMSWEEP_CACHE": str(tmp_path / "cache"), "CXX": "/bin/false", "MEMSWEEP_KERNELS": kernels}
    command = [sys.executable, "-m", "memsweep", "plan", "small.yaml", "--no-probe", f"resources.gpus={gpus}"]
    done = subprocess.run(command, cwd=tmp_path, env=env, capture_output=True, text=True, check=True)
    lines = done.stderr.splitlines()
    first = next((place for place, line in enumerate(lines) if line.startswith("compiling the kernels (double)")), None)
    assert (first is not None) is said, lines
    if first is not None:
        assert "/bin/false could not compile the recurrences" in " ".join(lines[first + 1 :])
