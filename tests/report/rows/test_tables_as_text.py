"""One table as text for a paper: escaped, with units and the notes on its marks."""

from __future__ import annotations

import io
import re
from dataclasses import replace
from pathlib import Path

import pandas as pd
import pytest
from searched_folder import SearchedFolder

from memsweep.report.analysis.contents import analyse
from memsweep.report.analysis.losses import Spread
from memsweep.report.export import table_as
from memsweep.report.formats import TABLES
from memsweep.report.read.study import load_study
from memsweep.report.rows.report import tables_of
from memsweep.report.values.table import Cell, Column, Table
from memsweep.stability.verdict.trend import Slope
from report_study import rate_conditions, write_study

HOSTILE = r"a_b & 50% $x$ #1 {c} ~d^ \e <f> |g| *h* `i` [j]"


@pytest.fixture
def table() -> Table[str]:
    columns: list[Column[str]] = [
        Column("name", lambda row: row),
        Column("verdict", lambda row: "stable", cell=lambda row: Cell("● stable†")),
        Column("slope", lambda row: Slope(-0.64, -0.66, -0.62), ends=True),
        Column("loss", lambda row: Spread(0.2, 0.1, float("inf")), unit="of L₀", ends=True),
        Column("reasons", lambda row: "a long sentence", style="reasons"),
    ]
    return Table("verdicts", "Verdicts", [HOSTILE, "=1+1"], columns, group=lambda row: "100 % of_them")


def test_latex_escapes_every_special_sign_and_has_as_many_columns_in_each_row(table: Table[str]) -> None:
    text = table_as(table, "latex")
    assert text.isascii()
    first = next(line for line in text.splitlines() if line.startswith("a"))
    name, verdict, slope, loss = re.split(r"(?<!\\)&", first.removesuffix(r" \\"))
    assert name.strip() == (
        r"a\_b \& 50\% \$x\$ \#1 \{c\} \textasciitilde{}d\textasciicircum{} "
        r"\textbackslash{}e $<$f$>$ $|$g$|$ *h* `i` [j]"
    )
    assert verdict.strip() == r"$\bullet$ stable$^\dagger$"
    assert slope.strip() == "$-$0.64 [$-$0.66, $-$0.62]"
    assert loss.strip() == r"0.2 [0.1, $\infty$]"
    assert r"loss (of L$_0$) \\" in text
    assert r"\multicolumn{4}{l}{100 \% of\_them} \\" in text
    for note in ("Slopes with 95 \\% intervals", "[smallest, largest]", r"$^\dagger$ a stronger search found more"):
        assert note in text
    assert "long sentence" not in text


def test_markdown_escapes_what_would_change_the_table(table: Table[str]) -> None:
    heading, _, head, rule, first, *_ = table_as(table, "markdown").splitlines()
    assert heading == r"**100 % of\_them**"
    assert [len(re.split(r"(?<!\\)\|", line)) for line in (head, rule, first)] == [6, 6, 6]
    assert first.startswith(r"| a\_b & 50% $x$ #1 {c} \~d^ \\e \<f\> \|g\| \*h\* \`i\` \[j\] | ● stable† |")


def test_csv_holds_the_numbers(table: Table[str]) -> None:
    read = pd.read_csv(io.StringIO(table_as(table, "csv")))
    assert list(read["slope_low"]) == [-0.66, -0.66]
    assert list(read["name"]) == [HOSTILE, "'=1+1"]
    assert list(read["reasons"]) == ["a long sentence"] * 2


def test_every_table_that_can_be_asked_for_has_columns_and_its_rows_in_each_format(tmp_path: Path) -> None:
    write_study(tmp_path / "sizes", widths=(2, 4, 8), memory=False)
    write_study(tmp_path / "rates", rate_conditions(), widths=(2, 4), horizons=(20, 40, 80), memory=False)
    history = SearchedFolder(objective=("error", "radius"), failing=(0,)).write(tmp_path / "searched")
    studies = [load_study(tmp_path / name) for name in ("sizes", "rates", "searched")]
    studies[-1] = replace(studies[-1], search=history)
    tables = [table for study in studies for table in tables_of(analyse(study)).named.values()]
    assert {"verdicts", "slopes", "losses", "differences", "ceilings", "winners", "search"} <= {t.name for t in tables}
    for table in tables:
        for form in TABLES:
            lines = table_as(table, form).splitlines()
            assert len(lines) > len(table.rows), (table.name, form)
            assert lines[0].strip("| "), (table.name, form)
            assert r"\begin{tabular}{}" not in lines, (table.name, form)
