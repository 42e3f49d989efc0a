"""The page of a running study: served on loopback to those who know its address, and never in the sweep's way."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import socket
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from memsweep.report.live import build, reader
from memsweep.report.live.board import Board
from memsweep.report.live.build import LiveStudy
from memsweep.report.live.process import LivePage, has_report
from memsweep.report.live.server import PageServer
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.journal import Journal, State
from paths import ROOT
from processes import wait_for
from report_study import THEORY, write_study
from sweeping import BASE, end, environment, start

FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-sync"]
GROWN = "() => !document.querySelector('[data-cell]').textContent.startsWith('0')"
SLOW = BASE.replace("steps: 20", "steps: 200") + "grid: {task.horizon: [8, 12, 16], model.width: [2, 3]}\n"


@pytest.fixture
def served() -> Iterator[tuple[str, Board]]:
    """The address of a board with a page, and the board."""
    board, listening = Board(), socket.create_server(("127.0.0.1", 0))
    server = PageServer(listening, "token", board)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01}, daemon=True).start()
    board.show(b"first", {"words": "0 of 2"})
    yield f"http://127.0.0.1:{listening.getsockname()[1]}", board
    server.shutdown()
    server.server_close()


def get(address: str, host: str = "") -> tuple[int, bytes]:
    request = urllib.request.Request(address, headers={"Host": host} if host else {})
    try:
        with urllib.request.urlopen(request, timeout=30) as answer:
            return answer.status, answer.read()
    except urllib.error.HTTPError as error:
        return error.code, b""


def events(address: str) -> Iterator[tuple[str, dict[str, Any]]]:
    """The events of a page, until it ends."""
    with urllib.request.urlopen(f"{address}events", timeout=120) as stream:
        name = ""
        for line in stream:
            key, _, content = line.decode().rstrip("\n").partition(": ")
            if key == "event":
                name = content
            elif key == "data":
                yield name, json.loads(content)
                if name == "end":
                    return


def test_the_page_is_for_browsers_of_this_machine_that_know_its_address(served: tuple[str, Board]) -> None:
    address, _ = served
    port = address.rpartition(":")[2]
    assert get(f"{address}/token/") == (200, b"first")
    assert get(f"{address}/token/", f"localhost:{port}") == (200, b"first")
    assert get(f"{address}/token/", "localhost:1234")[0] == 200  # forwarded by ssh -L
    for host in ("evil.example", f"evil.example:{port}", f"127.0.0.1.evil.example:{port}", "0.0.0.0"):
        assert get(f"{address}/token/", host)[0] == 421, host
    for path in ("/", "/token", "/other/", "/token/../", "/token/records", "/events"):
        assert get(f"{address}{path}")[0] == 404, path
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(("127.0.0.2", int(port)), timeout=5)


def test_readers_get_the_newest_and_then_the_end(served: tuple[str, Board]) -> None:
    address, board = served
    readers: list[list[tuple[str, dict[str, Any]]]] = [[] for _ in range(10)]
    threads = [
        threading.Thread(target=lambda told=told: told.extend(events(f"{address}/token/")), daemon=True)
        for told in readers
    ]
    with socket.create_connection(("127.0.0.1", int(address.rpartition(":")[2]))) as slow:
        slow.sendall(b"GET /token/events HTTP/1.0\r\nHost: localhost\r\n\r\n")  # and never reads
        for thread in threads:
            thread.start()
        while not all(readers):
            time.sleep(0.01)
        for count in range(300):  # faster than any reader asks for them
            board.show(progress={"words": f"{count} of 300", "filling": "x" * 10_000})
        board.show(b"second")
        board.finish(b"last", "report/index.html", "")
        for thread in threads:
            thread.join(timeout=60)
    for told in readers:
        assert told[0] == ("progress", {"words": "0 of 2"})
        assert [content["words"] for name, content in told if name == "progress"][-1] == "299 of 300"
        assert told[-1] == ("end", {"final": True, "file": "report/index.html", "why": ""})
        assert len(told) < 20  # what was passed over was not kept
    assert get(f"{address}/token/") == (200, b"last")


@pytest.mark.more
def test_cells_fill_until_they_have_a_verdict(tmp_path: Path) -> None:
    small = {"widths": (2, 3, 5, 8), "horizons": (50, 100, 200, 400), "memory": False}
    whole, folder = tmp_path / "whole", tmp_path / "filling"
    identities = write_study(folder, THEORY[:2], skip=range(18, 32), failed={17: "ValueError: <b>bad</b>"}, **small)
    journal = Journal(Location.at(folder), {})
    journal.note(identities[17:18], State.FAILED)
    journal.flush()
    study = LiveStudy(str(folder), "filling", "", 0)
    assert study.look({})
    page = study.page().decode()
    assert not study.look({"left": "3 min left"})  # nothing has ended since
    assert study.progress["words"] == "17 of 32 trials done, 0 running, 14 queued, 1 failed; 3 min left"
    study.look({"total": 40, "doing": "step 1,200 of 5,000"})  # of a search, whose plan grows
    assert study.progress["words"] == "17 of 40 trials done, 0 running, 22 queued, 1 failed; step 1,200 of 5,000"
    assert study.progress["cells"] == ["16 of 16 ✓", "2 of 16"]
    assert 'data-cell="1">2 of 16<' in page
    assert 'data-cell="0"' not in page
    assert "● stable" in page
    assert "<h1>So far: For T = 50 to 400 and widths 2 to 8, exponential memory is held stably under" in page
    assert "1 of 32 trials failed (task.kernel=polynomial" in page
    assert "ValueError: &lt;b&gt;bad&lt;/b&gt;" in page  # its traceback
    assert "<b>bad</b>" not in page
    assert "connect-src &#39;self&#39;" in page
    assert "no attempt has ended" not in page.lower()  # trials that wait are no failures
    write_study(whole, THEORY[:2], **small)
    shutil.copytree(whole, folder, dirs_exist_ok=True)
    assert study.look({})
    page = study.page().decode()
    assert 'data-cell="' not in page
    assert study.progress["words"] == f"{len(identities)} of 32 trials done, 0 running, 0 queued"


def test_a_page_that_is_written_says_that_it_is_incomplete(tmp_path: Path) -> None:
    write_study(tmp_path, THEORY[:1], skip=[1], widths=(2, 3), horizons=(50, 100), memory=False)
    study = LiveStudy(str(tmp_path), "", "", 15)
    study.look({})
    study.write(study.page())
    page = (tmp_path / "report" / "index.html").read_text()
    assert 'Running, incomplete:</b> <span id="live-words">3 of 4 trials done' in page
    assert 'data-every="15"' in page
    assert "connect-src" not in page


def test_the_finished_report_is_written_by_nobody_else(tmp_path: Path) -> None:
    with LivePage(Location.at(tmp_path), "none", "", serve=False, write=False) as page:
        page.rest()  # nobody writes
    with LivePage(Location.at(tmp_path), "none", "", serve=False, write=True) as page:
        assert page._report is not None
        lock = page._report.fileno()

        def others() -> bool:
            if (child := os.fork()) == 0:
                os._exit(0 if has_report(lock) else 1)
            return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

        assert others()
        page.rest()
        assert not others()


def test_a_page_that_could_not_be_made_is_made_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_study(tmp_path, THEORY[:1], widths=(2, 3), horizons=(50, 100), memory=False)
    study = LiveStudy(str(tmp_path), "", "", 15)
    assert study.look({})
    with monkeypatch.context() as broken:
        broken.setattr(build, "render", lambda *_, **__: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            study.page()
    assert study.look({})
    assert study.page()
    assert not study.look({})


def test_a_page_that_cannot_be_made_or_written_ends_no_process(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_study(tmp_path, THEORY[:1], widths=(2, 3), horizons=(50, 100), memory=False)
    tried = list[str]()

    def fails(what: str) -> Any:
        def failing(*_: object) -> bytes:
            tried.append(what)
            raise OSError(what)

        return failing

    monkeypatch.setattr(LiveStudy, "write", fails("write"))
    with tempfile.TemporaryFile() as lock:
        about = {"place": str(tmp_path), "study": "", "description": "", "write": True, "report": lock.fileno()}
        board = Board()
        shows = threading.Thread(target=reader._show, args=(board, about))
        shows.start()
        wait_for(lambda: bool(tried))
        assert shows.is_alive()
        board.finish(None, "", "")
        shows.join(60)
        assert not shows.is_alive()


def opened(address: str, request: bytes) -> socket.socket:
    """A connection to the page's port that has said so much."""
    connection = socket.create_connection(("127.0.0.1", int(address.split(":")[2].partition("/")[0])), timeout=30)
    connection.sendall(request)
    return connection


def test_the_process_starts_for_nobody_but_a_reader_who_knows_the_address(tmp_path: Path) -> None:
    """Whoever connects without the token costs the sweep a closed connection; a silent one holds up no reader."""
    with LivePage(Location.at(tmp_path), "none", "", serve=True, write=False) as page:
        path = "/" + page.address.split("/")[3]
        right = f"GET {path}/ HTTP/1.1\r\nHost: localhost\r\n\r\n"
        refused = {
            "GET / HTTP/1.1\r\nHost: localhost\r\n\r\n": b"404",
            f"GET {path} HTTP/1.1\r\nHost: localhost\r\n\r\n": b"404",
            f"GET {path}x/ HTTP/1.1\r\nHost: localhost\r\n\r\n": b"404",
            f"POST {path}/ HTTP/1.1\r\nHost: localhost\r\n\r\n": b"404",
            right.replace("localhost", "evil.example"): b"421",
            right.replace("Host: localhost\r\n", ""): b"421",
            "\x00\x01\xff\r\n\r\n": b"404",
            "GET /" + "x" * 20_000: b"400",
        }
        for request, status in refused.items():
            with opened(page.address, request.encode("latin-1")) as connection:
                assert connection.recv(100).split()[1] == status, request[:60]
        with contextlib.ExitStack() as silent:
            for said in [b""] * 40 + [b"GET /", right[:-2].encode()]:
                silent.enter_context(opened(page.address, said))
            time.sleep(0.1)
            page.update(fraction=0.5)
            assert page._process is None
            with opened(page.address, right.encode()):
                while page._process is None:
                    time.sleep(0.01)
        os.kill(page._process.pid, signal.SIGKILL)
        page._process.wait()
        for _ in range(3):  # a page that died is not noticed
            page._sent = 0.0
            page.update(fraction=0.6)
    with pytest.raises(OSError, match="refused"):
        get(page.address)


def page_of(process: Any) -> str:
    """The address that a sweep prints before it runs; a slow machine says first what is read."""
    line = next(line for line in process.stdout if not line.startswith("reading the study"))
    word, address = line.split()
    assert word == "page:"
    return str(address)


@pytest.mark.more
def test_the_counts_of_a_sweep_grow_until_its_report_is_there(tmp_path: Path) -> None:
    (tmp_path / "slow.yaml").write_text(SLOW)
    process = start(
        *("sweep", tmp_path / "slow.yaml", "--inline", "--results", tmp_path),
        cwd=ROOT,
        env=environment(MEMSWEEP_NO_PAGE=""),
    )
    try:
        address = page_of(process)
        status, page = get(address)
        assert (status, b'id="live"' in page) == (200, True)
        while not list(tmp_path.glob("slow/records/*")):
            time.sleep(0.01)
        os.killpg(process.pid, signal.SIGSTOP)  # on a fast machine the sweep would be over before the next look
        done = list[int]()
        for name, content in events(address):
            if name == "progress" and content["cells"]:
                done.append(int(content["words"].split()[0]))
                if done[-1]:
                    os.killpg(process.pid, signal.SIGCONT)
            if name == "end":
                assert content == {"final": True, "file": str(tmp_path / "slow" / "report" / "index.html"), "why": ""}
                assert b'id="live"' not in get(address)[1]
        assert done == sorted(done)
        assert 0 < done[-1] <= 6  # the report may be there before the last trials were counted
        assert len({*done}) > 1
        assert process.wait(timeout=120) == 0
        with pytest.raises(OSError, match="refused"):
            get(address)
    finally:
        end(process)


@pytest.mark.browser
@pytest.mark.more
def test_a_browser_sees_the_grid_fill_and_then_the_report(tmp_path: Path, chromium: str) -> None:
    from playwright.sync_api import sync_playwright

    (tmp_path / "slow.yaml").write_text(SLOW)
    process = start(
        *("sweep", tmp_path / "slow.yaml", "--inline", "--results", tmp_path, "training.steps=1600"),
        cwd=ROOT,
        env=environment(MEMSWEEP_NO_PAGE=""),
    )
    said: list[str] = []
    try:
        address = page_of(process)
        with sync_playwright() as playwright:
            browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
            page = browser.new_page(viewport={"width": 1280, "height": 900})
            page.on("console", lambda message: said.append(message.text) if message.type == "error" else None)
            page.on("pageerror", lambda error: said.append(str(error)))
            page.goto(address)
            page.wait_for_selector("[data-cell='0']", timeout=60_000)
            while not list(tmp_path.glob("slow/records/*")):
                time.sleep(0.01)
            os.killpg(process.pid, signal.SIGSTOP)
            page.wait_for_function(GROWN, timeout=60_000)
            assert page.locator("#live").count() == 1
            assert "is running" in page.title()
            os.killpg(process.pid, signal.SIGCONT)
            page.wait_for_selector("[role=status]", timeout=120_000)
            assert page.locator("#live").count() == 0
            assert page.locator("a.verdict").first.inner_text().split()[1] in ("stable", "inconclusive", "unstable")
            assert "this is its report" in page.locator("[role=status]").first.inner_text()
            assert page.locator("#chart svg, #chart .note").count() > 0
            assert process.wait(timeout=60) == 0  # with a browser that stays open
            browser.close()
        assert said == []
    finally:
        end(process)
