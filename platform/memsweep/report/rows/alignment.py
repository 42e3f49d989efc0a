"""Gradients' alignment and the order of learning rules, as the sentences and rows that page and terminal print."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from memsweep.report.analysis.gradient_alignment import ALL, AlignmentRow, layer_name, layers_of
from memsweep.report.analysis.learning_rates import RateStudy
from memsweep.report.analysis.losses import LossRow, largest
from memsweep.report.analysis.rule_ranking import orders, sentence
from memsweep.report.naming.labels import Labels, show
from memsweep.report.rows.losses import spread_text
from memsweep.report.style import figure

_MOST_ORDERS = 4
_MOST_NAMED = 8


def order_sentences(rows: Sequence[LossRow], labels: Labels, rates: Sequence[RateStudy]) -> list[str]:
    """The order of the rules of each task and size; of many, the first, and how many more there are.

    None where the study varies the learning rate: at a rate that is right for one rule and wrong for another, an order
    says nothing of the rules.
    """
    found = [] if rates else orders(rows, labels)
    left_out = len(found) - _MOST_ORDERS
    more = f"{left_out} more conditions have several rules: see their losses."
    return [*map(sentence, found[:_MOST_ORDERS]), *([more] if left_out > 0 else [])]


def alignment_sentences(rows: Sequence[AlignmentRow], labels: Labels) -> list[str]:
    """The cosine of every layer, by task and condition, at the largest size; one sentence per task.

    Not that of all weights, in which a single long gradient may outweigh all others.
    """
    shown = {id(row) for row in largest([row.row for row in rows])}
    sentences = []
    for memory in dict.fromkeys(labels.memory(row.condition) for row in rows):
        part = [row for row in rows if id(row.row) in shown and labels.memory(row.condition) == memory]
        named = [f"{labels.machine(row.condition)} {_cosines(row)}" for row in part]
        left_out = len(named) - _MOST_NAMED
        more = f"; {left_out} more in alignment.csv" if left_out > 0 else ""
        text = "; ".join(named[:_MOST_NAMED])
        sentences.append(
            f"Cosine of each layer's gradient with that of bptt, from the input on, on {memory}: {text}{more}."
        )
    return sentences


def _cosines(row: AlignmentRow) -> str:
    """Medians over the seeds: ``0.93, 1``."""
    return ", ".join(figure(spreads["cosine"].middle) for layer, spreads in row.layers.items() if layer != ALL)


def alignment_table(rows: Sequence[AlignmentRow], labels: Labels) -> dict[str, Any]:
    """``columns``, all weights first, and ``rows`` of texts: a cosine and a norm ratio per layer."""
    layers = layers_of(rows)
    return {
        "columns": [layer_name(layer) for layer in layers],
        "rows": [
            {
                "memory": labels.memory(row.condition),
                "machine": labels.machine(row.condition),
                "width": show(row.row.width),
                "horizon": show(row.row.horizon),
                "steps": row.steps,
                "cells": [_cell(row, layer) for layer in layers],
            }
            for row in rows
        ],
    }


def _cell(row: AlignmentRow, layer: str) -> dict[str, str] | None:
    if layer not in row.layers:
        return None
    return {measure: spread_text(spread) for measure, spread in row.layers[layer].items()}
