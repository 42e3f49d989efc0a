"""The recurrence with gains: states and gradients against a plain loop, corners, and what its numbers depend on."""

from __future__ import annotations

import os
from dataclasses import replace

import pytest
import torch

from memsweep.recurrence.cell import CELL_ACTIVATIONS, MODRELU, Cell
from memsweep.recurrence.compiled.library import KERNELS
from memsweep.recurrence.gained import cell_slopes, gained_scan
from memsweep.recurrence.scan import scan

TILES = [(1, 1, 1, 1), (2, 6, 2, 8), (3, 10, 4, 9), (1, 13, 3, 70)]
"""Batches and widths around what the compiled code has in registers."""
FORMS = ["plain", "factor", "exponential"]


@pytest.fixture(autouse=True, params=["plain", "compiled"])
def kernels(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every claim is one of either code."""
    monkeypatch.setenv(KERNELS, request.param)


def rand(*shape: int, seed: int, dtype: torch.dtype = torch.float64) -> torch.Tensor:
    return torch.randn(*shape, dtype=dtype, generator=torch.Generator().manual_seed(seed))


def problem(activation, form, size, *, before=True, gains=None, dtype=torch.float64):
    """Arguments by name: drive, matrix and, where there are any, threshold, gains and before."""
    leading, batch, horizon, width = size
    found = {
        "drive": 0.5 * rand(*size, seed=1, dtype=dtype),  # an exponential of larger ones would run away
        "matrix": 0.5 * rand(leading, width, width, seed=2, dtype=dtype) / width**0.5,
    }
    if activation == MODRELU:
        found["threshold"] = 0.3 * rand(leading, width, seed=3, dtype=dtype)
    if form != "plain":
        found["gains"] = 0.4 + 0.3 * rand(leading, gains or horizon, seed=4, dtype=dtype)
    if before:
        found["before"] = 0.5 * rand(leading, batch, width, seed=5, dtype=dtype)
    return found


def run(activation, form, given):
    cell = Cell(activation, given.get("threshold"), given.get("gains"), form == "exponential")
    return gained_scan(given["drive"], given["matrix"], cell, given.get("before"))


def sigma(name, z, threshold):
    """Each activation by its name, and by nothing of ours."""
    return {
        "linear": lambda: z,
        "hardtanh": lambda: torch.nn.functional.hardtanh(z),
        "tanh": lambda: torch.tanh(z),
        "relu": lambda: torch.relu(z),
        "modrelu": lambda: torch.sign(z) * torch.relu(torch.abs(z) + threshold),
    }[name]()


def loop(activation, form, given):
    """One model, one sequence, one step after the other."""
    drive, matrix = given["drive"], given["matrix"]
    leading, batch, horizon, width = drive.shape
    models = []
    for n in range(leading):
        sequences = []
        for b in range(batch):
            h = given["before"][n, b] if "before" in given else torch.zeros(width, dtype=drive.dtype)
            states = []
            for t in range(horizon):
                a = drive[n, b, t] + matrix[n] @ h
                h = sigma(activation, a, given["threshold"][n] if "threshold" in given else None)
                if form != "plain":
                    rho = given["gains"][n, min(t, given["gains"].shape[1] - 1)]
                    h = rho * h if form == "factor" else (1 - torch.exp(-rho * a)) * h
                states.append(h)
            sequences.append(torch.stack(states))
        models.append(torch.stack(sequences))
    return torch.stack(models)


def value_and_gradients(function, activation, form, given):
    live = {name: value.clone().requires_grad_() for name, value in given.items()}
    states = function(activation, form, live)
    outer = rand(*states.shape, seed=9, dtype=states.dtype)
    found = torch.autograd.grad(states, list(live.values()), outer, materialize_grads=True)
    return {"states": states.detach()} | dict(zip(live, found, strict=True))


def assert_close(found, wanted, tolerance):
    assert found.keys() == wanted.keys()
    for name, value in wanted.items():
        scale = float(value.abs().max()) or 1.0
        torch.testing.assert_close(
            found[name], value, rtol=0.0, atol=tolerance * scale, msg=lambda m, n=name: f"{n}: {m}"
        )


def assert_is_the_loop(activation, form, given):
    found = value_and_gradients(run, activation, form, given)
    assert_close(found, value_and_gradients(loop, activation, form, given), 1e-12)
    with torch.no_grad():
        assert torch.equal(run(activation, form, given), found["states"])


@pytest.mark.parametrize("before", [False, True])
@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("activation", CELL_ACTIVATIONS)
def test_states_and_gradients_are_those_of_a_plain_loop(activation, form, before):
    assert_is_the_loop(activation, form, problem(activation, form, (2, 3, 5, 4), before=before))


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("size", TILES)
def test_at_any_size(size, form):
    assert_is_the_loop(MODRELU, form, problem(MODRELU, form, size))


def test_the_last_gain_goes_on_and_needless_ones_have_no_gradient():
    short, long = (problem(MODRELU, "factor", (2, 3, 6, 4), gains=gains) for gains in (4, 9))
    assert_is_the_loop(MODRELU, "factor", short)
    assert not value_and_gradients(run, MODRELU, "factor", long)["gains"][:, 6:].any()
    assert_is_the_loop(MODRELU, "factor", long)


@pytest.mark.parametrize("form", FORMS)
@pytest.mark.parametrize("activation", CELL_ACTIVATIONS)
def test_slopes_are_derivatives_of_a_step(activation, form):
    given = problem(activation, form, (2, 3, 1, 4), gains=3)
    cell = Cell(activation, given.get("threshold"), given.get("gains"), form == "exponential")
    a = given["drive"][:, :, 0].clone().requires_grad_()
    for step in (0, 2, 7):  # the last gain goes on
        rho = None if cell.gains is None else cell.gains[:, min(step, 2) : min(step, 2) + 1]
        states = gained_scan(a.unsqueeze(2), given["matrix"], replace(cell, gains=rho))
        (wanted,) = torch.autograd.grad(states.sum(), a)
        torch.testing.assert_close(cell_slopes(a.detach(), cell, step), wanted, rtol=1e-13, atol=1e-13)


def test_corners_are_those_of_torchs_operations():
    at = torch.tensor([-1.0, -0.5, 0.0, 0.5, 1.0], dtype=torch.float64).reshape(1, 1, 1, 5)
    rest = torch.zeros(1, 5, 5, dtype=torch.float64)
    for activation, height in (("relu", 0.0), ("hardtanh", 0.0), (MODRELU, -0.5), (MODRELU, 0.0), (MODRELU, 0.25)):
        given = {"drive": at, "matrix": rest}
        if activation == MODRELU:
            given["threshold"] = torch.full((1, 5), height, dtype=torch.float64)
        assert_is_the_loop(activation, "plain", given)


def test_a_diverged_model_is_known_by_its_states():
    given = problem(MODRELU, "factor", (1, 2, 4, 5))
    for value in (float("nan"), float("inf")):
        given["drive"][0, 0, 1, 2] = value
        states = run(MODRELU, "factor", given)
        assert not states[0, 0, 1, 2].isfinite()
        assert states[0, 0, 2:].isnan().any() or states[0, 0, 2:].isinf().any()
        assert states[0, 1].isfinite().all()


def test_without_gains_it_is_the_scan_without_a_leak():
    given = problem("tanh", "plain", (2, 5, 20, 6), before=False)
    wanted = scan(given["drive"], given["matrix"], "tanh", leak=0.0)
    torch.testing.assert_close(run("tanh", "plain", given), wanted, rtol=1e-12, atol=1e-13)


def test_a_models_bits_know_neither_its_company_nor_threads():
    # torch's products of stacks are the same for each of them where widths are those of
    # memsweep.recurrence.padding
    width = 37 if os.environ[KERNELS] == "compiled" else 36
    given = problem(MODRELU, "factor", (5, 7, 40, width))
    together = value_and_gradients(run, MODRELU, "factor", given)
    outer = rand(*given["drive"].shape, seed=9)
    for n in (0, 3):
        live = {name: value[n : n + 1].clone().requires_grad_() for name, value in given.items()}
        states = run(MODRELU, "factor", live)
        assert torch.equal(states[0], together["states"][n])
        for name, found in zip(live, torch.autograd.grad(states, list(live.values()), outer[n : n + 1]), strict=True):
            assert torch.equal(found[0], together[name][n]), name
    threads = torch.get_num_threads()
    try:
        for count in (1, 2, 8):
            torch.set_num_threads(count)
            again = value_and_gradients(run, MODRELU, "factor", given)
            assert all(torch.equal(again[name], together[name]) for name in again), count
    finally:
        torch.set_num_threads(threads)


def test_numbers_of_single_precision():
    given = problem(MODRELU, "exponential", (2, 5, 10, 20), dtype=torch.float32)
    exact = {name: value.double() for name, value in given.items()}
    found = value_and_gradients(run, MODRELU, "exponential", given)
    wanted = loop(MODRELU, "exponential", exact)
    assert found["states"].dtype == torch.float32
    torch.testing.assert_close(found["states"].double(), wanted, rtol=0.0, atol=1e-5)
