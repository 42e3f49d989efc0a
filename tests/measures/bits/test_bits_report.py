"""Bits to hold and number formats in a report: as constructed, in tables, CSV files and headline."""

from __future__ import annotations

import math
import re
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from memsweep import report
from memsweep.measures.bits.kinds import FORMATS, ROUNDINGS
from memsweep.report.tracked import verdicts_of
from report_study import HORIZONS, SEEDS, ZERO_LOSS, Condition, charts, drawn, exported, write_study

TRUTH = (
    Condition(kernel="polynomial", parameterization="direct", base=0.5, slope_horizon=-1.0),
    Condition(kernel="polynomial", parameterization="exp", base=0.5),
)
BITS = range(3, 9)


def reach_of(condition: Condition, horizon: int, seed: int) -> float:
    """Slopes differ between seeds by steps of 0.02."""
    return condition.base * (horizon / 50) ** (condition.slope_horizon + 0.02 * (seed - 2))


def at_whole_bits(conditions: tuple[Condition, ...]) -> Callable[[int, dict[str, pd.DataFrame]], None]:
    """Replaces the curves of a study by errors at whole bits: L0 (1e-3 + (2^-bits / reach)^2)."""

    def complete(index: int, tables: dict[str, pd.DataFrame]) -> None:
        condition = conditions[index // len(HORIZONS)]
        curves = tables["curves"]
        rows = []
        for _, curve in curves.groupby(["seed", "ball"]):
            first = curve.iloc[0]
            reach = reach_of(condition, first["horizon"], first["seed"])
            for radius in ROUNDINGS["fixed_recurrent"].radii_of(BITS):
                size = 1 / (1 / radius + 2) if radius else 0.0  # 2^-bits, of 2^bits - 1 values
                rows.append({**first, "radius": radius, "error": ZERO_LOSS * (1e-3 + (size / reach) ** 2)})
        tables["curves"] = pd.DataFrame(rows).assign(change=lambda table: table["error"])

    return complete


def test_bits_and_their_slopes_are_those_of_the_curves(tmp_path: Path) -> None:
    balls, complete = ["fixed_recurrent"], at_whole_bits(TRUTH)
    write_study(tmp_path, TRUTH, widths=[4], balls=balls, memory=False, complete=complete)
    paths = report.build(tmp_path)
    table = exported(paths, "bits")
    assert len(table) == len(TRUTH) * len(HORIZONS) * SEEDS
    for condition in TRUTH:
        own = table[table["model.parameterization"] == condition.parameterization]
        for row in own.to_dict("records"):
            needed = math.ceil(-math.log2(math.sqrt(0.01 - 1e-3) * reach_of(condition, row["horizon"], row["seed"])))
            assert row["bits"] == needed
    assert not table["older"].any()
    text = re.sub(r"\s+", " ", paths.text(width=200))
    assert "earlier definition" not in text
    assert "direct 5 6 7 8 +1.00 [+0.96, +1.04] grows" in text  # Student's interval of five seeds
    assert "exp 5 5 5 5 0.00 [−0.04, +0.04] constant" in text
    assert "polynomial needs 8 under direct and 5 under exp" in paths.page.read_text()
    assert "inconclusive" not in text  # a rounding is no question of stability
    assert drawn(paths) == ["bits"]
    assert {chart["whole"] for chart in charts(paths, "bits")} == {"y"}
    shown = {chart["title"]: dict(chart["lines"]) for chart in charts(paths, "bits")}
    for title, expected in (("direct", [5, 6, 7, 8]), ("exp", [5, 5, 5, 5])):
        (lines,) = (lines for name, lines in shown.items() if name.endswith(f"{title}: weights"))
        (points,) = lines.values()
        assert [(point[0], point[1]) for point in points] == [*zip(HORIZONS, expected, strict=True)]
    about = verdicts_of(paths.contents)
    told = {
        (each.tags["bits_fixed_recurrent/holds"], each.tags["bits_fixed_recurrent/verdict"]) for each in about.values()
    }
    bits = dict(zip(HORIZONS, (5, 6, 7, 8), strict=True))
    expected = {(f"T = {horizon} at {count} bits", "grows") for horizon, count in bits.items()}
    assert told == expected | {(f"T = {horizon} at 5 bits", "constant") for horizon in HORIZONS}
    for each in about.values():
        grows = each.tags["bits_fixed_recurrent/verdict"] == "grows"
        assert each.metrics["bits_fixed_recurrent/slope"] == pytest.approx(float(grows), abs=0.01)
        assert f"at {each.metrics['bits_fixed_recurrent/bits']:g} bits" in each.tags["bits_fixed_recurrent/holds"]


def test_stored_grids_of_an_earlier_definition_have_the_bits_that_store_them_and_say_so(tmp_path: Path) -> None:
    """Bits once were cells: 2^b + 1 values of half a step 2^-b, which b bits do not store."""
    written = range(2, 9)

    def complete(index: int, tables: dict[str, pd.DataFrame]) -> None:
        curves, rows = tables["curves"], []
        for _, curve in curves.groupby(["seed", "ball"]):
            for radius in (0.0, *(2.0**-bits for bits in written)):
                fails = radius > 2.0 ** -(4 + index)  # one bit more at each horizon
                rows.append({**curve.iloc[0], "radius": radius, "error": ZERO_LOSS * (0.5 if fails else 0.001)})
        tables["curves"] = pd.DataFrame(rows).assign(change=lambda table: table["error"])

    write_study(tmp_path, TRUTH[:1], widths=[4], balls=["fixed_weights"], memory=False, complete=complete)
    paths = report.build(tmp_path)
    table = exported(paths, "bits")
    assert table["older"].all()
    assert (table["fewest"].unique(), table["most"].unique()) == ([3], [9])
    # the error passes 1 % between 2^4 + 1 values and 2^3 + 1, at 2^3.6 or so of them
    needed = [table.loc[table["horizon"] == horizon, "bits"].unique() for horizon in HORIZONS]
    assert needed == [[4], [5], [6], [7]]
    text = re.sub(r"\s+", " ", paths.text(width=200))
    assert text.count("all weights, fixed point; measured on grids of 2^b + 1 values, an earlier definition") == 1
    assert "earlier definition" in paths.page.read_text()


def test_number_formats_are_told_by_the_seeds_that_fit(tmp_path: Path) -> None:
    """One seed does not fit without rounding; of the others one fails in a format that is enough for the rest."""
    shares = {"float16": 0.001, "bfloat16": 0.004, "float8_e4m3": 0.008, "float8_e5m2": 0.2}
    radii = {0.0: 0.001} | {2.0 ** -FORMATS[name].significant: share for name, share in shares.items()}

    def complete(index: int, tables: dict[str, pd.DataFrame]) -> None:
        curves, rows = tables["curves"], []
        for _, curve in curves.groupby(["seed", "ball"]):
            first = curve.iloc[0]
            for radius, share in sorted(radii.items()):
                if first["seed"] == 0:
                    share = 0.006
                elif first["seed"] == 1 and radius == 2.0 ** -FORMATS["float8_e4m3"].significant:
                    share = 0.02
                rows.append({**first, "radius": radius, "error": ZERO_LOSS * share})
        tables["curves"] = pd.DataFrame(rows).assign(change=lambda table: table["error"])

    write_study(tmp_path, TRUTH[:1], widths=[4], balls=["formats_weights"], memory=False, complete=complete)
    paths = report.build(tmp_path)
    table = exported(paths, "formats")
    assert len(table) == len(HORIZONS) * (SEEDS - 1) * len(FORMATS)
    text = re.sub(r"\s+", " ", paths.text(width=200))
    assert text.count("0.1 0.4 0.8 [0.8, 2] ✗ 20 ✗") == 1  # at the longest horizon alone
    assert "0.8 [0.8, 2] ✗" in paths.page.read_text()
    assert "inconclusive" not in text
    for each in verdicts_of(paths.contents).values():
        assert {name: each.metrics[f"formats_weights/{name}"] for name in shares} == pytest.approx(shares)


def test_a_headline_of_many_settings_names_the_fewest_and_the_most_bits_and_who_does_not_fit(tmp_path: Path) -> None:
    names = ("direct", "exp", "softplus", "sigmoid", "square", "relu", "best", "tanh")
    conditions = tuple(Condition(parameterization=name, base=0.5 * 2.0**-place) for place, name in enumerate(names))

    def complete(index: int, tables: dict[str, pd.DataFrame]) -> None:
        at_whole_bits(conditions)(index * len(HORIZONS), tables)  # one horizon
        if conditions[index].parameterization == "tanh":
            tables["curves"][["error", "change"]] = ZERO_LOSS

    shown = {"widths": [4], "horizons": [HORIZONS[0]], "balls": ["fixed_recurrent"], "memory": False}
    write_study(tmp_path, conditions, complete=complete, **shown)
    paths = report.build(tmp_path)
    page = re.sub(r"\s+", " ", re.sub(r"<[^>]*>", "", paths.page.read_text()))
    assert "polynomial needs from 5 under direct to &gt;8 under best (no seed fits under 1 of 8)." in page
    text = paths.text(width=200)
    assert "growth" not in text  # one horizon has no slope
