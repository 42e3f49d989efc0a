"""What an undecided verdict lacks, and which trials would add it."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence

from memsweep.config.grid.time_scale import USABLE_SCALES
from memsweep.stability.verdict.judgement import (
    GOOD_GRID,
    SMALLEST_GRID,
    SMALLEST_SEEDS,
    STEP_LIMIT,
    STEP_NOISE,
    Lack,
    Missing,
    Verdict,
)
from memsweep.stability.verdict.radius import largest_fit
from memsweep.stability.verdict.trend import LONG_RANGE, Slope, alike, seeds_needed
from memsweep.stability.verdict.weighed import Evidence

TRAINED = {Missing.SEEDS, Missing.HORIZONS, Missing.WIDTHS, Missing.TOP_WIDTHS}
"""What more trials add for certain."""
FLAT = -0.1
"""A local slope above this is far enough from the usual limit for a limit slope with an interval of usual size."""


def lacks(evidence: Evidence) -> tuple[Lack, ...]:
    """All that an undecided verdict lacks, in the order of ``Missing``; empty with a verdict."""
    if evidence.verdict is not Verdict.INCONCLUSIVE:
        return ()
    known = (*_untrained(evidence), *_unfitted(evidence), *_short(evidence), *_open(evidence))
    return known or tuple(_unmade(evidence))


def _unmade(evidence: Evidence) -> Iterator[Lack]:
    """Intervals that cannot be made, where nothing says why."""
    if not all(each.suffices for each in evidence.inside):
        yield Lack(Missing.STEP, evidence.complete_seeds, math.nan)
    else:
        yield Lack(Missing.GROWTH, evidence.complete_seeds, math.nan)


def advice(found: Sequence[Lack], evidence: Evidence) -> tuple[str, ...]:
    """Words of ``memsweep extend``, each text of which would decide by itself as far as can be foreseen.

    So each mends all that is lacking, where all of it can be. What was not trained is asked for at once, with all
    values of every axis: no part of it decides.
    """
    kinds = {lack.what for lack in found}
    if not found or {Missing.SPREAD, Missing.FIT} & kinds:
        return ()  # whatever makes all seeds alike makes more of them so
    if evidence.unfit:
        return ()  # no other size gives a horizon slope before a model fits there
    if not (added := _added(found)):
        if Missing.WIDTH_SPAN in kinds:  # to be unstable along one axis is enough
            return next(lack.overrides for lack in found if lack.what is Missing.WIDTH_SPAN)
        if not all(lack.overrides for lack in found):
            # stable needs all of it: where one thing cannot be added, the rest shows no more than unstable
            worth = evidence.may_be_unstable
            return tuple(dict.fromkeys(override for lack in found for override in lack.overrides if worth))
        return tuple(each for each in found[0].overrides if all(each in lack.overrides for lack in found))
    words = [lack.overrides[0] for lack in added if lack.overrides]
    if Missing.HORIZONS not in kinds and _needs_longer(evidence):
        words += _longer_words(evidence)
    if len(words) > 1:
        by_path = {word.partition("=")[0]: word for word in words}
        widths = evidence.widths if Missing.FITTING_WIDTHS in kinds else evidence.trained_widths
        every = {"model.width": widths, "task.horizon": evidence.trained_horizons}
        words = [_all_values(word, every.get(path, ())) for path, word in by_path.items()]
    return (" ".join(words),) if words else ()


def shows_unstable_alone(found: Sequence[Lack]) -> bool:
    """Whether what ``advice`` names of these may show *unstable* and cannot show *stable*."""
    wider = any(lack.what is Missing.WIDTH_SPAN for lack in found)
    return not (_added(found) or wider or all(lack.overrides for lack in found))


def _added(found: Sequence[Lack]) -> list[Lack]:
    """What more sizes and seeds add, for certain or as far as can be foreseen."""
    return [lack for lack in found if lack.what in TRAINED or (lack.what is Missing.FITTING_WIDTHS and lack.overrides)]


def _all_values(word: str, trained: Iterable[int]) -> str:
    """``model.width=2,4,8`` of ``model.width=4,8``: added seeds or horizons are wanted at the trained widths, too."""
    path, _, added = word.partition("=")
    return _values(path, dict.fromkeys([*trained, *map(int, added.split(","))]))


def _values(path: str, added: Iterable[int]) -> str:
    return f"{path}={','.join(map(str, added))}"


def _untrained(evidence: Evidence) -> Iterator[Lack]:
    widths, horizons = evidence.trained_widths, evidence.trained_horizons
    if evidence.seeds < SMALLEST_SEEDS:
        yield Lack(
            Missing.SEEDS, evidence.seeds, SMALLEST_SEEDS, overrides=(_values("training.seeds", [SMALLEST_SEEDS]),)
        )
    if len(horizons) < SMALLEST_GRID:
        yield Lack(Missing.HORIZONS, len(horizons), SMALLEST_GRID, overrides=_longer_words(evidence))
    if len(widths) < SMALLEST_GRID:
        wider = _values("model.width", _doubled(widths[-1], SMALLEST_GRID - len(widths)))
        yield Lack(Missing.WIDTHS, len(widths), SMALLEST_GRID, overrides=(wider,))
    elif len(top := evidence.top_widths) < SMALLEST_GRID and evidence.fitting_once:
        others = _values("model.width", (width for width in widths if width not in top))
        yield Lack(Missing.TOP_WIDTHS, len(top), SMALLEST_GRID, len(widths), overrides=(others,))


def _unfitted(evidence: Evidence) -> Iterator[Lack]:
    """No trials are known to mend a fit. Where the largest width fits at every horizon, larger ones may."""
    if not evidence.best_fit <= (limit := largest_fit(evidence.reading)):
        yield Lack(Missing.FIT, evidence.best_fit, limit)
        return
    (widths, horizons), of = evidence.fitting, len(evidence.top_widths)
    if not evidence.fitting_once:
        yield Lack(Missing.FITTING_WIDTHS, 0, SMALLEST_GRID, of)
    if evidence.seeds < SMALLEST_SEEDS:
        return  # so few seeds hide what fits
    if evidence.fitting_once and widths < SMALLEST_GRID <= of:
        yield Lack(Missing.FITTING_WIDTHS, widths, SMALLEST_GRID, of, _larger(evidence))
    if horizons < SMALLEST_GRID <= (trained := len(evidence.trained_horizons)):
        yield Lack(Missing.FITTING_HORIZONS, horizons, SMALLEST_GRID, trained)
    if min(widths, horizons) >= SMALLEST_GRID and evidence.complete_seeds < SMALLEST_SEEDS:
        yield Lack(Missing.FITTING_SEEDS, evidence.complete_seeds, SMALLEST_SEEDS, evidence.seeds)


def _larger(evidence: Evidence) -> tuple[str, ...]:
    """Larger widths in the place of those that do not fit; empty where larger ones may miss, or more seeds may help."""
    largest = evidence.top_widths[-1]
    if evidence.width != largest or evidence.fitting_once >= SMALLEST_GRID:
        return ()
    return (_values("model.width", _doubled(largest, SMALLEST_GRID - evidence.fitting[0])),)


def _short(evidence: Evidence) -> Iterator[Lack]:
    """Horizons that give no limit slope, though there are enough."""
    usable = evidence.usable
    if evidence.time_scale == math.inf:
        yield Lack(Missing.TIME_SCALE, 0, 1)
        return
    if len(evidence.horizons) < SMALLEST_GRID:
        return
    longer = _by_horizon(evidence)
    if len(usable) < SMALLEST_GRID:
        yield Lack(Missing.LONG_HORIZONS, len(usable), SMALLEST_GRID, overrides=longer)
    elif (span := usable[-1] / usable[0]) < LONG_RANGE:
        yield Lack(Missing.HORIZON_SPAN, span, LONG_RANGE, overrides=longer)


def _open(evidence: Evidence) -> Iterator[Lack]:
    """What slopes with intervals leave open."""
    if evidence.complete_seeds < SMALLEST_SEEDS or not (evidence.widths and evidence.horizons):
        return
    slopes = [slope for axis in ("width", "horizon") for slope in evidence.slopes(axis) if slope.available]
    count = _seeds(evidence) if _limit_known(evidence) else None
    have, need = evidence.complete_seeds, math.nan if count is None else count
    seeds = () if count is None else (_values("training.seeds", [count]),)
    if any(alike(slope) and not math.isfinite(slope.low) for slope in slopes):
        yield Lack(Missing.SPREAD, 1, 2)
    if not evidence.inside:
        yield Lack(Missing.RADIUS, 0, 1)
    elif any(slope.unbounded for slope in slopes):
        yield Lack(Missing.BOUND, 0, 1)
    if evidence.narrow:
        yield _width_span(evidence.widths)
    if not all(slope.least > evidence.criteria.slope_limit for slope in slopes if slope not in evidence.narrow):
        # longer horizons narrow no slope in the width
        longer = evidence.may_be_unstable or not _width_undecided(evidence)
        yield Lack(Missing.SLOPE, have, need, overrides=(*(_by_horizon(evidence) if longer else ()), *seeds))
    # an estimate on the wrong side of these two limits decides nothing, however many seeds it has
    if short := [each.step for each in evidence.inside if each.step.available and not each.suffices]:
        known = all(step.estimate >= STEP_LIMIT for step in short)
        yield Lack(Missing.STEP, have, need if known else math.nan, overrides=seeds if known else ())
    growth, growth_limit = evidence.growth, evidence.criteria.growth_limit
    if growth.available and not growth.most <= growth_limit:
        known = growth.estimate < growth_limit
        yield Lack(Missing.GROWTH, have, need if known else math.nan, overrides=seeds if known else ())


def _width_span(widths: Sequence[int]) -> Lack:
    """Of widths over which no radius can be shown to shrink too fast: the larger ones that would show it."""
    doublings = math.ceil(math.log2(LONG_RANGE * widths[0] / widths[-1]))
    wider = _values("model.width", _doubled(widths[-1], doublings))
    return Lack(Missing.WIDTH_SPAN, widths[-1] / widths[0], LONG_RANGE, overrides=(wider,))


def _by_horizon(evidence: Evidence) -> tuple[str, ...]:
    """The longer horizons, where they may decide."""
    decides = evidence.complete_seeds >= SMALLEST_SEEDS and _horizon_undecided(evidence)
    return _longer_words(evidence) if decides else ()


def _longer_words(evidence: Evidence) -> tuple[str, ...]:
    """``task.horizon=128,256``; empty where no horizon is known to be long enough for the memory."""
    return () if evidence.time_scale == math.inf else (_values("task.horizon", _longer(evidence)),)


def _needs_longer(evidence: Evidence) -> bool:
    """Whether more widths and seeds would find horizons that decide nothing."""
    if evidence.horizons:
        return _horizon_undecided(evidence)
    usable = evidence.long_enough(evidence.trained_horizons)
    return len(usable) < SMALLEST_GRID or usable[-1] < LONG_RANGE * usable[0]


def _limit_known(evidence: Evidence) -> bool:
    return all(slope.available for slope in evidence.slopes("horizon"))


def _horizon_undecided(evidence: Evidence) -> bool:
    # comparisons with nan are False: an unavailable slope is undecided
    return bool(evidence.horizons) and not all(
        slope.least > evidence.criteria.slope_limit for slope in evidence.slopes("horizon")
    )


def _width_undecided(evidence: Evidence) -> bool:
    """Whether a slope in the width is open, besides those over too few widths."""
    slopes = [slope for slope in evidence.slopes("width") if slope.available and slope not in evidence.narrow]
    return not all(slope.least > evidence.criteria.slope_limit for slope in slopes)


def _doubled(last: int, count: int) -> list[int]:
    """The next values of an axis, each twice the one before."""
    return [last * 2**power for power in range(1, count + 1)]


def _longer(evidence: Evidence) -> list[int]:
    """The horizons that would decide: each twice the one before.

    With them, GOOD_GRID horizons are usable, they span enough for a limit slope, and the last local slope has fallen
    below FLAT, if it goes on halving as the horizon doubles.
    """
    usable = evidence.usable or evidence.long_enough(evidence.trained_horizons)
    needed = LONG_RANGE * min(usable, default=evidence.top_horizon)
    last = min((trend.local[-1] for trend in evidence.trends("horizon") if trend.local), default=math.nan)
    if _limit_known(evidence) and last < FLAT:
        needed = max(needed, evidence.top_horizon * last / FLAT)
    count = max(1, GOOD_GRID - len(usable), math.ceil(math.log2(needed / evidence.top_horizon)))
    longer = [evidence.top_horizon * 2**power for power in range(1, 64)]
    # a memory that is longer than all horizons leaves the first of them unusable, too
    first = next(place for place, horizon in enumerate(longer) if horizon >= USABLE_SCALES * (evidence.time_scale or 0))
    return longer[: count + first]


def _seeds(evidence: Evidence) -> int | None:
    """Seeds that would part every undecided slope from its limit; None where nothing is undecided, or too many."""
    slope_limit = evidence.criteria.slope_limit
    limits = [(slope, slope_limit) for axis in ("horizon", "width") for slope in evidence.slopes(axis)]
    undecided = [(slope, limit) for slope, limit in limits if slope.least <= limit < slope.most]
    growth, growth_limit = evidence.growth, evidence.criteria.growth_limit
    undecided += [(growth, growth_limit)] if growth.estimate < growth_limit < growth.most else []
    steps = [each.step for each in evidence.inside]
    # these are held against their limit by the 95 % interval
    undecided += [
        (_printed(step), STEP_NOISE) for step in steps if step.low <= STEP_NOISE and step.estimate >= STEP_LIMIT
    ]
    counts = [seeds_needed(slope, limit, evidence.complete_seeds) for slope, limit in undecided]
    known = [count for count in counts if count is not None]
    return max(known) if known and len(known) == len(counts) else None


def _printed(slope: Slope) -> Slope:
    return Slope(slope.estimate, slope.low, slope.high)
