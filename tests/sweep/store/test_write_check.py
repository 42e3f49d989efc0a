"""Before a sweep starts: what would keep its results from being written is said in a sentence, and leaves no trace."""

from __future__ import annotations

import errno
import os
import socket
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from memsweep.cli import main
from memsweep.cli.guard import as_meant
from memsweep.errors import StoreError
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.results import Store
from memsweep.sweep.store.unwritable import check_writable
from processes import no_hang
from s3_server import STRANGER, S3Server


def refusal(where: Path | str) -> str:
    """Why results cannot go there; one or two sentences, and always with what to do; nobody waits for a storage."""
    with no_hang(), pytest.raises(StoreError) as refused:
        check_writable(Location.at(where))
    said = str(refused.value)
    assert "\n" not in said
    assert len(said) < 500
    return said


def test_a_folder_that_takes_files_is_made_and_left_empty(tmp_path: Path) -> None:
    check_writable(Location.at(tmp_path / "new" / "results"))
    assert list((tmp_path / "new" / "results").iterdir()) == []
    check_writable(Location.at(tmp_path / "new" / "results"))
    assert list((tmp_path / "new" / "results").iterdir()) == []


@pytest.mark.parametrize("below", ["", "study/results"])
def test_a_file_where_the_folder_should_be(tmp_path: Path, below: str) -> None:
    (tmp_path / "results").write_text("mine")
    said = refusal(tmp_path / "results" / below)
    assert f"{tmp_path / 'results'} is a file, not a folder" in said
    assert "--results" in said
    assert (tmp_path / "results").read_text() == "mine"


@contextmanager
def mounted(folder: Path, options: str) -> Iterator[None]:
    """A small file system of its own; needs root."""
    made = subprocess.run(["mount", "-t", "tmpfs", "-o", options, "tmpfs", folder], capture_output=True, text=True)
    if made.returncode:
        pytest.skip(f"no file system can be mounted here: {made.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", folder], check=True)


def test_a_full_disk(tmp_path: Path) -> None:
    with mounted(tmp_path, "size=32m"):
        (tmp_path / "filler").write_bytes(bytes(28 * 2**20))
        said = refusal(tmp_path / "results")
        assert "4.0 MiB are free" in said
        assert "Free some space" in said
        assert os.listdir(tmp_path) == ["filler"]


def test_a_disk_that_takes_no_more_files(tmp_path: Path) -> None:
    """Space is left, but no inode: only trying tells, and the folders that were made for the trial are removed."""
    with mounted(tmp_path, "size=64m,nr_inodes=4"):
        said = refusal(tmp_path / "a" / "b")
        assert "its file system has free space, but takes no more files" in said
        assert "Delete files there" in said
        assert os.listdir(tmp_path) == []
        (tmp_path / "a").mkdir()
        for name in ("b", "c"):
            (tmp_path / name).touch()
        with pytest.raises(StoreError, match=r"takes no more files .* Delete files there"):
            Store(tmp_path / "a").fail("x", {"outcome": "failed", "error": "", "traceback": ""})
        full = OSError(errno.ENOSPC, "No space left on device", str(tmp_path / "page.html"))
        assert "takes no more files" in str(as_meant(full))


def test_a_file_system_that_is_read_only(tmp_path: Path) -> None:
    with mounted(tmp_path, "size=64m,ro"):
        said = refusal(tmp_path / "results")
        assert "its file system is read-only" in said
        assert "--results" in said


def test_a_folder_without_permission(tmp_path: Path) -> None:
    """Root may write everywhere: there a child process becomes nobody first."""
    tmp_path.chmod(0o555)
    for folder in list(tmp_path.parents)[:2]:  # pytest's own folders are private
        folder.chmod(folder.stat().st_mode | 0o011)
    child = os.fork()
    if not child:
        code = 1
        try:
            if os.getuid() == 0:
                os.setgroups([])
                os.setgid(65534)
                os.setuid(65534)
            said = refusal(tmp_path / "results")
            code = 0 if "may not write there" in said and "permissions" in said else 2
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert os.listdir(tmp_path) == []


@pytest.mark.s3
def test_a_bucket_that_takes_files(s3: S3Server) -> None:
    place = Location.at("s3://studies/preflight/new")
    check_writable(place)
    assert place.folders() == []
    assert place.names() == {}


@pytest.mark.s3
def test_no_such_bucket(s3: S3Server) -> None:
    said = refusal("s3://no-such-bucket/results")
    assert "there is no bucket 'no-such-bucket'" in said
    assert s3.endpoint in said
    assert "aws s3 mb s3://no-such-bucket" in said


@pytest.mark.s3
@pytest.mark.parametrize("name", ["AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"])
def test_a_wrong_key(s3: S3Server, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "wrong")
    said = refusal("s3://studies/results")
    assert "refuses to write to bucket 'studies'" in said
    assert "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY" in said
    assert s3.environment()["AWS_SECRET_ACCESS_KEY"] not in said


@pytest.mark.s3
def test_a_wrong_region(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_REGION", "eu-north-9")
    said = refusal("s3://studies/results")
    assert "the region 'eu-north-9' is wrong" in said
    assert "AWS_REGION" in said


@pytest.mark.s3
def test_no_key_at_all(s3: S3Server, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("AWS_ACCESS_KEY_ID")
    monkeypatch.delenv("AWS_SECRET_ACCESS_KEY")
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    said = refusal("s3://studies/results")
    assert "AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY not set" in said


@pytest.mark.s3
def test_a_bucket_of_somebody_else(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in s3.environment(STRANGER).items():
        monkeypatch.setenv(name, value)
    said = refusal("s3://studies/results")
    assert "there is no bucket 'studies'" in said  # each account has buckets of its own on this server


@contextmanager
def nobody() -> Iterator[str]:
    """A port on which nobody listens."""
    with socket.socket() as reserved:
        reserved.bind(("127.0.0.1", 0))
        yield f"http://127.0.0.1:{reserved.getsockname()[1]}"


@contextmanager
def silent() -> Iterator[str]:
    """A port that takes connections and never answers."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        yield f"http://127.0.0.1:{listener.getsockname()[1]}"


@contextmanager
def no_address() -> Iterator[str]:
    """No host of this name can exist (RFC 6761)."""
    yield "http://storage.invalid:9000"


@pytest.mark.parametrize("endpoint", [nobody, pytest.param(silent, marks=pytest.mark.drill), no_address])
def test_an_endpoint_that_does_not_answer(
    endpoint: Callable[[], Iterator[str]], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """A command that reads says the same as one that writes."""
    with endpoint() as uri:  # type: ignore[attr-defined]
        for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY"):
            monkeypatch.setenv(name, "any")
        monkeypatch.setenv("AWS_ENDPOINT_URL", uri)
        monkeypatch.setenv("AWS_REGION", "us-east-1")
        said = refusal("s3://studies/results")
        assert f"{uri} does not answer" in said
        assert "AWS_ENDPOINT_URL" in said
        if endpoint is silent:  # its reader waits for minutes
            return
        assert main(["status", "mine", "--results", "s3://studies/results"]) == 4
        read = capsys.readouterr().err
        assert f"{uri} does not answer" in read
        assert said.rpartition(").")[2] in read.replace("\n", " ")


def test_a_sweep_is_refused_before_it_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "results").write_text("mine")
    code = main(["sweep", "quickstart", "--inline", "--results", str(tmp_path / "results")])
    assert code == 4
    assert "is a file, not a folder" in capsys.readouterr().err
    assert os.listdir(tmp_path) == ["results"]
