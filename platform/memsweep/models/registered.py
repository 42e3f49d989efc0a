"""The registered models: which of them can do something, and whether those of others keep the contract of a model."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from memsweep import registry
from memsweep.config.load.foreign import in_one_line
from memsweep.errors import ModuleError, listed, one_of
from memsweep.models.contracts import breaches
from memsweep.models.roles import Signature, fits, signature_of
from memsweep.models.training_mode import in_training, same_values, seeded

if TYPE_CHECKING:
    from memsweep.config.schema.trial import TrialConfig


def default_config(part: Any) -> Any:
    """The Config of a registered class with all defaults; None where a field must be given."""
    try:
        return part.Config()
    except TypeError:
        return None


def has_group(group: str, model: Any, config: Any) -> bool:
    """Whether a model has weights in a group of ``training.groups``."""
    return any(role.group == group for role in model.roles(config).values())


def pattern_problems(model: Any, trial: TrialConfig) -> Iterator[str]:
    """The patterns of ``training.parameter_groups`` that fit no weight, a sentence without a full stop each."""
    patterns = [pattern for group in trial.training.parameter_groups for pattern in group.parameters]
    signature = signature_of(trial) if patterns else None
    if signature is None:
        return
    try:
        names = [*model.roles_at(trial.model, signature)]
    except ModuleError:  # another check says it
        return
    for pattern in patterns:
        if not any(fits(name, [pattern]) for name in names):
            yield (
                f"training.parameter_groups has the pattern {pattern!r}, which fits no weight of the model "
                f"{trial.model.name}. Its weights: {listed(names, 20)}"
            )


def models_where(holds: Callable[[Any, Any], bool]) -> str:
    """The registered models of which something holds under their default Config, as one phrase."""
    models = {name: registry.get(registry.MODEL, name) for name in registry.names(registry.MODEL)}
    usual = {name: default_config(model) for name, model in models.items()}
    return one_of(name for name, config in usual.items() if config is not None and holds(models[name], config))


def fitting_rules(model: Any, config: Any) -> list[str]:
    """The names of the registered learning rules by which a model can be trained."""
    names = registry.names(registry.RULE)
    return [name for name in names if registry.get(registry.RULE, name).refusal(model, config) is None]


def _is_own(part: type) -> bool:
    """Whether a class is memsweep's own."""
    return part.__module__.startswith("memsweep.")


def _has_own_parts(config: Any) -> bool:
    """Whether a Config with all that it holds is of memsweep's own parts."""
    if isinstance(config, tuple):
        return all(map(_has_own_parts, config))
    if not is_dataclass(config):
        return True
    return _is_own(type(config)) and all(_has_own_parts(getattr(config, field.name)) for field in fields(config))


def contract_problems(model: Any, trial: TrialConfig) -> Iterator[str]:
    """Why a registered model with code from outside of memsweep would be measured in vain, a sentence each.

    Sentences end without a full stop. The conformance suite (``memsweep.testing``) holds memsweep's own to more.
    """
    signature = None if _has_own_parts(trial.model) and _is_own(model) else signature_of(trial)
    if signature is None:
        return
    found = () if trial.training.weights else _unseeded_problems(model, trial.model, signature)
    yield from found
    if not found and not _is_own(model):
        yield from _contract_problems(model, trial.model, signature)


@functools.lru_cache(maxsize=256)
def _contract_problems(model: Any, config: Any, signature: Signature) -> tuple[str, ...]:
    shape = (2, signature.horizon, signature.inputs)
    draws = torch.Generator().manual_seed(0)
    inputs = torch.randn(*shape, generator=draws, dtype=torch.float64)
    wanted = [*shape[:2], signature.outputs]
    name = f"the model {config.name}"
    try:
        if model.traits(config).reads_ids:
            inputs = torch.randint(signature.inputs, shape[:2], generator=draws)
        built = model(config, signature, np.random.default_rng(0)).eval()
        with torch.no_grad():
            outputs = built(inputs)
        if list(outputs.shape) != wanted:
            return (f"{name} gave outputs of shape {list(outputs.shape)} for inputs of shape {list(shape)}: {wanted}",)
        found = [breach.words for breach in breaches(built, inputs)]
        found += filter(None, [in_training(built, _in_its_mode(built), inputs).breach])
        return tuple(f"{name} {words}" for words in found)
    except Exception as error:  # any fault of foreign code
        return (f"{name} failed on inputs of shape {list(shape)}: {in_one_line(error)}",)


@functools.lru_cache(maxsize=256)
def _unseeded_problems(model: Any, config: Any, signature: Signature) -> tuple[str, ...]:
    """Why a trial of a registered model could not be repeated: its ``initial`` draws elsewhere, too.

    The global generators have another state in each of two calls, and are as before afterwards.
    """
    drawn, who = [], f"{'a part of ' if _is_own(model) else ''}the model {config.name}"
    try:
        for seed in (0, 1):
            with seeded(seed):
                initial = model.initial(config, signature, np.random.default_rng(0))
            drawn.append({name: torch.as_tensor(value) for name, value in initial.items()})
    except ModuleError:  # another check says it
        return ()
    except Exception as error:  # any fault of foreign code
        return (f"{who} cannot draw its initial weights: {in_one_line(error)}",)
    if same_values(*drawn):
        return ()
    return (
        f"{who} begins with other weights each time its initial gets the same generator: it draws elsewhere, too, such "
        "as by np.random.uniform or by np.random.default_rng() without a seed. Draw from the generator that is given "
        "(rng)",
    )


def _in_its_mode(model: Any) -> Callable[[Tensor], Tensor]:
    """The model's outputs; in training, with the random numbers of one seed and step."""

    def run(inputs: Tensor) -> Tensor:
        if model.training:
            model.start_step([0], 0)
        outputs: Tensor = model(inputs)
        return outputs

    return run
