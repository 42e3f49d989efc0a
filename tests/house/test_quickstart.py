"""The quickstart as a newcomer runs it: its verdicts are what theory says, and its figures are near the calibration."""

from __future__ import annotations

from pathlib import Path
from subprocess import CompletedProcess

import pandas as pd
import pytest

from paths import ROOT
from sweeping import memsweep

pytestmark = [pytest.mark.more, pytest.mark.long]  # the gate sweeps the quickstart as a newcomer does

EXPECTED = {
    ("exponential", "direct"): "stable",
    ("exponential", "exp"): "stable",
    ("exponential", "softplus"): "stable",
    ("polynomial", "direct"): "unstable",
    ("polynomial", "exp"): "stable",
    ("polynomial", "softplus"): "stable",
}


@pytest.fixture(scope="module")
def quickstart(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, CompletedProcess[str]]:
    """The report's folder of the real quickstart on real Ray, and how its command ended."""
    results = tmp_path_factory.mktemp("quickstart") / "results"
    ended = memsweep("sweep", "quickstart", "--results", results, cwd=ROOT, timeout=900)
    assert ended.returncode == 0, ended.stdout + ended.stderr
    return results / "quickstart" / "report", ended


@pytest.fixture(scope="module")
def recurrent(quickstart: tuple[Path, CompletedProcess[str]]) -> pd.DataFrame:
    """verdicts.csv for the recurrent ball, by kernel and parameterization."""
    verdicts = pd.read_csv(quickstart[0] / "verdicts.csv")
    return verdicts[verdicts["ball"] == "recurrent"].set_index(["task.kernel", "model.parameterization"])


def test_every_trial_finishes_and_nothing_is_said_on_stderr(quickstart: tuple[Path, CompletedProcess[str]]) -> None:
    _, ended = quickstart
    assert "120/120 done" in ended.stdout
    assert "diverged" not in ended.stdout
    assert ended.stderr == ""


def test_the_verdicts_are_what_theory_says(recurrent: pd.DataFrame) -> None:
    assert recurrent["verdict"].to_dict() == EXPECTED


def test_the_slopes_are_near_the_calibration(recurrent: pd.DataFrame) -> None:
    slopes = recurrent[["threshold", "slope_horizon", "slope_horizon_low", "slope_horizon_high"]]
    direct, exp = slopes.loc[("polynomial", "direct")], slopes.loc[("polynomial", "exp")]
    assert (direct["threshold"], direct["slope_horizon"]) == (0.10, pytest.approx(-0.64, abs=0.05))
    assert exp["slope_horizon"] == pytest.approx(0.0, abs=0.05)
    assert (slopes["slope_horizon_low"] <= slopes["slope_horizon"]).all()
    assert (slopes["slope_horizon"] <= slopes["slope_horizon_high"]).all()


def test_enough_replicas_fit_their_target(quickstart: tuple[Path, CompletedProcess[str]]) -> None:
    """Replicas that do not fit are left out of the slopes, and a slope needs four widths at four horizons."""
    radii = pd.read_csv(quickstart[0] / "radii.csv")
    one = radii[(radii["ball"] == "recurrent") & (radii["threshold"] == 0.01)]
    assert len(one) == 120 * 5
    assert (one["valid"] == (one["error_at_zero"] <= 0.005 * one["zero_loss"])).all()
    assert one.loc[one["width"] > 2, "valid"].all()
    assert one["valid"].mean() > 0.95
