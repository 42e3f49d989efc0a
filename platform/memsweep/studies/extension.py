"""Adds trials to the configuration of a study: more values, more seeds, more suggestions of a search."""

from __future__ import annotations

import dataclasses
import json
import re
import shlex
from collections.abc import Collection, Sequence
from functools import partial
from typing import Any

from memsweep.config.core.problems import lies_in
from memsweep.config.schema.canonical import flatten
from memsweep.config.schema.chain import predecessor
from memsweep.config.schema.search import PBT, ConfirmConfig, Search
from memsweep.config.schema.study import SweepConfig
from memsweep.config.schema.trial import TrialConfig
from memsweep.errors import ConfigError, MemsweepError, counted
from memsweep.report.read.command_line import in_place, is_of_words, without_run_options
from memsweep.studies.trials import own_values
from memsweep.sweep.planning.identity import identifying
from memsweep.sweep.planning.plan_file import StoredPlan
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.layout import folder_name
from memsweep.sweep.store.typed import called, typed, workspace_of

TRAINED = ("training", "perturbation")
"""The sections that say how a trial is trained and measured."""


def extend_grid(stored: SweepConfig, wider: SweepConfig, before: Collection[TrialConfig] = ()) -> SweepConfig:
    """Joins the trials of the stored study and those of the wider one that they do not cover.

    More seeds become trials of their own with the seeds that are missing, so that no seed is trained twice; the
    report pools the seeds of one cell.

    Args:
        stored: the study of the stored plan.
        wider: the study that is asked for.
        before: trials that earlier extensions added. Whoever asks for them again goes on with the stored plan.

    Raises:
        MemsweepError: nothing is added, or an added trial asks for seeds on both sides of stored ones.
    """
    asked = (*wider.rows, *_with_seeds_of(wider, stored, before))
    added = not_covered(stored.rows, asked)
    own = _covered(before)
    again = any(not own.get(without_seeds(row), set()).isdisjoint(_seeds(row)) for row in asked)
    if not added and not again:
        those = "this trial" if len(wider.rows) == 1 else f"these {len(wider.rows)} trials"
        raise MemsweepError(
            f"nothing to add: the plan of {stored.name!r} has {those} already. Name more values "
            f"(model.width=2,4,16), or more seeds (training.seeds=10).{_checked_otherwise(stored, wider)}"
        )
    rows = {*stored.rows, *added}
    if any((chained := predecessor(row)) is not None and chained not in rows for row in added):
        raise MemsweepError(
            "the trials to be added would take their chained value from trials that do not exist: more values of the "
            f"chain's axis and more seeds at once. Extend {stored.name!r} in two steps, the axis first."
        )
    return dataclasses.replace(wider, rows=(*stored.rows, *added), grid=_wider_grid(stored, wider))


def _checked_otherwise(stored: SweepConfig, wider: SweepConfig) -> str:
    """Advice where the studies differ in the seeds whose search is checked; empty where they do not."""
    before: dict[str, set[int]] = {}
    for row in stored.rows:
        before.setdefault(without_seeds(row), set()).add(row.perturbation.stronger_every)
    asked = [row for row in wider.rows if row.perturbation.stronger_every]
    if all(row.perturbation.stronger_every in before.get(without_seeds(row), ()) for row in asked):
        return ""
    return (
        " Other seeds whose search is checked (perturbation.stronger_every) are no further trials: sweep the study by "
        "another name (name=NAME), which measures the stored weights again."
    )


def _with_seeds_of(wider: SweepConfig, stored: SweepConfig, before: Collection[TrialConfig]) -> list[TrialConfig]:
    """Trials of earlier extensions with the seeds of the wider study, where it asks all others for more than they had.

    The study's file does not name them: without this, more seeds would never reach a size that was added before.
    """
    first, ends = [row for row in stored.rows if row not in before], {_seeds(row) for row in wider.rows}
    asked = next(iter(ends))
    wide = {without_seeds(row) for row in wider.rows}
    fewer = all({*_seeds(row)} < {*asked} and without_seeds(row) in wide for row in first)
    if len(ends) != 1 or not fewer or any(row.chain is not None for row in before):  # a chain holds its links' configs
        return []
    found: dict[str, TrialConfig] = {}
    for row in before:
        if (key := without_seeds(row)) not in wide:  # of one size, seeds that were added in turn are asked for once
            own = dataclasses.replace(row.training, first_seed=asked.start, seeds=len(asked))
            found.setdefault(key, dataclasses.replace(row, training=own))
    return [*found.values()]


def extend_search(stored: SweepConfig, wider: SweepConfig, *, extended: bool = False) -> SweepConfig:
    """Joins the search of the stored study with more suggestions, more cells, or more confirmations.

    Args:
        stored: the study of the stored plan. It loses nothing: the study's file does not name what extensions added.
        wider: the study that is asked for.
        extended: an earlier extension made the stored search what it is. Whoever asks for it again goes on with it.

    Raises:
        MemsweepError: nothing is added, or the search itself is another one, which would start again.
    """
    if stored.search is None or wider.search is None:
        raise MemsweepError(
            f"the stored plan of {stored.name!r} {'searches' if stored.search else 'searches nothing'}, and the study "
            f"now {'searches' if wider.search else 'searches nothing'}: run it as a sweep (memsweep sweep)."
        )
    before, after = stored.search, wider.search
    trials = max(before.settings.trials, after.settings.trials)
    if _with_trials(after, before.settings.trials) != before:
        raise MemsweepError(
            f"the search of {stored.name!r} differs from the stored one: only search.trials, confirm and the "
            "grid can be extended. Run it as a sweep (memsweep sweep); trials that both have are reused."
        )
    added = [row for row in wider.rows if row not in stored.rows]
    if anew := _begins_anew(stored, trials, added):
        raise MemsweepError(
            f"{anew}, and leave trials of {stored.name!r} out. For another search, sweep the study by another name "
            "(name=NAME)."
        )
    confirm = _more_confirmed(stored.confirm, wider.confirm)
    again = extended and after == before and {*wider.rows} == {*stored.rows} and wider.confirm == confirm
    if not added and not again and trials == before.settings.trials and confirm == stored.confirm:
        fresh = f", confirmed with {confirm.seeds} fresh seeds" if confirm is not None else ""
        more = "" if after.settings.scheduler.name == PBT else f"more suggestions (search.trials={2 * trials}), "
        raise MemsweepError(
            f"nothing to add: the search of {stored.name!r} has {trials} suggestions in each of its cells already"
            f"{fresh}. Name {more}more values of an axis (model.width=2,4,16), or more confirmations "
            f"(confirm.seeds={2 * confirm.seeds if confirm is not None else ConfirmConfig().seeds})."
        )
    return dataclasses.replace(
        wider,
        rows=(*stored.rows, *added),
        grid=_wider_grid(stored, wider),
        search=_with_trials(after, trials),
        confirm=confirm,
    )


def _begins_anew(stored: SweepConfig, trials: int, added: Collection[TrialConfig]) -> str:
    """Says what of an extension would choose winners anew; empty where nothing would."""
    settings = stored.search.settings if stored.search is not None else None
    if settings is not None and settings.scheduler.name == PBT and trials != settings.trials:
        return f"search.trials is the size of a population ({settings.trials}): another one would train anew"
    if not {*map(_seeds, added)} <= {*map(_seeds, stored.rows)}:
        return (
            "the seeds of a search (training.seeds) choose its winners, and those after them are the fresh ones "
            "(confirm.seeds): other seeds would choose and confirm anew"
        )
    return ""


def _more_confirmed(stored: ConfirmConfig | None, wider: ConfirmConfig | None) -> ConfirmConfig | None:
    """All the winners and fresh seeds that either asks for."""
    if stored is None or wider is None:
        return stored or wider
    return ConfirmConfig(seeds=max(stored.seeds, wider.seeds), top=max(stored.top, wider.top))


def not_covered(stored: Collection[TrialConfig], wider: Collection[TrialConfig]) -> list[TrialConfig]:
    """The trials that stored ones lack, each with the seeds that are missing.

    Raises:
        MemsweepError: a trial asks for seeds on both sides of stored ones.
    """
    covered = _covered(stored)
    return [new for row in wider if (new := _uncovered(row, covered.get(without_seeds(row), set()))) is not None]


def of_other_settings(
    wider: SweepConfig, new: Collection[TrialConfig], stored: Collection[TrialConfig], fields: Sequence[str] = TRAINED
) -> str:
    """Says how a study trains or measures otherwise than it is stored; empty where it has all that is stored, too.

    Seeds, and those whose search is checked, do not count.

    Args:
        wider: the study that is asked for.
        new: the trials of it that are not stored.
        stored: the trials that are.
        fields: that count, with all below them.
    """
    there, asked, added = ({_settings(row, fields) for row in rows} for rows in (stored, wider.rows, new))
    if there <= asked or not added - there:
        return ""
    other = [row for row in new if _settings(row, fields) not in there]
    own, before = ([*map(json.loads, sorted(names))] for names in (added - there, there))
    # with all that these trials alone have: it may be another field that was asked for
    whole, stored_whole = ([json.loads(without_seeds(row)) for row in rows] for rows in (other, stored))
    return (
        f"{counted(len(other), 'trial')} that it asks for {'has' if len(other) == 1 else 'have'} other settings"
        f"{own_values(whole, stored_whole)} than those that are stored{own_values(before, own)}"
    )


def changed_since(study: str, other: str, place: Location) -> ConfigError:
    """The refusal of trials that differ from what rounds or extensions have made of a study.

    Args:
        study: its name.
        other: as of ``of_other_settings``.
        place: its folder.
    """
    ways = (
        "Rounds or extensions have changed the study since, and these trials would be none of its own. It goes on, and "
        f"adds seeds and sizes itself, by: memsweep decide {shlex.quote(str(place))}. To begin with such trials, give "
        "the study another name: name=..."
    )
    return ConfigError([f"{other}. {ways}"], f"study {study!r}")


def _settings(row: TrialConfig, fields: Sequence[str]) -> str:
    """The fields of a trial that say how it is trained and measured, as JSON, without its seeds."""
    data = flatten(json.loads(without_seeds(row)))
    return json.dumps({path: data[path] for path in sorted(data) if any(lies_in(path, each) for each in fields)})


def _with_trials(search: Search, trials: int) -> Search:
    return dataclasses.replace(search, settings=dataclasses.replace(search.settings, trials=trials))


def _wider_grid(stored: SweepConfig, wider: SweepConfig) -> dict[str, tuple[Any, ...]]:
    grid = dict(stored.grid)
    for path, values in wider.grid.items():
        here = [json.dumps(value, default=str) for value in grid.get(path, ())]
        grid[path] = (*grid.get(path, ()), *(value for value in values if json.dumps(value, default=str) not in here))
    return grid


def without_seeds(row: TrialConfig) -> str:
    """A text that trials share which differ in their seeds alone, or in those whose search is checked."""
    data = identifying(row)
    training = {key: value for key, value in data["training"].items() if key not in ("seeds", "first_seed")}
    moved = {key: value for key, value in data["perturbation"].items() if key != "stronger_every"}
    return json.dumps(data | {"training": training, "perturbation": moved}, sort_keys=True)


def _covered(rows: Collection[TrialConfig]) -> dict[str, set[int]]:
    """Trial without its seeds -> the seeds that it has."""
    covered: dict[str, set[int]] = {}
    for row in rows:
        covered.setdefault(without_seeds(row), set()).update(_seeds(row))
    return covered


def _seeds(row: TrialConfig) -> range:
    return range(row.training.first_seed, row.training.first_seed + row.training.seeds)


def _uncovered(row: TrialConfig, covered: set[int]) -> TrialConfig | None:
    """The trial with the seeds that are missing; None where none is."""
    missing = [seed for seed in _seeds(row) if seed not in covered]
    if not missing:
        return None
    if missing[-1] - missing[0] + 1 != len(missing):
        raise MemsweepError(
            f"the seeds {missing[0]} to {missing[-1]} of a trial lie on both sides of stored ones. Add them in two "
            "steps, with training.first_seed."
        )
    training = dataclasses.replace(row.training, first_seed=missing[0], seeds=len(missing))
    return dataclasses.replace(row, training=training)


def begun_anew(plan: StoredPlan, results: Location, words: Sequence[str] = (), *, dropping: bool = False) -> str:
    """The command that runs the file of a stored plan with these overrides, too, or what stands in the place of it.

    That is a call in Python for a study of Python, and ``decide`` under another name for a module.
    ``dropping``: it does not keep what came later.
    """
    made, source = plan.provenance, str(plan.provenance.get("source", plan.study))
    if is_of_module(plan):
        line = without_run_options(str(made["command"]), limits=False)
        return shlex.join(in_place(line, [*words, f"name={_another(plan.study)}"]))
    again = partial(typed, "sweep", source) if source else partial(called, "sweep")
    if dropping and plan.extended:
        words = [*words, "--drop-extended" if source else f"name={_another(plan.study)}"]
    workspace, address = workspace_of(made, results / folder_name(plan.study)), str(made.get("address") or "")
    return again(results, *map(str, made.get("overrides") or ()), *words, workspace=workspace, address=address)


def is_of_module(plan: StoredPlan) -> bool:
    """Whether ``decide`` made the study of a module: no sweep knows it."""
    line, source = str(plan.provenance.get("command") or ""), str(plan.provenance.get("source", plan.study))
    return is_of_words(line, source) and "decide" in line.split()[:2]


def _another(name: str) -> str:
    """Another name, so that a study of this name can begin anew."""
    return re.sub(r"\W+", "_", name).strip("_") + "_2"
