"""The page of a study of several tasks ranks its models task by task, in its first sentence, too."""

from __future__ import annotations

import html
import re
from pathlib import Path
from typing import Any

import pytest

from memsweep import report
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
        "(95.5 %)."
    )
    table = page[page.index("Ranking: median over seeds") :]
    table = table[: table.index("</table>")]
    order = ("copying_memory", ">rnn<", ">lru<", ">nn_rnn<", "parity", ">lru<", ">rnn<", ">nn_rnn<")
    at = 0
    for word in order:
        at = table.index(word, at)  # raises where the order is another one
