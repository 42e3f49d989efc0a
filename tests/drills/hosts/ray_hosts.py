"""A real Ray cluster on several hosts (``hosts``), and a real S3 server that they reach through one of them."""

from __future__ import annotations

import contextlib
import secrets
import socket
import sys
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

from hosts import Host, Network, until

from paths import ROOT
from s3_server import S3Server
from sweeping import environment

PORT, S3_PORT = 6379, 9000
_STORE = str(100 * 2**20)  # bytes of a node's object store

# Ray's own view of its nodes, as the head keeps it, told whenever it changes.
_WATCH = """
import sys, time
from ray._raylet import GcsClient
client, known = GcsClient(address=sys.argv[1]), {}
while True:
    for node, info in client.get_all_node_info(timeout=5).items():
        alive = info.state == 0
        if known.get(node) != alive:
            known[node] = alive
            print(time.time(), info.node_manager_address, int(alive), flush=True)
    time.sleep(0.1)
"""


class Relay:
    """Takes connections on a host's address and passes them on to the S3 server of this machine, byte by byte.

    Attributes:
        delay: seconds before the first byte of every answer.
        open: cleared, nothing is passed on in any direction; connections stay.
    """

    def __init__(self, listener: socket.socket, port: int) -> None:
        self.delay = 0.0
        self.open = threading.Event()
        self.open.set()
        self._listener, self._port = listener, port
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """Take no more connections."""
        self.open.set()
        self._listener.close()

    def _accept(self) -> None:
        with contextlib.suppress(OSError):
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(("127.0.0.1", self._port))
                asked = threading.Event()
                for pair in ((client, server, asked.set), (server, client, partial(self._late, asked))):
                    threading.Thread(target=self._pass_on, args=pair, daemon=True).start()

    def _late(self, asked: threading.Event) -> None:
        if asked.is_set():
            time.sleep(self.delay)
            asked.clear()

    def _pass_on(self, source: socket.socket, sink: socket.socket, first: Callable[[], None]) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(2**16):
                first()
                self.open.wait()
                sink.sendall(data)
        for end in (source, sink):
            with contextlib.suppress(OSError):
                end.shutdown(socket.SHUT_RDWR)
            end.close()


@dataclass
class RayHosts:
    """A head without CPUs, workers of one CPU each, and a host with S3.

    Attributes:
        health: the settings of the head's health checks, as environment variables.
        folder: for logs.
    """

    network: Network
    server: S3Server
    folder: Path
    health: Mapping[str, str]
    workers: list[Host]
    head: Host
    s3: Host
    relay: Relay = field(init=False)
    _token: str = field(default_factory=lambda: secrets.token_hex(32), repr=False)
    _watches: int = 0

    @classmethod
    def start(
        cls, network: Network, server: S3Server, folder: Path, workers: int, health: Mapping[str, str]
    ) -> RayHosts:
        """All of it, up and running."""
        head, s3 = network.host("head"), network.host("s3")
        cluster = cls(network, server, folder, health, [], head, s3)
        cluster.relay = Relay(s3.listening(S3_PORT), int(server.endpoint.rpartition(":")[2]))
        cluster.start_head()
        for number in range(workers):
            cluster.workers.append(network.host(f"w{number + 1}"))
        cluster.join(*cluster.workers)
        return cluster

    def close(self) -> None:
        """Ends the processes that do not end with the hosts."""
        self.relay.close()

    def environment(self, **more: str) -> dict[str, str]:
        """Of every command on every host."""
        keys = self.server.environment() | {"AWS_ENDPOINT_URL": f"http://{self.s3.address}:{S3_PORT}"}
        auth = {"RAY_AUTH_MODE": "token", "RAY_AUTH_TOKEN": self._token}
        return environment() | keys | auth | {"RAY_ENABLE_UV_RUN_RUNTIME_ENV": "0"} | more

    def start_head(self) -> None:
        """Ray's head, and a look at its nodes (see ``changes``)."""
        here = ("--head", "--port", str(PORT), "--num-cpus", "0", "--include-dashboard=false")
        self._ray(self.head, *here, env=self.environment(**self.health))
        self._watches += 1
        watch = [sys.executable, "-c", _WATCH, f"{self.head.address}:{PORT}"]
        self.head.start(*watch, env=self.environment(), log=self._watch_log)

    def join(self, *workers: Host) -> None:
        """Ray on hosts that have none, all at once; returns when the head knows them."""
        threads = [threading.Thread(target=self._join, args=(worker,)) for worker in workers]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        for worker in workers:
            until(lambda worker=worker: self.alive(worker), 60.0, f"{worker.name} has joined")

    def _join(self, worker: Host) -> None:
        where = ("--address", f"{self.head.address}:{PORT}", "--num-cpus", "1")
        self._ray(worker, *where, env=self.environment())

    def _ray(self, host: Host, *words: str, env: Mapping[str, str]) -> None:
        ray = (sys.executable, "-m", "ray.scripts.scripts", "start")
        rest = ("--node-ip-address", host.address, "--object-store-memory", _STORE, "--disable-usage-stats")
        host.run(*ray, *words, *rest, env=env, log=self.folder / f"{host.name}.log")

    @property
    def _watch_log(self) -> Path:
        return self.folder / f"nodes.{self._watches}.log"

    def changes(self) -> list[tuple[float, str, bool]]:
        """The head's news of its nodes: when (Unix time), which address, and whether it lives."""
        lines = self._watch_log.read_text().splitlines() if self._watch_log.exists() else []
        parts = [line.split() for line in lines if line.count(" ") == 2]
        return [(float(when), address, alive == "1") for when, address, alive in parts if when[0].isdigit()]

    def alive(self, host: Host) -> bool:
        """Whether the head takes a host for alive."""
        told = [alive for _, address, alive in self.changes() if address == host.address]
        return bool(told) and told[-1]


HEALTH = ROOT / "deploy" / "health.env"


def health_settings(path: Path = HEALTH) -> dict[str, str]:
    """Our settings of Ray's health checks."""
    lines = (line.strip() for line in path.read_text().splitlines())
    return dict(line.split("=", 1) for line in lines if line and not line.startswith("#"))
