"""One table as text for a paper: escaped, with units and the notes on its marks."""

from __future__ import annotations

import io
import re

import pandas as pd
import pytest

from memsweep.report.analysis.losses import Spread
from memsweep.report.export import table_as
from memsweep.report.values.table import Cell, Column, Table
from memsweep.stability.verdict.trend import Slope

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
