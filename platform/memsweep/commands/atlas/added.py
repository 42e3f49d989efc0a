"""Rows of others: their files are read, and each trial's identity is made again from what its file says."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memsweep.commands.atlas.row_file import RowFile, TrialOf, cells_of, content_of, differing, parameters_of, read_row
from memsweep.commands.atlas.rows import TIMES, AtlasRow, Standing
from memsweep.config.schema.canonical import flatten, to_dict, trial_from_dict
from memsweep.errors import ConfigError, ModuleError, TrustError
from memsweep.sweep.planning.fingerprint import named_fingerprint
from memsweep.sweep.planning.identity import Arithmetic, identity_from, identity_of, training_code
from memsweep.trust.calls import calls_of
from memsweep.trust.gate import Trust, admit_plan

if TYPE_CHECKING:
    from memsweep.config.schema.study import SweepConfig
    from memsweep.config.schema.trial import TrialConfig

BUDGET = 5_000
"""Parameters that a model of the atlas has at most."""
_FREE = ("model.unit", "model.width", "model.features", "training.seeds", "training.first_seed", "training.data_seed")
"""Settings that each layer has of its own."""
_MODEL = "residual_stack"
_RATE = "training.learning_rate"
_MOST = 4  # settings that are named
_ABSENT = "not checked: its code is not here. Put the author's file into this folder, then add the row again"
_OTHER = "not checked: it was computed by the code of another version of memsweep"
_EDITED = "not checked: the author's file is here, and is another one than that which was trained"
_NOT_TRUSTED = "not checked: its code has not been run. Read it, then add the row with --trust"
_SOURCE = "the rows to add"


@dataclass(frozen=True)
class Atlas:
    """The columns of the atlas, and its study for one layer: what rows of others are held against."""

    columns: Sequence[str]
    protocol: SweepConfig

    def added(self, files: Sequence[Path], trust: Trust) -> dict[bytes, AtlasRow]:
        """The rows of these files, each with what its check gave: content -> row.

        Args:
            files: as ``--export`` wrote them.
            trust: the person's word for the code that the files name.

        Raises:
            ConfigError: with everything that is wrong in all files.
        """
        rows, problems = dict[bytes, AtlasRow](), list[str]()
        for path in files:
            try:
                content = content_of(path)
                rows[content] = self.row(content, str(path), trust)
            except ValueError as error:
                problems.append(f"{path}: {error}.")
            except ConfigError as error:
                problems += error.problems
        if problems:
            raise ConfigError(problems, _SOURCE)
        return rows

    def row(self, content: bytes, where: str, trust: Trust) -> AtlasRow:
        """The row of a file.

        Raises:
            ConfigError: with everything that is wrong in it.
        """
        try:
            row = _Read.of(read_row(content))
            wrong = row.problems(self.columns)
            standing = Standing("") if wrong else row.standing(trust)
        except ValueError as error:
            wrong = [f"{error}"]
        if wrong:
            raise ConfigError([f"{where}: {text}." for text in wrong], _SOURCE)
        changed = tuple(dict.fromkeys([*row.file["overrides"], *row.changed(self.protocol)]))
        cells = cells_of(row.file["trials"], self.columns)
        return AtlasRow(row.file["layer"], cells, replace(standing, file=where), changed)


@dataclass(frozen=True)
class _Read:
    """A file, with the configurations of its trials; none where this version of memsweep cannot read them."""

    file: RowFile
    configs: tuple[TrialConfig, ...]

    @classmethod
    def of(cls, file: RowFile) -> _Read:
        try:
            return cls(file, tuple(trial_from_dict(trial["config"]) for trial in file["trials"]))
        except ConfigError:
            return cls(file, ())

    def problems(self, columns: Sequence[str]) -> list[str]:
        """Everything in the file that does not agree with the rest of it, a sentence each without a full stop."""
        trials = self.file["trials"]
        wrong = [] if trials else ["it has no trials"]
        if len({trial["identity"] for trial in trials}) < len(trials):
            wrong.append("it has a trial twice")
        for trial in trials:
            wrong += [
                f"trial {trial['identity'][:40]}: {text}" for text in _problems(trial, self.file["layer"], columns)
            ]
        for trial, config in zip(trials, self.configs, strict=False):
            told = identity_from(config, trial["identity_of"], trial["training_code"])
            if told != trial["identity"]:
                wrong.append(
                    f"trial {trial['identity'][:40]}: its identity does not follow from its configuration and code, "
                    f"which give {told}. One of them was changed: export the row again"
                )
        if not wrong and (names := differing(self.file["cells"], cells_of(trials, columns))):
            wrong.append(f"its figures do not follow from the values of its trials: {', '.join(names[:_MOST])}")
        return wrong

    def standing(self, trust: Trust) -> Standing:
        """How far the row could be checked here.

        Raises:
            ValueError: what it says of its models is not so.
        """
        if not self.configs:
            return Standing(_OTHER)
        calls = calls_of([trial["config"] for trial in self.file["trials"]])
        try:
            admit_plan([trial["config"] for trial in self.file["trials"]], self._study, "the file of a row", trust)
        except TrustError:
            absent = all(call.shown.endswith("(no file here)") for call in calls.values())
            return Standing(_ABSENT if absent else _NOT_TRUSTED)
        try:
            return self._of_code()
        except ModuleError as error:
            return Standing(f"{_ABSENT} ({error})")

    @property
    def _study(self) -> str:
        return f"the row of {self.file['layer']}"

    def _of_code(self) -> Standing:
        others = set[str]()
        for trial, config in zip(self.file["trials"], self.configs, strict=True):
            told = trial["identity_of"]
            arithmetic = Arithmetic(told["device"], told["shards"])
            if named_fingerprint(config) != trial["layer_code"]:
                return Standing(_EDITED)
            here = identity_of(config, arithmetic)
            if here["code"] != told["code"] or training_code(config, arithmetic) != trial["training_code"]:
                return Standing(_OTHER)
            if (count := parameters_of(config)) != trial["parameters"]:
                raise ValueError(f"trial {trial['identity']} has {count:,} parameters, and the file says others")
            others |= {
                f"{name} {version}"
                for name, version in told["versions"].items()
                if version != here["versions"].get(name)
            }
        note = f" (computed with {', '.join(sorted(others))})" if others else ""
        return Standing(f"checked: each identity follows from configuration and code{note}", is_checked=True)

    def changed(self, protocol: SweepConfig) -> list[str]:
        """Settings of the trials that are not the protocol's, as ``path=value``: the author's word is not needed."""
        known = {row.task.name: flatten(to_dict(row)) for row in protocol.rows}
        rates = protocol.search.space[_RATE].values if protocol.search else ()
        found = [
            text
            for trial in self.file["trials"]
            for text in _changed(flatten(trial["config"]), known[trial["config"]["task"]["name"]], rates)
        ]
        found += [
            f"{trial['parameters']:,} parameters" for trial in self.file["trials"] if trial["parameters"] > BUDGET
        ]
        return found


def _problems(trial: TrialOf, layer: str, columns: Sequence[str]) -> Iterator[str]:
    """Says what is wrong with a trial of a row, without reading any code."""
    parts = [trial["config"].get(name) for name in ("task", "model", "training")]
    task, model, training = (part if isinstance(part, Mapping) else {} for part in parts)
    tasks = [name for name in columns if not name.endswith(TIMES)]
    if task.get("name") not in tasks:
        yield f"its task is {task.get('name')!r}, and the atlas has {', '.join(tasks)}"
    named = sorted({call.target for call in calls_of(trial["config"]).values()})
    if model.get("name") != _MODEL or named != [layer]:
        yield f"its model must be a {_MODEL} of {layer} and call nothing else; it calls {', '.join(named) or 'nothing'}"
    if training.get("weights"):
        yield "it begins with stored weights, which no row of the atlas does"
    for metric, values in trial["values"].items():
        if len(values) != training.get("seeds"):
            yield f"{metric} has {len(values)} values for {training.get('seeds')} seeds"
        if not all(value is None or 0 <= value <= 1 for value in values):
            yield f"{metric} has a value outside of 0 to 1"


def _changed(own: Mapping[str, Any], usual: Mapping[str, Any], rates: Sequence[Any]) -> Iterator[str]:
    for path in {**usual, **own}:
        if path == _RATE:
            if own.get(path) not in rates:
                yield f"{path}={own.get(path)}"
        elif not path.startswith(_FREE) and own.get(path) != usual.get(path):
            yield f"{path}={own.get(path)}"
