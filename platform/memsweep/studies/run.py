"""One run of a study: check, plan, write the plan, compute, judge, report. Whatever computes is a ``Run``."""

from __future__ import annotations

import contextlib
import os
import signal
import sys
import time
from collections.abc import Mapping
from dataclasses import replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

from memsweep.errors import BlockedError, Exit, StoreError
from memsweep.redaction import without_secrets
from memsweep.report.read.command_line import is_of_words
from memsweep.studies.ending import Ending, Tracking, differences, folder_gone, note, noted, taken_over
from memsweep.studies.locations import Place, ready, remember_plan, store_of, stored_plan
from memsweep.studies.trials import ANEW, GridTrials, Request, SearchTrials, Trials, kept, refuse_misfit, refuse_to_drop
from memsweep.sweep.driver.progress import phase, write_line
from memsweep.sweep.store.journal import ending, failed_often, read_statuses
from memsweep.sweep.store.typed import typed, way_to

if TYPE_CHECKING:
    from memsweep.report.live.process import LivePage
    from memsweep.report.publish import ReportPaths
    from memsweep.report.terminal import EarlyVerdicts
    from memsweep.sweep.driver.claims import Claims
    from memsweep.sweep.driver.metrics import Gauges
    from memsweep.sweep.driver.progress import Snapshot, View
    from memsweep.sweep.driver.runner import RunSummary
    from memsweep.sweep.planning.plan import Plan
    from memsweep.sweep.planning.plan_file import StoredPlan
    from memsweep.sweep.store.journal import TrialStatus
    from memsweep.sweep.store.lease import Lease
    from memsweep.sweep.tracking import Tracker

_UNTIL_MLFLOW = 30.0  # seconds after which MLflow, whose import takes long, shows a study without a result


class Run:
    """A run of a study; the methods after ``execute`` stand in the order of time.

    Args:
        request: what is asked for.
        place: where and for how long to run.
        stream: where progress is written (None: standard output).
    """

    _trials: Trials
    _tracker: Tracker
    _view: View
    _early: EarlyVerdicts | None
    _complete: Tracking | None
    _shared = False
    """Whether other drivers may run packs of the study at the same time."""
    _claims: Claims | None = None

    def __init__(self, request: Request, place: Place, stream: TextIO | None = None) -> None:
        self._request, self._sweep, self._place, self._results = request, request.sweep, place, place.results
        self._stream = stream if stream is not None else sys.stdout
        self._workspace = place.workspace.resolve()
        self._address = place.launch.address  # as it was given, and not the one that a job has
        self._resume = typed(
            "resume", request.sweep.name, place.results, workspace=place.workspace, address=self._address
        )
        self._lease_lost, self._had = False, set[str]()  # identities that had a result in this run

    def execute(self) -> Ending:
        """Runs the study while this process holds its lease.

        Raises:
            HeldError: another process runs the study.
            MemsweepError: the results cannot be written, or the resources are missing; nothing has been started.
            KeyboardInterrupt: Ctrl-C came before trials ran, or after.
        """
        from memsweep.sweep.signals import announced, terminate_like_ctrl_c
        from memsweep.sweep.store.lease import hold_lease

        with phase("checking the study and this machine", self._stream):
            self._check()
        ended = None
        held = hold_lease(self._store.location, self._on_lease_lost, shared=self._shared)
        with terminate_like_ctrl_c(), announced(self._say_stopping), held as lease:
            self._lease = lease
            try:
                ended = self._drive(lease)
            except (KeyboardInterrupt, Exception) as error:
                self._check_folder()
                if not (self._lease_lost and isinstance(error, KeyboardInterrupt)):
                    raise
        if self._lease_lost or ended is None:
            raise BlockedError(taken_over(self._sweep.name, self._results))
        return ended

    def _drive(self, lease: Lease) -> Ending:
        """Runs the study while the lease is held."""
        return self._run()

    def _check_folder(self) -> None:
        """Checks that the study's folder has not gone while it ran, and its results with it.

        Raises:
            BlockedError: it has.
        """
        with contextlib.suppress(OSError, StoreError):  # of the storage, which then tells nothing
            local = self._store.location.local is not None  # a bucket that fails would be asked for minutes
            lost = self._lease_lost or (local and not self._lease.beat())
            if lost and (told := folder_gone(self._store, self._had)):
                raise BlockedError(told)

    def _say_stopping(self) -> None:
        words = "stopping: what has finished is kept, and resume goes on with the rest"
        if self._lease_lost:
            words = f"stopping: the lease of this run is no longer in {self._store.location}"
        if (view := getattr(self, "_view", None)) is not None:
            view.say(words)
        else:
            write_line(self._stream, words)

    def _on_lease_lost(self) -> None:
        self._lease_lost = True
        os.kill(os.getpid(), signal.SIGTERM)  # not SIGINT, which a shell's background job ignores

    def _run(self) -> Ending:
        from memsweep.sweep.driver.runner import RunSummary

        began = time.monotonic()
        with self._open_page():
            self._plan()
            if self._complete is not None:
                from memsweep.report.publish import standing

                paths = standing(self._store.folder)
                self._page.close(paths.page)
                return self._ending(0, RunSummary(), paths, time.monotonic() - began, self._complete, "")
            self._open_tracker()
            try:
                summary = self._compute()
                if summary.outage:
                    return self._conclude_outage(summary, time.monotonic() - began)
                self._page.update(left="", doing="", note="writing the report")
                self._page.rest()
                with phase("writing the report", self._stream):
                    from memsweep.report.publish import build

                    paths = build(self._store.location)
                self._page.close(paths.page)
            except BaseException as error:  # the sweep's own run must not look as if it were still running
                interrupted = isinstance(error, KeyboardInterrupt)
                self._tracker.finish("interrupted" if interrupted else "failed", patience=5.0)
                raise
            return self._conclude(summary, paths, time.monotonic() - began)

    def _open_page(self) -> LivePage:
        """The page of the study while it runs; says its address."""
        from memsweep.report.live.process import LivePage

        page, sweep = self._place.page, self._sweep
        self._page = LivePage(self._store.location, sweep.name, sweep.description, serve=page.serve, write=page.write)
        if self._page.address:
            write_line(self._stream, f"page: {self._page.address}")
        return self._page

    def _check(self) -> None:
        """Refuses what cannot run here, before anything of the study is written."""
        from memsweep.sweep.store.unwritable import check_writable
        from memsweep.sweep.tracking.uri import tracking_uri

        self._place = ready(self._place, self._sweep)
        refuse_misfit(self._sweep, self._request.measures)
        search, launch = self._sweep.search, self._place.launch
        tracking_uri(None, self._results)
        self._store = store_of(self._results, self._sweep.name)
        check_writable(self._results)
        if search is not None and search.settings.scheduler.by_ray and not launch.inline:
            from memsweep.sweep.ray.session import import_ray

            import_ray(launch.address)  # Ray reads its settings when it is imported, and the scheduler imports it

    def _plan(self) -> None:
        """Plans the trials without a result, says and writes the plan, and prepares the study's folder."""
        from memsweep.sweep.driver.storage_outage import take_over

        request, store = self._request, self._store
        take_over(store)
        before = self._plan_before()
        self._extended = request.extended if request.extended is not None else kept(before, self._sweep)
        statuses = read_statuses(store.location)
        if before is not None and request.goes_on_anew(before):
            self._request = request = replace(request, no_reuse=True, begun=True)
        self._make_trials(statuses)
        for line in differences(self._trials, statuses, self._place, self._address):
            write_line(self._stream, line)
        self._choose_process()
        self._note_origin()
        self._complete = self._found_complete(before)
        if self._complete is None:
            self._trials.restart()
            self._write_plan()
            self._trials.prepare_folder()

    def _make_trials(self, statuses: Mapping[str, TrialStatus]) -> None:
        """Plans the trials, of which those are left out that failed too often by the journal."""
        request, retry_all = self._request, self._request.retry_all or self._request.no_reuse
        given_up = frozenset() if retry_all else failed_often(statuses)
        kind = request.grow or (GridTrials if self._sweep.search is None else SearchTrials)
        with phase("planning the trials", self._stream):
            self._trials = kind(request, self._store, self._results, given_up)
        self._had |= self._trials.plan.done

    def _plan_before(self) -> StoredPlan | None:
        """The plan that this run replaces; refuses one that has just changed, and one whose extension it would drop."""
        from memsweep.sweep.planning.plan_file import plan_to_replace

        request = self._request
        if request.plan is not None:
            if request.plan.serial != stored_plan(self._store).serial:
                raise BlockedError(
                    "another command has changed the plan of this study just now. Run the same command again."
                )
            return request.plan
        before = plan_to_replace(self._store.location)
        if not request.drop_extended:
            refuse_to_drop(before, request, self._resume)
        return before

    def _note_origin(self) -> None:
        """The notes of this run in the plan and in MLflow: when, by which command and code, and its varied settings."""
        from memsweep.sweep.job import job_name
        from memsweep.sweep.store.record import now
        from memsweep.sweep.tracking.run_content import naming_fields, sweep_params
        from memsweep.sweep.worker.provenance import code_revision

        revision = code_revision(self._workspace)
        self._provenance = {"started": now(), "code_revision": revision, **self._called()}
        self._provenance |= {ANEW: True} if self._request.no_reuse else {}
        self._provenance |= {"job": job_name(), "workspace": ""} if job_name() else {}  # its folder goes with it
        params, varied = sweep_params(self._sweep), naming_fields(self._sweep)
        kept = self._request.plan.tracking if self._request.plan is not None else {}  # of the run that is continued
        self._tracking = {"params": params, "tags": {"code_revision": revision}, **kept, "varied": varied}

    def _choose_process(self) -> None:
        """Computes in this process, and says so, where nobody said where and nothing needs Ray."""
        launch, plan = self._place.launch, self._trials.plan
        if launch.inline is not None or launch.address is not None or (self._trials.complete and not plan.packs):
            return
        from memsweep.sweep.driver.placement import placement
        from memsweep.sweep.estimate.estimate import waves

        chosen = placement(self._sweep, waves(self._sweep, plan.packs))
        self._place = replace(self._place, launch=replace(launch, inline=chosen.inline))
        if chosen.inline:
            write_line(self._stream, chosen.text)

    def _found_complete(self, before: StoredPlan | None) -> Tracking | None:
        """Where MLflow has the runs of a study that is complete, if this run would change nothing of it; else None."""
        from memsweep.sweep.planning.plan_file import is_stored

        trials, folder = self._trials, self._store.location.local
        if before is None or folder is None or self._place.page.write or self._request.no_reuse or trials.gave_up:
            return None
        found = noted(before.provenance, folder, self._results)
        if found is None or not (trials.complete and trials.ended(trials.stored)) or not trials.reuse.is_whole:
            return None
        same = before.provenance.get("overrides") == self._called()["overrides"]
        return found if same and is_stored(before, trials.plan, self._tracking, self._extended) else None

    def _called(self) -> dict[str, Any]:
        """The command, the study's file, and in what the study differs from it; a continued study keeps both."""
        request = self._request
        before = request.plan.provenance if request.plan is not None else {}
        overrides = [*map(without_secrets, request.overrides)] or [*before.get("overrides", ())]
        given, command = request.source, request.command
        made = str(before.get("command") or ""), before.get("source")
        if is_of_words(*made) and not is_of_words(command, given):  # advice needs the words that made the study
            command, given = made[0], made[1] or ""
        if self._workspace != Path.cwd() and Path(given).is_file():  # from elsewhere, it would not be found
            given = str(Path(given).resolve())
        return {
            "command": without_secrets(command),
            "source": without_secrets(given) or before.get("source", ""),
            "overrides": overrides,
            "workspace": without_secrets(way_to(self._workspace, self._store.location)),
            "address": without_secrets(self._address or ""),
            "measured": request.measures or before.get("measured", ""),
        }

    def _write_plan(self) -> None:
        from memsweep.sweep.planning.plan_file import write_plan
        from memsweep.sweep.store.retry import through_outages

        location, plan = self._store.location, self._trials.plan
        sweep, trials = plan.sweep, [trial.config for trial in plan.trials]
        remember_plan(sweep.name, [*trials, *sweep.rows], sweep.search)
        through_outages(lambda: write_plan(location, plan, self._provenance, self._tracking, self._extended))

    def _open_tracker(self) -> None:
        from memsweep.sweep.tracking import Tracker

        about = (self._sweep.name, self._sweep.description)
        self._tracker = Tracker(None, self._results, *about, **self._tracking, patience=0.0, delay=_UNTIL_MLFLOW)

    def _compute(self) -> RunSummary:
        """Trains and measures the trials."""
        from memsweep.config.schema.canonical import to_dict
        from memsweep.report.terminal import EarlyVerdicts
        from memsweep.sweep.driver.progress import open_view
        from memsweep.sweep.driver.runner import run

        store, plan = self._store, self._trials.plan
        self._tracker.log_stored(trial.identity for trial in plan.trials if trial.identity in plan.done)
        self._early = None
        if self._sweep.search is None and plan.packs:
            rows = {trial.identity: to_dict(trial.config) for trial in plan.trials}
            self._early = EarlyVerdicts(store, rows, frozenset(plan.done))
        starting = "starting Ray" if plan.packs and not self._place.launch.inline else ""
        with open_view(self._sweep.name, self._stream, starting) as self._view:
            summary = run(
                plan,
                workspace=self._workspace,
                results=self._results,
                launch=self._place.launch,
                limits=self._place.limits,
                on_progress=self._on_progress,
                on_result=self._on_result,
                next_plan=self._next_plan,
                claims=self._claims,
            )
        if summary.outage:
            return summary
        self._check_folder()
        if self._trials.ended(store.identities()):  # no training will go on from these files
            store.forget_checkpoints()
            if self._sweep.search is not None:  # of a grid, extend goes on from the states of trials that end early
                store.forget_states()
        configs = {trial.identity: trial.config for trial in self._trials.all}
        for identity, failure in store.failures().items():
            if identity in configs:
                self._tracker.log_failure(identity, failure, to_dict(configs[identity]))
        self._note_runs_page()
        return summary

    def _on_progress(self, snapshot: Snapshot) -> None:
        """The run has got further: called in its thread, about once a second per running pack."""
        self._view.update(snapshot)
        self._page.show(snapshot)
        if self._place.launch.address is not None:
            self._gauges.show(snapshot, self._tracker.waiting)

    @cached_property
    def _gauges(self) -> Gauges:
        """The numbers of this run that a cluster exports; made once its Ray runs."""
        from memsweep.sweep.driver.metrics import Gauges

        return Gauges(self._sweep.name)

    def _note_runs_page(self) -> None:
        """Adds to the plan where MLflow shows the runs, for the report."""
        page = self._tracker.opened_address()
        if page and self._provenance.get("runs_page") != page:
            self._provenance["runs_page"] = page
            self._write_plan()

    def _on_result(self, identity: str) -> None:
        """A trial has finished: called by the result listener, in its thread."""
        self._had.add(identity)
        self._tracker.log_stored([identity])
        if self._early is not None:
            for line, style in self._early.ended(identity):
                self._view.say(line, style)

    def _next_plan(self, summary: RunSummary) -> Plan | None:
        """The plan of the next round, which is written before its trials run.

        Raises:
            KeyboardInterrupt: a round was chosen, and begins in no run that has reached a limit.
        """
        if self._trials.postponed:  # a command for some trials starts no new round
            return None
        before, rounds = {trial.identity for trial in self._trials.all}, self._trials.rounds
        with self._view.during("choosing what comes next by the results"):
            plan = self._trials.next_plan(summary.failed, summary.by_clock, at_limit=bool(summary.limit))
        if self._trials.waits:
            raise KeyboardInterrupt(summary.limit)
        if self._trials.rounds != rounds:
            self._extended = tuple(dict.fromkeys([*self._extended, *self._trials.grown]))
            self._write_plan()
            self._tracker.log_stored(self._trials.plan.done - before)
            for line in self._trials.news():
                self._view.say(line)
        return plan

    def _conclude_outage(self, summary: RunSummary, seconds: float) -> Ending:
        """Ends a run whose storage failed: the report of what can be read goes to this machine."""
        from memsweep.report.publish import build

        complaint, paths = self._tracker.finish("interrupted", patience=5.0), None
        self._page.rest()
        with contextlib.suppress(StoreError):
            paths = build(self._store.location, apart=True)
        return self._ending(Exit.BLOCKED, summary, paths, seconds, None, complaint)

    def _conclude(self, summary: RunSummary, paths: ReportPaths, seconds: float) -> Ending:
        """Ends the sweep's run in MLflow, and says how the run ended."""
        from memsweep.report.tracked import study_run_of, verdicts_of

        trials, tracker = self._trials, self._tracker
        ended = ending(read_statuses(self._store.location), {trial.identity for trial in trials.all})
        ended = "interrupted" if ended == "done" and not trials.complete else ended
        about = None
        if ended != "interrupted":
            tracker.log_verdicts(verdicts_of(paths.contents))
            about = study_run_of(paths.contents)
        tracker.log_report(paths.folder, about)
        complaint = tracker.finish(ended)
        if ended == "done" and not complaint:
            self._provenance.pop(ANEW, None)
            self._provenance |= note((tracker.uri, tracker.experiment_id, tracker.page), self._results)
            self._write_plan()
        tracking = (tracker.uri, tracker.experiment_id, tracker.page)
        return self._ending(self._code(summary), summary, paths, seconds, tracking, complaint)

    def _code(self, summary: RunSummary) -> int:
        """The exit code."""
        if summary.limit or summary.lost:
            return Exit.LIMIT if summary.limit else Exit.BLOCKED
        if summary.interrupted:
            return Exit.INTERRUPTED
        return 1 if summary.failed or self._trials.gave_up else 0

    def _ending(
        self,
        code: int,
        summary: RunSummary,
        paths: ReportPaths | None,
        seconds: float,
        tracking: Tracking | None,
        complaint: str,
    ) -> Ending:
        names, stored = {trial.identity for trial in self._trials.all}, self._trials.stored
        finished = {name: outcome for name, outcome in summary.finished.items() if name in names}
        summary = replace(summary, finished=finished)  # a round may replace trials of one before
        left = len(names - stored - summary.finished.keys() - summary.failed.keys())
        name, inline, resume = self._sweep.name, bool(self._place.launch.inline), self._resume
        return Ending(
            code, name, len(names), len(stored), left, summary, paths, seconds, tracking, complaint, inline, resume
        )
