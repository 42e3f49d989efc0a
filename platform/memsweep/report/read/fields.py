"""The settings of trials by their dotted paths, read off their canonical configs."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from typing import Any

from memsweep.config.schema.canonical import flatten


def fields_of(config: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted path -> value of a canonical config; a part's name stands at the part's own path, a list is JSON."""
    return {path.removesuffix(".name"): _hashable(value) for path, value in flatten(config).items()}


def varied_fields(configs: Mapping[str, Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Identity -> dotted path -> value, of the fields in which these trials differ; one that a trial lacks is left out.

    Args:
        configs: identity -> canonical config.
    """
    fields = {identity: fields_of(config) for identity, config in configs.items()}
    paths = dict.fromkeys(path for values in fields.values() for path in values)
    varied = [path for path in paths if len({str(values.get(path)) for values in fields.values()}) > 1]
    return {identity: {path: values[path] for path in varied if path in values} for identity, values in fields.items()}


def short_names(paths: Iterable[str]) -> dict[str, str]:
    """Dotted path -> its last part; more of its parts where another of these paths ends alike."""
    parts = {path: path.split(".") for path in paths}
    names = {}
    for path, own in parts.items():
        alike = [other for other in parts.values() if other != own]
        sizes = (size for size in range(1, len(own)) if all(own[-size:] != other[-size:] for other in alike))
        names[path] = ".".join(own[-next(sizes, len(own)) :])
    return names


def fields_of_width(configs: Iterable[Mapping[str, Any]]) -> list[str]:
    """The width, and the model's fields that are equal to it at all of several widths, as the ``features`` of a stack.

    Args:
        configs: canonical ones.
    """
    models = [config["model"] for config in configs if "width" in config["model"]]
    follow = [key for key in models[0] if all(model.get(key) == model["width"] for model in models)] if models else []
    return follow if len({model["width"] for model in models}) > 1 else ["width"]


def _hashable(value: Any) -> Any:
    return json.dumps(value, sort_keys=True) if isinstance(value, (list, tuple, dict)) else value
