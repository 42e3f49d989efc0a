"""From a study file and the overrides of a command line to a checked SweepConfig."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from memsweep import registry
from memsweep.config.claims.sections import CLAIMS, study_claims
from memsweep.config.core.build import INVALID, build
from memsweep.config.core.merge import merged, put
from memsweep.config.core.problems import Problem, sentence, show
from memsweep.config.core.reflect import keys, shape
from memsweep.config.grid.expand import expand
from memsweep.config.grid.sharing import sharing_problems
from memsweep.config.load import study_files
from memsweep.config.load.hydra import read, resolve
from memsweep.config.load.overrides import GRID, REMOVED, SEARCH, Overrides, fix, leaves, parse
from memsweep.config.load.search_overrides import overlaid
from memsweep.config.load.words import MOST_VALUES, too_deep
from memsweep.config.schema import axes as grid_axes
from memsweep.config.schema.aliases import by_own_names
from memsweep.config.schema.protocols import MATCHED, PROTOCOL, for_models, laid_under, protocol_name
from memsweep.config.schema.trial import ResourcesConfig, SweepConfig, TrialConfig
from memsweep.config.search.checks import confirm_problems, search_problems
from memsweep.config.search.sections import CONFIRM, completed, read_confirm, read_search
from memsweep.errors import ConfigError, did_you_mean

_MOST_PROBLEMS, _LONGEST_PROBLEM, _MOST_LOOKED_AT = 30, 600, 5_000
TOP_LEVEL = ("name", PROTOCOL, *keys(TrialConfig), GRID, "resources", CLAIMS, SEARCH, CONFIRM)


def load_study(study: str, overrides: Sequence[str] = (), workspace: Path = Path()) -> SweepConfig:
    """The study with the overrides applied, every row of its grid checked.

    Args:
        study: a name in the workspace's search_spaces/, or the path of a YAML file.
        overrides: words in Hydra's grammar. ``training.steps=100`` sets a value, and where the grid sweeps that path
            the axis shrinks to it; ``model.width=2,4`` and ``grid.model.width=[2,4]`` make or replace an axis;
            ``~grid.task.horizon`` takes an axis out. ``search.trials=40`` and
            ``search.training.learning_rate={log_uniform:[1e-4,1e-2]}`` change the search, ``~search`` takes it out; a
            searched field that gets a value or an axis is searched no more.
        workspace: folder that holds search_spaces/ and tasks/.

    Raises:
        ConfigError: with everything that is wrong. Nothing has been written and no process started.
    """
    try:
        return _loaded(study_files.find(study, workspace), study, overrides, workspace)
    except ConfigError as error:
        raise ConfigError(_brief(error.problems), error.source[:_LONGEST_PROBLEM]) from error


def _brief(problems: Sequence[str]) -> list[str]:
    """The problems at a length that a person can read, whatever was quoted in them."""
    told = [text if len(text) <= _LONGEST_PROBLEM else f"{text[: _LONGEST_PROBLEM - 3]}..." for text in problems]
    more = len(told) - _MOST_PROBLEMS
    return [*told[:_MOST_PROBLEMS], f"{more:,} more problems."] if more > 0 else told


def _loaded(path: Path, study: str, overrides: Sequence[str], workspace: Path) -> SweepConfig:
    registry.discover(workspace)
    words = parse(overrides, path.parent)
    problems = words.problems
    try:
        _rename(words)
        written = by_own_names(_over_protocol(read(path, words.groups), words))
        search = overlaid(written.pop(SEARCH, None), words)
        axes = _axes(written.get(GRID), written, words)
        # once more: an interpolation may have brought another name along
        data = by_own_names(resolve({**_overridden(written, words), GRID: axes, SEARCH: search}, path))
    except ConfigError as error:
        raise ConfigError([*problems, *error.problems], error.source) from error
    sweep = _build(data, path.stem, problems)
    if sweep is None or problems:
        raise ConfigError(problems, f"study {study!r} ({path})")
    return SweepConfig(**sweep, description=study_files.description(path.read_text("utf-8")))


def _rename(words: Overrides) -> None:
    """Put parts' own names in the place of their aliases, so that an override meets the axis that it narrows."""
    words.values = [(at, by_own_names(value, at)) for at, value in words.values]
    words.axes = [(at, by_own_names(values, at)) for at, values in words.axes]
    words.search = [(at, value if value is REMOVED else by_own_names(value, at)) for at, value in words.search]


def _over_protocol(written: Mapping[str, Any], words: Overrides) -> dict[str, Any]:
    """The study over the protocol that it, or the command line, names."""
    stays = PROTOCOL not in words.removed
    return laid_under(written, dict(words.values).get(PROTOCOL, written.get(PROTOCOL) if stays else None))


def _overridden(written: Mapping[str, Any], words: Overrides) -> dict[str, Any]:
    """The base configuration, grid apart, under the overrides."""
    base = _under(written, words.values)
    for path in words.removed:
        _remove(base, path, words.problems)
    return base


def _under(written: Mapping[str, Any], values: Sequence[tuple[str, Any]]) -> dict[str, Any]:
    entry: dict[str, Any] = {}
    for path, value in values:
        put(entry, path.split("."), value)
    return merged(TrialConfig, {key: value for key, value in written.items() if key != GRID}, entry)


def _remove(base: dict[str, Any], path: str, problems: list[str]) -> None:
    *parents, last = path.split(".")
    node: Any = base
    for key in parents:
        node = node.get(key) if isinstance(node, dict) else None
    if not isinstance(node, dict) or last not in node:
        problems.append(f"the override '~{path}' takes out a field that the study does not set. Leave it out.")
    else:
        del node[last]


def _axes(grid: Any, written: Mapping[str, Any], words: Overrides) -> dict[str, Any]:
    """The axes as they are written in the file, under the overrides; not yet checked.

    Values that only an axis can carry are taken out of ``words.values``.
    """
    axes = grid_axes.flattened(grid, words.problems)
    for path in words.removed_axes:
        gone = [axis for axis in axes if not path or axis == path or axis.startswith(f"{path}.")]
        if not gone:
            hint = did_you_mean(path, axes)
            there = ", ".join(axes) or "no axes"
            words.problems.append(
                f"the override '~grid.{path}' takes out an axis that is not there.{hint} There: {there}."
            )
        for axis in gone:
            del axes[axis]
    fields, base = keys(TrialConfig), _under(written, words.values)
    carried: set[str] = set()
    for path, value in words.values:
        section = path.split(".")[0]
        config = shape(TrialConfig, fields[section], base.get(section, {})) if section in fields else None
        carried |= fix(axes, path, value, config)
    flat = [leaf for path, value in words.values for leaf in leaves(path, value)]
    words.values = [(path, value) for path, value in flat if path not in carried]
    axes.update(words.axes)
    return axes


def _unbounded(axes: Mapping[str, Any]) -> list[str]:
    """Why axes are not even looked at."""
    found = [sentence("grid", f"the axis {deep}") for path, values in axes.items() if (deep := too_deep(path, values))]
    if (count := _count(axes)) > MOST_VALUES:
        found.append(sentence("grid", f"has {count:,} values in its axes, more than {MOST_VALUES:,}. Take values out"))
    return found


def _count(axes: Mapping[str, Any]) -> int:
    return sum(len(values) for values in axes.values() if isinstance(values, list | tuple))


def _build(data: Mapping[str, Any], stem: str, problems: list[str]) -> dict[str, Any] | None:
    """The arguments of SweepConfig, or None with the reasons added to ``problems``."""
    for key in data:
        if key not in TOP_LEVEL:
            rule = f"a study has no section {key!r}.{did_you_mean(key, TOP_LEVEL)} Sections: {', '.join(TOP_LEVEL)}"
            problems.append(sentence("", rule))
    name = data.get("name", stem)
    if not isinstance(name, str) or not name.strip():
        problems.append(
            sentence("name", "must be text that is not empty, in quotes where it looks like a number", show(name))
        )
    elif not name.isprintable():
        problems.append(sentence("name", "must be one line of characters that can be shown", ascii(name[:60])))
    trial = {key: data[key] for key in keys(TrialConfig) if key in data}
    if unbounded := _unbounded(data[GRID]):
        problems += unbounded
        return None
    if problems and _count(data[GRID]) > _MOST_LOOKED_AT:
        return None  # it takes seconds, and the study is wrong in any case
    axes = grid_axes.valid(data[GRID], problems)
    search, confirm = read_search(data[SEARCH], problems), read_confirm(data.get(CONFIRM), problems)
    trial = completed(trial, axes, search.space) if search is not None else trial
    protocol = protocol_name(data.get(PROTOCOL, MATCHED), problems)
    rows = expand(trial, axes, problems, for_models=for_models(protocol))
    found: list[Problem] = []
    resources = build(ResourcesConfig, data.get("resources", {}), "resources", found)
    problems += map(str, found)
    if resources is not INVALID:
        problems += sharing_problems(resources, rows)
    if search is not None:
        problems += search_problems(search, rows, axes, trial, resources, name)
    if confirm is not None:
        problems += confirm_problems(confirm, search, rows, searches=data[SEARCH] is not None)
    claims = study_claims(data.get(CLAIMS), rows, axes, search, problems)
    if problems or resources is INVALID:
        return None
    return {
        "name": name,
        "rows": rows,
        "grid": axes,
        "resources": resources,
        "claims": claims,
        "protocol": protocol,
        "search": search,
        "confirm": confirm,
    }
