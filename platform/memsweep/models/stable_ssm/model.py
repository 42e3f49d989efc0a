"""The state-space model of StableSSM (arXiv 2311.14495): S4D-like layers between a linear encoder and readout.

Every channel of a layer convolves its input with a kernel of its own. With S = state_size / 2 complex modes of
A_s = -f(w_s) + i frequency_s, f the rate that the parameterization makes of the raw weight w, input held over steps of
length dt = exp(log_dt), and output weights C_s, which hold the input's weights as well (S4D, arXiv 2206.11893):

    K_l = 2 Re sum_s C_s (e^{dt A_s} - 1)/A_s e^{dt A_s l}
    y   = mix(activation(K * x + skip x)),   mix(v) = GLU(glu_weight v + glu_bias), or v without ``glu``
    x'  = LayerNorm(y + x)                   (without x without ``residual``, without LayerNorm without ``layer_norm``)

The parameterization maps the rates alone. Frequencies are free weights, as published, or multiples of the mode's rate
(``frequency: relative``): the paper's modulus bounds what a shift of w does, and a shift of a free frequency, which
turns a slow mode many times while it lasts, is not bounded by it.

The sign of ``direct`` is Re A = -w, so that its kernels decay from the start; the code published with the paper has
Re A = +0.5 there, and its kernels grow. ``best`` has a = 1 and b = 0.1 in that code, b = 0.5 in its notebook and here
(fields of the parameterization). The step dt is trained, so ``lru`` is the same map as ``exp`` here: a rate per unit
of time.

Letters: N replicas and copies, M channels (width), S modes of a channel; else see memsweep.models.base.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import Tensor
from torch.nn import functional

from memsweep.config.core.fields import setting
from memsweep.models import initialization
from memsweep.models.base import LinearModel, Part, Response, Role, Signature, Traits, Weights, flattened
from memsweep.models.parameterizations.base import EXACT, build
from memsweep.models.parameterizations.maps import Exp
from memsweep.models.stable_ssm import legs
from memsweep.models.stable_ssm.layer import causal_convolution, discretized, kernel, layer_norm
from memsweep.registry import register_model

FREE, RELATIVE = "free", "relative"
FREQUENCIES = (FREE, RELATIVE)

LEGS = "legs"
MOST_STATES = 4096
"""Of a channel that starts from LegS, whose eigenvectors are that many times that many numbers."""
CLIP = 2.0
"""Largest input weight of a LegS mode, as in the code published with S4."""
RATE = legs.RATE
"""Of every mode, when published or legs; a map whose rates do not reach it starts near its fastest."""
TURN = 0.1
"""Largest frequency in units of the mode's rate, when spread: a mode forgets before it turns."""


def initial_layer(config: Any, horizon: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Weights of one layer by name (without the layer's number), float64.

    Args:
        config: of the model.
        horizon: sequence length.
        rng: where the numbers come from.
    """
    if config.initialization in (initialization.PUBLISHED, LEGS):
        return _published_modes(config, rng) | _around_modes(config, rng)
    return _spread_modes(config, horizon, rng) | _around_modes(config, rng)


def _published_modes(config: Any, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Rates of 0.5; of S4D-Lin frequencies pi n and inputs of weight 1, of LegS its own (half, clipped)."""
    width, modes = config.width, config.state_size // 2
    frequencies, drive = math.pi * np.arange(modes), np.ones(modes)
    if config.initialization == LEGS:
        frequencies, drive = legs.modes(config.state_size)
        drive = drive.clip(max=CLIP) / 2.0
    unit = 1.0 / RATE if config.frequency == RELATIVE else 1.0
    deviation = math.sqrt(0.5)  # of real and imaginary part: E|C|^2 = 1
    return {
        "log_dt": rng.uniform(math.log(config.dt_min), math.log(config.dt_max), width),
        "raw_rate": _raw(config, np.full((width, modes), RATE)),
        "frequency": np.tile(unit * frequencies, (width, 1)),
        "output_re": rng.standard_normal((width, modes)) * deviation * drive,
        "output_im": rng.standard_normal((width, modes)) * deviation * drive,
    }


def _spread_modes(config: Any, horizon: int, rng: np.random.Generator) -> dict[str, np.ndarray]:
    width, modes = config.width, config.state_size // 2
    # neighbouring rates go to different channels, so that each channel has all time scales
    rates = initialization.spread_rates(width * modes, horizon, rng).reshape(modes, width).T.copy()
    return {
        "log_dt": np.zeros(width),
        "raw_rate": _raw(config, rates),
        "frequency": TURN * (1.0 if config.frequency == RELATIVE else rates) * rng.uniform(size=(width, modes)),
        "output_re": rng.standard_normal((width, modes)) / modes,
        "output_im": rng.standard_normal((width, modes)) / modes,
    }


def _raw(config: Any, rates: np.ndarray) -> np.ndarray:
    return build(config.parameterization).raw_for(torch.from_numpy(rates), 1.0, EXACT).numpy()


def _around_modes(config: Any, rng: np.random.Generator) -> dict[str, np.ndarray]:
    """The rest of a layer; the mix and the normalization start as torch.nn.Conv1d and torch.nn.LayerNorm do."""
    width, near = config.width, 1.0 / math.sqrt(config.width)
    weights: dict[str, np.ndarray] = {}
    if config.skip:
        spread = config.initialization == initialization.SPREAD
        weights["skip"] = np.zeros(width) if spread else rng.standard_normal(width)
    if config.glu:
        weights["glu_weight"] = rng.uniform(-near, near, (2 * width, width))
        weights["glu_bias"] = rng.uniform(-near, near, 2 * width)
    if config.layer_norm:
        weights |= {"norm_weight": np.ones(width), "norm_bias": np.zeros(width)}
    return weights


_ACTIVATIONS: dict[str, Callable[[Tensor], Tensor]] = {
    "gelu": functional.gelu,
    "linear": lambda x: x,
    "tanh": torch.tanh,
    "hardtanh": functional.hardtanh,
    "relu": torch.relu,
}


@register_model("stable_ssm")
class StableSSM(LinearModel):
    """Deep state-space model; linear with one layer, a linear activation, no GLU and no layer norm."""

    @dataclass(frozen=True, kw_only=True)
    class Config:
        """Layers of one state-space kernel per channel, with complex modes, trained steps and a gated mix."""

        width: int = setting(8, "number of channels", at_least=1, at_most=1_000_000)
        state_size: int = setting(
            64, "states of a channel: half as many complex modes, each for a conjugate pair", at_least=2, at_most=65_536
        )
        layers: int = setting(1, "number of layers", at_least=1, at_most=1000)
        parameterization: Any = setting(
            doc="map from the raw recurrent weights to decay rates per unit of time, -Re A",
            factory=Exp.Config,
            registered="parameterization",
        )
        frequency: str = setting(
            FREE,
            "what a frequency weight means: free (radians per unit of time, as published: a small shift turns a slow "
            "mode many times while it lasts) or relative (a multiple of the mode's rate, so that a shift turns every "
            "mode alike)",
            choices=FREQUENCIES,
        )
        activation: str = setting("gelu", "activation after the convolution", choices=tuple(_ACTIVATIONS))
        skip: bool = setting(True, "add a trained multiple of its input to what a channel answers")
        glu: bool = setting(True, "mix the channels by a linear map with a gate after the activation")
        residual: bool = setting(True, "add the input of a layer to its output")
        layer_norm: bool = setting(True, "normalize the channels after the residual")
        initialization: str = setting(
            initialization.PUBLISHED,
            "initial weights: published (S4D-Lin: rates 0.5 and frequencies pi n per unit of time, log-uniform "
            "steps), legs (the same with the frequencies and input weights of HiPPO-LegS, S4D-LegS: the diagonal form "
            "of the published s4) or spread (steps of 1, rates log-uniform between 1/horizon and 1 per step in every "
            "channel, almost no rotation, no skip), for long memory",
            choices=(*initialization.CHOICES, LEGS),
        )
        dt_min: float = setting(1e-3, "shortest initial step, when published or legs", at_least=1e-6, at_most=1e3)
        dt_max: float = setting(0.1, "longest initial step, when published or legs", at_least=1e-6, at_most=1e3)

        def problems(self) -> Iterable[str]:
            if self.state_size % 2:
                yield f"state_size is {self.state_size}, but states come in conjugate pairs: use an even number"
            if self.dt_min > self.dt_max:
                yield f"dt_min ({self.dt_min:g}) must be at most dt_max ({self.dt_max:g})"
            if self.initialization == LEGS and self.state_size > MOST_STATES:
                yield (
                    f"state_size is {self.state_size}, but initialization legs takes at most {MOST_STATES} states: "
                    "use fewer, or initialization published"
                )

    @classmethod
    def roles(cls, config: Config) -> Mapping[str, Role]:
        """Steps and frequencies are recurrent, like the raw rates, but no parameterization maps them."""
        modes = ("width", "mode")
        roles = {
            "encoder_weight": Role(Part.ENCODER, ("width", "input")),
            "encoder_bias": Role(Part.BIAS, ("width",)),
        }
        for layer in range(config.layers):
            layer_roles = {
                "raw_rate": Role(Part.RECURRENT, modes, diagonal=True, rate=True),
                "frequency": Role(Part.RECURRENT, modes, diagonal=True),
                "log_dt": Role(Part.RECURRENT, ("width",), diagonal=True),
                "output_re": Role(Part.READOUT, modes),
                "output_im": Role(Part.READOUT, modes),
            }
            if config.skip:
                layer_roles["skip"] = Role(Part.GAIN, ("width",))
            if config.glu:
                layer_roles["glu_weight"] = Role(Part.READOUT, ("gated", "width"))
                layer_roles["glu_bias"] = Role(Part.BIAS, ("gated",))
            if config.layer_norm:
                layer_roles["norm_weight"] = Role(Part.GAIN, ("width",))
                layer_roles["norm_bias"] = Role(Part.BIAS, ("width",))
            roles |= {f"{name}_l{layer}": role for name, role in layer_roles.items()}
        return roles | {
            "readout_weight": Role(Part.READOUT, ("output", "width")),
            "readout_bias": Role(Part.BIAS, ("output",)),
        }

    @classmethod
    def traits(cls, config: Config) -> Traits:
        plain = config.layers == 1 and not config.glu and not config.layer_norm
        return Traits(linear=plain and config.activation == "linear")

    @classmethod
    def initial(cls, config: Config, signature: Signature, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """See memsweep.models.stable_ssm.model, and memsweep.models.initialization for encoder and readout."""
        weights: dict[str, np.ndarray] = {}
        for layer in range(config.layers):
            drawn = initial_layer(config, signature.horizon, rng)
            weights |= {f"{name}_l{layer}": value for name, value in drawn.items()}
        around = initialization.PUBLISHED if config.initialization == LEGS else config.initialization
        return weights | initialization.encoder_and_readout(around, config.width, signature, rng)

    def configure(self, configs: Sequence[Config]) -> None:
        self.parameterization = build(configs[0].parameterization)

    def _modes(self, weights: Weights, layer: int) -> tuple[Tensor, Tensor]:
        """Eigenvalues and input weights of a layer's modes: ``[N..., M, S]`` each."""
        rate, frequency = self.parameterization.rate(weights[f"raw_rate_l{layer}"]), weights[f"frequency_l{layer}"]
        if self.config.frequency == RELATIVE:
            frequency = frequency * rate
        return discretized(rate, frequency, weights[f"log_dt_l{layer}"])

    def _kernel(self, weights: Weights, layer: int, horizon: int) -> Tensor:
        """The impulse response of a layer's channels before the activation: ``[N..., M, T]``."""
        eigenvalues, gain = self._modes(weights, layer)
        output = torch.complex(weights[f"output_re_l{layer}"], weights[f"output_im_l{layer}"])
        answers = kernel(output, eigenvalues, gain, horizon)
        if not self.config.skip:
            return answers
        return torch.cat([answers[..., :1] + weights[f"skip_l{layer}"].unsqueeze(-1), answers[..., 1:]], -1)

    def eigenvalues(self, weights: Weights) -> Tensor:
        """Complex, of all layers: ``[N..., layers M S]``; one of each conjugate pair."""
        return torch.cat([self._modes(weights, layer)[0].flatten(-2) for layer in range(self.config.layers)], -1)

    def outputs(self, weights: Weights, inputs: Tensor) -> Tensor:
        leading, flat = flattened(self, weights)
        # channels stand before time and batch, so that convolutions and mixes are plain matrix products
        inputs_ITB = inputs.permute(2, 1, 0)
        x_NMTB = _mixed(flat["encoder_weight"], inputs_ITB.unsqueeze(0), flat["encoder_bias"])
        for layer in range(self.config.layers):
            x_NMTB = self._layer(flat, layer, x_NMTB)
        answers_NOTB = _mixed(flat["readout_weight"], x_NMTB, flat["readout_bias"])
        return answers_NOTB.permute(0, 3, 2, 1).unflatten(0, leading)

    def _layer(self, weights: Weights, layer: int, x_NMTB: Tensor) -> Tensor:
        kernel_NMT = self._kernel(weights, layer, x_NMTB.shape[2])
        answers_PTB = causal_convolution(x_NMTB.flatten(0, 1), kernel_NMT.flatten(0, 1))
        y_NMTB = _ACTIVATIONS[self.config.activation](answers_PTB.unflatten(0, x_NMTB.shape[:2]))
        if self.config.glu:
            mixed = _mixed(weights[f"glu_weight_l{layer}"], y_NMTB, weights[f"glu_bias_l{layer}"])
            y_NMTB = functional.glu(mixed, 1)
        if self.config.residual:
            y_NMTB = y_NMTB + x_NMTB
        if self.config.layer_norm:
            y_NMTB = layer_norm(y_NMTB, weights[f"norm_weight_l{layer}"], weights[f"norm_bias_l{layer}"])
        return y_NMTB

    def response(self, weights: Weights, horizon: int) -> Response:
        """Sum over the channels of encoder x kernel x readout; skip and residual answer at lag 0."""
        channels_NMT = self._kernel(weights, 0, horizon)
        if self.config.residual:
            channels_NMT = torch.cat([channels_NMT[..., :1] + 1.0, channels_NMT[..., 1:]], -1)
        # the encoder bias is one more input, which is always on
        encoder_NMC = torch.cat([weights["encoder_weight"], weights["encoder_bias"].unsqueeze(-1)], -1)
        paths = weights["readout_weight"].unsqueeze(-2) * encoder_NMC.transpose(-1, -2).unsqueeze(-3)
        outputs, inputs = paths.shape[-3:-1]
        answers_NOCT = (paths.flatten(-3, -2) @ channels_NMT).unflatten(-2, (outputs, inputs))
        drift_NOT = answers_NOCT[..., -1, :].cumsum(-1) + weights["readout_bias"].unsqueeze(-1)
        return Response(kernel=answers_NOCT[..., :-1, :], drift=drift_NOT)

    def balanced(self, weights: Weights) -> dict[str, Tensor]:
        """Scales every channel so that |encoder|^2 = |output|^2 + |readout|^2: input side against output side.

        Without ``residual`` the output weights (with skip) have a free scale, too: there |output| = |readout| as well.
        The residual, whose path has no weight, pins that scale.
        """
        encoder, readout = weights["encoder_weight"].norm(dim=-1), weights["readout_weight"].norm(dim=-2)
        output = torch.cat([weights["output_re_l0"], weights["output_im_l0"]], -1).norm(dim=-1)
        alive = (encoder > 0) & (readout > 0)  # a channel without input or output has no gauge to choose
        own = torch.ones_like(output)
        if not self.config.residual:
            free = alive & (output > 0)
            equal = (encoder * output * readout / math.sqrt(2.0)) ** (1.0 / 3.0)
            own = torch.where(free, equal / torch.where(free, output, 1.0), 1.0)
        # u, c, r: norms of encoder, output and readout
        # u^2/s = c^2 + s r^2 for s, the square of the encoder's scale; the form of the root that does not cancel
        fixed, moving = (output * own).square(), encoder * readout / own
        root = fixed + (fixed.square() + 4.0 * moving.square()).sqrt()
        scale = torch.where(alive, encoder * (2.0 / torch.where(alive, root, 1.0)).sqrt(), 1.0)
        balanced = dict(weights) | {
            "encoder_weight": weights["encoder_weight"] / scale.unsqueeze(-1),
            "encoder_bias": weights["encoder_bias"] / scale,
            "output_re_l0": weights["output_re_l0"] * own.unsqueeze(-1),
            "output_im_l0": weights["output_im_l0"] * own.unsqueeze(-1),
            "readout_weight": weights["readout_weight"] * (scale / own).unsqueeze(-2),
        }
        return balanced | ({"skip_l0": weights["skip_l0"] * own} if self.config.skip else {})


def _mixed(matrix_NOM: Tensor, x_NMTB: Tensor, bias_NO: Tensor) -> Tensor:
    """A linear map of the channels: ``[N, O, T, B]``."""
    return (matrix_NOM @ x_NMTB.flatten(2)).unflatten(2, x_NMTB.shape[2:]) + bias_NO[..., None, None]
