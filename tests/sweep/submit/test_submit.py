"""Handing a study to a cluster: what is refused before anything is sent, what would be sent, what is shown."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.server
import os
import re
import signal
import socketserver
import sys
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml

from memsweep import registry
from memsweep.cli import main
from memsweep.cli.arguments import parse
from memsweep.cli.options import JOBS, OPTIONS
from memsweep.commands.submit import checked_job, report_end
from memsweep.errors import ConfigError
from memsweep.redaction import is_secret_name
from memsweep.sweep.submit.client import DEFAULT_ADDRESS, JobServer, server_address
from memsweep.sweep.submit.job import Job, SubmissionError, runtime_env
from memsweep.sweep.submit.selection import ENGINE, engine_files
from memsweep.sweep.submit.upload import Upload
from paths import ROOT
from plain_shell import SECRET, clear_settings, small_workspace


@pytest.fixture(autouse=True)
def _plain_shell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    clear_settings(monkeypatch, tmp_path)


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    return small_workspace(tmp_path)


@pytest.fixture
def submit(workspace: Path, capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str]]:
    """``memsweep submit WORDS`` in this process: exit code and standard error."""

    def run(*words: str) -> tuple[int, str]:
        code = main(["submit", *words, "--workspace", str(workspace)])
        told = capsys.readouterr()
        assert "Traceback" not in told.err
        return code, told.err.strip()

    return run


class _Server(http.server.BaseHTTPRequestHandler):
    status, body = 404, b"nothing here"
    asked: list[str]

    def do_GET(self) -> None:
        self.asked.append(self.path)
        self.send_response(self.status)
        self.end_headers()
        self.wfile.write(self.body)

    def log_message(self, *args: object) -> None:
        pass


class _NoHttp(socketserver.BaseRequestHandler):
    asked: list[str]

    def handle(self) -> None:
        self.request.recv(1000)
        self.request.sendall(b"\x00\x01\x02 gibberish")


@contextmanager
def served(handler: type[socketserver.BaseRequestHandler], **fields: object) -> Iterator[tuple[str, list[str]]]:
    asked: list[str] = []
    kind = type("Handler", (handler,), {"asked": asked, **fields})
    with socketserver.ThreadingTCPServer(("127.0.0.1", 0), kind) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}", asked
        finally:
            server.shutdown()
            thread.join()


def test_the_job_server_is_looked_for_where_ray_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    assert server_address(None) == DEFAULT_ADDRESS == "http://127.0.0.1:8265"
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")  # a cluster, no job server
    assert server_address(None) == DEFAULT_ADDRESS
    monkeypatch.setenv("RAY_ADDRESS", "http://head:8265/")
    assert server_address(None) == "http://head:8265"
    monkeypatch.setenv("RAY_API_SERVER_ADDRESS", "https://gate.example")
    assert server_address(None) == "https://gate.example"
    assert server_address("http://given:1") == "http://given:1"


@pytest.mark.parametrize("address", ["127.0.0.1:8265", "auto", "ray://head:10001", "http://", "ftp://head"])
def test_an_address_of_something_else_is_refused(address: str) -> None:
    with pytest.raises(SubmissionError, match="is not the address of a job server") as refused:
        server_address(address)
    assert refused.value.exit_code == 2


def test_a_password_in_the_address_is_refused_and_not_shown() -> None:
    with pytest.raises(SubmissionError, match="carries a password") as refused:
        server_address(f"http://me:{SECRET}@head:8265")
    assert SECRET not in str(refused.value)


@pytest.mark.more
def test_what_is_no_dashboard_is_told_in_one_sentence(submit: Callable[..., tuple[int, str]]) -> None:
    def told(address: str) -> str:
        code, error = submit("small", "--address", address)
        assert code == 2
        assert "\n" not in error
        assert address in error
        return error

    with served(_Server) as (address, _):
        assert "no Ray dashboard answers" in told(address)
    assert "no Ray dashboard answers" in told(address)  # it is gone
    for body in (b"<html>", b"[1]"):
        with served(_Server, status=200, body=body) as (address, _):
            assert "no Ray dashboard answers" in told(address)
    with served(_NoHttp) as (address, _):
        assert "no Ray dashboard answers" in told(address)
    with served(_Server, status=401) as (address, _):
        assert "asks for a token. Set RAY_AUTH_TOKEN" in told(address)


def test_nothing_is_sent_where_the_study_is_wrong(submit: Callable[..., tuple[int, str]]) -> None:
    with served(_Server) as (address, asked):
        code, told = submit("small", "training.stps=1", "model.width=0", "--address", address)
    assert code == 2
    assert "2 problems in study" in told
    assert "training.stps" in told
    assert "model.width" in told
    assert asked == []


def test_a_study_outside_of_the_workspace_is_refused(
    submit: Callable[..., tuple[int, str]], workspace: Path, tmp_path: Path
) -> None:
    (tmp_path / "elsewhere.yaml").write_text((workspace / "search_spaces" / "small.yaml").read_text())
    assert "lies outside of the workspace" in submit(str(tmp_path / "elsewhere.yaml"))[1]


def test_a_module_outside_of_the_workspace_is_refused(workspace: Path, tmp_path: Path) -> None:
    """Ray uploads the workspace: a module from elsewhere would be missed on the cluster."""
    net = "from torch import nn\nclass Net(nn.GRU):\n    pass\n"
    sizes = "inputs_argument: input_size, width_argument: hidden_size, arguments: {batch_first: true}"
    args = parsed("own", "--trust", "--workspace", str(workspace))
    (tmp_path / "out_net.py").write_text(net)
    (workspace / "in_net.py").write_text(net)
    for place, said in (
        (tmp_path / "out_net.py", r"out_net.py.* lies outside of the workspace.*Copy it into that folder"),
        (workspace / "in_net.py", "the cluster has the workspace under another path"),
        (Path("in_net.py"), None),
    ):
        (workspace / "search_spaces" / "own.yaml").write_text(
            "task: {name: linear_functional, horizon: 8}\n"
            f"model: {{name: module, width: 1, factory: '{place}:Net', {sizes}}}\n"
        )
        with pytest.raises(SubmissionError, match=said) if said else contextlib.nullcontext():
            assert "in_net.py" in checked_job(args)[1].files


def test_weights_outside_of_the_workspace_are_refused(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A path that all nodes see is taken as it is; one of this folder must be relative, and then it is uploaded."""
    monkeypatch.chdir(tmp_path)
    for folder in (tmp_path, workspace):
        (folder / f"{folder.name}.pt").write_bytes(b"weights")
    for path, said in (
        (f"{tmp_path.name}.pt", "lies outside of the workspace.*Copy it into that folder"),
        (str(workspace / "workspace.pt"), "the cluster has the workspace under another path"),
        (str(tmp_path / f"{tmp_path.name}.pt"), None),
        ("workspace.pt", None),
    ):
        with pytest.raises(SubmissionError, match=said) if said else contextlib.nullcontext():
            job_of("small", f"training.weights={path}", "--workspace", str(workspace))


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("small", "--results", f"s3://me:{SECRET}@bucket/x"), "holds a secret"),
        (("small", f'name="http://me:{SECRET}@host/"'), "holds a secret"),
        (("small", f"name={SECRET}"), "holds a secret"),
        (("small", "--runtime-env", "nowhere.yaml"), "cannot be read"),
        (("small", "--do", "extend", "--share"), "--do extend has no --share: that is for sweep and resume"),
        (("small", "--do", "resume", "--no-reuse"), "--do resume has no --no-reuse: that is for sweep"),
        (("small", "--results", "some/folder"), "--results some/folder would lie in the job's own folder"),
        (("small", "--force"), "--do sweep has no --force: that is for retry"),
        (("small", "a=1", "~grid.b", "--do", "resume", "--force", "--no-reuse"),
         "--do resume has no --no-reuse: that is for sweep. Leave one of the two out. --do resume has no --force"),
        (("small", "a=1", "~grid.b", "--do", "resume", "--force"),
         "takes no word behind the study, got 'a=1', '~grid.b'. Leave them out, or change the study with --do sweep"),
        (("small", "--share", "--results", "s3://some/where"), "s3://some/where is a bucket, in which two drivers may"),
    ],
)  # fmt: skip
def test_a_wrong_command_is_refused_before_anybody_is_asked(
    words: tuple[str, ...],
    said: str,
    submit: Callable[..., tuple[int, str]],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", SECRET)
    with served(_Server) as (address, asked):
        code, told = submit(*words, "--address", address)
    assert (code, asked) == (2, [])
    assert said in told
    assert SECRET not in told


def test_names_of_secrets() -> None:
    secret = (
        "AWS_SECRET_ACCESS_KEY AWS_ACCESS_KEY_ID AWS_SESSION_TOKEN MLFLOW_TRACKING_PASSWORD PGPASSWORD RAY_AUTH_TOKEN"
    )
    secret += " GITHUB_TOKEN WANDB_API_KEY SSH_PRIVATE_KEY DJANGO_SECRET SENTRY_DSN"
    plain = "PATH HOME RAY_AUTH_MODE MEMSWEEP_RESULTS OMP_NUM_THREADS MEMSWEEP_DATA PYTHONPATH"
    assert [name for name in secret.split() if not is_secret_name(name)] == []
    assert [name for name in plain.split() if is_secret_name(name)] == []


def test_secrets_in_a_runtime_environment_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SOME_TOKEN", "another-value-not-to-be-seen")
    for env in (
        {"env_vars": {"WANDB_API_KEY": SECRET}},
        {"env_vars": {"HARMLESS": f"postgresql://me:{SECRET}@db/x"}},
        {"pip": {"packages": [f"--index-url=https://me:{SECRET}@index/simple"]}},
        {"env_vars": {"A": "--key=another-value-not-to-be-seen"}},
    ):
        with pytest.raises(SubmissionError, match="holds a secret") as refused:
            Job("j", "memsweep sweep quickstart", env)
        assert "\n" not in str(refused.value)
        assert SECRET not in str(refused.value)
        assert "another-value" not in str(refused.value)
    shipped = yaml.safe_load((ROOT / "deploy" / "runtime_env.yaml").read_text())
    Job("j", "memsweep sweep quickstart training.steps=5 --results s3://bucket/results", shipped, {"study": "s"})


def test_the_job_runs_the_engine_that_checked_the_study(workspace: Path) -> None:
    shipped = yaml.safe_load((ROOT / "deploy" / "runtime_env.yaml").read_text())
    assert [(ROOT / module).resolve() for module in shipped["py_modules"]] == [ENGINE]
    assert runtime_env(workspace, {}) == {}
    given = runtime_env(workspace, {**shipped, "env_vars": {"A": "b"}})
    with Upload(workspace, {}, engine_files()).laid_out(given) as env:
        (engine,) = env["py_modules"]
        assert Path(engine).name == ENGINE.name  # as a package of this name, and not beside another one
        assert (Path(engine) / "trial.py").read_bytes() == (ENGINE / "trial.py").read_bytes()
        assert env["env_vars"] == {"A": "b"}
    assert given["env_vars"] == {"A": "b"}
    assert given["pip"]["packages"][:-1] == shipped["pip"]["packages"]
    assert shipped["pip"]["packages"][-1] == "${RAY_RUNTIME_ENV_CREATE_WORKING_DIR}"
    with pytest.raises(SubmissionError, match="names a working_dir"):
        runtime_env(workspace, {"working_dir": "."})


def test_other_pins_make_another_environment(workspace: Path) -> None:
    def packages() -> list[str]:
        return runtime_env(workspace, {"pip": ["rich"]})["pip"]["packages"]

    (workspace / "constraints.txt").write_text("rich==15.0.0\n")
    before = packages()
    assert before[0] == "rich"
    assert packages() == before
    (workspace / "constraints.txt").write_text("rich==15.0.1\n")
    assert packages() != before


def job_of(*words: str) -> Job:
    return checked_job(parsed(*words))[0]


def parsed(*words: str) -> argparse.Namespace:
    """The arguments of ``memsweep submit``, as the command line gives them to the command."""
    args = parse(["submit", *words], dict.fromkeys(OPTIONS))
    args.discover = registry.discover
    return args


def test_a_cost_goes_along_as_hours_and_the_smaller_limit_counts(
    workspace: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MEMSWEEP_NODE", "cpus=16,price=0.5")
    for words, hours in ((("--max-cost", "3"), "6.0"), (("--max-cost", "3", "--max-node-hours", "2"), "2.0")):
        job = job_of("small", "--workspace", str(workspace), *words)
        assert job.command == f"python -m memsweep sweep small --max-node-hours {hours}"
    job = job_of("small", "--workspace", str(workspace), "--nodes", "auto", "--max-nodes", "8")
    price = "--node cpus=16.0,gpus=0.0,price=0.5"
    assert job.command == f"python -m memsweep sweep small --nodes auto {price} --max-nodes 8"


@pytest.mark.parametrize("verb", ["sync", "report"])
@pytest.mark.parametrize("words", [("--nodes", "auto"), ("--max-nodes", "2"), ("--max-hours", "1"), ("--trust",)])
def test_a_command_that_runs_no_packs_takes_no_nodes_and_no_limits(
    workspace: Path, verb: str, words: tuple[str, ...]
) -> None:
    with pytest.raises(SubmissionError, match=f"--do {verb} runs no packs, and has no {words[0]}"):
        job_of("small", "--workspace", str(workspace), "--do", verb, *words)


@pytest.mark.parametrize("verb", JOBS)
def test_words_behind_the_study_go_along_where_the_command_takes_them(workspace: Path, verb: str) -> None:
    takes = {"overrides", "others"} & {name for name, _ in OPTIONS[verb]}
    word = "perturbation.norm=entrywise" if "overrides" in takes else "other"
    refused = pytest.raises(SubmissionError, match=f"--do {verb} goes on with the stored plan as it is")
    with contextlib.nullcontext() if takes else refused:
        assert f" small {word}" in job_of("small", word, "--do", verb, "--workspace", str(workspace)).command


def test_the_job_is_the_command_that_was_given(workspace: Path) -> None:
    place = ("--workspace", str(workspace))
    job = job_of("small", "training.steps=5", *place, "--max-hours", "2", "--max-trials", "1000000", "--no-reuse")
    ending = "sweep small training.steps=5 --no-reuse --max-hours 2.0 --max-trials 1000000"
    assert job.command == f"python -m memsweep {ending}"
    assert job.metadata.items() >= {"study": "small", "verb": "sweep", "trials": "2"}.items()
    again = job_of("small", "perturbation.norm=entrywise", "--do", "measure", *place)
    assert again.command == "python -m memsweep measure small perturbation.norm=entrywise"
    with pytest.raises(ConfigError, match=r"training.steps: is no setting of a measurement"):
        job_of("small", "training.steps=5", "--do", "measure", *place)
    assert job_of("quickstart", *place).command == "python -m memsweep sweep quickstart"  # goes along with the engine
    jobs = [job_of("ten seeds; rm -rf / 'ü'", "--do", "resume", *place) for _ in range(20)]
    assert jobs[0].command == """python -m memsweep resume 'ten seeds; rm -rf / '"'"'ü'"'"''"""
    assert len({job.name for job in jobs}) == 20
    assert all(re.fullmatch(r"memsweep-ten-seeds-rm-rf-\d{8}-\d{6}-[0-9a-f]{4}", job.name) for job in jobs)
    assert job_of("ü", "--do", "resume", *place).name.startswith("memsweep-study-")


class _Taking:
    """A job server that takes every job."""

    def __init__(self, address: str) -> None:
        self.address = address

    def running(self, job: Job) -> str:
        return ""

    def submit(self, job: Job, upload: Upload) -> None:
        sys.stdout.write("it is sent\n")


def test_where_nothing_here_says_where_results_go_a_note_says_who_does(
    workspace: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("memsweep.commands.submit.JobServer", _Taking)
    (tmp_path / "env.yaml").write_text("env_vars: {MEMSWEEP_RESULTS: s3://bucket/x}\n")

    def told(*words: str) -> str:
        """The lines that are printed before the job is sent."""
        assert main(["submit", *words, "--detach", "--workspace", str(workspace)]) == 0
        return capsys.readouterr().out.partition("it is sent")[0]

    note = "note: results go where MEMSWEEP_RESULTS of the cluster's nodes says"
    assert f"{note}. Where they have none" in told("small")
    assert f"{note}. Where they have none" in told("small", "--do", "resume")
    for words in (
        ("--results", "/shared/results"),
        ("--runtime-env", str(tmp_path / "env.yaml")),
    ):
        assert "note: " not in told("small", *words)
    assert note not in told("/shared/results/small", "--do", "resume")
    monkeypatch.setenv("MEMSWEEP_RESULTS", "s3://of-mine/x")
    assert f"{note} (that of this shell, s3://of-mine/x, is not sent)" in told("small")


def test_the_exit_code_is_the_jobs(capsys: pytest.CaptureFixture[str]) -> None:
    from ray.job_submission import JobDetails, JobStatus, JobType

    def ended(status: JobStatus, message: str = "", code: int | None = None, *, quiet: bool = False) -> int:
        state = JobDetails(
            type=JobType.SUBMISSION,
            status=status,
            entrypoint="memsweep",
            message=message,
            driver_exit_code=code,
            metadata={"study": "small"},
        )
        return report_end(state, "j", quiet=quiet)

    assert ended(JobStatus.SUCCEEDED, code=0) == 0
    assert ended(JobStatus.FAILED, "the log", 2) == 2
    assert "the log" not in capsys.readouterr().err
    assert ended(JobStatus.FAILED, "the log", 1, quiet=True) == 1
    assert "the log" in capsys.readouterr().err
    assert ended(JobStatus.FAILED, "no environment") == 1
    assert "no environment" in capsys.readouterr().err
    assert ended(JobStatus.STOPPED) == 130
    assert "Submit the same command again to go on" in capsys.readouterr().out
    assert ended(JobStatus.FAILED, "the log", 3) == 3
    assert "stopped at a limit; finished results are kept" in capsys.readouterr().out


class _Client:
    """Ray's client, whose connection breaks in the middle of a log and whose log never ends by itself at last."""

    def __init__(self, logs: list[list[str]], over: threading.Event) -> None:
        self._logs, self._over = logs, over

    async def tail_job_logs(self, name: str) -> AsyncIterator[str]:
        if not self._logs:
            while not self._over.is_set():
                with contextlib.suppress(asyncio.CancelledError):  # as a library may swallow it
                    await asyncio.sleep(0.05)
        for text in self._logs.pop(0) if self._logs else []:
            yield text
        raise RuntimeError("the connection is lost")

    def get_job_info(self, name: str) -> argparse.Namespace:
        return argparse.Namespace(status=argparse.Namespace(is_terminal=lambda: False))


def test_a_log_is_shown_once_over_lost_connections_until_ctrl_c() -> None:
    over, shown = threading.Event(), list[str]()
    server = JobServer.__new__(JobServer)
    server._client = _Client([["one\n", "two"], ["one\ntw", "o\nthree\n"]], over)
    before = signal.signal(signal.SIGINT, signal.default_int_handler)

    def note(text: str) -> None:
        shown.append(text)
        if "three" in text:
            threading.Timer(1.5, lambda: os.kill(os.getpid(), signal.SIGINT)).start()

    try:
        with pytest.raises(KeyboardInterrupt):
            server.follow("j", note)
        assert "".join(shown) == "one\ntwo\nthree\n"
    finally:
        over.set()
        signal.signal(signal.SIGINT, before)
