"""What a person sees: the real MLflow page, in a real browser, opens a sweep to its trials."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from tracking_data import store_trial

from memsweep.sweep.tracking import Tracker

pytestmark = pytest.mark.browser

NAMES = [f"width={width} exp" for width in (2, 3, 4)]
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
FLAGS += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]


@pytest.fixture
def page_address(tmp_path: Path) -> Iterator[str]:
    """The runs page of an experiment with one parent and three children, served by ``mlflow ui`` on loopback."""
    results = tmp_path / "results"
    about = "Which parameterization holds a long memory?"
    varied = ["model.parameterization", "model.width"]
    tracker = Tracker(None, results, "quickstart", about, {"seeds": 5}, varied=varied)
    for width in (2, 3, 4):
        tracker.log_stored(store_trial(results, width, "quickstart"))
    assert tracker.finish() == ""

    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [sys.executable, "-m", "mlflow", "ui", "--host", "127.0.0.1", "--port", str(port), "--workers", "1"]
    command += ["--backend-store-uri", f"sqlite:///{results}/mlflow.db"]
    env = os.environ | {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", "MLFLOW_DISABLE_TELEMETRY": "true"}
    log = tmp_path / "ui.log"
    with log.open("wb") as sink:
        process = subprocess.Popen(command, env=env, stdout=sink, stderr=sink, cwd=tmp_path, start_new_session=True)
    try:
        wait_until_healthy(f"http://127.0.0.1:{port}/health", process, log)
        yield f"http://127.0.0.1:{port}/#/experiments/{tracker.experiment_id}/runs"
    finally:
        os.killpg(process.pid, signal.SIGKILL)  # the server and its worker
        process.wait(timeout=10)


def wait_until_healthy(address: str, process: subprocess.Popen[bytes], log: Path) -> None:
    deadline = time.monotonic() + 600
    while time.monotonic() < deadline:
        try:
            urllib.request.urlopen(address, timeout=2).close()
            return
        except OSError:
            assert process.poll() is None, log.read_text()
            time.sleep(0.2)
    raise TimeoutError(log.read_text())


@pytest.mark.more
def test_the_parent_run_opens_to_its_children(page_address: str, chromium: str, tmp_path: Path) -> None:
    from playwright.sync_api import expect, sync_playwright

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 800})
        page.goto(page_address)
        parent = page.get_by_role("gridcell").filter(has=page.get_by_role("link", name="quickstart", exact=True))
        expect(parent).to_be_visible(timeout=60_000)
        for name in NAMES:
            expect(page.get_by_role("link", name=name, exact=True)).to_have_count(0)
        parent.get_by_role("button").first.click()  # the plus sign in front of the name
        for name in NAMES:
            expect(page.get_by_role("link", name=name, exact=True)).to_be_visible(timeout=20_000)
        page.screenshot(path=tmp_path / "open.png")

        page.get_by_role("link", name=NAMES[0], exact=True).click()
        expect(page.get_by_text("model.parameterization", exact=True)).to_be_visible(timeout=20_000)
        expect(page.get_by_text("validation_loss", exact=True).first).to_be_visible()
        page.screenshot(path=tmp_path / "child.png")
        browser.close()
