"""The page of a study of learning rates draws the loss against the rate, one size at a time."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from test_page_browser import open_page

from memsweep import report
from report_study import Condition, write_study

RATES, WIDTHS = (0.01, 0.1, 1.0), (4, 8)


@pytest.mark.browser
def test_the_figure_has_the_largest_size_first_and_marks_what_diverged(tmp_path: Path, chromium: str) -> None:
    from playwright.sync_api import sync_playwright

    def at_the_highest_rate_two_diverge(index: int, tables: dict[str, pd.DataFrame]) -> None:
        replicas = tables["replicas"]
        lost = (index // len(WIDTHS) == len(RATES) - 1) & (replicas["seed"] < 2)
        replicas["outcome"] = np.where(lost, "diverged", "done")

    conditions = [Condition(parameterization="exp", training={"learning_rate": rate}) for rate in RATES]
    complete = at_the_highest_rate_two_diverge
    write_study(tmp_path, conditions, widths=WIDTHS, horizons=[50], balls=(), memory=False, complete=complete)
    path = report.build(tmp_path).page
    with sync_playwright() as playwright:
        browser, page, said = open_page(playwright, chromium, path)
        figure = page.locator("#chart svg").first
        alt = figure.get_attribute("aria-label")
        assert alt.startswith("polynomial, diagonal_rnn, width 8, horizon 50, test loss against learning rate. exp: ")
        assert all(f" at {rate:g}" in alt for rate in RATES)
        assert page.locator("#chart svg [aria-label], #chart svg path").count() > len(RATES)
        assert "Seeds that diverged: exp at 1: 2 of 5." in page.locator("#chart").inner_text()
        page.locator("#selectors select").select_option(index=0)
        assert "width 4" in page.locator("#chart svg").first.get_attribute("aria-label")
        assert said == []
        browser.close()
