"""The family of recurrent networks with one recurrent matrix: what each of its settings does."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
import scipy.linalg
import torch
from torch import Tensor

from memsweep.models.base import Group, Signature
from memsweep.models.matrix.base import MatrixRNN
from memsweep.models.matrix.config import MatrixConfig
from memsweep.models.matrix.exp_rnn import ExpRNN
from memsweep.models.matrix.nn_rnn import NonNormalRNN
from memsweep.models.matrix.rnn import RNN, OrthogonalRNN, PublishedRNNOrth
from memsweep.models.spectrum import eigenvalues, spectral_norm
from memsweep.testing import ModelSuite as _Suite

FAMILY = (RNN, OrthogonalRNN, PublishedRNNOrth, ExpRNN, NonNormalRNN)
SIGNATURE = Signature(inputs=2, outputs=3, horizon=9)
WIDTH = 6
ACTIVATIONS: dict[str, Any] = {
    "linear": lambda a, b: a,
    "tanh": lambda a, b: torch.tanh(a),
    "relu": lambda a, b: torch.where(a > 0, a, 0.0 * a),
    "hardtanh": lambda a, b: torch.where(a.abs() < 1, a, a.sign().detach()),
    "modrelu": lambda a, b: torch.where(a.abs() + b > 0, a + b * a.sign().detach(), 0.0 * a),
}
RHO = {
    "n": lambda i: 1 - 1 / (i + 2),
    "n2": lambda i: 1 - 1 / (i + 2) ** 2,
    "sqrtlogn": lambda i: 1 - 1 / math.sqrt(math.log(i + 3)),
    "logn": lambda i: 1 - 1 / math.log(i + 2),
    "log2n": lambda i: 1 - 1 / math.log(2 * (i + 4)),
    "expn": lambda i: 1 - math.exp(-(i + 2)),
    "none": lambda i: 1.0,
}


def built(kind: type[MatrixRNN], seed: int = 0, **fields: Any) -> MatrixRNN:
    """A model with all of its weights moved away from where they start: biases, thresholds, gains, triangle."""
    model = kind(kind.Config(**({"width": WIDTH} | fields)), SIGNATURE, np.random.default_rng(seed))
    rng = np.random.default_rng(seed + 100)
    with torch.no_grad():
        for weight in model.parameters():
            weight.add_(torch.from_numpy(0.2 * rng.standard_normal(weight.shape)))
    return model


def weights_of(*models: MatrixRNN) -> dict[str, Tensor]:
    """A stack of models, without gradients."""
    named = [dict(model.named_parameters()) for model in models]
    return {name: torch.stack([each[name].detach() for each in named]) for name in named[0]}


def inputs(batch: int = 4, steps: int = SIGNATURE.horizon, size: float = 1.0) -> Tensor:
    return torch.from_numpy(size * np.random.default_rng(7).standard_normal((batch, steps, SIGNATURE.inputs)))


def size_for(fields: dict[str, Any]) -> float:
    """Inputs of which the states stay finite: the gains of exp_alpha grow exponentially with them."""
    return 0.1 if fields.get("stair") == "exp_alpha" else 1.0


def plain_matrix(model: MatrixRNN) -> Tensor:
    """V by other means than the model's."""
    raw = {name: weight.detach().numpy() for name, weight in model.named_parameters()}
    if "recurrent_weight" in raw:
        free = raw["recurrent_weight"]
        if isinstance(model, OrthogonalRNN):
            free = scipy.linalg.polar(free)[0]
        if isinstance(model, PublishedRNNOrth):
            free = free / np.sqrt(np.linalg.eigvalsh(free.T @ free).max())
        return torch.from_numpy(free)
    upper = np.triu(raw["generator"], 1)
    skew, one = upper - upper.T, np.eye(WIDTH)
    turn = scipy.linalg.expm(skew) if model.config.map == "exponential" else np.linalg.solve(one + skew, one - skew)
    if not isinstance(model, NonNormalRNN):
        return torch.from_numpy(turn)
    theta = np.triu(raw["triangle"], 1)  # a pair's own entry is written over
    for pair, (modulus, angle) in enumerate(zip(raw["moduli"], raw["angles"], strict=True)):
        cos, sin = modulus * np.cos(angle), modulus * np.sin(angle)
        theta[2 * pair : 2 * pair + 2, 2 * pair : 2 * pair + 2] = [[cos, -sin], [sin, cos]]
    return torch.from_numpy(turn @ theta @ turn.T)


def plain_step(model: MatrixRNN, matrix: Tensor, x_BI: Tensor, h_BM: Tensor, step: int) -> Tensor:
    """One step as the definition says it."""
    config, raw = model.config, {name: weight.detach() for name, weight in model.named_parameters()}
    seen = x_BI @ raw["embedding"].T if config.embedding else x_BI
    a = seen @ raw["encoder_weight"].T + (raw["encoder_bias"] if config.bias else 0.0)
    sigma, before = ACTIVATIONS[config.activation], h_BM @ matrix.T
    rho = RHO[config.stair](step) if config.stair in RHO else raw["gains"][min(step, SIGNATURE.horizon - 1)]
    if isinstance(model, PublishedRNNOrth):
        return rho * (sigma(a, raw.get("threshold")) + before)
    factor = 1 - torch.exp(-rho * (a + before)) if config.stair == "exp_alpha" else rho
    return factor * sigma(a + before, raw.get("threshold"))


def plain_states(model: MatrixRNN, x_BTI: Tensor) -> list[Tensor]:
    states, h, matrix = [], torch.zeros(len(x_BTI), WIDTH, dtype=x_BTI.dtype), plain_matrix(model)
    for step in range(x_BTI.shape[1]):
        h = plain_step(model, matrix, x_BTI[:, step], h, step)
        states.append(h)
    return states


def read(model: MatrixRNN, states: Tensor) -> Tensor:
    return states @ model.get_parameter("readout_weight").T + model.get_parameter("readout_bias")


CASES = [
    *((RNN, {"activation": name}) for name in ACTIVATIONS),
    *((RNN, {"stair": name, "activation": "tanh"}) for name in (*RHO, "alpha", "exp_alpha")),
    *((kind, {}) for kind in FAMILY),
    *((PublishedRNNOrth, {"activation": name, "stair": "n"}) for name in ACTIVATIONS),
    *((kind, {"map": "cayley", "stair": "exp_alpha"}) for kind in (ExpRNN, NonNormalRNN)),
    *((kind, {"embedding": 5, "bias": True, "stair": "alpha"}) for kind in FAMILY),
    *((kind, {"activation": "hardtanh", "embedding": 5}) for kind in (OrthogonalRNN, ExpRNN)),
]


@pytest.mark.parametrize(("kind", "fields"), CASES)
def test_outputs_are_those_of_the_definition(kind: type[MatrixRNN], fields: dict[str, Any]) -> None:
    model, x = built(kind, **fields), inputs(steps=12, size=size_for(fields))  # longer than there are trained gains
    expected = read(model, torch.stack(plain_states(model, x), 1))
    torch.testing.assert_close(model(x), expected, rtol=1e-10, atol=1e-12)


def test_a_tanh_network_is_torchs() -> None:
    model, x = built(RNN, activation="tanh"), inputs()
    theirs = torch.nn.RNN(SIGNATURE.inputs, WIDTH, batch_first=True, dtype=torch.float64)
    theirs.load_state_dict(
        {
            "weight_ih_l0": model.encoder_weight,
            "weight_hh_l0": model.recurrent_weight,
            "bias_ih_l0": model.encoder_bias,
            "bias_hh_l0": torch.zeros(WIDTH),
        }
    )
    expected = read(model, theirs(x)[0])
    torch.testing.assert_close(model(x), expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(("kind", "fields"), CASES)
def test_jacobians_are_the_derivatives_of_a_step(kind: type[MatrixRNN], fields: dict[str, Any]) -> None:
    models, x = [built(kind, seed, **fields) for seed in range(2)], inputs(batch=2, size=size_for(fields))
    found = list(models[0].jacobians(weights_of(*models), x))[::-1]
    assert len(found) == SIGNATURE.horizon - 1
    for row, model in enumerate(models):
        states, matrix = plain_states(model, x), plain_matrix(model)
        for step in (1, SIGNATURE.horizon - 1):

            def both(h_BM: Tensor, model: MatrixRNN = model, matrix: Tensor = matrix, step: int = step) -> Tensor:
                return plain_step(model, matrix, x[:, step], h_BM, step)

            expected = torch.autograd.functional.jacobian(both, states[step - 1])
            for sequence in range(2):
                matrices = found[step - 1][row, sequence], expected[sequence, :, sequence]
                torch.testing.assert_close(*matrices, rtol=1e-9, atol=1e-11)


def gradient_norms(model: MatrixRNN, weights: dict[str, Tensor], x: Tensor) -> Tensor:
    """||dh_T / dh_{T-k}|| of every sequence: ``[N, B, T]``."""
    steps = list(model.jacobians(weights, x))
    product = torch.eye(WIDTH, dtype=x.dtype).expand_as(steps[0])
    norms = [torch.linalg.matrix_norm(product, 2)]
    for matrix in steps:
        product = product @ matrix
        norms.append(torch.linalg.matrix_norm(product, 2))
    return torch.stack(norms, -1)


@pytest.mark.parametrize("stair", ["none", "logn", "alpha"])
@pytest.mark.parametrize("kind", FAMILY)
def test_no_gradient_exceeds_the_bound(kind: type[MatrixRNN], stair: str) -> None:
    for activation in ("modrelu", "tanh"):
        models = [built(kind, seed, stair=stair, activation=activation) for seed in range(3)]
        weights = weights_of(*models)
        bound = models[0].gradient_bound(weights, 12)
        assert bound is not None
        for size in (0.01, 3.0):
            measured = gradient_norms(models[0], weights, inputs(batch=5, steps=12, size=size))
            assert (measured <= bound.unsqueeze(1) * (1 + 1e-9)).all()


@pytest.mark.parametrize("stair", ["none", "n", "logn", "alpha"])
@pytest.mark.parametrize("kind", [OrthogonalRNN, ExpRNN])
def test_the_bound_of_a_linear_orthogonal_recurrence_is_its_gradient(kind: type[MatrixRNN], stair: str) -> None:
    """It is the product of the last gains alone, of whatever sign."""
    model = built(kind, stair=stair, activation="linear")
    weights = weights_of(model)
    bound = model.gradient_bound(weights, 9)
    measured = gradient_norms(model, weights, inputs(batch=2))
    assert bound is not None
    torch.testing.assert_close(measured, bound.unsqueeze(1).expand_as(measured), rtol=1e-11, atol=0)
    if stair == "n":
        expected = [(9 - k + 1) / (9 + 1) for k in range(9)]  # (s + 2) / (t + 2) for steps t = 8 and s = 8 - k
        assert bound[0].tolist() == pytest.approx(expected, rel=1e-12)


def test_models_declare_what_the_optimizer_treats_apart() -> None:
    groups = {
        kind: {name: role.group for name, role in kind.roles(kind.Config()).items() if role.group is not Group.REST}
        for kind in FAMILY
    }
    assert groups == {
        RNN: {},
        OrthogonalRNN: {"recurrent_weight": Group.ORTHOGONAL},
        PublishedRNNOrth: {},
        ExpRNN: {"generator": Group.ORTHOGONAL},
        NonNormalRNN: {"generator": Group.ORTHOGONAL, "triangle": Group.TRIANGLE},
    }


@pytest.mark.more
@pytest.mark.parametrize(
    ("kind", "fields"),
    [(OrthogonalRNN, {}), (ExpRNN, {"map": "exponential"}), (ExpRNN, {"map": "cayley"}), (NonNormalRNN, {})],
)
def test_replicas_stay_on_the_manifold_for_a_thousand_steps(kind: type[MatrixRNN], fields: dict[str, Any]) -> None:
    """Adam at a rate that turns the matrix far from where it began."""
    config = kind.Config(width=WIDTH, activation="tanh", **fields)
    models = [kind(config, SIGNATURE, np.random.default_rng(seed)) for seed in range(3)]
    weights = {name: value.requires_grad_() for name, value in weights_of(*models).items()}
    before = kept(models[0], weights)
    optimizer = torch.optim.Adam(weights.values(), lr=0.01)
    rng = np.random.default_rng(3)
    for _ in range(1000):
        x = torch.from_numpy(rng.standard_normal((4, 6, SIGNATURE.inputs)))
        answers = models[0].outputs(weights, x)
        loss = (answers[:, :, -1] - x[:, :1].sum(-1)).square().mean()  # what came in first
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
    after = kept(models[0], weights)
    off = after.mT @ after - torch.eye(WIDTH)
    assert off.abs().amax() < 1e-10
    assert (torch.linalg.matrix_norm(after - before) > 0.5).all()
    torch.testing.assert_close(torch.linalg.det(after), torch.linalg.det(before), rtol=1e-10, atol=0)


def kept(model: MatrixRNN, weights: dict[str, Tensor]) -> Tensor:
    """The matrix that has to stay orthogonal: V, or the basis P of V = P Theta P'."""
    with torch.no_grad():
        return model.basis(weights) if isinstance(model, NonNormalRNN) else model.matrix(weights)


def test_eigenvalues_are_told_where_small_states_obey_the_matrix() -> None:
    for activation, stair, told in (
        ("linear", "none", True),
        ("tanh", "none", True),
        ("hardtanh", "none", True),
        ("relu", "none", False),
        ("modrelu", "none", False),
        ("tanh", "n", False),
    ):
        for kind in (RNN, ExpRNN, NonNormalRNN):
            model = built(kind, activation=activation, stair=stair)
            found = model.eigenvalues(weights_of(model))
            assert (found is not None) == told
            if found is not None:
                expected = np.linalg.eigvals(plain_matrix(model).numpy())
                order = [np.lexsort((np.round(v.imag, 9), np.round(v.real, 9))) for v in (found[0].numpy(), expected)]
                np.testing.assert_allclose(found[0].numpy()[order[0]], expected[order[1]], rtol=1e-8, atol=1e-9)
    model = built(PublishedRNNOrth, activation="modrelu")
    found = model.eigenvalues(weights_of(model))
    assert found is not None  # the activation does not stand in the recurrence
    assert found.abs().max() <= 1 + 1e-12


def test_a_matrix_that_diverged_leaves_the_others_alone() -> None:
    rng = np.random.default_rng(0)
    matrices = torch.from_numpy(rng.standard_normal((3, 4, 4)))
    matrices[1, 2, 2] = torch.inf
    for function in (eigenvalues, spectral_norm):
        found = function(matrices)
        assert torch.isnan(found[1].real).all()
        torch.testing.assert_close(found[[0, 2]], function(matrices[[0, 2]]))


def test_the_gradient_of_the_norm_does_not_hang_on_rounding() -> None:
    """That of a matrix with one largest singular value is torch's; that of an orthogonal one is its share of itself."""
    rng = np.random.default_rng(5)
    matrix = torch.from_numpy(rng.standard_normal((2, 5, 5))).requires_grad_()
    (ours,) = torch.autograd.grad(spectral_norm(matrix).sum(), matrix)
    (theirs,) = torch.autograd.grad(torch.linalg.matrix_norm(matrix, 2).sum(), matrix)
    torch.testing.assert_close(ours, theirs, rtol=1e-10, atol=1e-12)
    orthogonal = torch.from_numpy(np.linalg.qr(rng.standard_normal((5, 5)))[0])
    for noise in (0.0, 1e-15):
        leaf = (orthogonal + noise * torch.from_numpy(rng.standard_normal((5, 5)))).requires_grad_()
        (found,) = torch.autograd.grad(spectral_norm(leaf), leaf)
        torch.testing.assert_close(found, orthogonal / 5, rtol=1e-10, atol=1e-12)


def test_the_balanced_gauge_of_an_embedding() -> None:
    """Embedding, encoder and readout have one size, and the model is the same."""
    model = built(RNN, activation="linear", embedding=5)
    before = weights_of(model)
    after = model.balanced(before)
    x = inputs()
    torch.testing.assert_close(model.outputs(after, x), model.outputs(before, x), rtol=1e-10, atol=1e-12)
    sizes = [float(after[name].norm()) for name in ("embedding", "encoder_weight", "readout_weight")]
    assert sizes == pytest.approx([sizes[0]] * 3)


def test_what_is_one_layer_goes_through_its_kernels() -> None:
    """Without gains, and with an activation that the kernels know; the two ways agree."""
    for activation in ("linear", "tanh", "relu", "hardtanh"):
        model = built(ExpRNN, activation=activation)
        assert model.traits(model.config).layer
        weights, x = weights_of(model), inputs()
        slow, _ = model.outputs_from(weights, x, None)
        torch.testing.assert_close(model.outputs(weights, x), slow, rtol=1e-11, atol=1e-12)
    for config in (ExpRNN.Config(activation="modrelu"), ExpRNN.Config(activation="tanh", stair="n")):
        assert not ExpRNN.traits(config).layer


def _variant(kind: str, config: MatrixConfig, **settings: bool) -> type:
    return type(f"Test_{kind}", (_Suite,), {"model": kind, "config": config, **settings})


TestLinear = _variant("exp_rnn", ExpRNN.Config(activation="linear"), forgets=False)
TestLinearNonNormal = _variant("nn_rnn", NonNormalRNN.Config(activation="linear", bias=True), forgets=False)
TestLinearPublished = _variant("published_rnn_orth", PublishedRNNOrth.Config(activation="linear"), forgets=False)
TestTrainedGains = _variant("nn_rnn", NonNormalRNN.Config(stair="alpha", embedding=3), steps_alike=False)
TestFixedGains = _variant("orthogonal_rnn", OrthogonalRNN.Config(stair="n", activation="tanh"), steps_alike=False)
