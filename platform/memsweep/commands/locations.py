"""Where a sweep runs, and results that would be lost there: a folder that one node has, or that goes with a job."""

from __future__ import annotations

import argparse
import os
import sys
from pathlib import Path

from memsweep.errors import MemsweepError
from memsweep.redaction import redacted
from memsweep.sweep.store.filesystem import Location


class LostResultsError(MemsweepError):
    """Results would go where they cannot stay."""

    exit_code = 2


def join_cluster(args: argparse.Namespace) -> None:
    """Settle which cluster the sweep joins (``args.address``), and say what may surprise.

    Raises:
        AddressError: what was given is the address of something else.
    """
    from memsweep.sweep.ray.session import cluster_of
    from memsweep.sweep.worker.job_environment import in_job

    if args.inline:
        return
    if args.address is None and not in_job() and (address := os.environ.get("RAY_ADDRESS")):
        print(
            f"RAY_ADDRESS={redacted(address)} is not used: this sweep runs on this machine. To join that cluster, give "
            "--address; to hand the sweep to a job server, memsweep submit.",
            file=sys.stderr,
        )
    args.address = cluster_of(args.address)


def refuse_lost(args: argparse.Namespace, results: Location) -> None:
    """See that results go to a place that all nodes share and that outlasts a job.

    An absolute path is taken to be shared: whether it is, only the cluster's owner knows.

    Raises:
        LostResultsError: they go to a relative folder, in a job or on several nodes.
        MemsweepError: the cluster cannot be joined.
    """
    from memsweep.sweep.ray.session import count_nodes
    from memsweep.sweep.worker.job_environment import in_job, job_name

    folder = results.local
    if folder is None:
        return
    if in_job():
        if _relative(args, folder) or folder.resolve().is_relative_to(Path.cwd().resolve()):
            raise LostResultsError(
                f"results would go to {folder}, a folder of the job {job_name()} on one node, which the cluster "
                f"deletes with the job. {_INSTEAD} Nothing has been started."
            )
    elif args.address is not None and not args.inline and _relative(args, folder):
        count = count_nodes(args.address)
        if count > 1:
            raise LostResultsError(
                f"results would go to {folder}, which is another folder on each of the cluster's {count} nodes. "
                f"{_INSTEAD} Nothing has been started."
            )


_INSTEAD = (
    "Give a bucket (--results s3://bucket/prefix, or MEMSWEEP_RESULTS in the environment of the cluster's nodes), or "
    "the absolute path of a folder that all nodes share."
)


def _relative(args: argparse.Namespace, folder: Path) -> bool:
    """Whether the folder was found by a relative path: of --results, or of the study's own folder."""
    places = (Path(args.results), Path(args.study).parent)
    return not any(place.is_absolute() and place == folder for place in places)
