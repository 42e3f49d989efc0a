"""torch's recurrent layers in a user's module (``nn.RNN``, ``nn.GRU``, ``nn.LSTM``), by the compiled recurrences.

In a trial, the layers of a module become those of this file: the same ones with another ``forward``. It computes in
compiled code what memsweep's recurrences know, and calls torch's own for the rest: given states, packed sequences, a
GPU. A module that reads an LSTM's last cell state, which these recurrences do not give, is left as it is; so is one
with an LSTM and a step form, which may hand that state on.

Letters: B batch, T time, F features of the input, M width, G = gates times M; the leading 1 is the one model.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from memsweep.models.module.config import ModuleConfig
from memsweep.models.module.factory import Factory, probe_inputs, resolve
from memsweep.models.module.steps import step_of
from memsweep.models.roles import Signature
from memsweep.recurrence.gated.gru import gru_states
from memsweep.recurrence.gated.kernel import CompiledGated
from memsweep.recurrence.gated.lstm import lstm_states
from memsweep.recurrence.layer import affine
from memsweep.recurrence.scan import scan

Build = Callable[[ModuleConfig, Signature, int], nn.Module]
"""Makes a module of a config, of the sizes of a task, and of a seed."""
_SMALL = Signature(inputs=2, outputs=2, horizon=8)


class _Compiled(nn.RNNBase):
    """Layers of torch's, one above the other, in compiled code where there is some for the input."""

    def forward(self, x: Any, before: Any = None) -> Any:
        known = before is None and isinstance(x, Tensor) and x.dim() == 3
        if not known or CompiledGated.fitting(x) is None:
            return super().forward(x, before)
        states_1BTM, last = (x if self.batch_first else x.transpose(0, 1)).unsqueeze(0), []
        for layer in range(self.num_layers):
            into_1GF, over_1GM = (getattr(self, f"weight_{of}_l{layer}").unsqueeze(0) for of in ("ih", "hh"))
            if self.bias:
                biases = tuple(getattr(self, f"bias_{of}_l{layer}").unsqueeze(0) for of in ("ih", "hh"))
            else:
                biases = (into_1GF.new_zeros(into_1GF.shape[:2]),) * 2
            states_1BTM = self.states(states_1BTM, into_1GF, over_1GM, *biases)
            last.append(states_1BTM[0, :, -1])
        states = states_1BTM.squeeze(0)
        return states if self.batch_first else states.transpose(0, 1), self.ended(torch.stack(last))

    def states(self, x_1BTF: Tensor, into_1GF: Tensor, over_1GM: Tensor, *biases: Tensor) -> Tensor:
        """States ``[1, B, T, M]`` of one layer, from torch's W and U and their biases ``[1, G]``."""
        raise NotImplementedError

    def ended(self, last: Tensor) -> Any:
        """The last states ``[layers, B, M]`` in the form in which torch's layer gives them."""
        return last


class _RNN(_Compiled, nn.RNN):
    def states(self, x_1BTF: Tensor, into_1GF: Tensor, over_1GM: Tensor, *biases: Tensor) -> Tensor:
        return scan(affine(x_1BTF, into_1GF, biases[0] + biases[1]), over_1GM, self.nonlinearity, leak=0.0)


class _GRU(_Compiled, nn.GRU):
    """Its z is the share of a state that is kept, that of ``gru_states`` the share that is new: 1 - s(a) = s(-a)."""

    def states(self, x_1BTF: Tensor, into_1GF: Tensor, over_1GM: Tensor, *biases: Tensor) -> Tensor:
        in_1G, on_1G = biases
        kept_1G = torch.cat([on_1G[:, : -self.hidden_size], torch.zeros_like(on_1G[:, -self.hidden_size :])], 1)
        encoder_1GF, bias_1G, matrix_1GM = map(self._turned, (into_1GF, in_1G + kept_1G, over_1GM))
        return gru_states(x_1BTF, encoder_1GF, bias_1G, matrix_1GM, on_1G[:, -self.hidden_size :])

    def _turned(self, gates: Tensor) -> Tensor:
        reset, kept, candidate = gates.chunk(3, 1)
        return torch.cat([reset, -kept, candidate], 1)


class _LSTM(_Compiled, nn.LSTM):
    """Its gates are i, f, g and o; those of ``lstm_states`` are i, f, o and g."""

    def states(self, x_1BTF: Tensor, into_1GF: Tensor, over_1GM: Tensor, *biases: Tensor) -> Tensor:
        encoder_1GF, bias_1G, matrix_1GM = map(self._turned, (into_1GF, biases[0] + biases[1], over_1GM))
        return lstm_states(x_1BTF, encoder_1GF, bias_1G, matrix_1GM)

    def _turned(self, gates: Tensor) -> Tensor:
        into, forget, candidate, out = gates.chunk(4, 1)
        return torch.cat([into, forget, out, candidate], 1)

    def ended(self, last: Tensor) -> Any:
        return last, _Unknown()


class _Unknown:
    """In place of the last cell state: whatever reads it fails, so that ``holds_torch_layers`` finds it."""


_COMPILED: dict[type[nn.Module], type[_Compiled]] = {nn.RNN: _RNN, nn.GRU: _GRU, nn.LSTM: _LSTM}


def compiled_layers(module: nn.Module) -> nn.Module:
    """The module, whose recurrent layers are computed in compiled code from now on; its tensors stay its own."""
    for part in filter(_is_known, module.modules()):
        part.__class__ = _COMPILED[type(part)]
    return module


def holds_torch_layers(config: ModuleConfig, build: Build) -> bool:
    """Whether a module has layers that ``compiled_layers`` changes, and reads no last cell state.

    Seeds that torch computes together, by ``vmap``, are left to torch.
    """
    return config.replicas != "vmap" and _holds(config, resolve(config.factory), build)


@functools.lru_cache(maxsize=256)
def _holds(config: ModuleConfig, factory: Factory, build: Build) -> bool:
    del factory  # another one once its file has changed
    try:
        module = build(config, _SMALL, 0).eval()
        layers = [part for part in module.modules() if _is_known(part)]
        for part in layers:
            part.register_forward_hook(_without_cells)
        with torch.no_grad():
            module(probe_inputs(config.sizes(_SMALL), config.tokens))
        hands_on = step_of(module) is not None and any(isinstance(part, nn.LSTM) for part in layers)
    except Exception:  # a user's code fails in many ways; the check before a study says it
        return False
    return bool(layers) and not hands_on


def _without_cells(layer: nn.Module, given: Any, answer: Any) -> Any:
    states, last = answer
    return (states, (last[0], _Unknown())) if isinstance(layer, nn.LSTM) else answer


def _is_known(part: nn.Module) -> bool:
    """Whether a part is one of these layers, and no class of a user's above it; torch's dropout draws its own way."""
    known = type(part) in _COMPILED and isinstance(part, nn.RNNBase)
    return known and not (part.bidirectional or part.proj_size or part.dropout)
