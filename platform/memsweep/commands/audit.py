"""The command that audits a module, a user's or a registered one, without training it."""

from __future__ import annotations

import argparse
import contextlib
import re
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

from memsweep import registry
from memsweep.commands import console
from memsweep.commands.module import SOURCE, is_required, model_fields, module_fields
from memsweep.commands.outputs import check_file, write_file
from memsweep.documents import Answer
from memsweep.errors import ConfigError, Exit, StorageError, did_you_mean, one_of

if TYPE_CHECKING:
    from torch import nn


def audit(args: argparse.Namespace) -> Answer:
    """Audits a module, and writes the page. The exit code is 1 where a fault was found, 3 where time ran out."""
    from memsweep.checks.finding import Status
    from memsweep.checks.run import audit as made_of
    from memsweep.checks.subject import Subject
    from memsweep.commands import console
    from memsweep.report.audit import About, audit_document, audit_page, audit_text

    page = _page(args)
    registry.look_in(Path(args.workspace))
    if ":" not in args.module and args.module not in registry.names(registry.MODEL):
        registry.discover(Path(args.workspace))  # a file of tasks, or a plugin, may register it
    fields = module_fields if ":" in args.module else model_fields
    given = fields(args.overrides, Path(args.workspace))
    build = _builder(args, given)
    build()  # a module that cannot be built is refused in a sentence before anything is measured
    tokens = args.tokens or given.get("tokens") is True
    own = ":" in args.module and args.weights is None
    other = _builder(argparse.Namespace(**{**vars(args), "seed": args.seed + 1}), given) if own else None
    subject = Subject(
        build, args.inputs, args.horizon, tokens=tokens, device=args.device, effort=args.effort, other=other
    )
    with _told() as told:
        result = made_of(subject, args.seconds, told)
    about = About(args.module, _settings(args, given, tokens))
    codes = {Status.FAULT: Exit.UNMET, Status.NOT_ENOUGH: Exit.LIMIT}
    text, code = audit_text(result, about), codes.get(result.status, Exit.DONE)
    if page:
        try:
            write_file(page, audit_page(result, about).encode())
            text += f"\npage: {console.shown(page)}"
        except StorageError as error:  # the findings are worth more than the page
            console.say_sentence(str(error), file=sys.stderr)
            code = code or Exit.BLOCKED
    return Answer(audit_document(result, about), code, text)


def _page(args: argparse.Namespace) -> Path | None:
    """Where the page goes, checked before anything is measured; None where ``--json`` stands without ``--page``."""
    name = args.page
    if not name and not args.json:
        name = f"audit-{re.sub(r'[^A-Za-z0-9_.-]+', '-', args.module)}.html"
    if not name:
        return None
    check_file(Path(name), "--page FILE")
    return Path(name)


@contextlib.contextmanager
def _told() -> Iterator[Callable[[str], None] | None]:
    """Shows the name of the check that runs in the last line of a terminal; gives None where there is no terminal."""
    if not sys.stderr.isatty():
        yield None
        return
    yield lambda check: print(f"\r\x1b[K{check} ...", end="", file=sys.stderr)
    print("\r\x1b[K", end="", file=sys.stderr)


def _settings(args: argparse.Namespace, given: dict[str, Any], tokens: bool) -> dict[str, Any]:
    """The settings under which the module was audited, as the page names them."""
    from memsweep.config.core.merge import leaves

    return {
        **({"width": args.width} if args.width is not None else {}),
        "horizon": args.horizon,
        "inputs": args.inputs,
        "outputs": args.outputs,
        **({"tokens": True} if tokens else {}),
        **({"effort": args.effort} if args.effort > 1 else {}),
        "seed": args.seed,
        **({"weights": args.weights} if args.weights else {}),
        **{path: value for key, inner in given.items() for path, value in leaves(inner, key)},
    }


def _builder(args: argparse.Namespace, given: dict[str, Any]) -> Callable[[], nn.Module]:
    """Makes the module, with the same weights at every call."""
    from memsweep.models.base import Signature

    signature = Signature(args.inputs, args.outputs, args.horizon)
    make = _of_user(args, given, signature) if ":" in args.module else _registered(args, given, signature)
    if args.weights is None:
        return make

    told = set[str]()

    def loaded() -> nn.Module:
        module = make()
        if (said := _load(module, Path(args.weights))) and said not in told:
            told.add(said)  # once, of all copies
            console.say_sentence(said, file=sys.stderr)
        return module

    return loaded


def _of_user(args: argparse.Namespace, given: dict[str, Any], signature: Any) -> Callable[[], nn.Module]:
    from memsweep.config.core.build import config_from
    from memsweep.models.module.config import ModuleConfig
    from memsweep.models.module.factory import resolve

    config = config_from(ModuleConfig, {"factory": args.module, **given}, SOURCE)
    factory, arguments = resolve(args.module), config.arguments.plain()
    name = config.names.width
    if args.width is None and name not in arguments and is_required(factory.make, name):
        raise ConfigError(
            [f"{args.module} needs the argument {name}: give it as --width N, such as --width 16"], SOURCE
        )
    return lambda: factory.build(signature, args.width, arguments, config.names, args.seed)


def _registered(args: argparse.Namespace, given: dict[str, Any], signature: Any) -> Callable[[], nn.Module]:
    from memsweep.config.core.build import config_from
    from memsweep.streams import Stream

    known = registry.names(registry.MODEL)
    if args.module not in known:
        raise ConfigError(
            [
                f"there is no model {args.module!r}.{did_you_mean(args.module, known)} Give a module of your own by "
                f"its import path, such as my_nets:MinGRU, or a registered model: {one_of(known)}."
            ],
            SOURCE,
        )
    if args.tokens:
        raise ConfigError(["--tokens is for modules of your own: registered models read numbers [B, T, I]"], SOURCE)
    model = registry.get(registry.MODEL, args.module)
    width = {} if args.width is None else {"width": args.width}
    config = config_from(model.Config, {**width, **given}, SOURCE)
    return lambda: model(config, signature, Stream(args.seed, "initial weights").generator())


def _load(module: nn.Module, file: Path) -> str:
    """Loads the weights under the module's names, or those deeper in a checkpoint; in words where those lay."""
    from memsweep.learning.state.found_weights import found_in
    from memsweep.learning.state.weights_file import WeightsFileError

    found = found_in(file, module.state_dict(keep_vars=True))
    try:
        _load_named(module, file)
        return ""
    except WeightsFileError:
        if found is None:
            raise
        module.load_state_dict(found.tensors, strict=False)  # all that are needed are there
        return f"weights: {found.said}"


def _load_named(module: nn.Module, file: Path) -> None:
    from memsweep.learning.state.found_weights import two_values
    from memsweep.learning.state.weights_file import WeightsFileError, other_kinds, read_weights
    from memsweep.models.module.model import under_names

    own = module.state_dict(keep_vars=True)
    state, sizes = under_names(own, read_weights(file)), ""
    try:
        problems = [*other_kinds(own, state), *two_values(own, state)][:3]
        if not problems:
            module.load_state_dict(state)
    except RuntimeError as error:  # names and shapes that are not the module's
        problems = [" ".join(str(error).split())[:300].rstrip(".")]
        sizes = " of the same sizes" if "size mismatch" in problems[0] else ""
    if problems:
        raise WeightsFileError(
            f"the weights in {file} cannot be loaded into the module: {'; '.join(problems)}. Give a safetensors file, "
            f"or one that torch.save(module.state_dict(), ...) wrote, of such a module{sizes}."
        )
