"""A real Slurm cluster on several hosts (``hosts``): munged, slurmctld and a slurmd on each node, in one folder."""

from __future__ import annotations

import contextlib
import secrets
import shutil
import subprocess
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

from hosts import Host, Network, until

from sweeping import environment

_PROGRAMS = ("munged", "slurmctld", "slurmd", "sbatch", "scontrol")

# Two queues: a job in ``urgent`` takes the nodes of one in ``studies``, which is warned, and requeued.
_CONF = """
ClusterName=drill
SlurmctldHost=ctl({controller})
SlurmUser=root
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
CredType=cred/munge
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool.%n
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.%n.pid
SlurmctldLogFile={folder}/slurmctld.log
SlurmdLogFile={folder}/slurmd.%n.log
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
SlurmdParameters=config_overrides
SchedulerParameters=sched_interval=1
MpiDefault=none
ReturnToService=2
PreemptType=preempt/partition_prio
PreemptMode=REQUEUE
SlurmctldParameters=preempt_send_user_signal
PartitionName=studies Nodes=ALL PriorityTier=1 Default=YES MaxTime=60 GraceTime=60
PartitionName=urgent Nodes=ALL PriorityTier=2 MaxTime=60
"""


def missing() -> str:
    """Why no Slurm can be started here; empty where it can."""
    absent = [name for name in _PROGRAMS if shutil.which(name) is None]
    return f"Slurm needs {', '.join(absent)} (make ci-deps, or Debian's slurmctld, slurmd, munge)" if absent else ""


@dataclass
class SlurmHosts:
    """A controller and its nodes of one CPU each.

    Attributes:
        folder: for configuration, state and logs of the daemons.
    """

    folder: Path
    controller: Host
    nodes: list[Host]

    @classmethod
    def start(cls, network: Network, folder: Path, nodes: int) -> SlurmHosts:
        """All of it; returns when every node is idle."""
        controller = network.host("ctl")
        cluster = cls(folder, controller, [network.host(f"n{number + 1}") for number in range(nodes)])
        (folder / "state").mkdir()
        lines = [f"NodeName={node.name} NodeAddr={node.address} CPUs=1 RealMemory=4000" for node in cluster.nodes]
        conf = _CONF.format(folder=folder, controller=controller.address) + "\n".join(lines) + "\n"
        (folder / "slurm.conf").write_text(conf)
        env = cluster.environment()
        controller.start("slurmctld", "-D", env=env, log=folder / "ctl.log")
        for node in cluster.nodes:
            node.start("slurmd", "-D", env=env, log=folder / f"{node.name}.log")
        idle = ("sinfo", "--noheader", "--states=idle", "--partition=studies", "--format=%D")
        until(lambda: cluster.asked(*idle) == str(nodes), 60.0, "all nodes are idle")
        return cluster

    def environment(self, **more: str) -> dict[str, str]:
        """Of every command on every host."""
        return environment(SLURM_CONF=str(self.folder / "slurm.conf")) | more

    def asked(self, *words: str | Path, env: Mapping[str, str] | None = None, cwd: Path | None = None) -> str:
        """The answer of a Slurm command on the controller; empty while the controller gives none."""
        log = self.folder / "answer"
        log.unlink(missing_ok=True)
        code = self.controller.start(*words, env=env or self.environment(), log=log, cwd=cwd).entered.wait(60)
        assert code == 0 or words[0] == "sinfo", f"{words}: {log.read_text()}"
        return log.read_text().strip() if code == 0 else ""


@contextlib.contextmanager
def slurm(network: Network, folder: Path, nodes: int) -> Iterator[SlurmHosts]:
    """A cluster for as long as the body runs."""
    key = folder / "munge.key"
    key.write_bytes(secrets.token_bytes(128))
    key.chmod(0o600)
    names = ("socket", "pid", "seed")
    places = [f"--{name}{'' if name == 'socket' else '-file'}={folder}/munge.{name}" for name in names]
    with (folder / "munge.log").open("wb") as log:
        command = ["munged", "--foreground", "--force", f"--key-file={key}", *places]
        munged = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=log, stderr=log)
    try:
        until((folder / "munge.socket").exists, 30.0, "munged is up")
        yield SlurmHosts.start(network, folder, nodes)
    finally:
        munged.terminate()
        munged.wait(timeout=30)
