"""Every rule against sensitivities carried forward by dense matrices, from another account of the same network.

The oracle has the equations of units and stack of its own, writes complex states as pairs of real numbers, and
differentiates single steps forward by complex steps, f'(x) = Im f(x + ie) / e, which are exact to the last bits for a
tiny e. With S_t = dh_t/dtheta and f_theta, f_h the derivatives of one
step, a rule is the loop S_t = f_theta + D_t S_{t-1}, for which it says D_t, and its gradient is

    sum_t (error of the states of step t) S_t  +  what the step's loss owes to all else, with states before it as given.

Backpropagation through time is the same loop for the whole network at once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor
from torch.func import vmap

from benchmarks.rules.small_stacks import FEATURES, Case, case, unit_config

W = dict[str, Tensor]


def lru(w: W, rec: W, x: Tensor, h: Tensor) -> Tensor:
    width = len(h) // 2
    size, angle, gain = torch.exp(-torch.exp(rec["nu"])), torch.exp(rec["theta"]), torch.exp(w["gamma_log"])
    re, im, a, b = size * torch.cos(angle), size * torch.sin(angle), h[:width], h[width:]
    return torch.cat([re * a - im * b + gain * (w["encoder_re"] @ x), re * b + im * a + gain * (w["encoder_im"] @ x)])


def rnn(w: W, rec: W, x: Tensor, h: Tensor) -> Tensor:
    return rec["matrix"] @ torch.tanh(h) + w["encoder"] @ x


def gru(w: W, rec: W, x: Tensor, h: Tensor) -> Tensor:
    def drive(gate: str) -> Tensor:
        return w[f"encoder_{gate}"] @ x + w[f"bias_{gate}"]

    reset = torch.sigmoid(drive("reset") + rec["matrix_reset"] @ h)
    fresh = torch.sigmoid(drive("update") + rec["matrix_update"] @ h)
    candidate = torch.tanh(drive("candidate") + reset * (rec["matrix_candidate"] @ h + rec["bias_recalled"]))
    return (1.0 - fresh) * h + fresh * candidate


def gelu(a: Tensor) -> Tensor:
    return 0.5 * a * (1.0 + torch.tanh(math.sqrt(2.0 / math.pi) * (a + 0.044715 * a**3)))


@dataclass(frozen=True)
class Account:
    """A unit in equations of the oracle's own.

    Attributes:
        config: of the unit.
        step: states after a step, from the weights, the weights of the recurrent connection, x and the states before.
        answer: what the layer goes on with.
        pair: a state is two real numbers, the first halves first.
        recurrent: weights of the recurrent connection.
        inputs: other weights of the recurrence.
        forgetting: those that ``online_full_rec`` carries.
    """

    config: Any
    step: Callable[[W, W, Tensor, Tensor], Tensor]
    answer: Callable[[W, Tensor, Tensor], Tensor]
    pair: bool
    recurrent: tuple[str, ...]
    inputs: tuple[str, ...]
    forgetting: tuple[str, ...] = ()


ACCOUNTS = {
    "lru": Account(
        unit_config("lru"),
        lru,
        lambda w, x, h: w["readout_re"] @ h[: len(h) // 2] - w["readout_im"] @ h[len(h) // 2 :] + w["skip"] * x,
        True,
        ("nu", "theta"),
        ("gamma_log", "encoder_re", "encoder_im"),
        ("nu", "theta", "gamma_log"),
    ),
    "rnn": Account(
        unit_config("rnn", activation="tanh"),
        rnn,
        lambda w, x, h: w["readout"] @ h + w["skip"] * x,
        False,
        ("matrix",),
        ("encoder",),
    ),
    "gru": Account(
        unit_config("gru"),
        gru,
        lambda w, x, h: h,
        False,
        ("matrix_reset", "matrix_update", "matrix_candidate", "bias_recalled"),
        tuple(f"{kind}_{gate}" for kind in ("encoder", "bias") for gate in ("reset", "update", "candidate")),
    ),
}


def of_layer(w: W, layer: int) -> W:
    end = f"_l{layer}"
    return {name.removesuffix(end): value for name, value in w.items() if name.endswith(end)}


def derivative(function: Callable[..., Tensor], by: int, *points: Tensor) -> Tensor:
    """Of a real analytic function by one of its arguments, ``[*shape of the value, *shape of the argument]``."""
    size = points[by].numel()
    tiny = 1e-100j * torch.eye(size, dtype=torch.complex128).reshape(size, *points[by].shape)

    def along(step: Tensor) -> Tensor:
        return function(*points[:by], points[by] + step, *points[by + 1 :]).imag / 1e-100

    return vmap(along, out_dims=-1)(tiny).unflatten(-1, points[by].shape)


class Oracle:
    """Derivatives of every single step of a case, and the rules' loops over them; weights in one vector.

    Args:
        name: of the unit.
        layers: of the stack.
        steps: of its two sequences.
    """

    def __init__(self, name: str, layers: int, steps: int = 5) -> None:
        self.account, self.layers = ACCOUNTS[name], layers
        self.case: Case = case(
            self.account.config, batch=2, steps=steps, layers=layers, mixing="full_glu", norm="layer"
        )
        self.names = list(self.case.weights)
        self.weights = {weight: value[0].to(torch.complex128) for weight, value in self.case.weights.items()}
        self.sizes = {weight: value.numel() for weight, value in self.weights.items()}
        self.theta = torch.cat([value.flatten() for value in self.weights.values()])
        self.states = FEATURES * (2 if self.account.pair else 1)
        self._differentiate()

    def named(self, theta: Tensor) -> W:
        parts = theta.split(list(self.sizes.values()))
        return {name: part.reshape(self.weights[name].shape) for name, part in zip(self.names, parts, strict=True)}

    def at(self, names: Sequence[str]) -> Tensor:
        """1 at the weights of these names, 0 elsewhere."""
        return torch.cat([torch.full((size,), float(name in names)) for name, size in self.sizes.items()]).double()

    def network(self, theta: Tensor, held: Tensor, x: Tensor, h: Tensor, push: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        """One step: states of all layers, what every layer's unit reads, and the outputs.

        Args:
            theta, held: weights of everything, and those that the units' recurrences take.
            x: ``[I]``.
            h, push: ``[layers, states]``, before the step, and what is added after it.
        """
        w, inner = self.named(theta), self.named(held)
        x = w["encoder_weight"] @ x + w["encoder_bias"]
        states, reads = [], []
        for layer in range(self.layers):
            outer, own = of_layer(w, layer), of_layer(inner, layer)
            centred = x - x.mean()
            scaled = centred / torch.sqrt(centred.square().mean() + 1e-6)
            read = scaled * outer["norm_weight"] + outer["norm_bias"]
            state = self.account.step(own, own, read, h[layer]) + push[layer]
            bent = gelu(self.account.answer(outer, read, state))
            gate = torch.sigmoid(outer["gate_weight"] @ bent + outer["gate_bias"])
            x = x + (outer["mix_weight"] @ bent + outer["mix_bias"]) * gate
            states.append(state)
            reads.append(read)
        return torch.stack(states), torch.stack(reads), w["readout_weight"] @ x + w["readout_bias"]

    def unit(self, layer: int, theta: Tensor, recurrent: Tensor, x: Tensor, h: Tensor) -> Tensor:
        """One step of one layer's unit; its recurrent connection has weights of its own."""
        w, rec = of_layer(self.named(theta), layer), of_layer(self.named(recurrent), layer)
        return self.account.step(w, rec, x, h)

    def _differentiate(self) -> None:
        """Dense derivatives of all single steps, ``[B, T, ...]``, along the sequences as they are."""
        theta, nothing = self.theta, torch.zeros(self.layers, self.states, dtype=torch.complex128)
        befores, reads = [], []
        inputs, targets = (values.to(torch.complex128) for values in (self.case.inputs, self.case.targets))
        for sequence in inputs:
            h = nothing
            for x in sequence:
                befores.append(h)
                h, read, _ = self.network(theta, theta, x, h, nothing)
                reads.append(read)
        xs, aims = inputs.flatten(0, 1), targets.flatten(0, 1)
        before, read = torch.stack(befores), torch.stack(reads)

        def loss(theta: Tensor, held: Tensor, push: Tensor, x: Tensor, h: Tensor, aim: Tensor) -> Tensor:
            return 0.5 * (self.network(theta, held, x, h, push)[2] - aim).square().sum()

        def whole_loss(theta: Tensor, x: Tensor, h: Tensor, aim: Tensor) -> Tensor:
            return loss(theta, theta, nothing, x, h, aim)

        def whole_states(theta: Tensor, x: Tensor, h: Tensor) -> Tensor:
            return self.network(theta, theta, x, h, nothing)[0].flatten()

        self.outside, self.errors = self._steps(loss, (0, 2), (theta, theta, nothing), (xs, before, aims))
        self.whole_loss = self._steps(whole_loss, (0, 2), (theta,), (xs, before, aims))
        self.whole_states = self._steps(whole_states, (0, 2), (theta,), (xs, before))
        self.units = [
            self._steps(partial(self.unit, layer), (0, 1, 3), (theta, theta), (read[:, layer], before[:, layer]))
            for layer in range(self.layers)
        ]

    def _steps(
        self, function: Callable[..., Tensor], by: tuple[int, ...], same: Sequence[Tensor], each: Sequence[Tensor]
    ) -> list[Tensor]:
        """Derivatives by some arguments: the first ones are the same at all steps, the others are each step's own."""
        dims = (*[None] * len(same), *[0] * len(each))
        found = [vmap(partial(derivative, function, number), dims)(*same, *each) for number in by]
        return [one.unflatten(0, self.case.inputs.shape[:2]) for one in found]

    def gradient(self, rule: str) -> Tensor:
        """Of all weights in their order, as one vector, by a rule given by its name."""
        return self._whole() if rule == "bptt" else self._by_layers(rule)

    def _whole(self) -> Tensor:
        """The network as one recurrence."""
        (of_theta, of_states), (loss_theta, loss_states) = self.whole_states, self.whole_loss
        total = loss_theta.sum((0, 1))
        for b in range(len(of_theta)):
            sensitivity = torch.zeros_like(of_theta[b, 0])
            for t in range(of_theta.shape[1]):
                total += loss_states[b, t].flatten() @ sensitivity
                sensitivity = of_theta[b, t] + of_states[b, t].flatten(1) @ sensitivity
        return total

    def _by_layers(self, name: str) -> Tensor:
        """Spatial errors, and sensitivities as the rule carries them."""
        total = self.outside.sum((0, 1))
        forgetting = [f"{weight}_l{layer}" for weight in self.account.forgetting for layer in range(self.layers)]
        carried = self.at(forgetting if name.startswith("online_full_rec") else self.names)
        for layer, (of_inputs, of_recurrent, slope) in enumerate(self.units):
            now = of_inputs if name == "online_spatial" else of_inputs + of_recurrent
            for b in range(len(now)):
                sensitivity = torch.zeros_like(now[b, 0])
                for t in range(now.shape[1]):
                    sensitivity = now[b, t] + carried * (self.kept(name, slope[b, t]) @ sensitivity)
                    total += self.errors[b, t, layer] @ sensitivity
        behind = [weight for weight in self.names if weight in ("readout_weight", "readout_bias")]
        return total * self.at(behind) if name == "online_reservoir" else total

    @staticmethod
    def kept(name: str, slope: Tensor) -> Tensor:
        """D_t: what of a step's Jacobian a rule carries."""
        if name.startswith("online_full"):
            return slope
        if name == "online_snap1":  # the diagonal; of pairs, that of each of the four blocks
            return slope * torch.eye(FEATURES, dtype=slope.dtype).repeat(*[size // FEATURES for size in slope.shape])
        return torch.zeros_like(slope)
