"""Every chart of a page is a figure file of the same data, axes, guide lines and words: values are compared."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from searched_folder import SearchedFolder
from test_page_browser import open_page

from memsweep.config.schema.claims import Comparison
from memsweep.report.analysis.contents import Contents, analyse
from memsweep.report.charts.every import chart_sets, trial_set
from memsweep.report.figures.charts import gallery_of
from memsweep.report.figures.panels import Gallery, figure_of, parts_of
from memsweep.report.naming.numbers import clean
from memsweep.report.page.data import plain
from memsweep.report.page.render import render
from memsweep.report.read.study import load_study
from memsweep.report.rows.report import tables_of
from report_study import THEORY, Condition, rate_conditions, write_study


def verdicts(folder: Path) -> None:
    """Radii in two balls, some beyond the grid and some infinite; a trial is missing, seeds are, and some diverged."""

    def gaps(index: int, tables: dict[str, pd.DataFrame]) -> None:
        tables["replicas"]["outcome"] = np.where(tables["replicas"]["seed"] == index, "diverged", "done")
        if index == 2:
            tables.update({name: table[table["seed"] != 1] for name, table in tables.items()})

    some = (*THEORY[:2], Condition(parameterization="exp", base=1e3), Condition(parameterization="tanh", base=1e-6))
    write_study(folder, some, widths=(2, 4), horizons=(50, 200), seeds=3, skip=[7], complete=gaps)


def rates(folder: Path) -> None:
    """Losses against the learning rate, with seeds that diverged and a criterion."""
    write_study(folder, rate_conditions(), widths=(4, 8), horizons=[50], balls=(), memory=False)


def trained(folder: Path) -> None:
    """Models on four tasks, with their training, gradients and the layers of their rules' gradients."""

    def curves(index: int, tables: dict[str, pd.DataFrame]) -> None:
        rows = [(seed, step) for seed in range(3) for step in range(0, 500, 50)]
        table = pd.DataFrame(rows, columns=["seed", "step"]).assign(identity=tables["replicas"]["identity"].iloc[0])
        loss = 0.1 + np.exp(-table["step"] / (50 + 30 * index))
        tables["history"] = table.assign(
            validation_loss=loss.where((table["seed"] == 0) | (table["step"] < 300), math.inf)
        )
        lag = tables["memory"]["lag"]
        tables["memory"] = tables["memory"].assign(gradient=0.9**lag, gradient_bound=1.5**lag)

    layers = {"all": (0.6, 0.7), "0": (0.2, 0.4)}
    shared: dict[str, Any] = {"kernel": None, "parameterization": None, "normalize": None, "memoryless": 0.5}
    models = {"rnn": (0.4, 0), "lru": (0.05, 1), "gru": (0.01, 0)}
    conditions = [
        Condition(task=task, model=model, loss=loss, diverged=lost, alignment=layers, **shared)
        for task in ("copying_memory", "parity", "mqar", "adding")
        for model, (loss, lost) in models.items()
    ]
    write_study(folder, conditions, horizons=[50], widths=[8], balls=(), seeds=3, complete=curves)


def search(folder: Path) -> Any:
    """A search for two objectives by early stopping, with a claim."""
    written = SearchedFolder("asha", ("error", "radius"), widths=(2, 8), suggestions=5, diverging=(3,))
    cells = ({"model.parameterization": name} for name in ("exp", "direct"))
    claim = Comparison("error(exp) < error(direct)", "error", "less", *cells, {}, same=("model.width",))
    written.claims = {"source": "", "rows": [], "compare": [asdict(claim)]}
    return written.write(folder)


STUDIES: dict[str, tuple[Callable[[Path], Any], set[str]]] = {
    "verdicts": (verdicts, {"radius-recurrent", "radius-recurrent-others", "radius-all"}),
    "rates": (rates, {"learning-rates"}),
    "trained": (trained, {"tasks", "ranking", "training", "gradients", "alignment"}),
    "search": (search, {"search-transfer", "search-front", "search-fields", "search-curves", "search-parallel"}),
}


def contents_of(folder: Path, write: Callable[[Path], Any]) -> Contents:
    found = write(folder)
    study = load_study(folder)
    return analyse(study if found is None else replace(study, search=found))


def drawn(gallery: Gallery) -> Iterator[Axes]:
    """The axes of all figure files of a gallery, in their order."""
    for panels in parts_of(gallery).values():
        figure: Figure = figure_of(gallery, panels)
        yield from figure.axes


def on_page(contents: Contents) -> Mapping[str, Any]:
    """The data that the page's script gets."""
    tables = tables_of(contents)
    page = render(contents, tables, [*chart_sets(contents, tables.sections)], {})
    data: dict[str, Any] = json.loads(page.split('id="data">')[1].split("</script>")[0])
    return data


def same(chart: Mapping[str, Any], ax: Axes) -> None:
    """A chart of the page and the axes of a file hold the same values."""
    named = (*ax.texts, *ax.get_xticklabels(), ax.xaxis.label, ax.yaxis.label)
    texts = " ".join(clean(text.get_text()) for text in named)
    joined = f"{ax.get_title(loc='left')} {texts}".replace("\n", " ")
    for words in (chart["title"], chart["x"], chart["y"], chart.get("note", "")):
        assert all(word in joined or "…" in joined for word in clean(words).split()), (words, joined)
    if chart["kind"] == "cells":
        shown = [cell[1] for row in chart["rows"] for cell in row["cells"] if cell]
        assert [text.get_text() for text in ax.texts if text.get_text() in {*shown}] == shown
        return
    if chart["kind"] == "parallel":
        lines = [plain(np.column_stack(line.get_data()).astype(float).tolist()) for line in ax.lines]
        for _, places, *_ in chart["across"]:
            assert [[x, y] for x, y in enumerate(places) if y is not None] in lines
        assert all(word in texts for axis in chart["axes"] for word in axis)
        return
    assert plain(list(ax.get_xlim())) == chart["limits"]["x"]
    assert (ax.get_xscale() == "log") == ("x" in chart["log"])
    lines = [plain(np.column_stack(line.get_data()).astype(float).tolist()) for line in ax.lines]
    if chart["kind"] == "rows":
        for row in chart["rows"]:
            assert row["name"][:30] in joined
            known = isinstance(row["middle"], (int, float))
            assert not known or any(points and points[0][0] == row["middle"] for points in lines)
        for value, _ in chart.get("levels", ()):
            assert [[value, 0], [value, 1]] in lines
        return
    assert plain(ax.get_ylim()[0]) == chart["limits"]["y"][0]
    assert ax.get_ylim()[1] >= chart["limits"]["y"][1] * (1 - 1e-3)
    assert (ax.get_yscale() == "log") == ("y" in chart["log"])
    assert not chart.get("ticks") or "x" not in chart["log"] or {*plain(ax.get_xticks().tolist())} <= {*chart["ticks"]}
    for part in ("lines", "dots", "rings"):
        for _, points in chart.get(part, ()):
            known = [[x, y] for x, y, *_ in points if fits(x, "x", chart) and fits(y, "y", chart)]
            assert not known or known in lines, (part, known, lines)
    for value, words in chart.get("levels", ()):
        assert [[0, value], [1, value]] in lines
        assert words in texts
    for _, ends, _ in chart.get("guides", ()):
        assert ends in lines
    for _, points in (*chart.get("seeds", ()), *chart.get("lost", ()), *chart.get("beyond", ())):
        assert {x for x, *_ in points} <= {x for line in lines for x, _ in line}
    keys = {text.get_text().rpartition(":  ")[2] for text in ax.get_legend().get_texts()} if "keys" in chart else set()
    assert {*chart.get("keys", {}).values()} == keys


def fits(value: Any, axis: str, chart: Mapping[str, Any]) -> bool:
    return isinstance(value, (int, float)) and (value > 0 or axis not in chart["log"])


@pytest.mark.parametrize(
    "name", ["verdicts", *(pytest.param(each, marks=pytest.mark.more) for each in STUDIES if each != "verdicts")]
)
def test_every_chart_of_a_page_is_a_figure_of_the_same_values(name: str, tmp_path: Path) -> None:
    write, expected = STUDIES[name]
    contents = contents_of(tmp_path, write)
    data = on_page(contents)
    assert data["charts"].keys() >= expected
    files = {each.name: gallery_of(each) for each in chart_sets(contents, tables_of(contents).sections)}
    for part, charts in data["charts"].items():
        made = [*drawn(files[part])]
        assert len(made) >= len(charts)
        for chart, ax in zip(charts, made, strict=False):
            same(chart, ax)
        assert [panel.words for panel in files[part].panels][: len(charts)] == [chart["words"] for chart in charts]


@pytest.mark.more
def test_the_charts_of_a_verdict_and_of_a_trial_are_figures_too(tmp_path: Path) -> None:
    contents = contents_of(tmp_path, verdicts)
    data = on_page(contents)
    assert len(data["trials"]) > 4
    for trial in data["trials"][:4]:
        made = [*drawn(gallery_of(trial_set(contents.study, trial["id"])))]
        assert len(made) == len(trial["charts"]) >= 3
        for chart, ax in zip(trial["charts"], made, strict=True):
            same(chart, ax)
    assert not [chart for finding in data["findings"] for chart in finding["slopes"]]  # too few valid seeds


def test_the_slopes_behind_a_verdict_are_figures_too(tmp_path: Path) -> None:
    """One of them has no end that is known: its radii lie beyond the grid."""
    beyond = Condition(parameterization="tanh", base=1e3)
    write_study(tmp_path, (THEORY[1], beyond), widths=[4], memory=False)
    contents = analyse(load_study(tmp_path))
    data = on_page(contents)
    for ball in ("recurrent", "all"):
        (found,) = [each for each in chart_sets(contents, ()) if each.name == f"slopes-{ball}"]
        shown = [chart for finding in data["findings"] if finding["ball"] == ball for chart in finding["slopes"]]
        assert shown
        for chart, ax in zip(shown, drawn(gallery_of(found)), strict=True):
            same(chart | {"title": ""}, ax)


@pytest.mark.browser
@pytest.mark.more
@pytest.mark.parametrize("name", STUDIES)
def test_a_browser_draws_every_chart_of_the_page(name: str, tmp_path: Path, chromium: str) -> None:
    from playwright.sync_api import sync_playwright

    contents = contents_of(tmp_path, STUDIES[name][0])
    tables = tables_of(contents)
    path = tmp_path / "page.html"
    path.write_text(render(contents, tables, [*chart_sets(contents, tables.sections)], {}), encoding="utf-8")
    data = on_page(contents)
    with sync_playwright() as playwright:
        browser, page, said = open_page(playwright, chromium, path)
        for box in page.locator("[data-charts]").all():
            charts = data["charts"][box.get_attribute("data-charts")]
            drawn_here = box.locator("figure svg").all()
            assert [each.get_attribute("aria-label") for each in drawn_here] == [chart["words"] for chart in charts]
            for chart, svg in zip(charts, drawn_here, strict=True):
                texts = " ".join(svg.locator("text").all_text_contents())
                assert chart["x"] in texts
                assert chart["y"] in texts
        offered = [chart for part in data["figure"] for chart in data["charts"].get(part, ()) if "choice" in chart]
        words = {chart["words"] for chart in offered}
        shown = {each.get_attribute("aria-label") for each in page.locator("#chart svg").all()}
        assert shown
        assert shown <= words
        for select in page.locator("#selectors select").all():
            select.select_option(index=0)
        assert {each.get_attribute("aria-label") for each in page.locator("#chart svg").all()} <= words
        assert said == []
        browser.close()
