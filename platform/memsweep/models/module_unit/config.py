"""The settings of a user's layer, and how its factory is called."""

from __future__ import annotations

import inspect
from collections.abc import Iterable
from dataclasses import dataclass, fields

from memsweep.config.core.arguments import Arguments
from memsweep.config.core.fields import setting
from memsweep.models.module.config import ModuleConfig, RolesConfig
from memsweep.models.module.factory import resolve

_SIZES = ("features", "d_model", "dim", "n_embd", "embed_dim", "hidden_size", "d", "size")
"""Names that layers have for the size of what they read and answer."""


_OF_A_MODULE = {field.name: {"default": field.default, **field.metadata} for field in fields(ModuleConfig)}
"""Name -> the words and limits of a setting that the model ``module`` has."""


@dataclass(frozen=True, kw_only=True)
class ModuleUnitConfig:
    """A torch layer of your own, by its import path: [batch, time, features] -> [batch, time, features]."""

    factory: str = setting(
        doc="what makes the layer: the Python module, a colon and the name of a class or function, my_nets:MyMixer; or "
        "a file, nets/mixer.py:MyMixer. It is found and trusted as the factory of the model module is. Arguments named "
        "inputs, outputs, width and horizon get the features twice, the width, and the sequence length"
    )
    arguments: Arguments = setting(doc="further arguments of the factory, by name", factory=Arguments)
    features_argument: str | None = setting(
        None,
        f"the factory's argument for the features; null: found by its name ({', '.join(_SIZES)}), or the one argument "
        "that nothing else gives",
    )
    width_argument: str | None = setting(
        None, "the factory's argument for the width; null: width, where it has an argument of that name"
    )
    roles: RolesConfig = setting(doc="what the parameters do, where names and types do not say it", factory=RolesConfig)
    replicas: str = setting(**_OF_A_MODULE["replicas"])
    causal: bool = setting(**_OF_A_MODULE["causal"])

    def problems(self) -> Iterable[str]:
        if ":" not in self.factory:
            yield f"factory must be a module, a colon and a name, such as my_nets:MyMixer, got {self.factory!r}"


def as_module(config: ModuleUnitConfig, width: int) -> ModuleConfig:
    """The layer as a module of its own, from F inputs to F outputs.

    Raises:
        ModuleError: the factory is not found.
    """
    known = _arguments(config)
    features = config.features_argument or _features_argument(config, known)
    sized = config.width_argument or ("width" if "width" in known else None)
    return ModuleConfig(
        factory=config.factory,
        width=width,
        arguments=config.arguments,
        inputs_argument=features or "inputs",
        width_argument=sized,
        roles=config.roles,
        replicas=config.replicas,
        causal=config.causal,
    )


def _features_argument(config: ModuleUnitConfig, known: dict[str, inspect.Parameter]) -> str | None:
    """The argument for the features where it is not called inputs; None: there is none."""
    free = [name for name in known if name not in config.arguments and name != config.width_argument]
    if "inputs" in free:
        return None
    found = next((name for name in _SIZES if name in free), None)
    needed = [name for name in free if known[name].default is inspect.Parameter.empty]
    rest = [name for name in needed if name not in ("outputs", "width", "horizon")]
    return found or (rest[0] if len(rest) == 1 else None)


def _arguments(config: ModuleUnitConfig) -> dict[str, inspect.Parameter]:
    """The arguments of the factory that can be given by name; none of code without a signature."""
    try:
        parameters = inspect.signature(resolve(config.factory).make).parameters
    except (TypeError, ValueError):
        return {}
    by_name = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {name: parameter for name, parameter in parameters.items() if parameter.kind in by_name}
