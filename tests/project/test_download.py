"""Downloads from servers that send too much, too little, too slowly, or to somewhere else; all on this machine."""

from __future__ import annotations

import contextlib
import hashlib
import threading
import time
from collections.abc import Callable, Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import requests

from memsweep.cli import main
from memsweep.project import download, published
from memsweep.project.published import DataSet, PublishedFile

CONTENT = bytes(range(256)) * 16
DIGEST = f"sha256:{hashlib.sha256(CONTENT).hexdigest()}"


class Handler(BaseHTTPRequestHandler):
    """Answers with a status, headers and pieces of a body; each piece is sent at once."""

    status: int
    headers_sent: dict[str, str]
    pieces: Callable[[], Iterator[bytes]]
    sent: list[int]

    def do_GET(self) -> None:
        self.send_response(self.status)
        for name, value in self.headers_sent.items():
            self.send_header(name, value)
        self.end_headers()
        with contextlib.suppress(OSError):  # the client has left
            for piece in type(self).pieces():
                self.wfile.write(piece)
                self.sent.append(len(piece))

    def log_message(self, *words: object) -> None:
        """Silent."""


@contextlib.contextmanager
def answering(
    headers: dict[str, str], pieces: Callable[[], Iterator[bytes]] = lambda: iter([CONTENT]), status: int = 200
) -> Iterator[tuple[str, list[int]]]:
    """The address of a server with one answer, and how many bytes it could send at a time."""
    sent: list[int] = []
    fields = {"status": status, "headers_sent": headers, "pieces": staticmethod(pieces), "sent": sent}
    with ThreadingHTTPServer(("127.0.0.1", 0), type("Answer", (Handler,), fields)) as server:
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}/file.txt", sent
        server.shutdown()


@pytest.fixture
def fetched(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Callable[..., tuple[int, str]]:
    """``memsweep data fetch`` of a file at an address: exit code and what was told; leaves nothing of a refused one."""

    def run(*addresses: str, digest: str = DIGEST, size: int = len(CONTENT)) -> tuple[int, str]:
        file = PublishedFile(addresses, digest, size)
        monkeypatch.setitem(published.DATA_SETS, "mine", DataSet("a file", (), "mine", (file,)))
        code = main(["data", "fetch", "mine", "--folder", str(tmp_path / "data")])
        told = "".join(capsys.readouterr())
        assert "Traceback" not in told
        return code, told

    return run


def endless() -> Iterator[bytes]:
    while True:
        yield b"x" * 65536


def left(tmp_path: Path) -> list[str]:
    return sorted(path.name for path in (tmp_path / "data" / ".downloads").glob("[!.]*") if path.is_file())


def test_a_good_answer_is_taken(fetched: Callable[..., tuple[int, str]], tmp_path: Path) -> None:
    for headers in ({}, {"Content-Length": str(len(CONTENT))}):
        with answering(headers) as (address, _):
            assert fetched(address)[0] == 0
        (tmp_path / "data" / "mine" / "file.txt").unlink()
        (tmp_path / "data" / "mine" / ".fetched.json").unlink()
    chunks = [b"%x\r\n%s\r\n" % (len(CONTENT), CONTENT), b"0\r\n\r\n"]
    with answering({"Transfer-Encoding": "chunked"}, lambda: iter(chunks)) as (address, _):
        assert fetched(address)[0] == 0
    assert (tmp_path / "data" / "mine" / "file.txt").read_bytes() == CONTENT


@pytest.mark.parametrize(
    ("known", "most"),
    [({}, len(CONTENT)), ({"digest": ""}, int(1.5 * len(CONTENT))), ({"digest": "", "size": 0}, 1 << 20)],
    ids=["size and checksum known", "size known about", "nothing known"],
)
def test_an_endless_answer_ends_at_the_known_size(
    known: dict[str, object],
    most: int,
    fetched: Callable[..., tuple[int, str]],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(download, "_MOST", 1 << 20)
    with answering({"ETag": '"a"'}, endless) as (address, sent):
        code, told = fetched(address, **known)
    assert code == 4
    assert f"{address}: it sends more than the {most:,} bytes of the file" in told
    assert sum(sent) < most + (16 << 20)  # what lay in the buffers of the two ends
    assert left(tmp_path) == []


@pytest.mark.parametrize(
    ("length", "said"),
    [
        ("abc", "it says Content-Length: 'abc', which is no number of bytes"),
        ("-5", "it says Content-Length: '-5', which is no number of bytes"),
        ("1e3", "which is no number of bytes"),
        ("\u00b2", "which is no number of bytes"),
        ("4096, 4096", "which is no number of bytes"),
        ("9" * 5000, "it announces 99,999,999,999,999,999,999 bytes, and the file has 4,096 at most"),
        ("4097", "it announces 4,097 bytes"),
        ("5000000000", "it announces 5,000,000,000 bytes"),
        ("10", "has the checksum sha256:"),
        ("0", "has the checksum sha256:"),
    ],
)
def test_a_length_that_is_none_is_told_in_a_sentence(
    length: str, said: str, fetched: Callable[..., tuple[int, str]], tmp_path: Path
) -> None:
    with answering({"Content-Length": length}) as (address, _):
        code, told = fetched(address)
    assert (code, left(tmp_path)) == (4, [])
    assert said in told


def test_an_answer_that_is_too_short_is_kept_to_go_on_from(
    fetched: Callable[..., tuple[int, str]], tmp_path: Path
) -> None:
    with answering({"Content-Length": str(len(CONTENT)), "ETag": '"a"'}, lambda: iter([CONTENT[:9]])) as (address, _):
        code, told = fetched(address)
    assert (code, left(tmp_path)) == (4, ["file.txt.part", "file.txt.part.etag"])
    assert "the connection was cut off" in told
    for headers, status, said in (
        (
            {"Content-Range": "bytes 5-4095/4096"},
            206,
            "was asked for the bytes from 9 on and sends 'bytes 5-4095/4096'",
        ),
        ({}, 416, "416 Client Error"),
    ):
        with answering(headers, status=status) as (address, _):
            code, told = fetched(address)
        assert code == 4
        assert said in told
    assert left(tmp_path) == []


@pytest.mark.parametrize(
    "there", ["file:///etc/passwd", "ftp://127.0.0.1/x", "gopher://x/", "data:,x", "//[", "http://[", "javascript:1"]
)
def test_a_redirect_to_no_web_address_is_refused(
    there: str, fetched: Callable[..., tuple[int, str]], tmp_path: Path
) -> None:
    with answering({"Location": there}, status=302) as (address, _):
        code, told = fetched(address)
    assert (code, left(tmp_path)) == (4, [])
    assert f"it leads to {there!r}, and only http and https addresses are followed" in told


def test_an_encrypted_address_leads_to_no_other() -> None:
    response = requests.Response()
    response.status_code, response.url = 302, "https://host/file"
    for there, refused in (("/other", False), ("https://mirror/x", False), ("http://host/file", True)):
        response.headers["Location"] = there
        with (
            pytest.raises(Exception, match="only https addresses are followed") if refused else contextlib.nullcontext()
        ):
            download._stay(response)


def test_redirects_are_followed_to_web_addresses_and_not_for_ever(
    fetched: Callable[..., tuple[int, str]], tmp_path: Path
) -> None:
    with answering({}) as (good, _), answering({"Location": good}, status=302) as (address, _):
        assert fetched(address)[0] == 0
    (tmp_path / "data" / "mine" / "file.txt").unlink()
    (tmp_path / "data" / "mine" / ".fetched.json").unlink()
    with answering({"Location": "/file.txt"}, status=302) as (address, _):
        code, told = fetched(address)
    assert code == 4
    assert "cannot be reached (TooManyRedirects)" in told


def test_a_trickle_is_given_up(
    fetched: Callable[..., tuple[int, str]], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each byte comes in time, and the whole would take an hour."""
    monkeypatch.setattr(download, "_PATIENCE", 0.5)

    def trickle() -> Iterator[bytes]:
        for byte in CONTENT:
            time.sleep(0.05)
            yield bytes([byte])

    with answering({"Content-Length": str(len(CONTENT)), "ETag": '"a"'}, trickle) as (address, sent):
        code, told = fetched(address)
    assert code == 4
    assert "it is too slow: " in told
    assert len(sent) < 100
    assert left(tmp_path) == ["file.txt.part", "file.txt.part.etag"]


def test_the_next_address_is_tried(fetched: Callable[..., tuple[int, str]], tmp_path: Path) -> None:
    with answering({"Content-Length": "abc"}) as (bad, _), answering({}) as (good, _):
        assert fetched(bad, good)[0] == 0
    assert (tmp_path / "data" / "mine" / "file.txt").read_bytes() == CONTENT
