"""All tables of a report: those of conditions and trials as a whole, and those of its parts."""

from __future__ import annotations

import math
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from memsweep.report.analysis.contents import BALLS, Contents, Finding
from memsweep.report.analysis.losses import LossRow, Quantity, Spread, by_accuracy, largest, quantities
from memsweep.report.naming.numbers import percent
from memsweep.report.read.study import Study
from memsweep.report.rows import losses, verdicts
from memsweep.report.rows.failures import failure_table, missing_table, unusual_table
from memsweep.report.rows.verdicts import MOVES, short_verdict_cell
from memsweep.report.values.section import Glance, Place, Section, placed, sections_of
from memsweep.report.values.table import (
    CSV,
    EXPORTED,
    NOTHING,
    PAGE,
    Cell,
    Column,
    Table,
    condition_columns,
    spread_cell,
    spread_text,
)
from memsweep.stability.verdict.radius import THRESHOLD

_MEANS = (
    "Each line is one condition at its longest horizon and largest width; medians over seeds [least, most]. Error: a "
    "share of L₀, the zero predictor's loss. Of a model on sequences without a task L₀ is the variance of its outputs."
)
_LEAST = 2
"""Kinds of measurements beside the loss from which on the line of a condition says more than their own tables."""


@dataclass(frozen=True, eq=False)
class CellRow:
    """A condition with what was measured of it.

    Attributes:
        loss: at its largest size.
        findings: by ball.
        glances: numbers of the measures, by key; nan: not measured.
        kinds: how many kinds of measurements there are beside the loss.
        seconds: of training, for each step of each seed; nan: not known.
    """

    loss: LossRow
    findings: dict[str, Finding]
    glances: dict[str, Spread]
    kinds: int
    seconds: float

    def radius(self, ball: str) -> Spread:
        """At ``THRESHOLD`` and the largest size, over the seeds that fit; nan without one."""
        if (finding := self.findings.get(ball)) is None:
            return Spread.of([])
        radii = finding.radii[finding.radii["valid"].astype(bool) & (finding.radii["threshold"] == THRESHOLD)]
        longest = radii[radii["horizon"] == radii["horizon"].max()]
        return Spread.of(longest.loc[longest["width"] == longest["width"].max(), "radius"])


def cells_mean(cells: Table[CellRow], sections: Sequence[Section]) -> str:
    """What the numbers of the table are, those that were measured."""
    findings = [finding for row in cells.rows for finding in row.findings.values()]
    at = f"{percent(THRESHOLD)} {verdicts.share_of(findings)}"
    radius = [f"Radius: at an error of {at}, of the seeds that fit."] if findings else []
    words = dict.fromkeys(glance.words for section in sections for glance in section.glance)
    return " ".join([_MEANS, *radius, *filter(None, words)])


def cell_table(contents: Contents, glances: Sequence[Glance]) -> Table[CellRow]:
    """A line for each condition; without lines where its other tables say all that there is."""
    rows = [*_rows(contents, glances)]
    rows = rows if max((row.kinds for row in rows), default=0) >= _LEAST else []
    names, labels = contents.grouping.columns, contents.labels
    balls = [ball for ball in BALLS if any(ball in row.findings for row in rows)]
    columns: list[Column[CellRow]] = [
        *condition_columns(names, labels, lambda row: row.loss.condition),
        Column("width", lambda row: row.loss.width, varies=True),
        Column("horizon", lambda row: row.loss.horizon, varies=True),
        Column("error", _error, cell=_error_cell, ends=True, unit="of L₀"),
        Column("accuracy", _accuracy, cell=_accuracy_cell, ends=True, optional=True),
        *(column for ball in balls for column in _of_ball(ball)),
        *([Column("rule_version", _rule_version, views=EXPORTED)] if balls else []),
        *map(_of_glance, glances),
        # of one run on one machine: no number of the study, so no CSV file has it
        Column("time a step", lambda row: row.seconds, _milliseconds, views=frozenset({PAGE}), optional=True),
    ]
    return Table("cells", "Cells at a glance", rows, columns)


def _rows(contents: Contents, glances: Sequence[Glance]) -> Iterator[CellRow]:
    findings = {(finding.key, finding.ball): finding for finding in contents.verdicts}
    for row in largest(contents.trained):
        key = tuple(row.condition.values())
        own = {ball: finding for (of, ball), finding in findings.items() if of == key}
        yield CellRow(
            loss=row,
            findings=own,
            glances={glance.key: glance.value(row) for glance in glances},
            kinds=bool(own) + len({glance.kind or glance.key for glance in glances if _is_measured(glance, row)}),
            seconds=_seconds(contents, row),
        )


def _seconds(contents: Contents, row: LossRow) -> float:
    """Seconds of training a step and seed, by the records; each trial of a pack has its share of the pack's time."""
    records = [contents.measured.records[identity] for identity in row.identities]
    times = [
        (record["provenance"].get("phases") or {}).get("training", math.nan) / record["provenance"].get("members", 1)
        for record in records
    ]
    steps = float(row.column("steps").sum())
    return sum(times) / steps if steps else math.nan


def _of_ball(ball: str) -> Iterator[Column[CellRow]]:
    yield Column(
        f"verdict when {MOVES[ball]}",
        lambda row: str(row.findings[ball].judgement.verdict) if ball in row.findings else None,
        cell=lambda row: short_verdict_cell(row.findings[ball]) if ball in row.findings else Cell(NOTHING),
        key=f"verdict_{ball}",
    )
    yield Column(
        f"radius when {MOVES[ball]}", lambda row: row.radius(ball), _or_nothing, key=f"radius_{ball}", ends=True
    )


def _rule_version(row: CellRow) -> int | None:
    return max((finding.judgement.rule_version for finding in row.findings.values()), default=None)


def _is_measured(glance: Glance, row: LossRow) -> bool:
    return not math.isnan(glance.value(row).middle) if glance.is_measured is None else glance.is_measured(row)


def _of_glance(glance: Glance) -> Column[CellRow]:
    write = glance.cell
    return Column(
        glance.name,
        lambda row: row.glances[glance.key],
        cell=lambda row: spread_cell(row.glances[glance.key]) if write is None else write(row.loss),
        key=glance.key,
        ends=True,
        optional=glance.optional,
        unit=glance.unit,
    )


def _error(row: CellRow) -> Spread:
    zero, loss = row.loss.zero_loss, row.loss.loss
    return Spread(loss.middle / zero, loss.low / zero, loss.high / zero) if zero > 0 else Spread.of([])


def _error_cell(row: CellRow) -> Cell:
    return spread_cell(_error(row), percent)


def _accuracy(row: CellRow) -> Spread:
    return row.loss.value if by_accuracy(row.loss) else Spread.of([])


def _accuracy_cell(row: CellRow) -> Cell:
    return Cell(_or_nothing(_accuracy(row)))


def _or_nothing(spread: Spread) -> str:
    return NOTHING if math.isnan(spread.middle) else spread_text(spread, 2)


def _milliseconds(seconds: float) -> str:
    return NOTHING if math.isnan(seconds) else f"{1000 * seconds:.2g} ms"


_ROUNDED = "to 1e-6 relative, except for replicas whose training amplifies roundings"


def facts(study: Study) -> dict[str, str]:
    """Name -> value of the facts about all trials; values that differ between trials are all listed."""
    sources = [record["provenance"] for record in study.records.values()]
    found = {"study": study.name, "protocol": study.protocol}
    for name in ("code_revision", "code_fingerprint", "host", "device"):
        found[name.replace("_", " ")] = _joined(source.get(name) for source in sources)
    found["versions"] = _joined(f"{name} {one}" for s in sources for name, one in (s.get("versions") or {}).items())
    found["equality"] = equality(study.records)
    finished = sorted(str(source["finished"]) for source in sources if source.get("finished"))
    found["finished"] = " to ".join(dict.fromkeys([*finished[:1], *finished[-1:]]))
    packs = {
        source.get("pack"): float(source.get("seconds") or 0.0) for source in sources
    }  # all members carry its time
    found["computing time"] = f"{sum(packs.values()):.0f} s over {len(sources)} trials" if finished else ""
    return {name: value for name, value in found.items() if value}


def _joined(values: Iterable[Any]) -> str:
    return ", ".join(dict.fromkeys(str(value) for value in values if value))


def equality(records: Mapping[str, Mapping[str, Any]]) -> str:
    """How equal these results are to those of the same trials when they are recomputed, here or elsewhere.

    One class of processor and one set of versions give equal bits. Other classes round otherwise, to 1e-6 at most,
    except where training is chaotic: there a replica's first rounding grows until it is another fit.
    """
    classes = _classes(record["provenance"] for record in records.values())
    if not classes:
        return ""
    if len(classes) == 1:
        (name,) = classes
        return f"bit for bit: all {len(records)} results come from one class of processor and versions ({name})"
    listed = "; ".join(f"{name}: {number}" for name, number in classes.most_common())
    return f"{_ROUNDED}; the results come from {len(classes)} classes of processor and versions ({listed})"


def _classes(sources: Iterable[Mapping[str, Any]]) -> Counter[str]:
    """How many results come from each class of processor, versions and kernels."""
    named = [(_class(source), str(source.get("kernel_build") or "")) for source in sources]
    builds: dict[str, set[str]] = defaultdict(set)
    for name, build in named:
        builds[name] |= {build} - {""}
    # a trial that no kernel computed is of the class of the trials beside it
    return Counter(f"{name}, kernels {build}" if build and len(builds[name]) > 1 else name for name, build in named)


def _class(source: Mapping[str, Any]) -> str:
    """The processor and versions that decide a result's last bits."""
    processor, versions = source["processor"], source["versions"]
    names = [str(processor.get("model")), f"torch's {processor.get('torch')}", str(processor.get("instructions"))]
    return ", ".join(
        [*names, *(f"{name} {versions[name]}" for name in ("torch", "numpy", "scipy") if name in versions)]
    )


@dataclass(frozen=True)
class Tables:
    """The tables that page, terminal and CSV files show; those of something that a study lacks have no rows.

    Attributes:
        overviews: one per ball.
        searched: the search as sentences; none of a study that searches nothing.
        winners: of a search.
        across: the losses at the largest sizes, a row for each model, a column for each task; without rows where there
            are few.
        compared: what models are compared by -> a part of it, or of few tasks their ranking, the best first.
        sections: of the measures that were asked for, and of the analyses that have something to say.
        cells: all that was measured of a condition in one line; without rows where little was.
        exported: those that have a CSV file.
    """

    verdicts: Table[Any]
    overviews: tuple[Table[Any], ...]
    slopes: Table[Any]
    losses: Table[Any]
    across: Table[Any]
    compared: Mapping[Quantity, Table[Any]]
    sections: tuple[Section, ...]
    cells: Table[Any]
    searched: Sequence[str]
    winners: Table[Any] | None
    failures: Table[Any]
    missing: Table[Any]
    unusual: Table[Any]
    exported: tuple[Table[Any], ...]

    @property
    def named(self) -> dict[str, Table[Any]]:
        """The tables that can be asked for one by one, those without rows left out."""
        return {table.name: table for table in self.exported if table.rows}


def tables_of(contents: Contents) -> Tables:
    """Make the tables of a report."""
    names, labels, judged = contents.grouping.columns, contents.labels, contents.verdicts
    verdict_table = verdicts.verdict_table(judged, names, labels, contents.study)
    slopes = verdicts.slope_table(judged, names, labels)
    loss_table = losses.loss_table(contents.losses, names, labels)
    sections = sections_of(contents)
    cells = cell_table(contents, [glance for section in sections for glance in section.glance])
    searched, of_search = _of_search(contents)
    several = max((sum(f.ball == ball for f in judged) for ball in {f.ball for f in judged}), default=0)
    across = losses.across_table(contents.losses, labels)
    optional: tuple[Table[Any], ...] = (
        across,
        slopes,
        *_of(sections, Place.MEASURED),
        cells,
        *_of(sections, Place.COMPARED),
        loss_table,
        *_of(sections, Place.TRAINED),
        *_of(sections, Place.LAST),
    )
    return Tables(
        verdicts=verdict_table,
        overviews=tuple(verdicts.overviews(judged, labels)) if several > verdicts.MANY else (),
        slopes=slopes,
        losses=loss_table,
        across=across,
        compared=_compared(contents, across),
        sections=tuple(sections),
        cells=cells,
        searched=searched,
        winners=of_search[-1] if of_search else None,
        failures=failure_table(contents.study),
        missing=missing_table(contents.study),
        unusual=unusual_table(contents.measured),
        exported=(
            verdict_table,
            *(table for table in optional if table.rows),
            *of_search,
            *_of(sections, Place.FIRST),
        ),
    )


def _compared(contents: Contents, across: Table[Any]) -> dict[Quantity, Table[Any]]:
    rows, names, labels = contents.losses, contents.grouping.columns, contents.labels
    return {
        by: losses.across_table(rows, labels, by) if across.rows else losses.ranking_table(rows, names, labels, by)
        for by in quantities(rows)
    }


def _of_search(contents: Contents) -> tuple[Sequence[str], Sequence[Table[Any]]]:
    """The sentences and the tables of a search, that of the winners last; none of a study that searches nothing."""
    searched = contents.searched
    if searched is None:
        return (), ()
    from memsweep.report.rows import search

    return search.sentences(searched), (search.suggestion_table(searched), search.winner_table(searched))


def _of(sections: Sequence[Section], place: Place) -> list[Table[Any]]:
    """The tables of the sections at a place among the files."""
    return [section.table for section in placed(sections, CSV, place) if section.table is not None]
