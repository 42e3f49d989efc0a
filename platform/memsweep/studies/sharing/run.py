"""A run of a study that several drivers share: one leads, the others run packs of its plan."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from memsweep.errors import BlockedError, ConfigError, counted
from memsweep.studies.ending import Ending
from memsweep.studies.locations import not_in_a_bucket, stored_plan
from memsweep.studies.run import Run
from memsweep.sweep.driver.claims import LOOK_INTERVAL, Claims
from memsweep.sweep.driver.progress import open_view, write_line
from memsweep.sweep.driver.storage_outage import take_over
from memsweep.sweep.store.journal import State, read_statuses
from memsweep.sweep.store.retry import through_outages

if TYPE_CHECKING:
    from memsweep.sweep.driver.runner import RunSummary
    from memsweep.sweep.store.journal import TrialStatus
    from memsweep.sweep.store.lease import Lease
    from memsweep.sweep.worker.execute import Failure


class SharedRun(Run):
    """A run beside others of the same study, on this machine or elsewhere, with the same folder of results.

    The first one leads: it writes plan, journal and report, and calls MLflow. All of them run packs. Where the leader
    ends early, another one leads when the packs have ended; where there are none, the report alone is left.
    """

    _shared = True
    _claims: Claims
    _failures: Mapping[str, Failure] = {}
    """Of the trials that failed for good while another driver led."""
    _earlier: RunSummary | None = None
    """Of the packs that this driver ran until another one, which led, was gone."""

    def _check(self) -> None:
        problems = [*self._problems()]
        if problems:
            raise ConfigError(problems, f"study {self._sweep.name!r}")
        super()._check()

    def _problems(self) -> Iterator[str]:
        if self._sweep.search is not None:
            yield "--share: one driver makes the rounds of a search. Run it without --share, on a cluster."
        if self._results.local is None:
            yield not_in_a_bucket(self._results)
        if self._request.no_reuse:
            yield (
                "--share: with --no-reuse each driver would set aside what the others have computed. Give the study "
                "another name (name=...), or run it without --share."
            )

    def _drive(self, lease: Lease) -> Ending:
        self._claims, began = Claims(lease), time.monotonic()
        while not through_outages(self._claims.lead):
            if (ended := self._follow()) is not None:
                return ended
            if self._request.plan is not None:  # the driver that led has written it anew
                self._request = replace(self._request, plan=stored_plan(self._store))
            time.sleep(LOOK_INTERVAL / 4)
        ended = self._run()
        if not ended.summary.interrupted:
            self._claims.conclude()
        return ended if self._earlier is None else self._whole(ended, self._earlier, time.monotonic() - began)

    def _whole(self, ended: Ending, earlier: RunSummary, seconds: float) -> Ending:
        """The ending with what this driver ran before it led, which its run as the leader takes for reused."""
        reused = len(self._trials.stored - earlier.finished.keys())
        return replace(ended, summary=_joined(earlier, ended.summary), reused=reused, seconds=seconds)

    def _plan(self) -> None:
        super()._plan()
        self._announce()

    def _make_trials(self, statuses: Mapping[str, TrialStatus]) -> None:
        super()._make_trials(statuses)
        if through_outages(self._claims.cuts) - {self._trials.plan.cut}:
            raise BlockedError(
                "this driver would run other trials than those that share the study now, or in other packs. Start all "
                "with the same study, the same overrides and resources, and the same versions of memsweep and its "
                "libraries; or wait until the others have ended."
            )

    def _announce(self) -> None:
        through_outages(lambda: self._claims.announce(self._trials.plan.cut))

    def _compute(self) -> RunSummary:
        return self._with_failures(super()._compute())

    def _follow(self) -> Ending | None:
        """Runs packs of the leader's plan until the study has ended; None where nobody leads any more."""
        began = time.monotonic()
        if not self._await_plan():
            return None
        through_outages(lambda: take_over(self._store))
        statuses = through_outages(lambda: read_statuses(self._store.location))
        self._leave_out(through_outages(lambda: self._failed_since(statuses)))
        self._make_trials(statuses)
        self._announce()
        self._choose_process()
        summary = self._with_failures(self._run_packs())
        if not summary.interrupted:
            through_outages(lambda: self._claims.release(self._claims.held))
            self._say_of("is to write the report")
            if not self._await_end():
                self._leave_out(summary.failed)  # all that is left is the report
                self._earlier = summary if self._earlier is None else _joined(self._earlier, summary)
                return None
        return self._left(summary, time.monotonic() - began)

    def _failed_since(self, statuses: Mapping[str, TrialStatus]) -> dict[str, Failure]:
        """The failures since the leader wrote its plan."""
        began = str(stored_plan(self._store).provenance.get("started", ""))
        ended = (State.FAILED, State.OUT_OF_MEMORY)
        names = {name for name, status in statuses.items() if status.state in ended and status.since >= began}
        return {**self._store.failures(names)} if names else {}

    def _leave_out(self, failures: Mapping[str, Failure]) -> None:
        """These trials have failed in this run of the study, here or elsewhere: they are not tried again."""
        self._failures = {**self._failures, **failures}
        names = {trial.identity for trial in self._request.trials}
        only = names if self._request.only is None else self._request.only
        self._request = replace(self._request, only=frozenset(only - self._failures.keys()))

    def _with_failures(self, summary: RunSummary) -> RunSummary:
        """The summary with what has failed before, while another driver led."""
        ended = self._trials.stored | summary.finished.keys()
        before = {name: failure for name, failure in self._failures.items() if name not in ended}
        return replace(summary, failed={**before, **summary.failed})

    def _await_plan(self) -> bool:
        """Whether the leader has written its plan, and not left."""
        said = False
        while (found := through_outages(self._claims.leader)) is not None:
            said = said or self._say_of("leads; this one takes packs of the study, too")
            if found[1].cut:
                return True
            time.sleep(LOOK_INTERVAL)
        return False

    def _await_end(self) -> bool:
        """Waits for the leader; whether it has ended the study, and not just itself."""
        while (found := through_outages(self._claims.leader)) is not None:
            if found[1].concluded:
                return True
            time.sleep(LOOK_INTERVAL)
        return False

    def _say_of(self, words: str) -> bool:
        if (found := through_outages(self._claims.leader)) is not None:
            write_line(self._stream, f"{found[0]} {words}")
        return found is not None

    def _run_packs(self) -> RunSummary:
        from memsweep.sweep.driver.runner import run

        starting = "starting Ray" if self._trials.plan.packs and not self._place.launch.inline else ""
        with open_view(self._sweep.name, self._stream, starting) as self._view:
            return run(
                self._trials.plan,
                workspace=self._workspace,
                results=self._results,
                launch=self._place.launch,
                limits=self._place.limits,
                on_progress=self._view.update,
                claims=self._claims,
                leads=False,
            )

    def _left(self, summary: RunSummary, seconds: float) -> Ending:
        """How the part of this driver ended."""
        own = summary.finished.keys() - summary.elsewhere
        write_line(self._stream, f"{counted(len(own), 'trial')} of {len(self._trials.all)} had their result here")
        return self._ending(self._code(summary), summary, None, seconds, None, "")


def _joined(earlier: RunSummary, later: RunSummary) -> RunSummary:
    """The summary of two runs of a driver, one after the other."""
    return replace(
        later,
        finished={**earlier.finished, **later.finished},
        elsewhere=earlier.elsewhere | later.elsewhere,
        profile=earlier.profile + later.profile,
    )
