"""The arguments of a layer of others: what it calls its sizes, found from signatures alone."""

from __future__ import annotations

import inspect
import typing
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, is_dataclass
from typing import Any

FEATURES = ("features", "d_model", "dim", "n_embd", "embed_dim", "hidden_size", "d", "size")
"""Names that layers have for the size of what they read and answer."""
_WIDTHS = (
    *FEATURES,
    "input_size",
    "units",
    "width",
    "embedding_dim",
    "hidden_dim",
    "model_dim",
    "input_dim",
    "d_input",
)
"""The same, and names of sizes that may be equal to it."""
_VOCABULARIES = ("vocab_size", "num_tokens", "n_tokens", "ntokens", "ntoken", "n_vocab", "num_embeddings")
"""Names that language models have for the number of ids."""
_LENGTHS = ("max_seq_len", "context_length", "block_size", "seq_len", "max_len", "l_max")
_BATCH_FIRST = "batch_first"
_BY_NAME = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
_EMPTY = inspect.Parameter.empty

Known = dict[str, inspect.Parameter]


@dataclass(frozen=True)
class Sizes:
    """The numbers that a layer's own arguments get.

    Attributes:
        width: of what it reads and answers.
        vocabulary: the number of ids.
        horizon: the length of a sequence.
    """

    width: int
    vocabulary: int
    horizon: int


def by_name(make: Callable[..., Any]) -> Known:
    """The arguments that a callable takes by name; of a class also those that it hands on to its bases."""
    if not inspect.isclass(make):
        return _own_by_name(make)[0]
    found: Known = {}
    for each in make.__mro__:
        if "__init__" in vars(each):
            own, hands_on = _own_by_name(vars(each)["__init__"])
            found |= {name: parameter for name, parameter in own.items() if name not in found and name != "self"}
            if not hands_on:
                break
    return found


def _own_by_name(call: Callable[..., Any]) -> tuple[Known, bool]:
    """The arguments by name, and whether there may be others."""
    try:
        parameters = inspect.signature(call).parameters
    except (TypeError, ValueError):  # code without a signature
        return {}, False
    kinds = {parameter.kind for parameter in parameters.values()}
    own = {name: parameter for name, parameter in parameters.items() if parameter.kind in _BY_NAME}
    return own, inspect.Parameter.VAR_KEYWORD in kinds


def features_argument(known: Mapping[str, inspect.Parameter], taken: Collection[str]) -> str | None:
    """The argument for the features where it is not called inputs; None: there is none.

    Args:
        known: the arguments by name.
        taken: those that get a value.
    """
    free = [name for name in known if name not in taken]
    if "inputs" in free:
        return None
    found = next((name for name in FEATURES if name in free), None)
    needed = [name for name in free if known[name].default is _EMPTY]
    rest = [name for name in needed if name not in ("outputs", "width", "horizon")]
    return found or (rest[0] if len(rest) == 1 else None)


def filled(make: Callable[..., Any], given: Mapping[str, Any], taken: Collection[str], sizes: Sizes) -> dict[str, Any]:
    """The arguments of a layer: the given ones, and the sizes under the names that it has for them.

    A mapping that is given to an argument whose annotation is a dataclass holds the arguments of that class; these get
    the sizes, too.

    Args:
        make: the layer's class, or what makes it.
        given: by name.
        taken: names of further arguments that get a value.
        sizes: of the layer.
    """
    known = by_name(make)
    result = _sized(known, {*given, *taken}, sizes) | dict(given)
    if _BATCH_FIRST in known and _BATCH_FIRST not in given:
        result[_BATCH_FIRST] = True
    for name, kind in _settings(make, known).items():
        needed = known[name].default is _EMPTY and name not in result
        if needed or isinstance(result.get(name), Mapping):
            result[name] = kind(**filled(kind, result.get(name, {}), (), sizes))
    return result


def _sized(known: Known, taken: Collection[str], sizes: Sizes) -> dict[str, Any]:
    """The sizes under the names of arguments that get no value."""
    free = {name: parameter.default for name, parameter in known.items() if name not in taken}
    widths = [name for name in _WIDTHS if name in free]
    needed = [name for name in widths if free[name] is _EMPTY]
    if not widths and (only := features_argument(known, taken)) is not None and _may_be_a_size(known[only]):
        needed = [only]
    found = dict.fromkeys(needed or widths[:1], sizes.width)
    found |= {name: sizes.vocabulary for name in _VOCABULARIES if name in free}
    lengths = (name for name in _LENGTHS if name in free)
    return found | {name: sizes.horizon for name in lengths if free[name] in (_EMPTY, None, -1)}


def _may_be_a_size(parameter: inspect.Parameter) -> bool:
    return parameter.annotation in (_EMPTY, int, "int")


def vocabulary_of(make: Callable[..., Any]) -> str | None:
    """The name that a language model, or its settings, has for the number of ids; None: it has none."""
    known = by_name(make)
    inside = (name for kind in _settings(make, known).values() for name in by_name(kind))
    return next((name for name in (*known, *inside) if name in _VOCABULARIES), None)


def _settings(make: Callable[..., Any], known: Known) -> dict[str, Callable[..., Any]]:
    """By the name of an argument, the class of settings that it is said to take."""
    try:
        hints = typing.get_type_hints(make.__init__ if inspect.isclass(make) else make)
    except Exception:  # annotations of others may name what is not there
        hints = {}
    found = {name: kind for name in known if (kind := _class_of_settings(hints.get(name))) is not None}
    custom = getattr(make, "config_class", None)  # of transformers
    return {**found, "config": custom} if custom is not None and "config" in known else found


def _class_of_settings(hint: Any) -> Callable[..., Any] | None:
    """The dataclass in an annotation."""
    return next((each for each in (*typing.get_args(hint), hint) if inspect.isclass(each) and is_dataclass(each)), None)
