"""The linear recurrent unit (LRU, arXiv 2303.06349; trained online in arXiv 2305.15947): complex diagonal modes.

    h_t = lambda h_{t-1} + gamma (B x_t + b),   y_t = Re(C . h_t) + D x_t + d,   lambda = exp(-exp(nu) + i exp(theta))

so that |lambda| < 1 whatever the weights: exp(nu) is the decay per step, exp(theta) the turn per step in radians.
gamma = sqrt(1 - |lambda|^2) keeps the state of a mode at the variance of its input when that is white noise.

The papers' names against ours: ``nu``, ``theta`` and ``gamma_log`` (log gamma, where it is trained) are theirs; B is
``encoder_re + i encoder_im``, C is ``readout_re + i readout_im``, D is ``skip``. The complex bias b
(``bias_re + i bias_im``) and the readout's bias d are ours: b stands for the bias of the linear layer that the papers
have before the unit.

Letters: see memsweep.models.base; width M counts complex modes.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from memsweep.config.core.fields import setting
from memsweep.models.base import LinearModel, Part, Response, Role, Signature, Traits, Weights, flattened
from memsweep.models.initialization import SPREAD, spread_rates
from memsweep.recurrence.linear.impulse import diagonal_response
from memsweep.recurrence.linear.modal_loss import Modes
from memsweep.recurrence.scan import linear_scan
from memsweep.registry import register_model

RING = "ring"
EXACT, TRAINED = "exact", "trained"
TURN = 0.1
"""Largest initial phase in units of the mode's decay, when spread: a mode forgets long before it has turned."""
_EDGE = 1e-12  # uniform numbers stay this far from 0 and 1, where nu or theta would be infinite


@dataclass(frozen=True, kw_only=True)
class RingConfig:
    """The ring in which eigenvalues begin (arXiv 2303.06349, Lemma 3.2)."""

    r_min: float = setting(0.0, "inner radius of the ring of initial eigenvalues", at_least=0.0, below=1.0)
    r_max: float = setting(1.0, "outer radius of the ring of initial eigenvalues", above=0.0, at_most=1.0)
    max_phase: float = setting(
        6.28, "largest phase on the ring, radians per step; 6.28 is the whole circle", above=0.0, at_most=6.3
    )

    def problems(self) -> Iterable[str]:
        if self.r_min > self.r_max:
            yield f"r_min ({self.r_min:g}) must be at most r_max ({self.r_max:g})"


@register_model("lru")
class LRU(LinearModel):
    """Linear recurrent unit: complex diagonal modes inside the unit circle, with normalized states."""

    @dataclass(frozen=True, kw_only=True)
    class Config(RingConfig):
        """Independent complex modes that decay and turn, between a complex linear encoder and readout."""

        width: int = setting(8, "number of complex modes", at_least=1, at_most=1_000_000)
        activation: str = setting("linear", "activation of the recurrence: an LRU has none", choices=("linear",))
        normalize: bool = setting(
            True, "scale the input of a mode by gamma = sqrt(1 - |eigenvalue|^2), so that its state keeps unit variance"
        )
        gamma: str = setting(
            EXACT,
            "with normalize: exact (gamma follows the eigenvalue) or trained (log gamma is a weight that starts "
            "there, as in the papers)",
            choices=(EXACT, TRAINED),
        )
        skip: bool = setting(False, "add a trained multiple D of the input to the output, as the papers' layers do")
        initialization: str = setting(
            SPREAD,
            "initial weights: spread (decays log-uniform between 1/horizon and 1 per step, phases far below them) or "
            "ring (the papers': eigenvalues uniform on the area of a ring, see r_min, r_max and max_phase)",
            choices=(SPREAD, RING),
        )

        def problems(self) -> Iterable[str]:
            yield from super().problems()
            if self.gamma == TRAINED and not self.normalize:
                yield "gamma is trained, but normalize is off, which leaves no gamma: set normalize, or gamma to exact"

    @classmethod
    def roles(cls, config: Config) -> Mapping[str, Role]:
        roles = {
            "nu": Role(Part.RECURRENT, ("width",), diagonal=True, rate=True),
            "theta": Role(Part.RECURRENT, ("width",), diagonal=True),
            "encoder_re": Role(Part.ENCODER, ("width", "input")),
            "encoder_im": Role(Part.ENCODER, ("width", "input")),
            "bias_re": Role(Part.BIAS, ("width",)),
            "bias_im": Role(Part.BIAS, ("width",)),
            "readout_re": Role(Part.READOUT, ("output", "width")),
            "readout_im": Role(Part.READOUT, ("output", "width")),
            "readout_bias": Role(Part.BIAS, ("output",)),
        }
        if config.normalize and config.gamma == TRAINED:
            roles["gamma_log"] = Role(Part.GAIN, ("width",))
        if config.skip:
            roles["skip"] = Role(Part.GAIN, ("output", "input"))
        return roles

    @classmethod
    def traits(cls, config: Config) -> Traits:
        return Traits(linear=True, separate_modes=True, pack_fields=frozenset({"width"}))

    @classmethod
    def initial(cls, config: Config, signature: Signature, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """``ring``: arXiv 2303.06349, Lemma 3.2; encoder, readout and skip as in the code of arXiv 2305.15947.

        ``spread``: see memsweep.models.initialization; a complex entry of encoder or readout has variance 1/width.
        """
        width, inputs, outputs = config.width, signature.inputs, signature.outputs
        on_ring = config.initialization == RING
        nu, theta = ring_weights(config, width, rng) if on_ring else _spread(width, signature.horizon, rng)
        if on_ring:
            # as published: a complex entry of the encoder has variance 1 / inputs, each part of the readout's 1 / width
            near, far = 1.0 / math.sqrt(2.0 * inputs), 1.0 / math.sqrt(width)
        else:
            near = far = 1.0 / math.sqrt(2.0 * width)
        weights = {
            "nu": nu,
            "theta": theta,
            "encoder_re": rng.standard_normal((width, inputs)) * near,
            "encoder_im": rng.standard_normal((width, inputs)) * near,
            "bias_re": np.zeros(width),
            "bias_im": np.zeros(width),
            "readout_re": rng.standard_normal((outputs, width)) * far,
            "readout_im": rng.standard_normal((outputs, width)) * far,
            "readout_bias": np.zeros(outputs),
        }
        if config.normalize and config.gamma == TRAINED:
            # gamma^2 = 1 - |lambda|^2: driven by white noise, slow and fast modes then have states of equal variance
            weights["gamma_log"] = 0.5 * np.log(-np.expm1(-2.0 * np.exp(nu)))
        if config.skip:
            weights["skip"] = rng.standard_normal((outputs, inputs)) if on_ring else np.zeros((outputs, inputs))
        return weights

    def eigenvalues(self, weights: Weights) -> Tensor:
        """Complex, ``[N..., M]``."""
        return eigenvalue(weights["nu"], weights["theta"])

    def _gain(self, weights: Weights) -> Tensor:
        """gamma, ``[N..., M]``, real."""
        if not self.config.normalize:
            return torch.ones_like(weights["nu"])
        if self.config.gamma == TRAINED:
            return torch.exp(weights["gamma_log"])
        return torch.exp(log_gamma(weights["nu"]))

    def _drive(self, weights: Weights) -> Tensor:
        """The weights of inputs, and in the last column of the bias, by mode: gamma (B, b), ``[N..., M, I + 1]``.

        The bias is one more input, which is always on.
        """
        gain = self._gain(weights).unsqueeze(-1)
        real = torch.cat([weights["encoder_re"], weights["bias_re"].unsqueeze(-1)], -1)
        imaginary = torch.cat([weights["encoder_im"], weights["bias_im"].unsqueeze(-1)], -1)
        return torch.complex(gain * real, gain * imaginary)

    def outputs(self, weights: Weights, inputs: Tensor) -> Tensor:
        """The recurrence over time, all replicas at once."""
        leading, flat = flattened(self, weights)
        drive_NMC = self._drive(flat)
        always_on = torch.cat([inputs, torch.ones_like(inputs[..., :1])], -1).to(drive_NMC.dtype)
        drive_NBTM = torch.einsum("nmc,btc->nbtm", drive_NMC, always_on)
        states_NBTM = linear_scan(self.eigenvalues(flat), drive_NBTM)
        # the real part of C h by real products: half of the complex ones would make an imaginary part that nobody reads
        states = torch.cat([states_NBTM.real, states_NBTM.imag], -1)
        readout_NOM = torch.cat([flat["readout_re"], -flat["readout_im"]], -1)
        answers = torch.einsum("nbtm,nom->nbto", states, readout_NOM) + flat["readout_bias"][:, None, None]
        if self.config.skip:
            answers = answers + torch.einsum("noi,bti->nbto", flat["skip"], inputs)
        return answers.unflatten(0, leading)

    def response(self, weights: Weights, horizon: int) -> Response:
        readout_NOM = torch.complex(weights["readout_re"], weights["readout_im"])
        # the modes do not mix: a path runs from one input through one mode to one output
        amplitudes = readout_NOM.unsqueeze(-2) * self._drive(weights).transpose(-1, -2).unsqueeze(-3)
        outputs, channels = amplitudes.shape[-3:-1]
        flat = diagonal_response(amplitudes.flatten(-3, -2), self.eigenvalues(weights), horizon).real
        answers_NOCT = flat.unflatten(-2, (outputs, channels))
        # the bias is an input that is always on: at step t it is the sum of its answers at lags 0 ... t
        drift_NOT = answers_NOCT[..., -1, :].cumsum(-1) + weights["readout_bias"].unsqueeze(-1)
        kernel_NOIT = answers_NOCT[..., :-1, :]
        if self.config.skip:
            kernel_NOIT = torch.cat([kernel_NOIT[..., :1] + weights["skip"].unsqueeze(-1), kernel_NOIT[..., 1:]], -1)
        return Response(kernel=kernel_NOIT, drift=drift_NOT)

    def as_modes(self, weights: Weights) -> Modes | None:
        if self.config.skip:
            return None
        readout_NOM = torch.complex(weights["readout_re"], weights["readout_im"])
        input_NM, bias_NM = self._drive(weights).unbind(-1)
        return Modes(input_NM, bias_NM, readout_NOM, self.eigenvalues(weights), weights["readout_bias"])

    def balanced(self, weights: Weights) -> dict[str, Tensor]:
        """Encoder and readout of equal size in every mode; a trained gamma gets its exact value, B and b the rest."""
        return balanced_modes(weights)


def balanced_modes(weights: Weights) -> dict[str, Tensor]:
    """Weights of an LRU, by the names of this file, in the balanced gauge; see ``LRU.balanced``."""
    result = dict(weights)
    moved = torch.ones_like(weights["nu"])
    if "gamma_log" in weights:
        result["gamma_log"] = log_gamma(weights["nu"])
        # B and b take over what gamma gives up: their product, all that the model sees, stays
        moved = torch.exp(weights["gamma_log"] - result["gamma_log"])
    encoder = moved * _norm(weights["encoder_re"], weights["encoder_im"], -1)
    readout = _norm(weights["readout_re"], weights["readout_im"], -2)
    alive = (encoder > 0) & (readout > 0)  # a mode without input or output has no gauge to choose
    scale = (torch.where(alive, encoder, 1.0) / torch.where(alive, readout, 1.0)).sqrt()
    inward = moved / scale
    return (
        result
        | {name: weights[name] * inward.unsqueeze(-1) for name in ("encoder_re", "encoder_im")}
        | {name: weights[name] * inward for name in ("bias_re", "bias_im") if name in weights}
        | {name: weights[name] * scale.unsqueeze(-2) for name in ("readout_re", "readout_im")}
    )


def eigenvalue(nu: Tensor, theta: Tensor) -> Tensor:
    """exp(-exp(nu) + i exp(theta)), complex."""
    size, phase = torch.exp(-torch.exp(nu)), torch.exp(theta)
    return torch.complex(size * torch.cos(phase), size * torch.sin(phase))


def log_gamma(nu: Tensor) -> Tensor:
    """log sqrt(1 - |lambda|^2), without the cancellation of a slow mode: |lambda|^2 = exp(-2 exp(nu))."""
    return 0.5 * torch.log(-torch.expm1(-2.0 * torch.exp(nu)))


def _norm(real: Tensor, imaginary: Tensor, dim: int) -> Tensor:
    return torch.sqrt(real.square().sum(dim) + imaginary.square().sum(dim))


def ring_weights(config: RingConfig, width: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """nu and theta of ``width`` eigenvalues, uniform on the area of the config's ring: |lambda|^2 is uniform."""
    place, turn = rng.uniform(size=(2, width)).clip(_EDGE, 1.0 - _EDGE)
    squares = config.r_min**2 + place * (config.r_max**2 - config.r_min**2)
    # |lambda| = exp(-exp(nu)), solved for nu
    return np.log(-0.5 * np.log(squares)), np.log(config.max_phase * turn)


def _spread(width: int, horizon: int, rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray]:
    """nu and theta of modes on all time scales that hardly turn."""
    decays = spread_rates(width, horizon, rng)
    return np.log(decays), np.log(TURN * decays * rng.uniform(size=width).clip(_EDGE, 1.0))
