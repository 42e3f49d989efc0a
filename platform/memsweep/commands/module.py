"""``memsweep describe my_nets:MinGRU``: a user's module, its parameters, their roles, and what running it shows."""

from __future__ import annotations

import argparse
import math
from collections.abc import Sequence
from typing import Any

import yaml  # type: ignore[import-untyped]

from memsweep.errors import ConfigError

_SOURCE = "the command line"


def describe_module(args: argparse.Namespace) -> str:
    """The table of parameters and roles of ``args.name``, and the findings of the checks before a study.

    Raises:
        ConfigError: a word is no field of the model.
        ModuleError: the module cannot be built or run.
    """
    from memsweep.config.core.build import config_from
    from memsweep.models.base import Signature
    from memsweep.models.module.anatomy import anatomy, findings
    from memsweep.models.module.config import ModuleConfig
    from memsweep.models.module.roles import table

    fields = {"factory": args.name, "width": args.width, **_fields(args.overrides)}
    config = config_from(ModuleConfig, fields, _SOURCE)
    signature = Signature(args.inputs, args.outputs, args.horizon)
    about, found = anatomy(config, signature), findings(config, signature)
    count = sum(math.prod(each.shape) for each in about.tensors)
    guessed = sum(each.guessed for each in about.tensors)
    lines = [
        f"{args.name}: {count:,} numbers in {len(about.tensors)} tensors (inputs {args.inputs}, outputs "
        f"{args.outputs}, horizon {args.horizon}, width {args.width})",
        "",
        *table(list(about.tensors)),
        "",
    ]
    if guessed:
        lines.append(
            f"{guessed} of the roles are guessed. The ball recurrent moves what is recurrent, the ball weights all but "
            'the biases. Correct a role in the study, model.roles.recurrent: ["PATTERN"].'
        )
    lines += [f"{text}." for text in (*found.refusals, *found.notes)]
    return "\n".join(lines).rstrip()


def _fields(words: Sequence[str]) -> dict[str, Any]:
    """``arguments.layers=2`` words as nested fields of the model; values as YAML reads them."""
    from memsweep.config.core.merge import put

    fields: dict[str, Any] = {}
    for word in words:
        path, equals, text = word.removeprefix("model.").partition("=")
        try:
            value = yaml.safe_load(text)
        except yaml.YAMLError:
            equals = ""
        if not equals or not path:
            raise ConfigError(
                [f"{word!r} is no field of the model: write FIELD=VALUE, such as arguments.layers=2"], _SOURCE
            )
        put(fields, path.split("."), value)
    return fields
