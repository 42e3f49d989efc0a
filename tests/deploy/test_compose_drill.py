"""The local cluster, made by `make cluster`, is broken in every way while a sweep runs on it.

Its workers are killed and cut off, its servers restarted, all of it taken down and brought up again; the final tables
are, bit for bit, those of an undisturbed sweep on this machine, and MLflow has every run once. On the way: what
strangers are answered, which ports are open to whom, and whether a secret is to be found anywhere. A second drill
begins without workers; they come one after the other, and one goes for good.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest

from containers import PROJECT, Cluster, Watch, rig, running, watching
from drill_study import Outcome
from memsweep.sweep.store.results import Store
from paths import ROOT
from sweeping import end, environment, start
from tally import Tally

pytestmark = [pytest.mark.drill, pytest.mark.containers]

STUDY = "compose_drill"
HORIZONS = list(range(20, 68, 2))
ROWS = 2 * len(HORIZONS)
PATIENCE = 600.0  # seconds; the tally says what it took
TEXT = f"""# Short trainings, one pack a horizon: a minute or two of two workers.
task: {{name: linear_functional, kernel: exponential}}
model: {{name: diagonal_rnn, activation: tanh, parameterization: exp}}
training: {{seeds: 2, steps: 2000, batch_size: 32, validation_size: 64, validate_every: 100, checkpoint_every: 100}}
perturbation: {{radii: {{from: 1e-3, to: 1.0, count: 5}}, starts: 1, ascent_steps: 2, test_size: 64}}
grid: {{task.horizon: {HORIZONS}, model.width: [2, 3]}}
"""

RUNS = """
import collections, json, sys
from mlflow import MlflowClient
client = MlflowClient(sys.argv[1])
experiment = client.get_experiment_by_name(sys.argv[2])
runs = list(client.search_runs([experiment.experiment_id], max_results=5000))
children = [run for run in runs if "mlflow.parentRunId" in run.data.tags]
counted = collections.Counter(run.data.tags["memsweep.identity"] for run in children)
print(json.dumps({"runs": counted, "parents": len(runs) - len(children), "open": [
    run.info.run_id for run in runs if run.info.status != "FINISHED"]}))
"""


@dataclass(frozen=True)
class Fault:
    """The broken part, the results that were whole then, and the seconds that it cost."""

    kind: str
    whole: dict[str, int]
    detected: float | None
    recovered: float


def outcome(results: Path) -> Outcome:
    """The outcome of a sweep below a folder."""
    return Outcome.of(SimpleNamespace(store=Store(results / STUDY)))  # type: ignore[arg-type]  # it reads the store alone


@contextmanager
def undisturbed(workspace: Path, results: Path) -> Iterator[subprocess.Popen[str]]:
    """The same sweep on this machine, on the way."""
    process = start("sweep", STUDY, "--ray", "--results", results, cwd=workspace, env=environment())
    try:
        yield process
    finally:
        end(process)


def submit_by_ray(cluster: Cluster, workspace: Path) -> str:
    """The sweep, as Ray's own command hands it in: the engine is the image's."""
    words = ["--working-dir", str(workspace), "--submission-id", STUDY, "--no-wait", "--", "memsweep", "sweep", STUDY]
    cluster.ray_job("submit", *words)
    return STUDY


def submit_to_resume(cluster: Cluster, workspace: Path) -> str:
    """The rest of the sweep, by ``memsweep submit``: the engine is this checkout's."""
    words = ["submit", STUDY, "--do", "resume", "--detach", "--address", cluster.dashboard, "--workspace", workspace]
    told = cluster.inside(
        sys.executable, "-m", "memsweep", *words, env=cluster.client(PYTHONPATH=str(ROOT / "platform"))
    )
    found = re.search(r"ray job logs -f (\S+) ", told)
    assert found, told
    return found[1]


def killed(cluster: Cluster, watch: Watch, nodes: int) -> Fault:
    """Every process of a worker's container ends at once."""
    victim = cluster.containers("ray-worker")[0]
    node, whole = watch.at(cluster.address(victim)), dict(watch.results)
    before = cluster.inspect(victim)["RestartCount"]
    begun = time.monotonic()
    subprocess.run(  # the shell that kills is spared, and ends with its container
        [*([rig()] if rig() else []), "docker", "exec", victim, "sh", "-c", "kill -9 -1"],
        env=cluster.environment, capture_output=True, check=False,
    )  # fmt: skip
    detected = watch.until("the dead worker is known to be dead", lambda: node not in watch.alive, PATIENCE)
    watch.until("a worker in its place", lambda: len(watch.alive) == nodes, PATIENCE)
    watch.until("more results", lambda: watch.results.keys() > whole.keys(), PATIENCE)
    recovered = time.monotonic() - begun
    assert cluster.inspect(victim)["RestartCount"] == before + 1
    return Fault("compose: worker container killed", whole, detected, recovered)


def cut_off(cluster: Cluster, watch: Watch, nodes: int) -> Fault:
    """A worker's network is gone until the others have given it up, and comes back."""
    victim = cluster.containers("ray-worker")[-1]
    node, whole = watch.at(cluster.address(victim)), dict(watch.results)
    cluster.docker("network", "disconnect", f"{PROJECT}_cluster", victim)
    detected = watch.until("the worker that is cut off is given up", lambda: node not in watch.alive, PATIENCE)
    cluster.docker("network", "connect", f"{PROJECT}_cluster", victim)
    back = watch.until("the worker is back", lambda: len(watch.alive) == nodes, PATIENCE)
    return Fault("compose: worker cut off, then back", whole, detected, back)


def servers_restarted(cluster: Cluster, watch: Watch) -> Fault:
    """PostgreSQL and MLflow go away in the middle and come back."""
    whole, begun = dict(watch.results), time.monotonic()
    cluster.compose("restart", "postgres", "mlflow")
    cluster.compose("up", "--detach", "--wait", "--no-build", "mlflow")
    return Fault("compose: MLflow and PostgreSQL restarted", whole, None, time.monotonic() - begun)


def workspace_below(folder: Path) -> Path:
    """A workspace with the study, and the tasks of this checkout."""
    workspace = folder / "workspace"
    shutil.copytree(ROOT / "tasks", workspace / "tasks", ignore=shutil.ignore_patterns("__pycache__"))
    (workspace / "search_spaces").mkdir()
    (workspace / "search_spaces" / f"{STUDY}.yaml").write_text(TEXT)
    return workspace


def with_workers(cluster: Cluster, watch: Watch, workers: int) -> float:
    """Starts workers until there are so many; the seconds until Ray has them all."""
    begun = time.monotonic()
    cluster.compose("up", "--detach", "--no-build", "--no-recreate", "--scale", f"ray-worker={workers}", "ray-worker")
    watch.until(f"worker {workers}", lambda: len(watch.alive) == 1 + workers, PATIENCE)
    return time.monotonic() - begun


@pytest.mark.long
def test_a_cluster_without_workers_waits_grows_and_loses_one(
    tmp_path: Path, tally: Tally, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace = workspace_below(tmp_path)
    with running(tmp_path / "settings") as cluster:
        with undisturbed(workspace, tmp_path / "here") as local:
            told = cluster.make("cluster", WORKERS="0")
            out, err = local.communicate(timeout=900)
        assert local.returncode == 0, out + err
        show(capsys, told)
        job = submit_by_ray(cluster, workspace)
        with watching(cluster, STUDY) as watch:
            watch.until("it waits", lambda: "waiting for nodes: " in cluster.log(job), PATIENCE)
            assert (len(watch.alive), watch.results) == (1, {})
            came = [with_workers(cluster, watch, 1)]
            watch.until("the first results", lambda: len(watch.results) >= 4, PATIENCE)
            came.append(with_workers(cluster, watch, 2))
            watch.until("room on both", lambda: "(1 before)" in cluster.log(job), PATIENCE)
            whole = dict(watch.results)
            watch.until("results of both", lambda: len(watch.results) >= len(whole) + 4, PATIENCE)
            victim, whole, begun = cluster.containers("ray-worker")[-1], dict(watch.results), time.monotonic()
            node = watch.at(cluster.address(victim))
            cluster.docker("rm", "--force", victim)  # it does not come back
            detected = watch.until("the lost worker is given up", lambda: node not in watch.alive, PATIENCE)
            watch.until("more results", lambda: watch.results.keys() > whole.keys(), PATIENCE)
            lost = Fault("compose: from no worker to two, one lost", whole, detected, time.monotonic() - begun)
            assert cluster.status(job) == "RUNNING", cluster.ray_job("logs", job)
            watch.until("the end", lambda: cluster.status(job) not in ("PENDING", "RUNNING"), 2 * PATIENCE)
            written = dict(watch.results)
        log = cluster.ray_job("logs", job)
        show(capsys, log)
        assert cluster.status(job) == "SUCCEEDED", log
        assert "the nodes have room for 2 packs at once now (1 before)" in log
        assert "the nodes have room for 1 pack at once now (2 before)" in log
        show(capsys, f"workers came within {came[0]:.0f} and {came[1]:.0f} s; {len(lost.whole)} results at the loss")
        there = compared(cluster, tmp_path, tally, [lost], written)
        runs = json.loads(cluster.inside(sys.executable, "-c", RUNS, cluster.mlflow, STUDY, env=cluster.client()))
        assert runs["runs"] == dict.fromkeys(there.summaries, 1), log


def compared(cluster: Cluster, folder: Path, tally: Tally, faults: list[Fault], written: dict[str, int]) -> Outcome:
    """The outcome that the cluster stored: equal to what was computed here, and nothing lost or computed again."""
    cluster.fetch(STUDY, folder / "there")
    here, there = outcome(folder / "here"), outcome(folder / "there")
    equal = there.equals(here)
    for fault in faults:
        lost = len(fault.whole.keys() - written.keys())
        again = sum(written.get(name, time_) != time_ for name, time_ in fault.whole.items())
        tally.record(fault.kind, 1, lost, again, equal, detected=fault.detected, recovered=fault.recovered)
    assert len(there.summaries) == ROWS
    assert equal
    assert all(written.get(name) == time_ for fault in faults for name, time_ in fault.whole.items())
    return there


@pytest.mark.long
def test_a_cluster_that_is_broken_in_every_way_gives_the_undisturbed_table(
    tmp_path: Path, tally: Tally, capsys: pytest.CaptureFixture[str]
) -> None:
    workspace = workspace_below(tmp_path)
    told: list[str] = []
    with running(tmp_path / "settings") as cluster:
        with undisturbed(workspace, tmp_path / "here") as local:
            told.append(cluster.make("cluster", WORKERS="2"))
            out, err = local.communicate(timeout=900)
        assert local.returncode == 0, out + err
        show(capsys, told[0])
        assert not [secret for secret in cluster.secrets if secret in told[0]]
        strangers_are_refused(cluster)
        nothing_is_bound_beyond_loopback(cluster)

        jobs = [submit_by_ray(cluster, workspace)]
        faults: list[Fault] = []
        with watching(cluster, STUDY) as watch:
            watch.until("the first results", lambda: len(watch.results) >= 2, PATIENCE)
            nodes = len(watch.alive)
            assert nodes == 3
            faults.append(killed(cluster, watch, nodes))
            faults.append(cut_off(cluster, watch, nodes))
            faults.append(servers_restarted(cluster, watch))
            whole = dict(watch.results)
            assert cluster.status(jobs[0]) == "RUNNING", cluster.ray_job("logs", jobs[0])
        texts = [cluster.api("/api/jobs/"), cluster.ray_job("logs", jobs[0]), cluster.compose("logs", "--no-color")]
        begun = time.monotonic()
        down = cluster.make("cluster-down")
        texts += [down, cluster.make("cluster", WORKERS="2")]
        jobs.append(submit_to_resume(cluster, workspace))
        with watching(cluster, STUDY) as watch:
            watch.until("more results", lambda: watch.results.keys() > whole.keys(), PATIENCE)
            faults.append(Fault("compose: all of it down and up", whole, None, time.monotonic() - begun))
            watch.until("the end", lambda: cluster.status(jobs[1]) not in ("PENDING", "RUNNING"), PATIENCE)
            written = dict(watch.results)
        log = cluster.ray_job("logs", jobs[1])
        assert cluster.status(jobs[1]) == "SUCCEEDED", log

        there = compared(cluster, tmp_path, tally, faults, written)
        runs = json.loads(cluster.inside(sys.executable, "-c", RUNS, cluster.mlflow, STUDY, env=cluster.client()))
        assert runs["runs"] == dict.fromkeys(there.summaries, 1), log
        assert runs["parents"] == 1

        texts += [cluster.api("/api/jobs/"), log, cluster.compose("logs", "--no-color")]
        texts.append(cluster.docker("history", "--no-trunc", "--format", "{{.CreatedBy}}", cluster.image))
        assert not [secret for secret in cluster.secrets if any(secret in text for text in texts)]
        assert layers_with(cluster, tmp_path) == 0
        show(capsys, sizes(cluster))


def show(capsys: pytest.CaptureFixture[str], text: str) -> None:
    """To whoever runs the drill."""
    with capsys.disabled():
        sys.stdout.write(f"\n{text}\n")


def strangers_are_refused(cluster: Cluster) -> None:
    """Who has no token and no password reads nothing and runs nothing."""
    for path in ("/api/jobs/", "/api/version", "/api/v0/nodes", "/nodes?view=summary", "/logs", "/api/v0/logs"):
        assert cluster.code_of(cluster.dashboard + path) == 401, path
    for path in ("/", "/api/2.0/mlflow/experiments/search?max_results=1", "/graphql", "/api/2.0/mlflow/users/get"):
        assert cluster.code_of(cluster.mlflow + path) == 401, path
    wrong = cluster.client(RAY_AUTH_TOKEN="0" * 48)
    words = [sys.executable, "-m", "ray.scripts.scripts", "job", "submit", "--address", cluster.dashboard, "--", "true"]
    asked = subprocess.run([*cluster.place, *words], env=wrong, capture_output=True, text=True, check=False)
    assert asked.returncode != 0
    assert "uthentic" in asked.stdout + asked.stderr


def nothing_is_bound_beyond_loopback(cluster: Cluster) -> None:
    """The engine publishes on 127.0.0.1 alone; with a rig, so does all that listens where it publishes."""
    published = 0
    for service in ("postgres", "s3", "mlflow", "ray-head", "ray-worker"):
        for name in cluster.containers(service):
            for bound in (cluster.inspect(name)["NetworkSettings"]["Ports"] or {}).values():
                for each in bound or []:
                    assert each["HostIp"] == "127.0.0.1", (name, each)
                    published += 1
    assert published == 2
    if rig():
        listening = [
            line.split()[1]
            for table in ("tcp", "tcp6")
            for line in cluster.inside("cat", f"/proc/net/{table}").splitlines()[1:]
            if line.split()[3] == "0A"
        ]
        assert len(listening) == 2
        assert all(re.match(r"0100007F:", address) for address in listening), listening


def layers_with(cluster: Cluster, folder: Path) -> int:
    """How many lines of the image, all layers and settings, hold a secret of the cluster."""
    patterns = folder / "patterns"
    patterns.write_text("\n".join(cluster.secrets) + "\n")
    words = [*([rig()] if rig() else []), "docker", "save", cluster.image]
    with subprocess.Popen(words, stdout=subprocess.PIPE, env=cluster.environment) as saving:
        found = subprocess.run(
            ["grep", "--count", "--text", "--fixed-strings", f"--file={patterns}"],
            stdin=saving.stdout, capture_output=True, text=True, env=os.environ | {"LC_ALL": "C"}, check=False,
        )  # fmt: skip
    assert saving.returncode == 0
    return int(found.stdout)


def sizes(cluster: Cluster) -> str:
    """The image's size, and the memory of each container."""
    image = cluster.docker("image", "ls", "--format", "{{.Repository}}:{{.Tag}} {{.Size}}", cluster.image)
    return image + cluster.docker("stats", "--no-stream", "--format", "{{.Name}} {{.MemUsage}}")
