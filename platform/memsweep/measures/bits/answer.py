"""The answer of a study that asks for bits alone, in a sentence."""

from __future__ import annotations

import math
from collections.abc import Sequence

from memsweep.measures.bits.needed import BitsRow
from memsweep.measures.bits.tables import ROUNDED, bits_text
from memsweep.report.naming.conditions import Labels
from memsweep.report.naming.numbers import MOST_NAMED, joined


def answer(rows: Sequence[BitsRow], labels: Labels) -> str:
    """``Bits at the longest horizon (states, fixed point): polynomial needs 11 under direct and 5 under exp.``

    Of many settings the fewest and the most bits.
    """
    by_memory: dict[str, list[BitsRow]] = {}
    for row in rows:
        if row.rounding == rows[0].rounding:
            by_memory.setdefault(labels.memory(row.condition), []).append(row)
    clauses = [f"{memory} {_needed(own, labels)}" for memory, own in by_memory.items()]
    return f"Bits at the longest horizon ({ROUNDED[rows[0].rounding]}): {'; '.join(clauses)}."


def _needed(rows: Sequence[BitsRow], labels: Labels) -> str:
    """``needs 11 under direct and 5 under exp``, of rows of one memory."""

    def middle(row: BitsRow) -> float:
        return row.bits[max(row.bits)].middle

    def text(row: BitsRow) -> str:
        return f"{bits_text(middle(row), row)} under {labels.machine(row.condition)}"

    longest = max(max(row.bits) for row in rows)
    rows = [row for row in rows if max(row.bits) == longest]
    fitting = [row for row in rows if not math.isnan(middle(row))]
    if not fitting:
        return "is fitted by no seed"
    if len(fitting) > 2 and len({middle(row) for row in fitting}) == 1:
        said = f"needs {bits_text(middle(fitting[0]), fitting[0])} under each of {len(fitting)}"
    elif len(fitting) > MOST_NAMED:
        by_bits = sorted(fitting, key=middle)
        said = f"needs from {text(by_bits[0])} to {text(by_bits[-1])}"
    else:
        said = f"needs {joined([text(row) for row in fitting])}"
    unfit = len(rows) - len(fitting)
    return f"{said} (no seed fits under {unfit} of {len(rows)})" if unfit else said
