"""The duties of every analysis of stored tables: each report loops over analyses and trusts each of them."""

from __future__ import annotations

import dataclasses
import functools
import json
import tempfile
import warnings
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memsweep import registry
from memsweep.config.schema.canonical import to_dict
from memsweep.errors import one_of
from memsweep.report.values.analysis import loaded
from memsweep.testing.checks import equal, is_filed, written

if TYPE_CHECKING:
    from memsweep.report.analysis.contents import Contents
    from memsweep.report.values.analysis import Analysis
    from memsweep.report.values.section import Section
    from memsweep.report.values.side_by_side import SideBySide
    from memsweep.studies.python.results import Results


class AnalysisSuite:
    """Inherit and set ``analysis``, and ``study`` where the default one gives it nothing to say.

    Attributes:
        analysis: registered name.
        study: the study on whose results it is tested. The default one varies width and learning rate, and claims. One
            with a section ``decide`` is run by ``memsweep.decide``.
    """

    analysis: str
    study: dict[str, Any] = {  # noqa: RUF012  (a test class is made once)
        "name": "analysed",
        "task": {"name": "linear_functional", "kernel": "exponential", "horizon": 8},
        "model": {"name": "diagonal_rnn", "parameterization": "exp"},
        "training": {"seeds": 2, "steps": 20, "batch_size": 8, "validation_size": 16, "validate_every": 10}
        | {"sharpness_every": 20},
        "perturbation": {"balls": []},
        "grid": {"model.width": [2, 3, 4], "training.learning_rate": [0.01, 0.1, 1.0]},
        "claims": [
            {"metric": "error", "direction": "less"}
            | {"left": {"training.learning_rate": 0.1}, "right": {"training.learning_rate": 0.01}}
        ],
    }

    def part(self) -> type[Analysis]:
        registry.discover()
        part: type[Analysis] = registry.get(registry.ANALYSIS, self.analysis)
        return part

    def results(self) -> Results:
        """The results of the study, swept once for all suites of a process."""
        return _swept(json.dumps(self.study))[0]

    def sections(self, contents: Contents) -> list[Section]:
        """Its sections of a study, and of the study beside itself where it compares studies."""
        return [*self._within(contents), *self._across(contents)]

    def _within(self, contents: Contents) -> list[Section]:
        from memsweep.report.values.section import made_by

        return [*made_by(self.part(), self.analysis, contents)] if self.part().section else []

    def _across(self, contents: Contents) -> list[Section]:
        if not (across := self.part().studies):
            return []
        return [*loaded(across)({"one": contents, "other": contents}, {"one": "A", "other": "B"}).sections]

    def test_config_is_documented_and_plain(self) -> None:
        config = self.part().Config()
        undocumented = [field.name for field in dataclasses.fields(config) if not field.metadata.get("doc")]
        assert not undocumented, f"fields of {self.analysis}.Config without a doc: {undocumented}"
        json.dumps(to_dict(config), allow_nan=False)

    def test_a_study_without_results_has_no_numbers(self) -> None:
        """A table may say that something is not measured."""
        from memsweep.report.analysis.contents import analyse

        study = self.results().contents.study
        nothing = {name: table.iloc[:0] for name, table in study.tables.items()}
        said = self.sections(analyse(replace(study, records={}, tables=nothing)))
        numbers = [section.title for section in said if section.metrics or section.charts]
        assert not numbers, f"metrics or charts of a study without results: {one_of(numbers)}"

    def test_it_leaves_the_stored_tables_as_they_are(self) -> None:
        contents = self.results().contents
        before = {name: table.copy() for name, table in contents.measured.tables.items()}
        self.sections(contents)
        changed = [name for name, table in contents.measured.tables.items() if not table.equals(before[name])]
        assert not changed, f"the analysis changes the tables {one_of(changed)}, which others read"

    def test_it_says_the_same_again(self) -> None:
        contents = self.results().contents
        first, again = self.sections(contents), self.sections(contents)
        equal("sections that are made again", [*map(_plain, again)], [*map(_plain, first)])

    def test_its_words_are_sentences_and_its_names_its_own(self) -> None:
        contents, part = self.results().contents, self.part()
        shown = [section for section in self.sections(contents) if section.is_shown]
        assert shown, "the analysis says nothing of this study: give the suite another one (study = {...})"
        untitled = [section.anchor for section in shown if not section.title]
        equal("sections without a title", untitled, [])
        for said in (said for section in shown for said in (section.words, *section.answer)):
            assert said.endswith(".") or (not said and part.studies), f"{said!r} is no sentence"
        every = ((self._within(contents), _names_of_the_report), (self._across(contents), _names_side_by_side))
        for sections, names_of in every:
            own = [section for section in sections if section.is_shown]
            names = names_of(contents) if own else []
            for name in [
                *_titles(own),
                *(section.table.name for section in own if section.table is not None and is_filed(section)),
            ]:
                equal(f"sections or tables that are {name}", names.count(name), 1)

    def test_a_report_says_it_everywhere(self, tmp_path: Path) -> None:
        """Page, terminal, files and metrics, all from one section."""
        results, beside = self.results(), self.part().studies
        folder, text = Path(results.location) / "report", repr(results)
        if beside:
            from memsweep.report.publish import publish_comparison
            from memsweep.report.terminal import comparison_text

            found = _beside(results.contents)
            folder, text = publish_comparison(found, tmp_path).parent, comparison_text(found, width=200, colour=False)
        page = (folder / "index.html").read_text(encoding="utf-8")
        shown = [section for section in self.sections(results.contents) if section.is_shown]
        for section in shown:
            assert f">{section.title}<" in page, f"the page has no heading {section.title!r}"
            if section.table is not None and section.table.rows:
                word = (section.heading or section.words).split()[0]
                assert word in text, f"the text has no word {word!r} of {section.heading or section.words!r}"
            self._metrics(section, results.contents)
        written(shown, results, folder, named=not beside)

    def _metrics(self, section: Section, contents: Contents) -> None:
        from memsweep.report.tracked import verdicts_of

        metrics = verdicts_of(contents)
        for identity, numbers in section.metrics.items():
            assert identity in contents.study.records, f"metrics of {identity!r}, which is no trial"
            unsaid = {*numbers.items()} - {*metrics[identity].metrics.items()}
            assert not unsaid, f"metrics that no run has: {unsaid}"


def _names_side_by_side(contents: Contents) -> list[str]:
    """The names of all sections and tables of a comparison of studies."""
    return [*_titles(_beside(contents).sections), *_beside(contents).tables]


def _names_of_the_report(contents: Contents) -> list[str]:
    """The names of all sections and tables of a report."""
    from memsweep.report.rows.report import tables_of

    every = tables_of(contents)
    return [*_titles(every.sections), *(one.name for one in every.exported)]


def _titles(sections: Iterable[Section]) -> list[str]:
    return [f"{one.anchor}: {one.title}" for one in sections]


def _beside(contents: Contents) -> SideBySide:
    from memsweep.report.values.side_by_side import side_by_side

    return side_by_side({"one": contents, "other": contents})


@functools.cache
def _swept(study: str) -> tuple[Results, tempfile.TemporaryDirectory[str]]:
    """The results, and their folder, which lives as long as they do."""
    import memsweep

    folder = tempfile.TemporaryDirectory(prefix="memsweep-analyses-")
    place = Path(folder.name)
    given = json.loads(study)
    run = memsweep.decide if "decide" in given else memsweep.sweep
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # it may end at its limit
        return run(given, results=place / "results", workspace=place, inline=True, progress=False), folder


def _plain(section: Section) -> Any:
    """The content of a section, to be compared."""
    table = None if section.table is None else section.table.frame().to_csv()
    return section.title, section.words, table, repr(section.charts), section.metrics, [*section.answer]
