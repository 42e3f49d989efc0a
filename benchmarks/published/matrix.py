"""The baseline of ``matrix_step``: one network with a recurrent matrix, written plainly, as the published code is.

The code of expRNN, nnRNN and the Stair RNN trains one network at a time: it makes the recurrent matrix of its raw
weights by a call or two (torch.linalg.matrix_exp, torch.linalg.solve), goes from step to step in Python, and leaves the
gradient to torch's autograd:

    h_t = rho_t sigma(U x_t + b + V h_{t-1}),   h_{-1} = 0,   y_t = C h_t + d

with sigma = modrelu. This module does these operations in that order, and nothing slower: the matrix is made once a
sequence, all steps of the input are taken apart at once, the readout is one product. It computes what our models do.

Letters: B batch, T time, M width, I inputs, O outputs.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.functional import cross_entropy, normalize, relu

from memsweep.models.base import Model
from memsweep.models.matrix.config import schedule


class PublishedMatrix(nn.Module):
    """One network with the weights of one of our models.

    Args:
        model: of the family of memsweep.models.matrix.base, with the activation modrelu and without an embedding.

    Raises:
        ValueError: the model is something else.
    """

    def __init__(self, model: Model) -> None:
        super().__init__()
        self.config: Any = model.config
        if self.config.activation != "modrelu" or self.config.embedding:
            raise ValueError(f"the plain network has modrelu and no embedding; this config is {self.config}")
        for name, weight in model.named_parameters():
            self.register_parameter(name, nn.Parameter(weight.detach().clone()))
        size = self.config.width
        self.direction = torch.full((size,), size**-0.5, dtype=next(self.parameters()).dtype)

    def forward(self, inputs_BTI: Tensor) -> Tensor:
        """Outputs ``[B, T, O]``."""
        matrix_MM, on_input = self._matrix(), self.config.name == "published_rnn_orth"
        gains = self._gains(inputs_BTI.shape[1])
        states = []
        state_BM = inputs_BTI.new_zeros(len(inputs_BTI), len(matrix_MM))
        for step, input_BI in enumerate(inputs_BTI.unbind(1)):
            driven_BM = input_BI @ self.encoder_weight.T
            if self.config.bias:
                driven_BM = driven_BM + self.encoder_bias
            image_BM = state_BM @ matrix_MM.T
            if on_input:
                state_BM = self._modrelu(driven_BM) + image_BM
                state_BM = state_BM if gains is None else gains[step] * state_BM
            else:
                a_BM = driven_BM + image_BM
                state_BM = self._modrelu(a_BM)
                if gains is not None:
                    exponential = self.config.stair == "exp_alpha"
                    state_BM = (1.0 - torch.exp(-gains[step] * a_BM) if exponential else gains[step]) * state_BM
            states.append(state_BM)
        return torch.stack(states, 1) @ self.readout_weight.T + self.readout_bias

    def loss(self, inputs_BTI: Tensor, targets_BT: Tensor) -> Tensor:
        """Mean cross entropy of all steps."""
        return cross_entropy(self(inputs_BTI).flatten(0, 1), targets_BT.flatten())

    def _modrelu(self, z_BM: Tensor) -> Tensor:
        return torch.sign(z_BM) * relu(torch.abs(z_BM) + self.threshold)

    def _gains(self, steps: int) -> Any:
        if self.config.stair == "none":
            return None
        if self.config.stair in ("alpha", "exp_alpha"):
            return self.gains.unbind()
        return schedule(self.config.stair, steps).tolist()

    def _matrix(self) -> Tensor:
        name = self.config.name
        if name == "rnn":
            return self.recurrent_weight
        if name == "orthogonal_rnn":
            return _nearest_orthogonal(self.recurrent_weight)
        if name == "published_rnn_orth":
            return self.recurrent_weight / self._estimated_norm()
        rotation_MM = self._rotation()
        return rotation_MM if name == "exp_rnn" else rotation_MM @ self._blocks() @ rotation_MM.T

    def _estimated_norm(self) -> Tensor:
        """|V| by one step of the power iteration that goes on from use to use."""
        matrix_MM = self.recurrent_weight
        with torch.no_grad():
            left = normalize(matrix_MM @ self.direction, dim=0)
            self.direction.copy_(normalize(matrix_MM.T @ left, dim=0))
        return left @ matrix_MM @ self.direction.clone()

    def _rotation(self) -> Tensor:
        skew_MM = self.generator.triu(1) - self.generator.triu(1).T
        if self.config.map == "exponential":
            return torch.linalg.matrix_exp(skew_MM)
        one_MM = torch.eye(len(skew_MM), dtype=skew_MM.dtype)
        return torch.linalg.solve(one_MM + skew_MM, one_MM - skew_MM)

    def _blocks(self) -> Tensor:
        """Theta: the blocks of the eigenvalues, and the triangle above them."""
        cos, sin = self.moduli * self.angles.cos(), self.moduli * self.angles.sin()
        blocks = torch.stack([torch.stack([cos, -sin], -1), torch.stack([sin, cos], -1)], -2)
        places = torch.block_diag(*torch.ones(len(cos), 2, 2, dtype=cos.dtype))
        return self.triangle.triu(1) * (1.0 - places) + torch.block_diag(*blocks)


def _nearest_orthogonal(matrix_MM: Tensor) -> Tensor:
    """The polar factor by Newton's iteration, which starts near it; torch's decompositions have no gradient there."""
    change = 1.0
    while change > 1e-6:  # the error of the next one is its square
        before_MM, matrix_MM = matrix_MM, 0.5 * (matrix_MM + torch.linalg.inv(matrix_MM).T)
        change = float((matrix_MM - before_MM).detach().abs().max())
    return matrix_MM


class PublishedMatrixTraining:
    """A network in training on one batch that lies ready, by RMSprop.

    Args:
        network: the model.
        inputs_BTI, targets_BT: the batch.
    """

    def __init__(self, network: PublishedMatrix, inputs_BTI: Tensor, targets_BT: Tensor) -> None:
        self.network, self.data = network, (inputs_BTI, targets_BT)
        self.optimizer = torch.optim.RMSprop(network.parameters(), lr=1e-6, alpha=0.99)

    def step(self) -> Tensor:
        """One optimizer step; the loss before it."""
        self.optimizer.zero_grad()
        loss = self.network.loss(*self.data)
        loss.backward()
        self.optimizer.step()
        return loss.detach()
