"""From 1 to 1 000 nodes: what each part of a sweep takes and gives, and which limit is met first.

Trials do nothing, all else is real: Ray on this machine, an S3 server, MLflow on PostgreSQL. It takes an hour, and
needs Linux, Swift (``make ci-deps``) and Debian's package postgresql; ``--only part=events`` (requests, mirror, study,
large) measures one part. The parts events and large need no servers.
"""

from __future__ import annotations

import signal
import sys
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks import harness
from benchmarks.harness import Options, Row
from benchmarks.scale import events, limits, mirror, requests, servers, study
from benchmarks.scale.draw import draw
from benchmarks.studies.whole import in_a_process

EVENTS = ((300, 1, 2), (3000, 1, 2), (300, 1, 8), (300, 100, 2), (300, 1, 2, True))
"""Packs, trials of each, slots, and whether ten reports come from each."""
COUNTED = 50
STUDIES = (100, 1000)
"""Trials with S3 and MLflow."""
LARGE = (1000, 10_000)
"""Trials on a disk, without MLflow."""


@dataclass(frozen=True)
class _Servers:
    """The settings that the processes of the measurements need."""

    bucket: str
    database: str
    processes: dict[str, tuple[int, ...]]


def run(options: Options) -> None:
    """Measure, print, write, draw."""
    if _needs_servers(options) and (missing := servers.missing()):
        raise SystemExit(f"not here: {', '.join(missing)}")
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # servers go down with us
    parts: dict[str, list[Row]] = {}
    with tempfile.TemporaryDirectory(prefix="memsweep-scale-") as name:
        folder = Path(name)
        folder.chmod(0o755)  # PostgreSQL runs as another user
        for part, rows in _parts(folder, options):
            parts.setdefault(part, []).extend(rows)
            harness.table([{k: v for k, v in row.items() if not isinstance(v, list | dict)} for row in rows], part)
    runs = parts.get("study", []) + parts.get("large", [])
    if runs and not options.quick and not options.only:
        draw(runs)
    rows = [{"part": part, **row} for part, found in parts.items() for row in found]
    if not options.only:
        harness.write("scale", {"trials": "do nothing"}, rows, options.out)


def _needs_servers(options: Options) -> bool:
    return any(options.wants({"part": part}) for part in ("requests", "mirror", "study"))


def _parts(folder: Path, options: Options) -> Iterator[tuple[str, list[Row]]]:
    quick = options.quick
    costs: dict[str, Row] = {}
    if options.wants({"part": "events"}):
        cases = [(100, 1, 2), (100, 1, 2, True)] if quick else EVENTS
        rows = [in_a_process(events.drive, *case) for case in cases]
        costs |= {"pack": rows[0], "report": rows[-1]}
        yield "events", rows
    for trials in () if quick else LARGE:
        if options.wants({"part": "large"}):
            where = str(folder / f"large{trials}")
            row = in_a_process(study.unmirrored, trials, where, str(folder))
            yield "large", [row | in_a_process(study.reported, trials, where)]
    if not _needs_servers(options):
        return
    with _servers(folder) as up:
        if options.wants({"part": "requests"}):
            yield "requests", in_a_process(requests.counted, 10 if quick else COUNTED, "requests")
        if options.wants({"part": "mirror"}):
            row = in_a_process(mirror.compared, 20 if quick else 100, str(folder), up.processes, 3)
            costs["mirror"] = row
            yield "mirror", [row]
        for trials in STUDIES[:1] if quick else STUDIES:
            if options.wants({"part": "study"}):
                where = f"{up.bucket}/study{trials}"
                row = in_a_process(study.sweep, trials, where, str(folder), up.processes)
                row |= in_a_process(study.opened, trials, where, str(folder))
                yield "study", [row | in_a_process(study.reported, trials, where)]
    if costs.keys() >= {"pack", "report", "mirror"}:
        yield "limits", limits.table(_costs(costs))


def _costs(rows: dict[str, Row]) -> limits.Costs:
    pack, told, mirrored = rows["pack"], rows["report"], rows["mirror"]
    return limits.Costs(
        pack=pack["driver_ms_a_pack"],
        report=(told["driver_ms_a_pack"] - pack["driver_ms_a_pack"]) / told["reports_a_pack"],
        client=mirrored["client_ms"],
        server=mirrored["mlflow_ms"],
    )


@contextmanager
def _servers(folder: Path) -> Iterator[_Servers]:
    with (
        servers.s3(folder / "s3") as s3,
        servers.postgres(folder / "postgres") as postgres,
        servers.mlflow(folder / "mlflow", postgres.uri) as mlflow,
    ):
        study.track_to(mlflow.uri)
        processes = {"s3": s3.processes, "postgres": postgres.processes, "mlflow": mlflow.processes}
        yield _Servers(s3.uri, postgres.uri, processes)
