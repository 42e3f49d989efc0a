"""For each adversarial study, the sentence that a careful statistician would write, and why.

They were written down before the code that makes them. Numbers in braces are recomputed from the report's CSV files.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Wanted:
    """A sentence.

    Attributes:
        sentence: the headline, with the names of numbers in braces.
        why: what it may not leave out.
    """

    sentence: str
    why: str


SENTENCES = {
    "whole": Wanted(
        "For T = 50 to 400 and widths 2 to 8 when the recurrent weights move, exponential memory is held stably under"
        " `direct` (T^{exponential direct}). Polynomial memory is not held stably under `direct` (T^{polynomial "
        "direct}); `exp` and `softplus` hold it (at worst {polynomial worst}).",
        "what was varied, and a slope with its interval for each claim; of several, the one nearest to the limit",
    ),
    "one width": Wanted(
        "For T = 50 to 400 at width 2 when the recurrent weights move, exponential memory is undecided under `direct`"
        " (1 width: stable needs 4). Polynomial memory is not held stably under `direct` (T^{polynomial direct}); "
        "undecided under `exp` and `softplus` (1 width: stable needs 4).",
        "one width shows an instability in T, and never stability",
    ),
    "one horizon": Wanted(
        "For widths 2 to 8 at T = 100 when the recurrent weights move, exponential memory is undecided under `direct`"
        " (1 horizon: a slope in the horizon needs 4). Polynomial memory is undecided under all 3 parameterizations "
        "(1 horizon: a slope in the horizon needs 4).",
        "one horizon says nothing of longer ones",
    ),
    "two seeds": Wanted(
        "For T = 50 to 400 and widths 2 to 8 when the recurrent weights move, exponential memory is undecided under "
        "`direct` (2 seeds: a verdict needs 5). Polynomial memory is undecided under all 3 parameterizations (2 "
        "seeds: a verdict needs 5).",
        "two seeds make no interval, however steep the slope is",
    ),
    "four suggestions": Wanted(
        "Not resolved: whether the best learning rate moves from width 2 to 8. 4 suggestions a cell, none retrained on "
        "fresh seeds.",
        "a winner without fresh seeds has no interval, so no two winners differ",
    ),
    "four suggestions, confirmed": Wanted(
        "Not resolved: whether the best learning rate moves from width 2 to 8 (m^{direct} under `direct`; m^{exp} "
        "under `exp`). 4 suggestions a cell leave it open.",
        "between four suggestions the best value may lie anywhere: the exponents' ranges hold 0",
    ),
    "two fresh seeds": Wanted(
        "Not resolved: whether the best learning rate moves from width 2 to 8. 4 suggestions a cell, 2 fresh seeds: an "
        "interval needs 6.",
        "an interval of two seeds says next to nothing",
    ),
    "two widths searched": Wanted(
        "Not resolved: whether the best learning rate moves with width. 2 widths: a trend needs 3.",
        "two ends are no law",
    ),
    "a search that resolves": Wanted(
        "From width 2 to 128 the best learning rate falls under `direct` (m^{direct}); no trend is resolved "
        "under `exp` (m^{exp}).",
        "an exponent over all widths, with the range that the neighbouring suggestions leave",
    ),
    "bimodal seeds": Wanted(
        "For T = 50 to 400 and widths 2 to 8 when the recurrent weights move, polynomial memory is undecided under "
        "`direct` (T^{slope} holds the limit −0.2; {below} of {seeds} seeds are steeper).",
        "the mean of two groups is the slope of no seed: how many lie on each side",
    ),
    "at its limit": Wanted(
        "For T = 50 to 400 and widths 2 to 8 when the recurrent weights move, polynomial memory is undecided under "
        "`direct` (T^{slope} holds the limit −0.2; {below} of {seeds} seeds are steeper).",
        "a slope that is the limit is on neither side",
    ),
    "just beyond its limit": Wanted(
        "For T = 50 to 400 and widths 2 to 8 when the recurrent weights move, polynomial memory is not held stably "
        "under `direct` (T^{slope}, {near} from the limit −0.2).",
        "how near the limit is, because the next study may be on the other side",
    ),
    "one threshold": Wanted(
        "For T = 50 to 400 and widths 2 to 8 when the recurrent weights move, polynomial memory is not held stably "
        "under `direct` (T^{slope}, at 1 % alone).",
        "at 3 % and 10 % it is not unstable: the headline says at which error it is",
    ),
    "all failed": Wanted(
        "All 16 trials failed: ValueError: bad.",
        "a study that failed has not 'not finished yet'",
    ),
    "some failed": Wanted(
        "For T = 50 to 400 and widths 2 to 5 when the recurrent weights move, polynomial memory is undecided under "
        "`direct` (3 widths: stable needs 4). 4 of 16 trials failed (model.width=8): ValueError: bad.",
        "what is missing may have been different: it is said beside what is known",
    ),
    "no fit": Wanted(
        "For T = 50 to 400 and widths 2 to 8 when the recurrent weights move, polynomial memory is undecided under "
        "`direct` (no model fits: error {error} or more of the zero predictor's, at most 0.5 % counts).",
        "a model that does not hold a memory cannot hold it stably, and the least error is not that of all",
    ),
    "everything equal": Wanted(
        "For T = 50 to 400 and widths 2 to 8 when the recurrent weights move, polynomial memory is undecided under "
        "all 3 parameterizations (the seeds do not differ: no interval).",
        "five copies of one seed are one seed",
    ),
    "33 settings": Wanted(
        "For T = 50 to 400 and widths 2 to 8 when the recurrent weights move, polynomial memory is not held stably "
        "under 11 of 33 settings (at best {best}); 22 hold it (at worst {worst}).",
        "counts instead of names, and the settings nearest to the limit by name",
    ),
    "balls by memory": Wanted(
        "For T = 50 to 400 and widths 2 to 8 when the recurrent weights move, exponential memory is held stably under"
        " `direct` (T^{exponential direct}). For T = 50 to 400 and widths 2 to 8 when all weights move, polynomial "
        "memory is not held stably under `direct` (T^{polynomial direct}); `exp` and `softplus` hold it (at worst "
        "{polynomial worst}).",
        "a memory that was measured in another ball alone is answered in it, and the ball is said",
    ),
    "few fits at the longest": Wanted(
        "For T = 50 to 400 and widths 2 to 8 when the recurrent weights move, polynomial memory is undecided under "
        "`direct` (2 of 4 widths fit at T = 400: a slope needs 4).",
        "how many models hold the memory, and where",
    ),
    "seeds and width": Wanted(
        "For T = 50 to 400 at width 2 when the recurrent weights move, polynomial memory is undecided under `direct` "
        "(2 seeds: a verdict needs 5; 1 width: stable needs 4).",
        "all that is missing is said at once",
    ),
    "most diverged": Wanted(
        "By test loss, `exp` is best ({loss}); behind is `direct` (3 of 5 seeds diverged).",
        "a model whose median seed diverged is never level with the best",
    ),
    "an outlier": Wanted(
        "By accuracy, `direct` has the best median ({best}), and the range of its seeds overlaps with that of `exp`. "
        "Paired by seed, against the best of these seeds (signed ranks, two-sided): `exp` {lead} behind (p = {p}).",
        "one outlier makes ranges overlap, and nine of ten seeds agree: the paired test says so, with its interval",
    ),
    "losses of two seeds": Wanted(
        "Not resolved: which is best by accuracy. 2 seeds: the test of a ranking needs 6. The best median is "
        "that of `exp` ({best}).",
        "of two pairs of seeds, one lies wholly above the other by chance in one case of three",
    ),
    "equal losses": Wanted(
        "By accuracy, `direct` and `exp` are equal, seed by seed (median {best}).",
        "the first of equals is no winner, and more seeds part no equal ones",
    ),
    "nothing yet": Wanted(
        "No trial of this study has finished yet: 16 are planned.",
        "nothing is known, and nothing is wrong",
    ),
}
