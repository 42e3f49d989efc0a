"""The one answer of a study, by the kind of question that the study asks: page, terminal, JSON and MLflow show it."""

from __future__ import annotations

import enum
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace

from memsweep.errors import counted
from memsweep.report.analysis.contents import Contents
from memsweep.report.analysis.losses import once_each
from memsweep.report.headline.ranking import ranking_sentence, seeds_to_rank
from memsweep.report.headline.stability import stability_sentence, unfit_sentence
from memsweep.report.read.failures import failure_sentence
from memsweep.report.values.section import Rank, Section, sections_of
from memsweep.stability.verdict.judgement import DEFAULT, Verdict
from memsweep.stability.verdict.lacks import shows_unstable_alone


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
        failures: how many trials failed and why; empty where none did, and where that is the headline.
        missing: how many planned trials have no result; empty where all have, or the failures tell of them all.
        decides: how much of what is open the command decides: empty for all of it, else ``most`` or ``a part``.
        until: the command that goes on by itself until nothing is open; empty where that is ``decide``, and where
            nothing is known to decide and rounds were made.
        first: ``decide`` computes what is planned and missing, which may decide nothing.
        one_way: ``decide`` may show *unstable*, and not *stable*.
        claims: the command that would decide the claims that lack seeds; empty where none does, and where no command
            is known to.
    """

    kind: Kind | str
    headline: str
    more: tuple[str, ...] = ()
    decide: str = ""
    rank: Rank | None = None
    failures: str = ""
    missing: str = ""
    decides: str = ""
    until: str = ""
    first: bool = False
    one_way: bool = False
    claims: str = ""

    @property
    def prompt(self) -> str:
        """The words before ``decide``."""
        if self.first:
            return "What is missing first"
        if self.one_way:
            return f"May show unstable, not stable{f', for {self.decides} of what is open' if self.decides else ''}"
        return f"To decide {self.decides} of what is open" if self.decides else "To decide"

    @property
    def commands(self) -> list[tuple[str, str]]:
        """What to type next: words, and the command."""
        by_itself = f"{'Or round' if self.decide else 'Round'} by round, by itself"
        named = [(self.prompt, self.decide), (by_itself, self.until), ("To decide the claims", self.claims)]
        return [(words, command) for words, command in named if command]

    @property
    def sentences(self) -> tuple[str, ...]:
        """The headline and what follows as plain text, without backticks."""
        return tuple(sentence.replace("`", "") for sentence in (self.headline, *self.following))

    @property
    def following(self) -> tuple[str, ...]:
        """What stands below the headline: the failures, what is missing, and further answers."""
        return tuple(filter(None, (self.failures, self.missing, *self.more)))


def answer_of(contents: Contents) -> StudyAnswer:
    """The answer of a study, from what has finished of it; trials that failed are counted with it."""
    answer, failures = _with_differences(_of_results(contents), contents), failure_sentence(contents.study.failures)
    if answer.kind is Kind.NOTHING:
        known = failures or contents.study.damaged
        return replace(answer, headline=failures or answer.headline, missing=_missing(contents) if known else "")
    missing = _missing(contents)
    if missing and contents.searched is None:  # what is planned may decide what would be advised
        return replace(answer, failures=failures, missing=missing, decide=contents.study.resume, first=True)
    claims = next((section.decide for section in sections_of(contents) if section.decide), "")
    answer = replace(answer, failures=failures, missing=missing, claims=claims)
    open_ = [each.judgement for each in contents.verdicts if each.judgement.verdict is Verdict.INCONCLUSIVE]
    is_open, most = bool(open_), _most_advised(contents)
    nothing_advised = not answer.decide and (not is_open or contents.study.rounds)
    if nothing_advised or contents.searched is not None:
        return answer
    rounds = is_open and contents.criteria == DEFAULT  # decide knows no other criteria, and ranks nothing
    until = contents.study.until_decided if rounds else ""
    return replace(
        answer,
        decides=_decides(contents) if answer.decide else "",
        until="" if until == answer.decide else until,
        one_way=bool(most) and all(shows_unstable_alone(each.lacks) for each in open_ if most in each.extend),
    )


def _with_differences(answer: StudyAnswer, contents: Contents) -> StudyAnswer:
    """The answer, with the fields that differ beside the names of conditions; a search has other names for them."""
    if contents.searched is not None or answer.kind is Kind.NOTHING:
        return answer
    return replace(answer, more=tuple(filter(None, (*answer.more, contents.labels.also_differ()))))


def _missing(contents: Contents) -> str:
    """``4 of 6 planned trials have no result, so verdicts may change.``"""
    study, may = contents.study, ""
    missing = len(study.missing)
    if not study.is_unfinished:
        return ""
    if contents.searched is None:
        may = f", so {'verdicts' if contents.verdicts else 'the answer'} may change"
    earlier, has = len(study.standing_in), "has" if missing == 1 else "have"
    until = (
        f"; until then {counted(earlier, 'earlier trial')} {'is' if earlier == 1 else 'are'} shown" if earlier else ""
    )
    return f"{missing} of {counted(study.planned, 'planned trial')} {has} no result{may}{until}."


def _decides(contents: Contents) -> str:
    """How many of the undecided verdicts the most frequent advice decides."""
    advised = [
        finding.judgement.extend for finding in contents.verdicts if finding.judgement.verdict is Verdict.INCONCLUSIVE
    ]
    if not advised:
        return ""
    advice = [override for overrides in advised for override in overrides]
    count = max(map(advice.count, advice), default=0)
    return "" if count == len(advised) else "most" if 2 * count > len(advised) else "a part"


def _of_results(contents: Contents) -> StudyAnswer:
    decide, tested = _decide(contents), _answering(contents, Rank.TESTED)
    claims = tuple(_said(contents, Rank.TESTED))
    found, gaps = _of_search(contents)
    if found:
        return StudyAnswer(Kind.SEARCH, found, (*gaps, *claims), decide)
    if contents.verdicts:
        stable = stability_sentence(contents.verdicts, contents.labels)
        if tested:
            return StudyAnswer(tested.kind, claims[0], (*claims[1:], stable, *_lost(contents)), decide, Rank.TESTED)
        return StudyAnswer(Kind.STABILITY, stable, (*_lost(contents),), decide)
    if measured := _answering(contents, Rank.ALONE):
        return StudyAnswer(measured.kind, measured.answer[0], claims, rank=Rank.ALONE)
    if instead := _answering(contents, Rank.INSTEAD):
        return StudyAnswer(Kind.LOSSES, instead.answer[0], claims)
    if contents.losses:
        said = [*_said(contents, Rank.BEFORE), ranking_sentence(contents), *_said(contents, Rank.AFTER)]
        first, *more = said
        return StudyAnswer(Kind.LOSSES, first, (*more, *gaps, *claims), _more_seeds(contents))
    if tested:
        return StudyAnswer(tested.kind, claims[0], claims[1:], rank=Rank.TESTED)
    return StudyAnswer(Kind.NOTHING, _nothing(contents))


def _lost(contents: Contents) -> Iterator[str]:
    """``115 of 160 models diverged.``, and the widths that verdicts do not speak of."""
    if unfit := unfit_sentence(contents.verdicts):
        yield unfit
    rows = once_each(contents.trained)
    if lost := sum(row.diverged for row in rows):
        yield f"{lost} of {counted(sum(row.seeds for row in rows), 'model')} diverged."


def _nothing(contents: Contents) -> str:
    study = contents.study
    planned = f"{study.planned} {'is' if study.planned == 1 else 'are'} planned"
    if study.finished and contents.searched is not None:
        have = f"{counted(study.finished, 'trial')} {'has' if study.finished == 1 else 'have'} a result"
        if contents.searched.history.ended:
            return f"The search has no winner: no suggestion has come to its end; {have}."
        return f"The search compares no trials before a round has ended: {have}, {planned}."
    return f"No trial of this study has finished yet: {planned}."


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
    from memsweep.report.headline.search import search_sentence, tunes_many
    from memsweep.report.rows.search import caveats

    losses = not contents.verdicts and contents.losses
    found = "" if losses and tunes_many(searched) else search_sentence(searched)
    return found, caveats(searched)


def _more_seeds(contents: Contents) -> str:
    """The command that gives models the seeds of a ranking; empty where they have them, or there is one model."""
    seeds = seeds_to_rank(contents) if contents.searched is None else 0
    return contents.study.extended_by(f"training.seeds={seeds}") if seeds else ""


def _decide(contents: Contents) -> str:
    """The advice that most undecided verdicts share; of a search, what its winners lack."""
    searched, study = contents.searched, contents.study
    if searched is not None:
        from memsweep.report.headline.search import lacking

        lacks = lacking(searched)
        return study.extended_by(lacks) if lacks else ""
    most = _most_advised(contents)
    return study.extended_by(most) if most else ""


def _most_advised(contents: Contents) -> str:
    """The words of ``memsweep extend`` that most undecided verdicts share; empty where none has some."""
    advice = [override for finding in contents.verdicts for override in finding.judgement.extend]
    return max(advice, key=advice.count) if advice else ""
