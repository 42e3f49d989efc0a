"""Verdicts while a sweep runs: one line as soon as the last trial of a condition is there."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any

from memsweep.sweep.store.filesystem import at_once

if TYPE_CHECKING:
    import pandas as pd

    from memsweep.config.schema.trial import TrialConfig

Key = tuple[str, ...]
Read = Callable[[str, Sequence[str]], "Mapping[str, pd.DataFrame]"]

_NEEDED = ("curves", "replicas")


class LiveVerdicts:
    """Notes what has finished and judges a condition when it is complete.

    Of a search, only the retrained winners are judged: those trials are given, once they are known.

    Args:
        trials: identity and config of every trial that verdicts are made from.
        read: some stored tables of a result (``Store.tables``). With it nothing but names is kept until a condition is
            complete; without it the tables that were given are, which for a large study is all of them.
        searched: dotted paths of what was searched, where the trials are the winners of a search: neither these
            fields nor fresh seeds tell conditions apart.
    """

    def __init__(
        self, trials: Iterable[tuple[str, TrialConfig]], read: Read | None = None, searched: Collection[str] = ()
    ) -> None:
        from memsweep.config.schema.canonical import to_dict
        from memsweep.report.naming.labels import Labels
        from memsweep.report.read.settings import any_nonlinear

        listed = dict(trials)
        configs = {identity: to_dict(config) for identity, config in listed.items()}
        self._read = read
        self._group: dict[str, Key] = {}
        self._waiting: dict[Key, set[str]] = {}
        named: dict[Key, Mapping[str, Any]] = {}
        for identity, condition in _conditions(listed, configs, searched).items():
            group = tuple(map(repr, condition.values()))
            self._group[identity] = group
            self._waiting.setdefault(group, set()).add(identity)
            named.setdefault(group, condition)
        labels = Labels(list(named.values()))
        self._conditions = named
        self._nonlinear = {self._group[identity] for identity, config in configs.items() if any_nonlinear([config])}
        self._names = {
            group: f"{labels.memory(condition)} {labels.machine(condition)}" for group, condition in named.items()
        }
        self._members: dict[Key, list[str]] = {}
        self._given: dict[str, Mapping[str, pd.DataFrame]] = {}

    def add(self, identity: str, tables: Mapping[str, pd.DataFrame] | None = None) -> list[str]:
        """Add one result.

        Args:
            identity: whose.
            tables: its ``curves`` and ``replicas``; needed where ``read`` was not given.

        Returns:
            A line per ball when this was the last trial of its condition, else nothing; nothing, too, for a trial
            that no verdict is made from, such as a suggestion of a search.
        """
        group = self._group.get(identity)
        if group is None or identity not in self._waiting[group]:
            return []
        self._waiting[group].remove(identity)
        self._members.setdefault(group, []).append(identity)
        if self._read is None and tables is not None:
            self._given[identity] = {name: tables[name] for name in _NEEDED}
        if self._waiting[group]:
            return []
        members, read = self._members.pop(group), self._read
        if read is None:
            return self._judge(group, [self._given.pop(member) for member in members])
        return self._judge(group, at_once(lambda member: read(member, _NEEDED), members))

    def _judge(self, group: Key, results: list[Mapping[str, pd.DataFrame]]) -> list[str]:
        import pandas as pd

        from memsweep.report.analysis.findings import needs_verdict
        from memsweep.stability.verdict.rule import judge

        curves, replicas = (pd.concat([tables[name] for tables in results]) for name in _NEEDED)
        curves = curves.dropna(subset=["width", "horizon"]) if not curves.empty else curves
        if curves.empty:  # no perturbation was measured
            return []
        if not needs_verdict(self._conditions[group], curves):
            return []
        lines = []
        for ball, part in curves.groupby("ball", sort=False):
            judgement = judge(part, replicas, nonlinear=group in self._nonlinear)
            slope = f"radius slope {judgement.slope_horizon} in horizon"
            lines.append(f"{self._names[group]}, {ball} weights: {judgement.verdict} ({slope})")
        return lines


def _conditions(
    trials: Mapping[str, TrialConfig], configs: Mapping[str, Mapping[str, Any]], searched: Collection[str]
) -> Mapping[str, Mapping[str, Any]]:
    """identity -> the condition that the report will put this trial into: column -> value."""
    import pandas as pd

    from memsweep.report.naming.conditions import OF_A_SEARCH, find_grouping

    records = {identity: {"config": config} for identity, config in configs.items()}
    replicas = [
        {"identity": identity, "seed": config.training.first_seed + index}
        | {"width": getattr(config.model, "width", None), "horizon": getattr(config.task, "horizon", None)}
        for identity, config in trials.items()
        for index in range(config.training.seeds)
    ]
    ignored = {*searched, *OF_A_SEARCH} if searched else ()
    return find_grouping(records, pd.DataFrame(replicas), ignored).conditions
