"""Conditions of a trial that look into users' modules: which code runs by what their weights and layers are.

Imports of torch are in functions, so that a plan without such a module needs none.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import TYPE_CHECKING, Any

from memsweep import registry
from memsweep.errors import ModuleError

if TYPE_CHECKING:
    from memsweep.config.schema.trial import TrialConfig
    from memsweep.models.roles import Role


def has_layer_units(model: Any) -> bool:
    """Whether a model is a stack with layers that are users' modules."""
    from memsweep.models.deep.unit import has_layer_units, is_deep

    return is_deep(model) and has_layer_units(model)


def holds_layers_of_torch(config: TrialConfig) -> bool:
    """Whether users' modules hold layers of torch that compiled recurrences run."""
    from memsweep.models.module.anatomy import build_module
    from memsweep.models.module.torch_layers import holds_torch_layers
    from memsweep.models.module_unit.config import modules_of

    return any(holds_torch_layers(module, build_module) for module in modules_of(config.model))


def asks_own_settings(config: TrialConfig) -> bool:
    """Whether parameters of a user's module ask for settings of the optimizer."""
    from memsweep.models.roles import asks_settings

    return asks_settings(_roles_of_module(config))


def takes_influence(config: TrialConfig) -> bool:
    """Whether the measured influence of a parameter decides its role."""
    return any(role.from_influence for role in _roles_of_module(config))


def takes_copies(config: TrialConfig) -> bool:
    """Whether a measurement computes copies of a user's module together."""
    from memsweep.models.module.config import ModuleConfig
    from memsweep.models.module.model import computes_copies
    from memsweep.models.roles import signature_of

    if not isinstance(config.model, ModuleConfig):
        return False
    signature = signature_of(config)
    try:
        return signature is not None and computes_copies(config.model, signature)
    except ModuleError:  # the check before a study says it
        return False


def takes_seeds(config: TrialConfig) -> bool:
    """Whether a training computes the seeds of a user's module together."""
    from memsweep.models.module.config import ModuleConfig
    from memsweep.models.module.model import computes_seeds
    from memsweep.models.roles import signature_of

    if not isinstance(config.model, ModuleConfig) or config.training.seeds < 2 or not config.training.steps:
        return False
    signature = signature_of(config)
    try:
        return signature is not None and computes_seeds(config.model, signature)
    except ModuleError:  # the check before a study says it
        return False


def moves_complex(config: TrialConfig) -> bool:
    """Whether complex weights of a user's module move in balls of complex numbers."""
    moved = config.perturbation
    is_by_modulus = moved.norm == "spectral" and bool(moved.balls)
    return is_by_modulus and any(role.complex_entries for role in _roles_of_module(config))


def _roles_of_module(config: TrialConfig) -> Collection[Role]:
    """The roles of the weights where a user's module is among the models or the layers; none if it cannot be built."""
    from memsweep.models.roles import signature_of

    if config.model.name != "module" and not has_layer_units(config.model):
        return ()
    model = registry.get(registry.MODEL, config.model.name)
    signature = signature_of(config)
    try:
        return () if signature is None else model.roles_at(config.model, signature).values()
    except ModuleError:  # the check before a study says it
        return ()
