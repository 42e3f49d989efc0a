"""A preview of a sweep, before anything runs: trials and their states, reuse, packs, and what they will take."""

from __future__ import annotations

import html
import io
import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memsweep import registry
from memsweep.config.grid.budget import PARAMETERS
from memsweep.config.schema.axes import ROWS
from memsweep.config.schema.canonical import flatten, to_dict
from memsweep.data.sizes import horizon_of
from memsweep.errors import counted, listed, printable
from memsweep.report.naming.advice import in_words_of
from memsweep.stability.verdict.judgement import GOOD_GRID, SMALLEST_GRID
from memsweep.studies.ending import only_measured
from memsweep.studies.locations import store_of
from memsweep.studies.reasons import by_reason, examples, reasons
from memsweep.studies.trials import has_changed, lacks_of, of_several_weights, refuse_misfit
from memsweep.sweep.planning.plan import identified, make_plan
from memsweep.sweep.planning.plan_file import plan_to_replace
from memsweep.sweep.planning.reuse import Reuse, find_reusable, interpolated, with_stored_training
from memsweep.sweep.store.typed import typed

if TYPE_CHECKING:
    import pandas as pd
    from rich.table import Table

    from memsweep.config.schema.study import SweepConfig
    from memsweep.studies.reasons import Reason
    from memsweep.sweep.driver.placement import Placement
    from memsweep.sweep.estimate.estimate import Estimate, Took, Wave
    from memsweep.sweep.planning.plan import Plan
    from memsweep.sweep.store.filesystem import Location

_MOST_NOTES = 6
_MOST_READ = 40  # records that say what stored trials took
_MOST_SHARES = 8  # of packs in the work
_MOST_SIZES = 6  # that a budget of parameters gave one model
_MOST_ROWS, _MOST_FIELDS, _MOST_VALUES = 20, 6, 12  # of the text
_WIDTH = 160  # letters of a table where no terminal is


def preview(study: SweepConfig, results: Location, *, no_reuse: bool = False) -> Preview:
    """Plans a study without writing anything.

    Args:
        study: the study.
        results: the folder of all studies.
        no_reuse: as if nothing were stored.

    Raises:
        ConfigError: the study's name is none that a folder can have, or a file of weights does not fit.
        StoreError: the storage cannot be read.
    """
    from memsweep.sweep.store.journal import read_statuses

    store = store_of(results, study.name)
    refuse_misfit(study)
    if study.search is not None:
        return Preview(study, stored=len(store.identities()), results=results)
    trials = identified(study)
    if no_reuse:
        return Preview(study, make_plan(study, trials, frozenset()), results=results)
    reuse = find_reusable(trials, store, results)
    before = plan_to_replace(store.location)
    why = reasons(trials, reuse.all, store, results, reuse.damaged, read_statuses(store.location))
    trials = with_stored_training(trials, reuse.all, results)
    plan = make_plan(study, trials, reuse.all)
    measured = [trial for pack in plan.packs for trial in pack.trials]
    came_later = ""
    if before is not None and (lost := lacks_of(before, study)):
        came_later = f"{lost} that came later, by memsweep extend or decide"
        if not has_changed(before, trials):
            came_later += f" ({typed('resume', study.name, results)} runs the whole stored plan)"
    return Preview(study, plan, reuse, why, interpolated(measured), came_later, results=results)


@dataclass(frozen=True, repr=False)
class Preview:
    """A preview of a sweep. In a notebook, and printed, it is the text of ``memsweep plan``.

    Attributes:
        study: the study, checked.
        plan: its trials, and the packs that are left; None for a search, which makes its trials as it goes.
        reuse: the results that need no work.
        reasons: identity -> why a trial is not reused.
        interpolated: how many of the trials that are only measured have stored radii that were read between two points.
        came_later: what ``extend`` or ``decide`` added to the stored plan and this study lacks, with the command that
            runs it; empty where nothing.
        stored: of a search, how many results its folder holds.
        results: the folder of all studies, where measurements are kept; None: nowhere.
    """

    study: SweepConfig
    plan: Plan | None = None
    reuse: Reuse = field(default_factory=Reuse)
    reasons: Mapping[str, Reason] = field(default_factory=dict)
    interpolated: int = 0
    came_later: str = ""
    stored: int = 0
    results: Location | None = None

    @property
    def trials(self) -> pd.DataFrame:
        """A row per trial: its identity, the fields that vary in the study, and its state.

        Of a search: a row per cell, with the fields of its grid.
        """
        import pandas as pd

        return pd.DataFrame(self.rows)

    @property
    def to_run(self) -> int:
        """How many trials have no result that can be used; of a search, how many it may train."""
        if self.plan is not None:
            return len(self.plan.trials) - len(self.plan.done)
        search, confirm = self.study.search, self.study.confirm
        each = (search.settings.trials if search else 0) + (confirm.top if confirm else 0)
        return len(self.study.rows) * each

    @property
    def notes(self) -> list[str]:
        """Notes for the reader: what is stored and not shown, then those on the study, each once."""
        return [*([f"not shown: {self.came_later}"] if self.came_later else []), *notes(self.study)]

    @cached_property
    def waves(self) -> tuple[Wave, ...]:
        """The packs that are left, as they run side by side."""
        from memsweep.sweep.estimate.estimate import waves

        return waves(self.study, self.plan.packs if self.plan is not None else ())

    @cached_property
    def placement(self) -> Placement | None:
        """Where ``sweep`` runs what is left, without --ray and --inline; None where nothing is left."""
        from memsweep.sweep.driver.placement import placement

        return placement(self.study, self.waves) if self.to_run else None

    def estimate(self, seconds: float = 8.0, workspace: Path | str = ".") -> Estimate:
        """Estimates hours, memory and disk. What it measures is kept in the results folder for the next estimate.

        Args:
            seconds: the longest measurement of its programs on this machine; 0 measures nothing.
            workspace: folder that holds tasks/ and search_spaces/.
        """
        from memsweep.sweep.estimate.estimate import estimate
        from memsweep.sweep.estimate.kept import KeptMeasurements

        kept = None if self.results is None else KeptMeasurements.of_folder(self.results)
        took = self._took()
        return estimate(self.waves, self.study.resources, Path(workspace), seconds, self.study.keep, kept, took)

    def _took(self) -> dict[str, Took]:
        """By model, what the study's own trials with a result took, and what the cost model says of them."""
        from memsweep.report.analysis.effort import seconds_of
        from memsweep.sweep.estimate.estimate import Took
        from memsweep.sweep.planning import cost

        found: dict[str, Took] = {}
        if self.plan is not None and self.results is not None and self.plan.packs:
            store = store_of(self.results, self.study.name)
            done = [trial for trial in self.plan.trials if trial.identity in self.reuse.here]
            for trial in done[:: max(1, math.ceil(len(done) / _MOST_READ))]:
                seconds, name = seconds_of(store.record(trial.identity)), trial.config.model.name
                found[name] = found.get(name, Took()).plus(seconds, cost.seconds([trial.config]))
        return found

    @cached_property
    def configs(self) -> list[dict[str, Any]]:
        """The plain data of the trials; of a search, of its cells."""
        return list(map(to_dict, self.study.rows if self.plan is None else [each.config for each in self.plan.trials]))

    @cached_property
    def rows(self) -> list[dict[str, Any]]:
        """See ``trials``: column -> value, a list as it is."""
        flat = [{path.removesuffix(".name"): value for path, value in flatten(each).items()} for each in self.configs]
        varied = _varied_paths(flat)
        settings = [{path: fields.get(path) for path in varied} for fields in flat]
        if self.plan is None:
            return settings
        states = self._states(self.plan)
        return [
            {"identity": trial.identity, **values, "state": states[trial.identity]}
            for trial, values in zip(self.plan.trials, settings, strict=True)
        ]

    def _states(self, plan: Plan) -> dict[str, str]:
        pack_of = {trial.identity: number for number, pack in enumerate(plan.packs, 1) for trial in pack.trials}
        states = {}
        for identity in (trial.identity for trial in plan.trials):
            if identity in self.reuse.here:
                states[identity] = "done"
            elif identity in self.reuse.elsewhere:
                states[identity] = f"reused from {self.reuse.elsewhere[identity].name}"
            else:
                reason = self.reasons.get(identity)
                states[identity] = f"to run, pack {pack_of[identity]}" + (f" ({reason.why})" if reason else "")
        return states

    @property
    def is_long(self) -> bool:
        """Whether there are so many trials that the text names the fields that vary in the place of each trial."""
        return len(self.rows) > _MOST_ROWS

    def table(self, *, whole: bool = False) -> Table | None:
        """The trials for a terminal; None for a search.

        Args:
            whole: every trial, where they are many; else the fields that vary, with their values.
        """
        from rich import box
        from rich.table import Table

        if self.plan is None:
            return None
        table = Table(box=box.SIMPLE, pad_edge=False, show_edge=False)
        if self.is_long and not whole:
            table.add_column("field")
            table.add_column("values", overflow="ellipsis", no_wrap=True)
            for varied in self._varied():
                table.add_row(*map(printable, varied))
            return table
        for name in self.rows[0]:
            table.add_column(name)
        for row in self.rows:
            cells = ("" if value is None else printable(str(value)) for value in row.values())
            table.add_row(next(cells)[:12], *cells)
        return table

    def _varied(self) -> Iterator[tuple[str, str]]:
        """Each field that varies, with its different values."""
        fields = [name for name in self.rows[0] if name not in ("identity", "state")]
        shown = fields if len(fields) <= _MOST_FIELDS else fields[: _MOST_FIELDS - 1]
        for name in shown:
            values = dict.fromkeys(str(row[name]) for row in self.rows if row[name] is not None)
            yield name, listed(list(values), _MOST_VALUES)
        if more := fields[len(shown) :]:
            yield "...", f"{len(more)} more fields: {', '.join(more)}"

    def lines(self, *, verbose: bool = False, estimated: bool = False) -> Iterator[str]:
        """The lines below the table, each once: the work that is left and why it is left.

        Args:
            verbose: also the exact difference for a few trials that are not reused.
            estimated: an estimate follows, so that the place of the work is told without seconds.
        """
        lines = self._of_a_search() if self.plan is None else self._of_a_grid(self.plan, verbose=verbose)
        where = self.placement
        yield from dict.fromkeys([*lines, *([where.reason if estimated else where.text] if where else [])])

    def _of_a_grid(self, plan: Plan, *, verbose: bool) -> Iterator[str]:
        study = self.study
        yield f"study {study.name}: {len(plan.trials)} trials, {len(plan.done)} done or reused, {self.to_run} to run"
        if self.reasons:
            yield f"not reused: {by_reason(self.reasons)}"
            yield from (f"  {line}" for line in examples(self.reasons) if verbose)
        yield from self._objectives()
        yield from _budgets(study)
        whole = sum(pack.cost for pack in plan.packs) or 1.0
        alike = Counter(f"{pack.cost / whole:.0%} ({counted(len(pack.trials), 'trial')})" for pack in plan.packs)
        told = [*alike.items()][:_MOST_SHARES]
        shares = ", ".join(text if count == 1 else f"{count} of {text}" for text, count in told)
        rest = len(plan.packs) - sum(count for _, count in told)
        more = f" and {rest} more" if rest else ""
        seeds = sum(trial.config.training.seeds for pack in plan.packs for trial in pack.trials)
        if measured := only_measured(plan):
            yield f"to measure only: {counted(measured, 'trial')}, whose trained weights are stored"
            if self.interpolated:
                yield f"  the stored radii of {self.interpolated} of them were interpolated; this run looks for them"
        packs = f"{counted(seeds, 'seed')} in {counted(len(plan.packs), 'pack')}"
        yield f"to run: {packs}" + (f"; work shares {shares}{more}" if shares else "")
        yield from _resources(study)

    def _of_a_search(self) -> Iterator[str]:
        from memsweep.config.schema.search import NONE

        study, search, confirm, cells = self.study, self.study.search, self.study.confirm, len(self.study.rows)
        if search is None:
            raise ValueError(f"the study {study.name!r} searches nothing")
        settings = search.settings
        searched = f"{counted(settings.trials, 'suggestion')} of {settings.algorithm}, {settings.batch} at once"
        yield f"study {study.name}: {searched}, in each of {counted(cells, 'cell')}"
        yield f"searched: {', '.join(search.space)}; for {', '.join(settings.objective)}"
        yield f"to run: {counted(cells * settings.trials, 'suggestion')} of {study.rows[0].training.seeds} seeds"
        if settings.scheduler.name != NONE:
            yield f"hours and disk are a bound: {settings.scheduler.name} ends some trainings before their last step"
        yield from self._objectives()
        yield from _budgets(study)
        if confirm is not None:
            again = counted(cells * confirm.top, "trial")
            yield f"then {again} of {confirm.seeds} fresh seeds to confirm the best of each cell"
        if self.stored:
            results = counted(self.stored, "result")
            yield f"{results} stored already: the search reuses them where it asks for the same trial"
        yield from _resources(study)

    def _objectives(self) -> Iterator[str]:
        """The losses that the trials are trained on: nothing that is added to the loss is left out."""
        from memsweep.config.schema.batch_loss import way_of
        from memsweep.config.schema.protocols import MATCHED
        from memsweep.report.naming.objective import objectives

        if self.study.protocol != MATCHED and self.study.search is None:
            yield f"protocol: {self.study.protocol}, under the study's own settings"
        yield from (f"trained on: {text}" for text in objectives(self.configs))
        if ways := Counter(way for trial in self.study.rows if (way := way_of(trial))):
            shares = ", ".join(f"{way} ({counted(count, 'trial')})" for way, count in ways.items())
            yield f"linear models' loss on a batch, in closed form by: {shares}"
        yield from (f"note: {text}" for text in self.notes[:_MOST_NOTES])

    def __repr__(self) -> str:
        from rich.console import Console

        buffer, table = io.StringIO(), self.table()
        if table is not None:
            Console(file=buffer, markup=False, width=_WIDTH, force_terminal=False, force_jupyter=False).print(table)
        return "\n".join([*(line.rstrip() for line in buffer.getvalue().splitlines()), *map(printable, self.lines())])

    def _repr_html_(self) -> str:
        lines = "".join(f"<div>{html.escape(printable(line))}</div>" for line in self.lines())
        return f"{self.trials.to_html(index=False, max_rows=60)}{lines}"


def _varied_paths(trials: Sequence[Mapping[str, Any]]) -> list[str]:
    """Dotted paths of the fields that tell trials apart.

    A field of a part (of a unit, say) counts if trials with the same part differ in it: what the part's name says is
    said once.

    Args:
        trials: of each, dotted path -> value; the name of a part stands at the part's own path.
    """

    def varies(path: str, among: Iterable[Mapping[str, Any]]) -> bool:
        return len({repr(fields.get(path)) for fields in among}) > 1

    varied: list[str] = []
    for path in dict.fromkeys(path for fields in trials for path in fields):
        part = next((other for other in varied if path.startswith(f"{other}.")), None)
        alike: dict[str, list[Mapping[str, Any]]] = {}
        for fields in trials:
            alike.setdefault(repr(fields.get(part)) if part else "", []).append(fields)
        if any(varies(path, among) for among in alike.values()):
            varied.append(path)
    return varied


def _budgets(study: SweepConfig) -> Iterator[str]:
    """The widths that ``model.parameters`` became, and how many parameters they make; ranges where they are many."""
    if PARAMETERS not in study.grid:
        return
    found: dict[str, dict[tuple[int, int], None]] = {}
    for model, task in dict.fromkeys((row.model, row.task) for row in study.rows):
        flat = flatten({"model": to_dict(model)})
        unit = flat.get("model.units") or flat.get("model.unit.name", flat.get("model.unit"))
        name = f"{model.name} of {unit}" if unit is not None else str(model.name)
        count = registry.get(registry.MODEL, model.name).count_parameters(model, task)
        found.setdefault(name, {})[model.width, count] = None
    for name, sizes in found.items():
        if len(sizes) <= _MOST_SIZES:
            yield f"{name}: {', '.join(f'width {width} has {count:,} parameters' for width, count in sizes)}"
        else:
            (least, most), (fewest, largest) = (sorted(each)[:: len(sizes) - 1] for each in zip(*sizes, strict=True))
            widths = f"width {least}" if least == most else f"widths {least} to {most}"
            yield f"{name}: {widths}, {fewest:,} to {largest:,} parameters, by budget and task"


def notes(study: SweepConfig) -> list[str]:
    """Notes for the reader on the horizons, the rules of resources and the code of tasks and models, each once."""
    different = {(trial.task, trial.model): trial for trial in study.rows}
    of_code = dict.fromkeys(
        note
        for trial in different.values()
        for note in (
            *registry.get(registry.TASK, trial.task.name).notes_of_code(trial),
            *registry.get(registry.MODEL, trial.model.name).notes_of_code(trial, study.resources.of(trial).device),
        )
    )
    return [*_horizons(study), *_widths(study), *_idle_rules(study), *of_code, *of_several_weights(study)]


def _horizons(study: SweepConfig) -> Iterator[str]:
    """The horizons that a slope of the radius should have, where a study varies them and has fewer."""
    asked = {
        horizon: trial.task for trial in study.rows if trial.perturbation.balls and (horizon := horizon_of(trial.task))
    }
    horizons = sorted(asked)
    if study.search is None and 1 < len(horizons) < GOOD_GRID:
        more = [horizons[-1] * 2**power for power in range(1, GOOD_GRID - len(horizons) + 1)]
        in_rows = ROWS in study.grid and not study.smaller  # words would cross them with every row that was written
        wanted = f"task.horizon={','.join(map(str, more if in_rows else [*horizons, *more]))}"
        yield from (
            f"{len(horizons)} horizons; aim at {GOOD_GRID}, which narrow the interval of a slope more than twice the "
            f"seeds do: {'rows with ' * in_rows}{words}"
            for words in in_words_of(to_dict(asked[horizons[0]]), [wanted])
        )


def _widths(study: SweepConfig) -> Iterator[str]:
    """The widths that a slope of the radius needs, where a study varies them and has fewer."""
    widths: dict[str, set[int]] = {}
    for trial in study.rows:
        if trial.perturbation.balls and hasattr(trial.model, "width"):
            widths.setdefault(trial.model.name, set()).add(trial.model.width)
    few = min((len(each) for each in widths.values() if len(each) > 1), default=SMALLEST_GRID)
    if study.search is None and few < SMALLEST_GRID:
        yield f"{few} widths; a slope in the width, without which no verdict is stable, needs {SMALLEST_GRID}"


def _idle_rules(study: SweepConfig) -> Iterator[str]:
    """The rules of resources that hold for no trial: later ones may have such values, so nothing is refused."""
    for number, rule in enumerate(study.resources.rules):
        if not any(map(rule.holds, study.rows)):
            yield f"resources.rules[{number}] holds for no trial so far: none has {rule.condition}"


def _resources(study: SweepConfig) -> Iterator[str]:
    """The resources of packs, by condition where rules say so; and the device, which is no cosmetic choice."""
    kinds = study.kinds
    for kind, count in kinds.items():
        whose = "each pack asks for" if len(kinds) == 1 else f"packs of {counted(count, _rows_of(study))} ask for"
        yield f"{whose} {kind.words}" + (f" for each of {kind.workers} workers" * (kind.workers > 1))
    yield from (f"  where {rule.condition}: {rule.words}" for rule in study.resources.rules)
    devices = sorted({kind.device for kind in kinds})
    if devices != ["cpu"]:
        yield f"computed on {' and '.join(devices)}: the type of the device is part of a trial's identity"


def _rows_of(study: SweepConfig) -> str:
    return "trial" if study.search is None else "cell"
