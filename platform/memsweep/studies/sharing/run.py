"""A run of a study that several drivers share: one leads, the others run packs of its plan."""

from __future__ import annotations

import time
from collections.abc import Iterator
from dataclasses import replace
from typing import TYPE_CHECKING

from memsweep.errors import BlockedError, ConfigError, counted
from memsweep.studies.ending import Ending
from memsweep.studies.locations import stored_plan
from memsweep.studies.run import Run
from memsweep.sweep.driver.claims import LOOK_INTERVAL, Claims
from memsweep.sweep.driver.progress import open_view, write_line
from memsweep.sweep.store.journal import read_statuses

if TYPE_CHECKING:
    from memsweep.sweep.driver.runner import RunSummary
    from memsweep.sweep.store.lease import Lease


class SharedRun(Run):
    """A run beside others of the same study, on this machine or elsewhere, with the same folder of results.

    The first one leads: it writes plan, journal and report, and calls MLflow. All of them run packs. Where the leader
    ends early, another one leads when the packs have ended; where there are none, the report alone is left.
    """

    _shared = True

    def _check(self) -> None:
        problems = [*self._problems()]
        if problems:
            raise ConfigError(problems, f"study {self._sweep.name!r}")
        super()._check()

    def _problems(self) -> Iterator[str]:
        if self._sweep.search is not None:
            yield "--share: one driver makes the rounds of a search. Run it without --share, on a cluster."
        if self._request.no_reuse:
            yield (
                "--share: with --no-reuse each driver would set aside what the others have computed. Give the study "
                "another name (name=...), or run it without --share."
            )

    def _drive(self, lease: Lease) -> Ending:
        claims = Claims(lease)
        while not claims.lead():
            if (ended := self._follow(claims)) is not None:
                return ended
            if self._request.plan is not None:  # the driver that led has written it anew
                self._request = replace(self._request, plan=stored_plan(self._store))
        self._claims = claims
        ended = self._run()
        if not ended.summary.interrupted:
            claims.conclude()
        return ended

    def _follow(self, claims: Claims) -> Ending | None:
        """Runs packs of the leader's plan until the study has ended; None where nobody leads any more."""
        from memsweep.sweep.driver.runner import RunSummary

        began = time.monotonic()
        if (cut := self._await_plan(claims)) is None:
            return None
        self._make_trials(read_statuses(self._store.location))
        if cut not in ("", self._trials.plan.cut):
            raise BlockedError(
                "this driver would run other trials than the one that leads, or in other packs. Start all with the "
                "same study, the same overrides and resources, and the same versions of memsweep and its libraries."
            )
        if not cut:
            return self._left(RunSummary(), time.monotonic() - began)
        self._choose_process()
        summary = self._run_packs(claims)
        if not summary.interrupted:
            self._say_of("is to write the report", claims)
            if not self._await_end(claims):
                # what failed in this run is not tried again: all that is left is the report
                missing = {trial.identity for trial in self._trials.all} - summary.failed.keys()
                self._request = replace(self._request, only=frozenset(missing))
                return None
        return self._left(summary, time.monotonic() - began)

    def _await_plan(self, claims: Claims) -> str | None:
        """The digest of the leader's packs once it has written its plan; empty where it has ended the study."""
        said = False
        while (found := claims.leader()) is not None:
            said = said or self._say_of("leads; this one takes packs of the study, too", claims)
            if found[1].concluded:
                return ""
            if found[1].cut:
                return found[1].cut
            time.sleep(LOOK_INTERVAL)
        return None

    def _await_end(self, claims: Claims) -> bool:
        """Waits for the leader; whether it has ended the study, and not just itself."""
        while (found := claims.leader()) is not None:
            if found[1].concluded:
                return True
            time.sleep(LOOK_INTERVAL)
        return False

    def _say_of(self, words: str, claims: Claims) -> bool:
        if (found := claims.leader()) is not None:
            write_line(self._stream, f"{found[0]} {words}")
        return found is not None

    def _run_packs(self, claims: Claims) -> RunSummary:
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
                claims=claims,
                leads=False,
            )

    def _left(self, summary: RunSummary, seconds: float) -> Ending:
        """How the part of this driver ended."""
        own = summary.finished.keys() - summary.elsewhere
        write_line(self._stream, f"{counted(len(own), 'trial')} of {len(self._trials.all)} had their result here")
        return self._ending(self._code(summary), summary, None, seconds, None, "")
