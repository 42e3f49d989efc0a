"""The module under audit: its copies in several precisions, the inputs that it is given, and what it answers.

Letters: B batch, T time (length), I inputs, O outputs.
"""

from __future__ import annotations

import contextlib
import itertools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, partial
from typing import Any, Protocol, TypeVar

import torch
from torch import Tensor, nn

from memsweep.checks.apart import Effect, difference, effect_of
from memsweep.checks.trace import NARROW, Trace
from memsweep.config.load.foreign import in_one_line
from memsweep.errors import ModuleError, listed
from memsweep.models.contracts import TOLERANCES, default_dtype, lowest_precision
from memsweep.models.module.factory import to_dtype
from memsweep.streams import Stream

WIDE, SINGLE, HALF, HALF_16 = torch.float64, torch.float32, torch.bfloat16, torch.float16
NAMES: Mapping[torch.dtype, str] = {WIDE: "float64", SINGLE: "float32", HALF: "bfloat16", HALF_16: "float16"}
SCALES = (1.0, 3.0, 10.0, 30.0)
"""Sizes of constant inputs among which the one with the longest memory is sought: 30 saturates most gates."""
LARGE = 30.0
_EXACT: Mapping[torch.dtype, float] = {WIDE: 1e-7, SINGLE: 1e-5}
"""The least difference that a precision explains."""
_ROUNDING = 100.0
"""How many times the difference that rounding once makes is explained by rounding."""
PREFIX = 8
"""Steps of noise before a constant input."""
_CANDIDATES = 48
_STEEPEST = 2.2
"""Power of the length with which time is taken to grow at most; attention's is 2."""
_BYTES = 2**30
"""The memory that the tensors of one call may take, estimated."""
_TENSORS = 8
"""Tensors of the largest size that are taken to be there at once."""
_NAMED = 3
"""Names of tensors in a sentence."""


class _Moves(Protocol):
    def moved(self) -> tuple[int, int]: ...


Moving = TypeVar("Moving", bound=_Moves)


def explained(apart: float, dtype: torch.dtype) -> float:
    """The relative difference that rounding in a precision explains, where a computation known to be right has one."""
    return max(_EXACT.get(dtype, 0.1), _ROUNDING * apart)


class Subject:
    """A module, as all checks use it: in eval mode, without gradients unless asked, always from the same weights.

    Attributes:
        inputs: I, or the number of ids of tokens.
        horizon: the longest length.
        tokens: inputs are ids ``[B, T]``.
        fixed: it runs at the horizon and at no other length.
        effort: how much is looked at: a check multiplies its number of looks by it.
        left_out: what the check that runs did not look at, because its time was over.
    """

    def __init__(
        self,
        build: Callable[[], nn.Module],
        inputs: int,
        horizon: int,
        *,
        tokens: bool = False,
        device: str = "cpu",
        effort: int = 1,
        other: Callable[[], nn.Module] | None = None,
    ) -> None:
        """``build`` gives the module with the same weights at every call; ``other`` that of another seed, if any."""
        self.effort, self.other = effort, other
        self.left_out: list[str] = []
        self.build, self.inputs, self.horizon, self.tokens, self.device = build, inputs, horizon, tokens, device
        self.fixed = False
        self._built_in = torch.get_default_dtype()
        self._copies: dict[torch.dtype, nn.Module] = {}

    # Copies and calls.

    def at(self, dtype: torch.dtype) -> nn.Module:
        """The module in a precision; complex weights keep their kind."""
        if dtype not in self._copies:
            self._copies[dtype] = self.fresh(dtype)
        return self._copies[dtype]

    def fresh(self, dtype: torch.dtype) -> nn.Module:
        """The module, built again: in torch's own default precision, because draws in another are other weights."""
        with default_dtype(self._built_in):
            module = self.build()
        module = module.eval().to(self.device)
        to_dtype(module, dtype)
        return module

    @cached_property
    def not_had(self) -> dict[str, str]:
        """The precisions that have no complex numbers, where the module has some, each with a sentence.

        There its complex tensors would stay in a wider precision, and so would all that is computed from them.
        """
        module = self.at(self.reference)
        named = {"weights": module.named_parameters(), "buffers": module.named_buffers()}
        found = {kind: [name for name, each in tensors if each.is_complex()] for kind, tensors in named.items()}
        kinds = " and ".join(f"complex {kind} ({listed(names, _NAMED)})" for kind, names in found.items() if names)
        return {
            name: f"It has {kinds}, which {name} has not: {name} was not measured."
            for dtype, name in NAMES.items()
            if kinds and dtype.to_complex().itemsize != 2 * dtype.itemsize
        }

    @cached_property
    def reference(self) -> torch.dtype:
        """float64, or float32 where the module does not run in it."""
        for length in (self.length(4), self.horizon):
            try:
                with torch.no_grad(), default_dtype(WIDE):
                    first(self.at(WIDE)(self.cast(self.noise(1, length), WIDE)))
                return WIDE
            except Exception:  # foreign code may raise anything
                continue
        return SINGLE

    @cached_property
    def inside(self) -> torch.dtype:
        """The lowest precision in which the module computes when it runs in the reference's."""
        self.at(self.reference)  # to build it may read weights of half precision, in which it does not compute
        lowest = lowest_precision(self, self.noise(1, self.length(32)))
        return HALF if lowest in NARROW else lowest

    @cached_property
    def tolerance(self) -> float:
        """The relative difference of two computations of one number that rounding alone explains.

        A module with float32 inside is often far more exact than float32 must be. It gets a hundred times by how far
        its outputs are others where its weights and inputs are rounded to float32, too.
        """
        allowed = TOLERANCES[self.inside]
        if self.inside != SINGLE or self.reference == SINGLE:
            return allowed
        given = self.regimes(self.horizon, 1).values()
        apart = [difference(self(inputs, SINGLE), self(inputs)) for inputs in given]
        known = [size for size in apart if math.isfinite(size)]  # an overflow says nothing of rounding
        return min(allowed, explained(max(known), self.inside)) if known else allowed

    @property
    def changes(self) -> tuple[float, ...]:
        """Sizes of a change of the inputs, from a small one that is well above rounding; a change of ids has none."""
        if self.tokens:
            return (1.0,)
        return {WIDE: (1e-4, 1e-2, 1.0), SINGLE: (1e-2, 1.0), HALF: (0.3, 1.0)}[self.inside]

    def traced(self, dtype: torch.dtype, length: int = 32) -> Trace:
        """Computes a short run in a precision."""
        length = self.length(length)
        module = self.at(dtype)
        trace = Trace(module, length)
        inputs = self.cast(self.noise(1, length), dtype)
        with torch.no_grad(), default_dtype(dtype), trace.watching():
            first(module(inputs))
        return trace

    def length(self, wanted: int) -> int:
        """The length nearest to a wanted one at which the module runs."""
        return self.horizon if self.fixed else min(wanted, self.horizon)

    def lengths(self) -> list[int]:
        """A geometric range up to the horizon, from the shortest."""
        if self.fixed:
            return [self.horizon]
        return sorted({max(1, round(self.horizon / 4**power)) for power in range(5)})

    def affordable(self, lengths: Sequence[int], seconds: float) -> Iterator[int]:
        """Lengths from the shortest, as long as the next one is expected to end in time; says which were left out."""
        looked = []
        for length in affordable(lengths, seconds):
            looked.append(length)
            yield length
        left = [length for length in lengths if length not in looked]
        if left:
            self.left_out.append(f"{', '.join(map(str, left))} steps")

    def _sees(self, batch: int, length: int, dtype: torch.dtype) -> bool:
        """Whether some output is finite in a precision."""
        try:
            return bool(torch.isfinite(self(self.noise(batch, length), dtype)).any())
        except Exception:  # foreign code may raise anything, in this precision alone
            return False

    def run_once(self) -> bool:
        """Runs the module on a few inputs, to refuse in a sentence what gives no outputs at all.

        Returns:
            Whether some output is finite in some precision.

        Raises:
            ModuleError: none of them gives ``[B, T, O]``.
        """
        said = ""
        sizes = [(2, min(7, self.horizon)), (1, min(7, self.horizon)), (1, self.horizon)]
        for dtype, (batch, length) in itertools.product((SINGLE, WIDE), sizes):
            try:
                shape = tuple(self(self.noise(batch, length), dtype).shape)
            except Exception as error:  # foreign code may raise anything
                said = said or in_one_line(error)[:300]
                continue
            if len(shape) == 3 and shape[:2] == (batch, length):
                self._warm_up()
                return any(map(partial(self._sees, batch, length), (SINGLE, WIDE)))
            said = said or f"it gives {[*shape]} for {batch} sequences of {length} steps"
        ids = any(isinstance(part, nn.Embedding) for part in self.at(SINGLE).modules()) and not self.tokens
        kind = "ids [batch, time]" if self.tokens else f"numbers [batch, time, {self.inputs}]"
        raise ModuleError(
            f"The module gives no outputs [batch, time, outputs] for {kind}: {said.rstrip('.')}. "
            + ("It has an embedding: if it reads ids, say --tokens. " if ids else "")
            + "Wrap it in a module that reads these inputs and gives these outputs, or a tuple that begins with them."
        )

    def _warm_up(self) -> None:
        """Lets the first call of everything be made before time is taken; what fails is for the checks to say."""
        length = self.length(2 * PREFIX)
        with contextlib.suppress(Exception):
            self.regimes(length)
        for dtype in NAMES:
            with contextlib.suppress(Exception):
                self(self.noise(2, length), dtype)
                self.traced(dtype, length)

    def cast(self, inputs: Tensor, dtype: torch.dtype) -> Tensor:
        return inputs.to(self.device) if self.tokens else inputs.to(self.device, dtype)

    def __call__(self, inputs: Tensor, dtype: torch.dtype | None = None, module: nn.Module | None = None) -> Tensor:
        """Outputs ``[B, T, O]`` in float64, without gradients; in pieces where they take too much memory."""
        dtype = dtype or self.reference
        module = module or self.at(dtype)
        together = self.together(inputs.shape[1], dtype)
        with torch.no_grad(), default_dtype(dtype):
            parts = [first(module(self.cast(some, dtype))) for some in inputs.split(together)]
        return torch.cat(parts).to("cpu", WIDE)

    def together(self, length: int, dtype: torch.dtype) -> int:
        if length <= 64:
            return 256
        return max(1, int(_BYTES / self.bytes_of(length, dtype)))

    def bytes_of(self, length: int, dtype: torch.dtype) -> float:
        """About the memory of one sequence without gradients: the largest tensor, extrapolated, times a few."""
        short, long = self._largest
        growth = (long / short) ** max(0.0, math.log2(length / 64))
        return long * growth * dtype.itemsize * _TENSORS

    @cached_property
    def _largest(self) -> tuple[int, int]:
        dtype = self.reference
        try:
            return self.traced(dtype, 32).largest, self.traced(dtype, 64).largest
        except Exception:  # it runs at the horizon alone
            size = max(1, self.traced(dtype, self.horizon).largest * 64 // self.horizon)
            return max(1, size // 2), size

    # Inputs.

    def noise(self, batch: int, length: int, index: int = 0, scale: float = 1.0) -> Tensor:
        """Normal inputs ``[B, T, I]`` in float64, or uniform ids ``[B, T]``."""
        rng = Stream(0, "audit").generator(index)
        if self.tokens:
            return torch.from_numpy(rng.integers(0, self.inputs, (batch, length)))
        return scale * torch.from_numpy(rng.standard_normal((batch, length, self.inputs)))

    def zeros(self, batch: int, length: int) -> Tensor:
        """Inputs at rest, or the first id."""
        return self.noise(batch, length) * 0

    def candidates(self) -> Tensor:
        """Constant inputs ``[C, I]``, or ids ``[C]``: axes, the diagonal and random directions, in several sizes."""
        if self.tokens:
            return torch.arange(min(self.inputs, _CANDIDATES))
        eye = torch.eye(self.inputs, dtype=WIDE)[:4]
        ones = torch.ones(1, self.inputs, dtype=WIDE)
        random = self.noise(1, 2, 1)[0]
        directions = torch.cat([eye, ones, random] if self.inputs > 1 else [eye])
        directions = torch.cat([directions, -directions])
        return torch.cat([0 * ones, *(scale * directions for scale in SCALES)])[:_CANDIDATES]

    def held(self, constants: Tensor, length: int) -> Tensor:
        """Noise for 8 steps, then one constant input for ``length`` steps: ``[C, 8 + length, I]``."""
        prefix = self.noise(1, PREFIX, 2).expand(len(constants), *([-1] * (1 if self.tokens else 2)))
        return torch.cat([prefix, constants.unsqueeze(1).expand(-1, length, *constants.shape[1:])], 1)

    def retention(self, constants: Tensor, length: int) -> tuple[Effect, float]:
        """How much a change of the noise is still seen in the outputs while the input is constant: ``[C, length]``.

        The norm over outputs of their difference; for real inputs over the size of the change, which is returned, too.
        """
        inputs = self.held(constants, length)

        def left(size: float) -> Effect:
            one, other = self(torch.cat([inputs, self.changed(inputs, slice(0, PREFIX), size)])).split(len(constants))
            apart, largest = (other - one)[:, PREFIX:].norm(dim=-1), one.norm(dim=-1).amax(1)
            return effect_of(apart, largest, self.inside, size)

        return self.smallest_seen(left)

    def smallest_seen(self, look: Callable[[float], Moving]) -> tuple[Moving, float]:
        """Looks with the smallest change that moves half of all rows, else with the one that moves most; and its size.

        A module that rounds its inputs does not see a small change. One that saturates sees none under some inputs.
        Rows that are not finite do not count. Where no change moves a row, it is the look with the largest.

        Args:
            look: measures with a change of some size.
        """
        found = list[tuple[int, Moving, float]]()
        for size in self.changes:
            looked = look(size)
            moved, known = looked.moved()
            found.append((moved, looked, size))
            if moved and 2 * moved >= known:
                return looked, size
        moved, looked, size = max(found, key=lambda each: each[0])
        return (looked, size) if moved else found[-1][1:]

    def changed(self, inputs: Tensor, steps: slice, size: float) -> Tensor:
        """The same inputs with a change of some size in some steps; of tokens, with the next ids."""
        other = inputs.clone()
        if self.tokens:
            other[:, steps] = (other[:, steps] + 1) % self.inputs
        else:
            other[:, steps] += size * self.noise(1, len(range(*steps.indices(inputs.shape[1]))), 3)
        return other

    @cached_property
    def longest_hold(self) -> Tensor:
        """The constant input under which the module keeps an earlier input longest: ``[1, I]``, or ``[1]``."""
        constants = self.candidates()
        length = max(1, self.length(256 + PREFIX) - PREFIX)
        kept = self.retention(constants, length)[0].rows
        kept = torch.nan_to_num(kept / kept.amax(1, keepdim=True).clamp(min=1e-300), nan=0.0)
        at = int(kept[:, -max(1, length // 8) :].amax(1).argmax())
        return constants[at : at + 1]

    def regimes(self, length: int, batch: int = 2) -> dict[str, Tensor]:
        """Inputs by the name of the regime into which they bring the gates."""
        chosen = {"noise": self.noise(batch, length), "zeros": self.zeros(1, length)}
        if length > PREFIX:
            chosen["hold"] = self.held(self.longest_hold, length - PREFIX)
        if not self.tokens:
            chosen["large"] = self.noise(1, length, 4, LARGE)
        return chosen


def first(answer: Any) -> Tensor:
    """The outputs, where a module gives states as well; ``[B, T]`` becomes ``[B, T, 1]``."""
    given = type(answer).__name__
    while not isinstance(answer, Tensor):
        if answer is None or isinstance(answer, str | bytes | int | float | set):
            raise TypeError(f"forward gave {given}, which is no tensor and begins with none")
        answer = next(iter(answer.values())) if isinstance(answer, dict) else answer[0]
    if answer.is_complex():
        raise TypeError("forward gave complex numbers; give their real part, or both parts as outputs")
    return answer.unsqueeze(-1) if answer.ndim == 2 else answer


def affordable(lengths: Sequence[int], seconds: float) -> Iterator[int]:
    """Lengths from the shortest, as long as the next one is expected to end in time; the first two always.

    The expectation comes from how the time grew between the last two, and is at least proportional.
    """
    end, before, spent = time.monotonic() + seconds, 0, 0.0
    growth = 1.0
    for number, length in enumerate(lengths):
        if number > 1:
            expected = spent * (length / before) ** growth
            if time.monotonic() + expected > end:
                return
        start = time.monotonic()
        yield length
        now = time.monotonic() - start
        if before and spent > 0 and length > before:
            growth = min(max(math.log(max(now, 1e-9) / spent) / math.log(length / before), 1.0), _STEEPEST)
        before, spent = length, now
