"""Handing a study to a cluster: what is refused before anything is sent, what would be sent, what is shown."""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import http.server
import io
import itertools
import json
import os
import re
import signal
import socketserver
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from memsweep import registry
from memsweep.cli import main
from memsweep.cli.arguments import parse
from memsweep.commands.follow import Follower
from memsweep.commands.locations import LostResultsError, join_cluster, refuse_lost
from memsweep.commands.submit import _ended, _job_name, _prepared
from memsweep.redaction import is_secret_name
from memsweep.sweep.ray.session import AddressError, cluster_of
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.submit.client import DEFAULT_ADDRESS, State, SubmissionError, _beside, server_address
from memsweep.sweep.submit.package import ENGINE, EXCLUDES, MOST_BYTES, Parcel, mib
from memsweep.sweep.submit.secrets import refuse_secrets
from memsweep.sweep.worker.job_environment import in_job, job_name
from paths import ROOT
from sweeping import BASE

SECRET = "qZ7f-not-to-be-seen-Xp31"


@pytest.fixture(autouse=True)
def _a_plain_shell(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("RAY_ADDRESS", "RAY_API_SERVER_ADDRESS", "RAY_AUTH_TOKEN", "RAY_AUTH_TOKEN_PATH", "MEMSWEEP_RESULTS"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HOME", str(tmp_path / "home"))  # where Ray may have left a token


@pytest.fixture
def workspace(tmp_path: Path) -> Path:
    folder = tmp_path / "workspace"
    (folder / "search_spaces").mkdir(parents=True)
    registry.discover(ROOT)  # for its tasks
    (folder / "search_spaces" / "small.yaml").write_text(f"{BASE}grid: {{model.width: [2, 3]}}\n")
    return folder


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


def test_what_is_no_dashboard_is_told_in_one_sentence(submit: Callable[..., tuple[int, str]]) -> None:
    def told(address: str) -> str:
        code, error = submit("--attach", "x", "--address", address)
        assert code == 2
        assert "\n" not in error
        assert address in error
        return error

    with served(_Server) as (address, _):
        assert "is no Ray dashboard (HTTP 404)" in told(address)
    assert "no Ray dashboard answers" in told(address)  # it is gone
    with served(_Server, status=200, body=b"<html>") as (address, _):
        assert "is no Ray dashboard (a page that is none of Ray's)" in told(address)
    with served(_Server, status=200, body=b"[1]") as (address, _):
        assert "is no Ray dashboard" in told(address)
    with served(_NoHttp) as (address, _):
        assert "is no Ray dashboard" in told(address)
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


def test_a_parcel_weighs_what_ray_packs(workspace: Path, tmp_path: Path) -> None:
    from ray._private.runtime_env.packaging import create_package

    (workspace / "results" / "small").mkdir(parents=True)
    (workspace / "results" / "small" / "big").write_bytes(bytes(1000))
    (workspace / "deep" / "er").mkdir(parents=True)
    (workspace / "deep" / "er" / "Näme.txt").write_text("x" * 777)
    (workspace / "deep" / ".rayignore").write_text("*.log\n")
    (workspace / "deep" / "er" / "a.log").write_text("left out by the folder's own list")
    for name in (".env", ".env.local", "key.pem"):
        (workspace / name).write_text(SECRET)
    parcel = Parcel.of(workspace)
    assert [name for name, _ in parcel.files] == ["deep/.rayignore", "deep/er/Näme.txt", "search_spaces/small.yaml"]
    create_package(str(workspace), tmp_path / "a.zip", include_gitignore=True, excludes=list(EXCLUDES))
    create_package(
        str(ENGINE), tmp_path / "b.zip", include_gitignore=True, include_parent_dir=True, excludes=list(EXCLUDES)
    )
    packed = [(tmp_path / name).stat().st_size for name in ("a.zip", "b.zip")]
    inside = len(parcel.engine) * 2 * len("memsweep/")  # the engine's names begin with its folder
    assert parcel.bytes + inside == sum(packed)


def test_a_checkout_takes_along_what_a_job_needs_and_no_more() -> None:
    parcel = Parcel.of(ROOT)
    names = {name for name, _ in parcel.files}
    assert {"pyproject.toml", "constraints.txt", "README.md", "LICENSE"} <= names  # what pip needs to install it
    assert {"search_spaces/quickstart.yaml", "tasks/digits.py", "platform/memsweep/trial.py"} <= names
    needless = re.compile(r"^(tests|docs|benchmarks|docker|deploy|results|\.venv|\.git|\.env)(/|$)|__pycache__|\.pyc$")
    assert not [name for name in names if needless.search(name)]
    assert parcel.bytes < 8 * 2**20, parcel
    assert {"trial.py", "cli/__init__.py", "recurrence/compiled/cpp/kernels.cpp"} <= {name for name, _ in parcel.engine}


def test_what_a_job_server_would_refuse_is_refused_here(
    submit: Callable[..., tuple[int, str]], workspace: Path
) -> None:
    (workspace / "corpus").mkdir()
    with (workspace / "corpus" / "a.bin").open("wb") as file:
        file.truncate(MOST_BYTES)  # a hole: nothing is written
    with served(_Server) as (address, asked):
        code, told = submit("small", "--address", address)
        assert code == 2
        assert "would upload 100.0 MiB, and a job server takes at most 100.0 MiB. Largest: corpus/ 100.0 MiB" in told
        assert ".rayignore" in told
        assert asked == []
        (workspace / ".rayignore").write_text("corpus/\n")
        assert "is no Ray dashboard" in submit("small", "--address", address)[1]


def test_a_study_that_would_not_arrive_is_refused(
    submit: Callable[..., tuple[int, str]], workspace: Path, tmp_path: Path
) -> None:
    text = (workspace / "search_spaces" / "small.yaml").read_text()
    (tmp_path / "elsewhere.yaml").write_text(text)
    assert "lies outside of the workspace" in submit(str(tmp_path / "elsewhere.yaml"))[1]
    (workspace / "drafts").mkdir()
    (workspace / "drafts" / "mine.yaml").write_text(text)
    (workspace / ".gitignore").write_text("drafts/\n")
    assert "would not be uploaded" in submit(str(workspace / "drafts" / "mine.yaml"))[1]


@pytest.mark.parametrize(
    ("words", "said"),
    [
        ((), "which study?"),
        (("small", "--attach", "x"), "give no STUDY"),
        (("small", "a=1", "--do", "resume"), "takes no overrides"),
        (("small", "--force"), "--do retry alone"),
        (("small", "--no-reuse", "--do", "extend"), "--do sweep alone"),
        (("small", "--do", "report", "--max-hours", "1"), "--do report computes nothing"),
        (("small", "--results", "results"), "which the cluster deletes"),
        (("small", "--results", f"s3://me:{SECRET}@bucket/x"), "address with credentials"),
        (("small", f'name="http://me:{SECRET}@host/"'), "address with credentials"),
        (("small", f"name={SECRET}"), "holds the value of AWS_SECRET_ACCESS_KEY"),
        (("small", "--runtime-env", "nowhere.yaml"), "cannot be read"),
    ],
)
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
        "AWS_SECRET_ACCESS_KEY",
        "AWS_ACCESS_KEY_ID",
        "AWS_SESSION_TOKEN",
        "MLFLOW_TRACKING_PASSWORD",
        "PGPASSWORD",
    )
    secret += (
        "RAY_AUTH_TOKEN",
        "GITHUB_TOKEN",
        "WANDB_API_KEY",
        "HF_TOKEN",
        "SSH_PRIVATE_KEY",
        "DJANGO_SECRET",
        "SENTRY_DSN",
    )
    plain = ("PATH", "HOME", "RAY_AUTH_MODE", "MEMSWEEP_RESULTS", "OMP_NUM_THREADS", "MEMSWEEP_DATA", "PYTHONPATH")
    assert [name for name in secret if not is_secret_name(name)] == []
    assert [name for name in plain if is_secret_name(name)] == []


def test_secrets_in_a_runtime_environment_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    for env in (
        {"env_vars": {"WANDB_API_KEY": "x"}},
        {"env_vars": {"HARMLESS": f"postgresql://me:{SECRET}@db/x"}},
        {"pip": {"packages": [f"--index-url=https://me:{SECRET}@index/simple"]}},
    ):
        with pytest.raises(SubmissionError) as refused:
            refuse_secrets("the runtime environment", env)
        assert SECRET not in str(refused.value)
    monkeypatch.setenv("SOME_TOKEN", SECRET)
    with pytest.raises(SubmissionError, match="the value of SOME_TOKEN"):
        refuse_secrets("the runtime environment", {"env_vars": {"A": f"--key={SECRET}"}})
    refuse_secrets("the runtime environment", yaml.safe_load((ROOT / "deploy" / "runtime_env.yaml").read_text()))
    refuse_secrets("the command line", ["quickstart", "training.steps=5", None, "s3://bucket/results"])


def test_the_job_runs_the_engine_that_checked_the_study(workspace: Path) -> None:
    shipped = yaml.safe_load((ROOT / "deploy" / "runtime_env.yaml").read_text())
    assert [(ROOT / module).resolve() for module in shipped["py_modules"]] == [ENGINE]
    parcel = Parcel.of(workspace)
    assert parcel.runtime_env() == {
        "working_dir": str(workspace),
        "py_modules": [str(ENGINE)],
        "excludes": list(EXCLUDES),
    }
    given = parcel.runtime_env({**shipped, "env_vars": {"A": "b"}})
    assert given["py_modules"] == [str(ENGINE)]
    assert given["env_vars"] == {"A": "b"}
    assert given["pip"]["packages"][:-1] == shipped["pip"]["packages"]
    assert shipped["pip"]["packages"][-1] == "${RAY_RUNTIME_ENV_CREATE_WORKING_DIR}"
    with pytest.raises(SubmissionError, match="names a working_dir"):
        parcel.runtime_env({"working_dir": "."})


def test_other_pins_make_another_environment(workspace: Path) -> None:
    def packages() -> list[str]:
        return Parcel.of(workspace).runtime_env({"pip": ["rich"]})["pip"]["packages"]

    (workspace / "constraints.txt").write_text("rich==15.0.0\n")
    before = packages()
    assert before[0] == "rich"
    assert packages() == before
    (workspace / "constraints.txt").write_text("rich==15.0.1\n")
    assert packages() != before


def test_names_of_jobs_are_readable_and_unique() -> None:
    names = {_job_name("ten seeds; rm -rf / 'ü'") for _ in range(20)}
    assert len(names) == 20
    assert all(re.fullmatch(r"memsweep-ten-seeds-rm-rf-\d{8}-\d{6}-[0-9a-f]{4}", name) for name in names)
    assert _job_name("ü").startswith("memsweep-study-")


def test_limits_go_with_the_job(workspace: Path) -> None:
    words = ["submit", "small", "--workspace", str(workspace), "--max-hours", "2", "--max-trials", "1000000"]
    job, _, _ = _prepared(parse(words, dict.fromkeys(_names())))
    assert job.command.endswith("sweep small --max-hours 2.0 --max-trials 1000000")


def test_the_exit_code_is_the_jobs(capsys: pytest.CaptureFixture[str]) -> None:
    assert _ended(State("SUCCEEDED", exit_code=0), "j", quiet=False) == 0
    assert _ended(State("FAILED", "the log", 2), "j", quiet=False) == 2
    assert "the log" not in capsys.readouterr().err
    assert _ended(State("FAILED", "the log", 1), "j", quiet=True) == 1
    assert "the log" in capsys.readouterr().err
    assert _ended(State("FAILED", "no environment"), "j", quiet=False) == 1
    assert "no environment" in capsys.readouterr().err
    assert _ended(State("STOPPED", study="small"), "j", quiet=False) == 130
    assert "memsweep submit small --do resume" in capsys.readouterr().out
    assert _ended(State("FAILED", "the log", 3, study="small"), "j", quiet=False) == 3
    assert "stopped at a limit; what was finished is kept" in capsys.readouterr().out


LOG = (
    "Running entrypoint\nsmall: 12 rows: 12 to run in 2 packs\nsmall: 0/12 trials, 0 failed, 2 packs running\n"
    "exp: stable [bold]\nsmall: 7/12 trials, 3 s left, 0 failed, 2 packs running\n"
    "small: 12/12 trials, 0 failed, 0 packs running, ended after 9 s\nwithout an end"
)


@given(cuts=st.lists(st.integers(0, len(LOG)), max_size=8))
def test_without_a_terminal_the_log_passes_as_it_is(cuts: list[int]) -> None:
    shown = io.StringIO()
    with Follower("small", shown) as follower:
        edges = [0, *sorted(cuts), len(LOG)]
        for begin, end in itertools.pairwise(edges):
            follower.text(LOG[begin:end])
    assert shown.getvalue() == LOG + "\n"


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_on_a_terminal_progress_is_one_live_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "xterm")
    shown = _Terminal()
    with Follower("small", shown) as follower:
        follower.text(LOG)
        assert follower._progress is not None
        follower._progress.refresh()
        (task,) = follower._progress.tasks
        assert (task.completed, task.total) == (12, 12)
    kept = [line for line in re.sub(r"\x1b\[[0-9;?]*[A-Za-z]", "", shown.getvalue()).splitlines() if line.strip()]
    assert any(line.endswith("exp: stable [bold]") for line in kept)
    assert any("ended after 9 s" in line for line in kept)
    assert not any(re.match(r"^\s*small: 7/12", line) for line in kept)


JOB = json.dumps({"metadata": {"job_submission_id": "memsweep-small-1"}, "runtime_env": {}})


def test_a_job_joins_its_own_cluster_and_nothing_else_does(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("RAY_ADDRESS", "10.0.0.1:6379")
    assert (in_job(), cluster_of(None), job_name()) == (False, None, "")
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", JOB)
    assert (in_job(), cluster_of(None), job_name()) == (True, "10.0.0.1:6379", "memsweep-small-1")
    assert cluster_of("auto") == "auto"
    assert cluster_of("head:6379") == "head:6379"
    monkeypatch.delenv("RAY_ADDRESS")
    assert cluster_of(None) == "auto"


@pytest.mark.parametrize("address", [f"http://me:{SECRET}@head:8265", "https://head", "ray://head:10001"])
def test_what_a_sweep_cannot_join_is_refused(address: str) -> None:
    with pytest.raises(AddressError, match="memsweep submit STUDY") as refused:
        cluster_of(address)
    assert refused.value.exit_code == 2
    assert SECRET not in str(refused.value)


def test_an_address_in_the_environment_is_told_not_obeyed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("RAY_ADDRESS", f"http://me:{SECRET}@head:8265")
    args = argparse.Namespace(inline=False, address=None)
    join_cluster(args)
    assert args.address is None
    told = capsys.readouterr().err
    assert "RAY_ADDRESS=http://head:8265 is not used" in told
    monkeypatch.delenv("RAY_ADDRESS")
    join_cluster(args)
    assert capsys.readouterr().err == ""


def test_a_job_refuses_a_folder_that_goes_with_it(
    workspace: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(workspace)
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", JOB)
    before = sorted(workspace.rglob("*"))
    for words in ([], ["--results", "out"], ["--results", str(workspace / "out")]):
        assert main(["sweep", "small", "--inline", *words]) == 2
        told = capsys.readouterr().err
        assert "a folder of the job memsweep-small-1" in told
        assert "MEMSWEEP_RESULTS" in told
    assert sorted(path for path in workspace.rglob("*") if "__pycache__" not in path.parts) == before


def test_where_a_local_folder_may_stay(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def refused(results: str, study: str = "small", *, address: str | None = None) -> bool:
        args = argparse.Namespace(results=results, study=study, address=address, inline=False)
        place = Location.at(study).parent if "/" in study else Location.at(results)
        try:
            refuse_lost(args, place)
        except LostResultsError:
            return True
        return False

    monkeypatch.chdir(tmp_path)
    counts = iter([1, 3, 3])
    monkeypatch.setattr("memsweep.sweep.ray.session.count_nodes", lambda address: next(counts))
    assert not refused("results")
    assert not refused("results", address="auto")  # a cluster of one node
    assert refused("results", address="auto")  # and of three
    assert refused("results", "results/small", address="auto")
    assert not refused("/shared/results", address="auto")
    assert not refused("results", "/shared/results/small", address="auto")
    assert not refused("s3://bucket/x", address="auto")
    assert next(counts, None) is None
    monkeypatch.setenv("RAY_JOB_CONFIG_JSON_ENV_VAR", JOB)
    assert refused("results")
    assert refused("../results")
    assert refused("results", "results/small")
    assert not refused("/shared/results")
    assert not refused("results", "/shared/results/small")
    assert not refused("s3://bucket/x")


def test_results_go_where_the_environment_says(monkeypatch: pytest.MonkeyPatch) -> None:
    handlers = dict.fromkeys(("plan", "status"), None)

    def results(*words: str) -> str:
        from memsweep.cli.arguments import _ADD

        return str(parse(words, dict.fromkeys(_ADD)).results)

    assert handlers
    assert results("plan", "x") == "results"
    monkeypatch.setenv("MEMSWEEP_RESULTS", "s3://bucket/results")
    assert results("plan", "x") == results("status", "x") == "s3://bucket/results"
    assert results("plan", "x", "--results", "here") == "here"
    assert os.environ["MEMSWEEP_RESULTS"] not in str(vars(parse(["submit", "x"], dict.fromkeys(_names()))))


def _names() -> list[str]:
    from memsweep.cli.arguments import _ADD

    return list(_ADD)


def test_sizes_are_readable() -> None:
    assert mib(0) == "0.0 MiB"
    assert mib(5 * 2**20) == "5.0 MiB"


def test_ctrl_c_ends_what_passes_over_cancellations() -> None:
    """In the main thread asyncio makes a cancellation of it, which a library may swallow."""
    over = threading.Event()

    async def stubborn() -> None:
        while not over.is_set():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.sleep(0.05)

    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    threading.Timer(0.3, lambda: os.kill(os.getpid(), signal.SIGINT)).start()
    threading.Timer(5.0, over.set).start()
    try:
        with pytest.raises(KeyboardInterrupt):
            _beside(stubborn)
        assert not over.is_set()
    finally:
        over.set()
        signal.signal(signal.SIGINT, before)
