"""A user's module on the command line: its fields as a study writes them, and ``memsweep describe my_nets:MinGRU``."""

from __future__ import annotations

import argparse
import inspect
import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memsweep.config.load.foreign import users_faults
from memsweep.documents import Answer
from memsweep.documents.keys.parts import DescribedItem
from memsweep.errors import ConfigError, Exit, did_you_mean, one_of

if TYPE_CHECKING:
    from memsweep.models.module.roles import Described

SOURCE = "the command line"


@users_faults()
def describe_module(args: argparse.Namespace) -> Answer:
    """The parameters and roles of ``args.name``, and the findings of the checks before a study.

    Raises:
        ConfigError: a word is no field of the model.
        ModuleError: the module cannot be built or run.
    """
    from memsweep.config.core.build import config_from
    from memsweep.models.base import Signature
    from memsweep.models.module.anatomy import anatomy, build_module, findings
    from memsweep.models.module.config import EMBEDDING, ModuleConfig
    from memsweep.models.module.influence import carried_over_time, taken_for_less
    from memsweep.reference.describe import wrapped

    given = module_fields(args.overrides, args.workspace)
    config = config_from(ModuleConfig, {"factory": args.name, "width": args.width, **given}, SOURCE)
    symbols = args.inputs - EMBEDDING if config.tokens else args.inputs  # --inputs is what the module gets
    signature = Signature(symbols, args.outputs, args.horizon)
    about, found = anatomy(config, signature), findings(config, signature)
    growth = {} if found.refusals else carried_over_time(config, signature, build_module)
    item: DescribedItem = {
        "kind": "module",
        "meaning": "",
        "file": None,
        "fields": [],
        "tensors": [
            {
                "name": each.name,
                "shape": list(each.shape),
                "role": str(each.role.part.value),
                "reason": each.reason,
                "guessed": each.guessed,
                "frozen": each.frozen,
                "growth": growth.get(each.name),
            }
            for each in about.tensors
        ],
        "refusals": list(found.refusals),
        "notes": [*found.notes, *_on_growth(taken_for_less(about.tensors, growth))],
    }
    count = sum(math.prod(each["shape"]) for each in item["tensors"])
    guessed = sum(each["guessed"] for each in item["tensors"])
    size = f"inputs {args.inputs}, outputs {args.outputs}, horizon {args.horizon}, width {args.width}"
    lines = [
        wrapped(f"{args.name}: {count:,} numbers in {len(item['tensors'])} tensors ({size})"),
        "",
        *(wrapped(line, " " * 4) for line in _table(about.tensors, growth)),
        "",
    ]
    if guessed:
        guesses = (
            f"{guessed} of the roles {'is' if guessed == 1 else 'are'} guessed. The ball recurrent moves what is "
            "recurrent, the ball weights all but the biases. Correct a role in the study, model.roles.recurrent: "
            '["PATTERN"].'
        )
        lines.append(wrapped(guesses))
    lines += [wrapped(f"{text}.") for text in (*item["refusals"], *item["notes"])]
    code = Exit.UNMET if found.refusals else Exit.DONE
    return Answer({"name": args.name, "described": [item]}, code, "\n".join(lines).rstrip())


def _table(tensors: Sequence[Described], growth: Mapping[str, float]) -> Iterator[str]:
    """The table of parameters and roles, with the growth of each behind its reason."""
    from memsweep.models.module.roles import table

    heading, *lines = table(list(tensors))
    yield heading
    for each, line in zip(tensors, lines, strict=True):
        yield f"{line}; growth {growth[each.name]:.1f}" if each.name in growth else line


def _on_growth(names: Sequence[str]) -> list[str]:
    """Where the influence of what reads the inputs grows, and what to write in the study."""
    patterns = ", ".join(f'"{name}"' for name in names)
    if not names:
        return []
    return [
        f"the effect of {', '.join(names)} grows with the lag (growth): it is carried over time. Where that sets how "
        f"the model forgets, write model.roles.recurrent: [{patterns}]"
    ]


def module_fields(words: Sequence[str], workspace: Path) -> dict[str, Any]:
    """``model_fields`` of a module of one's own.

    Raises:
        ConfigError: as of ``model_fields``; or a word names no field.
    """
    from memsweep.config.core.reflect import keys
    from memsweep.models.module.config import ModuleConfig

    fields, known = model_fields(words, workspace), keys(ModuleConfig)
    if wrong := [key for key in fields if key not in known]:
        raise ConfigError(
            [
                f"{key}: a module of your own has no field {key!r}.{did_you_mean(key, known)} An argument of the "
                f"callable is written arguments.{key}=...; fields: {one_of(known)}"
                for key in wrong
            ],
            SOURCE,
        )
    return fields


def model_fields(words: Sequence[str], workspace: Path) -> dict[str, Any]:
    """``arguments.layers=2`` words as nested fields of the section model, as a study and its overrides write them.

    Raises:
        ConfigError: a word sets no single value.
    """
    from memsweep.config.core.merge import nested
    from memsweep.config.load.overrides import FIELD, parse

    changes = parse(words, workspace.resolve())
    more = [edit.place for edit in changes.edits if edit.meaning != FIELD or edit.removes]
    problems = changes.problems + [
        f"{path}: one value is expected. Write FIELD=VALUE, such as arguments.layers=2"
        for path in [*more, *changes.groups]
    ]
    if problems:
        raise ConfigError(problems, SOURCE)
    return nested((path.removeprefix("model."), value) for path, value in changes.values)


def is_required(make: Callable[..., object], name: str | None) -> bool:
    """Whether a callable has an argument of this name and no default for it; no where it has no signature."""
    try:
        found = inspect.signature(make).parameters.get(name or "")
    except (TypeError, ValueError):
        return False
    return found is not None and found.default is inspect.Parameter.empty
