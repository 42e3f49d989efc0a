"""The stored weights of a study with other settings of the perturbation: a study of its own that trains nothing."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from memsweep.config.core.build import section
from memsweep.config.core.merge import edited, leaves
from memsweep.config.load.overrides import FIELD, Overrides, parse
from memsweep.config.load.study import study_name
from memsweep.config.schema.axes import duplicates
from memsweep.config.schema.canonical import to_dict, trial_from_dict
from memsweep.config.schema.study import SweepConfig
from memsweep.config.schema.trial import PerturbationConfig, TrialConfig
from memsweep.errors import ConfigError, MemsweepError, counted
from memsweep.report.read.rounds import Rows, shown_trials, stored_rounds, unfinished
from memsweep.studies.extension import begun_anew
from memsweep.studies.locations import plan_to_measure, store_of
from memsweep.studies.trials import Request
from memsweep.sweep.planning.plan import identified
from memsweep.sweep.planning.reuse import find_reusable, with_stored_training
from memsweep.sweep.store.results import Store
from memsweep.trust.gate import NONE, Trust

SECTION, NAME = "perturbation", "name"
"""The settings that a measurement may change."""


def measurement(store: Store, words: Sequence[str], workspace: Path, trust: Trust = NONE) -> tuple[Request, str]:
    """Reads what is to be run.

    Args:
        store: the results of the study whose weights are measured.
        words: overrides of ``perturbation.*``, and of the measurement's name.
        workspace: folder that holds tasks/.
        trust: the person's word for code that the plan names.

    Returns:
        And a sentence on the trials that are left out, or stand in for those of an open round; empty where none is.

    Raises:
        ConfigError: a word is no setting of a measurement, or a setting is wrong.
        MemsweepError: no trial has stored weights that fit.
        TrustError: the plan names code that this user has neither planned nor trusted.
    """
    changes = settings(words, workspace)
    plan, results = plan_to_measure(store, trust), store.location.parent
    measured = _shown(plan.rows, store)
    values = dict(changes.values)
    name = str(values.pop(NAME, " ".join([plan.study, *(words or ["measured again"])])))
    sweep = SweepConfig(
        name=name,
        rows=_rows([trial_from_dict(row) for row in measured.values()], values, dict(changes.axes)),
        grid={path: tuple(each) for path, each in [*plan.grid.items(), *changes.axes]},
        resources=plan.sweep().resources,
        description=plan.description,
        protocol=plan.protocol,
        keep=plan.keep,
    )
    trials = identified(sweep)
    stored = find_reusable(trials, store_of(results, name), results).all
    found = with_stored_training(trials, stored, results)
    ready = [trial for trial in found if trial.trained[0] or trial.identity in stored]
    if not ready:
        raise MemsweepError(
            f"none of the {len(trials)} trials of {plan.study!r} has stored weights that fit: they were not kept "
            "(keep: none), were deleted, or the installed code, its libraries or the data files would train other "
            f"weights now. To train and measure: {begun_anew(plan, results, words)}"
        )
    less = len(trials) - len(ready)
    left_out = f"{less} of {len(trials)} trials have no stored weights that fit: left out." if less else ""
    if earlier := len(measured.keys() - plan.rows.keys()):
        is_open = (
            f"A round of memsweep decide has not ended: {counted(earlier, 'earlier trial')} stand in, as in reports."
        )
        left_out = f"{is_open} {left_out}".strip()
    sweep = dataclasses.replace(sweep, rows=tuple(trial.config for trial in ready))
    return Request(sweep, tuple(ready), measures=plan.study), left_out


def _shown(rows: Rows, store: Store) -> Rows:
    """The trials of a plan as reports show them: while a round replaces some, those before it.

    Args:
        rows: identity -> canonical config.
        store: of the study.
    """
    rounds, stored = stored_rounds(store.location, rows.values()), store.identities()
    new = unfinished(rows, rounds[-1], {*stored, *store.failures()}) if rounds else []
    if not new or not stored.issuperset(rounds[-1].removed):
        return rows
    return shown_trials(rows, new, {name: store.record(name)["config"] for name in rounds[-1].removed})


def settings(words: Sequence[str], workspace: Path) -> Overrides:
    """The settings with which the stored weights of a study are measured again.

    Raises:
        ConfigError: a word is no setting of a measurement.
    """
    changes = parse(words, workspace.resolve())
    if problems := changes.problems + list(_refused(changes)):
        raise ConfigError(problems, "the command line")
    return changes


def _refused(changes: Overrides) -> Iterator[str]:
    """Why overrides are none of a measurement, a sentence each."""
    for path in [*(edit.place for edit in changes.edits), *changes.groups]:
        if path != NAME and path.partition(".")[0] != SECTION:
            yield (
                f"{path}: is no setting of a measurement, which takes {SECTION}.* and {NAME}. To train with other "
                "settings, run memsweep sweep."
            )
    for path, values in changes.axes:
        if twice := duplicates(values):
            yield f"{path}: names a value twice: {', '.join(twice)}. Name each once."
    for name in [value for path, value in changes.values if path == NAME]:
        problems = list[str]()
        study_name(str(name), problems)
        yield from problems
    for path in changes.removed(FIELD):
        if path == NAME or path.partition(".")[0] == SECTION:
            yield f"{path}: cannot be removed from a stored study. Give it the value that it is to have."


def _rows(rows: Sequence[TrialConfig], values: Mapping[str, Any], axes: Mapping[str, Any]) -> tuple[TrialConfig, ...]:
    """The trials with other settings of the perturbation: every combination of the axes.

    Raises:
        ConfigError: a setting is wrong, or does not go with a trial.
    """
    found, problems = list[TrialConfig](), list[str]()
    fixed = [leaf for path, value in values.items() for leaf in leaves(value, path)]
    for row in rows:
        for choice in itertools.product(*axes.values()):
            edits = [*fixed, *zip(axes, choice, strict=True)]
            data = edited(TrialConfig, {SECTION: to_dict(row.perturbation)}, edits)
            changed = section(PerturbationConfig, data[SECTION], SECTION, problems)
            if changed is not None:
                trial = dataclasses.replace(row, perturbation=changed)
                problems += [f"{problem}." for problem in trial.problems()]
                found.append(trial)
    if problems:
        raise ConfigError(list(dict.fromkeys(problems)), "the command line")
    return tuple(found)
