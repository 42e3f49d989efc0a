"""Writes results with the version of memsweep that runs this file, for tests of the versions after it.

Run it with the Python of that version: ``python write.py FOLDER``, where FOLDER lies beside this file and is named
after the commit. Kernels are torch's own, so that no compiler is in an identity. Kept are the studies' results and
the tables of the reports; MLflow's database and the pages are left out, because they are large.

After a change of the verdicts' rule, or of what stored numbers mean: ``python write.py --judge`` writes, beside all
results that lie here, the tables that the code of today makes of them otherwise than that of then: look whether you
mean it.
"""

from __future__ import annotations

import os
import shutil
import socket
import sys
import tempfile
from pathlib import Path

STUDIES = ("grid", "search", "module", "capacity", "mixed")
WORKSPACE = Path(__file__).resolve().parent / "workspace"


def write(target: Path) -> None:
    """Runs the studies in a copy of the workspace, and copies what they stored to a new folder."""
    os.environ.update(MEMSWEEP_KERNELS="plain", OMP_NUM_THREADS="1", MEMSWEEP_NO_PAGE="1")
    socket.gethostname = lambda: "host"
    from memsweep.cli import main

    with tempfile.TemporaryDirectory() as folder:
        workspace = Path(folder) / "workspace"
        shutil.copytree(WORKSPACE, workspace)
        os.chdir(workspace)
        sys.path.insert(0, str(workspace))
        for study in STUDIES:
            if main(["sweep", study, "--inline", "--no-page"]) != 0:
                raise SystemExit(f"{study} has not run to its end")
            kept = shutil.ignore_patterns("index.html", "figures", "live", "curves.parquet", "*.md", "*.tex", "lease")
            shutil.copytree(workspace / "results" / study, target / study, ignore=kept)


def judge(folder: Path) -> None:
    """Writes the tables of a study that are not as its report has them, below its folder ``judged``."""
    from memsweep import registry, report
    from memsweep.stability.verdict.judgement import RULE_VERSION

    registry.discover()
    with tempfile.TemporaryDirectory() as place:
        study = Path(place) / folder.name
        shutil.copytree(folder, study, ignore=shutil.ignore_patterns("report"))
        report.build(study)
        for before in sorted((folder / "report").glob("*.csv")):
            now = study / "report" / before.name
            if now.read_bytes() != before.read_bytes():
                kept = folder / "judged" / f"rule={RULE_VERSION}" / before.name
                kept.parent.mkdir(parents=True, exist_ok=True)
                shutil.copy(now, kept)


if __name__ == "__main__":
    if sys.argv[1] == "--judge":
        for plan in Path(__file__).parent.glob("*/*/plan.json"):
            judge(plan.parent)
    else:
        write(Path(sys.argv[1]).resolve())
