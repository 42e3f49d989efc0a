"""A cluster whose head is killed while a sweep runs: a sentence and an exit code, and no end in native code."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest
from ray_head import ray_head

from processes import carriers_of, wait_for
from sweeping import end, environment

pytestmark = pytest.mark.drill

STUDY = """
# A training that outlives its cluster.
task: {name: linear_functional, kernel: exponential, horizon: 16}
model: {name: diagonal_rnn, width: 3}
training: {seeds: 1, steps: 10000000, validate_every: 1000}
perturbation: {balls: []}
"""


def test_a_sweep_says_that_its_cluster_is_gone(tmp_path: Path) -> None:
    (tmp_path / "long.yaml").write_text(STUDY)
    with ray_head(cpus=1) as head:
        env = environment(**head.client, RAY_AUTH_MODE="disabled")
        words = ("sweep", "long.yaml", "--address", head.cluster, "--results", str(tmp_path / "results"), "--no-page")
        log = tmp_path / "log"
        with log.open("wb") as out:
            command = [sys.executable, "-m", "memsweep", *words]
            process = subprocess.Popen(command, cwd=tmp_path, env=env, stdout=out, stderr=out, start_new_session=True)
        try:
            wait_for(lambda: " step " in log.read_text(), process.poll, seconds=300)
            for pid in carriers_of(head.mark):
                if b"gcs_server" in Path(f"/proc/{pid}/cmdline").read_bytes().partition(b"\0")[0]:
                    os.kill(pid, signal.SIGKILL)
            process.wait(timeout=120)
        finally:
            end(process)
    said = log.read_text()
    assert process.returncode == 4, said
    assert re.search(r"the Ray cluster is gone: its head at \S+ did not answer for 40 s", said)
    assert "what is finished is kept" in said
