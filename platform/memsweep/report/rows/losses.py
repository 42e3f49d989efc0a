"""Losses as tables."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence

from memsweep.report.analysis.losses import (
    BELOW,
    CRITERIA,
    MANY_TASKS,
    LossRow,
    Quantity,
    Spread,
    is_unlearned,
    largest,
    level,
    quantities,
    ranked,
)
from memsweep.report.naming.conditions import KERNEL, Labels
from memsweep.report.naming.numbers import figure, joined, percent, show
from memsweep.report.values.table import (
    ALL,
    CSV,
    EXPORTED,
    PAGE,
    SHOWN,
    Cell,
    Column,
    Table,
    condition_columns,
    spread_text,
)

ACROSS = (
    "●: the best of its task, or its seeds overlap with those of the best. ✗: no seed is below the baseline, or where "
    f"none is known, more than {percent(1 - BELOW)} below the model that answers zero."
)
LONGER = "2T, 4T: in test sequences of two or four times the trained length T."
BASELINE = (
    f"A seed is below the memoryless baseline, the best that a model can do which forgets each input after its own "
    f"step, when its loss is more than {percent(1 - BELOW)} smaller."
)


def loss_table(rows: Sequence[LossRow], names: Sequence[str], labels: Labels) -> Table[LossRow]:
    """The final loss and metric of each condition, width and horizon."""
    metrics = {row.metric for row in rows if row.metric}
    metric = metrics.pop().replace("_", " ") if len(metrics) == 1 else ""  # the one that all have names its column
    baseline = ALL if has_baseline(rows) else EXPORTED
    columns: list[Column[LossRow]] = [
        *condition_columns(names, labels),
        Column("width", lambda row: row.width, varies=True),
        Column("horizon", lambda row: row.horizon, varies=True),
        Column("seeds", lambda row: row.seeds, views=EXPORTED),
        Column(f"loss{_over(rows)}", lambda row: row.loss, key="loss", ends=True),
        *([Column("loss over", lambda row: _times(row.times), views=SHOWN)] if _differ_in_times(rows) else []),
        Column("relative loss", _relative_loss, percent, key="relative_loss", unit="of L₀"),
        Column("memoryless baseline", lambda row: row.memoryless, key="memoryless_loss", views=baseline),
        Column("below it", _below, cell=_below_cell, key="below_memoryless", unit="seeds", views=baseline),
        Column("metric", lambda row: row.metric or None, views=EXPORTED),
        Column(
            metric or "metric",
            lambda row: row.value,
            cell=lambda row: _metric_cell("" if metric else row.metric, row.metric, row.value),
            key="metric_value",
            ends=True,
            optional=True,
        ),
        *(_of_longer(name) for name in dict.fromkeys(name for row in rows for name in row.longer)),
        Column(
            "best step",
            lambda row: row.spread("best_step"),
            lambda steps: spread_text(steps, digits=6),
            key="best_step",
            ends=True,
            optional=True,
            varies=True,
        ),
        Column("diverged", lambda row: row.diverged, cell=_diverged_cell, unit="seeds", optional=True),
        *map(_criterion, CRITERIA),
    ]
    return Table("losses", "Final losses", rows, columns)


def _over(rows: Sequence[LossRow]) -> str:
    """`` over 4T``, where test sequences are longer than those of training, and a metric at T may stand beside it."""
    times = {row.times for row in rows}
    return f" over {_times(times.pop())}" if len(times) == 1 and times != {1} else ""


def _differ_in_times(rows: Sequence[LossRow]) -> bool:
    """Whether some losses are over longer sequences than others, of which each row then tells."""
    return len({row.times for row in rows}) > 1


def _times(times: int) -> str:
    return "T" if times == 1 else f"{times}T"


def ranking_table(rows: Sequence[LossRow], names: Sequence[str], labels: Labels, by: Quantity) -> Table[LossRow]:
    """Of every condition at its largest size, what ranks it, memory by memory, the best first."""
    by_memory: dict[str, list[LossRow]] = {}
    for row in filter(by.is_known, largest(rows)):
        by_memory.setdefault(labels.memory(row.condition), []).append(row)
    best = [row for alike in by_memory.values() for row in ranked(alike, by)]
    measured = {"loss" if not by.is_share(row) else by.key(row) for row in best}
    columns = [
        c for c in loss_table(best, names, labels).columns if (c.key or c.name) in {"under", "diverged", *measured}
    ]
    group = (lambda row: labels.memory(row.condition)) if len(by_memory) > 1 else None
    return Table("losses", f"Ranking{at_size(best, rows)}: median over seeds [smallest, largest]", best, columns, group)


def at_size(best: Sequence[LossRow], rows: Sequence[LossRow]) -> str:
    """`` at width 32 and horizon 200``: where all are ranked, if there are other sizes."""
    sizes = {(row.width, row.horizon) for row in best}
    if len(sizes) > 1 or sizes == {(row.width, row.horizon) for row in rows}:
        return ""
    ((width, horizon),) = sizes
    ends = [f"{name} {show(value)}" for name, value in (("width", width), ("horizon", horizon)) if value is not None]
    return f" at {joined(ends)}"


def across_table(
    rows: Sequence[LossRow], labels: Labels, by: Quantity | None = None
) -> Table[tuple[str, Mapping[str, LossRow]]]:
    """A row for each machine, a column for each memory, at the largest sizes: which model holds which memory.

    Without rows where there are few memories, one machine, or less than half of their pairs.

    Args:
        rows: of all machines.
        labels: their names.
        by: the number that is shown, of the memories that were measured so. None: what ranks them, and where a memory
            is tested on longer sequences, a second column for the longest.
    """
    memories: dict[str, list[LossRow]] = {}
    machines: dict[str, dict[str, LossRow]] = {}
    for row in largest(rows):
        memory, machine = labels.names(row.condition)
        memories.setdefault(memory, []).append(row)
        machines.setdefault(machine, {})[memory] = row
    pairs = sum(map(len, memories.values()))
    whole = len(memories) >= MANY_TASKS and len(machines) > 1 and 2 * pairs >= len(memories) * len(machines)
    name: Column[tuple[str, Mapping[str, LossRow]]] = Column("under", lambda line: line[0], style="name")
    known = quantities(rows)
    title = f"Models by task: {(by or known[0]).title}"
    columns = [name, *(column for m, alike in memories.items() for column in _of_memory(m, alike, by, known))]
    return Table("tasks", title, [*machines.items()] if whole else [], columns)


def _of_memory(
    memory: str, rows: Sequence[LossRow], by: Quantity | None, known: Sequence[Quantity]
) -> Iterator[Column[tuple[str, Mapping[str, LossRow]]]]:
    """The column of a memory, or those of it and of its longest sequences."""
    if by is not None:
        yield from (_column(memory, rows, by) for _ in range(any(map(by.is_known, rows))))
        return
    yield _column(memory, rows, known[0])
    longest = [one for one in known if one.times > 1 and any(map(one.is_known, rows))][-1:]
    yield from (_column(f"{memory}, {one.times}T", rows, one) for one in longest)


def _column(name: str, rows: Sequence[LossRow], by: Quantity) -> Column[tuple[str, Mapping[str, LossRow]]]:
    known = [row for row in rows if by.is_known(row)]
    best, own = {id(row) for row in level(known, by)}, {id(row) for row in known}

    def found(line: tuple[str, Mapping[str, LossRow]]) -> LossRow | None:
        return next((row for row in line[1].values() if id(row) in own), None)

    def cell(line: tuple[str, Mapping[str, LossRow]]) -> Cell:
        row = found(line)
        return Cell("") if row is None else _across_cell(row, by, best=id(row) in best)

    def value(line: tuple[str, Mapping[str, LossRow]]) -> Spread | None:
        return None if (row := found(line)) is None else by.spread(row)

    return Column(name, value, cell=cell, ends=True)


def across_means(table: Table[tuple[str, Mapping[str, LossRow]]]) -> str:
    """What the signs and the columns of ``across_table`` mean."""
    longer = any(row.longer for _, of_machine in table.rows for row in of_machine.values())
    return f"{ACROSS} {LONGER}" if longer else ACROSS


def number_text(value: float, row: LossRow, by: Quantity, places: int = 1) -> str:
    """A number of a row as table, picture and page write it: ``99.7 %`` of a share, else a loss."""
    return f"{100 * value:.{places}f} %" if by.is_share(row) and math.isfinite(value) else figure(value)


def _across_cell(row: LossRow, by: Quantity, *, best: bool) -> Cell:
    sign, tone = (" ✗", "bad") if is_unlearned(row, by) else (" ●", "stable") if best else ("", "")
    middle = by.spread(row).middle
    text, short = (f"{number_text(middle, row, by, places)}" for places in (1, 0))
    shorter = (f"{short}{sign}", f"{short.removesuffix(' %')}{sign}") if by.is_share(row) else ()
    return Cell(f"{text}{sign}", tone, shorter=shorter)


def has_baseline(rows: Sequence[LossRow]) -> bool:
    """Whether any row has a memoryless baseline to beat, and its task asks no question of a kernel."""
    return any(row.memoryless > 0 and row.condition.get(KERNEL) is None for row in rows)


def _relative_loss(row: LossRow) -> float:
    return row.loss.middle / row.zero_loss if row.zero_loss > 0 else math.nan


def _criterion(name: str) -> Column[LossRow]:
    heading, views = f"gradient / weight, {criterion_word(name)}", frozenset({PAGE, CSV})
    return Column(heading, lambda row: row.spread(name).middle, key=name, views=views, optional=True)


def criterion_word(name: str) -> str:
    """``max``, ``90 %`` or ``median``, of one of ``CRITERIA``."""
    return name.removeprefix("gradient_over_weight_").replace("q90", "90 %")


def _of_longer(name: str) -> Column[LossRow]:
    return Column(
        name.replace("_", " "),
        lambda row: row.longer.get(name),
        cell=lambda row: _metric_cell("", name, row.longer.get(name, Spread.of([]))),
        key=name,
        ends=True,
    )


def _below(row: LossRow) -> int | None:
    return row.below if row.memoryless > 0 else None


def _below_cell(row: LossRow) -> Cell:
    if _below(row) is None:
        return Cell("")
    return Cell(f"{row.below} of {row.seeds}", tone="stable" if row.below == row.seeds else "")


def _diverged_cell(row: LossRow) -> Cell:
    return Cell(f"{row.diverged} of {row.seeds}" if row.diverged else "", tone="bad")


def _metric_cell(shown: str, metric: str, value: Spread) -> Cell:
    """``93.1 [92.0, 94.0] %``, or plain numbers for a metric that is no share; empty without a value.

    Args:
        shown: a name to stand before it.
        metric: its name.
        value: over the seeds.
    """
    if not metric or math.isnan(value.middle):
        return Cell("")
    name, share = shown.replace("_", " ") + " " * bool(shown), "accuracy" in metric
    ends = (value.middle, value.low, value.high)
    middle, low, high = (f"{100 * end:.1f}" if share else figure(end) for end in ends)
    unit = " %" if share else ""
    short = f"{name}{middle}{unit}"
    return Cell(f"{name}{middle} [{low}, {high}]{unit}" if low != high else short, shorter=(short,))
