"""torch's recurrent layers in a user's module (``nn.RNN``, ``nn.GRU``, ``nn.LSTM``), by the compiled recurrences.

In a trial, the layers of a module get another ``forward``. It computes in compiled code what memsweep's recurrences
know, and calls torch's own for the rest: given states, packed sequences, autocast, a GPU. A module is left as it is
where it reads what these recurrences do not give (an LSTM's last cell state, a gradient of a gradient), or may hand it
on (an LSTM with a step form).

Letters: B batch, T time, F features of the input, M width, G = gates times M; the leading 1 is the one model.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from types import MethodType
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor, nn

from memsweep.models.module.config import ModuleConfig
from memsweep.models.module.factory import PROBE_STEPS, Factory, probe_inputs, resolve
from memsweep.models.module.steps import step_of
from memsweep.models.roles import Signature
from memsweep.models.training_mode import seeded
from memsweep.recurrence.gated.gru import gru_states
from memsweep.recurrence.gated.kernel import CompiledGated
from memsweep.recurrence.gated.lstm import lstm_states
from memsweep.recurrence.layer import affine
from memsweep.recurrence.scan import scan

if TYPE_CHECKING:
    from memsweep.models.module.influence import Build

_SMALL = Signature(inputs=2, outputs=2, horizon=PROBE_STEPS)


class _Once(torch.autograd.Function):
    """A tensor that refuses a gradient of its gradient: without this, that of these recurrences would be zero."""

    @staticmethod
    def forward(ctx: Any, tensor: Tensor) -> Tensor:
        return tensor.clone()  # a view of a function like this could not be changed in place

    @staticmethod
    def backward(ctx: Any, *outer: Any) -> Any:
        if torch.is_grad_enabled():  # of create_graph
            raise RuntimeError(_TORCHS.format("differentiates a recurrent layer twice", "GRU"))
        return outer[0]


def _forward(layer: nn.RNNBase, input: Any, hx: Any = None) -> Any:
    """``forward`` of a layer, in compiled code where there is some for the input."""
    known = hx is None and isinstance(input, Tensor) and input.dim() == 3 and not torch.is_autocast_enabled("cpu")
    if not known or CompiledGated.fitting(input) is None:
        return type(layer).forward(layer, input, hx)
    x = input if layer.batch_first else input.transpose(0, 1)
    states_1BTM, last = _Once.apply(x).unsqueeze(0), []
    for number in range(layer.num_layers):
        names = [f"{kind}_{of}_l{number}" for kind in ("weight", "bias")[: 1 + layer.bias] for of in ("ih", "hh")]
        into_1GF, over_1GM, *biases = (_Once.apply(getattr(layer, name)).unsqueeze(0) for name in names)
        biases = biases or [into_1GF.new_zeros(into_1GF.shape[:2])] * 2
        states_1BTM = _STATES[type(layer)](layer, states_1BTM, into_1GF, over_1GM, *biases)
        last.append(states_1BTM[0, :, -1])
    states, ended = states_1BTM.squeeze(0), torch.stack(last)
    answer = states if layer.batch_first else states.transpose(0, 1)
    return answer, ((ended, _Unknown()) if isinstance(layer, nn.LSTM) else ended)


def _of_rnn(layer: Any, x_1BTF: Tensor, into_1GF: Tensor, over_1GM: Tensor, in_1G: Tensor, on_1G: Tensor) -> Tensor:
    return scan(affine(x_1BTF, into_1GF, in_1G + on_1G), over_1GM, layer.nonlinearity, leak=0.0)


def _of_gru(layer: Any, x_1BTF: Tensor, into_1GF: Tensor, over_1GM: Tensor, in_1G: Tensor, on_1G: Tensor) -> Tensor:
    """torch's z is the share of a state that is kept; that of ``gru_states`` is new, and 1 - s(a) = s(-a)."""

    def turned(gates: Tensor) -> Tensor:
        reset, kept, candidate = gates.chunk(3, 1)
        return torch.cat([reset, -kept, candidate], 1)

    recalled_1M = on_1G[:, -layer.hidden_size :]
    kept_1G = torch.cat([on_1G[:, : -layer.hidden_size], torch.zeros_like(recalled_1M)], 1)
    encoder_1GF, bias_1G, matrix_1GM = map(turned, (into_1GF, in_1G + kept_1G, over_1GM))
    return gru_states(x_1BTF, encoder_1GF, bias_1G, matrix_1GM, recalled_1M)


def _of_lstm(layer: Any, x_1BTF: Tensor, into_1GF: Tensor, over_1GM: Tensor, in_1G: Tensor, on_1G: Tensor) -> Tensor:
    """torch's gates are i, f, g and o; those of ``lstm_states`` are i, f, o and g."""

    def turned(gates: Tensor) -> Tensor:
        into, forget, candidate, out = gates.chunk(4, 1)
        return torch.cat([into, forget, out, candidate], 1)

    encoder_1GF, bias_1G, matrix_1GM = map(turned, (into_1GF, in_1G + on_1G, over_1GM))
    return lstm_states(x_1BTF, encoder_1GF, bias_1G, matrix_1GM)


_STATES: dict[type[nn.Module], Callable[..., Tensor]] = {nn.RNN: _of_rnn, nn.GRU: _of_gru, nn.LSTM: _of_lstm}
"""A layer -> its states ``[1, B, T, M]``, from its input, torch's W and U, and their biases ``[1, G]``."""
_TORCHS = (
    "this module {}, which compiled recurrences do not give. Make its layer of a class of yours: class Own(nn.{}): pass"
)


class _Unknown:
    """In place of the last cell state: whatever reads it fails, so that ``holds_torch_layers`` finds it."""

    def __getattr__(self, name: str) -> Any:
        raise RuntimeError(_TORCHS.format("reads an LSTM's last cell state in some calls", "LSTM"))

    __getitem__ = __iter__ = __len__ = __getattr__


def compiled_layers(module: nn.Module) -> nn.Module:
    """The module, whose recurrent layers are computed in compiled code from now on."""
    for part in module.modules():
        if _is_known(part):
            part.forward = MethodType(_forward, part)
    return module


def holds_torch_layers(config: Any, build: Build) -> bool:
    """Whether a module has layers that ``compiled_layers`` changes, and asks nothing of them that these cannot give.

    That is an LSTM's last cell state, and a gradient of a gradient, in training or evaluation. Seeds that torch
    computes together, by ``vmap``, are left to torch.
    """
    return config.replicas != "vmap" and _holds(config, resolve(config.factory), build)


@functools.lru_cache(maxsize=256)
def _holds(config: ModuleConfig, factory: Factory, build: Build) -> bool:
    del factory  # another one once its file has changed
    try:
        module = build(config, _SMALL, 0)
        layers = [part for part in module.modules() if _is_known(part)]
        for part in layers:
            part.register_forward_hook(_as_compiled)
        for mode in (True, False):
            with seeded(0):
                module.train(mode)(probe_inputs(config.sizes(_SMALL), config.tokens))
        hands_on = step_of(module) is not None and any(isinstance(part, nn.LSTM) for part in layers)
    except Exception:  # a user's code fails in many ways; the check before a study says it
        return False
    return bool(layers) and not hands_on


def _as_compiled(layer: nn.Module, given: Any, answer: Any) -> Any:
    """torch's answer, without what compiled recurrences do not give."""
    states, last = answer
    if not isinstance(states, Tensor):  # packed sequences are torch's
        return answer
    return _Once.apply(states), ((last[0], _Unknown()) if isinstance(layer, nn.LSTM) else last)


def _is_known(part: nn.Module) -> bool:
    """Whether a part is one of these layers, and no class of a user's above it; torch's dropout draws its own way."""
    known = type(part) in _STATES and isinstance(part, nn.RNNBase)
    return known and not (part.bidirectional or part.proj_size or part.dropout)
