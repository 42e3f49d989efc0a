"""Modules with complex weights: their derivatives have two parts, and a fault may lie in one of them."""

from __future__ import annotations

from collections.abc import Callable

import pytest
import torch
from torch import Tensor, nn

from memsweep.checks.finding import Finding, Status
from memsweep.checks.numerics.finite import finite
from memsweep.checks.numerics.precision import precision
from memsweep.checks.subject import Subject
from memsweep.checks.weights.derivatives import derivatives
from memsweep.errors import ModuleError


def whole(a: Tensor) -> Tensor:
    return a


def cut_imaginary(a: Tensor) -> Tensor:
    return torch.complex(a.real, a.imag.detach())


def cut_real(a: Tensor) -> Tensor:
    return torch.complex(a.real.detach(), a.imag)


class Turned(torch.autograd.Function):
    """A backward function without the conjugate, which torch's gradients of complex numbers have."""

    @staticmethod
    def forward(ctx: torch.autograd.function.FunctionCtx, a: Tensor) -> Tensor:
        return a.clone()

    @staticmethod
    def backward(ctx: torch.autograd.function.FunctionCtx, *grads: Tensor) -> Tensor:
        return grads[0].conj()


class Rotation(nn.Module):
    """y = Re h with h_t = a h_(t-1) + b x_t and complex weights, which may be pairs of real ones."""

    def __init__(self, used: Callable[[Tensor], Tensor] = whole, *, pairs: bool = False) -> None:
        super().__init__()
        a, b = torch.tensor([0.8 + 0.4j, 0.5 - 0.7j]), torch.tensor([1.0 - 0.5j, 0.3 + 1.0j])
        self.a = nn.Parameter(torch.view_as_real(a) if pairs else a)
        self.b = nn.Parameter(b)
        self.used, self.pairs = used, pairs

    def forward(self, x: Tensor) -> Tensor:
        a = self.used(torch.view_as_complex(self.a) if self.pairs else self.a)
        h, answers = torch.zeros_like(self.b), []
        for now in x.unbind(1):
            h = a * h + self.b * now
            answers.append(h.real.sum(-1, keepdim=True))
        return torch.stack(answers, 1)


@pytest.mark.parametrize("pairs", [False, True])
def test_derivatives_by_complex_weights_agree_with_differences(pairs: bool) -> None:
    found = derivatives(Subject(lambda: Rotation(pairs=pairs), 1, 16), 600)
    assert found.status is Status.PASS, found.sentence
    assert found.numbers["difference"] < 1e-6


@pytest.mark.parametrize("pairs", [False, True])
@pytest.mark.parametrize("used", [cut_imaginary, cut_real, Turned.apply])
def test_a_wrong_part_of_a_complex_gradient_is_found(used: Callable[[Tensor], Tensor], pairs: bool) -> None:
    found = derivatives(Subject(lambda: Rotation(used, pairs=pairs), 1, 16), 600)
    assert found.status is Status.FAULT
    assert found.numbers["wrong"] == ["a", "all weights together"]


def test_the_first_complex_number_that_is_not_finite_is_located() -> None:
    class Overflows(nn.Module):
        def forward(self, x: Tensor) -> Tensor:
            return torch.exp(torch.complex(1e3 * x, x)).real

    found = finite(Subject(Overflows, 1, 16), 600)
    assert found.status is Status.FAULT
    assert {problem["operation"] for problem in found.numbers["not_finite"]} == {"exp"}


def test_complex_outputs_are_refused() -> None:
    """Only their real part would be looked at."""

    class Complex(Rotation):
        def forward(self, x: Tensor) -> Tensor:
            return self.a * x

    with pytest.raises(ModuleError, match="forward gave complex numbers"):
        Subject(Complex, 1, 16).run_once()


@pytest.mark.parametrize("check", [finite, precision])
def test_a_precision_without_complex_numbers_is_not_measured(check: Callable[[Subject, float], Finding]) -> None:
    """bfloat16 keeps complex weights in complex64, whose errors are not its own."""
    found = check(Subject(Rotation, 1, 16), 600)
    said = "It has complex weights (a, b), which bfloat16 has not: bfloat16 was not measured."
    assert said in found.sentence
    assert found.numbers["not_measured"] == {"bfloat16": said}
    assert "bfloat16" not in found.numbers
    assert "bfloat16" not in found.numbers.get("precisions", ())


def test_complex_buffers_are_not_measured_in_it_either() -> None:
    class Turns(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.register_buffer("turn", torch.tensor([1j]))

        def forward(self, x: Tensor) -> Tensor:
            return (self.turn * x).imag

    assert "complex buffers (turn)" in Subject(Turns, 1, 16).not_had["bfloat16"]
