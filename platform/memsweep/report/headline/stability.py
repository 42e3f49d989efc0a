"""What the verdicts of a study say, memory by memory, with the sizes that they were asked at."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import TYPE_CHECKING

from memsweep.config.schema.trial import SELF
from memsweep.report.analysis.contents import BALLS, Finding
from memsweep.report.headline.evidence import errors_of, gap_of, nearest, slope_words
from memsweep.report.naming.conditions import KERNEL, PARAMETERIZATION, Labels
from memsweep.report.naming.numbers import MOST_NAMED, joined, limit, quoted, show
from memsweep.stability.verdict.judgement import SMALLEST_SEEDS, Criteria, Verdict

if TYPE_CHECKING:
    import pandas as pd

_MOVE = {
    "recurrent": "the recurrent weights move",
    "weights": "all weights but the biases move",
    "all": "all weights move",
}
_AXES = ("width", "horizon")
_Sizes = Mapping[str, tuple[float, float]]
_MEMORY = " memory"
_AT_RANDOM = {"random": " at random", "random_push": " at random"}
_STAY = {"recurrent": "the other weights stay", "weights": "the biases stay"}


def first_ball(findings: Iterable[Finding]) -> str:
    """The smallest ball that was measured: the one that the answer speaks of."""
    return next((ball for ball in BALLS if any(finding.ball == ball for finding in findings)), "")


def stable_means(criteria: Criteria) -> str:
    """What *stable* says of a radius, by the limit of the slopes that the verdicts were reached with."""
    slow = limit(criteria.slope_limit)
    return (
        "how far the trained weights may move before a limit is passed (the radius) shrinks no faster than "
        f"T^{slow} as the sequence gets longer, nor than m^{slow} as the model gets wider. It may still shrink: the "
        "reasons of a verdict say where."
    )


def stability_sentence(findings: Sequence[Finding], labels: Labels) -> str:
    """A sentence for each memory; sizes are said once where those of the next memory are the same.

    It speaks of the smallest ball of each memory, and says which one where that is not the smallest of the study, or
    where no other was asked.
    """
    noun = _noun(findings, labels)
    clauses: dict[tuple[str, str], list[str]] = {}
    subjects = [_subject(finding, labels) for finding in findings]
    for subject in dict.fromkeys(subjects):
        of_memory = [finding for finding, own in zip(findings, subjects, strict=True) if own == subject]
        ball = first_ball(of_memory)
        own = {labels.machine(f.condition): f for f in of_memory if f.ball == ball}
        others = [{labels.machine(f.condition): f for f in of_memory if f.ball == other} for other in BALLS]
        wider = [verdicts for verdicts in others if verdicts and verdicts != own]
        alone = {finding.ball for finding in of_memory} == {ball}
        asked = asked_sizes(own.values())
        moves = _moves(own.values(), ball, said=alone or ball != first_ball(findings))
        clause = f"{_sizes(asked)}{moves}", _clause(own, asked, wider, noun, _STAY.get(ball, ""))
        clauses.setdefault(clause, []).append(subject)
    return " ".join(_sentences(clauses))


def _moves(findings: Iterable[Finding], ball: str, *, said: bool) -> str:
    """`` when the recurrent weights move``, and how, where all move at random: that is less than the worst push.

    Args:
        said: whether the ball is named in any case.
    """
    methods = {finding.config.get("perturbation", {}).get("method") for finding in findings}
    how = _AT_RANDOM.get(methods.pop(), "") if len(methods) == 1 else ""
    return f" when {_MOVE[ball]}{how}" if said or how else ""


def _subject(finding: Finding, labels: Labels) -> str:
    """What is held, or not: a memory. Models that are held against themselves may have learned none of it."""
    memory = labels.memory(finding.condition)
    named = f"{memory}{_MEMORY}" if finding.condition.get(KERNEL) is not None else memory
    return f"what models of {named} compute" if finding.reference == SELF else named


def _sentences(clauses: dict[tuple[str, str], list[str]]) -> Iterator[str]:
    before = ""
    for (sizes, clause), names in clauses.items():
        several = len(names) > 1 and not _are_memories(names)
        text = f"{joined(names if several else _short(names))} {_of_several(clause) if several else clause}."
        yield f"For {sizes}, {text}" if sizes != before else f"{text[:1].upper()}{text[1:]}"
        before = sizes


def _are_memories(names: Iterable[str]) -> bool:
    """Whether names of memories share their noun, which is one: ``exponential and polynomial memory is``."""
    return all(name.endswith(_MEMORY) for name in names)


def _of_several(clause: str) -> str:
    """The clause with several subjects: ``are``, and ``them``."""
    return re.sub(r"\b(holds?) it\b", r"\1 them", re.sub(r"^is\b", "are", clause))


def asked_sizes(findings: Iterable[Finding]) -> _Sizes:
    """Axis -> the first and the last size of every setting: no axis where they share no range.

    A verdict that is reached speaks of the widths that fit, and an open one of all that were asked.
    """
    each, shared = [_ends(finding) for finding in findings], dict[str, tuple[float, float]]()
    for axis in _AXES:
        ends = {sizes[axis] for sizes in each}
        low, high = max(first for first, _ in ends), min(last for _, last in ends)
        if low < high or len(ends) == 1:
            shared[axis] = low, high
    return shared


def _ends(finding: Finding) -> _Sizes:
    table = finding.radii
    asked = {axis: (float(table[axis].min()), float(table[axis].max())) for axis in _AXES}
    widths = fitting_widths(table) if finding.judgement.verdict is not Verdict.INCONCLUSIVE else []
    return {**asked, "width": (widths[0], widths[-1])} if widths else asked


def fitting_widths(radii: pd.DataFrame) -> list[float]:
    """The widths of which enough seeds for a verdict fit at the longest horizon, increasing."""
    top = _longest(radii)
    seeds = top[top["valid"] == 1].groupby("width")["seed"].nunique()
    return [float(width) for width in seeds.index[seeds >= SMALLEST_SEEDS]]


def _longest(radii: pd.DataFrame) -> pd.DataFrame:
    return radii[radii["horizon"] == radii["horizon"].max()]


def unfit_sentence(findings: Iterable[Finding]) -> str:
    """``No stable or unstable verdict speaks of width 64: fewer than 5 of its seeds fit at T = 40.``

    Widths that were trained at the longest horizon; empty where all fit.
    """
    reached = [finding.radii for finding in findings if finding.judgement.verdict is not Verdict.INCONCLUSIVE]
    lacking = [{*map(float, _longest(radii)["width"])} - {*fitting_widths(radii)} for radii in reached]
    everywhere = set.intersection(*lacking) if lacking else set[float]()
    horizons = {float(radii["horizon"].max()) for radii in reached}
    longest = f"T = {show(horizons.pop())}" if len(horizons) == 1 else "the longest horizon"
    subjects = {"No": everywhere, "Not every": set().union(*lacking) - everywhere}
    return " ".join(
        f"{which} stable or unstable verdict speaks of width{'s' if len(widths) > 1 else ''} "
        f"{joined([show(width) for width in sorted(widths)])}: fewer than {SMALLEST_SEEDS} of "
        f"{'their' if len(widths) > 1 else 'its'} seeds fit at {longest}."
        for which, widths in subjects.items()
        if widths
    )


def _sizes(asked: _Sizes) -> str:
    """``T = 50 to 400 and widths 2 to 8``; what has one value stands behind ``at``."""
    (across, widths), (along, horizons) = (_range(axis, asked) for axis in _AXES)
    if horizons:
        return f"{along}{' and' if widths else ' at'} {across}"
    return f"{across} at {along}" if widths else f"{across} and {along}"


def _range(axis: str, asked: _Sizes) -> tuple[str, bool]:
    """The sizes in words, and whether they are several."""
    if axis not in asked:
        return f"each setting's own {axis}s", True
    low, high = asked[axis]
    one, several = ("width", "widths") if axis == "width" else ("T =", "T =")
    return (f"{several} {show(low)} to {show(high)}", True) if low < high else (f"{one} {show(low)}", False)


def _short(names: Sequence[str]) -> list[str]:
    """``exponential`` of ``exponential memory`` where another name follows."""
    return [*(name.removesuffix(_MEMORY) for name in names[:-1]), names[-1]]


def _clause(own: dict[str, Finding], asked: _Sizes, wider: Sequence[dict[str, Finding]], noun: str, stay: str) -> str:
    """``is not held stably under direct (T^−0.6 [...]); exp holds it (...), but only while the other weights stay``."""
    stable, unstable, undecided = (
        {name: finding for name, finding in own.items() if finding.judgement.verdict is wanted}
        for wanted in (Verdict.STABLE, Verdict.UNSTABLE, Verdict.INCONCLUSIVE)
    )
    open_ = _undecided(undecided, asked, len(own), noun)
    open_ = f"{open_}{_lost_wider(undecided, len(own), wider, stay)}"
    if len(undecided) == len(own):
        return f"is {open_}"
    behind = f"{_while(stable, len(own), wider, stay)}{f'; {open_}' if open_ else ''}"
    if not unstable:
        every = _every(stable, "every", noun) if not undecided else _of(stable, len(own))
        return f"is held stably under {every} ({_worst(stable, asked, 'at worst')}){behind}"
    lost = f"is not held stably under {_unstable(unstable, asked, len(own), noun)}"
    if not stable:
        return f"{lost}{f'; {open_}' if open_ else ''}"
    named = quoted([*stable]) if len(stable) <= MOST_NAMED else f"{len(stable)}"
    verb = "holds" if len(stable) == 1 else "hold"
    return f"{lost}; {named} {verb} it ({_worst(stable, asked, 'at worst')}){behind}"


def _turned(own: Iterable[str], wider: Sequence[dict[str, Finding]], verdict: Verdict) -> list[str]:
    """Those that have this verdict when more weights move."""
    return [name for name in own if any(w[name].judgement.verdict is verdict for w in wider if name in w)]


def _lost_wider(undecided: Iterable[str], of: int, wider: Sequence[dict[str, Finding]], stay: str) -> str:
    """What is known of the undecided ones when more weights move: an instability shows there first."""
    lost = _turned(undecided, wider, Verdict.UNSTABLE)
    return f" while {stay} put; not held stably under {_of(lost, of)} when more weights move" if lost else ""


def _while(stable: dict[str, Finding], of: int, wider: Sequence[dict[str, Finding]], stay: str) -> str:
    """What becomes of the stable ones when more weights move."""
    lost = _turned(stable, wider, Verdict.UNSTABLE)
    doubt = [name for name in _turned(stable, wider, Verdict.INCONCLUSIVE) if name not in lost]
    only = f", but only while {stay} put" if lost else ""
    if lost and len(lost) < len(stable):
        only = f"; {_of(lost, of)} only while {stay} put"
    return only + (f"; undecided under {_of(doubt, of)} when more weights move" if doubt else "")


def _unstable(findings: dict[str, Finding], asked: _Sizes, of: int, noun: str) -> str:
    """Those of the same thresholds together, each group with its slope."""
    groups: dict[str, dict[str, Finding]] = {}
    for name, finding in findings.items():
        groups.setdefault(errors_of(finding), {})[name] = finding
    whole = len(groups) == 1 and len(findings) == of
    texts = []
    for errors, group in groups.items():
        names = _every(group, "any", noun) if whole else _of(group, of)
        texts.append(f"{names} ({_worst(group, asked, 'at best')}{f', {errors}' if errors else ''})")
    return joined(texts)


def _worst(findings: dict[str, Finding], asked: _Sizes, which: str) -> str:
    """The slope of the setting that is nearest to the limit."""
    found = nearest([*findings.values()])
    words = f"{_own_sizes(found, asked)}{slope_words(found, asked)}"
    if len(findings) == 1:
        return words
    name = next(name for name, finding in findings.items() if finding is found)
    return f"{which} `{name}`: {words}"


def _undecided(findings: dict[str, Finding], asked: _Sizes, of: int, noun: str) -> str:
    """``undecided under `exp` and `softplus` (1 width: stable needs 4)``: equal reasons are said once."""
    if not findings:
        return ""
    groups: dict[str, dict[str, str]] = {}
    for name, finding in findings.items():
        gap = gap_of(finding)
        groups.setdefault(gap.several, {})[name] = f"{_beyond(finding, asked)}{gap.text}"
    parts = []
    for several, texts in groups.items():
        names = _every(texts, "every", noun) if len(texts) == of else _of(texts, of)
        reasons = {*texts.values()}
        parts.append(f"{names} ({reasons.pop() if len(reasons) == 1 else several})")
    return f"undecided under {joined(parts)}"


def _beyond(finding: Finding, asked: _Sizes) -> str:
    """``over T = 4 to 64: ``: sizes of a setting that are not those of all; empty where they are."""
    own = _ends(finding)
    return _over(own, [axis for axis in _AXES if own[axis] != asked.get(axis)])


def _own_sizes(finding: Finding, asked: _Sizes) -> str:
    """As ``_beyond``, of the axes along which settings share no sizes."""
    return _over(_ends(finding), [axis for axis in _AXES if axis not in asked])


def _over(own: _Sizes, axes: Sequence[str]) -> str:
    return f"over {joined([_range(axis, own)[0] for axis in reversed(axes)])}: " if axes else ""


def _of(names: Iterable[str], of: int) -> str:
    """The names; in a study of many, how many of how many."""
    listed = [*names]
    named = len(listed) == 1 or max(of, len(listed)) <= MOST_NAMED
    return quoted(listed) if named else f"{len(listed)} of {of} settings"


def _every(names: Iterable[str], word: str, noun: str) -> str:
    listed = [*names]
    if len(listed) == 1:
        return f"`{listed[0]}`"
    kind = noun or "setting"
    if len(listed) == 2:
        return f"both {kind}s" if word == "every" else f"either {kind}"
    return f"{'all' if word == 'every' else 'any of'} {len(listed)} {kind}s"


def _noun(findings: Sequence[Finding], labels: Labels) -> str:
    """What the names of the machines are; empty where they are of several kinds."""
    same = all(labels.machine(f.condition) == str(f.condition.get(PARAMETERIZATION)) for f in findings)
    return "parameterization" if same else ""
