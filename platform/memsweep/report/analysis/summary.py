"""Words that page and terminal share: which weights move, and why there is no verdict."""

from __future__ import annotations

from collections.abc import Sequence

from memsweep.report.naming.numbers import joined, limit, percent
from memsweep.stability.verdict.judgement import DEFAULT, Criteria

MOVES = {
    "recurrent": "the recurrent weights move",
    "weights": "all weights but the biases move",
    "all": "all weights move",
}
NOT_FINISHED = "No verdict yet: no trial of this study has finished."
NOT_ASKED = "No verdict: this study asks no question of stability."
CHOSEN_LATER = "chosen after the results were seen, so that the error rates of the rule do not hold for these verdicts"


def judged(criteria: Criteria) -> str:
    """The sentence that goes with verdicts of another rule than the usual one; empty for the usual one."""
    if criteria == DEFAULT:
        return ""
    return (
        f"Judged again from the stored results, at thresholds of {_listed(criteria.thresholds)} and a slope "
        f"limit of {limit(criteria.slope_limit)} (the rule: "
        f"{_listed(DEFAULT.thresholds)} and {limit(DEFAULT.slope_limit)}): {CHOSEN_LATER}. Worst pushes were "
        f"searched most thoroughly near {_listed((min(DEFAULT.thresholds), max(DEFAULT.thresholds)))}."
    )


def _listed(thresholds: Sequence[float]) -> str:
    return joined([percent(threshold) for threshold in thresholds])
