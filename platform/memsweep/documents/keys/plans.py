"""The keys of what ``memsweep plan`` and ``status`` print."""

from __future__ import annotations

from typing import Annotated, Literal, TypedDict

from memsweep.documents.keys.shared import FailuresItem, Fields, Identity


class KindItem(TypedDict):
    """The resources that the packs of some trials ask for."""

    trials: Annotated[int, "how many; of a search, its cells"]
    cpus: Annotated[float, "cores of each process"]
    gpus: Annotated[float, "share of a GPU of each process"]
    device: Annotated[Literal["cpu", "cuda"], "where it computes: part of a trial's identity"]
    accelerator: Annotated[str | None, "type of the GPU; null: any"]
    node_memory_bytes: Annotated[float | None, "of a node's memory; null: measured on a cluster before it starts"]
    labels: Annotated[list[str], "that a node needs, each key=value"]


class ResourcesItem(TypedDict):
    """The resources that one pack asks for."""

    cpus: Annotated[float, "cores of each worker"]
    gpus: Annotated[float, "share of a GPU of each worker"]
    workers: Annotated[int, "processes that run a pack together"]
    kinds: Annotated[list[KindItem], "by condition, where rules give some trials other resources; else one"]


class PlannedTrialItem(TypedDict):
    """A trial of a plan."""

    identity: Identity
    fields: Fields
    state: Annotated[Literal["done", "reused", "to_run"], "done: stored in this study; reused: in another folder"]
    reused_from: Annotated[str | None, "the folder that holds its result"]
    pack: Annotated[int | None, "number of its pack, from 1; null where it does not run"]
    why: Annotated[str | None, "why it has no result to reuse"]
    why_exactly: Annotated[str | None, "the exact difference or error, where there is more to say"]
    only_measured: Annotated[bool, "its trained weights are stored: it is measured and not trained"]


class PackItem(TypedDict):
    """Trials that train as one program."""

    trials: Annotated[int, "how many"]
    seeds: Annotated[int, "models in it"]
    share: Annotated[float, "part of the work that is left, by the cost model"]


class SearchItem(TypedDict):
    """The search of a plan."""

    algorithm: Annotated[str, "of the sampler"]
    suggestions: Annotated[int, "in each cell"]
    batch: Annotated[int, "suggestions in flight at once"]
    scheduler: Annotated[str, "what ends trainings early; none"]
    objective: Annotated[list[str], "what is searched for"]
    searched: Annotated[list[str], "dotted paths of the searched fields"]
    seeds: Annotated[int, "of each suggestion"]
    confirmations: Annotated[int, "trials that retrain the winners; 0: none"]
    confirmation_seeds: Annotated[int, "fresh seeds of each of them"]
    stored: Annotated[int, "results that the study's folder holds already"]


class NodesItem(TypedDict):
    """The work that is left, on so many nodes."""

    nodes: Annotated[int, "how many"]
    seconds: Annotated[float, "until the end, each node as fast as this machine"]
    cost: Annotated[float | None, "of all nodes until then; null: no price was given"]
    idle_share: Annotated[float, "part of it that pays for slots in which no pack runs"]


class ExpectedItem(TypedDict):
    """The time, memory and disk that the work is expected to take."""

    seconds: Annotated[float | None, "on this machine; null: it cannot hold a pack"]
    starting_seconds: Annotated[float, "until Ray and its workers have started"]
    work_seconds: Annotated[float, "one pack after the other"]
    soonest_seconds: Annotated[float | None, "the same, trainings ended by stop_below at once; null: none can be"]
    slots: Annotated[int, "packs at once on this machine"]
    idle_cpus: Annotated[int, "cores of this machine that no pack uses"]
    factor: Annotated[float, "seconds hold within it"]
    programs: Annotated[int, "of different cost"]
    measured_programs: Annotated[int, "of them measured whole"]
    trained_programs: Annotated[int, "of them whose training was measured, at least"]
    kept_programs: Annotated[int, "of these, measured by an earlier plan"]
    measured_share: Annotated[float, "part of the work whose programs' training was measured"]
    memory_bytes: Annotated[float | None, "of the largest pack beyond its bare process; null: not measured"]
    trial_bytes: Annotated[float | None, "of a stored trial; null: not known"]
    weights_bytes: Annotated[float | None, "of its trained weights among them"]
    disk_bytes: Annotated[float | None, "of all trials to be stored"]
    disk_as_stored: Annotated[bool, "disk is that of this study's stored trials, not measured on a probe"]
    bound: Annotated[bool, "an upper bound: a scheduler ends some trainings early"]
    probed: Annotated[bool, "a measurement was asked for"]
    not_measured: Annotated[list[str], "why something was not measured"]
    nodes: Annotated[
        list[NodesItem] | None, "on 1, 2, 4, ... nodes of --node; null: not asked, or too small for a pack"
    ]


class PlanDocument(TypedDict):
    """``memsweep plan``."""

    study: Annotated[str, "its name"]
    protocol: Annotated[str, "the preset under its own settings"]
    cells: Annotated[int | None, "of a search; null for a grid"]
    trials: Annotated[list[PlannedTrialItem], "of a grid, in its order; a search makes its own while it runs"]
    done: Annotated[int, "trials stored in this study or reused"]
    left: Annotated[int, "trials to run"]
    seeds: Annotated[int, "models to run"]
    packs: Annotated[list[PackItem], "in the order of their numbers"]
    not_reused: Annotated[dict[str, int], "reason -> trials"]
    search: Annotated[SearchItem | None, "null for a grid"]
    trained_on: Annotated[list[str], "objectives of the trials, all penalties included"]
    notes: Annotated[list[str], "what to know of the models' own code"]
    resources: ResourcesItem
    inline: Annotated[
        bool | None, "without --ray and --inline, sweep runs it in its own process; null: nothing is left to run"
    ]
    expected: Annotated[ExpectedItem | None, "null where nothing is left to run"]


class StatusTrialItem(TypedDict):
    """The state of a trial."""

    identity: Identity
    state: Annotated[
        Literal[
            "queued",
            "running",
            "done",
            "diverged",
            "stopped_early",
            "out_of_memory",
            "failed",
            "preempted",
            "cancelled",
        ],
        "its state",
    ]
    since: Annotated[str, "when it came into it, UTC, ISO 8601; empty: not known"]
    failures: Annotated[int, "times in succession that it failed in the same way"]
    outcome: Annotated[str | None, "of its last failure"]
    error: Annotated[str | None, "the first line of its last failure's error"]
    damaged: Annotated[str | None, "what is wrong with its stored files"]


class HolderItem(TypedDict):
    """The process that runs a study."""

    host: Annotated[str, "name of its machine"]
    pid: Annotated[int, "its process number"]
    since: Annotated[str, "when it began, UTC, ISO 8601"]
    command: Annotated[str, "its command line, without secrets"]


class StatusSearchItem(TypedDict):
    """The progress of a search."""

    suggestions: Annotated[int, "made so far"]
    states: Annotated[dict[str, int], "state of a suggestion -> how many"]
    ended: Annotated[bool, "the winners are known"]


class StatusDocument(TypedDict):
    """``memsweep status``."""

    study: Annotated[str, "its name"]
    trials: Annotated[list[StatusTrialItem], "of its stored plan, in its order"]
    states: Annotated[dict[str, int], "state -> number of trials, cancelled ones included"]
    done: Annotated[int, "trials of the plan with a result"]
    left: Annotated[int, "trials of the plan without one"]
    complete: Annotated[bool, "nothing is left, of the search either"]
    running: Annotated[HolderItem | None, "the process that runs it, of several the leader; null: none does"]
    search: Annotated[StatusSearchItem | None, "null for a grid"]
    failures: FailuresItem
