"""What a report says of bits and number formats: three sections, from the rows of each."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence

from memsweep.measures.bits.answer import answer
from memsweep.measures.bits.needed import BitsRow, FormatsRow, bits_of, bits_panels, bits_rows, formats_rows
from memsweep.measures.bits.tables import BITS_MEAN, FORMATS_MEAN, ROUNDED, bits_table, bits_text, formats_table
from memsweep.report.analysis.contents import Contents
from memsweep.report.analysis.losses import LossRow, Spread
from memsweep.report.naming.conditions import Labels
from memsweep.report.naming.numbers import percent
from memsweep.report.values.chart import Chart, chart, spread_point
from memsweep.report.values.section import Glance, Place, Rank, Section, slope_metrics
from memsweep.report.values.table import NOTHING, PAGE, Cell, spread_cell
from memsweep.stability.verdict.radius import THRESHOLD

_CURVES = (
    "The bits at which the error stays within its limit, against the horizon: medians over the seeds that fit, bands "
    "from the fewest to the most. A memory whose bits grow in proportion to log T costs so many bits for each "
    "doubling. Points at the fewest bits that were measured are bounds."
)

_AT = f"Bits: at an error of {percent(THRESHOLD)} of L₀."
_MEANING = "Bits:", BITS_MEAN.removeprefix("Bits: ")


def sections(contents: Contents) -> list[Section]:
    """The bits that each condition needs, the errors in number formats, and the bits against the horizon."""
    rows, formats = bits_rows(contents.measured, contents.grouping), formats_rows(contents.measured, contents.grouping)
    names, labels = contents.grouping.columns, contents.labels
    needed, lost = bits_table(rows, names, labels), formats_table(formats, names, labels)
    said = [answer(rows, labels)] if rows else []
    return [
        Section(
            needed.title,
            BITS_MEAN,
            needed,
            metrics=_metrics(rows),
            tags=_tags(rows),
            glance=_glances(rows),
            answer=said,
            rank=Rank.ALONE,
            meaning=_MEANING,
            anchor="bits",
        ),
        Section(lost.title, FORMATS_MEAN, lost, metrics=_shares(formats), anchor="formats", heading=lost.title),
        Section(
            "Bits against memory",
            _CURVES,
            charts=[*_charts(rows, labels)],
            anchor="bits-against-memory",
            drawn="bits",
            places={PAGE: Place.BEHIND},
        ),
    ]


def _metrics(rows: Sequence[BitsRow]) -> dict[str, dict[str, float]]:
    """``bits_fixed_states/bits``, the median over the seeds that fit, and ``slope`` with its ends."""
    found = defaultdict[str, dict[str, float]](dict)
    for row in rows:
        for identity, radii in row.radii.groupby("identity"):
            own = found[str(identity)]
            own.update(slope_metrics(row.slope, f"bits_{row.rounding}"))
            if math.isfinite(needed := bits_of(radii).middle):
                own[f"bits_{row.rounding}/bits"] = needed
    return found


def _tags(rows: Sequence[BitsRow]) -> dict[str, dict[str, str]]:
    """``verdict``, of ``Growth``, and ``holds``: the horizon and the bits that hold it, as ``T = 800 at 7 bits``."""
    found = defaultdict[str, dict[str, str]](dict)
    for row in rows:
        for identity, radii in row.radii.groupby("identity"):
            own = found[str(identity)]
            own[f"bits_{row.rounding}/verdict"] = row.growth.value
            if not math.isnan(needed := bits_of(radii).middle):
                text = f"T = {radii['horizon'].iloc[0]:g} at {bits_text(needed, row)} bits"
                own[f"bits_{row.rounding}/holds"] = text
    return found


def _shares(rows: Sequence[FormatsRow]) -> dict[str, dict[str, float]]:
    """``formats_weights/bfloat16``, the median over the seeds of the error's share of the zero predictor's loss."""
    found = defaultdict[str, dict[str, float]](dict)
    for row in rows:
        for identity, errors in row.errors.groupby("identity", observed=True):
            shares = {name: Spread.of(errors.loc[errors["format"] == name, "share"]).middle for name in row.by_format}
            numbers = {f"{row.rounding}/{name}": share for name, share in shares.items() if math.isfinite(share)}
            found[str(identity)].update(numbers)
    return found


def _glances(rows: Sequence[BitsRow]) -> list[Glance]:
    """The bits of a condition at its longest horizon, by rounding."""
    return [_glance(name, rows) for name in dict.fromkeys(row.rounding for row in rows)]


def _glance(rounding: str, rows: Sequence[BitsRow]) -> Glance:
    own = {tuple(row.condition.values()): row for row in rows if row.rounding == rounding}

    def value(loss: LossRow) -> Spread:
        row = own.get(tuple(loss.condition.values()))
        return row.bits[max(row.bits)] if row is not None and row.bits else Spread.of([])

    def cell(loss: LossRow) -> Cell:
        row = own.get(tuple(loss.condition.values()))
        return Cell(NOTHING) if row is None else spread_cell(value(loss), lambda bits: bits_text(bits, row))

    def is_measured(loss: LossRow) -> bool:
        return tuple(loss.condition.values()) in own

    name, key = f"bits: {ROUNDED[rounding]}", f"bits_{rounding}"
    return Glance(name, key, _AT, value, cell=cell, is_measured=is_measured, kind="bits", optional=False)


def _charts(rows: Sequence[BitsRow], labels: Labels) -> Iterator[Chart]:
    for (memory, machine, what), part in bits_panels(rows, labels).items():
        lines = {
            ROUNDED[row.rounding]: [
                spread_point(horizon, bits) for horizon, bits in row.bits.items() if bits.middle < math.inf
            ]
            for row in part
        }
        yield chart(f"{memory}, {machine}: {what}", "horizon T (steps)", "bits", "x", lines, whole="y")
