"""Losses that are zero or below, models without a competitor, and seeds that not all models have."""

from __future__ import annotations

import math
import re
from collections.abc import Sequence
from types import SimpleNamespace
from typing import cast

import numpy as np
import pandas as pd
import pytest
from scipy.stats import wilcoxon

from memsweep.analyses.comparison.compare import _log_losses
from memsweep.report.analysis.contents import Contents
from memsweep.report.analysis.losses import LossRow, quantities
from memsweep.report.headline.paired import paired_sentence
from memsweep.report.headline.ranking import _behind, _best, _counts, _of_one_task, _single, seeds_to_rank
from memsweep.report.naming.conditions import Labels
from memsweep.report.naming.numbers import percent
from memsweep.report.rows.search import gap_text
from memsweep.stability.comparison.metrics import SeedValue
from memsweep.stability.comparison.paired import paired_test

NONE = "No model's loss is more than 1 % below that of one that forgets"


def row(model: str, losses: Sequence[float], task: str = "copying_memory", memoryless: float = math.nan) -> LossRow:
    """A model with these losses by seed."""
    columns = {"seed": range(len(losses)), "error": losses, "validation_loss": losses, "outcome": "done"}
    columns |= {"metric": None, "test_metric": math.nan, "memoryless_loss": memoryless, "zero_loss": 1.0}
    return LossRow({"task": task, "model": model}, 8, 32, pd.DataFrame(columns), np.arange(len(losses)))


def labels_of(rows: Sequence[LossRow]) -> Labels:
    return Labels([each.condition for each in rows])


@pytest.mark.parametrize("best", [0.0, -2.0])
def test_a_model_behind_one_without_a_positive_loss_has_not_diverged(best: float) -> None:
    rows = [row("lru", [best] * 5), row("rnn", [0.25] * 5)]
    assert _behind(*rows, quantities(rows)[0]) == "(0.25)"
    assert _behind(rows[1], row("gru", [math.inf] * 5), quantities(rows)[0]) == "(5 of 5 seeds diverged)"


def test_negative_losses_are_compared_by_differences() -> None:
    left, right = ([SeedValue(seed, value) for seed, value in enumerate(values)] for values in (BETTER, WORSE))
    found = paired_test("error", "less", left, right)
    assert (found.ratio, found.ties) == (False, 0)
    assert found.p < 0.05
    assert found.effect == pytest.approx(-3.0, abs=1.0)
    rows = [row("lru", BETTER), row("rnn", WORSE)]
    said = paired_sentence(rows[0], rows[1:], quantities(rows)[0], labels_of(rows))
    assert "`rnn` a loss higher by " in said
    assert "times" not in said


BETTER, WORSE = (-4.8, -5.0, -2.9, -4.8, -5.3, -5.2), (-1.6, -2.3, -0.8, -0.1, -2.9, -2.5)


def test_a_gap_of_a_search_value_that_is_not_positive_is_a_difference() -> None:
    assert gap_text(0.1, 0.5) == "20 % worse"
    assert gap_text(-1.2, 0.0) == "1.2 better"
    assert gap_text(-1.2, -0.04) == "1.2 better"


def test_a_negative_share_has_a_minus_and_no_exponent() -> None:
    assert [percent(share) for share in (-2.3, -0.59, 0.01, 1.0)] == ["−230 %", "−59 %", "1 %", "100 %"]


def test_a_pair_with_too_few_seeds_keeps_no_other_from_its_test() -> None:
    rows = [row("lru", np.linspace(0.1, 0.11, 8)), row("rnn", np.linspace(0.2, 0.22, 8)), row("gru", [0.3] * 4)]
    said = paired_sentence(rows[0], rows[1:], quantities(rows)[0], labels_of(rows))
    about = "signed ranks, two-sided, Holm over 3 pairs"
    assert said.startswith(f"Paired by seed, against the best of these seeds ({about}): `rnn` 2 times")
    assert said.endswith("; 1 more difference needs 7 common seeds.")


def test_of_alike_models_a_difference_is_resolved_in_a_twentieth_of_studies() -> None:
    rng, studies, resolved = np.random.default_rng(0), 400, 0
    for _ in range(studies):
        rows = sorted(
            (row(name, np.exp(rng.standard_normal(6))) for name in ("lru", "rnn")), key=lambda r: r.loss.middle
        )
        resolved += "not resolved" not in paired_sentence(rows[0], rows[1:], quantities(rows)[0], labels_of(rows))
    assert resolved / studies < 0.05 + 3 * math.sqrt(0.05 * 0.95 / studies)


def test_all_pairs_of_models_are_counted_whichever_is_best() -> None:
    rng = np.random.default_rng(1)
    rows = [row(name, np.exp(shift + 0.8 * rng.standard_normal(12))) for shift, name in enumerate("abc")]
    said = paired_sentence(rows[0], rows[1:], quantities(rows)[0], labels_of(rows))
    logs = [np.log(one.table["error"].to_numpy(float)) for one in rows]
    least, most = sorted(wilcoxon(logs[0] - other).pvalue for other in logs[1:])
    assert sorted(map(float, re.findall(r"p = (\S+)\)", said))) == [
        float(f"{p:.2g}") for p in (3 * least, max(3 * least, 2 * most))
    ]


def test_a_model_alone_is_best_of_none() -> None:
    alone, many = {"copying_memory": [row("lru", [0.1] * 5)]}, list[LossRow]()
    other = {"adding": [row("lru", [0.1] * 5, "adding"), row("rnn", [0.2] * 5, "adding")]}
    for rows in (alone | other).values():
        many += rows
    labels, by = labels_of(many), quantities(many)[0]
    said = _counts(alone | other, labels, by, "")
    assert said == "By test loss, `lru` is best, or its seeds overlap with the best, on 1 of 1 task."
    assert _best(alone["copying_memory"], labels, by) == "`lru` (0.1), alone"


def test_a_model_that_learns_nothing_is_not_counted_beside_one_that_does() -> None:
    """One seed of ``rnn`` is below the baseline of a model that forgets; ``lru``, whose seeds overlap, has none."""
    rows = [
        row("rnn", [0.5, 0.9, 0.91, 0.92, 0.93], memoryless=0.8),
        row("lru", [0.9, 0.91, 0.92, 0.93, 0.94], memoryless=0.8),
    ]
    by_memory = {"copying_memory": rows}
    said = _counts(by_memory, labels_of(rows), quantities(rows)[0], "")
    assert "lru" not in said
    assert "`rnn` is best" in said


def test_a_task_that_nobody_ranked_learns_is_named_and_breaks_nothing() -> None:
    """``rnn`` learned with two seeds, and its median diverged; ``lru`` has learned nothing."""
    rows = [row("rnn", [0.1, 0.1, math.inf, math.inf, math.inf], memoryless=0.8), row("lru", [0.9] * 5, memoryless=0.8)]
    said = _counts({"copying_memory": rows}, labels_of(rows), quantities(rows)[0], "")
    assert said == ("On copying_memory losses of seeds are below that of one that forgets, and no model's median is.")
    none = [row("rnn", [0.9] * 5, memoryless=0.8), row("lru", [0.9] * 5, memoryless=0.8)]
    said = _counts({"copying_memory": none}, labels_of(none), quantities(none)[0], "")
    assert said == f"{NONE} on copying_memory."
    assert _counts({"copying_memory": rows[:1]}, labels_of(rows), quantities(rows)[0], "") == ""


@pytest.mark.parametrize("memoryless", [math.nan, 0.7], ids=["unknown", "known"])
def test_models_that_learn_nothing_have_no_best_one(memoryless: float) -> None:
    """A model that answers zero forgets, too: its loss, 1 here, takes the place of a baseline that is not known."""
    alike = [row("rnn", [0.995, 1.0, 1.0, 1.0], "imdb", memoryless), row("lru", [1.0] * 4, "imdb", memoryless)]
    labels, by = labels_of(alike), quantities(alike)[0]
    median = "test loss 1, the median over 4 seeds."
    assert _of_one_task(alike, labels, "", by, "") == f"{NONE}: the best are `rnn` and `lru`, with {median}"
    assert _of_one_task(alike[:1], labels, "", by, "") == f"{NONE}: {median}"
    assert _best(alike, labels, by) == f"none ({NONE[0].lower()}{NONE[1:]})"
    other = row("rnn", [0.1] * 4, "adding", memoryless)
    said = _single({"imdb": alike[:1], "adding": [other]}, labels_of([alike[0], other]), by, "")
    assert said.endswith(f"{NONE} on imdb.")
    assert "`rnn`" in _of_one_task([other, alike[1]], labels, "", by, "")


@pytest.mark.parametrize(
    ("losses", "needed"),
    [
        ((0.1, 0.2), 6),
        ((0.1, 0.2, 0.3), 7),
        ((1.0, 0.2), 6),
        ((1.0, 1.0), 0),
        ((math.inf, 0.2), 0),
        ((math.inf,) * 2, 0),
    ],
)
def test_so_many_seeds_are_asked_for_as_the_test_needs_where_it_can_rank(losses: Sequence[float], needed: int) -> None:
    def asked(seeds: int) -> int:
        rows = [row(model, [loss] * seeds) for model, loss in zip(("lru", "rnn", "gru"), losses, strict=False)]
        return seeds_to_rank(cast(Contents, SimpleNamespace(losses=rows, labels=labels_of(rows))))

    assert [asked(seeds) for seeds in (2, 5)] == [needed] * 2
    assert asked(max(needed, 2)) == 0 or not needed
    rows = [row(name, np.linspace(low, low + 0.1, needed or 9)) for name, low in (("lru", 0.1), ("rnn", 0.3))]
    assert "not resolved" not in paired_sentence(rows[0], rows[1:], quantities(rows)[0], labels_of(rows))


def test_a_task_without_a_ranked_model_makes_a_study_one_of_several_tasks() -> None:
    rows = [
        row(model, [loss] * 2, task)
        for model, known in (("lru", 0.1), ("rnn", 0.2))
        for task, loss in (("adding", known), ("mqar", math.inf))
    ]
    assert seeds_to_rank(cast(Contents, SimpleNamespace(losses=rows, labels=labels_of(rows)))) == 4


def test_of_several_tasks_so_many_seeds_are_asked_for_as_part_ranges() -> None:
    rows = [
        row(model, [loss] * 2, task)
        for model, loss in (("lru", 0.1), ("rnn", 0.2))
        for task in ("adding", "copying_memory")
    ]
    assert seeds_to_rank(cast(Contents, SimpleNamespace(losses=rows, labels=labels_of(rows)))) == 4


def test_the_logarithm_of_a_loss_is_asked_for_where_there_is_one() -> None:
    assert _log_losses(row("lru", [1.0, math.e]))[1] == pytest.approx((1.0, 1.0))
