"""The wait at the command line: CPU seconds (user and system) of whole commands, each a process.

A command that starts processes counts with all of them. The report is that of a study whose trials do nothing.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from benchmarks import harness
from benchmarks.harness import ROOT, Options, Row
from benchmarks.scale.proc import consumed
from benchmarks.studies import noop
from memsweep.config.load.study import load_study
from memsweep.sweep.driver.launch import Launch
from memsweep.sweep.driver.runner import run as run_plan
from memsweep.sweep.planning.plan import identified, make_plan
from memsweep.sweep.planning.plan_file import write_plan
from memsweep.sweep.store.results import Store

MANY = ("curse_of_memory", "training.first_seed=range(0,50,10)", "--no-probe")
"""A study of 1,440 trials."""
COMMANDS: dict[str, tuple[str, ...]] = {
    "help": ("--help",),
    "list studies": ("list", "studies"),
    "a study that does not exist": ("plan", "quickstrat"),
    "an override that is none": ("plan", "quickstart", "training.steps==="),
    "a file that is no YAML": ("plan", "wrong.yaml"),
    "a field that does not exist": ("plan", "quickstart", "training.stepz=1"),
    "plan of 120 trials, no probe": ("plan", "quickstart", "--no-probe"),
    "plan of 1,440 trials, no probe": ("plan", *MANY),
}
TINY = """\
# Eight trials that take no time: what a study costs beside its work.
task: {name: linear_functional, kernel: exponential}
model: {name: diagonal_rnn}
training: {seeds: 2, steps: 100}
perturbation: {radii: {from: 1e-3, to: 1.0, count: 12}, balls: [recurrent, all]}
grid:
  task.horizon: [8, 16]
  model.parameterization: [direct, exp]
  model.width: [2, 3]
"""
WAYS = {"in this process": "--inline", "on Ray": "--ray"}
TRIALS = (100, 300, 1000)
"""Of the report; multiples of ``noop.PER_RATE``."""


def seconds(words: Sequence[str], folder: Path) -> float:
    """CPU seconds of one run of the command ``memsweep``."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(_command(words), cwd=folder, env=_environment(), capture_output=True, check=False)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime - before.ru_utime + after.ru_stime - before.ru_stime


def first_and_whole(words: Sequence[str], folder: Path) -> tuple[float, float]:
    """CPU seconds of a sweep and of all that it starts: until its first result is stored, and to its end.

    Args:
        words: of the command.
        folder: where it runs; the results of its study are made here.
    """
    first, own = None, time.process_time()
    with consumed() as cpu, (folder / "output").open("wb") as output:
        process = subprocess.Popen(_command(words), cwd=folder, env=_environment(), stdout=output, stderr=output)
        # without a wait for the process, whose times are gone then
        while os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is None:
            if first is None and any(folder.glob("results/*/records/*.json")):
                first = cpu() - time.process_time() + own
            time.sleep(0.02)
        whole = cpu() - time.process_time() + own
        if process.wait() != 0 or first is None:
            raise RuntimeError((folder / "output").read_text(encoding="utf-8"))
    return first, whole


def _command(words: Sequence[str]) -> list[str]:
    return [sys.executable, "-m", "memsweep", *words]


def _environment() -> dict[str, str]:
    """Ours; Python keeps what it compiled, as it does where memsweep is installed."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}


def tiny(way: str, rounds: int) -> Row:
    """The row of a study of eight tiny trials; the first run, which compiles, is not counted."""
    firsts, wholes = [], []
    for _ in range(rounds + 1):
        with tempfile.TemporaryDirectory(prefix="memsweep-tiny-") as name:
            folder = Path(name)
            (folder / "tiny.yaml").write_text(TINY, encoding="utf-8")
            first, whole = first_and_whole(("sweep", "tiny.yaml", way), folder)
        firsts.append(first)
        wholes.append(whole)
    return {"cpu_seconds": harness.median(wholes[1:]), "first_result": harness.median(firsts[1:])}


def stored(trials: int, folder: Path) -> Path:
    """The results of a study whose trials do nothing, with its plan; returns the folder of all studies."""
    study, results = folder / "noop.yaml", folder / f"results-{trials}"
    study.write_text(noop.STUDY, encoding="utf-8")
    rates = [round(0.2 + 0.01 * index, 4) for index in range(trials // noop.PER_RATE)]
    sweep = load_study(str(study), (f"grid.task.rate={json.dumps(rates)}",), ROOT)
    plan = make_plan(sweep, identified(sweep), ())
    write_plan(Store(results / "noop").folder, plan, {})
    run_plan(plan, workspace=ROOT, results=results, launch=Launch(inline=True), work=noop.no_work)
    return results


def run(options: Options) -> None:
    """Measure, print, write."""
    rounds, sizes = (1, TRIALS[:1]) if options.quick else (3, TRIALS)
    rows: list[Row] = []
    with tempfile.TemporaryDirectory(prefix="memsweep-waiting-") as name:
        folder = Path(name)
        (folder / "wrong.yaml").write_text("task: x\ngrid: [1\n", encoding="utf-8")
        for what, words in COMMANDS.items():
            if options.wants({"what": what}):
                taken = [seconds(words, folder) for _ in range(rounds)]
                rows.append({"what": what, "cpu_seconds": harness.median(taken)})
        for where, way in WAYS.items():
            row = {"what": f"eight tiny trials {where}"}
            if options.wants(row):
                rows.append(row | tiny(way, rounds))
        for trials in sizes:
            if options.wants({"what": "report", "trials": trials}):
                words = ("report", "noop", "--results", str(stored(trials, folder)))
                taken = [seconds(words, folder) for _ in range(rounds)]
                each = 1000 * harness.median(taken) / trials
                rows.append(
                    {"what": "report", "cpu_seconds": harness.median(taken), "trials": trials, "ms_a_trial": each}
                )
    harness.publish("waiting", {"rounds": rounds}, rows, options)
