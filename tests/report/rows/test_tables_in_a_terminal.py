"""A table in a terminal of any width: names stay whole, values are not cut, and what has no room is named."""

from __future__ import annotations

import io
from functools import partial

import pytest
from rich.console import Console

from memsweep.report.terminal import table_parts
from memsweep.report.values.table import PAGE, TERMINAL, Column, Table

UNITS = ("delta_net · largest_beta 1", "delta_net · largest_beta 2", "attention")
SHOWN = frozenset({TERMINAL})


MEMORIES = [f"lag_kernel (dispersion {d}, peakiness {p}, support {s})" for d in (2, 6) for p in (1, 4) for s in (2, 8)]


def written(width: int) -> list[str]:
    columns: list[Column[str]] = [
        Column("under", lambda row: row, style="name", views=SHOWN),
        *[Column(f"loss {index}", lambda row: "0.12345678", views=SHOWN) for index in range(5)],
    ]
    return lines_of(Table("losses", "Losses", UNITS, columns), width)


def lines_of(table: Table[str], width: int) -> list[str]:
    console = Console(file=io.StringIO(), width=width, highlight=False)
    for part in table_parts(table, width):
        console.print(part)
    assert isinstance(console.file, io.StringIO)
    return [line.rstrip() for line in console.file.getvalue().splitlines()]


@pytest.mark.parametrize("width", [120, 80, 60, 40])
def test_two_names_are_never_cut_to_one(width: int) -> None:
    lines = written(width)
    assert max(map(len, lines)) <= width
    names = " ".join(line[:28].partition("0.1")[0].strip() for line in lines)
    for unit in UNITS:
        assert unit.replace(" ", "") in names.replace(" ", "")
    assert not any("…" in line for line in lines)


def test_columns_without_room_are_left_out_whole_and_named() -> None:
    assert sum(line.count("0.12345678") for line in written(120)) == 5 * len(UNITS)
    lines = written(40)
    shown = sum(line.count("0.12345678") for line in lines) / len(UNITS)
    assert 0 < shown < 5
    assert " ".join(lines).count("No room here for") == 1
    assert f"No room here for loss {shown:.0f}, " in " ".join(lines)


@pytest.mark.parametrize("grouped", [False, True])
def test_many_names_over_few_lines_become_lines(grouped: bool) -> None:
    """Over a column of a few letters a name is a column of syllables."""
    columns: list[Column[str]] = [
        Column("under", lambda row: row, style="name", views=SHOWN),
        *[
            Column(name, partial(lambda index, row: f"{row[0]}{index}", index), views=SHOWN, style="")
            for index, name in enumerate(MEMORIES)
        ],
    ]
    group = (lambda row: f"maps of {len(row)}") if grouped else None
    table = Table("overview", "Overview", ("direct", "exp"), columns, group)
    shown = lines_of(table, 80)
    heading, lines = shown[: -len(MEMORIES)], shown[-len(MEMORIES) :]
    words = ["maps", "maps", "of", "of", "6", "3", "·", "·"] if grouped else []
    assert sorted(" ".join(heading).split()) == sorted(["direct", "exp", *words])
    assert [line.split("  ")[0] for line in lines] == MEMORIES
    assert [line.split()[-2:] for line in lines] == [[f"d{index}", f"e{index}"] for index in range(len(MEMORIES))]
    wide = lines_of(table, 700)
    assert wide[0].split("  ")[-1].strip() == MEMORIES[-1]  # where there is room, lines stay lines


@pytest.mark.parametrize(("hidden", "shown"), [(False, 3), (True, 2)])
def test_no_line_is_left_out_without_a_word(hidden: bool, shown: int) -> None:
    """Two seeds with one value stay two lines, but where the page alone has what tells them apart."""
    seeds = ["0.5 first", "0.5 second", "0.7 third"]
    columns: list[Column[str]] = [Column("leak", lambda row: row[:3], views=SHOWN)]
    columns += [Column("seed", lambda row: row[4:], views=frozenset({PAGE}))] if hidden else []
    lines = lines_of(Table("leaks", "Leaks", seeds, columns), 80)
    assert sum(line.strip() in {"0.5", "0.7"} for line in lines) == shown
    assert ("1 more looks alike here: leaks.csv of the report has all." in lines) == hidden
