"""Growth of measured numbers with width and horizon: known powers, and numbers that have no slope."""

from __future__ import annotations

from typing import Any

import numpy as np
import pandas as pd
import pytest

from memsweep import report
from memsweep.analyses.growth.section import _sentence
from memsweep.analyses.growth.slopes import GrowthRow
from memsweep.report.headline.answer import answer_of
from memsweep.report.naming.conditions import Labels
from memsweep.report.tracked import verdicts_of
from report_study import Condition, exported, write_study

WIDTHS, HORIZONS, SEEDS = (2, 4, 8), (50, 100, 200), 4


def of_seed(seed: int) -> float:
    """A factor of each seed."""
    return 1.0 + 0.1 * seed


@pytest.fixture(scope="module")
def paths(tmp_path_factory: pytest.TempPathFactory) -> report.ReportPaths:
    """Metric 0.1 m^0.5 T^0.2; outputs that move by k m at step k; one infinite time scale."""

    def add(index: int, tables: dict[str, pd.DataFrame]) -> None:
        del index
        replicas = tables["replicas"]
        factor = of_seed(replicas["seed"].to_numpy())
        again = {"accuracy_4_bits": 0.0 + replicas["width"], "accuracy_radius_0.1": 2.0, "accuracy_late": 1.0}
        tables["metrics"] = pd.concat(
            replicas[["identity", "seed"]].assign(metric=name, value=value) for name, value in again.items()
        )
        replicas["test_metric"] = 0.1 * replicas["width"] ** 0.5 * replicas["horizon"] ** 0.2 * factor
        rows: list[dict[str, Any]] = []
        for row in replicas[["identity", "horizon", "width", "seed"]].to_dict("records"):
            for step in (0, 1, 2, 3):
                unstable = row["width"] == 8 and row["seed"] == 0
                measured = {"output_change": step * row["width"] * of_seed(row["seed"]), "sharpness": 2.0}
                measured |= {"time_scale": 5.0, "time_scale_high": np.inf if unstable else 9.0}
                rows.append({**row, "step": step, "learning_rate": 0.1, "ceiling": np.nan, "margin": 0.1, **measured})
        tables["sharpness"] = pd.DataFrame(rows).assign(time_scale_low=1.0)

    folder = tmp_path_factory.mktemp("growth")
    condition = Condition(kernel=None, task="digits", metric="accuracy")
    write_study(
        folder, [condition], widths=WIDTHS, horizons=HORIZONS, seeds=SEEDS, balls=(), memory=False, complete=add
    )
    return report.build(folder)


def test_a_power_law_has_its_exponent_along_both_axes(paths: report.ReportPaths) -> None:
    table = exported(paths, "growth")
    metric = table[table["quantity"] == "accuracy"]
    assert metric["step"].isna().all()
    for axis, exponent, others, ends in (("width", 0.5, HORIZONS, (2, 8)), ("horizon", 0.2, WIDTHS, (50, 200))):
        own = metric[metric["axis"] == axis].set_index("other")
        assert tuple(own.index) == others
        assert own["slope"].to_numpy() == pytest.approx(exponent)
        assert {*zip(own["from"], own["to"], strict=True)} == {ends}
    at_50 = metric[(metric["axis"] == "width") & (metric["other"] == 50)].iloc[0]
    medians = [0.1 * width**0.5 * 50**0.2 * of_seed(1.5) for width in (2, 8)]
    assert [at_50["least"], at_50["greatest"]] == pytest.approx(medians)


def test_a_metric_of_rounded_and_of_moved_weights_has_a_slope_of_its_own(paths: report.ReportPaths) -> None:
    table = exported(paths, "growth")
    table = table[table["axis"] == "width"].groupby("quantity")["slope"].agg(["min", "max"])
    assert table.loc["accuracy_4_bits"].tolist() == pytest.approx([1.0, 1.0])
    assert table.loc["accuracy_radius_0.1"].tolist() == pytest.approx([0.0, 0.0])
    assert "accuracy_late" not in table.index
    text = paths.text(width=200, colour=False)
    assert "accuracy, weights rounded to 4 bits, by the width" in text
    assert "accuracy, worst push of radius 0.1 that was found, by the horizon" in text


def test_numbers_in_training_are_those_after_the_first_and_the_last_step(paths: report.ReportPaths) -> None:
    table = exported(paths, "growth")
    change = table[(table["quantity"] == "output_change") & (table["axis"] == "width")]
    assert sorted(set(change["step"])) == [1, 3]
    assert change["slope"].to_numpy() == pytest.approx(1.0)
    assert change[change["step"] == 3]["least"].to_numpy() == pytest.approx(3 * 2 * of_seed(1.5))
    text = paths.text(width=200, colour=False)
    assert "change of the outputs since the start (root mean square), after 1 step, by the width" in text
    assert 'id="growth"' in paths.page.read_text()
    ranking, grown, *_ = (answer := answer_of(paths.contents)).headline, *answer.more
    assert ranking.startswith("The accuracy at width 8 and horizon 200 is")  # the task's own number comes first
    assert grown.startswith("From width 2 to 8 at T = 200 the accuracy goes as m^(+0.50 ")
    assert grown.count("m^(") == 1  # at each horizon it has a slope


def test_the_sentence_names_the_sizes_of_each_slope() -> None:
    def under(name: str) -> dict[str, Any]:
        return {"task": "digits", "model": "diagonal_rnn", "model.parameterization": name}

    def row(name: str, horizon: float, *widths: float) -> GrowthRow:
        values = pd.DataFrame([[seed * width**0.5 for width in widths] for seed in (1.0, 1.1, 1.3)], columns=widths)
        return GrowthRow(under(name), "accuracy", None, "width", horizon, values, ())

    labels = Labels([under("exp"), under("direct")])
    alike = [row("exp", 50, 2, 4, 8), row("exp", 100, 2, 4, 8), row("direct", 100, 2, 4, 8)]
    told = _sentence(alike, labels)
    assert told.startswith("From width 2 to 8 at T = 100 the accuracy goes as m^(")
    assert told.count("m^(") == 2
    told = _sentence([*alike[:2], row("direct", 50, 4, 8, 32)], labels)
    assert told.startswith("The accuracy goes as m^(")
    assert "under `exp` (from width 2 to 8 at T = 100)" in told
    assert "under `direct` (from width 4 to 32 at T = 50)" in told


def test_slopes_after_the_last_step_go_to_the_runs_of_their_trials(paths: report.ReportPaths) -> None:
    named = verdicts_of(paths.contents)
    trials = exported(paths, "trials", dtype={"identity": str}).set_index("identity")
    for identity, of_trial in named.items():
        for axis, exponent in (("width", 0.5), ("horizon", 0.2)):
            about = f"growth_accuracy_{axis}"
            assert of_trial.metrics[f"{about}/slope"] == pytest.approx(exponent)
            assert of_trial.metrics[f"{about}/slope_low"] <= of_trial.metrics[f"{about}/slope_high"]
        assert of_trial.metrics["growth_output_change_width/slope"] == pytest.approx(1.0)
        assert not any(name.startswith("growth_time_scale_high_width") for name in of_trial.metrics)
        longest = "growth_time_scale_high_horizon/slope" in of_trial.metrics
        assert longest == (trials.loc[identity, "width"] < 8)  # at width 8 a seed's time scale is infinite
    assert len(named) == len(WIDTHS) * len(HORIZONS)


def test_infinite_values_have_no_slope_and_missing_ones_no_row(paths: report.ReportPaths) -> None:
    table = exported(paths, "growth")
    longest = table[table["quantity"] == "time_scale_high"].set_index(["axis", "other"])
    assert longest.loc["width"]["slope"].isna().all()
    assert longest.loc[("horizon", 4)]["slope"].to_numpy() == pytest.approx(0.0)
    assert "ceiling" not in set(table["quantity"])
