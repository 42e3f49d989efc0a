"""Models of the same numbers: none of them is a best one, and more seeds part them no further."""

from __future__ import annotations

import math
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any, cast

import numpy as np
import pandas as pd
import pytest

from memsweep.analyses.comparison.tables import _ratio_cell
from memsweep.report.analysis.contents import Contents
from memsweep.report.analysis.losses import LossRow, Quantity, is_equal, level, quantities
from memsweep.report.analysis.search.winners import Winner
from memsweep.report.headline.ranking import ranking_sentence, seeds_to_rank
from memsweep.report.headline.search import _standing
from memsweep.report.naming.conditions import Labels
from memsweep.stability.comparison.differences import alike, difference

SEVEN = (0.115, 0.2, 0.22, 0.238, 0.25, 0.3, 0.311)


def row(model: str, losses: Any, right: Any = math.nan, task: str = "adding") -> LossRow:
    """A model with these losses by seed, and these shares of right answers."""
    columns: dict[str, Any] = {
        "seed": range(len(losses)),
        "error": losses,
        "validation_loss": losses,
        "outcome": "done",
    }
    columns |= {"metric": None if np.all(np.isnan(right)) else "accuracy", "test_metric": right}
    columns |= {"memoryless_loss": math.nan, "zero_loss": 1.0}
    return LossRow({"task": task, "model": model}, 8, 32, pd.DataFrame(columns), np.arange(len(losses)))


def of(rows: Sequence[LossRow]) -> Contents:
    return cast(Contents, SimpleNamespace(losses=rows, labels=Labels([each.condition for each in rows])))


@pytest.mark.parametrize("seeds", [1, 2, 5, 7])
def test_models_of_equal_losses_are_said_to_be_equal_and_need_no_seeds(seeds: int) -> None:
    losses = np.array(SEVEN[:seeds])
    contents = of([row("lru", losses), row("rnn", losses * (1 + 1e-15))])
    median = f"{np.median(losses):.3g}"
    assert ranking_sentence(contents) == f"By test loss, `lru` and `rnn` are equal, seed by seed (median {median})."
    assert seeds_to_rank(contents) == 0


def test_equal_ones_are_best_together_and_others_are_behind_them() -> None:
    far = [row("lru", SEVEN), row("rnn", SEVEN), row("gru", np.array(SEVEN) * 4)]
    said = ranking_sentence(of(far))
    assert said.startswith(
        "By test loss, `lru` and `rnn` are best (0.238, equal seed by seed); behind is `gru` (4 times the loss). "
        "Paired by seed, against the best of these seeds (signed ranks, two-sided, Holm over 3 pairs): `gru` 4 times"
    )
    near = [*far[:2], row("gru", np.array(SEVEN) * 1.1)]
    assert (
        "`lru` and `rnn` have the best median (0.238, equal seed by seed), and the range of their seeds overlaps with "
        "that of `gru`. Paired"
    ) in ranking_sentence(of(near))
    few = of([row(each.condition["model"], each.losses[:2]) for each in far])
    assert ranking_sentence(few) == (
        "Not resolved: which is best by test loss. 2 seeds: the test of a ranking needs 7. The best median is that of "
        "`lru` and `rnn` (0.158, equal seed by seed)."
    )


def test_the_same_median_of_other_seeds_is_a_tie_of_the_median_alone() -> None:
    other = (0.1, 0.15, 0.21, 0.238, 0.26, 0.32, 0.33)
    said = ranking_sentence(of([row("lru", SEVEN), row("rnn", other)]))
    assert said.startswith(
        "By test loss, `lru` and `rnn` have the best median (0.238). Paired by seed, against `lru`, a"
    )
    said = ranking_sentence(of([row("lru", SEVEN), row("rnn", SEVEN), row("gru", other)]))
    assert "`lru`, `rnn` and `gru` have the best median (0.238; `lru` and `rnn` equal seed by seed). Paired" in said
    assert "1 times" not in said.partition("`gru`")[0]


def test_models_that_are_right_everywhere_are_equal_by_accuracy_and_not_by_loss() -> None:
    contents = of([row("lru", [0.1, 0.2], 1.0), row("rnn", [0.3, 0.4], 1.0)])
    assert ranking_sentence(contents) == "By accuracy, `lru` and `rnn` are equal, seed by seed (median 100.0 %)."
    assert seeds_to_rank(contents) == 0
    by = quantities(contents.losses)[-1]
    assert ranking_sentence(contents, by).startswith("Not resolved: which is best by test loss. 2 seeds")


def test_of_several_tasks_equal_ones_are_best_together() -> None:
    rows = [row(model, SEVEN, task=task) for model in ("lru", "rnn") for task in ("adding", "copying_memory")]
    both = "`lru` and `rnn` (0.238, equal seed by seed)"
    assert ranking_sentence(of(rows)) == f"By test loss, best are on adding {both}; on copying_memory {both}."
    assert seeds_to_rank(of([row(each.condition["model"], [0.1], task=each.condition["task"]) for each in rows])) == 0


def test_a_rounding_keeps_no_model_from_the_marks_of_the_best() -> None:
    rows = [row("lru", [0.3]), row("rnn", [0.1 + 0.2])]
    assert len(level(rows)) == len(level(rows[::-1])) == 2


def test_rows_of_other_seeds_are_not_equal() -> None:
    by = Quantity("")
    assert is_equal(row("lru", [0.1, math.inf]), row("rnn", [0.1, math.inf]), by)
    assert not is_equal(row("lru", [0.1, math.inf]), row("rnn", [0.1, 0.2]), by)
    assert not is_equal(row("lru", [0.1] * 2), row("rnn", [0.1] * 3), by)
    assert not alike(math.inf, 1.0)


def test_studies_of_equal_losses_have_no_ratio_of_one() -> None:
    sides = [{seed: (math.log(loss), math.log(loss)) for seed, loss in enumerate(SEVEN)} for _ in range(2)]
    apart = difference(*sides)
    assert apart.is_none
    assert not difference(sides[0], {seed: (low + 0.1 * seed,) * 2 for seed, (low, _) in sides[1].items()}).is_none
    compared = SimpleNamespace(same_weights=False, same=False, ratio=(1.0, 1.0, 1.0), log_difference=apart)
    assert _ratio_cell(compared).text == "equal"  # type: ignore[arg-type]


def test_a_winner_of_a_search_that_others_equal_says_so() -> None:
    winner = cast(Winner, SimpleNamespace(front=1, equal=2, fit=(0, 0), reading=""))
    assert _standing(winner) == " (2 other suggestions have its value in the search)"
