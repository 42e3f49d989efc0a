"""A report on a search: its winners by fresh seeds, what it cost, and nothing of losers in the verdicts."""

from __future__ import annotations

import json
import math
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from searched_folder import FRESH, OPTIMISM, RUNG, SEEDS, STEPS, SearchedFolder
from test_report_page import look

from memsweep import report
from memsweep.config.schema.claims import Comparison
from memsweep.config.schema.search import CHOICE, LOG_UNIFORM, UNIFORM, Domain
from memsweep.report.analysis.contents import analyse, judge_conditions
from memsweep.report.analysis.losses import loss_rows
from memsweep.report.analysis.search.searched import Searched, read_searched, winners_part
from memsweep.report.analysis.search.winners import on_front
from memsweep.report.charts.search import search_sets
from memsweep.report.headline.answer import answer_of
from memsweep.report.headline.search import search_sentence
from memsweep.report.naming.conditions import find_grouping
from memsweep.report.publish import report_on
from memsweep.report.read.study import Study, load_study
from memsweep.report.rows.search import gap_text, sentences, suggestion_table, winner_table
from memsweep.search.suggestions import Suggestion, SuggestionRecord, SuggestionState
from memsweep.sweep.store.filesystem import Location
from report_study import charts, drawn, exported

WIDTHS = (2, 4, 8, 16)


def searched(folder: Path, written: SearchedFolder) -> tuple[Study, Searched]:
    """A written study as a report reads it."""
    history = written.write(folder)
    study = replace(load_study(folder), search=history)
    return study, read_searched(study, history)


def test_the_winner_of_each_cell_is_the_best_and_its_gap_is_the_optimism(tmp_path: Path) -> None:
    _, found = searched(tmp_path, SearchedFolder(widths=(2, 8), suggestions=4))
    assert [found.cells.name(w.cell) for w in found.winners] == [
        *("width 2, direct", "width 8, direct"),
        *("width 2, exp", "width 8, exp"),
    ]
    for winner in found.winners:
        values = [m.values[0] for m in found.of_cell(winner.cell) if m.values]
        (worth,) = winner.worth
        assert worth.values.search == min(values)
        of_seeds = [1 + 0.1 * seed for seed in range(FRESH)]
        base = min(values) / (1 + 0.1 * (SEEDS - 1) / 2) * OPTIMISM
        assert worth.values.confirmed == pytest.approx(base * float(np.median(of_seeds)))
        assert (worth.values.low, worth.values.high) == pytest.approx((base * of_seeds[0], base * of_seeds[-1]))
        assert worth.values.gap == pytest.approx(worth.values.confirmed - min(values))
        assert worth.values.gap > 0
        assert (worth.search_seeds, worth.seeds) == (SEEDS, FRESH)
    bias = math.prod(winner.worth[0].values.ratio for winner in found.winners) ** 0.25 - 1.0
    said = " ".join(sentences(found))
    assert "of 4 of 4 winners is worse than the search saw, and of 0 better (sign test: p = 0.12)" in said
    assert f"geometric mean over 4 cells: {gap_text(bias, 1.0)}, 95 % interval" in said


def test_a_winner_of_several_objectives_is_one_of_a_front(tmp_path: Path) -> None:
    study, found = searched(tmp_path, SearchedFolder(objective=("error", "radius"), widths=(2,), suggestions=9))
    fronts = [len(on_front(found.of_cell(cell), found.history.modes)) for cell in range(2)]
    assert [winner.front for winner in found.winners] == fronts
    assert min(fronts) > 1
    said = search_sentence(found)
    assert said.startswith("Settings on the Pareto fronts are learning rate ")
    assert "best" not in said
    for name, size in zip(("direct", "exp"), fronts, strict=True):
        assert f"`{name}` (one of {size} on its front)" in said
    assert "no other suggestion is better in one objective" in " ".join(sentences(found))
    table = winner_table(found).frame()
    assert table["front"].tolist() == [size for size in fronts for _ in range(2)]
    assert table["fit"].tolist() == [FRESH] * 4

    for name in ("curves", "replicas"):  # errors far above what counts as a fit
        study.tables[name]["error"] += 0.5 * study.tables[name]["zero_loss"]
    missed = read_searched(study, found.history)
    assert f"fits its target in 0 of {FRESH} seeds)" in search_sentence(missed)
    assert f"0 of {FRESH}" in [cell.text for line in winner_table(missed).view("terminal").groups[""] for cell in line]


def test_sizes_of_a_front_have_no_trend(tmp_path: Path) -> None:
    _, found = searched(tmp_path, SearchedFolder(objective=("error", "radius"), suggestions=9))
    assert search_sentence(found).startswith("Settings on the Pareto fronts are ")


def test_a_population_has_winners_with_stages(tmp_path: Path) -> None:
    _, found = searched(tmp_path, SearchedFolder("pbt", widths=(2,), suggestions=4))
    winner = found.winners[0]
    rate, decay = (f"{value:.3g}" for value in winner.member.suggestion.values.values())
    stages = f"learning rate 0.5 until step {RUNG}, then {rate}; weight decay 0.25 until step {RUNG}, then {decay}"
    assert winner.settings == stages
    assert stages in search_sentence(found)
    text = " ".join(sentences(found))
    assert "with tpe, with population-based training: 8 suggestions" in text
    assert "early" not in text
    assert "a winner is all its stages" in text
    table = winner_table(found).frame()
    assert table["settings"][0] == stages
    assert json.loads(table["training.turns"][0])[0]["learning_rate"] == 0.5


def test_verdicts_and_losses_come_from_confirmed_winners_alone(tmp_path: Path) -> None:
    study, found = searched(tmp_path, SearchedFolder("asha", ("error",), ("direct",), WIDTHS, suggestions=4, confirm=2))
    measured = winners_part(study, found)
    assert list(measured.records) == [found.history.confirmed[cell, 1] for cell in range(4)]
    grouping = find_grouping(measured.records, measured.tables["replicas"], found.ignored)
    assert not {*found.history.space} & {*grouping.columns}
    assert grouping.coupled == ()
    assert [row.seeds for row in loss_rows(measured, grouping)] == [FRESH] * 4
    (finding,) = judge_conditions(measured, grouping)
    assert finding.judgement.verdict == "unstable"  # the slope is -1.5, and what the winners' weight decays make of it


def test_without_a_confirmation_the_winners_search_rows_speak_and_the_report_says_so(tmp_path: Path) -> None:
    study, found = searched(tmp_path, SearchedFolder("asha", widths=(2,), suggestions=5, confirm=0, running=(4,)))
    measured = winners_part(study, found)
    assert list(measured.records) == [winner.chosen for winner in found.winners]
    assert len(found.winners) == 2
    assert {record["config"]["training"]["until"] for record in measured.records.values()} == {0}
    assert all(winner.member.state is SuggestionState.DONE and not winner.worth[0].seeds for winner in found.winners)
    said = " ".join(sentences(found))
    assert "have not been retrained" in said
    assert "2 not ended, 4 done and 4 stopped early. The search is not over: a suggestion counts when its" in said
    assert "optimizer steps were trained in the rounds that have ended" in said


def test_a_first_round_that_is_open_contradicts_no_trial_that_has_a_result(tmp_path: Path) -> None:
    """Its observations are written down together, when all of its trials have ended."""
    study, found = searched(tmp_path, SearchedFolder(widths=(2,), suggestions=3, confirm=0))
    seen = [replace(m, values=None, steps=0, state=SuggestionState.RUNNING, rank=0) for m in found.history.suggestions]
    search = replace(found.history, suggestions=tuple(seen), ended=False)
    said = " ".join(sentences(read_searched(study, search)))
    assert "The search is not over: a suggestion counts when its round has ended." in said
    assert "steps were trained" not in said
    (answer,) = answer_of(analyse(replace(study, search=search))).sentences
    told = f"{study.finished} trials have a result, {study.planned} are planned."
    assert answer == f"The search compares no trials before a round has ended: {told}"
    lost = [replace(member, state=SuggestionState.DIVERGED) for member in seen]
    ended = answer_of(analyse(replace(study, search=replace(search, suggestions=tuple(lost), ended=True))))
    told = f"{study.finished} trials have a result."
    assert ended.sentences[0] == f"The search has no winner: no suggestion has come to its end; {told}"


def test_a_searched_parameterization_is_one_condition_whatever_the_winners_took(tmp_path: Path) -> None:
    study, found = searched(tmp_path, SearchedFolder(widths=(2, 4), suggestions=3))
    space = {"model.parameterization": Domain(CHOICE, values=("direct", "exp"))}
    found = read_searched(study, replace(found.history, space=space))
    measured = winners_part(study, found)
    grouping = find_grouping(measured.records, measured.tables["replicas"], found.ignored)
    assert {values["model.parameterization"] for values in grouping.conditions.values()} == {"searched"}


def test_winners_at_an_end_of_what_was_searched_are_counted(tmp_path: Path) -> None:
    """The best of four rates is the second under direct at width 8, and the third in the three other cells."""
    _, found = searched(tmp_path, SearchedFolder(widths=(2, 8), suggestions=4))
    rates = [float(rate) for rate in np.geomspace(1e-4, 1.0, 4)]

    def said(domain: Domain) -> list[str]:
        space = {"training.learning_rate": domain}
        return sentences(replace(found, history=replace(found.history, space=space)))[4:]

    above = "In 3 of 4 cells the best learning rate lies at the greatest that was searched, 0.0464: greater ones may be"
    below = "In 1 of 4 cells the best learning rate lies at the least that was searched, 0.00215: smaller ones may be"
    assert said(Domain(CHOICE, values=tuple(rates))) == []
    assert said(Domain(CHOICE, values=tuple(rates[:3]))) == [f"{above} better."]
    assert said(Domain(CHOICE, values=(*rates[1:3], 0.01))) == [f"{above} better.", f"{below} better."]
    assert said(Domain(CHOICE, values=tuple(rates[1:3]))) == []  # of two values one is always the best
    assert said(Domain(LOG_UNIFORM, 1e-4, 1.0)) == []
    near = above.replace("at the", "close to the")
    assert said(Domain(LOG_UNIFORM, 1e-4, 1.1 * rates[2])) == [f"{near.replace('0.0464', '0.0511')} better."]
    assert said(Domain(UNIFORM, 0.0, 1.0)) == []  # near zero, below which there is nothing
    near = below.replace("at the", "close to the")
    assert said(Domain(UNIFORM, 1e-3, 0.06)) == [f"{near.replace('0.00215', '0.001')} better."]


def test_cost_and_endings_are_counted(tmp_path: Path) -> None:
    written = SearchedFolder("asha", widths=(2,), parameterizations=("exp",), diverging=(3,), failing=(0,))
    _, found = searched(tmp_path, written)
    said = " ".join(sentences(found))
    spent = 2 * STEPS + 6 * RUNG  # 3 and 6 to the end, 0 failed, the others at the rung
    assert f"{spent:,} optimizer steps were trained, {100 * spent / (8 * STEPS):.3g} % of the {8 * STEPS:,}" in said
    assert "1 done, 6 stopped early, 1 diverged and 1 failed" in said
    frame = suggestion_table(found).frame()
    assert len(frame) == 9
    assert list(frame["number"]) == list(range(9))
    assert frame["state"].value_counts().to_dict() == {"stopped early": 6, "done": 1, "diverged": 1, "failed": 1}
    assert frame.loc[0, "error"] is None or math.isnan(frame.loc[0, "error"])
    assert list(winner_table(found).frame()["number"]) == [6]


def test_every_kind_of_search_has_its_pictures(tmp_path: Path) -> None:
    study, found = searched(tmp_path / "asha", SearchedFolder("asha", widths=(2, 8), suggestions=4))
    titles = {each.name: [chart["title"] for chart in each] for each in search_sets(study, found)}
    assert titles["search-transfer"] == [
        *("best learning rate against width", "best weight decay against width", "error of the winners against width")
    ]
    transfer = next(each for each in search_sets(study, found) if each.name == "search-transfer").first()
    drawn = {point[0]: (point[2], point[3]) for _, points in transfer[0]["dots"] for point in points}
    first = [winner for winner in found.winners if winner.rank == 1]
    said = {found.cells.shade(one.cell): found.bracket(one, "training.learning_rate") for one in first}
    assert drawn == said  # the range of the headline's exponent
    assert titles["search-curves"][0] == "width 2, direct: 2 of 4 stopped"
    assert len(titles["search-curves"]) == len(titles["search-fields"]) == 4
    assert titles["search-front"] == []


def test_the_front_holds_whom_nothing_surpasses(tmp_path: Path) -> None:
    values = [(1.0, 5.0), (2.0, 6.0), (2.0, 5.0), (0.5, 1.0), (math.inf, 9.0), (3.0, 6.0)]
    members = [member(number, value) for number, value in enumerate(values)]
    stopped = replace(member(6, (0.0, 99.0)), state=SuggestionState.STOPPED)
    assert [m.suggestion.number for m in on_front([*members, stopped], ("min", "max"))] == [3, 0, 1]
    written = SearchedFolder(objective=("error", "radius"), widths=(2,), suggestions=8, confirm=3)
    study, found = searched(tmp_path, written)
    fronts = {each.name: each for each in search_sets(study, found)}["search-front"]
    assert len(fronts.first()) == 1
    assert len(winner_table(found).frame()) == 2 * 3 * 2
    gaps = [winner.worth[1].values for winner in found.winners]
    assert all(abs(gap.confirmed / gap.search - 1) < 0.05 for gap in gaps)  # fresh seeds have the same radii


def test_gaps_are_said_by_the_search_value() -> None:
    assert gap_text(0.012, 0.1) == "12 % worse"
    assert gap_text(-0.003, 0.1) == "3 % better"
    assert gap_text(0.0, 0.1) == "none"
    assert gap_text(math.nan, 1.0) == "–"
    assert gap_text(math.inf, 1.0) == "∞ worse"
    assert gap_text(0.5, 0.0) == "0.5 worse"
    assert gap_text(3.0, 1.0) == "300 % worse"


def member(number: int, values: tuple[float, ...], **settings: float) -> SuggestionRecord:
    """A suggestion that was trained to the end."""
    return SuggestionRecord(0, Suggestion(number, settings), (), values, STEPS, SuggestionState.DONE)


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> report.ReportPaths:
    """The report of a small search, with a claim."""
    folder = tmp_path_factory.mktemp("searched")
    written = SearchedFolder("asha", widths=(2,), suggestions=4, diverging=(3,))
    claim = Comparison(
        "error(exp) < error(direct)",
        *("error", "less", {"model.parameterization": "exp"}, {"model.parameterization": "direct"}, {}),
        same=("model.width",),
    )
    written.claims = {"source": "", "rows": [], "compare": [asdict(claim)]}
    history = written.write(folder)
    return report_on(replace(load_study(folder), search=history), Location.at(folder))


@pytest.mark.more
def test_the_page_says_what_was_searched_and_what_it_is_worth(paths: report.ReportPaths) -> None:
    page = paths.page.read_text()
    for text in (
        sentences(paths.contents.searched)[1],
        "Winners, retrained with fresh seeds",
        "error(exp) &lt; error(direct)",
    ):
        assert text in page, text
    assert "trials ended unusually" not in page  # neither stopped nor diverged suggestions are
    assert any("stopped" in chart["title"] for chart in charts(paths, "search-curves"))
    assert page.index('id="search"') < page.index('id="claims"')
    assert [name for name in drawn(paths) if name.startswith("search")] == [
        "search-curves",
        "search-fields",
        "search-parallel",
    ]


def test_the_files_beside_the_page_hold_every_suggestion_and_winner(paths: report.ReportPaths) -> None:
    suggestions, winners = exported(paths, "search"), exported(paths, "winners")
    assert len(suggestions) == 8
    assert set(suggestions["state"]) == {"done", "stopped early", "diverged"}
    assert list(winners["seeds"]) == [FRESH, FRESH]
    assert (winners["gap"] > 0).all()
    assert set(winners["confirmed_as"]) <= {f"{n:032x}" for n in range(40)}
    assert exported(paths, "compared")["verdict"].nunique() == 1


def test_the_terminal_shows_winners_and_claims_and_no_table_of_missing_slopes(paths: report.ReportPaths) -> None:
    text = paths.text(width=110, colour=False)
    assert "fresh seeds [95 %]" in text
    assert "error(exp) < error(direct)" in text
    assert text.index("for the least error") < text.index("Claims, tested")
    assert "not available" not in text


@pytest.mark.parametrize("published", [[], [{"name": "Any", "where": {}, "verdicts": {"polynomial": "unstable"}}]])
def test_the_note_on_the_mark_stands_where_a_mark_is_printed(tmp_path: Path, published: list[dict[str, Any]]) -> None:
    """Winners of one size have no slope and no table of verdicts; a published table has their verdicts."""
    written = SearchedFolder(widths=(2,), suggestions=2, found=0.8)
    written.claims = {"source": "a table", "rows": published, "compare": []}
    history = written.write(tmp_path)
    made = report_on(replace(load_study(tmp_path), search=history), Location.at(tmp_path))
    assert all(finding.marked for finding in made.contents.verdicts)
    page = made.page.read_text()
    shown = page[page.index("<body") : page.index('id="terms"')]
    for text in (made.text(width=110, colour=False), shown):
        notes = text.count("† a stronger search found more")
        assert (text.count("†") - notes, notes) == ((2, 1) if published else (0, 0))


@pytest.mark.more
@pytest.mark.browser
@pytest.mark.parametrize("width", [1280, 390])
def test_a_browser_shows_a_search_without_sideways_scrolling(
    paths: report.ReportPaths, chromium: str, width: int
) -> None:
    seen, asked = look(paths.page, chromium, width)
    assert seen["page"] <= seen["window"] == width
    assert seen["broken"] == 0
    assert seen["narrow"] >= 300
    assert not [url for url in asked if not url.startswith(("file:", "data:"))]
