"""The next round: for each open question the addition that costs least for the verdicts that are expected of it."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

from memsweep.report.analysis.bounds import MARKED
from memsweep.stability.verdict.judgement import SMALLEST_SEEDS
from memsweep.studies.decide.forecast import chance
from memsweep.studies.decide.options import ABOVE, BELOW, EFFORT, LEARNERS_AMONG, LONGER, STEPS, Option, designs
from memsweep.studies.decide.question import Question

Cost = Callable[[Question, Option], float]
"""Core seconds of what an option adds; infinite where it cannot be added."""
ROUNDS = 10
"""Most rounds of a question: the rule's interval spends a part of its error at each look at new results of it."""
ROUND = 0.25
"""The largest share of a limit that one round takes, unless its first addition alone is dearer."""
DEAR = 2.0
"""An addition that costs more than so many times what those before it in a round cost together waits."""
FREE = 0.025
"""The share of a limit up to which a round takes the next addition, however dear beside the others."""
LEAST = 0.1
"""The least chance of a verdict for which an addition is made."""
MOST = 0.9
"""The chance above which a forecast says no number: so often the likeliest ones come true (docs/evidence/decide.md)."""
EVEN = 0.5
"""The chance that is taken of what has no forecast: a repair, and what the rule lacks."""
RARE = 0.25
"""That of a longer training of all cells: of four modules in docs/evidence/decide.md one was decided by it."""
NEAR = 20.0
"""Seeds that miss the allowed error by at most this factor are trained twice as long: a tenth of the loss of zero."""
REPAIRED = {BELOW: 4, ABOVE: 4, EFFORT: 1, STEPS: 2, LONGER: 2}
"""How often each repair is tried on a condition."""
FAR_SEEDS = (250, 400, 630, 1000)
"""Numbers of seeds that a forecast names, and that no round trains."""


@dataclass(frozen=True)
class Chosen:
    """The addition for one question.

    Attributes:
        question: that is open.
        option: what is added; None where nothing that a round may do has a chance to decide it.
        cost: core seconds of the option; of what would be needed, where there is none.
        needed: what would be needed beyond what a round may do; None where there is an option, or nothing is known to.
        chance: of a verdict, by forecast; None where there is no forecast.
    """

    question: Question
    option: Option | None
    cost: float = 0.0
    needed: Option | None = None
    chance: float | None = None

    @property
    def odds(self) -> float:
        """The chance, or what is taken for it."""
        if self.chance is not None:
            return self.chance
        return RARE if self.option is not None and LONGER in self.option.repairs else EVEN

    @property
    def told(self) -> str:
        """The chance in words; empty where there is no forecast. No forecast is better than MOST."""
        if self.chance is None:
            return ""
        return f"{self.chance:.0%}" if self.chance < MOST else f"{MOST:.0%} or more"

    @property
    def words(self) -> str:
        """The option in words, with its chance of a verdict where there is a forecast."""
        if self.option is None:
            return ""
        odds = f" (chance of a verdict: {self.told})" if self.told else ""
        return f"{self.option.words(self.question.design)}{odds}"

    def per_verdict(self, fare: float = 0.0) -> float:
        """Core seconds for each verdict that is expected of many such additions.

        Args:
            fare: of a round, where additions for one question are compared (``fare_of``).
        """
        return max(self.cost, fare) / self.odds


def fare_of(limit: float, questions: int) -> float:
    """Core seconds that a round of a question counts for at least: its share of the limit.

    A question has ROUNDS, and cheap additions used them up on a part of the limit (docs/evidence/decide.md). So of
    additions that cost less than this, the likeliest is made. Without a limit it is 0.

    Args:
        limit: core seconds of the whole; infinite for none.
        questions: that are open, and share it.
    """
    return limit / ROUNDS / questions if limit < math.inf else 0.0


def choose(
    question: Question, cost: Cost, tried: Sequence[str] = (), most: float = math.inf, fare: float = 0.0
) -> Chosen:
    """The addition for a question, or that there is none.

    Args:
        question: that is open.
        cost: of an option.
        tried: the repairs of earlier rounds.
        most: core seconds that an addition may cost.
        fare: of a round (``fare_of``).
    """
    wrong, every = _repairs(question, tried, cost), list(designs(question))
    if wrong and wrong[0][1].repairs != (EFFORT,):
        price, option = wrong[0]
        filled = _filled(question, cost, every) if option.repairs == (STEPS,) else None  # by more seeds, or widths
        if filled is not None and filled[0] < price * question.odds(filled[1].design):
            price, option = filled
        return Chosen(question, option, price)
    if _unfit(question):
        return Chosen(question, None)
    found = _likely(question, cost, every, most, fare)
    if wrong:
        mended = Chosen(question, wrong[0][1], wrong[0][0])
        if found is None or mended.per_verdict(fare) < found.per_verdict(fare):
            return mended
    if (found is None or found.odds < EVEN) and (filled := _filled(question, cost, every)) is not None:
        return Chosen(question, filled[1], filled[0])
    if found is None:
        amount = _likely(question, cost, [*every, *designs(question, FAR_SEEDS)]) or Chosen(question, None, math.inf)
        found = replace(amount, option=None, needed=amount.option)
    # intervals that the rule cannot make yet are in no forecast
    return replace(found, chance=None) if question.gaps else found


def longer(question: Question, cost: Cost, tried: Sequence[str] = ()) -> Chosen | None:
    """Twice the training of every cell; arguments as of ``choose``.

    Seeds that learn the target may still differ because they have not come to rest. No forecast says by how much less
    they will. None where too few seeds learn it, where that was tried often enough, where trainings have another end,
    and where the rule lacks seeds or sizes: however long the training, it has no verdict then.
    """
    option = Option(question.design, (LONGER,))
    if (
        question.gaps
        or question.misfit
        or tried.count(LONGER) >= REPAIRED[LONGER]
        or not math.isfinite(price := cost(question, option))
    ):
        return None
    return Chosen(question, option, price)


def allotted(found: Mapping[int, Chosen], left: float, limit: float) -> list[int]:
    """The questions of a round, those first whose additions cost least for the verdicts that are expected of them.

    There are as many as fit into ``ROUND`` of the limit, or one. A dear addition waits (``DEAR``), too, where there is
    a limit: one question would use up what answers many. Without one nothing waits, so that a cluster is full. The same
    trials answer for every ball of a condition.

    Args:
        found: question -> its addition.
        left: core seconds of the limit that are left.
        limit: core seconds of the whole; infinite for none.
    """
    taken, spent = dict[str, int](), 0.0
    for place in sorted(found, key=lambda each: found[each].per_verdict()):
        key, cost = found[place].question.key, found[place].cost
        fair = max(FREE * limit, (1.0 + DEAR) * spent)
        most = min(left, ROUND * limit, fair) if taken and limit < math.inf else left
        if key not in taken and spent + cost <= most:
            taken[key] = place
            spent += cost
    return [*taken.values()]


def _filled(question: Question, cost: Cost, options: Sequence[Option]) -> tuple[float, Option] | None:
    """Where the rule lacks something: the option that costs least for each time that it lacks nothing afterwards.

    Estimates of few seeds or sizes say little.
    """
    whole = (each for each in options if not any(question.lacks(each.design))) if question.gaps else ()
    priced = [(price, each) for each in whole if 0.0 < (price := cost(question, each)) < math.inf]
    return min(priced, key=lambda one: one[0] / question.odds(one[1].design), default=None)


def _likely(
    question: Question, cost: Cost, options: Iterable[Option], most: float = math.inf, fare: float = 0.0
) -> Chosen | None:
    """The option with a chance of a verdict that costs least for each that is expected of it; of equals the cheapest.

    A chance takes longer to forecast than a cost, and is 1 at most: the cheap ones come first, and none is looked at
    that costs more than the best one so far for each verdict.
    """
    prices = ((cost(question, each), place, each) for place, each in enumerate(options))
    best: tuple[float, Chosen | None] = math.inf, None
    for price, _, each in sorted(one for one in prices if 0.0 < one[0] <= most and one[0] < math.inf):
        if price > best[0]:
            break
        if (odds := chance(question, each)) >= LEAST:
            found = Chosen(question, each, price, chance=odds)
            best = min(best, (found.per_verdict(fare), found), key=lambda one: one[0])
    return best[1]


def _repairs(question: Question, tried: Sequence[str], cost: Cost) -> list[tuple[float, Option]]:
    """Repairs of the trials that there are, worst first, with their cost."""
    near = any(times <= NEAR for times in question.misfit.values())
    weak = question.found < MARKED and question.valid_widths + question.regained > 0  # no verdict is of what misses
    wrong = ((STEPS, near), (BELOW, question.below), (ABOVE, question.above), (EFFORT, weak))
    named = [name for name, is_wrong in wrong if is_wrong and tried.count(name) < REPAIRED[name]]
    options = [Option(question.design, (name,)) for name in named]
    return [(price, each) for each in options if math.isfinite(price := cost(question, each))]


def _unfit(question: Question) -> bool:
    """Whether too few seeds approximate the target, and more of the same would not help."""
    enough_seeds = question.design.seeds >= SMALLEST_SEEDS and question.complete < SMALLEST_SEEDS
    if LEARNERS_AMONG * question.kept >= SMALLEST_SEEDS:
        return False
    return enough_seeds and bool(question.misfit) and question.valid_widths == 0
