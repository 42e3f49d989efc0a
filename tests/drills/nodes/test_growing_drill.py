"""A node joins a running study and is used; a notice says that it leaves, and it gets no new ones.

A study whose only node goes waits for another.
"""

from __future__ import annotations

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from ray_head import RayHead, ray_head

from drill_study import CHECKPOINT_EVERY, STUDY, Drill, Outcome, study_text
from paths import ROOT
from processes import wait_for
from sweeping import end, environment, start

pytestmark = pytest.mark.drill

HORIZONS = [*range(1_000_000, 3_400_000, 100_000)]
NOT_TRIED = "resources.node_memory=0"
"""No process tries the programs before the study, so that each batch that is asked for is the study's."""


@contextlib.contextmanager
def joined(head: RayHead, drill: Drill, cpus: int) -> Iterator[subprocess.Popen[bytes]]:
    """A node, as ``ray start`` starts it on another machine."""
    words = ["start", "--block", "--disable-usage-stats", f"--address={head.cluster}", "--node-ip-address=127.0.1.9"]
    words += [f"--num-cpus={cpus}", "--object-store-memory=100000000", "--min-worker-port=0", "--max-worker-port=0"]
    named = {"RAY_AUTH_MODE": "disabled", "MEMSWEEP_TEST_HEAD": head.mark, "MEMSWEEP_TEST_DRILL": str(drill.folder)}
    process = subprocess.Popen(
        [sys.executable, "-m", "ray.scripts.scripts", *words],
        env=os.environ | named | {"PYTHONPATH": str(ROOT / "platform")},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        yield process
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGTERM)
        process.wait(timeout=60)


def notice(head: RayHead, address: str) -> None:
    """The head is told that a node is about to end, as a cloud's notice tells it; the node goes on for now."""
    nodes = json.loads(head.get("/api/v0/nodes"))["data"]["result"]["result"]
    (identity,) = [node["node_id"] for node in nodes if node["node_ip"] == address]
    words = ["drain-node", f"--address={head.cluster}", f"--node-id={identity}", "--reason-message=spot"]
    words += ["--reason=DRAIN_NODE_REASON_PREEMPTION", "--deadline-remaining-seconds=600"]
    environment = os.environ | {"RAY_AUTH_MODE": "disabled"}
    subprocess.run([sys.executable, "-m", "ray.scripts.scripts", *words], env=environment, check=True, timeout=300)


@contextlib.contextmanager
def sweeping(
    drill: Drill, cpus: int, *words: str, memory: int | None = None
) -> Iterator[tuple[RayHead, subprocess.Popen[str]]]:
    """A head with so many cores, and the study on the way there; a test that fails says what the command said."""
    env = {"MEMSWEEP_TEST_DRILL": str(drill.folder), "PYTHONPATH": str(ROOT / "platform")}
    with ray_head(cpus=cpus, memory=memory, env=env) as head:
        place = ["--address", head.cluster, "--results", drill.results]
        process = start("sweep", STUDY, *words, *place, cwd=drill.folder, env=environment())
        try:
            yield head, process
        except AssertionError as error:
            end(process)
            raise AssertionError(f"{error}: {process.communicate(timeout=60)}") from error
        finally:
            end(process)


def finished(drill: Drill, process: subprocess.Popen[str], here: Path) -> str:
    """Standard error of the command, which has all trials, equal to the bit to those of this process."""
    out, said = process.communicate(timeout=600)
    assert process.returncode == 0, out + said
    assert f"{len(HORIZONS)}/{len(HORIZONS)} done" in out
    alone = Drill.make(here, study_text(HORIZONS, "model.width: [2]"))
    ended = alone.command("sweep", STUDY, "--inline")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert Outcome.of(drill).equals(Outcome.of(alone))
    return said


@pytest.mark.long
def test_a_node_joins_and_leaves_while_a_study_runs(tmp_path: Path) -> None:
    drill = Drill.make(tmp_path / "drill", study_text(HORIZONS, "model.width: [2]"))
    drill.slow()
    with sweeping(drill, 1, NOT_TRIED) as (head, process):
        wait_for(drill.asked, process.poll)
        with joined(head, drill, cpus=2) as node:
            wait_for(lambda: len({asked.pid for asked in drill.asked()}) == 3, process.poll)
            notice(head, "127.0.1.9")
            wait_for(lambda: len({asked.pid for asked in drill.asked()[-40:]}) == 1, process.poll)
            assert node.poll() is None
        drill.quick()
        said = finished(drill, process, tmp_path / "here")
    assert "the nodes have room for 3 packs at once now (1 before)" in said
    assert "the nodes have room for 1 pack at once now (3 before)" in said
    asked = [(asked.horizon, asked.step) for asked in drill.asked()]
    assert len(asked) - len(set(asked)) <= 2 * CHECKPOINT_EVERY  # what runs there at the end goes on elsewhere


@pytest.mark.long
def test_the_only_node_goes_and_another_comes(tmp_path: Path) -> None:
    drill = Drill.make(tmp_path / "drill", study_text(HORIZONS, "model.width: [2]"))
    drill.slow()
    with sweeping(drill, 0, NOT_TRIED) as (head, process):
        with joined(head, drill, cpus=1):
            wait_for(lambda: len(drill.store.identities()) >= 2, process.poll)
            before = drill.now()
        drill.quick()
        with joined(head, drill, cpus=1):
            said = finished(drill, process, tmp_path / "here")
    assert "no node has room for a pack; " in said
    assert " have not ended. Nobody starts nodes here. Waited 0 s" in said
    assert "the nodes have room for 1 pack at once now (0 before)" in said
    assert drill.cost_since(before) == (0, 0)


@pytest.mark.long
def test_a_node_holds_as_many_packs_as_its_memory(tmp_path: Path) -> None:
    drill = Drill.make(tmp_path / "drill", study_text(HORIZONS, "model.width: [2]"))
    with sweeping(drill, 2, memory=300 * 2**20) as (_, process):
        said = finished(drill, process, tmp_path / "here")
    assert re.search(r"needs about \d\.\d GiB of memory, .* the largest node has 0\.3 GiB: each pack gets a node", said)
    tried, *workers = dict.fromkeys(asked.pid for asked in drill.asked())
    assert len(workers) == 1, (tried, workers)  # though there are two cores
