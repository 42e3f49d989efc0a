"""The page of a study of several tasks ranks its models task by task, in its first sentence, too."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from test_page_browser import open_page

from memsweep import report
from memsweep.report.analysis.losses import LossRow
from memsweep.report.naming.conditions import Labels
from memsweep.report.rows.losses import LONGER, across_means, across_table
from report_study import Condition, write_study

HEADLINE = re.compile(r"<h1[^>]*>(.*?)</h1>", re.DOTALL)


@pytest.mark.more
def test_models_are_ranked_within_their_task(tmp_path: Path) -> None:
    shared: dict[str, Any] = {"kernel": None, "parameterization": None, "normalize": None, "metric": "accuracy"}
    accuracies = {
        ("copying_memory", "rnn"): (0.7, 0.7),
        ("copying_memory", "lru"): (0.5, 0.8),
        ("copying_memory", "nn_rnn"): (0.2, 0.2),
        ("parity", "rnn"): (0.9, 0.91),
        ("parity", "lru"): (0.95, 0.96),
        ("parity", "nn_rnn"): (0.5, 0.5),
    }
    conditions = [
        Condition(task=task, model=model, values=values, **shared) for (task, model), values in accuracies.items()
    ]
    write_study(tmp_path, conditions, horizons=[50], widths=[8], balls=(), seeds=2, memory=False)
    paths = report.build(tmp_path)
    page = paths.page.read_text()
    found = HEADLINE.search(page)
    assert found is not None
    said = html.unescape(re.sub("<[^>]*>", "", found[1]))
    assert said == (
        "By accuracy, best are on copying_memory rnn (70.0 %), whose seeds overlap with those of lru; on parity lru "
        "(95.5 %). 2 seeds: a ranking needs 4."
    )
    table = page[page.index("Ranking: median over seeds") :]
    table = table[: table.index("</table>")]
    order = ("copying_memory", ">rnn<", ">lru<", ">nn_rnn<", "parity", ">lru<", ">rnn<", ">nn_rnn<")
    at = 0
    for word in order:
        at = table.index(word, at)  # raises where the order is another one


MODELS = {"rnn": (0.9, 0.2, 0.5, 0.5), "lru": (0.4, 0.8, 0.5, 0.5), "nn_rnn": (0.4, 0.8, 0.5, 0.5)}
TASKS = ("copying_memory", "parity", "mqar", "adding")


def by_task(folder: Path) -> report.Paths:
    """Accuracies of three models on four tasks; a loss of 1 - accuracy, a tenth more for the second seed."""
    shared: dict[str, Any] = {"kernel": None, "parameterization": None, "normalize": None, "memoryless": 0.5}
    conditions = [
        Condition(task=task, model=model, metric="accuracy", values=(value, value), loss=1 - value, **shared)
        for task, part in zip(TASKS, zip(*MODELS.values(), strict=True), strict=True)
        for model, value in zip(MODELS, part, strict=True)
    ]
    write_study(folder, conditions, horizons=[50], widths=[8], balls=(), seeds=2, memory=False)
    return report.build(folder)


def test_many_tasks_are_columns_and_the_best_models_are_counted(tmp_path: Path) -> None:
    page = by_task(tmp_path).page.read_text()
    found = HEADLINE.search(page)
    assert found is not None
    assert html.unescape(re.sub("<[^>]*>", "", found[1])) == (
        "rnn is best, or its seeds overlap with the best, on 1 of 4 tasks, lru on 1 and nn_rnn on 1; no model's "
        "loss is more than 1 % below that of one that forgets on mqar and adding. 2 seeds: a ranking needs 4."
    )
    table = page[page.index("Models by task") :]
    lines = [re.findall("<t[hd][^>]*>(.*?)</t[hd]>", line) for line in table[: table.index("</table>")].split("<tr>")]
    texts = [[re.sub("<[^>]*>", "", cell) for cell in line] for line in lines if line]
    assert texts[0][1:] == [*TASKS]
    assert texts[1:] == [
        ["rnn", "90.0 % ●", "20.0 % ✗", "50.0 % ✗", "50.0 % ✗"],
        ["lru", "40.0 % ✗", "80.0 % ●", "50.0 % ✗", "50.0 % ✗"],
        ["nn_rnn", "40.0 % ✗", "80.0 % ●", "50.0 % ✗", "50.0 % ✗"],
    ]


@pytest.mark.browser
def test_a_browser_shows_all_models_on_all_tasks_and_each_task_alone(tmp_path: Path, chromium: str) -> None:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        browser, page, said = open_page(playwright, chromium, by_task(tmp_path).page)
        shown = page.locator("#chart svg").first.get_attribute("aria-label")
        assert "lru: copying_memory 40.0 %, parity 80.0 %, mqar 50.0 %, adding 50.0 %" in shown
        page.locator("#selectors select").first.select_option("parity")
        assert "by setting, the best first: lru" in page.locator("#chart svg").first.get_attribute("aria-label")
        assert said == []
        browser.close()


def test_a_task_with_longer_tests_has_a_column_for_the_longest() -> None:
    """Its signs are by that length, and the loss, which is of the longest sequences, says nothing of the shorter."""

    def row(task: str, model: str, loss: float, value: float, longest: float | None) -> LossRow:
        seeds = {"metric": "accuracy", "test_metric": value, "error": loss, "validation_loss": loss, "outcome": "done"}
        seeds |= {"memoryless_loss": 0.6, "zero_loss": 1.0}
        lengths = {"accuracy_2T": 0.9, "accuracy_4T": longest}
        longer = {} if longest is None else {name: np.array([value, value]) for name, value in lengths.items()}
        return LossRow({"task": task, "model": model}, 8, 32, pd.DataFrame([seeds, seeds]), np.arange(2), longer)

    rows = [
        row(task, model, *values)
        for model, values in {"lru": (1.0, 1.0, 0.55), "lstm": (0.1, 1.0, 0.99), "gru": (0.5, 0.7, 0.6)}.items()
        for task in ("parity", "counter", "words")
    ]
    rows += [row("recall", model, 0.1, 0.5, None) for model in ("lru", "lstm", "gru")]
    table = across_table(rows, Labels([each.condition for each in rows]))
    assert [column.name for column in table.columns[1:3]] == ["parity", "parity, 4T"]
    assert table.columns[-1].name == "recall"
    cells = [column.cell for column in table.columns[1:3]]
    shown = {line[0]: [cell(line).text for cell in cells if cell] for line in table.rows}
    assert shown == {
        "lru": ["100.0 % ●", "55.0 % ✗"],
        "lstm": ["100.0 % ●", "99.0 % ●"],
        "gru": ["70.0 %", "60.0 %"],
    }
    assert across_means(table).endswith(LONGER)
