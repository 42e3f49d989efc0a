"""The non-normal recurrence: its blocks, its triangle, its eigenvalues and its penalty."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import torch
from torch import Tensor

from memsweep.models.base import Signature
from memsweep.models.matrix.nn_rnn import NonNormalRNN

SIGNATURE = Signature(inputs=1, outputs=1, horizon=10)


def drawn(seed: int, **fields: Any) -> tuple[NonNormalRNN, dict[str, Tensor]]:
    """A model and the weights of one replica with a triangle that is not zero."""
    model = NonNormalRNN(NonNormalRNN.Config(**({"width": 6} | fields)), SIGNATURE, np.random.default_rng(seed))
    rng = np.random.default_rng(seed)
    weights = {name: value.detach().unsqueeze(0) for name, value in model.named_parameters()}
    weights["triangle"] = torch.from_numpy(rng.standard_normal((1, 6, 6)))
    weights["moduli"] = torch.from_numpy(rng.uniform(-1.2, 1.2, (1, 3)))
    return model, weights


def test_the_triangle_leaves_the_blocks_alone() -> None:
    """Everything at, below, or within the blocks of the raw triangle is idle."""
    model, weights = drawn(0)
    theta = model.pairs(weights)[0].numpy()
    raw, moduli, angles = (weights[name][0].numpy() for name in ("triangle", "moduli", "angles"))
    turns = [
        r * np.array([[np.cos(a), -np.sin(a)], [np.sin(a), np.cos(a)]]) for r, a in zip(moduli, angles, strict=True)
    ]
    expected = scipy.linalg.block_diag(*turns)
    for row, column in ((0, 2), (0, 3), (0, 4), (0, 5), (1, 2), (1, 3), (1, 4), (1, 5), (2, 4), (2, 5), (3, 4), (3, 5)):
        expected[row, column] = raw[row, column]
    np.testing.assert_allclose(theta, expected, rtol=1e-14, atol=1e-15)


def test_no_triangle_moves_the_eigenvalues() -> None:
    model, weights = drawn(1, activation="tanh")
    found = model.eigenvalues(weights)
    assert found is not None
    by_force = np.linalg.eigvals(model.matrix(weights)[0].numpy())
    ours, theirs = (np.sort_complex(np.round(values, 7)) for values in (found[0].numpy(), by_force))
    np.testing.assert_allclose(ours, theirs, atol=1e-6)
    np.testing.assert_allclose(
        np.sort(np.abs(by_force)), np.sort(np.repeat(weights["moduli"][0].abs().numpy(), 2)), atol=1e-7
    )


def test_it_starts_orthogonal_with_uniform_angles() -> None:
    config = NonNormalRNN.Config(width=400)
    weights = NonNormalRNN.initial(config, SIGNATURE, np.random.default_rng(0))
    assert (weights["triangle"] == 0).all()
    assert (weights["moduli"] == 1).all()
    assert 0 <= weights["angles"].min() < 0.2
    assert 2 * math.pi - 0.2 < weights["angles"].max() <= 2 * math.pi
    model = NonNormalRNN(config, SIGNATURE)
    matrix = model.matrix({name: torch.from_numpy(value).unsqueeze(0) for name, value in weights.items()})[0]
    assert (matrix.T @ matrix - torch.eye(400)).abs().max() < 1e-12


def test_the_penalty_keeps_the_moduli_near_one() -> None:
    model, weights = drawn(4, delta=0.1)
    copies = {name: torch.stack([value, 2 * value], 1) for name, value in weights.items()}
    penalty = model.penalty(copies)
    assert penalty is not None
    moduli = weights["moduli"][0]
    expected = [0.1 * float((factor * moduli - 1).square().sum()) for factor in (1, 2)]
    assert penalty.tolist() == [pytest.approx(expected)]
    leaf = weights["moduli"].clone().requires_grad_()
    felt = model.penalty(weights | {"moduli": leaf})
    assert felt is not None
    felt.sum().backward()
    torch.testing.assert_close(leaf.grad, 0.2 * (weights["moduli"] - 1))
    assert drawn(4)[0].penalty(weights) is None
