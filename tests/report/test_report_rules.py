"""Learning rules in a report: their gradients beside the true ones, their order, their learning rates, their names."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from matplotlib.figure import Figure
from searched_folder import SearchedFolder

from config_study import load
from memsweep import report
from memsweep.analyses.rates.curves import RULE, rate_studies
from memsweep.config.schema.canonical import to_dict
from memsweep.config.schema.search import CHOICE, GRID, UNIFORM, Domain
from memsweep.measures.alignment import Alignment
from memsweep.measures.alignment.rows import AlignmentRow, alignment_rows, varied
from memsweep.measures.alignment.section import alignment_table
from memsweep.report.analysis.contents import judge_conditions
from memsweep.report.analysis.losses import loss_rows
from memsweep.report.analysis.search.searched import read_searched, scan_of
from memsweep.report.charts.every import chart_sets
from memsweep.report.figures.charts import gallery_of
from memsweep.report.naming.conditions import RATE, Labels, find_grouping
from memsweep.report.read.study import Study, load_study
from memsweep.report.values.chart import Chart, ChartSet, names_of
from memsweep.report.values.section import sections_of
from memsweep.report.values.table import PAGE
from memsweep.sweep.store.tables import columns, schema
from memsweep.trial import run_trial
from report_study import SEEDS, Condition, charts, drawn, exported, write_study

STACK: dict[str, Any] = {
    **{"kernel": None, "task": "copying_bits", "model": "residual_stack", "parameterization": None},
    **{"activation": None, "normalize": None, "metric": "accuracy"},
}
LRU = {"unit": {"name": "lru", "r_min": 0.0}, "layers": 2}
GRADIENTS = {"all": (0.6, 0.7), "0": (0.2, 0.4), "1": (0.9, 1.0)}


def stack(rule: str, alignment: Mapping[str, tuple[float, float]] | None = None, **more: Any) -> Condition:
    """A residual stack that learns by a rule."""
    settings: dict[str, Any] = {**STACK, "model_fields": LRU, "training": {"rule": rule}}
    return Condition(alignment=alignment or {}, **{**settings, **more})


def written(folder: Path, conditions: Sequence[Condition], **more: Any) -> report.ReportPaths:
    """The report of a study of one size."""
    write_study(folder, conditions, **{"horizons": [48], "widths": [16], "balls": (), "memory": False, **more})
    return report.build(folder)


def rows_of(folder: Path) -> tuple[list[AlignmentRow], Labels, Study]:
    """The report's rows from the table ``alignment``."""
    study = load_study(folder)
    losses = loss_rows(study, find_grouping(study.records, study.tables["replicas"]))
    return alignment_rows(losses, study), Labels([row.condition for row in losses]), study


def shown_of(folder: Path) -> list[Chart]:
    """The charts of the alignment, as a report makes them."""
    contents = report.judge(folder)
    return {each.name: each for each in chart_sets(contents, sections_of(contents))}["alignment"].first()


def by_title(shown: Sequence[Chart]) -> dict[tuple[str, str, str], dict[str, list[list[float]]]]:
    """Title and words of the axes -> name -> points."""
    return {(chart["title"], chart["x"], chart["y"]): dict(chart["lines"]) for chart in shown}


@pytest.fixture(scope="module")
def compared(tmp_path_factory: pytest.TempPathFactory) -> report.ReportPaths:
    """Three rules on copying bits; backpropagation itself is compared with nothing."""
    return written(
        tmp_path_factory.mktemp("compared"),
        [
            stack("online_truncated", GRADIENTS, loss=0.5, values=(0.7, 0.71, 0.69, 0.91, 0.7)),
            stack("online_full", {**GRADIENTS, "all": (0.93, 0.97)}, loss=0.3, values=(0.9, 0.92, 0.91, 0.9, 0.9)),
            stack("bptt", loss=0.28, values=(0.95, 0.9, 0.95, 0.9, 0.96)),
        ],
    )


def test_alignment_is_the_median_over_seeds_of_the_mean_over_steps(compared: report.ReportPaths) -> None:
    table = exported(compared, "alignment").set_index([RULE, "layer"])
    assert list(table.index) == [
        (rule, layer) for rule in ("online_truncated", "online_full") for layer in ("all", "0", "1")
    ]
    found = table.loc["online_truncated", "0"]
    assert (found["seeds"], found["steps"], found["width"]) == (SEEDS, 3, 16)
    # of seeds 0.2, 0.19, ..., 0.16, each the mean of three steps around it; ratios grow by a tenth a seed
    assert (found["cosine"], found["cosine_low"], found["cosine_high"]) == pytest.approx((0.18, 0.16, 0.2))
    ratios = (found["norm_ratio"], found["norm_ratio_low"], found["norm_ratio_high"])
    assert ratios == pytest.approx((0.48, 0.4, 0.56))


def test_a_step_without_a_true_gradient_does_not_count(tmp_path: Path) -> None:
    def silent(index: int, tables: dict[str, pd.DataFrame]) -> None:
        table = tables["alignment"]
        table.loc[(table["layer"] == "0") & (table["step"] == 20), ["cosine", "norm_ratio"]] = np.nan
        table.loc[table["layer"] == "1", ["cosine", "norm_ratio"]] = np.nan

    conditions = [stack("online_full", GRADIENTS)]
    write_study(tmp_path, conditions, horizons=[48], widths=[16], balls=(), complete=silent)
    (row,), labels, _ = rows_of(tmp_path)
    assert row.layers["0"]["cosine"].middle == pytest.approx(0.18 - 0.01)  # steps at -0.02 and 0 of the mean
    assert np.isnan(row.layers["1"]["cosine"].middle)
    # that of layer 1 is empty: drawing it is no fault
    for each in gallery_of(ChartSet("alignment", shown_of(tmp_path))).panels:
        each.draw(Figure().add_subplot())
    (lines,) = alignment_table([row], (), labels).view(PAGE).groups.values()
    assert lines[2][-2].text == "–"


def test_page_and_terminal_show_the_alignment(compared: report.ReportPaths) -> None:
    page = compared.page.read_text()
    section = page.split('id="alignment"')[1].split("</section>")[0]
    cells = re.findall(r">([^<]*)\n*</td><td[^>]*>([^<]*)\n*</td><td[^>]*>([^<]*)\n*</td></tr>", section)
    assert [tuple(map(str.strip, texts)) for texts in cells[:3]] == [
        ("all weights", "0.58 [0.56, 0.60]", "0.84 [0.70, 0.98]"),
        ("layer 0", "0.18 [0.16, 0.20]", "0.48 [0.40, 0.56]"),
        ("layer 1", "0.88 [0.86, 0.90]", "1.2 [1.0, 1.4]"),
    ]
    assert len(cells) == 6
    assert "rule bptt" not in section
    text = compared.text(width=100, colour=False)
    assert "rule online_full       layer 1      0.88 [0.86, 0.90]  1.2 [1.0, 1.4]" in text


def test_one_picture_per_condition_shows_every_layer_over_the_training(
    tmp_path: Path, compared: report.ReportPaths
) -> None:
    assert drawn(compared) == ["alignment", "ranking"]
    assert names_of(shown_of(compared.folder.parent)) == ["all weights", "layer 0", "layer 1"]
    shown = {
        chart["y"]: dict(chart["lines"]) for chart in charts(compared, "alignment") if "truncated" in chart["title"]
    }
    assert [point[:2] for point in shown["cosine"]["layer 0"]] == [[0, 0.16], [10, 0.18], [20, 0.2]]
    assert [point[1] for point in shown["norm ratio"]["layer 1"]] == pytest.approx([0.3, 1.2, 4.8])
    # Of several sizes, the largest is drawn: the table has them all.
    write_study(tmp_path, [stack("online_full", GRADIENTS)], horizons=[24, 48], widths=[8, 16], balls=())
    rows, _, _ = rows_of(tmp_path)
    assert len(rows) == 4
    assert [chart["title"] for chart in shown_of(tmp_path)] == [
        "copying_bits, residual_stack, width 16, horizon 48"
    ] * 2


def test_alignment_against_depth(tmp_path: Path) -> None:
    conditions = [
        stack(rule, {"all": (0.8, 1.0)} | {str(n): (1 - 0.1 * (depth - 1 - n), 1.0) for n in range(depth)})
        for depth in (3, 1, 2)
        for rule in ("online_full", "online_spatial")
    ]
    conditions = [
        replace(condition, model_fields={**LRU, "layers": depth})
        for condition, depth in zip(conditions, (3, 3, 1, 1, 2, 2), strict=True)
    ]
    write_study(tmp_path, conditions, horizons=[48], widths=[16], balls=())
    rows, _, _ = rows_of(tmp_path)
    assert varied(rows) == ["model.layers"]
    shown = by_title(shown_of(tmp_path))
    along = [(title, y) for title, x, y in shown if x == "layers"]
    assert along == [
        (f"copying_bits, rule {rule}", what)
        for rule in ("online_full", "online_spatial")
        for what in ("cosine", "norm ratio")
    ]
    lines = shown["copying_bits, rule online_full", "layers", "cosine"]
    assert [point[0] for point in lines["layer 0"]] == [1, 2, 3]
    assert [point[1] for point in lines["layer 0"]] == pytest.approx([0.98, 0.88, 0.78])
    # a layer that the shallower stacks do not have
    assert [point[:2] for point in lines["layer 2"]] == [[3, pytest.approx(0.98)]]
    of_two = "copying_bits, layers 2 · rule online_full, width 16, horizon 48"
    assert {*shown[of_two, "training step", "cosine"]} == {"all weights", "layer 0", "layer 1"}


def test_alignment_against_the_radius_of_the_initial_eigenvalues(tmp_path: Path) -> None:
    radii = (0.0, 0.9)
    conditions = [
        stack(
            "online_full",
            {"all": (0.9 - 0.2 * radius, 1.0), "0": (0.5, 0.1 + radius)},
            model_fields={"layers": 1, "unit": {"name": "lru", "r_min": radius}},
        )
        for radius in radii
    ]
    paths = written(tmp_path, conditions)
    assert drawn(paths) == ["alignment", "ranking"]
    assert [chart["y"] for chart in charts(paths, "alignment") if chart["x"] == "r_min"] == ["cosine", "norm ratio"]
    found = [lines for (_, x, y), lines in by_title(shown_of(tmp_path)).items() if (x, y) == ("r_min", "norm ratio")]
    (lines,) = found
    assert [[point[0] for point in points] for points in lines.values()] == [list(radii)] * 2
    assert [point[1] for point in lines["layer 0"]] == pytest.approx([0.12 + 1.2 * radius for radius in radii])


def test_results_that_compared_no_gradients_have_no_such_section(tmp_path: Path) -> None:
    paths = written(tmp_path, [stack("bptt", loss=0.3), stack("online_full", loss=0.3)])
    assert not (paths.folder / "alignment.csv").exists()
    assert 'id="alignment"' not in paths.page.read_text()
    assert drawn(paths) == ["ranking"]


def test_learning_rates_have_a_line_per_rule(tmp_path: Path) -> None:
    rates = (1e-3, 4e-3, 1.6e-2)
    conditions = [
        stack(rule, training={"rule": rule, "learning_rate": rate}, loss=place + rate)
        for place, rule in enumerate(("bptt", "online_full"), 1)
        for rate in rates
    ]
    paths = written(tmp_path, conditions)
    assert drawn(paths) == ["learning-rates"]
    _, labels, study = rows_of(tmp_path)
    rows = loss_rows(study, find_grouping(study.records, study.tables["replicas"]))
    (found,) = rate_studies(rows, labels)
    assert list(found.lines) == ["bptt", "online_full"]
    assert found.rates == list(rates)
    assert [row.condition[RULE] for row in found.lines["online_full"]] == ["online_full"] * 3
    assert labels.machine(rows[0].condition) == "rule bptt · learning_rate 0.001"


def test_a_search_over_a_grid_of_rates_is_a_scan_of_all_that_it_trained(tmp_path: Path) -> None:
    folder = SearchedFolder(widths=(2,), suggestions=4)
    history = replace(folder.write(tmp_path), algorithm=GRID, space={RATE: Domain(CHOICE, values=(0.1, 0.2))})
    study = replace(load_study(tmp_path), search=history)
    scan = scan_of(study, read_searched(study, history))
    assert scan is not None
    trained = {row.identity for member in history.suggestions for row in member.trials}
    assert set(scan.records) == trained & set(study.records)
    assert set(scan.tables["replicas"]["identity"]) == set(scan.records)
    assert not set(scan.records) & set(history.confirmed.values())
    other = replace(history, space={**history.space, "training.weight_decay": Domain(UNIFORM, low=0.0, high=1.0)})
    assert scan_of(study, read_searched(study, other)) is None


def test_each_rule_is_a_condition_with_all_its_sizes(tmp_path: Path) -> None:
    kernel: dict[str, Any] = {"kernel": "polynomial", "task": "linear_functional", "metric": None}
    rules = ("bptt", "online_full")
    of_rules = [stack(rule, **kernel) for rule in rules]
    names = write_study(tmp_path, of_rules, widths=(2, 3), horizons=(50, 100), balls=("recurrent",), memory=False)
    study = load_study(tmp_path)
    found = judge_conditions(study, find_grouping(study.records, study.tables["replicas"]))
    assert [(finding.condition[RULE], finding.needs_verdict) for finding in found] == [(rule, True) for rule in rules]
    half = len(names) // 2
    assert [set(finding.curves["identity"]) for finding in found] == [set(names[:half]), set(names[half:])]


def test_names_say_unit_rule_and_depth() -> None:
    shared = {"task": "copying_bits", "model": "residual_stack"}
    conditions = [
        {**shared, "model.layers": depth, "model.unit": unit, RATE: rate, RULE: rule}
        for depth in (1, 4)
        for unit in ("lru", "gru")
        for rule, rate in (("bptt", 0.1), ("online_snap1", 0.2))
    ]
    labels = Labels(conditions)
    assert labels.machine(conditions[-1]) == "layers 4 · gru · rule online_snap1"
    assert labels.following == (RATE,)  # the rule names a row that differs in both


def test_a_units_field_is_never_said_without_its_unit() -> None:
    """Though the field alone would tell the two conditions of one unit from the others, which lack it."""
    shared = {"task": "parity", "model": "residual_stack"}
    units = (("lstm", None), ("delta_net", 1.0), ("delta_net", 2.0))
    conditions = [{**shared, "model.unit": unit, "model.unit.largest_beta": beta} for unit, beta in units]
    names = [*map(Labels(conditions).machine, conditions)]
    assert names == ["lstm", "delta_net · largest_beta 1", "delta_net · largest_beta 2"]


def test_gradients_that_real_trials_compared_are_read(tmp_path: Path) -> None:
    text = """
task: {name: linear_functional, kernel: exponential, horizon: 8}
model: {name: residual_stack, width: 2, features: 2, layers: 2, norm: none}
training: {seeds: 2, steps: 6, batch_size: 4, validation_size: 4, validate_every: 3, alignment_every: 2}
perturbation: {balls: [], test_size: 4}
grid: {training.rule: [bptt, online_full, online_spatial]}
"""
    trials = {str(index): run_trial(config) for index, config in enumerate(load(tmp_path, text).rows)}
    measured = {identity: trial.tables for identity, trial in trials.items()}
    found = {
        table: pd.concat([of[table].assign(identity=name) for name, of in measured.items() if table in of])
        for table in ("replicas", "alignment")
    } | {"metrics": schema("metrics").empty_table().to_pandas()}
    records = {identity: {"config": to_dict(trial.config)} for identity, trial in trials.items()}
    grouping = find_grouping(records, found["replicas"])
    study = Study("", "", 3, records, found, (), 0, None, "")
    rows = alignment_rows(loss_rows(study, grouping), study)
    assert [row.condition[RULE] for row in rows] == ["online_full", "online_spatial"]
    for row in rows:
        assert list(row.layers) == ["all", "0", "1"]
        assert row.steps == 3  # after 0, 2 and 4 of six steps
    full, spatial = (row.layers["1"]["cosine"] for row in rows)
    assert full.low == pytest.approx(1.0)  # exact in the last layer, by theory
    assert spatial.high < 1 - 1e-6
    assert set(found["alignment"]) == set(columns(Alignment.table))
