"""Picture, table and headline speak of one number: the small atlas, read again from its own tables."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
from atlas_folder import write_atlas
from PIL import Image
from test_page_browser import open_page

from memsweep import report
from memsweep.report.analysis.contents import Contents, analyse
from memsweep.report.analysis.losses import Quantity, quantities
from memsweep.report.charts.every import chart_sets
from memsweep.report.headline.answer import answer_of
from memsweep.report.headline.ranking import ranking_sentence
from memsweep.report.read.study import load_study
from memsweep.report.rows.report import tables_of
from memsweep.report.values.table import PAGE
from paths import ROOT

LOSSES = pd.read_csv(ROOT / "docs" / "atlas" / "losses.csv")
COLUMNS = {"accuracy at T": "metric_value", "accuracy at 2T": "accuracy_2T", "accuracy at 4T": "accuracy_4T"}


@pytest.fixture(scope="module")
def atlas(tmp_path_factory: pytest.TempPathFactory) -> Contents:
    folder = tmp_path_factory.mktemp("atlas")
    write_atlas(folder)
    return analyse(load_study(folder))


def measured(by: Quantity) -> pd.DataFrame:
    """Median, least and greatest of each unit on each task, as losses.csv has them."""
    name = COLUMNS.get(by.name, "loss")
    known = LOSSES[LOSSES[name].notna()]
    ends = known[[name, f"{name}_low", f"{name}_high"]].set_axis(["middle", "low", "high"], axis=1)
    return ends.set_index([known["task"], known["model.unit"]])


def best(by: Quantity) -> dict[str, int]:
    """Unit -> on how many tasks its seeds reach those of the best."""
    counts = dict[str, int]()
    for _, rows in measured(by).groupby(level=0):
        loss = by.name == "test loss"
        first = rows.sort_values("middle", ascending=loss, kind="stable").iloc[0]
        level = rows[rows["low"] <= first["high"]] if loss else rows[rows["high"] >= first["low"]]
        for _, unit in level.index:
            counts[unit] = counts.get(unit, 0) + 1
    return counts


def chart_of(contents: Contents, by: Quantity) -> dict[str, Any]:
    sets = [*chart_sets(contents, tables_of(contents).sections)]  # charts are made later, as for the page
    charts = [chart for one in sets if one.name in ("tasks", "tasks-others") for chart in one]
    (found,) = [chart for chart in charts if chart["choice"]["by"] == by.name]
    return found


def test_the_atlas_can_be_compared_by_each_length_and_by_the_loss(atlas: Contents) -> None:
    known = quantities(atlas.losses)
    assert [by.name for by in known] == [*COLUMNS, "test loss"]
    assert known[-1].title == "test loss of the longest test sequences (no other length is stored)"
    assert answer_of(atlas).headline == ranking_sentence(atlas)


@pytest.mark.parametrize("place", range(4))
def test_picture_table_and_headline_have_the_numbers_of_losses_csv(atlas: Contents, place: int) -> None:
    by = quantities(atlas.losses)[place]
    known = measured(by)
    said = ranking_sentence(atlas, by)
    assert said.startswith(f"By {by.name}, ")
    named = {unit: int(count) for unit, count in re.findall(r"`(\w+)`[^`]*? on (\d)", said)}
    assert named
    assert named == {unit: count for unit, count in best(by).items() if unit in named}
    assert max(named.values()) == max(best(by).values())
    chart, table = chart_of(atlas, by), tables_of(atlas).compared[by].view(PAGE)
    assert (
        chart["columns"]
        == [column.name for column in table.columns[1:]]
        == [*dict.fromkeys(known.index.get_level_values(0))]
    )
    cells = {row["name"]: [cell and cell[1] for cell in row["cells"]] for row in chart["rows"]}
    for name, *line in table.groups[""]:
        assert cells[name.text] == [cell.text.removesuffix(" ●").removesuffix(" ✗") for cell in line]
        for task, text in zip(chart["columns"], cells[name.text], strict=True):
            value = known.loc[(task, name.text), "middle"]
            if by.name != "test loss":
                assert text == f"{100 * value:.1f} %"
            else:
                assert float(text.replace("−", "-")) == pytest.approx(value, rel=0.01, abs=1e-12)


def test_the_picture_of_the_documents_has_the_numbers_of_the_table(atlas: Contents) -> None:
    """A figure file says what it shows; the table of the atlas rounds the same numbers."""
    with Image.open(ROOT / "docs" / "pictures" / "atlas_small_tasks.png") as picture:
        words = str(picture.info["Description"])
    for by in quantities(atlas.losses)[:3:2]:
        assert chart_of(atlas, by)["words"] in words


HEADINGS = {"copying": "copying_memory", "recall": "mqar", "S3": "word_problem"}


def test_the_table_beside_the_picture_has_the_numbers_of_losses_csv() -> None:
    """In whole percents, or in tenths where it says so."""
    text = (ROOT / "docs" / "atlas" / "README.md").read_text()
    lines = [[cell.strip() for cell in line.split("|")[1:-1]] for line in text.splitlines() if line.startswith("| ")]
    start = next(place for place, line in enumerate(lines) if line[:2] == ["unit", "copying"])
    known = LOSSES.set_index(["task", "model.unit"])
    for unit, *cells in lines[start + 1 : start + 13]:
        for heading, cell in zip(lines[start][1:], cells, strict=True):
            name, _, length = heading.partition(", ")
            task = HEADINGS.get(name, name.replace("-", "_").replace(" ", "_"))
            value = 100 * known.loc[(task, unit.split("`")[1]), "accuracy_4T" if length else "metric_value"]
            assert abs(float(cell) - value) <= (0.05 if "." in cell else 0.5) + 1e-9, (unit, heading)


@pytest.mark.browser
@pytest.mark.more
def test_the_selector_moves_picture_table_and_headline(tmp_path: Path, chromium: str) -> None:
    from playwright.sync_api import sync_playwright

    write_atlas(tmp_path)
    path = report.build(tmp_path).page
    with sync_playwright() as playwright:
        browser, page, said = open_page(playwright, chromium, path)
        select = page.locator("#selectors label", has_text="by").locator("select")
        for name in (*COLUMNS, "test loss", "accuracy at T"):
            select.select_option(name)
            assert page.locator("h1").inner_text().startswith(f"By {name}, ")
            assert f"Models by task: {name}" in page.locator("#chart svg").first.get_attribute("aria-label")
            (caption,) = [one for one in page.locator(".table-side caption").all() if one.is_visible()]
            assert caption.inner_text().startswith(f"Models by task: {name}")
        assert said == []
        browser.close()
        browser, page, _ = open_page(playwright, chromium, path, java_script_enabled=False)
        assert page.locator("h1").inner_text().startswith("By accuracy at T, ")
        assert "accuracy at T" in page.locator("#chart img").get_attribute("alt")
        assert "4T" not in page.locator("#chart img").get_attribute("alt")
        assert page.locator(".table-side details").count() == 3
        browser.close()
