"""From a study file and the overrides of a command line to a checked SweepConfig."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from memsweep import registry
from memsweep.config.claims.comparisons import Cells
from memsweep.config.claims.sections import CLAIMS, study_claims
from memsweep.config.core.build import section
from memsweep.config.core.elsewhere import know_sections, nearest
from memsweep.config.core.merge import leaves
from memsweep.config.core.problems import lies_in, not_one_of, sentence, show
from memsweep.config.core.reflect import keys
from memsweep.config.grid.expand import expand
from memsweep.config.grid.first_plan import EARLIER, WIDTH, first_plans, is_said
from memsweep.config.load import study_files
from memsweep.config.load.code import code_problems
from memsweep.config.load.hydra import read, resolve
from memsweep.config.load.overrides import GRID, SEARCH, Overrides, parse
from memsweep.config.load.tree import study_tree
from memsweep.config.schema.axes import valid_axes
from memsweep.config.schema.protocols import MATCHED, PROTOCOL, for_models, for_trials, protocol_name
from memsweep.config.schema.search import ConfirmConfig, SearchConfig
from memsweep.config.schema.study import KEEP, DecideConfig, FirstPlan, ResourcesConfig, SweepConfig
from memsweep.config.schema.trial import TrialConfig
from memsweep.config.search.sections import CONFIRM, read_search
from memsweep.config.search.settings import confirm_problems, search_problems
from memsweep.errors import ConfigError, did_you_mean, listed
from memsweep.trust.gate import NONE, Trust, admit_study

_MOST_PROBLEMS, _LONGEST_PROBLEM = 30, 600
_RESOURCES, _KEEP, _DECIDE = "resources", "keep", "decide"
know_sections(
    {"": TrialConfig, _RESOURCES: ResourcesConfig, SEARCH: SearchConfig, CONFIRM: ConfirmConfig, _DECIDE: DecideConfig}
)
_OTHER_WIDTH = 48
"""Of a module that cannot have the widths that were found: a multiple of many numbers of heads and groups."""
_FLAGS = {"results": "DIR", "workspace": "DIR", "address": "ADDRESS", "ray": "", "inline": "", "trust": ""}
"""Flags of the commands that are easily taken for settings -> what stands behind them."""
TOP_LEVEL = ("name", PROTOCOL, *keys(TrialConfig), GRID, _RESOURCES, _KEEP, CLAIMS, SEARCH, CONFIRM, _DECIDE)


def load_study(
    study: str,
    overrides: Sequence[str] = (),
    workspace: Path = Path(),
    discover: Callable[[Path], Sequence[str] | None] = registry.discover,
    trust: Trust = NONE,
) -> SweepConfig:
    """The study with the overrides applied, every trial of its grid checked.

    Args:
        study: a built-in name, one in the workspace's search_spaces/, or the path of a YAML file.
        overrides: words in Hydra's grammar. ``training.steps=100`` sets a value, and an axis of that path shrinks to
            it; ``model.width=2,4`` and ``grid.model.width=[2,4]`` make or replace an axis; ``~grid.task.horizon``
            removes an axis. ``search.trials=40`` and ``search.training.learning_rate={log_uniform:[1e-4,1e-2]}``
            change the search, ``~search`` removes it; a searched field that gets a value or an axis is not searched.
        workspace: folder that may hold search_spaces/ and tasks/.
        discover: registers the parts of a workspace, and may say what it skipped (``memsweep.registry``). It imports
            torch, so it is called when the file and the overrides could be read: what is no YAML and no override is
            refused before.
        trust: the person's word for code that the file names.

    Raises:
        ConfigError: with everything that is wrong. Nothing has been written and no process started.
        TrustError: the file names code that needs the person's word. Nothing of it has been called.
    """
    path = study_files.find(study, workspace)
    changes = parse(overrides, path.parent, *study_files.included_from(path))
    source = f"study {study!r} ({path})"
    try:
        written = read(path, changes.groups)
    except ConfigError as error:
        raise _short_error([*changes.problems, *error.problems], error.source) from error
    if changes.problems:
        raise _short_error(changes.problems, source)
    if not written and not changes.edits:
        rule = "the file says nothing. A study names a task and a model at least. memsweep init writes one, and"
        raise ConfigError([f"{rule} memsweep list studies shows the built-in ones"], source)
    source += _without(discover(workspace))
    typed = [{edit.path: edit.value} for edit in changes.edits if not edit.removes]
    content = repr(written)

    def admit(data: Any) -> None:
        admit_study(data, content, path, typed, trust)

    return _checked(written, changes, path, source, study_files.description(path.read_text("utf-8")), admit)


def study_of(
    written: Mapping[str, Any],
    overrides: Sequence[str],
    workspace: Path,
    description: str,
    source: str = "the command line",
) -> SweepConfig:
    """A study without a file, that a command line or Python says; arguments and errors as of ``load_study``.

    Args:
        written: what the study's file would say, ``name`` among it.
        overrides: see ``load_study``.
        workspace: see ``load_study``.
        description: of the study.
        source: where the study is written, for errors.
    """
    source += _without(registry.discover(workspace))
    folder = workspace.resolve()
    return _checked(dict(written), parse(overrides, folder), folder / "command line", source, description)


def _without(skipped: Sequence[str] | None) -> str:
    """The end of the name of a study whose problems may follow from parts that were skipped."""
    named = [text.partition(" was skipped")[0] for text in skipped or ()]
    return f", read without what was skipped: {listed(named, 5)}" if named else ""


def _checked(
    written: dict[str, Any],
    changes: Overrides,
    path: Path,
    source: str,
    description: str,
    admit: Callable[[Any], None] | None = None,
) -> SweepConfig:
    """The study that a file says, with the overrides applied, every trial of its grid checked.

    Args:
        written, changes, path, source, description: the study, and where it comes from.
        admit: is called with the whole study before anything that it names is imported; None: a person typed all of it.
    """
    tree, problems = _resolved_tree(written, changes, path, source), changes.problems
    if admit is not None:
        admit(tree)
    problems += [
        f"a study has no section {key!r}.{_meant(key, tree[key])} Sections: {', '.join(TOP_LEVEL)}."
        for key in tree
        if key not in TOP_LEVEL
    ]
    name = study_name(tree.get("name", path.stem), problems)
    axes, search = valid_axes(tree[GRID], problems), read_search(tree[SEARCH], problems)
    retrained = tree.get(CONFIRM)
    confirm = section(ConfirmConfig, retrained, CONFIRM, problems) if retrained is not None else None
    protocol = protocol_name(tree.get(PROTOCOL, MATCHED), problems)
    if (kept := tree.get(_KEEP, KEEP[0])) not in KEEP:
        problems.append(str(not_one_of(_KEEP, kept, KEEP)))
    base = {key: tree[key] for key in keys(TrialConfig) if key in tree}
    plans, earlier, named = [(base, axes)], [(base, axes)], True
    if _DECIDE in tree:
        said = _said(written, changes, protocol)
        plans, earlier = first_plans(base, axes, said, problems), first_plans(base, axes, said, [], EARLIER)
        named = is_said(WIDTH, said, axes)
    (base, axes), *smaller = plans
    trials = expand(base, axes, problems, for_models=for_models(protocol))
    problems += (of_code := code_problems(trials))
    if of_code and not named:
        problems += _other_widths(trials)
    # what only the sections and the trials together show
    resources = section(ResourcesConfig, tree.get(_RESOURCES, {}), _RESOURCES, problems)
    decide = section(DecideConfig, tree.get(_DECIDE, {}), _DECIDE, problems)
    if resources is not None:
        problems += resources.sharing_problems(trials)
        problems += resources.rule_problems(trials, search.space if search is not None else ())
    if search is not None:
        problems += search_problems(search, trials, axes, base, resources)
    if confirm is not None:
        problems += confirm_problems(confirm, search, trials, searches=tree[SEARCH] is not None)
    claims = study_claims(tree.get(CLAIMS), Cells(trials, axes, search), problems)
    if problems or resources is None or decide is None:
        raise _short_error(problems, source)
    return SweepConfig(
        name=name,
        rows=trials,
        grid=axes,
        resources=resources,
        description=description,
        claims=claims,
        protocol=protocol,
        search=search,
        confirm=confirm,
        keep=kept,
        decide=decide,
        smaller=_first_plans(smaller, protocol),
        earlier=_first_plans([plan for plan in earlier if plan not in plans], protocol),
    )


def _first_plans(plans: Iterable[tuple[Mapping[str, Any], dict[str, Any]]], protocol: str) -> tuple[FirstPlan, ...]:
    expanded = ((expand(base, axes, [], for_models=for_models(protocol)), axes) for base, axes in plans)
    return tuple(FirstPlan(rows, axes) for rows, axes in expanded if rows)


def _resolved_tree(written: Mapping[str, Any], changes: Overrides, path: Path, source: str) -> dict[str, Any]:
    """Protocol, file and command line as one tree, every ``${...}`` replaced by what it names.

    Raises:
        ConfigError: it cannot be made, with what was wrong before.
    """
    try:
        return resolve(study_tree(written, changes), path)
    except ConfigError as error:
        raise _short_error([*changes.problems, *error.problems], error.source) from error
    except RecursionError as error:
        raise _short_error([*changes.problems, "the study is nested too deeply. Make it flatter."], source) from error


def _said(written: Mapping[str, Any], changes: Overrides, protocol: str) -> list[str]:
    """The paths of the fields that the protocol, the file and the command line set, and no default."""
    typed = [(edit.path, edit.value) for edit in changes.edits if not edit.removes]
    own = [(key, value) for key, value in (*for_trials(protocol).items(), *written.items()) if key != GRID]
    gone = [edit.place for edit in changes.edits if edit.removes]
    kept = [leaf for path, value in own for leaf, _ in leaves(value, path)]
    kept = [leaf for leaf in kept if not any(lies_in(leaf, path) for path in gone)]
    return [*kept, *(leaf for path, value in typed for leaf, _ in leaves(value, path))]


def _other_widths(trials: Sequence[TrialConfig]) -> list[str]:
    """The advice to name widths: the model's code fails at those that were found, and runs at another one."""
    rows: list[Any] = [row for row in trials if getattr(row.model, "width", 0)]
    if not rows or code_problems([replace(row, model=replace(row.model, width=_OTHER_WIDTH)) for row in rows]):
        return []
    tried = f"is left out, so {', '.join(map(str, sorted({row.model.width for row in rows})))} were tried"
    return [sentence(WIDTH, f"{tried}. The model runs at others: name them ({WIDTH}=16,32,48,64)")]


def _meant(key: str, value: Any) -> str:
    """A sentence on the section, field or flag that a key outside of all sections may have meant."""
    if key in _FLAGS:
        return f" It is a flag: --{key} {_FLAGS[key]}".rstrip() + "."
    of_section = did_you_mean(key, TOP_LEVEL)
    return of_section if isinstance(value, Mapping) and of_section else nearest(key) or of_section


def study_name(name: Any, problems: list[str]) -> str:
    """The name of a new study; why it can be none is added to ``problems``."""
    if not isinstance(name, str) or not name.strip():
        rule = "must be text that is not empty, in quotes where it looks like a number"
        problems.append(sentence("name", rule, show(name)))
    elif not name.isprintable():
        rule = "must be one line of characters that can be shown"
        problems.append(sentence("name", rule, ascii(name[:60])))
    elif name.startswith("-"):
        rule = "must not begin with a hyphen, which a command line takes for an option; inside of it one is allowed"
        problems.append(sentence("name", rule, show(name)))
    return str(name)


def _short_error(problems: Sequence[str], source: str) -> ConfigError:
    """An error of a length that a person can read, whatever was quoted in it."""
    lines = [text if len(text) <= _LONGEST_PROBLEM else f"{text[: _LONGEST_PROBLEM - 3]}..." for text in problems]
    more = len(lines) - _MOST_PROBLEMS
    return ConfigError(
        [*lines[:_MOST_PROBLEMS], f"{more:,} more problems."] if more > 0 else lines, source[:_LONGEST_PROBLEM]
    )
