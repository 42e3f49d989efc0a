"""Prints plans, states, endings and paths for the commands."""

from __future__ import annotations

import argparse
import importlib.metadata
import os
import shlex
import sys
from pathlib import Path
from typing import TYPE_CHECKING, TextIO

from memsweep import builtin
from memsweep.errors import columns_of, counted, filled, printable
from memsweep.studies.ending import stopped
from memsweep.trust.gate import Trust

if TYPE_CHECKING:
    from memsweep.report.publish import ReportPaths
    from memsweep.studies.ending import Ending
    from memsweep.studies.preview import Preview
    from memsweep.sweep.estimate.estimate import Estimate
    from memsweep.sweep.estimate.nodes import NodeOffer
    from memsweep.sweep.store.filesystem import Location
    from memsweep.sweep.worker.timing import Profile


CARRIED = "trusted"
"""The key of a job's metadata with what its submitter has trusted: hashes, with spaces between."""


def say(text: str, file: TextIO | None = None) -> None:
    """Prints a text that may hold names, paths and errors of others, without their control characters."""
    print(printable(text), file=file)


def say_sentence(text: str, file: TextIO | None = None) -> None:
    """Prints a sentence as ``filled`` does."""
    print(filled(text, file or sys.stdout), file=file)


def trust_of(args: argparse.Namespace) -> Trust:
    """The person's word for code that a document names: --trust, or what they trusted before they submitted a job.

    Without it, on a terminal, they are asked.
    """
    from memsweep.sweep.job import in_job, job_metadata

    at_a_terminal = sys.stdin is not None and sys.stdin.isatty() and sys.stderr.isatty()
    ask = _trusts if at_a_terminal and not args.json and not in_job() else None
    return Trust(args.trust, ask, frozenset(job_metadata(CARRIED).split()))


def _trusts(question: str) -> bool:
    print("\r\x1b[K", end="", file=sys.stderr)  # the phase that stands on the line
    say_sentence(question, file=sys.stderr)
    print("Have you read that code, and shall it run, now and later? [y/N] ", end="", file=sys.stderr, flush=True)
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def print_plan(preview: Preview, *, verbose: bool = False, whole: bool = False, estimated: bool = False) -> None:
    """Prints the trials, then the work that is left and why it is left.

    Args:
        preview: the plan.
        verbose: also the exact difference for a few trials that are not reused.
        whole: every trial with its varied fields and its state, where they are many.
        estimated: an estimate follows.
    """
    from rich.console import Console

    if (table := preview.table(whole=whole)) is not None:
        Console(markup=False, width=columns_of(sys.stdout, 160)).print(table)
    for line in preview.lines(verbose=verbose, estimated=estimated):
        say_sentence(line)
    if preview.is_long and not whole:
        say_sentence("each trial and its state: --all")


def print_estimate(made: Estimate, stored: tuple[float, float], *, probed: bool, inline: bool) -> None:
    """Prints the expected hours, memory and disk, and the error of these estimates.

    Args:
        made: the estimate.
        stored: bytes of a trial of this study's stored results, and of its weights among them; 0 where there is none.
        probed: a measurement was asked for.
        inline: without --ray and --inline, the sweep runs in the process of its command.
    """
    from memsweep.sweep.driver.progress import duration

    gib, mib, kib = 2**30, 2**20, 2**10
    alone = f"{duration(made.work)} of one pack after the other"
    if made.seconds is None:
        say_sentence(f"expected: {alone}; this machine cannot hold a pack, so its hours follow from the cluster's")
    else:
        at_once = f"{counted(made.at_once, 'pack')} at once"
        starting = f"some {made.starting_on_ray:.0f} s for Ray and its workers to start"
        if inline:
            say_sentence(f"expected in this process: {alone}")
            parts = [at_once, *([duration(made.seconds)] if made.at_once > 1 else []), starting]
            say_sentence(f"  on Ray, {', '.join(parts)}, and 30 s of the processor or more")
        else:
            one_by_one = f" ({alone})" if made.at_once > 1 else ""
            said = f"{at_once}: {duration(made.seconds)}{one_by_one}"
            say_sentence(f"expected on this machine, {said}, and {starting}")
            if made.idle and (advice := _advice(made)):
                say_sentence(f"  {counted(made.idle, 'core')} of this machine idle meanwhile: {advice}")
    say_sentence(f"  {_measured(made, probed=probed)}")
    if made.kinds[1]:
        say_sentence(f"  right within a factor of {made.factor:g}, where nothing else runs and no training ends early")
    if made.soonest is not None:
        said = f"{duration(made.soonest)} of one pack after the other"
        say_sentence(f"  {said}, where each training ends as soon as training.stop_below lets it")
    for sentence in made.why_not:
        say_sentence(f"  {sentence}")
    if made.memory:
        together = f", {made.slots} at once {made.slots * made.memory / gib:.2f} GiB" if made.slots > 1 else ""
        say_sentence(
            f"memory: {made.memory / mib:.0f} MiB for the largest pack beyond its bare process{together} (measured)"
        )
    disk, weights = stored if stored[0] else (made.disk, made.weights)
    how = "as its stored trials" if stored[0] else "measured on trials of full size"
    if disk:
        total = disk * made.rows
        size = f"{total / gib:.2f} GiB" if total >= gib else f"{total / mib:.1f} MiB"
        each = f"{disk / kib:.0f} KiB a trial, {weights / kib:.1f} KiB of them weights"
        say_sentence(f"disk: {size}, {each} ({how}); MLflow's copy and the report not counted")
    lacks = [f"{what}: not measured" for what, size in (("memory", made.memory), ("disk", disk)) if not size]
    if lacks:
        say_sentence(", ".join(lacks))


def _measured(made: Estimate, *, probed: bool) -> str:
    """A sentence of what the expected hours rest on."""
    kinds, trained = made.kinds
    if made.took and made.whole < kinds:
        others = f"; {made.whole} of {counted(kinds, 'kind')} of programs were measured whole" if made.whole else ""
        return f"by what {counted(made.took, 'stored trial')} of this study took, and the cost model's sizes{others}"
    if not trained:
        why = "nothing was measured" if probed else "nothing was measured (--no-probe)"
        return (
            f"by the cost model alone, which is right within a factor of {made.factor:g} for models of one recurrent "
            f"layer, and may be ten times too short for deep ones: {why}"
        )
    others = "" if trained == kinds else f", {made.measured:.0%} of the work"
    if made.whole == trained:
        said = f"measured on {trained} of {counted(kinds, 'kind')} of programs{others}"
    else:
        after = f"what follows it on {made.whole or 'none'}"
        said = f"training was measured on {trained} of {counted(kinds, 'kind')} of programs{others}, {after}"
    model = "; the rest by a validation and a step, or by the cost model" if made.whole < kinds else ""
    kept = f"; {'all' if made.kept == trained else made.kept} by earlier plans" if made.kept else ""
    return f"{said}{kept}{model}"


def _advice(made: Estimate) -> str:
    """The settings by which packs would use the idle cores; empty where there are none."""
    kind = next((kind for kind, *_ in made.lengths if kind.device == "cpu"), None)
    if kind is None or made.at_once == 0:
        return ""
    times = 1 + made.idle // max(1, round(made.at_once * kind.cpus * kind.workers))
    if times == 1:
        return "more packs than there are would use them"
    said = f"resources.cpus={kind.cpus * times:g} gives a pack more threads"
    return f"resources.workers={kind.workers * times} shares its seeds out, and {said}; the numbers stay"


def print_nodes(made: Estimate, offer: NodeOffer) -> None:
    """Prints the hours and the cost on nodes of one type, by their number."""
    from memsweep.sweep.driver.node_request import use_words
    from memsweep.sweep.estimate.nodes import problem_of, uses

    if problem := problem_of(made.lengths, offer):
        say_sentence(f"such nodes (--node) cannot hold a pack: {problem}")
        return
    say_sentence(f"on nodes of {offer.cpus:g} CPU and {offer.gpus:g} GPU, each as fast as this machine:")
    for use in uses(made.lengths, offer, made.starting):
        say_sentence(f"  {counted(use.nodes, 'node')}: {use_words(use, offer.price)}")


def print_ending(ending: Ending, results: Location, *, verbose: bool = False) -> None:
    """Prints how many trials finished, the paths of the report, and what stopped.

    Args:
        ending: of the run.
        results: the folder of all studies.
        verbose: print a traceback of each cause of failures, too.
    """
    if ending.report is not None:
        _print_results(ending, ending.report, verbose=verbose)
    if ending.tracking is not None:
        uri, _, page = ending.tracking
        _print_tracking(uri, page, results)
    if (why := stopped(ending)) != "":
        say_sentence(why, file=sys.stderr if ending.summary.outage or ending.summary.lost else None)
    if ending.complaint:
        say_sentence(ending.complaint, file=sys.stderr)


def _print_results(ending: Ending, paths: ReportPaths, *, verbose: bool) -> None:
    from memsweep.sweep.driver.progress import duration

    summary = ending.summary
    of_them = f", {ending.reused} of them reused" if ending.reused else ""
    of_them += f", {len(summary.elsewhere)} by other drivers" if summary.elsewhere else ""
    say_sentence(f"{ending.reused + len(summary.finished)}/{ending.trials} done{of_them}; {duration(ending.seconds)}")
    if summary.finished:
        say_sentence(profile_text(summary.profile))
    if summary.diverged:
        say(f"{summary.diverged} diverged: their errors are inf in the report")
    for group in paths.contents.study.failures if verbose else ():
        say(f"{group.cause}\n{group.traceback}", file=sys.stderr)
    say(f"report:    {shown(paths.page)}{_also(paths)}")
    answer = "verdicts" if paths.contents.verdicts else "losses"
    if (table := paths.folder / f"{answer}.csv").exists():  # no trial has a result: nothing to tell of
        say(f"{f'{answer}:':<11}{shown(table)}")


def _also(paths: ReportPaths) -> str:
    """The address of a report that lies in a bucket; ``paths`` are those of this machine's copy."""
    return f" (a copy; for all: {paths.uri})" if paths.uri.startswith("s3://") else ""


def profile_text(profile: Profile) -> str:
    """Where the time went: ``work 93 % (training 71, perturbation 20, storing 2), scheduling and idle 7 %``."""
    from memsweep.sweep.worker.timing import WORK

    shares = {name: round(100 * profile.share(name)) for name in WORK}
    largest = sorted((name for name in WORK if shares[name]), key=lambda name: -shares[name])
    parts = ", ".join(f"{name} {shares[name]}" for name in largest)
    idle = round(100 * profile.scheduling)
    return f"time: work {100 - idle} %{f' ({parts})' if parts else ''}, scheduling and idle {idle} %"


def _print_tracking(uri: str, page: str, results: Location) -> None:
    """Prints how to open the runs in MLflow."""
    if not uri.startswith("sqlite"):
        say_sentence(f"MLflow:    {uri.rstrip('/') + page if uri.startswith('http') else uri}")
        return
    here = results.local or Path("results").absolute()
    folder = "" if here == Path("results").absolute() else f" RESULTS={shlex.quote(shown(here))}"
    plain = f"mlflow ui --host 127.0.0.1 --workers 1 --backend-store-uri {shlex.quote(uri)}"
    if builtin.folder(builtin.TASKS).parent == Path.cwd():  # a checkout, with its Makefile
        say(f"MLflow UI: make ui{folder}\n  or:      {plain}")
    else:
        say(f"MLflow UI: {plain}")
        if not any(importlib.metadata.distributions(name="mlflow")):  # its client alone has no pages
            say("  (pip install 'memsweep[ui]' brings it)")
    say(f"  then:    http://127.0.0.1:5000{page}")


def shown(path: Path) -> str:
    """The path relative to the current folder, where it lies below it; whole at the root, where nobody reads it so."""
    relative = os.path.relpath(path)
    return printable(str(path) if relative.startswith("..") or os.getcwd() == os.sep else relative)
