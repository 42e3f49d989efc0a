"""Who can reach what a sweep and `make ui` start: every socket is found and asked; it refuses, or is on loopback."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from listening import Listener, fetched, http, listeners, rpc

from paths import ROOT
from processes import carriers_of, descendants_of, wait_for
from sweeping import environment
from tracking_server import free_port

pytestmark = pytest.mark.drill

SESSION = """
import os, sys
from memsweep.sweep.ray.session import ray_session
with ray_session(None):
    import ray
    @ray.remote
    class Worker:
        def ready(self): return True
    worker = Worker.remote()
    ray.get(worker.ready.remote())
    print(os.environ["RAY_AUTH_TOKEN"], flush=True)
    sys.stdin.read()
"""

RPC = {
    "gcs_server": ["NodeInfoGcsService/GetAllNodeInfo", "InternalKVGcsService/InternalKVKeys"],
    "raylet": ["NodeManagerService/GetNodeStats", "ObjectManagerService/Pull"],
    "worker": ["CoreWorkerService/GetCoreWorkerStats"],
    "agent": ["ReporterService/GetTraceback"],
}
"""The gRPC services of each part of Ray: a call of each of its services that reads, and takes an empty request."""

PROBES = {"worker": RPC["worker"][0], "agent": RPC["agent"][0]}


@dataclass(frozen=True)
class Session:
    token: str
    sockets: list[Listener]

    @property
    def reachable(self) -> list[Listener]:
        return [socket for socket in self.sockets if not socket.on_loopback]


def served(pid: int, token: str, call: str) -> bool:
    """Whether a process, or one below it, answers a call to whom has the token."""
    return any(
        # what is still starting listens, and answers nobody
        not socket.on_loopback and rpc(socket.here, f"/ray.rpc.{call}", token, timeout=2.0) == "OK"
        for socket in listeners(descendants_of(pid))
    )


@pytest.fixture(scope="module")
def session() -> Iterator[Session]:
    """An embedded Ray with a worker, as a sweep has it."""
    mark = f"memsweep-ports-{uuid.uuid4().hex}"
    process = subprocess.Popen(
        [sys.executable, "-c", SESSION],
        env=environment(MEMSWEEP_MARK=mark),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
        start_new_session=True,
    )
    assert process.stdin is not None
    assert process.stdout is not None
    try:
        token = process.stdout.readline().strip()
        assert len(token) == 64
        # Ray's agents go on starting while the session is in use
        wait_for(
            lambda: {"worker", "agent"} <= {part for part, call in PROBES.items() if served(process.pid, token, call)}
        )
        yield Session(token, listeners(descendants_of(process.pid)))
    finally:
        process.stdin.close()
        try:
            process.wait(timeout=60)
        finally:
            for pid in carriers_of(mark):
                os.kill(pid, signal.SIGKILL)


def test_every_call_to_ray_without_its_token_is_refused(session: Session) -> None:
    calls = [f"/ray.rpc.{name}" for names in RPC.values() for name in names]
    served: set[str] = set()
    for socket in session.reachable:
        for call in calls:
            if rpc(socket.here, call, session.token) in ("OK", "UNKNOWN"):  # it is served here, to whom has the token
                served.add(call)
                refused = [rpc(socket.here, call), rpc(socket.here, call, "0" * 64), rpc(socket.here, call, "x")]
                assert refused == ["UNAUTHENTICATED"] * 3, (socket, call)
    assert served == set(calls)


def test_what_answers_everybody_tells_measurements_and_nothing_else(session: Session) -> None:
    answers = {(s.here, p): fetched(s.here, p) for s in session.reachable for p in ("/", "/metrics", "/api/jobs/")}
    told = [text for status, text in answers.values() if status == 200]
    assert told  # Ray serves measurements without a token
    for text in told:
        assert re.match(r"# HELP \w+ ", text), text[:200]
        assert session.token not in text
    assert {status for status, _ in answers.values()} <= {0, 200, 401}


def test_a_sweep_without_the_token_joins_nothing(session: Session) -> None:
    call = f"/ray.rpc.{RPC['gcs_server'][0]}"
    (gcs,) = {socket.here for socket in session.sockets if rpc(socket.here, call, session.token) == "OK"}
    join = f"from memsweep.sweep.ray.session import count_nodes; print(count_nodes({gcs!r}))"
    for token, joins in (("", False), ("0" * 64, False), (session.token, True)):
        env = environment(**({"RAY_AUTH_TOKEN": token} if token else {}))
        asked = subprocess.run([sys.executable, "-c", join], env=env, capture_output=True, text=True, check=False)
        assert (asked.returncode == 0) == joins, asked.stderr


def test_make_ui_listens_on_loopback_alone(tmp_path: Path) -> None:
    from mlflow import MlflowClient

    MlflowClient(f"sqlite:///{tmp_path / 'mlflow.db'}").search_experiments()
    mark, port = f"memsweep-ui-{uuid.uuid4().hex}", free_port()
    process = subprocess.Popen(
        ["make", "-s", "ui", f"RESULTS={tmp_path}", f"PORT={port}"],
        cwd=ROOT,
        env=environment(MEMSWEEP_MARK=mark),
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        wait_for(lambda: http(f"127.0.0.1:{port}", "/health") == 200, process.poll, seconds=240)
        found = listeners(carriers_of(mark))
        assert port in {socket.port for socket in found}
        assert all(socket.on_loopback for socket in found), found
    finally:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait(timeout=30)
        for pid in carriers_of(mark):
            os.kill(pid, signal.SIGKILL)
