"""Runs one round: breaks its study as drawn, finishes it, and holds it against the reference."""

from __future__ import annotations

import json
import random
import re
import shutil
import time
import traceback
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path

from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.worker.limits import TimeLimitError
from tests.campaign.bench import Bench
from tests.campaign.expected import Reference, References, difference, failed_once
from tests.campaign.faults import KINDS
from tests.campaign.faults.base import Fault
from tests.campaign.faults.clocks import Jumps
from tests.campaign.ledger import Entry, Injection
from tests.campaign.rounds import Round, Stage
from tests.campaign.site import Command, Site, TooLongError

TRIES = 6
"""Commands after which a study must be done, when nothing hits them."""
UNFELT = 12.0
"""Seconds for which a fault goes on that nothing has met yet."""
_CODES = (0, 1, 2, 3, 4, 130)
"""The exit codes of a command that was not killed."""

_TRACEBACK = re.compile(r"Traceback \(most recent call last\):\n(?:[ \t].*\n|\n)*.*")
"""One traceback, with the line that names the error; those that go through the task's file are its failure's."""
_CHAIN = re.compile(rf"{_TRACEBACK.pattern}(?:\n\n(?:During|The above) .*:\n\n{_TRACEBACK.pattern})*")
"""The traceback of an error, with those of the errors that it was raised from."""


@dataclass
class _Hit:
    """An injection, and the time from which its study has to recover (Unix time)."""

    note: Injection
    began: float
    over: float
    timed: bool = True


@dataclass
class Play:
    """A round on its way."""

    drawn: Round
    site: Site
    references: References
    reference: Reference
    luck: random.Random
    hits: list[_Hit] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)
    replan: bool = False

    def run(self) -> None:
        """All of it."""
        try:
            fresh: list[_Hit] = []
            for number, stage in enumerate(self.drawn.stages):
                fresh = self._stage(stage, number, fresh)
                if self.problems:
                    break
            if not self.problems:
                self._finish(fresh)
            if not self.problems:
                self._compare()
        except Exception as error:  # also one of the campaign's own: the round is kept, the next one runs
            self.problems.append(f"{type(error).__name__}: {error}"[:3000] + traceback.format_exc()[-2000:])
        self._recovered()

    def _stage(self, stage: Stage, number: int, earlier: list[_Hit]) -> list[_Hit]:
        """One command, and what hits it and its files; gives the hits whose cost the next command shows."""
        site, luck = self.site, self.luck
        faults = [KINDS[name]() for name in stage.live]
        before, segments = site.whole(), site.journal().keys()
        hits: list[_Hit] = []
        try:
            for fault in faults:
                fault.prepare(site, luck)
            site.slow(0.1)
            site.start("sweep" if number == 0 or site.overrides or self.replan else luck.choice(["sweep", "resume"]))
            self._reach_moment(all(fault.early for fault in faults), bool(stage.rest))
            if not site.running and site.words[0] == "resume" and (refused := site.wait()).code:
                self._ended(refused, killed=False)  # both copies of the plan may be damaged
                site.start("sweep")
                self._reach_moment(False, bool(stage.rest))
            self.replan = bool(site.overrides)
            self._strike(faults, len(self.drawn.stages) - number, hits)
        finally:
            for fault in reversed(faults):
                fault.heal(site)
            site.heal()
        ends = any(fault.ends_in(site.scenario) for fault in faults)
        site.quick()
        ended = site.wait()
        for hit in hits:
            hit.timed = not any(fault.name == Jumps.name for fault in faults)
            hit.over = hit.over or time.time()
        self._ended(ended, killed=ends)
        self._cost(before, set(segments), [*earlier, *hits])
        resting = []
        rest = list(stage.rest)
        if self.drawn.stages[number + 1 :] and len(self.site.whole()) == len(self.reference.names):
            rest.append("record damaged or lost")  # else the next command had nothing to train
        for name in rest:
            kind, began = KINDS[name](), time.time()
            if kind.inject(site, luck):
                resting.append(_Hit(Injection(name, kind.how), began, began))
        self.hits += [*hits, *resting]
        return resting

    def _strike(self, faults: list[Fault], stages: int, hits: list[_Hit]) -> None:
        """One fault after the other, at times two at once, until one of them ends the command.

        ``stages`` with this one are left, and each of them needs something to train: a batch takes as long as it must.
        """
        site, luck = self.site, self.luck
        waiting, asked = list(faults), len(site.asked())
        left = self.reference.batches * max(0.1, 1.0 - len(site.location.names("records")) / len(self.reference.names))
        while waiting and site.running:
            lasting = stages * sum(4.0 + fault.seconds[1] for fault in waiting)
            site.slow(0.1 if waiting[0].alone else lasting / max(1.0, left - len(site.asked()) + asked))
            together = [waiting.pop(0)]
            if waiting and _may_meet(together[0], waiting[0]) and luck.random() < 0.25:
                together.append(waiting.pop(0))
            fresh = []
            for fault in together:
                began = time.time()
                if site.running and fault.inject(site, luck):
                    fresh.append((fault, _Hit(Injection(fault.name, fault.how), began, 0.0)))
            ends = any(fault.ends_in(site.scenario) for fault in together)
            last = time.monotonic() + max(luck.uniform(*fault.seconds) for fault in together)
            while (
                not ends
                and site.running
                and (
                    time.monotonic() < last
                    or (time.monotonic() < last + UNFELT and not all(fault.felt(site) for fault, _ in fresh))
                )
            ):
                time.sleep(0.05)
            hits += [hit for fault, hit in fresh if fault.felt(site)]
            for fault in together:
                if not fault.from_start or _lasts(fault):
                    fault.heal(site)
            for _, hit in fresh:
                hit.over = 0.0 if ends else time.time()
            if not ends:
                time.sleep(luck.uniform(0.1, 1.0))

    def _reach_moment(self, early: bool, late: bool) -> None:
        """Wait until the moment at which the command is hit: so many seconds, batches, or a result.

        Late enough for files that can be damaged afterwards, where that is asked for.
        """
        site, luck = self.site, self.luck
        asked, stored = len(site.asked()), len(self.site.location.names("records"))
        goal = asked + max(1, int(luck.uniform(0.0, 0.1) * self.reference.batches))
        seconds, draw = luck.uniform(0.2, 8.0), luck.random()
        if early and not late and draw < 0.3:
            last = time.monotonic() + seconds
            while site.running and time.monotonic() < last:
                time.sleep(0.01)
        elif stored or (draw < 0.6 and not late):
            site.until(lambda: not site.running or len(site.asked()) >= goal, f"{goal} batches are asked for")
        else:
            site.until(lambda: not site.running or len(site.location.names("records")) > stored, "a result is stored")

    def _finish(self, hits: list[_Hit]) -> None:
        """Run commands until one says that the study is done."""
        site = self.site
        done = bool(site.ended) and site.ended[-1].code == 0 and not hits
        words = ["sweep" if self.replan else self.luck.choice(["resume", "resume", "sweep"])]
        inline = self.luck.random() < 0.8
        for _ in range(TRIES):
            if done:
                return
            before, segments = site.whole(), site.journal().keys()
            site.start(*words, inline=inline)
            ended = site.wait()
            self._ended(ended, killed=False)
            self._cost(before, set(segments), hits)
            hits, done = [], ended.code == 0
            words = _next_words(ended)
        if not done:
            self.problems.append(f"after {TRIES} commands the study is not done: {site.ended[-1].said[-1500:]}")

    def _ended(self, command: Command, *, killed: bool) -> None:
        """Look at how a command has ended."""
        if told := unexpected_tracebacks(command):
            self.problems.append(f"{command.words[0]} printed a traceback: {told[0][:3000]}")
        self.problems += filter(None, [promise() for promise in self.site.promises])
        if command.code not in _CODES and not killed and not self._may_crash(command):
            self.problems.append(f"{command.words[0]} ended with code {command.code}: {command.said[-1500:]}")
        with suppress(TooLongError):
            self.site.until(lambda: not self.site.left(), "all processes end", 90.0, pause=0.2)
            return
        self.problems.append(f"after {command.words[0]} these still run: {self.site.left()}"[:1500])
        self.site.kill_all()

    def _may_crash(self, command: Command) -> bool:
        """In one process with the driver, a task that takes its process down takes the driver with it."""
        return not self.site.scenario.ray and command.code in (3, -6, -11)

    def _cost(self, before: dict[str, bytes], segments: set[str], hits: list[_Hit]) -> None:
        """Count the results that were whole before a command and are not any more, or were computed again."""
        after, running = self.site.whole(), set()
        lost = [name for name, data in before.items() if after.get(name) != data]
        for name, data in self.site.journal().items():
            if name not in segments:
                for line in data.splitlines():
                    with suppress(ValueError, KeyError, TypeError):
                        if (told := json.loads(line))["state"] == "running":
                            running.add(told["trial"])
        again = running & before.keys()
        for hit in hits:
            hit.note.lost, hit.note.rerun = len(lost), len(again)
        if lost:
            self.problems.append(f"lost: {lost}")
        if again:
            self.problems.append(f"computed again although whole: {sorted(again)}")

    def _compare(self) -> None:
        """The study holds what it must."""
        if failed_once(self.site) and not any(KINDS[hit.note.kind].fails for hit in self.hits):
            self.problems.append("a suggestion of the search failed, and nothing had hit its trial")
        if differs := difference(self.site, self.references):
            self.problems.append(differs)

    def _recovered(self) -> None:
        """The first batch after a fault was over, or the end, is when its study had recovered."""
        batches, end = [asked.when for asked in self.site.asked()], time.time()
        for hit in self.hits:
            if hit.timed:
                later = [when for when in batches if hit.over < when < end]
                hit.note.recovered = round(min(later or [end]) - hit.began, 2)


def unexpected_tracebacks(command: Command) -> list[str]:
    """The tracebacks that a command printed and no fault explains.

    A short time limit, which a fault has set, ends a trial wherever the machine is slow, not only in its task.
    """
    limited = any(word.startswith("resources.time_limit=") for word in command.words)
    chains = [
        chain
        for chain in _CHAIN.findall(command.said)
        if not (limited and TimeLimitError.__name__ in chain.splitlines()[-1])
    ]
    return [one for chain in chains for one in _TRACEBACK.findall(chain) if "watched.py" not in one]


def _next_words(ended: Command) -> list[str]:
    """The command after one that did not finish the study."""
    if ended.gave_up:
        return ["retry", "--force"]
    return ["sweep" if ended.words[0] == "resume" else "retry" if "failed" in ended.said else "resume"]


def _lasts(fault: Fault) -> bool:
    return fault.seconds[1] > 2.0 and not fault.alone


def _may_meet(one: Fault, two: Fault) -> bool:
    """Whether they can hit at once; of one proxy, host or disk there is one."""
    return _lasts(one) and _lasts(two) and type(one).__module__ != type(two).__module__


def play(drawn: Round, bench: Bench, references: References, folder: Path, kept: Path) -> Entry:
    """Run a round.

    Args:
        drawn: the round.
        bench: what it stands on.
        references: what its study gives when nothing happens to it.
        folder: where it lies, which is deleted afterwards.
        kept: where the folder of a round with a problem goes, with a script that repeats the round.
    """
    began = time.monotonic()
    reference = references.of(drawn.scenario.study)
    with Site.make(folder, drawn.scenario, bench) as site:
        one = Play(drawn, site, references, reference, drawn.luck())
        try:
            one.run()
        finally:
            site.heal()
            if one.problems:
                site.kill_all()  # a command that still runs would change the files while they are copied
                _keep(drawn, one, folder, kept)
    shutil.rmtree(folder, ignore_errors=True)
    notes = [hit.note for hit in one.hits]
    seconds = round(time.monotonic() - began, 1)
    return Entry(drawn.seed, drawn.number, str(drawn), notes, one.problems, seconds)


def _keep(drawn: Round, one: Play, folder: Path, kept: Path) -> None:
    kept.mkdir(parents=True, exist_ok=True)
    shutil.copytree(folder, kept / "site", symlinks=True, ignore_dangling_symlinks=True, dirs_exist_ok=True)
    if (place := Location.at(one.site.results)).local is None:
        from pyarrow import fs

        fs.copy_files(place.path(), str(kept / "site" / "bucket"), place.files, fs.LocalFileSystem())
    hits = [f"  {hit.note}" for hit in one.hits]
    commands = [f"  {' '.join(ended.words)}: {ended.code}" for ended in one.site.ended]
    told = [str(drawn), "hit:", *hits, "commands:", *commands, "problems:", *one.problems]
    (kept / "problem.txt").write_text("\n".join(told) + "\n")
    (kept / "round.json").write_text(json.dumps(drawn.as_json(), indent=1) + "\n")
    script = kept / "reproduce.sh"
    script.write_text(
        "#!/bin/sh\n# Run it in the root of the repository.\n"
        'exec .venv/bin/python -m tests.campaign --again "$(dirname "$0")/round.json"\n'
    )
    script.chmod(0o755)
