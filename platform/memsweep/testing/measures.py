"""The contract of every measure: the engine, the store and the report loop over measures and trust each of them."""

from __future__ import annotations

import dataclasses
import json
import math
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pandas as pd

from memsweep import registry
from memsweep.config.core.build import config_from
from memsweep.config.core.fields import DURING
from memsweep.config.schema.canonical import to_dict
from memsweep.config.schema.trial import TrialConfig
from memsweep.stability.optional import CURVES
from memsweep.sweep.planning.cost import seconds
from memsweep.sweep.planning.identity import identity, training_of
from memsweep.sweep.store import tables as table_files
from memsweep.sweep.store.tables import METRICS
from memsweep.testing.checks import equal, written
from memsweep.trial import run_pack

if TYPE_CHECKING:
    from memsweep.stability.optional import Measure
    from memsweep.studies.python.results import Results

TYPES = {"string", "int64", "float64", "bool"}


class MeasureSuite:
    """Inherit and set ``measure``; the default Config is tested, or the one in ``config``.

    Attributes:
        measure: registered name.
        config: a Config to test instead of the default one.
        study: sections of the study on which it is tested, with two widths of the model.
        pack: fields of the model by which the trials of a pack differ; of a deep model a pack has one trial.
    """

    measure: str
    config: Any = None
    study: dict[str, Any] = {  # noqa: RUF012  (a test class is made once)
        "task": {"name": "linear_functional", "kernel": "exponential", "horizon": 12},
        "model": {"name": "diagonal_rnn", "width": 2},
        "training": {"seeds": 2, "steps": 20, "batch_size": 16, "validation_size": 32, "validate_every": 10},
        "perturbation": {
            "balls": ["recurrent"],
            "radii": {"from": 0.01, "to": 1, "count": 3},
            "starts": 0,
            "ascent_steps": 2,
        },
    }

    pack: Sequence[Mapping[str, Any]] = ({"parameterization": "direct"}, {"parameterization": "exp"})

    def part(self) -> type[Measure]:
        registry.discover()  # the tasks and models of the study
        part: type[Measure] = registry.get(registry.MEASURE, self.measure)
        return part

    @property
    def section(self) -> str:
        """Of a study, in which it is asked for."""
        return "training" if self.part().when == DURING else "perturbation"

    def asked(self) -> Any:
        return self.part().Config() if self.config is None else self.config

    def trials(self) -> list[TrialConfig]:
        """The trials of one pack, which ask for the measure."""
        return [self.trial(fields, measured=True) for fields in self.pack]

    def trial(self, fields: Mapping[str, Any] | None = None, *, measured: bool) -> TrialConfig:
        """A trial whose model has these fields; None: those of the last one in the pack."""
        registry.discover()
        data = {**self.study, "model": {**self.study["model"], **(self.pack[-1] if fields is None else fields)}}
        if measured:
            data[self.section] = {**data[self.section], **self.asking()}
        trial: TrialConfig = config_from(TrialConfig, data, "the suite of measures")
        return trial

    def asking(self) -> dict[str, Any]:
        """The words that a study writes under ``section`` to ask for it."""
        data = to_dict(self.asked())
        return data if self.part().is_flat else {self.measure: data}

    def table(self, trials: Sequence[TrialConfig], place: int) -> pd.DataFrame:
        """Its rows."""
        found = run_pack(trials)[place].tables.get(self.part().table, pd.DataFrame({"ball": []}))
        return self.part().own(found).reset_index(drop=True)

    def test_config_is_documented_and_plain(self) -> None:
        fields = dataclasses.fields(self.asked())
        undocumented = [field.name for field in fields if not field.metadata.get("doc")]
        assert not undocumented, f"fields of {self.measure}.Config without a doc: {undocumented}"
        json.dumps(to_dict(self.asked()), allow_nan=False)

    def test_its_table_has_a_name_and_columns_of_its_own(self) -> None:
        part = self.part()
        taken = [name for name in table_files.names() if name == part.table]
        assert len(taken) == 1, f"{part.table} is the name of {len(taken)} tables"
        assert (part.table == CURVES) == bool(part.curves), f"{part.table} and curves {sorted(part.curves)}"
        assert part.answering <= part.curves, f"no curves of it: {sorted(part.answering - part.curves)}"
        unknown = {column: kind for column, kind in part.columns.items() if kind not in TYPES}
        assert not unknown, f"columns of types that no table has: {unknown}; there are {sorted(TYPES)}"
        fixed = {*table_files.SIZE, "seed"} & {*part.columns}
        assert not fixed, f"columns that every table has already: {sorted(fixed)}"

    def test_rows_are_those_of_the_table_and_can_be_stored(self) -> None:
        trial = self.trials()[0]
        rows = self.table([trial], 0)
        assert len(rows), "a trained model has no rows"
        columns = {*table_files.columns(self.part().table)}
        equal("columns of the rows", set(rows), columns - {"identity"})
        data = table_files.to_parquet(self.part().table, rows.assign(identity="a"), "a")
        version = table_files.definition(self.part().table).version
        again = table_files.from_parquet(self.part().table, data, "a", "a file", version).to_pandas()
        written = rows[[*again.columns.drop("identity")]].reset_index(drop=True)
        assert again.drop(columns="identity").equals(written), f"rows written:\n{written}\nread back:\n{again}"

    def test_a_replica_has_the_same_rows_alone_and_in_a_pack_of_others(self) -> None:
        trials = self.trials()
        for place, trial in enumerate(trials):
            together, alone = self.table(trials, place), self.table([trial], 0)
            assert together.equals(alone), f"trial {place} of a pack of {len(trials)} has other rows than alone"

    def test_asking_for_it_moves_what_it_is_part_of(self) -> None:
        """The measurement, and no training that it is not part of."""
        plain, asking = self.trial(measured=False), self.trial(measured=True)
        assert identity(plain) != identity(asking), f"expected another identity than {identity(plain)}, got the same"
        equal(
            "whether the training is another one, because it is measured in training",
            training_of(identity(plain)) != training_of(identity(asking)),
            self.part().when == DURING,
        )
        assert not len(rows := self.table([plain], 0)), f"nobody asked for {self.measure}, and it has rows:\n{rows}"

    def test_asking_for_it_changes_no_other_number(self) -> None:
        plain, asking = (run_pack([self.trial(measured=measured)])[0] for measured in (False, True))
        for seed, weights in plain.weights.items():
            moved = [name for name, value in weights.items() if not value.equal(asking.weights[seed][name])]
            equal(f"weights of seed {seed} that {self.measure} changes", moved, [])
        for name in plain.tables.keys() - {METRICS}:  # the task's metric may have companions
            again = asking.tables[name]
            again = again[~again["ball"].isin(self.part().curves)] if name == CURVES and len(again) else again
            same = again.reset_index(drop=True).equals(plain.tables[name])
            assert same, f"{self.measure} changes the table {name}, from\n{plain.tables[name]}\nto\n{again}"

    def test_a_flat_one_has_no_field_of_the_section(self) -> None:
        names = {field.name for field in dataclasses.fields(self.part().Config)} if self.part().is_flat else set()
        section = type(getattr(self.trial(measured=False), self.section))
        both = names & {field.name for field in dataclasses.fields(section)}
        equal(f"fields of {self.measure} that the section has itself", both, set())

    def test_the_plan_knows_what_it_costs(self) -> None:
        plain, asking = (seconds([self.trial(measured=measured)]) for measured in (False, True))
        assert math.isfinite(asking), f"cost of a trial that asks for it: expected finite seconds, got {asking}"
        assert asking >= plain, f"the plan takes {asking - plain} s for the measure"

    def test_a_report_says_it_everywhere(self, tmp_path: Path) -> None:
        """Page, terminal, files and metrics of a trial, all from one section."""
        from memsweep.report.tracked import verdicts_of
        from memsweep.report.values.chart import says_something
        from memsweep.report.values.section import made_by, sections_of

        results = self.swept(tmp_path)
        anchor, folder = self.measure.replace("_", "-"), tmp_path / "results" / "measured" / "report"
        made = [*made_by(self.part(), self.measure, results.contents)]
        got = ", ".join(
            f"{one.title!r} with glances alone" if one.glance and not one.is_shown else repr(one.title) for one in made
        )
        expected = "a section that a report shows: one with charts, or with rows in its table"
        assert any(one.is_shown for one in made), f"{self.part().section}: expected {expected}, got {got or 'none'}"
        sections = sections_of(results.contents)
        section = next((one for one in sections if one.anchor == anchor), None)
        assert section is not None, f"expected a section with the anchor {anchor!r}, got {got}"
        assert section.table is None or section.table.rows, "the section's table is empty"
        page = (folder / "index.html").read_text(encoding="utf-8")
        showing = [one for one in sections if one.table is not None or any(map(says_something, one.charts))]
        missing = [one.anchor for one in showing if f'<section id="{one.anchor}">' not in page]
        equal("sections that the page lacks", missing, [])
        assert section.title, f"the section {anchor} has no title"
        assert section.words.endswith("."), f"{section.words!r} is no sentence"
        written(sections, results, folder)
        assert len(self.part().own(results.table(self.part().table))), f"{self.part().table} has no rows of it"
        metrics = verdicts_of(results.contents)
        for name, numbers in section.metrics.items():
            equal(f"metrics of {name}", {key: metrics[name].metrics.get(key) for key in numbers}, dict(numbers))

    def swept(self, folder: Path) -> Results:
        """A study of two widths that asks for the measure, swept in this process."""
        import memsweep

        asked = {**self.study[self.section], **self.asking()}
        study = {**self.study, "name": "measured", self.section: asked, "grid": {"model.width": [2, 3]}}
        return memsweep.sweep(study, results=folder / "results", workspace=folder, inline=True, progress=False)
