"""A study in a real Slurm cluster, requeued and preempted on the way: nothing is lost, and nothing runs twice.

The nodes are hosts of namespaces (``hosts``), each with a slurmd. The batch file is the one that people submit.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from hosts import missing, network, until
from slurm_hosts import SlurmHosts, slurm
from slurm_hosts import missing as missing_slurm
from slurm_study import FIRST, Moment, SlurmStudy, quiet_outcome

from drill_study import CHECKPOINT_EVERY, STEPS, STUDY, Outcome
from paths import ROOT
from tally import Tally

pytestmark = [pytest.mark.drill, pytest.mark.long]

HORIZONS = [FIRST, 1_100_000, 1_200_000, 1_300_000, 1_400_000]
BATCH = ROOT / "deploy" / "slurm" / "memsweep.sbatch"


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SlurmHosts]:
    """A cluster of two nodes."""
    if why := missing() or missing_slurm():
        pytest.skip(why)
    with network(tmp_path_factory.mktemp("hosts")) as made, slurm(made, tmp_path_factory.mktemp("slurm"), 2) as up:
        yield up


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """The results of the study in one process when nothing happens to it."""
    return quiet_outcome(tmp_path_factory.mktemp("undisturbed") / "study", HORIZONS)


@pytest.fixture
def study(tmp_path: Path) -> SlurmStudy:
    return SlurmStudy.make(tmp_path / "study", HORIZONS)


class Submitted:
    """A study as a job."""

    def __init__(self, cluster: SlurmHosts, study: SlurmStudy, nodes: int) -> None:
        self.cluster, self.study, self.nodes = cluster, study, nodes
        # Every host has a /tmp/ray of its own, and shares the rest of /tmp.
        path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
        env = cluster.environment(PATH=path, RAY_TMPDIR="/tmp/ray")
        whole = (f"--nodes={nodes}", "--exclusive", "--mem=0") if nodes > 1 else ("--mem=800M",)
        words = ("sbatch", "--parsable", *whole, "--cpus-per-task=1", "--time=30", BATCH, STUDY)
        self.job = cluster.asked(*words, env=env, cwd=study.folder)

    def about(self, field: str) -> str:
        """Slurm's value of a field of the job: its ``JobState``, ``Restarts`` or ``ExitCode``."""
        words = self.cluster.asked("scontrol", "show", "job", self.job).split()
        return dict(word.split("=", 1) for word in words if "=" in word)[field]

    def trains(self) -> Moment:
        """Wait until something is stored, and all its nodes train beyond a checkpoint of this attempt."""
        began = len(self.study.asked())

        def far() -> bool:
            assert self.about("JobState") in ("PENDING", "CONFIGURING", "RUNNING"), self.said()
            new = [asked for asked in self.study.asked()[began:] if asked.horizon > FIRST]
            hosts = {asked.host for asked in new if asked.step >= 7}
            return len(hosts) == self.nodes and bool(self.study.store.identities())

        until(far, 600.0, "its nodes train", pause=1.0)
        return self.study.now()

    def starts_again(self, attempt: int) -> None:
        """Wait until Slurm has it in its queue again; two minutes of rest that Slurm gives it are left out."""
        until(lambda: self.about("Restarts") == str(attempt), 120.0, "it is requeued", pause=0.5)
        until(lambda: self.about("JobState") == "PENDING", 120.0, "it waits", pause=0.5)
        time.sleep(3.0)  # what Slurm signs for a job in the second in which it ends the same job is not valid
        self.cluster.asked("scontrol", "update", f"JobId={self.job}", "StartTime=now")
        until(lambda: self.about("JobState") == "RUNNING", 120.0, "it runs again", pause=0.5)

    def ends(self) -> None:
        """Wait for the end, which is a good one."""
        until(lambda: self.about("JobState") not in ("PENDING", "RUNNING", "COMPLETING"), 600.0, "it ends", pause=1.0)
        assert (self.about("JobState"), self.about("ExitCode")) == ("COMPLETED", "0:0"), self.said()
        for node in self.cluster.nodes:
            assert not node.pids("ray"), f"Ray is left on {node.name}"

    def goes_on_from_checkpoints(self, stops: int) -> bool:
        """Whether no stop cost a pack more than two checkpoints' batches: the last may have been on its way to disk."""
        again = len(self.study.asked()) - STEPS * len(HORIZONS)
        return again <= stops * self.nodes * 2 * CHECKPOINT_EVERY

    def said(self) -> str:
        """The text that the job has written."""
        return "\n".join(path.read_text()[-5000:] for path in sorted(self.study.folder.glob("*.log")))


def test_two_nodes(cluster: SlurmHosts, study: SlurmStudy, undisturbed: Outcome, tally: Tally) -> None:
    job = Submitted(cluster, study, nodes=2)
    before = [job.trains()]
    cluster.asked("scontrol", "requeue", job.job)  # SIGTERM for everything
    job.starts_again(1)
    before.append(job.trains())
    cluster.asked("sbatch", "--partition=urgent", "--nodes=2", "--output=/dev/null", "--wrap=true")  # a warning first
    job.starts_again(2)
    study.quick()
    job.ends()
    equal = Outcome.of(study).equals(undisturbed)
    (lost, rerun), (lost_later, rerun_later) = (study.cost_since(moment) for moment in before)
    tally.record("Slurm job requeued", 1, lost, rerun, equal)
    tally.record("Slurm job preempted", 1, lost_later, rerun_later, equal)
    assert (lost, rerun, lost_later, rerun_later, equal) == (0, 0, 0, 0, True), job.said()
    assert job.goes_on_from_checkpoints(stops=2)
    assert study.failures_counted() == 0, job.said()
    assert "resume" in (study.folder / f"memsweep-{job.job}.ray.log").read_text()


def test_a_part_of_one_node(cluster: SlurmHosts, study: SlurmStudy, undisturbed: Outcome, tally: Tally) -> None:
    job = Submitted(cluster, study, nodes=1)
    before = job.trains()
    cluster.asked("scontrol", "requeue", job.job)
    job.starts_again(1)
    study.quick()
    job.ends()
    lost, rerun = study.cost_since(before)
    equal = Outcome.of(study).equals(undisturbed)
    tally.record("Slurm job requeued", 1, lost, rerun, equal)
    assert (lost, rerun, equal, study.failures_counted()) == (0, 0, True, 0), job.said()
    assert job.goes_on_from_checkpoints(stops=1)
