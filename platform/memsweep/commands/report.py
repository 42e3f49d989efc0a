"""``memsweep report``: the report of a study, by other criteria, as one table; and studies side by side."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memsweep import registry
from memsweep import report as reports
from memsweep.commands import console
from memsweep.commands.answers.run import report_item, rows_of
from memsweep.commands.outputs import check_folder
from memsweep.documents import Answer
from memsweep.errors import ConfigError, Exit, MemsweepError, StorageError, did_you_mean
from memsweep.extras import is_there, line_for
from memsweep.report.formats import FIGURES, PDF, TABLES, TRIALS
from memsweep.studies.locations import different, find_study
from memsweep.sweep.store.filesystem import Location

if TYPE_CHECKING:
    from memsweep.documents.keys.runs import ComparisonItem, ReportDocument, ReportItem
    from memsweep.report.analysis.contents import Contents
    from memsweep.report.values.table import Table
    from memsweep.stability.verdict.judgement import Criteria


def report(args: argparse.Namespace) -> Answer:
    """Writes the report of a stored study again and prints its verdicts, or compares several studies."""
    _check(args)
    place, *others = _places([args.study, *args.others], Location.at(args.results))
    criteria = _criteria(args)
    # A report asks parameterizations for their theoretical slopes. Those of memsweep need no torch.
    registry.discover_when_asked("memsweep.models.parameterizations")
    if others:
        return _compare(args, [place, *others], criteria)
    if args.table:
        from memsweep.report.rows.report import tables_of

        contents = reports.judge(place, criteria)
        return _table(tables_of(contents).named, contents, args)
    code = Exit.DONE
    try:
        paths = reports.build(place, criteria=criteria, formats=_formats(args))
    except StorageError as error:  # a folder that cannot be written can be read
        paths, code = reports.build(place, criteria=criteria, formats=_formats(args), apart=True), error.exit_code
        console.say_sentence(f"{error} The report is kept apart, on this machine.", file=sys.stderr)
    text = f"{paths.text()}\nreport: {console.shown(paths.page)}"
    return Answer(_document(paths.contents, report=report_item(paths)), code, text)


def _compare(args: argparse.Namespace, places: Sequence[Location], criteria: Criteria) -> Answer:
    from memsweep.report.publish import publish_comparison
    from memsweep.report.terminal import comparison_text
    from memsweep.studies.python.comparison import compared

    if args.out:
        check_folder(Path(args.out), "--out FOLDER")
    studies = [reports.judge(place, criteria) for place in places]
    found = compared(list(zip(places, studies, strict=True)))
    if args.table:
        return _table(found.named, studies[0], args)
    page = publish_comparison(found, Path(args.out), _formats(args) or ()) if args.out else None
    text = comparison_text(found)
    item: ComparisonItem = {
        "studies": [*found.names],
        "page": None if page is None else str(page),
        "answers": found.answers,
        "tables": {name: rows_of(table.frame()) for name, table in found.named.items()},
    }
    return Answer(
        _document(studies[0], comparison=item),
        text=text if page is None else f"{text}\ncomparison: {console.shown(page)}",
    )


def _document(
    contents: Contents,
    *,
    report: ReportItem | None = None,
    comparison: ComparisonItem | None = None,
    table: list[dict[str, Any]] | None = None,
) -> ReportDocument:
    from memsweep.stability.verdict.judgement import RULE_VERSION

    rule = contents.criteria
    return {
        "study": contents.study.name,
        "criteria": {
            "thresholds": [*rule.thresholds],
            "slope_limit": rule.slope_limit,
            "rule_version": RULE_VERSION,
        },
        "report": report,
        "comparison": comparison,
        "table": table,
    }


def _check(args: argparse.Namespace) -> None:
    """Refuse flags that would do nothing, all at once."""
    several = bool(args.others)
    problems = []
    if args.out and not several:
        problems.append("--out is for a comparison of studies: a study's own report goes into its folder. Leave it out")
    drawn = " and ".join(flag for flag in ("--figures", "--paper") if getattr(args, flag.lstrip("-")))
    if drawn and not is_there("matplotlib"):
        problems.append(f"{drawn} needs matplotlib, which is not installed: {line_for('matplotlib')}")
    if drawn and several and not args.out:
        problems.append(f"{drawn} of a comparison needs a folder for the files: add --out FOLDER")
    if args.figures and several and TRIALS in args.figures:
        problems.append(f"a comparison has no charts of single trials: leave {TRIALS} out of --figures")
    if args.table and (drawn or args.out):
        problems.append("--table prints one table and writes nothing: leave out --figures, --paper and --out")
    if args.format and not args.table:
        problems.append("--format is that of a printed table: add --table NAME, such as --table verdicts")
    if problems:
        raise ConfigError(problems, "the command line")


def _formats(args: argparse.Namespace) -> tuple[str, ...] | None:
    """The formats of the figures, with the width of a paper among them, which are PDF where none is named."""
    if args.paper is None:
        formats: tuple[str, ...] | None = args.figures
        return formats
    named = [form for form in args.figures or () if form in FIGURES]
    return (*(args.figures or ()), *(() if named else (PDF,)), args.paper)


def _criteria(args: argparse.Namespace) -> Criteria:
    from memsweep.stability.verdict.judgement import DEFAULT, Criteria

    limit = DEFAULT.slope_limit if args.slope_limit is None else args.slope_limit
    return Criteria(args.thresholds or DEFAULT.thresholds, limit)


def _places(words: list[str], results: Location) -> list[Location]:
    """The folders of the studies.

    Raises:
        MemsweepError: a study is not there, or is given twice.
    """
    return different([find_study(word, results).location for word in words])


def _table(tables: Mapping[str, Table[Any]], contents: Contents, args: argparse.Namespace) -> Answer:
    from memsweep.report.export import table_as

    if args.table not in tables:
        there = f"Tables with rows: {', '.join(tables)}" if tables else "No table has rows: no trial has finished"
        raise MemsweepError(f"there is no table {args.table!r} here.{did_you_mean(args.table, tables)} {there}.")
    table = tables[args.table]
    text = table_as(table, args.format or TABLES[0]).rstrip("\n")
    return Answer(_document(contents, table=rows_of(table.frame())), text=text)
