"""The keys of what commands print that run, report or measure a study."""

from __future__ import annotations

from typing import Annotated, Any, Literal, TypedDict

from memsweep.documents.keys.shared import Condition, FailuresItem, High, Identity, Low


class PhasesItem(TypedDict):
    """Where the time of a run went."""

    seconds: Annotated[float, "of the run, by the clock, from the first pack to the last"]
    slots: Annotated[int, "packs that could run at once"]
    phases: Annotated[dict[str, float], "phase -> seconds, all workers together"]


class FailureItem(TypedDict):
    """A trial that failed in this run."""

    identity: Identity
    outcome: Annotated[str, "failed, out_of_memory or preempted"]
    error: Annotated[str, "its error"]
    traceback: Annotated[str, "of the error"]


class VerdictItem(TypedDict):
    """A verdict: a row of ``verdicts.csv``."""

    condition: Condition
    ball: Annotated[str, "which weights move"]
    reference: Annotated[Literal["target", "metric", "self"], "what the change of a moved model is held against"]
    verdict: Annotated[Literal["stable", "unstable", "inconclusive"], "by the rule of docs/verdict.md"]
    slope_horizon: Annotated[float, "of the log radius over the log horizon"]
    slope_horizon_low: Low
    slope_horizon_high: High
    slope_width: Annotated[float, "of the log radius over the log width"]
    slope_width_low: Low
    slope_width_high: High
    threshold: Annotated[float, "drift, as a share of the zero predictor's loss, at which the radius is taken"]
    deciding: Annotated[Literal["horizon", "width"], "the slope that the verdict was reached by"]
    largest_width: Annotated[float, "up to which the radius was asked for at the longest horizon"]
    fit_error: Annotated[float, "without perturbation, as a share of the zero predictor's loss"]
    rule_version: Annotated[int, "of the rule: grows when stored results may get another verdict by it"]
    found_share: Annotated[float, "least share of the largest known change that the search found"]
    reasons: Annotated[str, "why, and which extend would decide"]


class ClaimItem(TypedDict):
    """A pair of cells of a tested claim: a row of ``compared.csv``."""

    claim: Annotated[str, "in words"]
    verdict: Annotated[
        str,
        "of the measured pairs: supported, supported where measured (some pairs are not), contradicted, "
        "not supported, underpowered or not measured",
    ]
    more_seeds: Annotated[int, "seeds that an underpowered claim lacks"]
    cells: Annotated[str | None, "where on the other axes this pair lies"]
    test: Annotated[str, "the conclusion of this pair"]
    metric: Annotated[str, "what is compared"]
    left_identity: Annotated[str, "trials of the left side, with a blank between them; empty: there is none"]
    right_identity: Annotated[str, "trials of the right side"]
    seeds: Annotated[float, "pairs of seeds"]
    ties: Annotated[float, "pairs without a difference"]
    left: Annotated[float, "median of the left side"]
    right: Annotated[float, "median of the right side"]
    left_fits: Annotated[float, "of radii: seeds whose models fit, on the left side"]
    right_fits: Annotated[float, "of radii: seeds whose models fit, on the right side"]
    scale: Annotated[str, "ratio or difference: what the effect is"]
    effect: Annotated[float, "left against right"]
    low: Low
    high: High
    p: Annotated[float, "of the signed-rank test"]
    p_holm: Annotated[float, "the same, corrected for the number of tests"]
    p_against: Annotated[float, "that of the opposite claim in the place of this one"]


class ReportItem(TypedDict):
    """A report: where it lies, and its tables."""

    folder: Annotated[str, "on this machine"]
    page: Annotated[str, "its HTML page on this machine"]
    uri: Annotated[str, "its address for all: the folder, or s3://..."]
    planned: Annotated[int, "trials of the plan"]
    missing: Annotated[list[str], "identities of planned trials without a result that can be used"]
    failures: FailuresItem
    answers: Annotated[list[str], "the study's answer in words, as its page says it: the answer first"]
    throughout: Annotated[dict[str, Any], "column -> value, where all conditions agree"]
    coupled: Annotated[list[str], "fields that change together with width or horizon: slopes contain their effect"]
    guesses: Annotated[list[str], "which roles of weights were guessed, in words; empty: none"]
    verdicts: Annotated[list[VerdictItem], "every condition and ball"]
    claims: Annotated[list[ClaimItem], "tested claims of the study"]
    tables: Annotated[dict[str, list[dict[str, Any]]], "name -> rows, as the other CSV files of the folder hold them"]


class TrackingItem(TypedDict):
    """MLflow."""

    uri: Annotated[str, "of the server or database"]
    experiment: Annotated[str | None, "id of the study's experiment"]
    page: Annotated[str | None, "what to append to the address of MLflow's pages for the runs in charts"]


class MeasuredRadiusItem(TypedDict):
    """A point of a perturbation curve."""

    radius: Annotated[float, "of the ball"]
    error: Annotated[float, "perturbation error, median over seeds"]


class LagItem(TypedDict):
    """How far back a function of the lag reaches."""

    steps: Annotated[int, "lags that hold 63 % of its weight"]
    of: Annotated[int, "lags that were measured"]


class MeasuredItem(TypedDict):
    """The measurements of a file of weights, medians over seeds."""

    identity: Identity
    seeds: Annotated[int, "test sets"]
    error: Annotated[float, "without perturbation"]
    zero_loss: Annotated[float, "of the predictor that says 0; of sequences, the variance of the outputs"]
    balls: Annotated[dict[str, list[MeasuredRadiusItem]], "ball -> errors by radius"]
    lags: Annotated[dict[str, LagItem], "learned (memory function) and gradient (of the last state), by lag"]
    guesses: Annotated[list[str], "which roles of weights were guessed, in words; empty: none"]


class RunDocument(TypedDict):
    """``memsweep sweep``, ``resume``, ``extend``, ``retry`` and ``measure``."""

    study: Annotated[str, "its name"]
    trials: Annotated[int, "of the study"]
    reused: Annotated[int, "had a result before the run"]
    finished: Annotated[dict[str, str], "identity -> outcome, of trials that got a result in this run"]
    diverged: Annotated[int, "of them: their loss became infinite"]
    failed: Annotated[list[FailureItem], "trials that failed in this run"]
    left: Annotated[int, "trials that neither have a result nor failed for good; a search may add more"]
    stopped: Annotated[str | None, "what stopped the run before its end, and how to go on"]
    seconds: Annotated[float, "that the command took"]
    inline: Annotated[bool, "it ran in the process of the command, without Ray"]
    time: PhasesItem
    report: Annotated[ReportItem | None, "null where the storage gave nothing to report"]
    tracking: Annotated[TrackingItem | None, "null where the storage is away"]
    tracking_lacks: Annotated[str | None, "what MLflow lacks: memsweep sync adds it"]
    measured: Annotated[list[MeasuredItem], "of memsweep measure with a file of weights: one for each trial"]


class DecisionItem(TypedDict):
    """How one question stands: a condition in one ball."""

    name: Annotated[str, "condition and ball, in words"]
    state: Annotated[
        Literal["decided", "hopeless", "limit", "open"],
        "decided; hopeless: see why; limit: a limit came first; open: the run was stopped",
    ]
    verdict: Annotated[Literal["stable", "unstable", "inconclusive"], "by the rule of docs/verdict.md"]
    core_seconds: Annotated[float, "of the condition's trials; several balls share them"]
    why: Annotated[str, "of a hopeless one, or what does not fit into the rest of a limit; else empty"]
    needed_core_hours: Annotated[float, "of what why names; null where it names nothing"]


class RoundItem(TypedDict):
    """A round: what is added to each open condition."""

    name: Annotated[str, "condition and ball, in words"]
    does: Annotated[str, "what is added"]
    core_seconds: Annotated[float, "by forecast"]


class DecideDocument(TypedDict):
    """``memsweep decide``."""

    study: Annotated[str, "its name"]
    decisions: Annotated[list[DecisionItem], "every condition and ball that needs a verdict and has results"]
    trials_left: Annotated[
        int, "planned trials without a result: nothing of theirs is decided, and nothing at all hopeless"
    ]
    hopeless: Annotated[list[str], "names of the questions that no seed fits, or that would need more than is allowed"]
    rounds: Annotated[int, "of the study so far"]
    next_round: Annotated[list[RoundItem], "of --plan; else empty"]
    run: Annotated[dict[str, Any] | None, "how the run ended: the keys of memsweep sweep; null with --plan"]


class AtlasItem(TypedDict):
    """A layer of the atlas on a task."""

    unit: Annotated[str, "its name, or the import path that was given"]
    own: Annotated[bool, "it is the layer that was given"]
    task: Annotated[str, "its name; with ', 4T': in sequences of four times the trained length"]
    accuracy: Annotated[float, "median over seeds; null: it was not measured"]
    low: Annotated[float, "least of all seeds"]
    high: Annotated[float, "most of all seeds"]
    seeds: Annotated[int, "how many; 0: it was not measured"]
    checked: Annotated[bool, "stored or computed here, or its identities follow from configuration and code"]
    standing: Annotated[str, "where it comes from; of a row of others how far it was checked, and why no further"]
    file: Annotated[str | None, "of a row of --add, or of one kept"]
    changed: Annotated[list[str], "settings of its layer that are not the protocol's"]


class AtlasDocument(RunDocument):
    """``memsweep atlas``; without LAYER nothing is run."""

    atlas: Annotated[list[AtlasItem], "the row of the layer, those of --add and those kept, then the stored ones"]
    exported: Annotated[str | None, "file of --export, if it was written"]
    changed: Annotated[
        list[str], "settings of this run that are not the protocol's, as written: the stored rows have none of them"
    ]


class CriteriaItem(TypedDict):
    """The thresholds by which verdicts were judged."""

    thresholds: Annotated[list[float], "drifts, as shares of the zero predictor's loss, at which radii are read"]
    slope_limit: Annotated[float, "a radius shrinks whose slope is below this with confidence"]
    rule_version: Annotated[int, "of the rule"]


class ComparisonItem(TypedDict):
    """Studies side by side."""

    studies: Annotated[list[str], "names; differences are from the first that has the condition"]
    page: Annotated[str | None, "of --out"]
    answers: Annotated[list[str], "what differs, and what is uncertain"]
    tables: Annotated[dict[str, list[dict[str, Any]]], "name -> rows, as the CSV files of --out hold them"]


class ReportDocument(TypedDict):
    """``memsweep report``."""

    study: Annotated[str, "its name; of several, the first"]
    criteria: CriteriaItem
    report: Annotated[ReportItem | None, "null with several studies and with --table"]
    comparison: Annotated[ComparisonItem | None, "null with one study, and with --table"]
    table: Annotated[list[dict[str, Any]] | None, "rows of --table, as its CSV holds them"]


class SyncDocument(TypedDict):
    """``memsweep sync``."""

    study: Annotated[str, "its name"]
    complete: Annotated[bool, "MLflow has all that is stored"]
    lacks: Annotated[str | None, "what it still lacks, and why"]
