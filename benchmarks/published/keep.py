"""Puts the results and weights of a study into docs/evidence/stores, where a fresh clone finds them.

    python -m benchmarks.published.keep results/psmnist_small

Copied are the records of the study's trials with their tables and weights, and the plan, so that every command takes
the copy as it takes the folder of a sweep: sweep and resume compute what is missing, and measure trains nothing. Left
out is what names the machine: its host, its folders, the command that was typed, journal, report and checkpoints.
"""

from __future__ import annotations

import argparse
import sys
from pathlib import Path
from typing import Any

from memsweep.sweep.planning.plan_file import FILES
from memsweep.sweep.store.layout import WEIGHTS, record_file, table_file
from memsweep.sweep.store.record import decode, encode, from_json, sealed, to_json, unsealed

STORES = Path(__file__).resolve().parents[2] / "docs" / "evidence" / "stores"
MACHINE = {"command": "", "workspace": "../..", "address": ""}
"""Stands in a kept plan for the author's machine: the workspace is the folder that holds results/."""


def keep(study: Path, stores: Path = STORES) -> Path:
    """Copies a study's folder, as far as others can use it.

    Args:
        study: the folder of its results.
        stores: the folder of the kept ones.

    Returns:
        The study's folder there, in which files of the same names were replaced.

    Raises:
        FileNotFoundError: a file is missing.
        StoreError: the plan or a record is damaged.
    """
    kept = stores / study.name
    plan = unsealed(from_json((study / FILES[-1]).read_bytes(), FILES[-1]), FILES[-1])
    source = plan["provenance"]["source"]
    plan["provenance"] |= MACHINE | {"source": Path(source).stem if "/" in source else source}
    for row in plan["trials"]:
        if "folder" in row["config"]["task"]:
            row["config"]["task"]["folder"] = "data"
        identity, file = row["identity"], record_file(row["identity"])
        if (study / file).exists():
            record: dict[str, Any] = {**decode((study / file).read_bytes(), identity, file)}
            # a trial that was taken over from another study names that one, which is not kept
            record |= {"study": study.name, "config": row["config"]}
            record |= {"provenance": {**record["provenance"], "host": ""}}
            for table in record["files"]:
                _put(kept / table_file(table, identity), (study / table_file(table, identity)).read_bytes())
            _put(kept / file, encode(record))
    for name in FILES:
        _put(kept / name, to_json(sealed(plan), name))
    return kept


def _put(path: Path, content: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(content)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("study", type=Path, help="folder of its results")
    study = parser.parse_args().study
    if not (study / FILES[-1]).is_file() or not (study / WEIGHTS).is_dir():
        sys.exit(f"{study} has no plan or no weights: give the folder of a study, as results/psmnist_small.")
    print(f"kept in {keep(study.resolve())}")


if __name__ == "__main__":
    main()
