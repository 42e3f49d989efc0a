"""A claim on radii says how many models of each side fit: verdicts leave the others out."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path

import pandas as pd
import pytest

from memsweep import report
from memsweep.config.schema.claims import Comparison
from memsweep.report.publish import ReportPaths
from report_study import Condition, exported, write_study

SIDES = tuple({"model.parameterization": name} for name in ("exp", "direct"))


def built(folder: Path, floor: float) -> ReportPaths:
    """The report of a study that claims the same of radii and of errors.

    ``floor``: error of the left side's models, as a share of the zero predictor's loss; at most 0.005 of it fits.
    """
    claims = [
        Comparison(f"{metric}(exp) > {metric}(direct)", metric, "greater", *SIDES, {}, same=("model.width",))
        for metric in ("radius", "error")
    ]
    conditions = [Condition(parameterization="direct", base=0.1), Condition(parameterization="exp", floor=floor)]
    listed = {"source": "", "rows": [], "compare": [asdict(claim) for claim in claims]}
    write_study(
        folder, conditions, widths=(4, 8), horizons=(50,), seeds=6, balls=["recurrent"], memory=False, claims=listed
    )
    return report.build(folder)


@pytest.mark.parametrize(("floor", "fit"), [(0.008, 0), (0.001, 6)])
def test_a_claim_on_radii_says_how_many_models_of_each_side_fit(tmp_path: Path, floor: float, fit: int) -> None:
    made = built(tmp_path, floor)
    table = exported(made, "compared").set_index("metric")[["left_fits", "right_fits"]]
    assert table.loc["radius"].values.tolist() == [[fit, 6], [fit, 6]]
    assert pd.isna(table.loc["error"]).all(axis=None)
    page, text = made.page.read_text(), " ".join(made.text(colour=False).split())
    named = "radius(exp) > radius(direct) (fit: 0 of 12 on the left, 12 of 12 on the right)"
    said = f"1 compares radii of models that do not all fit, and a verdict leaves those out: {named}."
    heard = page.replace("<code>", "").replace("</code>", "").replace("&gt;", ">")
    assert [said in shown for shown in (heard, text)] == [fit == 0] * 2
    assert page.count(">0 / 6 of 6<") == (4 if fit == 0 else 0)  # beside the answer, and in the table of claims
    assert text.count("0 / 6 of 6") == (1 if fit == 0 else 0)  # the terminal shows rows that look alike once
