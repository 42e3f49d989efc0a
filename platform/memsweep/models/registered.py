"""The registered models: which of them can do something, and whether those of others keep the contract of a model."""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor

from memsweep import registry
from memsweep.config.load.foreign import in_one_line
from memsweep.errors import ModuleError, listed, one_of
from memsweep.models.contracts import OVERWRITTEN, breaches, unreached
from memsweep.models.roles import Part, Role, Signature, fits, signature_of
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


def is_own(part: type) -> bool:
    """Whether a class is memsweep's own."""
    return part.__module__.startswith("memsweep.")


def _parts_of_others(config: Any) -> Iterator[str]:
    """The registered parts from outside of memsweep that a Config holds, in words."""
    if isinstance(config, tuple):
        for each in config:
            yield from _parts_of_others(each)
    elif is_dataclass(config):
        if not is_own(type(config)):
            yield f"the {getattr(config, 'kind', 'part')} {getattr(config, 'name', type(config).__name__)}"
        for field in fields(config):
            yield from _parts_of_others(getattr(config, field.name))


def contract_problems(
    model: Any, trial: TrialConfig, of_parts: Callable[[], Iterable[str]] = tuple, *, may_idle: bool = False
) -> Iterator[str]:
    """Why a model with registered code from outside of memsweep would be measured in vain, a sentence each.

    That code is the model's own, or that of its parts, such as a unit. Sentences end without a full stop. The
    conformance suites (``memsweep.testing``) hold memsweep's own to more.

    Args:
        model, trial: what is looked at.
        of_parts: the faults of parts alone, which are looked for before the model runs.
        may_idle: whether it may have weights that no gradient reaches, as a user's module may, where they are noted.
    """
    others = [*dict.fromkeys(_parts_of_others(trial.model))] if is_own(model) else [f"the model {trial.model.name}"]
    signature = signature_of(trial) if others else None
    if signature is None:
        return
    looked_at = (model, trial.model, signature, " or ".join(others))
    found = () if trial.training.weights else _initial_problems(*looked_at)
    yield from found or tuple(of_parts()) or _contract_problems(*looked_at, may_idle)


@functools.lru_cache(maxsize=256)
def _contract_problems(model: Any, config: Any, signature: Signature, who: str, may_idle: bool) -> tuple[str, ...]:
    shape = (2, signature.horizon, signature.inputs)
    draws = torch.Generator().manual_seed(0)
    inputs = torch.randn(*shape, generator=draws, dtype=torch.float64)
    wanted = [*shape[:2], signature.outputs]
    try:
        if ids := model.traits(config).reads_ids:
            inputs = torch.randint(signature.inputs, shape[:2], generator=draws)
        built = model(config, signature, np.random.default_rng(0)).eval()
        outputs = built(inputs.clone())
        if list(outputs.shape) != wanted:
            return (f"{who} gave outputs of shape {list(outputs.shape)} for inputs of shape {list(shape)}: {wanted}",)
        # a root or a logarithm is for inputs above 0, as pixels are
        if not (outputs.isfinite().all() or (not ids and built(inputs.abs().clamp(max=1.0)).isfinite().all())):
            return (
                f"{who} gives outputs that are not finite, for random inputs of {signature.horizon} steps, before any "
                "training",
            )
        # a step alone has no use for the weights of a recurrence
        idle = () if may_idle or signature.horizon == 1 else _idle(built, outputs)
        broken = list(breaches(built, inputs))
        found = [*idle, *(breach.words for breach in broken)]
        if all(breach.name != OVERWRITTEN for breach in broken):
            found += filter(None, [in_training(built, _in_its_mode(built), inputs).breach])
        return tuple(f"{who} {words}" for words in found)
    except Exception as error:  # any fault of foreign code
        return (f"{who} failed on inputs of shape {list(shape)}: {in_one_line(error)}",)


def _idle(model: Any, outputs: Tensor) -> Iterator[str]:
    """The fault of weights that no gradient reaches."""
    roles = model.roles_at(model.config, model.signature)
    trained = {name: weight for name, weight in model.named_parameters() if roles[name].part is not Part.STATISTIC}
    if idle := unreached(trained, outputs):
        yield (
            f"gives outputs from which no gradient reaches {listed(idle, 5)}: training would leave them as they are, "
            "and no search would find how they may move. Leave out detach and no_grad, or give weights that stay as "
            "they are Part.STATISTIC in roles"
        )


@functools.lru_cache(maxsize=256)
def _initial_problems(model: Any, config: Any, signature: Signature, who: str) -> tuple[str, ...]:
    """Why initial weights are of no use: not those of the roles, not finite, or not repeated with their seed.

    The global generators have another state in each of two calls, and are as before afterwards.
    """
    drawn = []
    try:
        for seed in (0, 1):
            with seeded(seed):
                initial = model.initial(config, signature, np.random.default_rng(0))
            drawn.append({name: torch.as_tensor(value) for name, value in initial.items()})
        roles = model.roles_at(config, signature)
    except ModuleError:  # another check says it
        return ()
    except Exception as error:  # any fault of foreign code
        return (f"{who} cannot draw its initial weights: {in_one_line(error)}",)
    found = [*_of_roles(drawn[0], roles, config.width)]
    if not found and not same_values(*drawn):
        found.append(
            "begins with other weights each time its initial gets the same generator: it draws elsewhere, too, such as "
            "by np.random.uniform or by np.random.default_rng() without a seed. Draw from the generator that is given "
            "(rng)"
        )
    return tuple(f"{who} {words}" for words in found)


def _of_roles(drawn: Mapping[str, Tensor], roles: Mapping[str, Role], width: int) -> Iterator[str]:
    """The faults of initial weights: other names or axes than those of their roles, or no numbers."""
    if drawn.keys() != roles.keys():
        told = (
            ("without a role", drawn.keys() - roles.keys()),
            ("with a role that initial does not draw", roles.keys() - drawn.keys()),
        )
        named = (f"{listed(sorted(names), 5)} {what}" for what, names in told if names)
        yield f"has weights {' and '.join(named)}: initial must give one array for each entry of roles"
        return
    sizes = {"width": width}
    for name, value in drawn.items():
        axes, shape = roles[name].axes, list(value.shape)
        if len(axes) != len(shape):
            yield f"draws {name} of shape {shape}, and its role has the axes {list(axes)}: they must be as many"
        elif odd := [axis for axis, size in zip(axes, shape, strict=True) if sizes.setdefault(axis, size) != size]:
            yield (
                f"draws {name} of shape {shape}, whose axes are {list(axes)}, but {odd[0]} is {sizes[odd[0]]}: an axis "
                "has one size in all weights, and width that of the model"
            )
    if odd := [name for name, value in drawn.items() if not torch.isfinite(value).all()]:
        yield f"draws initial weights that are not finite: {listed(odd, 5)}"


def _in_its_mode(model: Any) -> Callable[[Tensor], Tensor]:
    """The model's outputs; in training, with the random numbers of one seed and step."""

    def run(inputs: Tensor) -> Tensor:
        if model.training:
            model.start_step([0], 0)
        outputs: Tensor = model(inputs)
        return outputs

    return run
