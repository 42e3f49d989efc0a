"""The family of recurrent networks with one recurrent matrix: free, orthogonal or non-normal, with gains in time.

    h_t = rho_t sigma(U e(x_t) + b + V h_{t-1}),   h_{-1} = 0,   y_t = C h_t + d

with an embedding e (linear and trained, or none), an activation sigma and gains rho. Each model makes V in its own
way: any matrix (``rnn``), a rotation (``exp_rnn``, arXiv 1901.08428), any orthogonal matrix
(``orthogonal_rnn``), or an orthogonal basis of a non-normal triangle (``nn_rnn``, arXiv 1905.12080).

The gains are those of the Stair RNN, an activation of each step's own: the fixed ones rise to 1 in time. Fixed or
trained (``alpha``), h_t = rho_t sigma(a_t) with the pre-activation a_t; with ``exp_alpha`` they are trained rates,
h_t = (1 - exp(-rho_t a_t)) sigma(a_t), which grows without limit where a_t < 0: with modrelu, and inputs as large as
the numbers of copying memory, states overflow before any training; with its one-hot inputs, or pixels, they do not.
Steps count from 0 at the beginning of every window: where states are carried over from the window before, the gains
start again, as published. Trained gains have the length of the task, 220 steps in the published code whatever the task;
where a sequence is longer, the last one goes on.

The gradient through k steps is a product of k matrices rho_t diag(sigma') V. With |sigma'| <= 1 its norm is at most
the product of |rho_t| |V|, whatever the inputs: for an orthogonal V that is the product of the gains alone.

Each activation is what it is called; in the published code ``relu`` is none at all.

Letters: see memsweep.models.base; E size of the embedding.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy as np
import torch
from torch import Tensor

from memsweep.models.affine import driven_response, equalized
from memsweep.models.base import LayerModel, Part, Response, Role, Signature, Traits, Weights, flattened
from memsweep.models.matrix.config import EXP_ALPHA, LEARNED, LINEAR, NONE, MatrixConfig, initial_gains, schedule
from memsweep.models.matrix.initial import XAVIER, input_matrix
from memsweep.models.spectrum import eigenvalues, spectral_norm
from memsweep.recurrence.cell import MODRELU, Cell
from memsweep.recurrence.gained import cell_slopes, gained_scan
from memsweep.recurrence.layer import Layer, affine

_NEAR = 0.1
"""Entries of the embedding start uniform within this, as published."""
_THRESHOLD = 0.01
"""Thresholds of modrelu start uniform within this, as published."""


class MatrixRNN(LayerModel):
    """Base of the family: everything but the recurrent matrix.

    Without gains and with an activation of ``memsweep.recurrence.layer`` a model is one of its layers; without gains
    and activation it is linear.
    """

    Config: ClassVar[type] = MatrixConfig

    @classmethod
    @abstractmethod
    def recurrent_roles(cls, config: Any) -> dict[str, Role]:
        """The roles of the raw weights of the recurrent matrix."""

    @classmethod
    @abstractmethod
    def recurrent_initial(cls, config: Any, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """Initial values of these weights."""

    @abstractmethod
    def matrix(self, weights: Weights) -> Tensor:
        """V, ``[N..., M, M]``, differentiable."""

    def norm(self, weights: Weights) -> Tensor:
        """The spectral norm of V, ``[N...]``."""
        return spectral_norm(self.matrix(weights))

    @classmethod
    def roles(cls, config: MatrixConfig) -> Mapping[str, Role]:
        roles = {"encoder_weight": Role(Part.ENCODER, ("width", "embedding" if config.embedding else "input"))}
        if config.embedding:
            roles["embedding"] = Role(Part.ENCODER, ("embedding", "input"))
        if config.bias:
            roles["encoder_bias"] = Role(Part.BIAS, ("width",))
        if config.activation == MODRELU:
            roles["threshold"] = Role(Part.BIAS, ("width",))
        roles |= cls.recurrent_roles(config)
        if config.stair in LEARNED:
            # gains multiply V and so decide how long an input is kept: a recurrent weight, a diagonal over the steps
            roles["gains"] = Role(Part.RECURRENT, ("step",), diagonal=True)
        return roles | {
            "readout_weight": Role(Part.READOUT, ("output", "width")),
            "readout_bias": Role(Part.BIAS, ("output",)),
        }

    @classmethod
    def initial(cls, config: MatrixConfig, signature: Signature, rng: np.random.Generator) -> dict[str, np.ndarray]:
        """The readout as Glorot has it, biases zero, the rest as the fields say."""
        width, embedding = config.width, config.embedding
        weights = {
            "encoder_weight": input_matrix(config.input_initialization, width, embedding or signature.inputs, rng)
        }
        if embedding:
            weights["embedding"] = rng.uniform(-_NEAR, _NEAR, (embedding, signature.inputs))
        if config.bias:
            weights["encoder_bias"] = np.zeros(width)
        if config.activation == MODRELU:
            weights["threshold"] = rng.uniform(-_THRESHOLD, _THRESHOLD, width)
        weights |= cls.recurrent_initial(config, rng)
        if config.stair in LEARNED:
            weights["gains"] = initial_gains(config.stair, signature.horizon, rng)
        return weights | {
            "readout_weight": input_matrix(XAVIER, signature.outputs, width, rng),
            "readout_bias": np.zeros(signature.outputs),
        }

    @classmethod
    def traits(cls, config: MatrixConfig) -> Traits:
        return Traits(
            linear=config.activation == LINEAR and config.stair == NONE,
            layer=config.activation != MODRELU and config.stair == NONE,
            carries_states=True,
        )

    @classmethod
    def is_matrix_recurrence(cls, config: MatrixConfig) -> bool:
        """Whether V itself is the recurrence of small states; with relu and modrelu it is not."""
        return config.activation in (LINEAR, "tanh", "hardtanh") and config.stair == NONE

    def eigenvalues(self, weights: Weights) -> Tensor | None:
        """Of V, complex; None where it is not the recurrence of small states."""
        return eigenvalues(self.matrix(weights)) if self.is_matrix_recurrence(self.config) else None

    def layer(self, weights: Weights) -> Layer:
        _, weights = flattened(self, weights)
        return Layer(
            encoder=self._encoder(weights),
            bias=self._bias(weights),
            matrix=self.matrix(weights),
            readout=weights["readout_weight"],
            offset=weights["readout_bias"],
            activation=self.config.activation,
        )

    def outputs(self, weights: Weights, inputs: Tensor, live: Tensor | None = None) -> Tensor:
        if self.traits(self.config).layer:
            return super().outputs(weights, inputs, live)
        return self.outputs_from(weights, inputs, None)[0]

    def outputs_from(self, weights: Weights, inputs: Tensor, states: Tensor | None) -> tuple[Tensor, Tensor]:
        leading, flat = flattened(self, weights)
        before_NBM = None if states is None else states.flatten(0, len(leading) - 1)
        states_NBTM = gained_scan(*self.recurrence(flat, inputs), before_NBM)
        answers_NBTO = affine(states_NBTM, flat["readout_weight"], flat["readout_bias"])
        # a copy, because a view would keep the states of all steps in memory
        last_NBM = states_NBTM[:, :, -1].clone()
        return answers_NBTO.unflatten(0, leading), last_NBM.unflatten(0, leading)

    def recurrence(self, weights: Weights, inputs: Tensor) -> tuple[Tensor, Tensor, Cell]:
        """Drive ``[N, B, T, M]``, matrix and cell for ``gained_scan``, from weights with one leading dimension."""
        encoder_NMI = self._encoder(weights)
        x_NBTI = inputs.expand(len(encoder_NMI), *inputs.shape)
        drive_NBTM = affine(x_NBTI, encoder_NMI, self._bias(weights))
        cell = Cell(
            activation=self.config.activation,
            threshold=weights.get("threshold"),
            gains=self.step_gains(weights, inputs.shape[1]),
            exponential=self.config.stair == EXP_ALPHA,
        )
        return drive_NBTM, self.matrix(weights), cell

    def step_gains(self, weights: Weights, steps: int) -> Tensor | None:
        """rho of the first steps, ``[N, T]`` (trained gains: all of the task); None without a stair."""
        if self.config.stair == NONE:
            return None
        if self.config.stair in LEARNED:
            return weights["gains"]
        like = weights["readout_bias"]
        return torch.as_tensor(schedule(self.config.stair, steps)).to(like).expand(len(like), -1)

    def jacobians(self, weights: Weights, inputs: Tensor) -> Iterator[Tensor]:
        with torch.no_grad():
            drive_NBTM, matrix_NMM, cell = self.recurrence(weights, inputs)
            states_NBTM = gained_scan(drive_NBTM, matrix_NMM, cell)
        return _jacobians(drive_NBTM, matrix_NMM, cell, states_NBTM)

    def gradient_bound(self, weights: Weights, horizon: int) -> Tensor | None:
        """The product of |rho_t| |V| over the last k steps; none is known for ``exp_alpha``.

        Where modrelu jumps (at 0, with a threshold above 0) it has no derivative; everywhere else it has at most 1.
        """
        if self.config.stair == EXP_ALPHA:
            return None
        with torch.no_grad():
            factor_NT = self.norm(weights).unsqueeze(-1).expand(-1, horizon)
            gains_NS = self.step_gains(weights, horizon)
            if gains_NS is not None:
                step_T = torch.arange(horizon).clamp(max=gains_NS.shape[1] - 1)
                factor_NT = factor_NT * gains_NS[:, step_T].abs()
            # at lag k stand the factors of the last k steps, so the product runs from the end
            backward_NT = factor_NT.flip(-1)
            return torch.cat([torch.ones_like(backward_NT[:, :1]), backward_NT[:, :-1].cumprod(-1)], -1)

    def response(self, weights: Weights, horizon: int) -> Response:
        return driven_response(
            self.matrix(weights),
            self._encoder(weights),
            self._bias(weights),
            weights["readout_weight"],
            weights["readout_bias"],
            horizon,
        )

    def balanced(self, weights: Weights) -> dict[str, Tensor]:
        """|U| = |C| (Frobenius), and |e| where there is one, by one scale for all units."""
        maps = [(weights["encoder_weight"], self._bias(weights)), (weights["readout_weight"], weights["readout_bias"])]
        names = ["encoder_weight", "readout_weight"]
        if self.config.embedding:
            embedding = weights["embedding"]
            # the embedding has no bias: a zero one makes it an affine map like the others
            maps, names = [(embedding, torch.zeros_like(embedding[..., 0])), *maps], ["embedding", *names]
        scaled = equalized(maps)
        balanced = dict(weights) | {name: weight for name, (weight, _) in zip(names, scaled, strict=True)}
        return balanced | {"encoder_bias": scaled[-2][1]} if self.config.bias else balanced

    def _encoder(self, weights: Weights) -> Tensor:
        """The map from inputs to states, embedding and input weights multiplied: ``[N..., M, I]``."""
        encoder = weights["encoder_weight"]
        return encoder @ weights["embedding"] if self.config.embedding else encoder

    def _bias(self, weights: Weights) -> Tensor:
        return weights["encoder_bias"] if self.config.bias else torch.zeros_like(weights["encoder_weight"][..., 0])


def _jacobians(drive_NBTM: Tensor, matrix_NMM: Tensor, cell: Cell, states_NBTM: Tensor) -> Iterator[Tensor]:
    # one step at a time: the Jacobians of all would take M times the memory of the states
    for step in range(drive_NBTM.shape[2] - 1, 0, -1):
        with torch.no_grad():
            pre_NBM = drive_NBTM[:, :, step] + states_NBTM[:, :, step - 1] @ matrix_NMM.mT
            jacobian_NBMM = cell_slopes(pre_NBM, cell, step).unsqueeze(-1) * matrix_NMM.unsqueeze(1)
        yield jacobian_NBMM
