"""The servers, hosts and small file systems of a campaign, each started when a round first wants it."""

from __future__ import annotations

import os
import shutil
import subprocess
from contextlib import ExitStack, suppress
from functools import cached_property
from pathlib import Path

from hosts import missing, network
from ray_hosts import RayHosts

import s3_server
from fault_proxy import FaultProxy, healthy
from tests.campaign.scenarios import Scenario, scenarios
from tracking_server import MlflowServer

BUCKET = "studies"
MOUNT_SIZE = "64m"
"""Of the small file system: a study of the campaign needs a few MiB, and memsweep wants 16 free ones at its start."""

_HEALTH = {  # faster than ours of deploy/health.env: a campaign waits for many dead hosts
    "RAY_health_check_initial_delay_ms": "2000",
    "RAY_health_check_period_ms": "1000",
    "RAY_health_check_timeout_ms": "2000",
    "RAY_health_check_failure_threshold": "4",
}


class Bench:
    """The ground of the rounds; a context manager.

    Args:
        folder: of servers and logs.

    Attributes:
        root: whether this process may mount file systems.
        compiler: whether there is a C compiler, which clocks that jump need.
    """

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.root = os.geteuid() == 0
        self.compiler = shutil.which("cc") is not None
        self._stack, self._hosts_stack = ExitStack(), ExitStack()
        self._hosts: RayHosts | None = None

    def __enter__(self) -> Bench:
        return self

    def __exit__(self, *_: object) -> None:
        self._hosts_stack.close()
        self._stack.close()

    def scenarios(self) -> list[Scenario]:
        """All that can be run here."""
        stores = ["disk", *(["mount"] if self.root else []), *(["bucket"] if self._swift else [])]
        return scenarios(tuple(stores), hosts=not missing())

    def lacks(self) -> list[str]:
        """Says what is missing here and which kinds of faults that leaves out; one sentence each."""
        return [
            text
            for absent, text in (
                (not self.root, "not root: no small file systems, no hosts"),
                (self._swift is None, "no S3 server (make ci-deps): no buckets, no hosts"),
                (not self.compiler, "no C compiler (make ci-deps): no jumping clocks"),
                (self.root and bool(missing()), missing()),
            )
            if absent
        ]

    @property
    def _swift(self) -> Path | None:
        asked, cache = os.environ.get("MEMSWEEP_SWIFT"), os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
        place = Path(asked) if asked else Path(cache) / "memsweep-ci" / "swift" / "bin"
        return place if (place / "swift-proxy-server").is_file() else None

    @cached_property
    def s3(self) -> s3_server.S3Server:
        """The S3 server; from now on this process has its owner's keys, and reaches it without the proxy."""
        assert self._swift is not None
        folder = self.folder / "s3"
        folder.mkdir()
        server = self._stack.enter_context(s3_server.running(self._swift, folder))
        server.make_bucket(BUCKET)
        os.environ.update(server.environment())
        return server

    @cached_property
    def bucket(self) -> FaultProxy:
        """Between commands and the S3 server."""
        return self._stack.enter_context(FaultProxy(int(self.s3.endpoint.rpartition(":")[2])))

    @cached_property
    def mlflow(self) -> MlflowServer:
        """The MLflow server."""
        folder = self.folder / "mlflow"
        folder.mkdir()
        server = MlflowServer(folder)
        server.start()
        self._stack.callback(server.kill)
        return server

    @cached_property
    def tracking(self) -> FaultProxy:
        """Between commands and the MLflow server."""
        return self._stack.enter_context(FaultProxy(self.mlflow.port))

    @property
    def hosts(self) -> RayHosts:
        """A cluster of several hosts, whole and running."""
        if self._hosts is not None and all(map(self._hosts.alive, self._hosts.workers)):
            return self._hosts
        self.drop_hosts()
        folder = self.folder / f"hosts.{os.urandom(4).hex()}"
        folder.mkdir()
        made = self._hosts_stack.enter_context(network(folder))
        self._hosts = RayHosts.start(made, self.s3, folder, 2, _HEALTH)
        self._hosts_stack.callback(self._hosts.close)
        return self._hosts

    def drop_hosts(self) -> None:
        """Switch the hosts off; the next round that wants some gets new ones."""
        self._hosts_stack.close()
        self._hosts = None

    def heal_hosts(self) -> None:
        """Put every cable back, switch on what has no power, and let Ray start there again."""
        cluster = self._hosts
        if cluster is None:
            return
        cluster.relay.delay = 0.0
        cluster.relay.open.set()
        for host in (cluster.s3, cluster.head, *cluster.workers):
            if host.first:
                host.plug()
        if not cluster.head.first:  # its workers end without it
            self.drop_hosts()
            return
        for host in cluster.workers:
            if not (host.first and cluster.alive(host) and host.pids("raylet/raylet")):
                host.power_off()
                host.power_on()
                cluster.join(host)

    def heal(self) -> None:
        """Let the servers work again."""
        for name in ("bucket", "tracking"):
            if name in self.__dict__:
                getattr(self, name).rule = healthy
        if "mlflow" in self.__dict__ and not self.mlflow.running:
            self.mlflow.start()

    @property
    def prefix(self) -> list[str]:
        """Words before a command: root's too must heed the permissions of files."""
        if self.root and shutil.which("setpriv"):
            return ["setpriv", "--bounding-set=-dac_override,-dac_read_search", "--"]
        return []


def mount(folder: Path, size: str = MOUNT_SIZE) -> None:
    """Make a small file system of its own in a folder."""
    folder.mkdir(parents=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(folder)], check=True, timeout=30)


def unmount(folder: Path) -> None:
    """Unmount it, also while processes use it."""
    with suppress(subprocess.SubprocessError):
        subprocess.run(["umount", "-l", str(folder)], check=True, capture_output=True, timeout=30)
