"""The command that audits a module, a user's or a registered one, without training it."""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import yaml  # type: ignore[import-untyped]

from memsweep import registry
from memsweep.errors import ConfigError, MemsweepError, did_you_mean, one_of

if TYPE_CHECKING:
    from torch import nn

_NAMES = ("inputs", "outputs", "horizon", "width")
_SOURCE = "the command line"


def audit(args: argparse.Namespace) -> int:
    """Audits a module; prints the findings, and writes the page. Returns 1 where a fault was found."""
    from memsweep.audit.finding import Status
    from memsweep.audit.run import audit as made_of
    from memsweep.audit.subject import Subject
    from memsweep.commands import console
    from memsweep.report.audit import About, audit_json, audit_page, audit_text

    registry.discover(Path(args.workspace))
    given = _values(args.overrides)
    build = _builder(args, given)
    build()  # a module that cannot be built is refused in a sentence before anything is measured
    subject = Subject(build, args.inputs, args.horizon, tokens=args.tokens, device=args.device)
    told: Callable[[str], None] | None = None
    if sys.stderr.isatty():
        told = lambda check: print(f"\r\x1b[K{check} ...", end="", file=sys.stderr)  # noqa: E731
    result = made_of(subject, args.seconds, told)
    if told:
        print("\r\x1b[K", end="", file=sys.stderr)
    settings = {
        **({"width": args.width} if args.width is not None else {}),
        "horizon": args.horizon,
        "inputs": args.inputs,
        "outputs": args.outputs,
        **({"tokens": True} if args.tokens else {}),
        "seed": args.seed,
        **({"weights": args.weights} if args.weights else {}),
        **given,
    }
    about = About(args.module, settings)
    page = args.page
    if args.json:
        print(audit_json(result, about))
    else:
        print(audit_text(result, about))
        page = page or f"audit-{re.sub(r'[^A-Za-z0-9_.-]+', '-', args.module)}.html"
    if page:
        _write(Path(page), audit_page(result, about))
        if not args.json:
            print(f"page: {console.shown(Path(page))}")
    return 1 if result.status is Status.FAULT else 0


def _write(page: Path, text: str) -> None:
    try:
        page.write_text(text, encoding="utf-8")
    except OSError as error:
        raise MemsweepError(f"the page {page} cannot be written: {error.strerror}. Give another: --page.") from error


def _values(words: Sequence[str]) -> dict[str, Any]:
    """``name=value`` words, values as YAML reads them."""
    values, problems = {}, []
    for word in words:
        name, equals, text = word.partition("=")
        if not equals or not name.isidentifier():
            problems.append(f"{word!r} is no argument: write name=value, for example layers=2")
            continue
        try:
            values[name] = yaml.safe_load(text)
        except yaml.YAMLError:
            problems.append(f"{word!r}: the value is not readable; put text with special characters in quotes")
    if problems:
        raise ConfigError(problems, _SOURCE)
    return values


def _builder(args: argparse.Namespace, given: dict[str, Any]) -> Callable[[], nn.Module]:
    """Makes the module, with the same weights at every call."""
    from memsweep.models.base import Signature

    signature = Signature(args.inputs, args.outputs, args.horizon)
    make = _of_user(args, given, signature) if ":" in args.module else _registered(args, given, signature)
    if args.weights is None:
        return make

    def loaded() -> nn.Module:
        module = make()
        _load(module, Path(args.weights))
        return module

    return loaded


def _of_user(args: argparse.Namespace, given: dict[str, Any], signature: Any) -> Callable[[], nn.Module]:
    from memsweep.models.module.factory import ArgumentNames, resolve

    factory = resolve(args.module)
    own = {name: given[key] for name in _NAMES if (key := f"{name}_argument") in given}
    names = ArgumentNames(**{name: None if value in (None, "none") else str(value) for name, value in own.items()})
    rest = {name: value for name, value in given.items() if name.removesuffix("_argument") not in own}
    return lambda: factory.build(signature, args.width, rest, names, args.seed)


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
            _SOURCE,
        )
    if args.tokens:
        raise ConfigError(["--tokens is for modules of your own: registered models read numbers [B, T, I]"], _SOURCE)
    model = registry.get(registry.MODEL, args.module)
    width = {} if args.width is None else {"width": args.width}
    config = config_from(model.Config, {**width, **given}, _SOURCE)
    return lambda: model(config, signature, Stream(args.seed, "initial weights").generator())


def _load(module: nn.Module, file: Path) -> None:
    from memsweep.learning.state.weights_file import WeightsFileError, read_weights

    try:
        module.load_state_dict(read_weights(file))
    except (WeightsFileError, RuntimeError) as error:
        raise MemsweepError(
            f"the weights in {file} cannot be loaded into the module: {' '.join(str(error).split())[:300]}. Give a "
            "safetensors file, or one that torch.save(module.state_dict(), ...) wrote, of a module of the same sizes."
        ) from error
