"""The baseline: one training step of the published per-sample loop, written plainly.

The code published with arXiv 2305.19190 trains one model at a time, step of time after step of time, in Python:

    h_{t+1} = h_t + dt sigma( u x_t + b - P' (relu(w) * (P h_t)) ),   h_0 = 0,   y_t = c . h_{t+1} + d

for every sequence of the batch, where P' ( ... P h ) are two linear maps of the states with a product in between (the
diagonal model has no P), torch's autograd goes back through the loop, and AdamW takes the step after the gradient's
norm was clipped at 0.5. This module does those operations in that order, and nothing slower: the weights of the loss,
which that code fills in element by element at every step, are made once here; its penalty on the stability margin, its
data loader and its logging are left out.

Letters: B batch, T time, M width, I inputs (1), O outputs (1).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, Self

import torch
from torch import Tensor, nn
from torch.nn.functional import hardtanh, linear, mse_loss, relu

from memsweep.models.base import Model

CLIP: Final = 0.5
LEARNING_RATE: Final = 0.01
ACTIVATIONS: Final[Mapping[str, Callable[[Tensor], Tensor]]] = {
    "linear": nn.Identity(),
    "hardtanh": hardtanh,
    "tanh": torch.tanh,
    "relu": relu,
}
NAMES: Final = {
    "rates": "recurrent_weight",
    "basis": "basis",
    "encoder.weight": "encoder_weight",
    "encoder.bias": "encoder_bias",
    "readout.weight": "readout_weight",
    "readout.bias": "readout_bias",
}
"""Of the weights, and what our models call them."""


class PublishedLoop(nn.Module):
    """A diagonal or dense recurrence between a linear encoder and a linear readout.

    Args:
        width: M.
        activation: sigma: linear, hardtanh, tanh or relu.
        dense: with a basis P.
        dt: length of a time step.
        dtype: of the weights.
    """

    def __init__(self, width: int, activation: str, dense: bool, dt: float, dtype: torch.dtype) -> None:
        super().__init__()
        self.encoder = nn.Linear(1, width, dtype=dtype)
        self.rates = nn.Parameter(torch.zeros(width, dtype=dtype))
        self.basis = nn.Parameter(torch.eye(width, dtype=dtype)) if dense else None
        self.readout = nn.Linear(width, 1, dtype=dtype)
        self.activation, self.dt = ACTIVATIONS[activation], dt

    @classmethod
    def like(cls, model: Model) -> Self:
        """With the weights of a ``diagonal_rnn``, or of a ``dense_rnn`` with basis ``free``.

        Raises:
            ValueError: the model's config computes something else than the published code.
        """
        config, weights = model.config, {name: weight.detach() for name, weight in model.named_parameters()}
        dense = "basis" in weights
        same = config.discretization == "euler" and config.parameterization.name == "relu" and not config.normalize
        if not same or config.dt != 1.0 or (dense and config.basis != "free"):
            raise ValueError(
                "the published loop is Euler's step of length 1 with the parameterization relu and, of a dense model, "
                f"basis free; this config is {config}"
            )
        loop = cls(config.width, config.activation, dense, config.dt, weights["recurrent_weight"].dtype)
        loop.load_state_dict({mine: weights[theirs] for mine, theirs in NAMES.items() if theirs in weights})
        return loop

    def forward(self, inputs_BTI: Tensor) -> Tensor:
        """Outputs ``[B, T, O]``."""
        drive_BTM = self.encoder(inputs_BTI)
        states = [drive_BTM.new_zeros(1, 1, drive_BTM.shape[-1])]
        for t in range(drive_BTM.shape[1]):
            state = states[-1]
            states.append(state + self.dt * self.activation(drive_BTM[:, t : t + 1] - self._decay(state)))
        return self.readout(torch.cat(states[1:], 1))

    def _decay(self, state: Tensor) -> Tensor:
        """The amount that the linear part takes from the states in a unit of time."""
        rates = relu(self.rates)
        if self.basis is None:
            return state * rates
        return linear(linear(state, self.basis) * rates, self.basis.t())

    def loss(self, inputs_BTI: Tensor, targets_BTO: Tensor, weights_T: Tensor) -> Tensor:
        """The temporally weighted squared error, mean over everything of w_t^2 (y - target)^2."""
        weights_TO = weights_T.unsqueeze(-1)
        return mse_loss(self(inputs_BTI) * weights_TO, targets_BTO * weights_TO)


class PublishedTraining:
    """A model in training by the published protocol, on one batch that lies ready.

    Args:
        loop: the model.
        inputs_BTI, targets_BTO: the batch.
        weights_T: temporal weights of the loss.
    """

    def __init__(self, loop: PublishedLoop, inputs_BTI: Tensor, targets_BTO: Tensor, weights_T: Tensor) -> None:
        self.loop = loop
        self.data = inputs_BTI, targets_BTO, weights_T
        self.optimizer = torch.optim.AdamW(loop.parameters(), lr=LEARNING_RATE, weight_decay=0.0)

    def step(self) -> Tensor:
        """One optimizer step; the loss before it."""
        self.optimizer.zero_grad()
        loss = self.loop.loss(*self.data)
        loss.backward()
        nn.utils.clip_grad_norm_(self.loop.parameters(), CLIP)
        self.optimizer.step()
        return loss.detach()
