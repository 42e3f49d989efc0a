"""A real Ray head with its dashboard and job server, for tests: `ray start --head` on free ports, gone afterwards."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path

import requests

from paths import ROOT
from processes import carriers_of, wait_for

PORTS = (
    *("port", "dashboard-port", "dashboard-agent-listen-port", "dashboard-agent-grpc-port"),
    *("ray-client-server-port", "metrics-export-port", "node-manager-port", "object-manager-port"),
    "runtime-env-agent-port",
)


@dataclass(frozen=True)
class RayHead:
    """A running head.

    Attributes:
        address: of its job server, ``http://127.0.0.1:port``.
        cluster: of its control service, as ``--address`` of a sweep takes it.
        token: of its token authentication; empty where it has none.
        folder: of its logs and sessions.
        metrics: where its node exports metrics.
        mark: what every process of it has in its environment.
    """

    address: str
    cluster: str
    token: str
    folder: Path
    metrics: str
    mark: str

    @property
    def client(self) -> dict[str, str]:
        """The environment of a shell whose user may use it."""
        return {"RAY_AUTH_TOKEN": self.token} if self.token else {}

    def get(self, path: str) -> str:
        """The answer of the job server at a path."""
        return self._ask("GET", path)

    def stop(self, job: str) -> None:
        """Asks for what ``ray job stop`` asks for, without the seconds that it takes to start."""
        self._ask("POST", f"/api/jobs/{job}/stop")

    def _ask(self, method: str, path: str) -> str:
        headers = {"Authorization": f"Bearer {self.token}"} if self.token else {}
        answer = requests.request(method, f"{self.address}{path}", headers=headers, timeout=60)
        answer.raise_for_status()
        return answer.text


@contextlib.contextmanager
def ray_head(
    *,
    token: str = "",
    cpus: int = 2,
    memory: int | None = None,
    python: Path | None = None,
    env: Mapping[str, str] | None = None,
    autoscaling: Callable[[str], Path] | None = None,
) -> Iterator[RayHead]:
    """Start a head and stop it, with every process that it started.

    Args:
        token: switches token authentication on.
        cpus: what it offers.
        memory: bytes that it offers (None: those of the machine).
        python: the interpreter of the environment that it runs in (None: this one, with the engine of this checkout).
        env: more of its environment, which its jobs inherit.
        autoscaling: writes what its autoscaler is told, given the head's address (None: it starts no nodes).
    """
    mark = f"memsweep-head-{uuid.uuid4().hex}"
    folder = Path(tempfile.mkdtemp(prefix="h", dir="/tmp"))  # short: sockets lie below it
    ports = dict(zip(PORTS, _free(len(PORTS)), strict=True))
    chosen = python or Path(sys.executable)
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("RAY_AUTH", "RAY_ADDRESS", "RAY_API"))}
    environment = inherited | {
        "PATH": f"{chosen.parent}{os.pathsep}{os.environ['PATH']}",
        "RAY_AUTH_MODE": "token" if token else "disabled",
        "RAY_USAGE_STATS_ENABLED": "0",
        "MEMSWEEP_TEST_HEAD": mark,
        **({"RAY_AUTH_TOKEN": token} if token else {}),
        **(env or {}),
    }
    if python is None:
        environment["PYTHONPATH"] = (env or {}).get("PYTHONPATH", str(ROOT / "platform"))
    command = [str(chosen), "-m", "ray.scripts.scripts", "start", "--head", "--block", "--disable-usage-stats"]
    command += ["--node-ip-address=127.0.0.1", "--dashboard-host=127.0.0.1", "--include-dashboard=true"]
    command += [
        "--min-worker-port=0",
        "--max-worker-port=0",
        f"--num-cpus={cpus}",
        f"--object-store-memory={200 * 2**20}",
        f"--temp-dir={folder}",
    ]
    command += [] if memory is None else [f"--memory={memory}"]
    command += [f"--{name}={port}" for name, port in ports.items()]
    metrics = f"http://127.0.0.1:{ports['metrics-export-port']}/metrics"
    addresses = f"http://127.0.0.1:{ports['dashboard-port']}", f"127.0.0.1:{ports['port']}"
    found = RayHead(*addresses, token, folder, metrics, mark)
    if autoscaling is not None:
        command.append(f"--autoscaling-config={autoscaling(found.cluster)}")
    with (folder / "start.log").open("wb") as log:
        head = subprocess.Popen(
            command, env=environment, cwd=folder, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
        )
    try:
        try:
            wait_for(lambda: _answers(found), head.poll, seconds=300)
        except AssertionError as error:
            raise AssertionError(f"{error}: {(folder / 'start.log').read_text()[-2000:]}") from None
        yield found
    finally:
        _stop(head, mark)
        shutil.rmtree(folder, ignore_errors=True)


def _answers(head: RayHead) -> bool:
    try:
        head.get("/api/jobs/")
    except requests.RequestException:
        return False
    return True


def _stop(head: subprocess.Popen[bytes], mark: str) -> None:
    if head.poll() is None:
        head.send_signal(signal.SIGTERM)
        with contextlib.suppress(subprocess.TimeoutExpired):
            head.wait(timeout=10)
    for _ in range(3):  # what was being started while the others were killed
        for pid in carriers_of(mark):
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
    head.wait(timeout=10)


def _free(count: int) -> list[int]:
    """Ports that were free a moment ago, below those that the system hands out by itself."""
    held: list[socket.socket] = []
    try:
        while len(held) < count:
            port = 20000 + uuid.uuid4().int % 12000
            one = socket.socket()
            try:
                one.bind(("127.0.0.1", port))
            except OSError:
                one.close()
                continue
            held.append(one)
        return [one.getsockname()[1] for one in held]
    finally:
        for one in held:
            one.close()
