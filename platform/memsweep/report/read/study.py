"""A study's folder as one value: its stored results, the settings of its trials, and what is missing."""

from __future__ import annotations

import json
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd

from memsweep.config.schema.claims import Claims
from memsweep.errors import StoreError
from memsweep.report.read.command_line import (
    grown_words,
    has_other_conditions,
    in_place,
    made_by,
    with_words,
    without_run_options,
)
from memsweep.report.read.command_line import is_of_words as made_of_words
from memsweep.report.read.failures import FailureGroup, failure_groups
from memsweep.report.read.fields import fields_of, fields_of_width
from memsweep.report.read.known import Known
from memsweep.report.read.rounds import StoredRound, shown_trials, stored_rounds, unfinished
from memsweep.sweep.planning.plan_file import StoredPlan, no_plan, read_plan
from memsweep.sweep.store.filesystem import Location
from memsweep.sweep.store.journal import State
from memsweep.sweep.store.layout import default_results, folder_name
from memsweep.sweep.store.record import Record
from memsweep.sweep.store.results import Store
from memsweep.sweep.store.typed import called, workspace_of
from memsweep.sweep.store.typed import typed as typed_command

if TYPE_CHECKING:
    from memsweep.search.history import SearchHistory

_SEEDS = ("training.first_seed", "training.seeds")


def trial_table(
    records: Mapping[str, Mapping[str, Any]], replicas: pd.DataFrame, always: Iterable[str]
) -> pd.DataFrame:
    """A row per trial, with the settings that measured tables lack.

    Args:
        records: identity -> record; of each, its config.
        replicas: columns identity, width and horizon.
        always: dotted paths of fields that are columns wherever a config has them.

    Returns:
        Columns identity; ``always`` and all fields that differ between the trials, by dotted path; width and horizon;
        the first seed and the number of seeds. A field that a trial lacks is None.
    """
    fields = {identity: fields_of(record["config"]) for identity, record in records.items()}
    paths = dict.fromkeys(path for values in fields.values() for path in values)
    differing = [path for path in paths if len({values.get(path) for values in fields.values()}) > 1]
    names = [path for path in dict.fromkeys([*always, *differing]) if path in paths and path not in _SEEDS]
    columns = ["identity", *names, "width", "horizon", *_SEEDS]
    if not fields:
        return pd.DataFrame(columns=columns)
    sizes = replicas.drop_duplicates("identity").set_index("identity")[["width", "horizon"]]
    rows = [
        {"identity": identity} | {path: values.get(path) for path in (*names, *_SEEDS)}
        for identity, values in fields.items()
    ]
    return pd.DataFrame(rows, dtype=object).join(sizes, on="identity")[columns]


def with_settings(table: pd.DataFrame, trials: pd.DataFrame) -> pd.DataFrame:
    """A measured table with the settings of each row's trial behind its identity.

    Args:
        table: has a column identity.
        trials: of ``trial_table``. Its columns that the table lacks are added; the seeds only where they vary.
    """
    constant = [name for name in _SEEDS if name in trials and trials[name].nunique(dropna=False) < 2]
    added = trials.drop(columns=[*constant, *({*trials.columns} & {*table.columns} - {"identity"})])
    added = typed(added)
    rest = [name for name in table.columns if name != "identity"]
    words = table.astype(dict.fromkeys(table.select_dtypes("category").columns, "str"))  # as every reader knows them
    return words.merge(added, on="identity", how="left")[[*added.columns, *rest]]


def typed(trials: pd.DataFrame) -> pd.DataFrame:
    """Settings with numbers as numbers; a column of several types, which no file format holds, is text."""
    plain = trials.infer_objects()
    mixed = [name for name in plain.columns if pd.api.types.infer_dtype(plain[name], skipna=True).startswith("mixed")]
    return plain.assign(**{name: plain[name].map(_as_text, na_action="ignore") for name in mixed})


def _as_text(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)


DAMAGED = "damaged"
"""In place of an outcome, for a result that is there and cannot be read."""


@dataclass(frozen=True)
class MissingRow:
    """A planned trial without a result that can be used.

    Attributes:
        outcome: why, as an outcome's name; ``not run`` when nothing was tried yet; ``damaged``.
        reason: what the outcome means and what to do.
        traceback: of the last try; empty when there was none.
        error: type and text of the exception of the last try; empty when there was none.
    """

    identity: str
    config: Mapping[str, Any]
    outcome: str
    reason: str
    traceback: str
    error: str = ""


@dataclass(frozen=True)
class Study:
    """Everything that a report is made from.

    Attributes:
        planned: number of trials in the plan.
        records: identity -> record, in the order of the plan.
        tables: ``memsweep.sweep.store.tables.names``, one frame each over all records.
        missing: planned trials without a result that can be used.
        claims: what was published about the conditions; None where the study file claims nothing.
        protocol: the preset under the study's settings.
        left_out: stored results that neither the plan nor a round names (older code, other overrides).
        absent: ``table.column`` that an earlier version of memsweep did not measure -> number of trials.
        search: what was searched, and how it went; None for a study that searches nothing.
        command: that computed it last; empty where the plan does not say.
        source: the study as that command named it, by its name or its file; empty for a dict of Python; None where the
            plan does not say.
        overrides: in which the study differs from its file.
        address: of the Ray cluster that it was run on, as it was given; empty without one.
        measured: of a measurement, the stored study whose weights were measured; else empty.
        rows: identity -> config of every planned trial, and of every trial in ``standing_in``.
        extended: identities of those that came with extensions and rounds.
        runs_page: address of MLflow's page of its runs; empty where no server has them.
        location: its folder; None where it has none yet.
        workspace: the folder of tasks/ that it was run with; None where it is not known or not there.
        rounds: of ``memsweep decide``.
        replaced: identity -> record, of trials whose place others took in a round.
        standing_in: identities of old trials that a round replaces; ``records`` has them until the round has ended.
        waiting: identity -> record, of new trials of that round; ``records`` has them once it has ended.
    """

    name: str
    description: str
    planned: int
    records: Mapping[str, Mapping[str, Any]]
    tables: Mapping[str, pd.DataFrame]
    missing: tuple[MissingRow, ...]
    left_out: int
    claims: Claims | None
    protocol: str
    search: SearchHistory | None = None
    command: str = ""
    source: str | None = None
    overrides: tuple[str, ...] = ()
    address: str = ""
    measured: str = ""
    rows: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    extended: frozenset[str] = frozenset()
    runs_page: str = ""
    location: Location | None = None
    workspace: Path | None = None
    absent: Mapping[str, int] = field(default_factory=dict)
    rounds: Sequence[StoredRound] = ()
    replaced: Mapping[str, Record] = field(default_factory=dict)
    standing_in: frozenset[str] = frozenset()
    waiting: Mapping[str, Record] = field(default_factory=dict)

    def of(self, name: str, identities: Iterable[str]) -> pd.DataFrame:
        """The rows of some trials in a table, in its order."""
        return self.tables[name].iloc[self.places(name, identities)]

    def places(self, name: str, identities: Iterable[str]) -> np.ndarray:
        """The places of these rows in the table, ascending."""
        places = [part for part in map(self._places[name].get, identities) if part is not None]
        return np.sort(np.concatenate(places)) if places else np.empty(0, np.intp)

    @cached_property
    def _places(self) -> dict[str, dict[str, np.ndarray]]:
        """Table -> identity -> the places of its rows: to look for them row by row takes time with every trial."""
        places = dict[str, dict[str, np.ndarray]]()
        for name, table in self.tables.items():
            codes, identities = pd.factorize(table["identity"])
            order = np.argsort(codes, kind="stable")
            parts = np.split(order, np.cumsum(np.bincount(codes, minlength=len(identities)))[:-1])
            places[name] = dict(zip(map(str, identities), parts, strict=False))
        return places

    @cached_property
    def failures(self) -> tuple[FailureGroup, ...]:
        """The trials that failed, by cause."""
        failed = {row.identity: vars(row) for row in self.missing if row.error}
        return failure_groups({name: self.rows[name] for name in self.rows if name not in self.standing_in}, failed)

    @property
    def finished(self) -> int:
        """How many planned trials have a result that can be used."""
        return self.planned - len(self.missing)

    @property
    def is_unfinished(self) -> bool:
        """Whether planned trials have no result, besides those that failed."""
        return len(self.missing) > sum(group.count for group in self.failures)

    @property
    def damaged(self) -> int:
        """How many of the missing rows have a result that is damaged."""
        return sum(row.outcome == DAMAGED for row in self.missing)

    @property
    def resume(self) -> str:
        """The command that computes what is missing."""
        return self.typed("resume", self.name)

    def extended_by(self, words: str) -> str:
        """The command that adds the trials of overrides: it names the study's file, and what its sweep changed.

        A study that Python made of a dict has no file: there it is the call ``ms.extend(study, ...)``. One that a
        command made of other words (``measure``, ``atlas``, ``decide`` of a module) has none, either: there it is that
        command with the overrides, and without the limits of its run, which would stop the next one as well. ``decide``
        moves fields that are tied to the width, and keeps the settings to which a round has brought trials.
        """
        added = shlex.split(words)
        paths = [word.partition("=")[0] for word in added]
        tied = "model.width" in paths and self.search is None and len(fields_of_width(self.rows.values())) > 1
        if tied or self.replaced:
            return self.until_decided  # empty where there is no such command
        if self.measured:
            return self._of_measurement(added)
        if self.is_of_words:
            return with_words(self.command, added)
        if self.search is None:  # a file does not name the values that an extension brought
            if paths != ["training.seeds"] and self.source and has_other_conditions(self.rows, self.extended):
                return self.until_decided
            added = [*grown_words(self.rows, self.extended, paths), *added]
        if self.source == "":
            call = in_place(self.overrides, added)
            return called("extend", self.results, *call, workspace=self.workspace, address=self.address)
        return self.again("extend", added)

    def again(self, verb: str, added: Sequence[str]) -> str:
        """A command on the study by the words that made it and further overrides; empty where those are of another."""
        if self.is_of_words:
            return with_words(self.command, added) if shlex.split(self.command)[1] == verb else ""
        return self.typed(verb, self.source or self.name, *in_place(self.overrides, added))

    def _of_measurement(self, added: list[str]) -> str:
        """The command that made a measurement, again. It trains nothing: trials come to the study that was measured.

        Empty where that one is not there any more, a search, or a measurement itself; of one of Python its own call
        alone. A sweep of a search makes its trials itself: words for them would take its own out of the plan.
        """
        trials = [word for word in added if not word.startswith("perturbation.")]
        again = with_words(self.command, [word for word in added if word not in trials]) if self.is_of_words else ""
        plan, store = None, Store(self.results / folder_name(self.measured))
        with suppress(StoreError):
            plan = read_plan(store.location) if trials else None
        if plan is None or plan.provenance.get("measured") or plan.search is not None:
            return "" if trials else again
        removed = [name for one in stored_rounds(store.location, plan.rows.values()) for name in one.removed]
        its_own = replace(self, name=self.measured, rows=plan.rows, extended=frozenset(plan.extended))
        its_own = replace(its_own, replaced=_records(store, removed))
        trained = replace(its_own, **made_by(plan.provenance))
        before = trained.extended_by(" ".join(trials))
        return f"{before} && {again}" if before and again and trained.source != "" else before

    @property
    def is_of_words(self) -> bool:
        """Whether a command line made the study, which no file holds."""
        return made_of_words(self.command, self.source)

    @property
    def until_decided(self) -> str:
        """The command that goes on with the study until it is decided; empty for a study that Python made of a dict."""
        if self.is_of_words:
            is_decided = shlex.split(self.command)[1] == "decide"
            return shlex.join([*without_run_options(self.command), "--max-core-hours", "1"]) if is_decided else ""
        words = (*self.overrides, "--max-core-hours", "1")
        return self.typed("decide", self.source, *words) if self.source else ""

    def typed(self, verb: str, study: str, *flags: str) -> str:
        """A command on this study as it works when it is typed in this folder."""
        return typed_command(verb, study, self.results, *flags, workspace=self.workspace, address=self.address or None)

    @property
    def results(self) -> Location:
        """The results folder that it lies in."""
        return Location.at(default_results()) if self.location is None else self.location.parent


def not_measured(study: Study) -> list[str]:
    """What could not be measured of trained models, and why, with the number of trials."""
    texts = Counter(record["summary"]["not_measured"] for record in study.records.values() if _failed(record))
    later = [
        f"{column}, which an earlier version of memsweep that computed them did not store ({count} trials)"
        for column, count in study.absent.items()
    ]
    return [f"{text} ({count} trials)" for text, count in texts.most_common(5)] + later


def measured_again(study: Study) -> list[str]:
    """The command that measures again what could not be measured, and what must come before it; in one line.

    None where all was measured, and where no command is known that plans these trials under changed code: after a
    round, an extension, and where the plan does not name its source.
    """
    if study.source is None or study.rounds or study.extended or not any(map(_failed, study.records.values())):
        return []
    if study.is_of_words:
        command = shlex.join(without_run_options(study.command))
    elif study.source:
        command = study.typed("sweep", study.source, *study.overrides)
    else:
        command = called("sweep", study.results, *study.overrides, workspace=study.workspace, address=study.address)
    return [f"With its code corrected, this measures again, and trains only what the correction reaches: {command}"]


def _failed(record: Mapping[str, Any]) -> bool:
    return bool(record.get("summary", {}).get("not_measured"))


def load_study(where: Location | Path, known: Known | None = None, *, as_planned: bool = False) -> Study:
    """Read a study's folder; damaged results are among the missing ones.

    Args:
        where: the folder.
        known: the results that an earlier call has read, which are not read again; those of this call are added.
        as_planned: without trials that stand in for what a round has not replaced yet.

    Raises:
        StoreError: the folder or its plan does not exist, the plan is damaged, a newer version of memsweep wrote a
            result, or the storage cannot be read.
    """
    place = Location.at(where)
    store, plan = Store(place), read_plan(place)
    if plan is None:
        raise StoreError(no_plan(place))
    stored = store.identities()
    failures, rounds = store.failures(), stored_rounds(place, plan.rows.values())
    gone = stored.difference(plan.rows)
    new = unfinished(plan.rows, rounds[-1], {*stored, *failures}) if rounds and not as_planned else []
    last = rounds[-1].removed if new else ()
    chosen = [identity for identity in plan.rows if identity in stored]
    known = Known() if known is None else known
    faults = known.read(store, [*chosen, *(name for name in last if name in gone)])
    old = {name: known.records[name]["config"] for name in last if name in known.records}
    rows = shown_trials(plan.rows, new, old) if new and len(old) == len(last) else dict(plan.rows)
    whole = [identity for identity in rows if identity in known.records]
    removed = [name for one in rounds for name in one.removed if name in gone]
    return Study(
        name=plan.study,
        description=plan.description,
        planned=len(plan.rows),
        records={identity: _placed(known.records[identity], rows[identity]) for identity in whole},
        tables=known.tables(whole),
        missing=tuple(
            _missing(identity, config, faults.get(identity, ""), failures.get(identity))
            for identity, config in plan.rows.items()
            if identity not in known.records
        ),
        left_out=len(gone.difference(removed)),
        claims=plan.claims,
        protocol=plan.protocol,
        search=_search(place, plan) if plan.search is not None else None,
        **made_by(plan.provenance),
        rows={identity: known.shared(config) for identity, config in {**plan.rows, **rows}.items()},
        extended=frozenset(plan.extended),
        absent=known.absent(whole),
        location=place,
        workspace=workspace_of(plan.provenance, place),
        runs_page=_web_address(plan.provenance.get("runs_page")),
        rounds=rounds,
        replaced=_records(store, [name for name in removed if name not in rows]),
        standing_in=frozenset(rows).difference(plan.rows),
        waiting={name: known.records[name] for name in chosen if name not in rows and name in known.records},
    )


def _placed(record: Record, row: Mapping[str, Any]) -> Record:
    """A record with the data folder of the plan, which may have come to another machine since."""
    config, folder = record["config"], row["task"].get("folder")
    if folder == config["task"].get("folder"):
        return record
    return {**record, "config": {**config, "task": {**config["task"], "folder": folder}}}


def _records(store: Store, identities: Iterable[str]) -> dict[str, Record]:
    """The records of these trials, as far as they can be read."""
    found = {}
    for identity in identities:
        with suppress(StoreError):
            found[identity] = store.record(identity)
    return found


def _web_address(written: object) -> str:
    """An address as a page may link it; empty for anything else that a plan holds."""
    return str(written) if str(written).startswith(("http://", "https://")) else ""


def _search(place: Location, plan: StoredPlan) -> SearchHistory | None:
    from memsweep.search.history import read

    return read(place, plan)


def _missing(identity: str, config: Mapping[str, Any], fault: str, failure: Mapping[str, Any] | None) -> MissingRow:
    if fault:
        reason = "The stored result is damaged, and left out here. The command resume recomputes it."
        return MissingRow(identity, config, DAMAGED, reason, fault)
    if failure is None:
        return MissingRow(identity, config, "not run", "No attempt has ended yet. Run the same command again.", "")
    outcome = State(failure["outcome"])
    return MissingRow(identity, config, outcome, outcome.explanation, failure["traceback"], failure["error"])
