"""A search as Optuna studies in a storage of Optuna's, for optuna-dashboard and for Optuna's own tools.

The storage shows the search and decides nothing: what is written follows from the search's own table, may be written
again at any time, and is never read by it.
"""

from __future__ import annotations

import importlib.util
import json
import math
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from memsweep.config.schema.search import CHOICE, Domain
from memsweep.redaction import redacted, without_secrets
from memsweep.search.suggest import space as spaces
from memsweep.search.suggestions import SuggestionRecord, SuggestionState

if TYPE_CHECKING:
    import optuna
    from optuna.distributions import BaseDistribution
    from optuna.trial import FrozenTrial, TrialState

JOURNAL = "journal://"
"""Prefix of the address of a journal file: ``journal:///home/me/search.log``."""
_PATIENCE = 10
"""Seconds that a database has to answer."""


@dataclass(frozen=True)
class Mirror:
    """One search in one Optuna study.

    Attributes:
        url: of the storage: ``sqlite:///search.db``, ``postgresql://...``, or ``journal:///path``.
        name: of the Optuna study: ``<study>/<the cell in words>``.
        identity: of the search. An Optuna study of this name that shows another search stays as it is; this one's name
            then gets the identity's first letters behind it.
        space: dotted path -> domain.
        objective: names of the objectives.
        modes: ``min`` or ``max`` for each.
        settled: whether suggestions keep their settings; under population-based training they do not, and are written
            when they have ended.
    """

    url: str
    name: str
    identity: str
    space: Mapping[str, Domain]
    objective: Sequence[str]
    modes: Sequence[str]
    settled: bool = True

    def write(self, members: Sequence[SuggestionRecord]) -> str:
        """Bring the Optuna study to where the search is.

        Returns:
            Empty, or a warning: what kept the storage from being written. A mirror that is away stops no search.
        """
        try:
            with _storage(self.url) as storage:
                self._write(storage, members)
        except Exception as error:  # drivers of databases raise what they like
            first = without_secrets(str(error)).strip().partition("\n")[0]
            return (
                f"the search was not written to Optuna's storage {redacted(self.url)}: "
                f"{type(error).__name__}: {first}. The search goes on; the next round tries again."
            )
        return ""

    def _write(self, storage: optuna.storages.BaseStorage, members: Sequence[SuggestionRecord]) -> None:
        study = self._study(storage)
        known = {trial.user_attrs.get("number"): trial for trial in study.get_trials(deepcopy=False)}
        for member in sorted(members, key=lambda one: one.suggestion.number):
            trial = known.get(member.suggestion.number)
            if trial is None or not trial.state.is_finished():
                self._bring(storage, study, member, trial)
        winners = {str(one.rank): one.suggestion.number for one in members if one.rank}
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

    def _bring(
        self,
        storage: optuna.storages.BaseStorage,
        study: optuna.Study,
        member: SuggestionRecord,
        trial: FrozenTrial | None,
    ) -> None:
        """Write what is new about a member; interrupted anywhere, the next call goes on from there."""
        import optuna

        ended = member.state is not SuggestionState.RUNNING
        if trial is None:
            values = member.suggestion.values if self.settled or ended else {}
            template = optuna.trial.create_trial(
                state=optuna.trial.TrialState.RUNNING,
                params={path: shown(self.space[path], values[path]) for path in values},
                distributions={path: _distribution(self.space[path]) for path in values},
                user_attrs=_notes(member),
            )
            number = storage.create_new_trial(study._study_id, template_trial=template)
            trial = storage.get_trial(number)
        key = trial._trial_id
        for name, value in _notes(member).items():
            if trial.user_attrs.get(name) != value:
                storage.set_trial_user_attr(key, name, value)
        if ended:
            for path in member.suggestion.values.keys() - trial.params.keys():
                domain = self.space[path]
                inner = _distribution(domain).to_internal_repr(shown(domain, member.suggestion.values[path]))
                storage.set_trial_param(key, path, inner, _distribution(domain))
        values_now = member.values
        one = values_now[0] if values_now is not None and len(values_now) == 1 else math.nan
        if math.isfinite(one) and member.steps not in trial.intermediate_values:
            storage.set_trial_intermediate_value(key, member.steps, one)
        if ended:
            state = _state(member)
            complete = state is optuna.trial.TrialState.COMPLETE
            storage.set_trial_state_values(key, state, list(values_now or ()) if complete else None)


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


def _notes(member: SuggestionRecord) -> dict[str, Any]:
    identity = member.trials[-1].identity if member.trials else ""
    notes = {"number": member.suggestion.number, "identity": identity}
    return notes | {"steps": member.steps, "state": str(member.state)}


def _state(member: SuggestionRecord) -> TrialState:
    from optuna.trial import TrialState

    if member.state is SuggestionState.STOPPED:
        return TrialState.PRUNED
    finite = member.values is not None and all(map(math.isfinite, member.values))
    return TrialState.COMPLETE if member.state is SuggestionState.DONE and finite else TrialState.FAIL


@contextmanager
def _storage(url: str) -> Iterator[optuna.storages.BaseStorage]:
    """Optuna's storage at an address, for a moment."""
    import optuna
    from optuna.storages.journal import JournalFileBackend

    before = optuna.logging.get_verbosity()
    optuna.logging.set_verbosity(optuna.logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", category=optuna.exceptions.ExperimentalWarning)
            if url.startswith(JOURNAL):
                yield optuna.storages.JournalStorage(JournalFileBackend(url.removeprefix(JOURNAL)))
                return
            waiting = "timeout" if url.startswith("sqlite") else "connect_timeout"
            storage = optuna.storages.RDBStorage(_driven(url), engine_kwargs={"connect_args": {waiting: _PATIENCE}})
            try:
                yield storage
            finally:
                storage.remove_session()
                storage.engine.dispose()
    finally:
        optuna.logging.set_verbosity(before)


def _driven(url: str) -> str:
    """SQLAlchemy takes psycopg for PostgreSQL unless told otherwise; who has psycopg2 alone means that."""
    plain = "postgresql://"
    if url.startswith(plain) and importlib.util.find_spec("psycopg") is None:
        return url.replace(plain, "postgresql+psycopg2://", 1)
    return url
