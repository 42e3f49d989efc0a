"""The first layer of a stack without an encoder, and the weights that such a stack has.

Only a unit that answers with its states can read a task's inputs: it then answers with as many features as it has
states, whatever it reads. Any other unit has weights for each of its features, in what it reads and in what it answers.
"""

from __future__ import annotations

from collections.abc import Container, Iterator, Mapping
from dataclasses import replace
from typing import Any, TypeVar

from memsweep import registry
from memsweep.errors import listed
from memsweep.models.base import Role
from memsweep.models.deep.around_unit import norm_roles
from memsweep.models.deep.unit import Unit, units_of

_Of = TypeVar("_Of")


def omits_encoder(config: Any, layer: int = 0) -> bool:
    """Whether this layer of a deep model reads the inputs of the task: the first one, where there is no encoder."""
    return getattr(config, "encoder__", "linear") == "none" and layer == 0


def reads_inputs(unit: Unit) -> bool:
    """Whether a unit that answers with its states reads another number of features."""
    return unit.features != unit.width


def lacks_map(weights: Container[str], name: str) -> bool:
    """Whether an affine map is the encoder that these weights do not have."""
    return name == "encoder" and "encoder_weight" not in weights


def first_unit(config: Any, inputs: int) -> Unit:
    """The unit that reads the inputs."""
    own = units_of(config)[0]
    unit: Unit = registry.get(registry.UNIT, own.name)(own, config.width, inputs)
    return unit


def without_encoder(config: Any, weights: Mapping[str, _Of]) -> dict[str, _Of]:
    """Those of a stack's weights, or of their roles, that it has without an encoder and a norm before its inputs."""
    norms = {f"{name}_l0" for name in norm_roles(config.norm)} if config.prenorm else set()
    return {name: each for name, each in weights.items() if name not in {"encoder_weight", "encoder_bias", *norms}}


def roles_without_encoder(config: Any, roles: Mapping[str, Role]) -> dict[str, Role]:
    """The roles of such a stack: the first unit has weights for each input, in place of each feature."""
    own = {f"{name}_l0" for name in first_unit(config, config.features).roles()}
    return {
        name: replace(role, axes=tuple("input" if axis == "feature" else axis for axis in role.axes))
        if name in own
        else role
        for name, role in without_encoder(config, roles).items()
    }


def encoder_problems(config: Any) -> Iterator[str]:
    """Why the first layer of a config cannot read the inputs, a sentence without a full stop; nothing where it can."""
    if not omits_encoder(config):
        return
    first = units_of(config)[0]
    kind, units = registry.get(registry.UNIT, first.name), registry.names(registry.UNIT)
    able = [name for name in units if registry.get(registry.UNIT, name).answers_with_states]
    instead = f"give the first layer a unit that answers with its states ({listed(able, 9)}), or leave encoder out"
    if not kind.answers_with_states:
        yield (
            "encoder is none, so that the first layer reads the inputs of the task, but the unit "
            f"{first.name} reads as many numbers as it answers: {instead}"
        )
    elif kind.is_linear(first):  # the response of a linear stack, and its balance, are taken at an encoder
        yield f"encoder is none, but the unit {first.name} is linear, as it is set here: leave encoder out"
