"""Faults of nine kinds that are put into a module from outside, drawn by a generator; and whether one is a fault.

A mutant is an equivalent one where no output, no gradient and no later call differs from the module's: nothing is wrong
with it, and nothing can be found.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import torch
from torch import Tensor, nn

from benchmarks.layers.known import HORIZON, WIDTH, outputs_of, probe
from memsweep.models.training_mode import seeded

_BORDERS = (16, 32, 48, 64, 96, 100, 128, 200, 256)
_LENGTH = 280
"""Steps over which mutants are compared with their module."""


@dataclass(frozen=True)
class Mutation:
    """A kind of fault.

    Attributes:
        put: makes the fault in a module, ``(module, rng) -> (mutant, words)``; None: it does not apply.
        checks: of the audit, one of which must find it.
        word: of the sentence that says so, where a note may have been there before.
        base: makes the module that the mutant is compared with; None: the layer itself.
    """

    put: Callable[[nn.Module, np.random.Generator], tuple[nn.Module, str] | None]
    checks: tuple[str, ...]
    word: str = ""
    base: Callable[[nn.Module], nn.Module] = field(default=lambda module: module)


class Between(nn.Module):
    """A layer between two linear maps; of its answer, the outputs."""

    def __init__(self, layer: nn.Module) -> None:
        super().__init__()
        with torch.no_grad():
            width = outputs_of(layer.eval()(probe(layer, 20))).shape[-1]
        dtype = next(layer.parameters()).dtype
        self.enter = nn.Linear(WIDTH, WIDTH, dtype=dtype)
        self.layer = layer.train()
        self.leave = nn.Linear(width, WIDTH, dtype=dtype)

    def forward(self, x: Tensor) -> Tensor:
        return self.leave(outputs_of(self.layer(self.enter(x))))


class Changed(nn.Module):
    """A module whose one inner result goes through a function."""

    def __init__(self, inner: nn.Module, place: str, change: Callable[[Tensor], Tensor]) -> None:
        super().__init__()
        self.inner = inner
        self.place, self.change = place, change

    def forward(self, x: Tensor) -> Tensor:
        def hook(_module: nn.Module, _given: object, answer: object) -> object:
            if isinstance(answer, Tensor):
                return self.change(answer)
            if isinstance(answer, tuple) and isinstance(answer[0], Tensor):
                return (self.change(answer[0]), *answer[1:])
            return answer

        handle = self.inner.get_submodule(self.place).register_forward_hook(hook)
        try:
            return self.inner(x)
        finally:
            handle.remove()


def _place(module: nn.Module, rng: np.random.Generator) -> str:
    """A submodule that is called once, and gives ``[B, T, ...]``: the whole is always one."""
    seen: dict[str, int] = {}
    fits = set[str]()

    def hook(name: str) -> Callable[..., None]:
        def look(_module: nn.Module, _given: object, answer: object) -> None:
            seen[name] = seen.get(name, 0) + 1
            first = answer[0] if isinstance(answer, tuple) else answer
            if isinstance(first, Tensor) and first.ndim == 3 and first.shape[:2] == (2, 24):
                fits.add(name)

        return look

    handles = [part.register_forward_hook(hook(name)) for name, part in module.named_modules()]
    with torch.no_grad():
        module(probe(module, 24))
    for handle in handles:
        handle.remove()
    places = sorted(name for name in fits if seen[name] == 1)
    return str(rng.choice(places))


def _at(words: str, change: Callable[[Tensor, int], Tensor], values: tuple[int, ...] = (0,)) -> Callable:
    def put(module: nn.Module, rng: np.random.Generator) -> tuple[nn.Module, str]:
        place, value = _place(module, rng), int(rng.choice(values))
        said = words.format(value)
        return Changed(module, place, lambda y: change(y, value)), f"{said} at {place or 'the output'}"

    return put


def _shift(y: Tensor, _value: int) -> Tensor:
    return torch.cat([y[:, 1:], y[:, -1:]], 1)


def _leak(y: Tensor, border: int) -> Tensor:
    at = list(range(border, y.shape[1] - 1, border))
    if not at:
        return y
    steps = torch.tensor(at)
    return y.index_add(1, steps, 0.1 * y[:, steps + 1])


def _detach(y: Tensor, every: int) -> Tensor:
    if every == 0:
        return y.detach()
    steps = torch.arange(y.shape[1]) % every == 0
    return torch.where(steps[:, None], y.detach(), y)


def _cast(y: Tensor, kind: int) -> Tensor:
    return y.to((torch.bfloat16, torch.float16)[kind]).to(y.dtype)


def _tie(module: nn.Module, rng: np.random.Generator) -> tuple[nn.Module, str] | None:
    weights = [name for name, weight in module.named_parameters() if weight.ndim]
    shapes = {name: module.get_parameter(name).shape for name in weights}
    pairs = [(a, b) for place, a in enumerate(weights) for b in weights[place + 1 :] if shapes[a] == shapes[b]]
    if not pairs:
        return None
    one, other = pairs[int(rng.integers(len(pairs)))]
    owner, _, name = other.rpartition(".")
    setattr(module.get_submodule(owner), name, module.get_parameter(one))
    flat = [part for part in module.modules() if isinstance(part, nn.RNNBase)]
    for part in flat:
        part._flat_weights = [getattr(part, each) for each in part._flat_weights_names]
    return module, f"{one} = {other}"


class Keeps(nn.Module):
    """The mean of a call is in the outputs of the next."""

    def __init__(self, inner: nn.Module, in_training: bool, buffer: bool) -> None:
        super().__init__()
        self.inner, self.in_training = inner, in_training
        if buffer:
            self.register_buffer("last", torch.zeros(()))
        else:
            self.last = torch.zeros(())

    def forward(self, x: Tensor) -> Tensor:
        y = self.inner(x)
        if self.in_training and not self.training:
            return y
        kept, self.last = self.last.to(y), 0.1 * y.detach().mean()
        return y + kept


def _keep(module: nn.Module, rng: np.random.Generator) -> tuple[nn.Module, str]:
    in_training, buffer = bool(rng.integers(2)), bool(rng.integers(2))
    words = f"{'in training' if in_training else 'always'}, in a {'buffer' if buffer else 'attribute'}"
    return Keeps(module, in_training, buffer), words


class Reseeds(nn.Module):
    def __init__(self, inner: nn.Module, whose: int) -> None:
        super().__init__()
        self.inner, self.whose = inner, whose

    def forward(self, x: Tensor) -> Tensor:
        if self.whose == 0:
            torch.manual_seed(0)
        elif self.whose == 1:
            np.random.seed(0)
        elif self.training:
            torch.manual_seed(1)
        return self.inner(x)


def _reseed(module: nn.Module, rng: np.random.Generator) -> tuple[nn.Module, str]:
    whose = int(rng.integers(3))
    return Reseeds(module, whose), ("torch", "numpy", "torch, in training")[whose]


class Placed(nn.Module):
    """Positions are added to the inputs, from a table of so many rows; the last serves for all later steps."""

    def __init__(self, inner: nn.Module, rows: int, way: int) -> None:
        super().__init__()
        self.inner, self.rows, self.way = inner, rows, way
        self.table = nn.Embedding(rows, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        steps = torch.arange(x.shape[1])
        at = steps.clamp(max=self.rows - 1) if self.way < 2 else steps % self.rows
        row = self.table(at) if self.way != 1 else self.table.weight[at]
        return self.inner(x + 0.1 * row)


def _clamp(module: nn.Module, rng: np.random.Generator) -> tuple[nn.Module, str]:
    rows, way = int(rng.integers(8, HORIZON - 8)), int(rng.integers(3))
    return Placed(module, rows, way), f"{rows} rows, {('clamped', 'clamped, by an index', 'modulo')[way]}"


class Masked(nn.Module):
    """Reads under a mask: steps that are not there are taken out first. ``fault`` says what is wrong."""

    def __init__(self, inner: nn.Module, fault: int = -1) -> None:
        super().__init__()
        self.inner, self.fault = inner, fault

    def forward(self, x: Tensor, attention_mask: Tensor | None = None) -> Tensor:
        if attention_mask is None:
            return self.inner(x)
        there = attention_mask.bool()
        if self.fault == 0:
            return self.inner(x)
        if self.fault == 1:
            return self.inner(x * there.unsqueeze(-1).to(x))
        if self.fault == 2:
            there = torch.cat([there[:, 1:], there[:, -1:]], 1)
        order = torch.argsort((~there).long(), dim=1, stable=True).unsqueeze(-1)
        y = self.inner(x.gather(1, order.expand_as(x)))
        return torch.zeros_like(y).scatter(1, order.expand_as(y), y)


def _mask(module: nn.Module, rng: np.random.Generator) -> tuple[nn.Module, str]:
    fault = int(rng.integers(3))
    return Masked(module, fault), ("ignored", "on the inputs alone", "a step early")[fault]


MUTATIONS = {
    "shift": Mutation(_at("a step early", _shift), ("causality",)),
    "detach": Mutation(_at("detached every {0} steps", _detach, (0, 8, 32, 100)), ("derivatives", "parameters")),
    "leak": Mutation(_at("k * {0} sees the next step", _leak, _BORDERS), ("causality",)),
    "cast": Mutation(_at("to half precision {0}", _cast, (0, 1)), ("precision",), "half precision inside"),
    "tie": Mutation(_tie, ("parameters",), "two names"),
    "keep": Mutation(_keep, ("determinism",)),
    "reseed": Mutation(_reseed, ("determinism",)),
    "clamp": Mutation(_clamp, ("tables",), base=lambda module: Placed(module, HORIZON + 1, 0)),
    "mask": Mutation(_mask, ("padding",), base=Masked),
}


def equivalent(kind: str, base: nn.Module, mutant: nn.Module) -> bool:
    """Whether a mutant does what its module does: the same outputs, under masks too, and the same gradients."""
    if kind in ("tie", "keep", "reseed", "clamp"):
        return False  # each differs by construction: one tensor fewer, another call, another generator, a used row
    with seeded(5):
        x = torch.randn(2, _LENGTH, WIDTH, dtype=torch.float64)
    base, mutant = (copy.deepcopy(module).double().eval() for module in (base, mutant))
    masks: list[dict[str, Tensor]] = [{}]
    if kind == "mask":
        there = torch.ones(2, _LENGTH, dtype=torch.bool)
        left, right = there.clone(), there.clone()
        left[:, :5], right[:, -5:] = False, False
        masks += [{"attention_mask": left}, {"attention_mask": right}]
    for given in masks:
        seen = given.get("attention_mask", torch.ones(2, _LENGTH, dtype=torch.bool))
        with torch.no_grad():
            apart = (base(x, **given) - mutant(x, **given))[seen].abs().max()
        if float(apart) > 1e-9:
            return False
    return kind != "detach" or _same_gradients(base, mutant, x)


def _same_gradients(base: nn.Module, mutant: nn.Module, x: Tensor) -> bool:
    found = []
    for module in (base, mutant):
        given = x.clone().requires_grad_()
        answer = module(given)
        if not answer.requires_grad:
            return False
        with seeded(6):
            (answer * torch.randn_like(answer)).sum().backward()
        slopes = [given.grad if given.grad is not None else torch.zeros_like(x)]
        slopes += [torch.zeros_like(each) if each.grad is None else each.grad for each in module.parameters()]
        found.append(slopes)
    sizes = [float((one - other).abs().max()) for one, other in zip(*found, strict=True)]
    return max(sizes) <= 1e-9
