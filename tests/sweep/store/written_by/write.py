"""Writes results with the version of memsweep that runs this file, for tests of the versions after it.

Run it with the Python of that version: ``python write.py FOLDER``, where FOLDER lies beside this file and is named
after the commit. Kernels are torch's own, so that no compiler is in an identity. Kept are the studies' results and
the tables of the reports; MLflow's database and the pages are left out, because they are large.
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


if __name__ == "__main__":
    write(Path(sys.argv[1]).resolve())
