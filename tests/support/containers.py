"""The local cluster for drills: the project's own `make cluster` on an ordinary engine, or on the one that a rig gives.

``MEMSWEEP_CONTAINER_RIG`` names a script that knows ``engine``, ``images``, ``build``, ``isolate``, ``compose``,
``docker``, ``in`` and ``down``, as ``tests/deploy/rig/containers.sh`` does; without it ``docker`` is used as it is.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from paths import ROOT

RIG = "MEMSWEEP_CONTAINER_RIG"
PROJECT = "memsweep-drill"

# Runs in the head, twice a second: how many results are stored, and which nodes are alive.
WATCHER = """
import json, os, sys, time, urllib.request
import pyarrow.fs
bucket, study = sys.argv[1], sys.argv[2]
store = pyarrow.fs.S3FileSystem(
    endpoint_override=os.environ["AWS_ENDPOINT_URL"],
    region=os.environ["AWS_REGION"],
    connect_timeout=3,
    request_timeout=5,
)
records = pyarrow.fs.FileSelector(f"{bucket}/results/{study}/records", allow_not_found=True)
nodes = urllib.request.Request(
    "http://127.0.0.1:8265/api/v0/nodes", headers={"Authorization": "Bearer " + os.environ["RAY_AUTH_TOKEN"]}
)
while True:
    told = {}
    try:
        told["results"] = {file.base_name: file.mtime_ns for file in store.get_file_info(records)}
        with urllib.request.urlopen(nodes, timeout=5) as answer:
            found = json.load(answer)["data"]["result"]["result"]
        told["alive"] = {node["node_id"]: node["node_ip"] for node in found if node["state"] == "ALIVE"}
    except (OSError, KeyError) as error:
        told["error"] = str(error)
    print(json.dumps(told), flush=True)
    time.sleep(0.5)
"""

# Runs in the head: everything below a prefix of the bucket, as a tar on standard output.
FETCH = """
import io, os, sys, tarfile
import pyarrow.fs
store = pyarrow.fs.S3FileSystem(endpoint_override=os.environ["AWS_ENDPOINT_URL"], region=os.environ["AWS_REGION"])
prefix = sys.argv[1]
with tarfile.open(fileobj=sys.stdout.buffer, mode="w|") as archive:
    for file in store.get_file_info(pyarrow.fs.FileSelector(prefix, recursive=True)):
        if file.is_file:
            content = store.open_input_stream(file.path).read()
            entry = tarfile.TarInfo(file.path.removeprefix(prefix + "/"))
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
"""


# Run where published ports are: an answer to who has the token, and the code of the answer to a stranger.
ASK = """
import os, sys, urllib.request
key = {"Authorization": "Bearer " + os.environ["RAY_AUTH_TOKEN"]}
print(urllib.request.urlopen(urllib.request.Request(sys.argv[1], headers=key), timeout=30).read().decode())
"""
KNOCK = """
import sys, urllib.error, urllib.request
try:
    print(urllib.request.urlopen(sys.argv[1], timeout=30).status)
except urllib.error.HTTPError as error:
    print(error.code)
"""


class ContainersError(Exception):
    """A command of the drill failed; the message holds what it said."""


def rig() -> str | None:
    """The script that stands in for the engine, if one is named."""
    named = os.environ.get(RIG)
    return str(Path(named).resolve()) if named else None


def run(*words: str | Path, timeout: float = 900.0, **options: Any) -> str:
    """A command from start to end; what it printed.

    Raises:
        ContainersError: it failed.
    """
    done = subprocess.run([*map(str, words)], capture_output=True, text=True, timeout=timeout, check=False, **options)
    if done.returncode != 0:
        raise ContainersError(
            f"{' '.join(map(str, words))[:300]}: exit {done.returncode}\n{done.stdout}\n{done.stderr}"
        )
    return done.stdout


def engine() -> str:
    """The engine that answers ``docker info``, or the rig; for tests that need either.

    Raises:
        ContainersError: neither is there.
    """
    if script := rig():
        if not os.access(script, os.X_OK):
            raise ContainersError(f"{RIG} names {script}, which is no program")
        return script
    found = shutil.which("docker")
    if found is None:
        raise ContainersError("there is no docker")
    run(found, "info", timeout=20)
    run(found, "compose", "version", timeout=20)
    return found


@dataclass
class Cluster:
    """The stack of docker-compose.yml, under a project name and with ports and secrets of its own.

    Attributes:
        settings: its file of settings and secrets.
        image: the image that it runs.
    """

    settings: Path
    image: str = f"{PROJECT}:cpu"
    values: dict[str, str] = field(default_factory=dict)

    @property
    def environment(self) -> dict[str, str]:
        """For make, docker and compose."""
        return os.environ | {
            "COMPOSE_PROJECT_NAME": PROJECT,
            "MEMSWEEP_IMAGE": self.image,
            "ENV_FILE": str(self.settings),
        }

    def prepare(self) -> None:
        """Settings with ports that are free; a rig's engine with the images that it stands in for."""
        run(sys.executable, ROOT / "docker" / "environment.py", ROOT / ".env.example", self.settings)
        text = self.settings.read_text()
        for name, port in (("CLUSTER_MLFLOW_PORT", 15000), ("CLUSTER_RAY_PORT", 18265)):
            text = re.sub(rf"^{name}=.*$", f"{name}={port + os.getpid() % 1000}", text, flags=re.MULTILINE)
        self.settings.write_text(text)
        self.values = dict(line.split("=", 1) for line in text.splitlines() if re.match(r"[A-Z_]+=", line))
        if script := rig():
            run(script, "engine")
            run(script, "images")

    def make(self, target: str, **more: str) -> str:
        """``make TARGET``, as a person would."""
        return run("make", "--no-print-directory", "-C", ROOT, target, env=self.environment | more)

    def docker(self, *words: str, **options: Any) -> str:
        """``docker WORDS``."""
        return run(*([rig()] if rig() else []), "docker", *words, env=self.environment, **options)

    def compose(self, *words: str) -> str:
        """``docker compose WORDS`` on this stack."""
        start = [rig() or "docker", "compose", "--file", ROOT / "docker-compose.yml", "--env-file", self.settings]
        return run(*start, *words, env=self.environment)

    def inside(self, *words: str | Path, **options: Any) -> str:
        """A command where published ports are on 127.0.0.1."""
        return run(*self.place, *words, **options)

    @property
    def place(self) -> list[str]:
        """The words before a command that make it run where the published ports are."""
        script = rig()
        return [script, "in"] if script else []

    def containers(self, service: str) -> list[str]:
        """The names of a service's containers, all of them."""
        told = self.docker(
            *("ps", "--all", "--format", "{{.Names}}", "--filter", f"label=com.docker.compose.project={PROJECT}"),
            *("--filter", f"label=com.docker.compose.service={service}"),
        )
        return sorted(told.split())

    def inspect(self, container: str) -> dict[str, Any]:
        """All that the engine knows of a container."""
        told: list[dict[str, Any]] = json.loads(self.docker("inspect", container))
        return told[0]

    def address(self, container: str) -> str:
        """Where a worker is in the network of the cluster."""
        return str(self.inspect(container)["NetworkSettings"]["Networks"][f"{PROJECT}_cluster"]["IPAddress"])

    @property
    def dashboard(self) -> str:
        """Ray's published address."""
        return f"http://127.0.0.1:{self.values['CLUSTER_RAY_PORT']}"

    @property
    def mlflow(self) -> str:
        """MLflow's published address."""
        return f"http://127.0.0.1:{self.values['CLUSTER_MLFLOW_PORT']}"

    @property
    def secrets(self) -> list[str]:
        """Every random word of the settings."""
        return [value for value in self.values.values() if re.fullmatch(r"[0-9a-f]{48}", value)]

    def client(self, **more: str) -> dict[str, str]:
        """The environment of one who may submit jobs and read MLflow."""
        mine = {name: value for name, value in os.environ.items() if not name.startswith(("RAY_", "MLFLOW_", "AWS_"))}
        return mine | {
            "RAY_AUTH_MODE": "token",
            "RAY_AUTH_TOKEN": self.values["CLUSTER_RAY_TOKEN"],
            "MLFLOW_TRACKING_USERNAME": self.values["CLUSTER_MLFLOW_USER"],
            "MLFLOW_TRACKING_PASSWORD": self.values["CLUSTER_MLFLOW_PASSWORD"],
            **more,
        }

    def ray_job(self, *words: str, **options: Any) -> str:
        """``ray job WORDS`` at the published port."""
        ray = [sys.executable, "-m", "ray.scripts.scripts", "job"]
        verb, *rest = words
        return self.inside(*ray, verb, "--address", self.dashboard, *rest, env=self.client(), **options)

    def api(self, path: str) -> str:
        """An answer of Ray's dashboard to one who has the token."""
        return self.inside(sys.executable, "-c", ASK, self.dashboard + path, env=self.client())

    def status(self, job: str) -> str:
        """How a job stands: PENDING, RUNNING, SUCCEEDED, FAILED, STOPPED."""
        return str(json.loads(self.api(f"/api/jobs/{job}"))["status"])

    def log(self, job: str) -> str:
        """The text that a job has printed so far; cheap to ask again and again, as Ray's own command is not."""
        return str(json.loads(self.api(f"/api/jobs/{job}/logs"))["logs"])

    def code_of(self, url: str) -> int:
        """The status code that a stranger gets."""
        return int(self.inside(sys.executable, "-c", KNOCK, url))

    def fetch(self, study: str, folder: Path) -> Path:
        """A study's files, copied out of the bucket into a folder."""
        (head,) = self.containers("ray-head")
        to = folder / study
        to.mkdir(parents=True)
        words = [*([rig()] if rig() else []), "docker", "exec", "-i", head, "python3", "-", f"memsweep/results/{study}"]
        with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=self.environment) as fetching:
            assert fetching.stdin is not None
            assert fetching.stdout is not None
            fetching.stdin.write(FETCH.encode())
            fetching.stdin.close()
            subprocess.run(["tar", "-x", "-C", to], stdin=fetching.stdout, check=True)
        assert fetching.returncode == 0
        return to


@dataclass
class Watch:
    """Watches a sweep while it runs, twice a second.

    Attributes:
        results: each stored record, and when it was written.
        alive: node -> address of those that Ray holds for alive; one that starts anew is another node.
    """

    process: subprocess.Popen[str]
    results: dict[str, int] = field(default_factory=dict)
    alive: dict[str, str] = field(default_factory=dict)

    def follow(self) -> None:
        """Read until the head is gone."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            told = json.loads(line)
            self.results = told.get("results", self.results)
            self.alive = told.get("alive", self.alive)

    def at(self, address: str) -> str:
        """The node at an address."""
        return next(node for node, place in self.alive.items() if place == address)

    def until(self, what: str, condition: Callable[[], bool], seconds: float) -> float:
        """The time that something takes to come about."""
        start = time.monotonic()
        while not condition():
            if time.monotonic() > start + seconds:
                seen = f"{len(self.results)} results, alive {sorted(self.alive.values())}"
                raise ContainersError(f"not within {seconds:.0f} s: {what} ({seen})")
            time.sleep(0.1)
        return time.monotonic() - start


@contextmanager
def watching(cluster: Cluster, study: str) -> Iterator[Watch]:
    """Look into a cluster for as long as the body runs."""
    (head,) = cluster.containers("ray-head")
    words = [*([rig()] if rig() else []), "docker", "exec", head, "python3", "-c", WATCHER, "memsweep", study]
    process = subprocess.Popen(
        words, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, env=cluster.environment
    )
    watch = Watch(process)
    thread = threading.Thread(target=watch.follow, daemon=True)
    thread.start()
    try:
        yield watch
    finally:
        process.kill()
        process.wait()
        thread.join(timeout=10)


@contextmanager
def running(settings: Path) -> Iterator[Cluster]:
    """A cluster to be made; nothing of it is left afterwards, but for its image."""
    cluster = Cluster(settings)
    try:
        cluster.prepare()
        yield cluster
    finally:
        if cluster.values:
            cluster.compose("--profile", "gpu", "down", "--volumes", "--remove-orphans", "--timeout", "5")
        if script := rig():
            run(script, "down")
