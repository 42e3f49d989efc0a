"""The view of a person: MLflow's real page, in a real browser, at the address that a sweep prints."""

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

NAMES = [f"exp m={width}" for width in (2, 3, 4)]
FLAGS = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run"]
FLAGS += ["--disable-background-networking", "--disable-component-update", "--disable-sync"]


@pytest.fixture
def sweep_in_mlflow(tmp_path: Path) -> Iterator[tuple[str, Tracker]]:
    """The address of ``mlflow ui`` on loopback, and the tracker of a sweep with three trials and a report."""
    results = tmp_path / "results"
    about = "Which parameterization holds a long memory?"
    varied = ["model.parameterization", "model.width"]
    tracker = Tracker(None, results, "quickstart", about, {"seeds": 5}, varied=varied)
    for width in (2, 3, 4):
        tracker.log_stored(store_trial(results, width, "quickstart"))
    (tmp_path / "report").mkdir()
    (tmp_path / "report" / "index.html").write_text("<p>polynomial memory is unstable</p>")
    tracker.log_report(tmp_path / "report")
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
        yield f"http://127.0.0.1:{port}", tracker
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
def test_the_printed_page_has_charts_of_the_trials_and_leads_to_the_report(
    sweep_in_mlflow: tuple[str, Tracker], chromium: str, tmp_path: Path
) -> None:
    from playwright.sync_api import expect, sync_playwright

    address, tracker = sweep_in_mlflow
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=chromium, args=FLAGS)
        page = browser.new_page(viewport={"width": 1280, "height": 800})  # without a mode chosen before
        page.goto(address + tracker.page)
        for name in NAMES:
            expect(page.get_by_role("link", name=name, exact=True)).to_be_visible(timeout=60_000)
        expect(page.get_by_role("link", name="Agent versions")).to_have_count(0)  # of the mode for language models
        expect(page.locator(".js-plotly-plot .bars path").first).to_be_visible(timeout=20_000)
        page.screenshot(path=tmp_path / "charts.png")

        page.get_by_role("link", name=NAMES[0], exact=True).click()
        expect(page.get_by_text("model.parameterization", exact=True)).to_be_visible(timeout=20_000)
        expect(page.get_by_text("validation_loss", exact=True).first).to_be_visible()
        page.screenshot(path=tmp_path / "child.png")

        page.goto(f"{address}/#/experiments/{tracker.experiment_id}/runs/{tracker.run_id}")
        with page.expect_popup() as opened:
            page.get_by_role("link", name="The report with its verdicts").click(timeout=20_000)
        report = opened.value.frame_locator("iframe").get_by_text("polynomial memory is unstable")
        expect(report).to_be_visible(timeout=20_000)
        opened.value.screenshot(path=tmp_path / "report.png")
        browser.close()
