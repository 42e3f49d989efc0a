"""``memsweep data fetch``, against a server on this machine that holds small files of the published formats."""

from __future__ import annotations

import dataclasses
import gzip
import hashlib
import io
import tarfile
import threading
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from arena_files import write_aan, write_imdb, write_pathfinder
from image_files import write_cifar, write_mnist
from memsweep import registry
from memsweep.cli import main
from memsweep.data.folder import FETCHED
from memsweep.project import published
from memsweep.project.fetch import RECORD
from paths import ROOT
from text_files import write_ptb


class Server(ThreadingHTTPServer):
    """Serves ``files`` with ranges and tags.

    Attributes:
        files: path -> content; any other is answered 403.
        asked: path and Range of each request.
        cut: answers that end after half of their bytes, so many of the next ones.
    """

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.files: dict[str, bytes] = {}
        self.asked: list[tuple[str, str]] = []
        self.cut = 0

    @property
    def base(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


class Handler(BaseHTTPRequestHandler):
    server: Server

    def do_GET(self) -> None:
        wanted, content = self.headers.get("Range", ""), self.server.files.get(self.path)
        self.server.asked.append((self.path, wanted))
        if content is None:
            self.send_error(403)
            return
        tag = f'"{hashlib.md5(content).hexdigest()}"'
        start = int(wanted.removeprefix("bytes=").rstrip("-")) if wanted and self.headers["If-Range"] == tag else 0
        self.send_response(206 if start else 200)
        self.send_header("Content-Length", str(len(content) - start))
        self.send_header("ETag", tag)
        self.end_headers()
        if self.server.cut:
            self.server.cut -= 1
            content = content[: start + (len(content) - start) // 2]
            self.close_connection = True
        self.wfile.write(content[start:])

    def log_message(self, *words: object) -> None:
        """Silent."""


@pytest.fixture(scope="module")
def contents(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, bytes]]:
    """Data set -> file name -> content, in the true formats."""
    folder = tmp_path_factory.mktemp("published")
    made: dict[str, dict[str, bytes]] = {}
    for name, data_set in published.DATA_SETS.items():
        if name == "retrieval" or name.startswith("pathfinder"):  # one archive with listops
            made[name] = made["listops"]
        else:
            made[name] = {file.name: content_of(name, file.name, folder) for file in data_set.files}
    return made


@pytest.fixture
def server(contents: dict[str, dict[str, bytes]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    """Holds every data set of the table, whose addresses and checksums are changed to those of the small files."""
    registry.discover(ROOT)
    monkeypatch.setenv("MEMSWEEP_DATA", str(tmp_path / "data"))
    with Server() as running:
        threading.Thread(target=running.serve_forever, daemon=True).start()
        for name, data_set in published.DATA_SETS.items():
            files = []
            for file in data_set.files:
                path, content = f"/{name}/{file.name}".replace(f"/{name}/lra", "/lra"), contents[name][file.name]
                running.files[path] = content
                algorithm = file.digest.partition(":")[0]
                digest = f"{algorithm}:{hashlib.new(algorithm, content).hexdigest()}" if algorithm else ""
                files.append(dataclasses.replace(file, addresses=(running.base + path,), digest=digest))
            monkeypatch.setitem(
                published.DATA_SETS, name, dataclasses.replace(data_set, files=tuple(files), package=None)
            )
        yield running
        running.shutdown()


def content_of(name: str, file: str, folder: Path) -> bytes:
    """A published file in its true format."""
    if name in ("mnist", "fashion_mnist"):
        write_mnist(folder / name, compress=True)
        return (folder / name / file).read_bytes()
    if name == "cifar10":
        write_cifar(folder / "cifar-10-batches-bin")
        return archive(folder, "cifar-10-batches-bin", "cifar-10-batches-bin")
    if name == "ptb":
        write_ptb(folder / "ptb", "ptb.char.{}.txt")
        return archive(folder, "ptb", "./simple-examples/data")
    if name == "imdb":
        write_imdb(folder / "aclImdb")
        (folder / "aclImdb" / "train" / "unsup").mkdir()
        (folder / "aclImdb" / "train" / "unsup" / "0_0.txt").write_text("of no task")
        return archive(folder, "aclImdb", "aclImdb")
    assert name == "listops"
    (folder / "lra" / "listops-1000").mkdir(parents=True)
    for part in ("train", "val", "test"):
        (folder / "lra" / "listops-1000" / f"basic_{part}.tsv").write_text("Source\tTarget\n( [MAX 2 9 ] )\t9\n" * 3)
    write_aan(folder / "aan")
    (folder / "aan").rename(folder / "lra" / "tsv_data")
    for size in (32, 64, 128, 256):
        write_pathfinder(folder / "lra" / f"pathfinder{size}" / "curv_contour_length_14", size, count=20)
    (folder / "lra" / "tsv_data" / "._new_aan_pairs.train.tsv").write_text("of no use")
    return archive(folder, "lra", "lra_release/lra_release")


def archive(folder: Path, source: str, inside: str) -> bytes:
    memory = io.BytesIO()
    with tarfile.open(fileobj=memory, mode="w:gz", compresslevel=1) as out:
        out.add(folder / source, inside)
    return memory.getvalue()


def fetch(*words: str) -> int:
    return main(["data", "fetch", *words])


def problems(task: str, **fields: object) -> list[str]:
    return list(registry.get(registry.TASK, task).Config(**fields).problems())


READERS: dict[str, Callable[[], list[str]]] = {
    "mnist": lambda: problems("images") + problems("permuted_mnist"),
    "fashion_mnist": lambda: (
        problems("images", data="fashion_mnist") + problems("permuted_mnist", data="fashion_mnist")
    ),
    "cifar10": lambda: problems("images", data="cifar10") + problems("sequential_cifar"),
    "ptb": lambda: problems("ptb", horizon=10),
    "imdb": lambda: problems("imdb"),
    "listops": lambda: problems("listops", source="files"),
    "retrieval": lambda: problems("retrieval"),
    **{f"pathfinder{size}": lambda size=size: problems("pathfinder", size=size) for size in (32, 64, 128, 256)},
}


def test_every_data_set_lies_where_its_tasks_look_for_it(server: Server, tmp_path: Path) -> None:
    assert READERS.keys() == published.DATA_SETS.keys()
    assert all(read() for read in READERS.values())  # nothing is there yet
    assert fetch(*published.DATA_SETS) == 0
    assert {name: read() for name, read in READERS.items()} == {name: [] for name in READERS}
    data = tmp_path / "data"
    left = {path.name for path in data.iterdir()}
    assert left == {each.folder for each in published.DATA_SETS.values()}  # no download is left
    assert not (data / "aclImdb" / "train" / "unsup").exists()
    assert [path for path, _ in server.asked].count("/lra_release.gz") == 1
    before = len(server.asked)
    assert fetch("mnist", "lra") == 0
    assert len(server.asked) == before  # what is there is not fetched again


def test_a_download_that_was_cut_off_goes_on_where_it_stopped(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server.cut = 1
    assert fetch("cifar10") == 4
    assert "the connection was cut off" in capsys.readouterr().err
    assert not (tmp_path / "data" / "cifar10").exists()
    assert fetch("cifar10") == 0
    half = len(server.files["/cifar10/cifar-10-binary.tar.gz"]) // 2
    assert [wanted for _, wanted in server.asked] == ["", f"bytes={half}-"]
    assert not READERS["cifar10"]()


def test_a_file_that_changed_meanwhile_starts_again(server: Server) -> None:
    server.cut = 1
    whole = server.files["/cifar10/cifar-10-binary.tar.gz"]
    server.files["/cifar10/cifar-10-binary.tar.gz"] = whole[::-1]
    assert fetch("cifar10") == 4
    server.files["/cifar10/cifar-10-binary.tar.gz"] = whole
    assert fetch("cifar10") == 0
    assert not READERS["cifar10"]()


def test_another_checksum_is_refused_and_what_is_there_stays(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert fetch("mnist") == 0
    data = tmp_path / "data"
    before = {path.name: path.read_bytes() for path in (data / "mnist").iterdir()}
    server.files["/mnist/t10k-labels-idx1-ubyte.gz"] = gzip.compress(b"another file")
    assert fetch("mnist", "--force") == 4
    told = capsys.readouterr().err
    assert "t10k-labels-idx1-ubyte.gz has the checksum sha256:" in told
    assert "Traceback" not in told
    assert {path.name: path.read_bytes() for path in (data / "mnist").iterdir()} == before
    assert not (data / ".downloads" / "t10k-labels-idx1-ubyte.gz").exists()


def test_where_no_checksum_is_published_the_first_one_is_kept_and_compared(
    server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sha256 = hashlib.sha256(server.files["/lra_release.gz"]).hexdigest()
    assert fetch("listops") == 0
    assert f"Its SHA-256 is {sha256}" in capsys.readouterr().out
    assert sha256 in (tmp_path / "data" / "listops" / RECORD).read_text("utf-8")
    assert fetch("retrieval") == 0
    assert f"has the SHA-256 of the earlier fetch, {sha256}" in capsys.readouterr().out
    server.files["/lra_release.gz"] += b"\0"
    assert fetch("pathfinder32") == 4
    assert "at the earlier fetch it has sha256:" + sha256 in capsys.readouterr().err
    assert not (tmp_path / "data" / "pathfinder32").exists()


def test_files_of_others_are_left_alone(server: Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    mine = tmp_path / "data" / "ptb" / "train.txt"
    mine.parent.mkdir(parents=True)
    mine.write_text("m i n e")
    assert fetch("ptb") == 0
    assert "was not fetched by this command" in capsys.readouterr().out
    assert mine.read_text() == "m i n e"
    assert not server.asked


def test_an_address_that_refuses_and_an_archive_without_the_files_are_named(
    server: Server, capsys: pytest.CaptureFixture[str]
) -> None:
    del server.files["/imdb/aclImdb_v1.tar.gz"]
    assert fetch("imdb") == 4
    assert "403 Client Error: Forbidden" in capsys.readouterr().err
    assert fetch("no_such_set", "mnits") == 2
    assert "Did you mean 'mnist'?" in capsys.readouterr().err
    data_set = published.DATA_SETS["ptb"]
    (file,) = data_set.files
    published.DATA_SETS["ptb"] = dataclasses.replace(
        data_set, files=(dataclasses.replace(file, wanted=(*file.wanted, "x.txt")),)
    )
    assert fetch("ptb") == 4
    assert "its folder simple-examples/data lacks x.txt" in capsys.readouterr().err


def test_the_advice_to_fetch_names_the_data_sets_that_there_are() -> None:
    assert {each.folder: name for name, each in published.DATA_SETS.items()} == FETCHED
