"""A search as Optuna studies in a storage of Optuna's, for optuna-dashboard and for Optuna's own tools.

The storage is never read for decisions: its content follows from the search's own log, and may be written again.
"""

from __future__ import annotations

import importlib.util
import json
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memsweep.config.schema.search import CHOICE, Domain
from memsweep.redaction import redacted, without_secrets
from memsweep.search.suggest import space as spaces
from memsweep.search.suggest.algorithms import quiet
from memsweep.search.suggestions import SuggestionRecord, SuggestionState

if TYPE_CHECKING:
    import optuna
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial, TrialState

JOURNAL = "journal://"
"""Prefix of the address of a journal file: ``journal:///home/me/search.log``."""
_TIMEOUT = 10
"""Seconds in which a database must answer."""


@dataclass(frozen=True)
class OptunaExport:
    """Writes one search to one Optuna study.

    Attributes:
        url: of the storage: ``sqlite:///search.db``, ``postgresql://...``, or ``journal:///path``.
        name: of the Optuna study: ``<study>/<the cell in words>``.
        identity: of the search. An Optuna study of this name that holds another search stays as it is; then the
            identity's first letters are added to this one's name.
        space: dotted path -> domain.
        objective: names of the objectives.
        modes: ``min`` or ``max`` for each.
        settled: whether suggestions keep their settings. Under population-based training they do not, and settings
            are written when a suggestion has ended.
    """

    url: str
    name: str
    identity: str
    space: Mapping[str, Domain]
    objective: Sequence[str]
    modes: Sequence[str]
    settled: bool = True

    def write(self, records: Sequence[SuggestionRecord]) -> str:
        """Bring the Optuna study to the present state of the search.

        Returns:
            Empty, or a warning: why the storage could not be written. An unavailable storage stops no search.
        """
        try:
            with _storage(self.url) as storage:
                self._write(storage, records)
        except Exception as error:  # drivers of databases raise exceptions of any kind
            first = without_secrets(str(error)).strip().partition("\n")[0]
            return (
                f"the search was not written to Optuna's storage {redacted(self.url)}: "
                f"{type(error).__name__}: {first}. The search goes on; the next round tries again."
            )
        return ""

    def _write(self, storage: optuna.storages.BaseStorage, records: Sequence[SuggestionRecord]) -> None:
        study = self._study(storage)
        study_id = storage.get_study_id_from_name(study.study_name)
        known = {trial.user_attrs.get("number"): trial for trial in study.get_trials(deepcopy=False)}
        for record in sorted(records, key=lambda one: one.suggestion.number):
            trial = known.get(record.suggestion.number)
            if trial is None or not trial.state.is_finished():
                self._update(storage, study_id, record, trial)
        winners = {str(one.rank): one.suggestion.number for one in records if one.rank}
        if winners and study.user_attrs.get("winners") != winners:
            study.set_user_attr("winners", winners)

    def _study(self, storage: optuna.storages.BaseStorage) -> optuna.Study:
        import optuna

        names = {summary.study_name: summary for summary in optuna.get_all_study_summaries(storage)}
        name = self.name
        if name in names and names[name].user_attrs.get("search") != self.identity:
            name = f"{name} {self.identity[:8]}"
        directions = ["minimize" if mode == "min" else "maximize" for mode in self.modes]
        study = optuna.create_study(storage=storage, study_name=name, directions=directions, load_if_exists=True)
        if study.user_attrs.get("search") != self.identity:
            study.set_metric_names(list(self.objective))
            study.set_user_attr("search", self.identity)
        return study

    def _update(
        self,
        storage: optuna.storages.BaseStorage,
        study_id: int,
        record: SuggestionRecord,
        trial: FrozenTrial | None,
    ) -> None:
        """Write what is new about a suggestion; if it is interrupted, the next call continues."""
        import optuna

        ended, values = record.state is not SuggestionState.RUNNING, record.suggestion.values
        if trial is None:
            given = values if self.settled or ended else {}
            template = optuna.trial.create_trial(
                state=optuna.trial.TrialState.RUNNING,
                params={path: shown(self.space[path], given[path]) for path in given},
                distributions={path: _distribution(self.space[path]) for path in given},
                user_attrs=_notes(record),
            )
            key = storage.create_new_trial(study_id, template_trial=template)
            trial = storage.get_trial(key)
        else:
            key = storage.get_trial_id_from_study_id_trial_number(study_id, trial.number)
        for name, value in _notes(record).items():
            if trial.user_attrs.get(name) != value:
                storage.set_trial_user_attr(key, name, value)
        for path in (values.keys() - trial.params.keys()) if ended else ():
            distribution = _distribution(self.space[path])
            inner = distribution.to_internal_repr(shown(self.space[path], values[path]))
            storage.set_trial_param(key, path, inner, distribution)
        objectives = record.values or ()
        if len(objectives) == 1 and math.isfinite(objectives[0]) and record.steps not in trial.intermediate_values:
            storage.set_trial_intermediate_value(key, record.steps, objectives[0])
        if ended:
            state = _state(record)
            complete = state is optuna.trial.TrialState.COMPLETE
            storage.set_trial_state_values(key, state, list(objectives) if complete else None)


def shown(domain: Domain, value: Any) -> Any:
    """A value as the dashboard shows it: choices that Optuna does not take, lists and mappings, are JSON texts."""
    if domain.kind != CHOICE:
        return spaces.inward(domain, value)
    value = domain.values[spaces.inward(domain, value)]
    return value if value is None or isinstance(value, bool | int | float | str) else json.dumps(value, sort_keys=True)


def _distribution(domain: Domain) -> BaseDistribution:
    from optuna.distributions import CategoricalDistribution

    if domain.kind == CHOICE:
        return CategoricalDistribution([shown(domain, value) for value in domain.values])
    return spaces.distribution(domain)


def _notes(record: SuggestionRecord) -> dict[str, Any]:
    identity = record.trials[-1].identity if record.trials else ""
    notes = {"number": record.suggestion.number, "identity": identity}
    return notes | {"steps": record.steps, "state": str(record.state)}


def _state(record: SuggestionRecord) -> TrialState:
    from optuna.trial import TrialState

    if record.state is SuggestionState.STOPPED:
        return TrialState.PRUNED
    finite = record.values is not None and all(map(math.isfinite, record.values))
    return TrialState.COMPLETE if record.state is SuggestionState.DONE and finite else TrialState.FAIL


@contextmanager
def _storage(url: str) -> Iterator[optuna.storages.BaseStorage]:
    """Optuna's storage at an address, closed afterwards."""
    import optuna
    from optuna.storages.journal import JournalFileBackend

    with quiet():
        if url.startswith(JOURNAL):
            yield optuna.storages.JournalStorage(JournalFileBackend(url.removeprefix(JOURNAL)))
            return
        waiting = "timeout" if url.startswith("sqlite") else "connect_timeout"
        storage = optuna.storages.RDBStorage(_driven(url), engine_kwargs={"connect_args": {waiting: _TIMEOUT}})
        try:
            yield storage
        finally:
            storage.remove_session()
            storage.engine.dispose()


def _driven(url: str) -> str:
    """The address with psycopg2 for PostgreSQL where psycopg, SQLAlchemy's default, is not installed."""
    plain = "postgresql://"
    if url.startswith(plain) and importlib.util.find_spec("psycopg") is None:
        return url.replace(plain, "postgresql+psycopg2://", 1)
    return url
