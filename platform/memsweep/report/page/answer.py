"""The answer of a study in sentences that carry their own limits, by the kind of question that the study asks."""

from __future__ import annotations

import enum
import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from memsweep.report.analysis.contents import BALLS, Contents, Finding
from memsweep.report.analysis.losses import MANY_TASKS, LossRow, Quantity, largest, level, quantities, ranked
from memsweep.report.naming.conditions import KERNEL, PARAMETERIZATION, Labels
from memsweep.report.naming.numbers import MOST_NAMED, as_sentences, figure, joined, limit, percent, quoted
from memsweep.report.rows.verdicts import NOT_FINISHED
from memsweep.report.values.section import Rank, Section, sections_of
from memsweep.stability.verdict.judgement import Criteria, Verdict


def ranking_sentence(contents: Contents, by: Quantity | None = None) -> str:
    """The best of each task and those that are level with it; of a single task, how far the others are behind.

    Args:
        contents: of the report.
        by: what ranks them; None: the first of ``quantities``. A task that was not measured so is left out.
    """
    labels, by_memory = contents.labels, dict[str, list[LossRow]]()
    by = by or quantities(contents.losses)[0]
    tasks = {labels.memory(row.condition) for row in contents.losses}
    for row in filter(by.is_known, largest(contents.losses)):
        by_memory.setdefault(labels.memory(row.condition), []).append(row)
    if len(tasks) >= MANY_TASKS:
        return _counts(by_memory, labels, by)
    if len(by_memory) > 1:
        measures = {_measured(row, by)[0] for rows in by_memory.values() for row in rows}
        parts = [
            f"on {memory}{f' by {_measured(rows[0], by)[0]}' if len(measures) > 1 else ''} {_best(rows, labels, by)}"
            for memory, rows in by_memory.items()
        ]
        return f"{f'By {measures.pop()}, best' if len(measures) == 1 else 'Best'} are {'; '.join(parts)}."
    (rows,) = by_memory.values()
    best, *others = ranked(rows, by)
    measure, said = _measured(best, by)
    if not others:
        return f"The {measure} is {said}, the median over {best.seeds} seeds."
    text = f"By {measure}, {_machines([best], labels)} is best ({said})"
    beside = level(rows, by)[1:]
    behind = [row for row in others if row not in beside][:4]
    if beside:
        text += f" and {_machines(beside, labels)} cannot be told from it (their seeds overlap)"
    if behind:
        gaps = [f"{_machines([row], labels)} {_behind(best, row, by)}" for row in behind]
        text += f"; behind {'is' if len(gaps) == 1 else 'are'} {joined(gaps)}"
    return f"{text}."


def _best(rows: Sequence[LossRow], labels: Labels, by: Quantity) -> str:
    """``lstm (100.0 %), whose seeds overlap with those of delta_net``."""
    best, *others = level(rows, by)
    beside = f", whose seeds overlap with those of {_machines(others, labels)}" if others else ""
    return f"{_machines([best], labels)} ({_measured(best, by)[1]}){beside}"


def _counts(by_memory: Mapping[str, Sequence[LossRow]], labels: Labels, by: Quantity) -> str:
    """``lstm is best, or cannot be told from the best, on 5 of 9 tasks, gla on 4 and lru on 2.``

    A task that no model learns has no best one; it is named.
    """
    learned = {memory: rows for memory, rows in by_memory.items() if any(row.learned for row in rows)}
    best = Counter(labels.machine(row.condition) for rows in learned.values() for row in level(rows, by))
    first, *others = best.most_common(MOST_NAMED // 2) or [("", 0)]
    none = [memory for memory in by_memory if memory not in learned]
    unlearned = f"no model does better than one that forgets on {joined(none)}." if none else ""
    if not first[1]:
        return unlearned[0].upper() + unlearned[1:]
    text = f"`{first[0]}` is best, or cannot be told from the best, on {first[1]} of {len(by_memory)} tasks"
    text = f"By {by.name}, {text}" if by.is_named or not by.metric else text
    more = [f"`{name}` on {count}" for name, count in others]
    return f"{joined([text, *more])}{'; ' if none else '.'}{unlearned}"


def _measured(row: LossRow, by: Quantity) -> tuple[str, str]:
    """The number that ranks a row, and its median."""
    middle = by.spread(row).middle
    if by.is_share(row):
        return (by.name if by.is_named else row.metric.replace("_", " ")), _percent(middle)
    return "test loss", figure(middle)


def _machines(rows: Sequence[LossRow], labels: Labels) -> str:
    return quoted([labels.machine(row.condition).removeprefix("rule ") for row in rows])


def _behind(best: LossRow, row: LossRow, by: Quantity) -> str:
    first, second = by.spread(best).middle, by.spread(row).middle
    if by.is_share(best):
        return f"({100 * (first - second):.1f} points)"
    ratio = second / first if first > 0 else math.nan
    return f"({figure(ratio, 2)} times the loss)" if math.isfinite(ratio) else "(diverged)"


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


_STAY = {"recurrent": "the other weights stay", "weights": "the biases stay"}


class Kind(enum.StrEnum):
    """What a study asks; one that a section answers is of the kind that the section says."""

    STABILITY = "stability"
    SEARCH = "search"
    LOSSES = "losses"
    NOTHING = "nothing yet"


@dataclass(frozen=True)
class StudyAnswer:
    """What stands at the top of the page.

    Attributes:
        kind: decides which figure and table stand below.
        headline: the answer with its limit. Names of settings stand between backticks.
        more: further answers of the same study, a sentence each.
        decide: the command that would decide what is undecided; empty where nothing is, or nothing is known to.
        rank: of the section that is the answer; None where none is.
    """

    kind: Kind | str
    headline: str
    more: tuple[str, ...] = ()
    decide: str = ""
    rank: Rank | None = None


def answer_of(contents: Contents) -> StudyAnswer:
    """The answer of a study, from what has finished of it."""
    decide, tested = _decide(contents), _answering(contents, Rank.TESTED)
    claims = tuple(_said(contents, Rank.TESTED))
    found, gaps = _of_search(contents)
    if found:
        return StudyAnswer(Kind.SEARCH, found, (*gaps, *claims), decide)
    if contents.verdicts:
        stable = _stability(contents.verdicts, contents.labels)
        if tested:
            return StudyAnswer(tested.kind, claims[0], (*claims[1:], stable), decide, Rank.TESTED)
        return StudyAnswer(Kind.STABILITY, stable, (), decide)
    if measured := _answering(contents, Rank.ALONE):
        return StudyAnswer(measured.kind, measured.answer[0], claims, rank=Rank.ALONE)
    if instead := _answering(contents, Rank.INSTEAD):
        return StudyAnswer(Kind.LOSSES, instead.answer[0], claims)
    if contents.losses:
        said = [*_said(contents, Rank.BEFORE), ranking_sentence(contents), *_said(contents, Rank.AFTER)]
        first, *more = said
        return StudyAnswer(Kind.LOSSES, first, (*more, *gaps, *claims))
    if tested:
        return StudyAnswer(tested.kind, claims[0], claims[1:], rank=Rank.TESTED)
    return StudyAnswer(Kind.NOTHING, NOT_FINISHED)


def first_ball(findings: Iterable[Finding]) -> str:
    """The smallest ball that was measured: the one that the answer speaks of."""
    return next((ball for ball in BALLS if any(finding.ball == ball for finding in findings)), "")


def _answering(contents: Contents, rank: Rank) -> Section | None:
    """The first section of a rank that has an answer."""
    return next((section for section in sections_of(contents) if section.rank is rank and section.answer), None)


def _said(contents: Contents, rank: Rank) -> list[str]:
    """The sentences that measures and analyses have for this place of the answer."""
    return [sentence for section in sections_of(contents) if section.rank is rank for sentence in section.answer]


def _of_search(contents: Contents) -> tuple[str, Sequence[str]]:
    """The answer of a search, and how optimistic it was, or may be; both empty without a search.

    Where it tunes many models, each at one size, what they reach is the answer, and not their settings.
    """
    searched = contents.searched
    if searched is None:
        return "", ()
    from memsweep.report.rows import search

    losses = not contents.verdicts and contents.losses
    found = "" if losses and search.tunes_many(searched) else search.answer(searched)
    return found, search.sentences(searched)[3:]


def _decide(contents: Contents) -> str:
    """The advice that most undecided verdicts share."""
    advice = [override for finding in contents.verdicts for override in finding.judgement.extend]
    return contents.study.extended_by(max(advice, key=advice.count)) if advice else ""


# --- stability


def stable_means(criteria: Criteria) -> str:
    """What *stable* says of a radius, by the limit of the slopes that the verdicts were reached with."""
    slow = limit(criteria.slope_limit)
    return (
        "how far the trained weights may move before a limit is passed (the radius) shrinks no faster than "
        f"T^{slow} as the sequence gets longer, nor than m^{slow} as the model gets wider. It may still shrink: the "
        "reasons of a verdict say where."
    )


def _stability(findings: Sequence[Finding], labels: Labels) -> str:
    ball = first_ball(findings)
    noun = _noun(findings, labels)
    clauses: dict[str, list[str]] = {}
    for memory in dict.fromkeys(labels.memory(finding.condition) for finding in findings):
        by_ball = {
            other: {labels.machine(f.condition): f.judgement.verdict for f in findings if _is(f, labels, memory, other)}
            for other in BALLS
        }
        own = by_ball.pop(ball)
        wider = [verdicts for verdicts in by_ball.values() if verdicts]
        kept = {name for name, verdict in own.items() if verdict is Verdict.STABLE}
        lost = {name for name in kept if any(w.get(name) is Verdict.UNSTABLE for w in wider)}
        doubt = {name for name in kept - lost if any(w.get(name) is Verdict.INCONCLUSIVE for w in wider)}
        kernel = any(f.condition.get(KERNEL) is not None and _is(f, labels, memory, ball) for f in findings)
        clause = _clause(own, lost, noun, _STAY.get(ball, ""))
        if doubt:
            clause += f" (undecided under {quoted(sorted(doubt, key=[*own].index))} once more weights move)"
        clause += _scope([finding for finding in findings if _is(finding, labels, memory, ball)])
        clauses.setdefault(clause, []).append(f"{memory} memory" if kernel else memory)
    return as_sentences(f"{joined(_short(names))} {clause}" for clause, names in clauses.items())


def _is(finding: Finding, labels: Labels, memory: str, ball: str) -> bool:
    return finding.ball == ball and labels.memory(finding.condition) == memory


def _scope(findings: Sequence[Finding]) -> str:
    """`` (at width 2, at 1 %)``: the one width that was asked, and the few thresholds at which a radius is unstable."""
    widths = {int(width) for finding in findings for width in finding.radii["width"].unique()}
    said = [f"at width {min(widths)}"] if len(widths) == 1 else []
    unstable = [finding.judgement for finding in findings if finding.judgement.verdict is Verdict.UNSTABLE]
    at = {threshold for judgement in unstable for threshold in judgement.unstable_at}
    if unstable and len(at) < len(unstable[0].by_threshold):
        said.append(f"at {joined([percent(threshold) for threshold in sorted(at)])}")
    return f" ({', '.join(said)})" if said else ""


def _short(names: Sequence[str]) -> list[str]:
    """``exponential`` of ``exponential memory`` where another name follows."""
    return [*(name.removesuffix(" memory") for name in names[:-1]), names[-1]]


def _clause(verdicts: dict[str, Verdict], lost: set[str], noun: str, stay: str) -> str:
    """``is not held stably under direct; exp holds it, but only while the other weights stay put``."""
    stable, unstable, open_ = (
        [name for name, verdict in verdicts.items() if verdict is wanted]
        for wanted in (Verdict.STABLE, Verdict.UNSTABLE, Verdict.INCONCLUSIVE)
    )
    only = f", but only while {stay} put" if lost else ""
    if lost and len(lost) < len(stable):
        only = f"; {quoted(sorted(lost, key=stable.index))} only while {stay} put"
    if len(open_) == len(verdicts):
        return f"is undecided under {_all(open_, noun)}"
    undecided = f"; undecided under {quoted(open_)}" if open_ else ""
    if not unstable:
        return f"is held stably under {_all(stable, noun) if not open_ else quoted(stable)}{only}{undecided}"
    if not stable:
        return f"is not held stably under {_any(unstable, noun) if not open_ else quoted(unstable)}{undecided}"
    verb = "holds" if len(stable) == 1 else "hold"
    return f"is not held stably under {quoted(unstable)}; {quoted(stable)} {verb} it{only}{undecided}"


def _all(names: Sequence[str], noun: str) -> str:
    return f"`{names[0]}`" if len(names) == 1 else f"every {noun}" if noun else f"all {len(names)} settings"


def _any(names: Sequence[str], noun: str) -> str:
    return f"`{names[0]}`" if len(names) == 1 else f"any {noun}" if noun else f"any of {len(names)} settings"


def _noun(findings: Sequence[Finding], labels: Labels) -> str:
    """What the names of the machines are; empty where they are of several kinds."""
    same = all(labels.machine(f.condition) == str(f.condition.get(PARAMETERIZATION)) for f in findings)
    return "parameterization" if same else ""
