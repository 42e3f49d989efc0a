"""Studies on real Ray heads: handed in, followed, left alone, stopped, gone on with, and no secret on the way."""

from __future__ import annotations

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

from drill_study import STUDY, Drill, Outcome, study_text
from memsweep.sweep.store.lease import holder
from plain_shell import PRIVATE_FILES, SECRET
from processes import wait_for
from sweeping import end, environment, start
from tally import Tally

pytestmark = pytest.mark.drill

PATIENCE = 300.0  # seconds; a busy machine takes a minute for what else takes ten seconds
HORIZONS = [1_000_000, 1_100_000, 1_200_000, 1_300_000]
TOKEN = "a-token-of-the-drill-0123456789abcdef"
SECRETS = {
    "AWS_SECRET_ACCESS_KEY": "aws-4f1c-not-to-be-seen",
    "MLFLOW_TRACKING_PASSWORD": "mlflow-77aa-not-to-be-seen",
    "WANDB_API_KEY": "wandb-90e2-not-to-be-seen",
}


@pytest.fixture(scope="module")
def undisturbed(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    """The results of the study on this machine, when nothing happens to it."""
    drill = Drill.make(tmp_path_factory.mktemp("undisturbed") / "drill", study_text(HORIZONS))
    ended = drill.command("sweep", STUDY, "--inline")
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return Outcome.of(drill)


@pytest.fixture(scope="module")
def drill(tmp_path_factory: pytest.TempPathFactory) -> Drill:
    return Drill.make(tmp_path_factory.mktemp("job") / "drill", study_text(HORIZONS))


@pytest.fixture(scope="module")
def head(drill: Drill) -> Iterator[RayHead]:
    """A head as we set clusters up: a token, and jobs that are stopped like by Ctrl-C."""
    stop = {"RAY_JOB_STOP_SIGNAL": "SIGINT", "RAY_JOB_STOP_WAIT_TIME_S": "60"}
    with ray_head(token=TOKEN, env={**stop, "MEMSWEEP_TEST_DRILL": str(drill.folder)}) as running:
        yield running


def shell(head: RayHead, **more: str) -> dict[str, str]:
    """A person's shell, with the cluster's address and token and with secrets of other things."""
    return environment(RAY_API_SERVER_ADDRESS=head.address, **head.client, **SECRETS, **more)


def ray(head: RayHead, *words: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    """``ray WORDS`` from start to end."""
    mode = {"RAY_AUTH_MODE": "token" if head.token else "disabled"}
    command = [sys.executable, "-m", "ray.scripts.scripts", *words]
    env = {**os.environ, "RAY_API_SERVER_ADDRESS": head.address, **head.client, **mode}
    return subprocess.run(command, cwd=cwd, env=env, capture_output=True, text=True, timeout=PATIENCE, check=False)


def submitted(head: RayHead, drill: Drill, *words: str) -> tuple[int, str]:
    """``memsweep submit WORDS`` from start to end: exit code and all that it said."""
    process = start("submit", *words, cwd=drill.folder, env=shell(head))
    try:
        out, err = process.communicate(timeout=PATIENCE)
    finally:
        end(process)
    return process.returncode, out + err


def test_a_study_is_left_alone_stopped_and_finished(
    head: RayHead, drill: Drill, undisturbed: Outcome, tally: Tally
) -> None:
    drill.slow()
    for name in PRIVATE_FILES:
        (drill.folder / name).parent.mkdir(parents=True, exist_ok=True)
        (drill.folder / name).write_text(SECRET)
    (drill.folder / "etc").symlink_to("/etc")
    place = ["--results", str(drill.results)]
    process = start("submit", STUDY, *place, cwd=drill.folder, env=shell(head))
    try:
        wait_for(lambda: len(drill.asked()) > 10 or process.poll() is not None, seconds=PATIENCE)
        assert process.poll() is None, process.communicate()
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=30)
    finally:
        end(process)
    assert process.returncode == 130, err
    assert "study: drill, verb: sweep, " in out
    assert "trials: 8\nupload: " in out
    assert "detached: the job goes on" in out
    name = out.partition("ray job logs -f ")[2].split()[0]
    assert name.startswith("memsweep-drill-")
    asked = len(drill.asked())
    wait_for(lambda: len(drill.asked()) > asked + 5, seconds=PATIENCE)  # it does go on
    assert holder(drill.store.location) is not None
    again = start("submit", STUDY, *place, cwd=drill.folder, env=shell(head))
    try:
        line = next(text for text in again.stdout or () if "runs already" in text)
        again.send_signal(signal.SIGINT)
        again.communicate(timeout=30)
    finally:
        end(again)
    assert name in line, "the same command follows the job that runs"
    wait_for(lambda: len(drill.whole()) >= 2, seconds=PATIENCE)  # the first pack
    before = drill.now()
    (there,) = (path for path in head.folder.rglob("working_dir_files/_ray_pkg_*") if path.is_dir())
    taken = {path.relative_to(there).as_posix() for path in there.rglob("*") if path.suffix not in ("", ".pyc")}
    assert taken == {"tasks/watched.py", f"search_spaces/{STUDY}.yaml"}
    assert SECRET not in "".join(path.read_text(errors="replace") for path in there.rglob("*") if path.is_file())

    head.stop(name)
    log = ray(head, "job", "logs", "-f", name, cwd=drill.folder).stdout
    assert holder(drill.store.location) is None  # it has left the lease in order
    assert "interrupted: what is finished is kept" in log, log

    drill.quick()
    code, log = submitted(head, drill, STUDY, "--do", "resume", *place)
    assert code == 0, log
    assert "8/8 done" in log
    assert f"{STUDY}: 8/8 trials" in log
    lost, rerun = drill.cost_since(before)
    equal = Outcome.of(drill).equals(undisturbed)
    tally.record("ray job stop, graceful", 1, lost, rerun, equal)
    assert (lost, rerun, equal) == (0, 0, True)


def test_ray_job_submit_runs_a_checkout(head: RayHead, drill: Drill, tmp_path: Path) -> None:
    """The plain command of Ray, and what a job says that would lose its results."""
    (drill.folder / "etc").unlink(missing_ok=True)  # Ray's own upload follows links
    command = [
        "job",
        "submit",
        "--working-dir",
        ".",
        "--",
        "memsweep",
        "sweep",
        STUDY,
        "model.width=2",
        "task.horizon=1000000",
    ]
    lost = ray(head, *command, cwd=drill.folder)
    assert lost.returncode != 0
    assert "which the cluster deletes with the job" in lost.stdout
    assert "Nothing has been started" in lost.stdout
    kept = ray(head, *command, "--results", str(tmp_path / "results"), cwd=drill.folder)
    assert kept.returncode == 0, kept.stdout + kept.stderr
    assert "1/1 done" in kept.stdout
    assert len(list((tmp_path / "results" / STUDY / "records").iterdir())) == 1


@pytest.mark.long
def test_the_exit_code_is_the_sweeps(head: RayHead, drill: Drill, tmp_path: Path) -> None:
    code, log = submitted(head, drill, STUDY, "task.mood=13", "--wait", "--results", str(tmp_path / "results"))
    assert code == 1
    told = " ".join(log.split())  # with --wait, the end of the log tells why, and where
    assert re.search(r"All 8 trials failed: ZeroDivisionError at [\w.]+:\d+: a mood of 13", told), log
    assert "failed with exit code 1" in log


def test_a_job_goes_on_with_a_study_until_it_is_decided(head: RayHead, drill: Drill) -> None:
    """With the results of the jobs above: the job gives the command's answer, and computes nothing where none helps."""
    words = (STUDY, "--do", "decide", "--results", str(drill.results))
    code, log = submitted(head, drill, *words, "--max-core-hours", "1e-6")
    assert code == 0, log
    assert "1 question: 1 hopeless" in log
    assert "what is allowed" in log  # so short a training learns nothing
    assert not (drill.store.folder / "decide").exists()


def test_no_secret_is_in_what_a_job_server_tells(head: RayHead) -> None:
    """After the jobs above, whose submitter's shell held them."""
    jobs = json.loads(head.get("/api/jobs/"))
    names = [job["submission_id"] for job in jobs if job["submission_id"]]
    assert len(names) >= 4
    told = json.dumps(jobs) + "".join(
        head.get(f"/api/jobs/{name}") + head.get(f"/api/jobs/{name}/logs") for name in names
    )
    assert "Running entrypoint" in told
    assert "memsweep sweep" in told
    for secret in (*SECRETS.values(), TOKEN):
        assert secret not in told
    ours = [job for job in jobs if job["metadata"].get("study")]
    assert {job["metadata"]["verb"] for job in ours} == {"sweep", "decide", "resume"}
    assert all(set(job["runtime_env"]) == {"working_dir", "py_modules"} for job in ours)


def test_another_token_is_refused(head: RayHead, drill: Drill) -> None:
    for token, said in (("another-token-of-another-cluster", "refuses the token"), ("", "asks for a token")):
        process = start("submit", STUDY, cwd=drill.folder, env={**shell(head), "RAY_AUTH_TOKEN": token})
        try:
            out, err = process.communicate(timeout=60)
        finally:
            end(process)
        assert (process.returncode, out) == (2, "")
        assert said in err
        assert len(err.strip().splitlines()) == 1


@pytest.mark.long
def test_rays_own_way_of_stopping_loses_nothing_that_was_finished(
    tmp_path: Path, undisturbed: Outcome, tally: Tally
) -> None:
    """SIGTERM, and SIGKILL three seconds later; a cluster without tokens."""
    drill = Drill.make(tmp_path / "drill", study_text(HORIZONS))
    drill.slow()
    place = ["--results", str(drill.results)]
    with ray_head(env={"MEMSWEEP_TEST_DRILL": str(drill.folder)}) as head:
        code, log = submitted(head, drill, STUDY, "--detach", *place)
        assert code == 0, log
        name = log.partition("ray job logs -f ")[2].split()[0]
        wait_for(lambda: len(drill.whole()) >= 2, seconds=PATIENCE)
        before = drill.now()
        head.stop(name)
        ray(head, "job", "logs", "-f", name, cwd=drill.folder)
        drill.quick()
        code, log = submitted(head, drill, STUDY, "--do", "resume", *place)
        assert code == 0, log
    lost, rerun = drill.cost_since(before)
    equal = Outcome.of(drill).equals(undisturbed)
    tally.record("ray job stop, Ray's defaults", 1, lost, rerun, equal)
    assert (lost, rerun, equal) == (0, 0, True)
