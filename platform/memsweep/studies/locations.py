"""Where a study runs, the folder of its results, and results that would be lost there."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memsweep.config.schema.canonical import to_dict
from memsweep.config.search.domains import domain_to_plain
from memsweep.data.folder import found_here
from memsweep.errors import ConfigError, MemsweepError, StoreError, did_you_mean
from memsweep.extras import need
from memsweep.redaction import redacted
from memsweep.sweep.driver.launch import Launch, Limits
from memsweep.sweep.planning.plan_file import FILES, StoredPlan, no_plan, of_records, read_plan
from memsweep.sweep.store.filesystem import Location, storage_errors
from memsweep.sweep.store.layout import folder_name, study_of
from memsweep.sweep.store.results import Store
from memsweep.trust.gate import Trust, admit_plan, remember

if TYPE_CHECKING:
    from memsweep.config.schema.search import Search
    from memsweep.config.schema.study import SweepConfig
    from memsweep.config.schema.trial import TrialConfig


class LostResultsError(MemsweepError):
    """Results would go to a folder where they would be lost."""


@dataclass(frozen=True)
class ShownPage:
    """Where the page of a study is shown while it runs.

    Attributes:
        serve: to browsers of this machine.
        write: into the study's folder, in the place of its report, for those who see the folder alone.
    """

    serve: bool = False
    write: bool = False


@dataclass(frozen=True)
class Place:
    """Where and for how long a run computes, and where its results go.

    Attributes:
        results: the folder of all studies.
        workspace: folder that holds tasks/ and search_spaces/.
        launch: in this process, on this machine, or on a cluster.
        limits: of the run.
        named: whether a person named the absolute folder of the results. Such a folder is taken to be shared by all
            nodes: whether it is, only the cluster's owner knows.
        page: where the page is shown.
    """

    results: Location
    workspace: Path = Path()
    launch: Launch = field(default_factory=Launch)
    limits: Limits = field(default_factory=Limits)
    named: bool = False
    page: ShownPage = field(default_factory=ShownPage)


def shown_page(results: Location, *, wanted: bool) -> ShownPage:
    """Where the page is shown: nobody reaches a job of a cluster, and everybody sees its results.

    Args:
        results: the folder of all studies.
        wanted: whether there is a page.
    """
    from memsweep.sweep.job import in_job

    batch = in_job() or "SLURM_JOB_ID" in os.environ
    return ShownPage(wanted and not batch, wanted and (batch or results.local is None))


def names_folder(results: Location, *given: Path | str) -> bool:
    """Whether one of the paths that a person gave is the absolute one of this folder."""
    return any(Path(path).is_absolute() and Path(path) == results.local for path in given)


def ready(place: Place, sweep: SweepConfig) -> Place:
    """The place with the cluster that a run joins, after all checks of where a study runs.

    Raises:
        AddressError: what was given is the address of something else.
        ConfigError: nodes are asked for, and there is no cluster.
        LostResultsError: results would go to a folder where they would be lost.
        MemsweepError: a package is missing, the machine is too small, or the cluster cannot be joined.
    """
    from memsweep.sweep.planning.resources import slots, this_machine

    refuse_absent(place.launch, sweep.search)
    launch = join_cluster(place.launch)
    if launch.request is not None and (launch.inline or launch.address is None):
        raise ConfigError([_NO_CLUSTER], "the command line")
    for resources in sweep.kinds if launch.address is None else ():
        # one process computes the parts of all workers, one after the other
        here = replace(resources, workers=1, gpus=resources.card) if launch.inline else resources
        slots(here, [this_machine(here)])
    place = replace(place, launch=launch)
    refuse_lost(place)
    return place


def join_cluster(launch: Launch) -> Launch:
    """Finds the cluster that a run joins; warns where RAY_ADDRESS is not used.

    Raises:
        AddressError: what was given is the address of something else.
    """
    if launch.inline:
        return launch
    from memsweep.sweep.job import in_job
    from memsweep.sweep.ray.session import cluster_of

    if launch.address is None and not in_job() and (address := os.environ.get("RAY_ADDRESS")):
        sys.stderr.write(
            f"RAY_ADDRESS={redacted(address)} is not used: this sweep runs on this machine. To join that cluster, give "
            "--address; to hand the sweep to a job server, memsweep submit.\n"
        )
    return replace(launch, address=cluster_of(launch.address))


def refuse_absent(launch: Launch, search: Search | None) -> None:
    """See that the packages that a run needs beyond memsweep's core are installed.

    Raises:
        MemsweepError: one is not; the message has the line that installs it.
    """
    if launch.address is not None or launch.inline is False:
        need("ray", "a sweep on Ray")
    if search is not None:
        need("optuna", "a search")
        if search.settings.scheduler.by_ray:
            need("ray", f"the scheduler {search.settings.scheduler.name}")


def refuse_lost(place: Place) -> None:
    """See that results go to a place that all nodes share and that outlasts a job.

    Raises:
        LostResultsError: they go to a relative folder, in a job or on several nodes.
        MemsweepError: the cluster cannot be joined.
    """
    from memsweep.sweep.job import in_job, job_name

    folder, launch = place.results.local, place.launch
    if folder is None:
        return
    if in_job():
        if not place.named or folder.resolve().is_relative_to(Path.cwd().resolve()):
            raise LostResultsError(
                f"results would go to {folder}, a folder of the job {job_name()} on one node, which the cluster "
                f"deletes with the job. {_INSTEAD} Nothing has been started."
            )
        return
    if launch.address is None or launch.inline or place.named:
        return
    from memsweep.sweep.ray.session import count_nodes

    if count_nodes(launch.address) > 1:
        raise LostResultsError(
            f"results would go to {folder}, which is another folder on each node that the cluster has or can have. "
            f"{_INSTEAD} Nothing has been started."
        )


_NO_CLUSTER = (
    "--nodes asks a cluster for nodes, and this run joins none. Give --address (auto, or host:port), run it with "
    "memsweep submit, or leave --nodes out."
)
_INSTEAD = (
    "Give a bucket (--results s3://bucket/prefix, or MEMSWEEP_RESULTS in the environment of the cluster's nodes), or "
    "the absolute path of a folder that all nodes share."
)


def not_in_a_bucket(results: Location) -> str:
    """Why drivers share no study in a bucket: of one server, a look at the files missed some that were there."""
    return (
        f"--share: {results} is a bucket, in which two drivers may take the same pack. Give a folder that all drivers "
        "share (--results FOLDER), or run the study without --share."
    )


def store_of(results: Location, study: str) -> Store:
    """The results of a study; a name that no folder can have is a mistake of the study."""
    try:
        return Store(results / folder_name(study))
    except StoreError as error:
        raise ConfigError([str(error)], "the study") from error


def find_study(study: str, results: Location) -> Store:
    """The results of a study by its name, or by the folder or URI of its results.

    Raises:
        MemsweepError: there are none.
    """
    candidates = [Location.at(study)] if "/" in study or os.path.isdir(study) else []
    with storage_errors("read", results):
        candidates.append(results / folder_name(study))
        for folder in candidates:
            if folder.names("records") or any(folder.exists(name) for name in FILES):
                return Store(folder)
        there = [name for name in results.folders() if any((results / name).exists(file) for file in FILES)]
        if study in there:  # renamed by hand
            return Store(results / study)
        known = [*map(study_of, there)]
    listing = ", ".join(known[:20]) + (", ..." if len(known) > 20 else "") if known else "none yet"
    raise MemsweepError(
        f"there are no results of a study {study[:100]!r} in {results}.{did_you_mean(study, known)} "
        f"Studies there: {listing}. Run the study first, or give another folder with --results."
    )


def different(places: list[Location]) -> list[Location]:
    """The folders of studies to be compared.

    Raises:
        MemsweepError: one is given twice.
    """
    if twice := [place.uri for place in places if places.count(place) > 1]:
        raise MemsweepError(f"a study cannot be compared with itself: {twice[0]} is given twice. Give two studies.")
    return places


def plan_to_run(store: Store, trust: Trust, also: Iterable[TrialConfig] = ()) -> StoredPlan:
    """The stored plan of a study that is to be continued or extended: what it names may be called.

    Args:
        store: the study's results.
        trust: the person's word for code that the plan names.
        also: trials that they have trusted already, those of a study file.

    Raises:
        MemsweepError: there is none, or it is damaged.
        TrustError: it names code that this user has neither planned nor trusted.
    """
    return _admitted(stored_plan(store), store, trust, also)


def plan_to_measure(store: Store, trust: Trust) -> StoredPlan:
    """The stored plan of a study that is to be measured; of a store without one, the trials that it holds.

    Args:
        store, trust: as of ``plan_to_run``.

    Raises:
        MemsweepError: the plan or a record is damaged.
        TrustError: as of ``plan_to_run``.
    """
    plan = read_plan(store.location)
    if plan is None:
        plan = of_records(study_of(store.location.name), store.records())
    return _admitted(plan, store, trust)


def _admitted(plan: StoredPlan, store: Store, trust: Trust, also: Iterable[TrialConfig] = ()) -> StoredPlan:
    models = [config["model"] for config in [*plan.rows.values(), *plan.cells]]
    admitted = _with_space(_models(also), plan.search)
    admit_plan(_with_space(models, plan.search), plan.study, str(store.location), trust, admitted)
    if len({config["task"].get("folder") for config in [*plan.rows.values(), *plan.cells]} - {None}) != 1:
        return plan  # of several data sets none may take the place of another
    rows = {identity: _here(config) for identity, config in plan.rows.items()}
    return replace(plan, rows=rows, cells=tuple(map(_here, plan.cells)))


def _here(config: Mapping[str, Any]) -> dict[str, Any]:
    """A stored trial, as it is read on this machine: results may have been copied from another one."""
    return {**config, "task": found_here(config["task"])}


def remember_plan(study: str, trials: Iterable[TrialConfig], search: Search | None) -> None:
    """Notes that this user planned these trials of a study."""
    remember(_with_space(_models(trials), search), study)


def _models(trials: Iterable[TrialConfig]) -> list[Any]:
    return [to_dict(model) for model in dict.fromkeys(trial.model for trial in trials)]


def _with_space(models: Iterable[Any], search: Search | None) -> list[Any]:
    """Sections in which code may be named, each once: most trials share one; what is searched of it decides, too."""
    space = {path: domain_to_plain(domain) for path, domain in (search.space if search else {}).items()}
    searched = {"searched": space} if any(path.startswith("model") for path in space) else {}
    return list({json.dumps(model, sort_keys=True): {**model, **searched} for model in models}.values())


def stored_plan(store: Store) -> StoredPlan:
    """The plan of a study that has been run.

    Raises:
        MemsweepError: there is none, or it is damaged.
    """
    plan = read_plan(store.location)
    if plan is None:
        raise MemsweepError(no_plan(store.location))
    return plan
