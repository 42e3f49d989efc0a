"""Stored results of a study as a project of Trackio: ``memsweep-trackio results/quickstart``.

A run for each trial and seed has the settings that vary as its config, the losses by training step, and the drift by
the number of its radius. The run ``verdicts`` has the study's verdicts and radii as tables. Nothing is trained, and
nothing leaves the machine unless Trackio is set up to send it.
"""

from __future__ import annotations

import argparse
import sys
from typing import Any

import numpy as np
import pandas as pd
import trackio

import memsweep as ms

QUIET = {"auto_log_gpu": False, "auto_log_cpu": False, "embed": False}
"""Settings of a run that is no training: the machine's state of today is none of its numbers."""
LOSSES = ("loss", "validation_loss")


def export(results: ms.Results, project: str) -> list[str]:
    """Writes a study into a project of Trackio that has no runs yet.

    Args:
        results: of the study, as ``memsweep.results`` reads them.
        project: Trackio's name of the project.

    Returns:
        The names of the runs, ``verdicts`` last.

    Raises:
        MemsweepError: the project has runs, or the study has no result.
    """
    if results.replicas.empty:
        raise ms.MemsweepError("the study has no result yet: run it first, with memsweep sweep")
    if _runs(project):
        raise ms.MemsweepError(
            f"Trackio's project {project!r} has runs already: name another with --project, or delete it first"
        )
    settings = results.trials.set_index("identity")
    history, curves = _by_replica(results.history), _by_replica(results.curves.query("threshold.isna()"))
    names = []
    for replica in results.replicas.to_dict("records"):
        identity, seed = replica["identity"], int(replica["seed"])
        own = {key: _plain(value) for key, value in settings.loc[identity].items()}
        trackio.init(project, f"{identity[:12]}-{seed}", config={**own, "identity": identity, "seed": seed}, **QUIET)
        names.append(f"{identity[:12]}-{seed}")
        for row in history.get((identity, seed), []):
            trackio.log({name: row[name] for name in LOSSES if name in row}, step=int(row["step"]))
        for row in curves.get((identity, seed), []):
            ball = row["ball"]
            trackio.log({f"{ball}/radius": row["radius"], f"{ball}/drift": row["change"]})
        trackio.log({"error": replica["error"]})
        trackio.finish()
    trackio.init(project, "verdicts", config={"study": results.name}, **QUIET)
    trackio.log({name: trackio.Table(dataframe=_shown(getattr(results, name))) for name in ("verdicts", "radii")})
    trackio.finish()
    return [*names, "verdicts"]


def _runs(project: str) -> list[str]:
    try:
        return [run.name for run in trackio.Api().runs(project)]
    except ValueError:  # there is no such project
        return []


def _by_replica(table: pd.DataFrame) -> dict[tuple[str, int], list[dict[str, object]]]:
    groups = table.groupby(["identity", "seed"], sort=False)
    return {(str(identity), int(seed)): rows.to_dict("records") for (identity, seed), rows in groups}


def _plain(value: Any) -> object:
    """A value as JSON has it: a number of numpy as Python's, a list or a mapping in words."""
    value = value.item() if isinstance(value, np.generic) else value
    return value if isinstance(value, str | int | float | bool) else str(value)


def _shown(table: pd.DataFrame) -> pd.DataFrame:
    """A table of texts and numbers alone; a number that does not exist is an empty cell."""
    return table.astype(object).where(table.notna(), None)


def main(words: list[str] | None = None) -> int:
    """The command ``memsweep-trackio``."""
    parser = argparse.ArgumentParser(prog="memsweep-trackio", description="Put a stored study into Trackio.")
    parser.add_argument("study", help="a folder or s3:// address of results, or a name in results/")
    parser.add_argument("--project", help="Trackio's name of the project (default: that of the study)")
    args = parser.parse_args(words)
    try:
        results = ms.results(args.study)
        project = args.project or results.name
        names = export(results, project)
    except ms.MemsweepError as error:
        sys.stderr.write(f"{error}\n")
        return 2
    sys.stdout.write(f"{len(names)} runs in Trackio's project {project}: trackio show --project {project}\n")
    return 0
