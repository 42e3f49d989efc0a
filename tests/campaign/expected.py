"""The content of a study in the end: the same as one that nothing has hit, but for what its faults may change.

Where a fault makes a trial of a search fail that runs alone, its suggestion has failed. The search goes on without its
result, as docs/search.md says, and so with other suggestions than an undisturbed one. It is held against a search in
which nothing else happens, and the same suggestions fail.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple

from drill_study import Outcome
from memsweep.search.round_log import FOLDER, Round, RoundLog
from memsweep.sweep.planning.plan_file import read_plan
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.results import Store
from tests.campaign.bench import Bench
from tests.campaign.scenarios import Scenario
from tests.campaign.site import Site

_FAILED = re.compile(r"search, round [^\r\n]* failed")
"""A line in the progress of a search, as soon as one of its suggestions has failed."""


class Failure(NamedTuple):
    """A suggestion without a result, as the log of a search has it.

    Attributes:
        key: of the search.
        round: that begins with it.
        number: of the suggestion.
        identity: of its last trial, which failed; a later command may have computed it.
    """

    key: str
    round: int
    number: int
    identity: str

    def enter(self, place: Location) -> None:
        """Let the suggestion fail in a study whose search has come to the same round: that round is decided again."""
        log = RoundLog(place, self.key)
        known = log.read(self.round)
        assert known is not None, f"no round {self.round} of the search {self.key}"
        observed = [replace(one, values=None) if one.number == self.number else one for one in known.observations]
        log.write(self.round, Round(tuple(observed), cell=known.cell))


def failures(place: Location) -> frozenset[Failure]:
    """Every suggestion that has failed, by the logs of a study's searches."""
    found = []
    for key in (place / FOLDER).folders():
        rounds = RoundLog(place, key).read_all()
        for number, (before, one) in enumerate(pairwise(rounds), 1):
            names = {trial.number: trial.identity for trial in before.trials}
            lost = [each.number for each in one.observations if each.values is None]
            found += [Failure(key, number, each, names[each]) for each in lost]
    return frozenset(found)


def failed_once(site: Site) -> bool:
    """Whether a suggestion has failed, though its round may be lost since."""
    return bool(failures(site.location)) or any(_FAILED.search(ended.said) for ended in site.ended)


@dataclass(frozen=True)
class Reference:
    """A finished study that nothing has hit.

    Attributes:
        store: its results.
        batches: how many it has asked for.
    """

    store: Store
    batches: int

    @cached_property
    def names(self) -> frozenset[str]:
        """The trials of its plan; all have a result."""
        return planned(self.store.location)


def planned(place: Location) -> frozenset[str]:
    """The trials of a study's plan."""
    plan = read_plan(place)
    assert plan is not None, f"no plan in {place}"
    return frozenset(plan.rows)


class References:
    """The undisturbed results of each study, computed once.

    Args:
        folder: where they are computed, and stay.
        bench: what they stand on.
    """

    def __init__(self, folder: Path, bench: Bench) -> None:
        self._folder, self._bench = folder, bench
        self._known: dict[tuple[str, frozenset[Failure]], Reference] = {}

    def of(self, study: str, failed: frozenset[Failure] = frozenset()) -> Reference:
        """A study, in whose search these suggestions fail."""
        if (study, failed) not in self._known:
            quiet = Scenario(study, "disk", "sqlite", ray=False)
            with Site.make(self._folder / f"{study}.{len(self._known)}", quiet, self._bench) as site:
                _sweep(site)
                for number in sorted({one.round for one in failed}):
                    for one in failed:
                        if one.round == number:
                            one.enter(site.location)
                    _sweep(site)
                self._known[study, failed] = Reference(site.store, len(site.asked()))
        return self._known[study, failed]


def _sweep(site: Site) -> None:
    site.start("sweep")
    ended = site.wait()
    assert ended.code == 0, ended.said


def difference(site: Site, references: References) -> str:
    """Says what a finished study has too much or lacks; empty where its results are the sound ones of its reference.

    The trial of a failed suggestion may lack its result. Where a suggestion failed and the round that said so was lost,
    its later result counts; then trials of the search that went on without it are stored, too, and are in no plan.
    """
    failed = failures(site.location)
    expected = references.of(site.scenario.study, failed)
    names: Collection[str] = site.whole().keys()
    if failed_once(site):
        names = names & planned(site.location)
    may_lack = {one.identity for one in failed}
    if not expected.names - may_lack <= names <= expected.names:
        return f"{len(names)} trials are stored, and not the {len(expected.names)} expected"
    if not Outcome.of(site, names).equals(Outcome.of(expected, names)):
        return "the tables or the verdicts differ from those of an undisturbed run"
    return ""
