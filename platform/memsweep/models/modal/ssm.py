"""The state-space model of the curse of memory: a linear recurrence, and nonlinearity layer by layer.

    h_t = A h_{t-1} + g (u x_t + b),   y_t = c . sigma(h_t) + d          (form ``plain``)

(arXiv 2309.13414 and 2311.14495) with A the diagonal of the eigenvalues that the parameterization makes of the raw
recurrent weights, g = 1 or, with ``normalize``, sqrt(1 - eigenvalue^2). The activation never acts inside the
recurrence: whatever it is, states are a linear function of the inputs.

Form ``mlp`` is the variant of the published code (Curse-of-memory, September 2023). MLPs of the model's width stand
around the recurrence, and the activation is theirs:

    encoder -> linear, sigma, linear -> recurrence -> linear, sigma, linear -> readout.

That code turns the modes by a trained matrix P: A = I - P' diag(rate dt) P, with P orthogonal at the start and free
afterwards (``basis: free``). With ``form: mlp, basis: free, discretization: euler, initialization: published`` and
the parameterization relu this is the published model.

With the activation ``linear`` every form is linear and has a closed form: the affine maps before the recurrence, and
those after it, are composed into one.

Letters: see memsweep.models.base.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from memsweep.config.core.fields import setting
from memsweep.models import initialization
from memsweep.models.affine import Affine, composed, driven_response, equalized
from memsweep.models.base import Part, Response, Role, Signature, Traits, Weights, flattened, leading_shape
from memsweep.models.modal.base import PACKED, RATES, ModalConfig, ModalModel, balanced_modes, modal_response
from memsweep.models.orthogonal_maps import random_orthogonal
from memsweep.models.parameterizations.base import EULER
from memsweep.models.spectrum import symmetric_eigenvalues
from memsweep.recurrence.activations import ACTIVATIONS, activation_named
from memsweep.recurrence.layer import Layer, affine
from memsweep.recurrence.scan import linear_scan, scan
from memsweep.registry import register_model

PLAIN, MLP = "plain", "mlp"
DIAGONAL, FREE = "diagonal", "free"


@register_model("ssm")
class SSM(ModalModel):
    """State-space model: linear recurrence, activation at the output (plain) or in MLPs around it (mlp)."""

    @dataclass(frozen=True, kw_only=True)
    class Config(ModalConfig):
        """A linear recurrence whose states pass an activation on their way out, or MLPs on their way in and out."""

        form: str = setting(
            PLAIN,
            "where the activation acts: plain, on the states at the output; mlp, in MLPs (linear, activation, linear, "
            "of the model's width) before and after the recurrence, as in the published code",
            choices=(PLAIN, MLP),
        )
        basis: str = setting(
            DIAGONAL,
            "recurrent matrix: diagonal (independent modes) or free, as in the published code: modes in a trained "
            "basis that is orthogonal at the start alone (discretization euler)",
            choices=(DIAGONAL, FREE),
        )
        activation: str = setting(
            "linear", "activation, outside of the recurrence (see form)", choices=tuple(ACTIVATIONS)
        )

        def problems(self) -> Iterable[str]:
            yield from super().problems()
            if self.basis == FREE and self.discretization != EULER:
                yield (
                    f"discretization is {self.discretization}, but the basis free is defined by Euler steps alone: "
                    "set discretization to euler, or basis to diagonal"
                )
            if self.basis == FREE and self.normalize:
                yield "normalize needs independent modes, which the basis free has not: set basis to diagonal"

    @classmethod
    def roles(cls, config: Config) -> Mapping[str, Role]:
        """Outside of the recurrence the MLPs' tensors do not grow with it: their axes are named ``hidden``."""
        roles = dict(RATES)
        if config.basis == FREE:
            roles["basis"] = Role(Part.RECURRENT, ("width", "width"))
        outer = "hidden" if config.form == MLP else "width"
        roles |= {
            "encoder_weight": Role(Part.ENCODER, (outer, "input")),
            "encoder_bias": Role(Part.BIAS, (outer,)),
        }
        if config.form == MLP:
            roles |= {
                "before_weight_l0": Role(Part.ENCODER, ("hidden", "hidden")),
                "before_bias_l0": Role(Part.BIAS, ("hidden",)),
                "before_weight_l1": Role(Part.ENCODER, ("width", "hidden")),
                "before_bias_l1": Role(Part.BIAS, ("width",)),
                "after_weight_l0": Role(Part.READOUT, ("hidden", "width")),
                "after_bias_l0": Role(Part.BIAS, ("hidden",)),
                "after_weight_l1": Role(Part.READOUT, ("hidden", "hidden")),
                "after_bias_l1": Role(Part.BIAS, ("hidden",)),
            }
        return roles | {
            "readout_weight": Role(Part.READOUT, ("output", outer)),
            "readout_bias": Role(Part.BIAS, ("output",)),
        }

    @classmethod
    def traits(cls, config: Config) -> Traits:
        separate = config.form == PLAIN and config.basis == DIAGONAL
        return Traits(
            linear=config.activation == "linear",
            layer=config.form == PLAIN,
            separate_modes=separate,
            pack_fields=PACKED if separate else frozenset(),
        )

    @classmethod
    def initial(cls, config: Config, signature: Signature, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """See memsweep.models.initialization; the MLPs start as torch.nn.Linear does, or normal and without biases."""
        raw = initialization.raw_rates(config, signature.horizon, rng)
        weights = {"recurrent_weight": raw}
        weights |= initialization.encoder_and_readout(config.initialization, config.width, signature, rng)
        if config.basis == FREE:
            weights["basis"] = random_orthogonal(config.width, rng)
        if config.form == MLP:
            for name in ("before", "after"):
                for layer in range(2):
                    # a layer from width to width is drawn like a readout with that many outputs
                    drawn = initialization.encoder_and_readout(
                        config.initialization, config.width, Signature(1, config.width, signature.horizon), rng
                    )
                    weights[f"{name}_weight_l{layer}"] = drawn["readout_weight"]
                    weights[f"{name}_bias_l{layer}"] = drawn["readout_bias"]
        return weights

    def _matrix(self, weights: Weights) -> Tensor:
        """A = I - P' diag(1 - eigenvalue) P, ``[N..., M, M]``: symmetric."""
        basis = weights["basis"]
        # not P' diag(eigenvalue) P: a trained P is not orthogonal, and an Euler step adds to the state as it is
        identity = torch.eye(basis.shape[-1], dtype=basis.dtype, device=basis.device)
        return identity - basis.mT @ ((1.0 - self.modes(weights)).unsqueeze(-1) * basis)

    def eigenvalues(self, weights: Weights) -> Tensor:
        """In the order of the width axis; those of a free basis ascend."""
        if self.config.basis == DIAGONAL:
            return self.modes(weights)
        return symmetric_eigenvalues(self._matrix(weights))

    def _into(self) -> list[str]:
        """Names of the affine maps before the recurrence: ``{}`` stands for weight or bias."""
        return ["encoder_{}", "before_{}_l0", "before_{}_l1"] if self.config.form == MLP else ["encoder_{}"]

    def _out(self) -> list[str]:
        return ["after_{}_l0", "after_{}_l1", "readout_{}"] if self.config.form == MLP else ["readout_{}"]

    def layer(self, weights: Weights) -> Layer:
        """Of the plain form, whose activation acts on the states on their way out."""
        flat = len(leading_shape(self, weights)) - 1
        modes = self.modes(weights)
        gain = self.gain(modes)
        return Layer(
            encoder=(gain.unsqueeze(-1) * weights["encoder_weight"]).flatten(0, flat),
            bias=(gain * weights["encoder_bias"]).flatten(0, flat),
            matrix=(self._matrix(weights) if self.config.basis == FREE else modes).flatten(0, flat),
            readout=weights["readout_weight"].flatten(0, flat),
            offset=weights["readout_bias"].flatten(0, flat),
            output=self.config.activation,
        )

    def outputs(self, weights: Weights, inputs: Tensor, live: Tensor | None = None) -> Tensor:
        """Of the form mlp: batched heads around a recurrence over time, all replicas at once."""
        if self.traits(self.config).layer:
            return super().outputs(weights, inputs, live)
        leading, flat = flattened(self, weights)
        # modes first, then flatten: a mixture of parameterizations is chosen along the first dimension
        gain_NM = self.gain(self.modes(weights)).flatten(0, len(leading) - 1)
        inputs_NBTI = inputs.expand(gain_NM.shape[0], *inputs.shape)
        drive_NBTM = self._mlp(affine(inputs_NBTI, *_maps(flat, ["encoder_{}"])[0]), _maps(flat, self._into()[1:]))
        states_NBTM = self._recurrence(weights, len(leading), gain_NM[:, None, None] * drive_NBTM)
        answers_NBTM = self._mlp(states_NBTM, _maps(flat, self._out()[:-1]))
        return affine(answers_NBTM, *_maps(flat, ["readout_{}"])[0]).unflatten(0, leading)

    def _activated(self, values: Tensor) -> Tensor:
        """The activation of the values, in their place."""
        activation_named(self.config.activation).apply_(values)
        return values

    def _mlp(self, x_NBTM: Tensor, layers: Sequence[Affine]) -> Tensor:
        first, second = layers
        return affine(self._activated(affine(x_NBTM, *first)), *second)

    def _recurrence(self, weights: Weights, leading: int, drive_NBTM: Tensor) -> Tensor:
        if self.config.basis == FREE:
            return scan(drive_NBTM, self._matrix(weights).flatten(0, leading - 1), "linear", leak=0.0, gain=1.0)
        return linear_scan(self.modes(weights).flatten(0, leading - 1), drive_NBTM)

    def response(self, weights: Weights, horizon: int) -> Response:
        encoder, readout = (composed(_maps(weights, names)) for names in (self._into(), self._out()))
        if self.config.basis == FREE:
            return driven_response(self._matrix(weights), *encoder, *readout, horizon)
        eigenvalues_NM = self.modes(weights)
        around = {
            "encoder_weight": encoder[0],
            "encoder_bias": encoder[1],
            "readout_weight": readout[0],
            "readout_bias": readout[1],
        }
        return modal_response(around, eigenvalues_NM, self.gain(eigenvalues_NM), horizon)

    def balanced(self, weights: Weights) -> dict[str, Tensor]:
        """Mode by mode where the modes are independent; else all affine maps get the same Frobenius norm."""
        if self.traits(self.config).separate_modes:
            return balanced_modes(weights)
        names = self._into() + self._out()
        equal = equalized(_maps(weights, names))
        result = dict(weights)
        for name, (weight, bias) in zip(names, equal, strict=True):
            result |= {name.format("weight"): weight, name.format("bias"): bias}
        return result


def _maps(weights: Weights, names: Sequence[str]) -> list[Affine]:
    return [(weights[name.format("weight")], weights[name.format("bias")]) for name in names]
