"""Balls of complex weights: an entry is a number of the plane, and a matrix a complex one."""

from __future__ import annotations

import dataclasses
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

import memsweep as ms
from engine import noise, trial, usual_model, usual_unit
from memsweep import registry
from memsweep.config.core.arguments import Arguments
from memsweep.config.schema.trial import TrialConfig
from memsweep.learning.ensemble.flat_layout import Layout
from memsweep.models.base import Part, Role, Signature
from memsweep.models.module.anatomy import anatomy
from memsweep.stability.perturbation.ball import Ball
from memsweep.stability.verdict.radius import THRESHOLDS
from memsweep.sweep.planning.fingerprint import code_closure
from memsweep.sweep.planning.identity import identity, training_of

SHAPES = [((5,), True), ((4, 3), True), ((), True), ((5,), False), ((), False)]
MATRICES = [(3, 3), (5, 2), (2, 5), (4, 1), (1, 4), (2, 3, 2)]
KINDS = [*SHAPES, *((shape, False) for shape in MATRICES)]


def ball_of(shape: tuple[int, ...], diagonal: bool, norm: str = "spectral") -> tuple[Ball, int]:
    """The ball of one complex weight, and how many real numbers it has."""
    role = Role(Part.RECURRENT, tuple(map(str, range(len(shape) + 1))), diagonal, complex_entries=True)
    layout = Layout({"W": role}, {"W": (*shape, 2)})
    exists, real = torch.ones(1, layout.size, dtype=torch.bool), torch.ones(1, dtype=torch.bool)
    ensemble: Any = SimpleNamespace(layout=layout, exists=exists, real=real, select=layout.select)
    return Ball(ensemble, "all", norm), layout.size


def size(shift: Tensor, shape: tuple[int, ...], diagonal: bool) -> Tensor:
    """The norm of shifts ``[..., S]``, written out."""
    entries = torch.view_as_complex(shift.unflatten(-1, (-1, 2)).contiguous())
    if diagonal:
        return entries.abs().amax(-1)
    if not shape:
        return entries.abs().squeeze(-1)
    return torch.linalg.matrix_norm(entries.unflatten(-1, (shape[0], -1)), 2)


@pytest.mark.parametrize(("shape", "diagonal"), KINDS)
def test_the_steepest_point_has_norm_1_and_gains_more_than_any_other(shape: tuple[int, ...], diagonal: bool) -> None:
    ball, count = ball_of(shape, diagonal)
    gradient = noise(1, 1, count)
    best = ball.steepest(gradient)
    others = ball.sphere(noise(1, 3000, count, seed=5))
    torch.testing.assert_close(size(best, shape, diagonal), torch.ones(1, 1, dtype=torch.float64))
    torch.testing.assert_close(size(others, shape, diagonal), torch.ones(1, 3000, dtype=torch.float64))
    assert float((best * gradient).sum()) >= float((others * gradient).sum(-1).max()) * (1 - 1e-12)
    assert not ball.steepest(torch.zeros_like(gradient)).any()


@pytest.mark.parametrize(("shape", "diagonal"), KINDS)
def test_a_projection_is_the_nearest_point_of_the_ball(shape: tuple[int, ...], diagonal: bool) -> None:
    """The way from it to what was projected makes no sharp angle with the way to any point of the ball."""
    ball, count = ball_of(shape, diagonal)
    radius = torch.tensor([0.7], dtype=torch.float64)
    far = 3.0 * ball.sphere(noise(1, 1, count))
    near = ball.project(far, radius)
    torch.testing.assert_close(size(near, shape, diagonal), radius.expand(1, 1))
    others = 0.7 * ball.sphere(noise(1, 3000, count, seed=5))
    assert float(((far - near) * (others - near)).sum(-1).max()) <= 1e-9
    small = 0.2 * far / 3.0
    torch.testing.assert_close(ball.project(small, radius), small)


def test_by_entry_the_real_and_the_imaginary_part_are_numbers_of_their_own() -> None:
    """As rounding takes them, and as the published code stores them."""
    ball, count = ball_of((3,), True, "entrywise")
    shift = 2.0 + noise(1, 1, count).abs()
    radius = torch.tensor([0.5], dtype=torch.float64)
    torch.testing.assert_close(ball.project(shift, radius), torch.full_like(shift, 0.5))


# Radii against brute force and closed forms.

EFFORT: dict[str, Any] = {
    "perturbation.stronger_every": 0,
    "perturbation.radii": {"from": 0.01, "to": 1.0, "count": 5},
    "perturbation.starts": 1,
    "perturbation.ascent_steps": 8,
}


def radii(module: nn.Module, settings: dict[str, Any], sequences: np.ndarray, ball: str) -> np.ndarray:
    found = ms.measure(module, EFFORT | settings, sequences=sequences).radii
    rows = found[found["ball"] == ball].set_index("threshold")
    return rows.loc[list(THRESHOLDS), "radius"].to_numpy(float)


class Mode(nn.Module):
    """h_t = a h_{t-1} + x_t, of which the real part is the answer."""

    def __init__(self) -> None:
        super().__init__()
        self.a = nn.Parameter(torch.polar(torch.tensor([0.9]), torch.tensor([np.pi / 4])))

    def forward(self, x: Tensor) -> Tensor:
        h, answers = torch.zeros(x.shape[0], 1, dtype=self.a.dtype, device=x.device), []
        for t in range(x.shape[1]):
            h = self.a * h + x[:, t]
            answers.append(h.real)
        return torch.stack(answers, 1)


def test_a_complex_mode_moves_in_a_disc() -> None:
    """At each radius, the worst of 180 directions in the plane drifts by the threshold."""
    sequences = np.random.default_rng(0).standard_normal((40, 24, 1))
    found = radii(Mode(), {"perturbation.balls": ["recurrent"]}, sequences, "recurrent")
    lags = np.arange(24)
    own = complex(Mode().a.detach()[0])

    def answers(modes: np.ndarray) -> np.ndarray:
        responses = (modes[:, None] ** lags).real
        kernels = np.zeros((len(modes), 24, 24))
        for t in range(24):
            kernels[:, t, : t + 1] = responses[:, t::-1]
        return np.einsum("mts,bs->mbt", kernels, sequences[:, :, 0])

    unmoved = answers(np.array([own]))[0]
    directions = np.exp(2j * np.pi * np.arange(180) / 180)
    for radius, threshold in zip(found, THRESHOLDS, strict=True):
        worst = ((answers(own + radius * directions) - unmoved) ** 2).mean((1, 2)).max() / unmoved.var(0).mean()
        assert worst == pytest.approx(threshold, rel=5e-3)


class Maps(nn.Module):
    """A complex map of each step, with orthogonal columns of length 2; the answers are real and imaginary parts."""

    def __init__(self, *shape: int) -> None:
        super().__init__()
        rows, columns = shape if len(shape) > 1 else (*shape, 1)
        directions, _ = torch.linalg.qr(torch.view_as_complex(noise(rows, columns, 2)))
        self.map = nn.Parameter((2.0 * directions).reshape(shape).to(torch.cfloat))

    def forward(self, x: Tensor) -> Tensor:
        matrix = self.map.unsqueeze(-1) if self.map.ndim == 1 else self.map
        return torch.view_as_real(x.to(matrix.dtype) @ matrix.mT).flatten(-2)


@pytest.mark.parametrize("shape", [(5,), (5, 2), (2, 2)])
@pytest.mark.parametrize("part", ["encoder", "readout"])
def test_a_complex_map_moves_in_the_ball_of_its_complex_norm(shape: tuple[int, ...], part: str) -> None:
    """The worst push has all singular values at the radius, and moves the outputs of any input by its length."""
    sequences = np.random.default_rng(1).standard_normal((20, 2, shape[1] if len(shape) > 1 else 1))
    sequences = np.concatenate([sequences, -sequences])
    settings = {f"model.roles.{part}": [["map"]], "perturbation.balls": ["weights"]}
    found = radii(Maps(*shape), settings, sequences, "weights")
    np.testing.assert_allclose(found, 2.0 * np.sqrt(THRESHOLDS), rtol=3e-3)


# Roles and identities.

NETS = """
import torch
from torch import nn


class Net(nn.Module):
    def __init__(self, inputs, outputs, width, dtype="cfloat"):
        super().__init__()
        self.log_decay = nn.Parameter(torch.randn(width, dtype=getattr(torch, dtype)) * 0.1)
        self.encoder = nn.Parameter(torch.randn(width, inputs, dtype=getattr(torch, dtype)))
        self.readout = nn.Linear(width, outputs)

    def forward(self, x):
        h, answers = 0, []
        for t in range(x.shape[1]):
            h = self.log_decay * h + x[:, t].to(self.encoder.dtype) @ self.encoder.mT
            answers.append(self.readout(h.real if h.is_complex() else h))
        return torch.stack(answers, 1)


class Layer(Net):
    def __init__(self, features, width, dtype="cfloat"):
        super().__init__(features, features, width, dtype)
"""
MARKS = ("memsweep.models.module.roles", "with_complex_entries")
BALLS = ("memsweep.stability.perturbation.complex_ball", "complex_steepest")


@pytest.fixture
def nets(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "plane_nets.py").write_text(NETS)
    monkeypatch.chdir(tmp_path)
    registry.discover(tmp_path)


def of_module(dtype: str, **perturbation: Any) -> TrialConfig:
    model = usual_model("module", factory="plane_nets:Net", width=4, arguments=Arguments({"dtype": dtype}))
    return dataclasses.replace(trial(perturbation=perturbation), model=model)


def of_layer(dtype: str) -> TrialConfig:
    unit = usual_unit("module", factory="plane_nets:Layer", arguments=Arguments({"dtype": dtype}))
    return dataclasses.replace(trial(), model=usual_model("residual_stack", unit=unit))


@pytest.mark.usefixtures("nets")
def test_weights_that_are_complex_are_marked() -> None:
    roles = anatomy(of_module("cfloat").model, Signature(1, 1, 8)).roles
    assert {name: role.complex_entries for name, role in roles.items() if "bias" not in name} == {
        **{"log_decay": True, "encoder": True},
        "readout.weight": False,
    }
    assert roles["log_decay"].diagonal


@pytest.mark.usefixtures("nets")
def test_complex_balls_are_in_the_identity_of_the_trials_alone_that_move_complex_weights_by_modulus() -> None:
    real, moving, by_entry, unmoved = (
        *(of_module("float32"), of_module("cfloat")),
        *(of_module("cfloat", norm="entrywise"), of_module("cfloat", balls=())),
    )
    for config, reached in ((real, False), (moving, True), (by_entry, False), (unmoved, False)):
        assert {MARKS, BALLS} & code_closure(config) == ({MARKS, BALLS} if reached else set())
        assert not {MARKS, BALLS} & code_closure(config, training=True)
    assert training_of(identity(moving)) == training_of(identity(by_entry))
    for dtype, reached in (("float32", False), ("cfloat", True)):
        assert ({MARKS, BALLS} <= code_closure(of_layer(dtype))) is reached
