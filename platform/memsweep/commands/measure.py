"""The command that measures trained weights and trains nothing: those of a study again, or those of a file."""

from __future__ import annotations

import argparse
import hashlib
import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memsweep.commands import console
from memsweep.commands.answers.run import run_document
from memsweep.commands.outputs import write_file
from memsweep.commands.trained import measure_trained
from memsweep.commands.verbs import execute, run
from memsweep.config.load.study import study_of
from memsweep.documents import Answer
from memsweep.documents.keys.runs import LagItem, MeasuredItem, MeasuredRadiusItem
from memsweep.errors import MemsweepError, counted
from memsweep.report.naming.advice import OF_ONE_WIDTH
from memsweep.report.naming.guesses import guessed_roles
from memsweep.report.read.fields import fields_of
from memsweep.report.rows.verdicts import radii_table, radius_lines
from memsweep.stability.verdict.judgement import Verdict
from memsweep.stability.verdict.radius import of_grid
from memsweep.studies.locations import find_study, store_of, stored_plan
from memsweep.studies.measurement import NAME, SECTION, measurement
from memsweep.studies.trials import Request
from memsweep.sweep.planning.plan import identified
from memsweep.sweep.planning.plan_file import read_plan
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.layout import GIVEN, SUFFIX
from memsweep.sweep.store.results import Store

if TYPE_CHECKING:
    import pandas as pd
    from torch import Tensor

    from memsweep.learning.state.found_weights import FoundWeights
    from memsweep.report.analysis.contents import Contents

_RADII = 8  # points of a printed curve
_HASH = 16
"""Letters of a hash, and of a name before it, in the name of a file."""
_LAGS = {"learned": "memory function", "gradient": "gradient of the last state"}
"""Columns of the table ``memory``, and what they are."""


def measure(args: argparse.Namespace) -> Answer:
    """Measures trained weights; the exit code is as of a sweep."""
    studies = [word for word in args.overrides if "=" not in word and not word.startswith("~")]
    words = [word for word in args.overrides if word not in studies]
    if args.reference:
        words.append(f"{SECTION}.reference={args.reference}")
    alone = {"--page": args.page, "--inputs": args.inputs, "--outputs": args.outputs}
    if not args.sequences and (given := [flag for flag, value in alone.items() if value is not None]):
        raise MemsweepError(
            f"{' and '.join(given)} {'is' if len(given) == 1 else 'are'} of --sequences alone: else a task sets sizes, "
            "and memsweep report writes the page of a study."
        )
    if args.sequences:
        if studies:
            _refuse_half(studies, [])
        return measure_trained(args, words, measured_item)
    of_a_file = {"--factory or --model": args.factory or args.model, "--weights": args.weights, "--task": args.task}
    if any(of_a_file.values()):
        _refuse_half(studies, [flag for flag, value in of_a_file.items() if not value])
        return _measure_file(args, words)
    if len(studies) != 1:
        got = f"got {', '.join(studies)}" if studies else "got none"
        raise MemsweepError(
            f"memsweep measure takes one study, {got}. Write memsweep measure STUDY {SECTION}.norm=entrywise, or "
            "--factory, --weights and --task."
        )
    return _measure_study(args, studies[0], words)


def _refuse_half(studies: Sequence[str], missing: Sequence[str]) -> None:
    """Refuses the flags of a file of weights beside a study, and some of them without the others."""
    if not studies and not missing:
        return
    verb = "is" if len(missing) == 1 else "are"
    wrong = f"a study ({studies[0]}) is another question" if studies else f"{' and '.join(missing)} {verb} missing"
    raise MemsweepError(
        f"{wrong}. To measure a file of weights, write memsweep measure --factory my_nets:MinGRU --weights "
        "ckpt.pt --task TASK model.width=16 task.horizon=100; or without a task --sequences x.npy."
    )


def _measure_file(args: argparse.Namespace, words: Sequence[str]) -> Answer:
    """Measures a module with the weights of a file, as a trial without a training step."""
    from memsweep.learning.state.found_weights import file_of
    from memsweep.trial import check_weights, state_of

    args.discover(Path(args.workspace))
    given = Path(args.weights).absolute()
    model = {"name": "module", "factory": args.factory} if args.factory else {"name": args.model}
    described = f"{args.factory or args.model} with the weights of {given.name}"
    file = file_of(given)
    # nothing may change the weights: no step, and no merging of modes
    training = {"steps": 0, "seeds": 1, "merge_redundant": False, "weights": str(file)}
    written = {
        NAME: described,
        "task": {"name": args.task},
        "model": model,
        "training": training,
    }
    about = f"{described[0].upper()}{described[1:]}, as they are."
    sweep = study_of(written, words, Path(args.workspace), about)
    if trained := [row.training.steps for row in sweep.rows if row.training.steps]:
        raise MemsweepError(
            f"training.steps is {trained[0]}, and memsweep measure trains nothing. To train from these weights, write "
            "a study with training.weights, and run memsweep sweep."
        )
    results = Location.at(args.results)
    store = store_of(results, sweep.name)
    found = _not_read_as(given, state_of(sweep.rows[0]))
    for row in sweep.rows:
        check_weights(row, None if found is None else found.tensors)
    if found is not None:
        written["training"] = {**training, "weights": str(_written(found, file, store))}
        sweep = study_of(written, words, Path(args.workspace), about)
    before = read_plan(store.location)
    ending = execute(Request(sweep, identified(sweep)), args, results)
    measured, contents = _measured(store), ending.report.contents if ending.report is not None else None
    for item in measured:
        _print_measured(item, contents)
    if contents is not None and {each.judgement.verdict for each in contents.verdicts} == {Verdict.INCONCLUSIVE}:
        print(f"no verdict, and no trials to decide it: {OF_ONE_WIDTH}")
    if before is not None and (left := _left_out(before.rows, stored_plan(store).rows)):
        console.say_sentence(left)
    return Answer({**run_document(ending), "measured": measured}, ending.code)


def _not_read_as(given: Path, own: Mapping[str, Tensor]) -> FoundWeights | None:
    """A module's weights in a file that a trial does not read from it; None where it reads the file as it is.

    Raises:
        WeightsFileError: as of ``found_in``.
    """
    from memsweep.learning.state.found_weights import found_in, same_weights
    from memsweep.learning.state.weights_file import WeightsFileError, read_weights

    found = found_in(given, own)
    try:
        return None if found is None or same_weights(read_weights(given), found.tensors) else found
    except WeightsFileError:
        return found


def _written(found: FoundWeights, file: Path, store: Store) -> Path:
    """The file of the weights that were found in another, beside the results; other weights have another name.

    Raises:
        MemsweepError: the results lie in a bucket.
    """
    from memsweep.learning.state.weights_file import to_bytes

    if (folder := store.location.local) is None:
        raise MemsweepError(
            f"a trial cannot read {file} as it is: {found.said}. Beside results in a bucket, give a file of these "
            "weights alone, or measure to a folder (--results)."
        )
    console.say_sentence(f"weights: {found.said}")
    (folder := folder / GIVEN).mkdir(parents=True, exist_ok=True)
    digest = hashlib.sha256(data := to_bytes(found.tensors)).hexdigest()[:_HASH]
    write_file(copy := folder / f"{file.name[:_HASH]}-{digest}.{SUFFIX}", data)
    return copy


_PLAIN = re.compile(r"[\w.+-]+")
"""A value that an axis of a command line can hold."""


def _left_out(before: Mapping[str, Mapping[str, Any]], rows: Mapping[str, Mapping[str, Any]]) -> str:
    """How to keep the trials of an earlier measurement of this name; empty where all are planned still."""
    lost = {name: fields_of(row) for name, row in before.items() if name not in rows}
    if not lost:
        return ""
    every = [*lost.values(), *map(fields_of, rows.values())]
    values = {path: [*dict.fromkeys(str(each.get(path)) for each in every)] for path in every[0]}
    varied = {path: texts for path, texts in values.items() if len(texts) > 1}
    axes = [
        f"{path}={','.join(texts)}"
        for path, texts in varied.items()
        if path.startswith(("task.", "model.", f"{SECTION}.")) and all(map(_PLAIN.fullmatch, texts))
    ]
    one_report = f" To have all in one report, write {axes[0]}." if len(axes) == len(varied) == 1 else ""
    return (
        f"no longer in the report: {counted(len(lost), 'trial')} of an earlier measurement of this name, whose results "
        f"stay.{one_report} To keep both reports, name one of them (name=...)."
    )


def _measure_study(args: argparse.Namespace, study: str, words: Sequence[str]) -> Answer:
    """Measures the stored weights of a study with other settings of the perturbation."""
    store = find_study(study, Location.at(args.results))
    args.discover(Path(args.workspace))
    request, left_out = measurement(store, words, Path(args.workspace), console.trust_of(args))
    if left_out:
        print(left_out, file=sys.stderr)
    return run(request, args, store.location.parent)


def _measured(store: Store) -> list[MeasuredItem]:
    """The measurements of each trial of the study's plan: errors by radius, memory and gradient by lag."""
    measured: list[MeasuredItem] = []
    for identity in stored_plan(store).rows:
        if store.has(identity):
            record, tables = store.result(identity, ("curves", "replicas", "memory"))
            guesses = guessed_roles([record])
            measured.append(measured_item(identity, tables["replicas"], tables["curves"], tables["memory"], guesses))
    return measured


def measured_item(
    identity: str, replicas: pd.DataFrame, curves: pd.DataFrame, memory: pd.DataFrame, guesses: list[str]
) -> MeasuredItem:
    """The measurements of one trial, from its tables, with what is said of its guessed roles."""
    return {
        "identity": identity,
        "seeds": int(replicas["seed"].nunique()),
        "error": float(replicas["error"].median()),
        "zero_loss": float(replicas["zero_loss"].median()),
        "balls": {str(ball): _curve(own) for ball, own in curves.groupby("ball", sort=False)},
        "lags": {name: lag for name in _LAGS if (lag := _lag(memory, name)) is not None},
        "guesses": guesses,
    }


def _curve(own: pd.DataFrame) -> list[MeasuredRadiusItem]:
    by_radius = of_grid(own).groupby("radius")["error"].median()
    points = zip(by_radius.index.to_numpy(float), by_radius.to_numpy(float), strict=True)
    return [{"radius": float(radius), "error": float(error)} for radius, error in points]


def _lag(memory: pd.DataFrame, column: str) -> LagItem | None:
    """How far back the median of a column over the seeds reaches; None where it was not measured."""
    values = memory.groupby("lag")[column].median().abs().dropna()
    if not len(values):
        return None
    share = values.cumsum() / values.sum() if values.sum() else values
    # lag 0 is a step, too
    return {"steps": 1 + int((share.to_numpy() >= 0.63).argmax()) if values.sum() else 0, "of": len(values)}


def _print_measured(item: MeasuredItem, contents: Contents | None) -> None:
    print(f"\ntrial {item['identity'][:12]}: medians over {counted(item['seeds'], 'seed')}")
    error, zero = item["error"], item["zero_loss"]
    print(f"error {error:.4g} ({error / zero:.2%} of the zero predictor's, {zero:.4g})")
    for ball, curve in item["balls"].items():
        shown = curve[:: max(1, len(curve) // _RADII)]
        points = ", ".join(f"{point['radius']:.3g}: {point['error']:.4g}" for point in shown)
        print(f"perturbation error, ball {ball}: {points}")
    if contents is not None:
        radii, curves = radii_table(contents.findings), contents.study.of("curves", [item["identity"]])
        for line in radius_lines(radii[radii["identity"] == item["identity"]], curves):
            print(line)
    for name, lag in item["lags"].items():
        print(f"{_LAGS[name]} by lag: 63 % of its weight within {lag['steps']} of {lag['of']} steps")
