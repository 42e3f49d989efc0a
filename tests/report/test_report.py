"""The report's tables say what the stored results say, for whole, partial, odd and hostile studies."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from memsweep import report
from memsweep.commands.answers.run import report_item
from memsweep.errors import StoreError
from memsweep.report import publish
from memsweep.report.headline.answer import answer_of
from report_study import (
    HORIZONS,
    SEEDS,
    THEORY,
    WIDTHS,
    Condition,
    drawn,
    exported,
    longest,
    write_planned,
    write_study,
)

CONDITION = ["task", "task.kernel", "model", "model.parameterization"]
VERDICT_COLUMNS = [
    *("ball", "reference", "verdict", "slope_horizon", "slope_horizon_low", "slope_horizon_high"),
    *(
        "slope_width",
        "slope_width_low",
        "slope_width_high",
        "threshold",
        "deciding",
        "largest_width",
        "fit_error",
        "rule_version",
        "found_share",
        "reasons",
    ),
]


@pytest.fixture(scope="module")
def theory(tmp_path_factory: pytest.TempPathFactory) -> report.ReportPaths:
    """The report of a study whose slopes are those of the theory."""
    folder = tmp_path_factory.mktemp("theory")
    write_study(folder)
    return report.build(folder)


def test_the_verdict_table_holds_the_constructed_slopes(theory: report.ReportPaths) -> None:
    table = exported(theory, "verdicts")
    assert list(table.columns) == [*CONDITION, "task.rate", *VERDICT_COLUMNS]
    assert len(table) == 2 * len(THEORY)
    for condition in THEORY:
        for ball in ("recurrent", "all"):
            row = table[
                (table["task.kernel"] == condition.kernel)
                & (table["model.parameterization"] == condition.parameterization)
                & (table["ball"] == ball)
            ]
            assert len(row) == 1
            assert row["slope_horizon"].item() == pytest.approx(condition.slope_horizon, abs=0.03)
            assert row["slope_width"].item() == pytest.approx(condition.slope_width, abs=0.03)
            assert row["slope_horizon_low"].item() <= row["slope_horizon"].item() <= row["slope_horizon_high"].item()
            assert row["verdict"].item() == ("unstable" if condition.slope_horizon < -0.2 else "stable")
            assert row["threshold"].item() in (0.01, 0.03, 0.1)


def test_the_answer_is_a_sentence_made_from_the_verdicts(theory: report.ReportPaths) -> None:
    answer = answer_of(theory.contents)
    assert answer.headline.startswith("For T = 50 to 400 and widths 2 to 8, exponential memory is held stably under")
    assert "is not held stably under <code>direct</code> (T<sup>−0.59</sup> [" in theory.page.read_text()
    assert report_item(theory)["answers"] == list(answer.sentences)
    assert " ".join(theory.text(colour=False).split()).startswith(answer.sentences[0])


def test_the_radius_table_inverts_the_constructed_error(theory: report.ReportPaths) -> None:
    table = exported(theory, "radii", keep_default_na=False, na_values=[""])
    assert len(table) == len(THEORY) * len(HORIZONS) * len(WIDTHS) * SEEDS * 3 * 2
    row = table[
        (table["task.kernel"] == "polynomial")
        & (table["model.parameterization"] == "direct")
        & (table["ball"] == "recurrent")
        & (table["threshold"] == 0.1)
        & (table["horizon"] == 400)
        & (table["width"] == 8)
    ]
    expected = 0.05 * (400 / 50) ** -0.6 * np.sqrt(0.1 - 1e-3)
    assert row["radius"].median() == pytest.approx(expected, rel=0.05)
    assert row["identity"].nunique() == 1
    assert row["valid"].all()


def test_the_curves_are_the_stored_ones(theory: report.ReportPaths) -> None:
    stored = pd.concat(map(pd.read_parquet, sorted((theory.folder.parent / "curves").glob("*.parquet"))))
    kept = pd.read_parquet(theory.folder / "curves.parquet")
    order = ["identity", "seed", "ball", "radius"]
    left, right = (frame.sort_values(order)[stored.columns].reset_index(drop=True) for frame in (stored, kept))
    pd.testing.assert_frame_equal(left, right, check_dtype=False)
    assert np.isinf(kept["error"]).any()  # an infinite error is a value, kept as such


def test_every_figure_is_a_png_for_papers(theory: report.ReportPaths) -> None:
    assert drawn(theory) == ["error-all", "error-recurrent", "memory", "radius-all", "radius-recurrent"]
    for path in (theory.folder / "figures").iterdir():
        assert path.read_bytes().startswith(b"\x89PNG")
        assert path.stat().st_size > 20_000


def test_the_terminal_table_fits_and_is_plain(theory: report.ReportPaths) -> None:
    text = theory.text(colour=False)
    assert "\x1b" not in text
    assert longest(text) <= 110
    assert text.count("unstable") == 2
    slopes = exported(theory, "verdicts").query("verdict == 'unstable'")["slope_horizon"]
    assert all(f"−{-slope:.2f} [" in text for slope in slopes)
    assert "\x1b[" in theory.text(colour=True)


def test_a_study_without_results_says_so(tmp_path: Path) -> None:
    identities = write_study(tmp_path, THEORY[:1], widths=[2], skip=range(4))
    paths = report.build(tmp_path)
    page = paths.page.read_text()
    assert "No trial of this study has finished yet: 4 are planned." in page
    assert all(identity in page for identity in identities)
    assert exported(paths, "verdicts").empty
    assert list(exported(paths, "verdicts").columns) == VERDICT_COLUMNS
    assert exported(paths, "radii").empty
    assert pd.read_parquet(paths.folder / "curves.parquet").empty
    assert paths.text().startswith("No trial of this study has finished yet: 4 are planned.")


def test_results_outside_the_plan_stay_out_and_are_counted(tmp_path: Path) -> None:
    write_study(tmp_path, THEORY[:1], widths=[2, 3], balls=["recurrent"])
    plan = json.loads((tmp_path / "plan.json").read_text())
    write_planned(tmp_path, plan | {"trials": plan["trials"][:5]})
    paths = report.build(tmp_path)
    assert pd.read_parquet(paths.folder / "curves.parquet")["identity"].nunique() == 5
    assert "3 stored results of this folder belong to another plan" in paths.page.read_text()


@pytest.mark.more
def test_a_swept_training_field_becomes_a_column_and_splits_the_verdicts(tmp_path: Path) -> None:
    slow = Condition(parameterization="exp", base=0.5, training={"learning_rate": 0.001})
    fast = Condition(parameterization="exp", base=0.5, slope_horizon=-0.6, training={"learning_rate": 0.1})
    write_study(tmp_path, [slow, fast], balls=["recurrent"], memory=False)
    table = exported(report.build(tmp_path), "verdicts")
    assert list(table.columns) == [*CONDITION, "training.learning_rate", *VERDICT_COLUMNS]
    recurrent = table[table["ball"] == "recurrent"].set_index("training.learning_rate")["verdict"]
    assert recurrent.to_dict() == {0.001: "stable", 0.1: "unstable"}


def test_a_field_tied_to_width_does_not_split_a_condition(tmp_path: Path) -> None:
    write_study(
        tmp_path, [Condition(base=0.5, training={"steps": "1000 widths"})], horizons=[50, 100], balls=["recurrent"]
    )
    paths = report.build(tmp_path)
    table = exported(paths, "verdicts")
    assert list(table.columns) == [*CONDITION, *VERDICT_COLUMNS]
    assert len(table) == 1
    assert "training.steps" in paths.page.read_text()  # not silently: the slopes contain its effect


def test_a_task_without_a_kernel_is_reported(tmp_path: Path) -> None:
    condition = Condition(kernel=None, task="copy", activation=None, normalize=None, base=0.5)
    write_study(tmp_path, [condition], horizons=[50], balls=["all"], memory=False)
    table = exported(report.build(tmp_path), "verdicts")
    assert "task.kernel" not in table
    assert (table["verdict"] == "inconclusive").all()
    assert table["slope_width"].abs().max() < 0.03


def test_what_a_study_varies_is_joined_to_its_measurements_by_identity(tmp_path: Path) -> None:
    conditions = [
        Condition(model_fields={"layers": layers}, training={"learning_rate": 0.1 / layers}) for layers in (1, 2)
    ]
    identities = write_study(tmp_path, conditions, horizons=[50], widths=[2, 3], balls=["recurrent"], seeds=2, skip=[3])
    paths = report.build(tmp_path)
    trials = exported(paths, "trials", dtype={"identity": str})
    assert list(trials["identity"]) == identities[:3]
    assert {"model.layers", "training.learning_rate", "task.kernel", "width", "horizon"} < set(trials)
    assert not {"task.rate", "model.activation", "perturbation.balls"} & set(trials), "what is the same in all trials"
    assert (trials["training.seeds"] == 2).all()
    joined = pd.read_parquet(tmp_path / "replicas").merge(trials, on=["identity", "width", "horizon"])
    assert list(joined.groupby("model.layers")["width"].agg(list)) == [[2, 2, 3, 3], [2, 2]]


def test_csv_text_that_a_spreadsheet_would_run_is_quoted_and_numbers_are_not(tmp_path: Path) -> None:
    texts = ["=1+1", "+1", "-1", "@SUM(A1)", "\tx", "\rx", "fine"]
    table = pd.DataFrame({"=name": texts, "number": [-1.5, np.inf, -np.inf, np.nan, 0.0, 1e-300, 3.0]})
    publish.write_csv(table, tmp_path / "x.csv")
    with open(tmp_path / "x.csv", newline="") as file:
        head, *rows = csv.reader(file)
    assert head == ["'=name", "number"]
    assert [row[0] for row in rows] == ["'=1+1", "'+1", "'-1", "'@SUM(A1)", "'\tx", "'\nx", "fine"]
    assert [row[1] for row in rows] == ["-1.5", "inf", "-inf", "", "0.0", "1e-300", "3.0"]


def test_a_report_that_fails_leaves_the_old_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    write_study(tmp_path, THEORY[:1], widths=[2], horizons=[50], balls=["recurrent"], memory=False)
    old = report.build(tmp_path).page.read_text()

    def full_disk(*_: object) -> None:
        raise OSError("No space left on device")

    monkeypatch.setattr(publish, "write_csv", full_disk)
    with pytest.raises(StoreError, match="No space left on device"):
        report.build(tmp_path)
    assert (tmp_path / "report" / "index.html").read_text() == old
    assert not list(tmp_path.glob(".report-*"))


def test_a_missing_folder_is_an_error_and_a_damaged_record_is_named_on_the_page(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="nowhere"):
        report.build(tmp_path / "nowhere")
    identity = write_study(tmp_path, THEORY[:1], widths=[2], horizons=[50])[0]
    (tmp_path / "records" / f"{identity}.json").write_text("{half")
    page = report.build(tmp_path).page.read_text()
    assert "1 of them is stored but damaged" in page
    assert f"{identity}.json is damaged" in page


def test_a_setting_without_a_value_in_one_part_of_the_curves_keeps_its_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Curves are written part by part, each with the settings of its trials alone."""
    monkeypatch.setattr("memsweep.report.publish._ROWS", 100)
    conditions = [Condition(parameterization="exp", normalize=None), Condition(normalize=True)]
    write_study(tmp_path, conditions, widths=[2], horizons=[50], balls=["recurrent"], memory=False)
    kept = pd.read_parquet(report.build(tmp_path).folder / "curves.parquet")
    assert kept["model.normalize"].dropna().tolist() == [True] * int((kept["model.parameterization"] == "direct").sum())
