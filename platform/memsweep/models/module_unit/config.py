"""The settings of a user's layer, and how its factory is called."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, fields
from typing import Any

from memsweep.config.core.arguments import Arguments
from memsweep.config.core.fields import setting
from memsweep.models.deep.unit import is_deep, units_of
from memsweep.models.module.config import ModuleConfig, RolesConfig
from memsweep.models.module.factory import resolve
from memsweep.models.module.layer_arguments import FEATURES, by_name, features_argument

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
        f"the factory's argument for the features; null: found by its name ({', '.join(FEATURES)}), or the one "
        "argument that nothing else gives",
    )
    width_argument: str | None = setting(
        None, "the factory's argument for the width; null: width, where it has an argument of that name"
    )
    roles: RolesConfig = setting(doc="what the parameters do, where names and types do not say it", factory=RolesConfig)
    optim_attribute: bool = setting(**_OF_A_MODULE["optim_attribute"])
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
    known = by_name(resolve(config.factory).make)
    taken = {*config.arguments.plain(), *filter(None, [config.width_argument])}
    features = config.features_argument or features_argument(known, taken)
    sized = config.width_argument or ("width" if "width" in known else None)
    return ModuleConfig(
        factory=config.factory,
        width=width,
        arguments=config.arguments,
        inputs_argument=features or "inputs",
        width_argument=sized,
        roles=config.roles,
        optim_attribute=config.optim_attribute,
        replicas=config.replicas,
        causal=config.causal,
    )


def modules_of(model: Any) -> Iterator[ModuleConfig]:
    """The users' modules that a model is made of: itself, or layers of its stack.

    Raises:
        ModuleError: a factory is not found.
    """
    if isinstance(model, ModuleConfig):
        yield model
    for unit in units_of(model) if is_deep(model) else ():
        if isinstance(unit, ModuleUnitConfig):
            yield as_module(unit, model.width)
