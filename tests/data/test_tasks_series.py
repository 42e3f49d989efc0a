"""NARMA and Mackey-Glass: their equations solved in another way, and what a linear predictor reaches."""

from __future__ import annotations

import sys

import numpy as np
import pytest
import torch
from scipy.integrate import solve_ivp

from memsweep import registry, testing
from memsweep.data.api import SeriesTask
from memsweep.streams import TRAIN, Stream
from paths import ROOT

registry.discover(ROOT)
NARMA, MACKEY_GLASS = (registry.get(registry.TASK, name) for name in ("narma", "mackey_glass"))


class TestNARMAofOrder20(testing.TaskSuite):
    """The whole suite, for another order than the published one."""

    task = "narma"
    config = NARMA.Config(order=20, horizon=60)


class TestMackeyGlass30(testing.TaskSuite):
    """The whole suite, where the series is more chaotic."""

    task = "mackey_glass"
    config = MACKEY_GLASS.Config(delay=30, horizon=80, ahead=1, warm_up=50)


def test_narma_is_the_published_recursion_and_stays_in_its_bound() -> None:
    made = NARMA(NARMA.Config(horizon=200))
    u_BT, y_BT = made.series(np.random.default_rng(0), 150)
    assert 0.0 <= u_BT.min() < 0.001 < 0.499 < u_BT.max() <= 0.5
    cut = 0
    for u, y in zip(u_BT, y_BT, strict=True):
        y = np.concatenate([np.zeros(10), y])  # y[t + 9] is y_t
        for t in range(9, 200):
            expected = 0.3 * y[t + 9] + 0.05 * y[t + 9] * y[t : t + 10].sum() + 1.5 * u[t - 9] * u[t] + 0.1
            cut += expected > 1.0
            assert y[t + 10] == pytest.approx(min(expected, 1.0), rel=1e-12)
    assert y_BT.max() <= 1.0
    assert cut < 0.001 * y_BT.size


@pytest.mark.parametrize("order", [5, 10, 25])
def test_what_the_present_input_says_of_narma(order: int) -> None:
    """The best answer to the present input alone is linear in it, up to the outputs that are cut."""
    made = NARMA(NARMA.Config(horizon=3 * order, order=order))
    batch = made.draw(Stream(1, TRAIN), 0, 20_000)
    inputs, targets = (each[:, made.first :, 0].double() for each in (batch.inputs, batch.targets))
    left = targets - targets.mean(0)
    seen = inputs - inputs.mean(0)
    slope = (left * seen).mean() / seen.square().mean()
    explained = (left - slope * seen).square().mean()
    assert explained.item() == pytest.approx(made.memoryless_loss(), abs=0.02)
    if order >= 10:
        assert slope.item() * made.moments[1] == pytest.approx(1.5 * 0.25, rel=0.02)


def test_the_best_linear_predictor_of_narma_10_leaves_a_seventh() -> None:
    """A model that answers better has used a product of inputs or outputs."""
    made = NARMA(NARMA.Config())
    batch = made.draw(Stream(1, TRAIN), 0, 2000)
    windows = batch.inputs[..., 0].unfold(1, 50, 1).reshape(-1, 50)
    windows = torch.cat([windows, torch.ones(len(windows), 1, dtype=torch.float64)], 1)
    targets = batch.targets[:, 49:, 0].reshape(-1, 1)
    found = torch.linalg.lstsq(windows, targets).solution
    assert (windows @ found - targets).square().mean().item() == pytest.approx(0.146, abs=0.01)


def finely(start: float, delay: int, steps: int) -> np.ndarray:
    """The same equation by scipy's method of eighth order, from one multiple of the delay to the next."""
    pieces = [lambda t: np.full_like(np.asarray(t, float), start)]
    values = [start]
    for piece in range(-(-steps // delay)):
        times = np.arange(piece * delay, (piece + 1) * delay + 1)

        def slope(t: float, x: np.ndarray, piece: int = piece) -> np.ndarray:
            delayed = pieces[piece](t - delay)
            return 0.2 * delayed / (1.0 + delayed**10) - 0.1 * x

        span = (float(times[0]), float(times[-1]))
        found = solve_ivp(slope, span, [values[-1]], "DOP853", times, dense_output=True, rtol=1e-11, atol=1e-11)
        pieces.append(lambda t, found=found: found.sol(t)[0])
        values += found.y[0, 1:].tolist()
    return np.array(values[:steps])


@pytest.mark.parametrize("delay", [17, 30])
def test_mackey_glass_solves_its_equation(delay: int) -> None:
    """From one start; the error of chaos grows with time."""
    solution = sys.modules[MACKEY_GLASS.__module__].solution
    for start in (0.6, 1.3):
        found = solution(np.array([start]), delay, 200)[:, 0]
        error = np.abs(found - finely(start, delay, 200))
        assert error[:50].max() < 1e-5
        assert error.max() < 1e-4


def test_mackey_glass_asks_for_the_number_some_steps_ahead() -> None:
    made: SeriesTask = MACKEY_GLASS(MACKEY_GLASS.Config(ahead=7))
    batch = made.draw(Stream(0, TRAIN), 3, 50)
    mean, deviation = made.moments
    torch.testing.assert_close(batch.targets[:, :-7] * deviation + mean, batch.inputs[:, 7:], rtol=1e-12, atol=1e-12)
    assert (batch.inputs[:, 0].std() / deviation).item() == pytest.approx(1.0, abs=0.3)  # not all in one phase


@pytest.mark.parametrize(
    ("config", "words"),
    [
        (NARMA.Config(order=20, horizon=19), "a horizon of at least 20"),
        (MACKEY_GLASS.Config(delay=50, horizon=100), "a horizon above 100"),
    ],
)
def test_a_sequence_that_is_too_short_is_refused(config: object, words: str) -> None:
    (sentence,) = config.problems()
    assert words in sentence
