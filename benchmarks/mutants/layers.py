"""Public recurrent layers that pip installs, each as a module ``[B, T, inputs] -> [B, T, outputs]``.

Those whose package is not installed here are left out, and named.
"""

from __future__ import annotations

import importlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

import torch
from torch import Tensor, nn

from memsweep import registry
from memsweep.config.core.build import config_from
from memsweep.models.base import Signature
from memsweep.models.training_mode import seeded
from memsweep.streams import Stream

INPUTS, WIDTH, HORIZON = 4, 8, 300


class Between(nn.Module):
    """A layer of its own width between two linear maps; of its answer, the outputs."""

    def __init__(self, layer: nn.Module, width: int = WIDTH, named: str = "", outputs: int = 0) -> None:
        super().__init__()
        self.enter, self.layer, self.leave = nn.Linear(INPUTS, width), layer, nn.Linear(outputs or width, INPUTS)
        self.named = named

    def forward(self, x: Tensor) -> Tensor:
        u = self.enter(x)
        answer = self.layer(**{self.named: u}) if self.named else self.layer(u)
        while not isinstance(answer, Tensor):
            answer = answer[0]
        return self.leave(answer)


@dataclass(frozen=True)
class Layer:
    """A layer: ``package:name``, and what makes it."""

    name: str
    make: Callable[[], nn.Module]

    def build(self) -> nn.Module:
        with seeded(0):
            return self.make()


def _own(name: str, **given: object) -> nn.Module:
    model = registry.get(registry.MODEL, name)
    signature = Signature(INPUTS, INPUTS, HORIZON)
    return model(config_from(model.Config, given, "the layer"), signature, Stream(0, "initial weights").generator())


def _of(package: str, name: str, *given: object, named: str = "", outputs: int = 0, **more: object) -> nn.Module:
    return Between(getattr(importlib.import_module(package), name)(*given, **more), named=named, outputs=outputs)


def _causal_attention() -> nn.Module:
    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.TransformerEncoderLayer(WIDTH, 2, 2 * WIDTH, batch_first=True)

        def forward(self, x: Tensor) -> Tensor:
            mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], dtype=x.dtype)
            return self.layer(x, mask, is_causal=True)

    return Between(Attention())


def _transformers(config: str, model: str, **more: object) -> nn.Module:
    import transformers

    settings = getattr(transformers, config)(
        vocab_size=8, hidden_size=WIDTH, num_hidden_layers=2, pad_token_id=0, bos_token_id=0, eos_token_id=0, **more
    )
    return Between(getattr(transformers, model)(settings), named="inputs_embeds")


def _xlstm(kind: str) -> nn.Module:
    from xlstm import mLSTMBlockConfig, mLSTMLayerConfig, xLSTMBlockStack, xLSTMBlockStackConfig

    block = mLSTMBlockConfig(mlstm=mLSTMLayerConfig(num_heads=2))
    stack = xLSTMBlockStackConfig(mlstm_block=block, context_length=HORIZON, num_blocks=1, embedding_dim=WIDTH)
    return Between(xLSTMBlockStack(stack))


def probe(module: nn.Module, length: int) -> Tensor:
    """Two sequences in the precision of a module."""
    return torch.randn(2, length, INPUTS, dtype=next(module.parameters()).dtype)


_TORCHRECURRENT = (
    "ATR", "BR", "CFN", "FastGRNN", "IndRNN", "JANET", "LEM", "LiGRU", "LightRU", "MGU", "MUT1", "MinimalRNN",
    "MultiplicativeLSTM", "NBR", "PeepholeLSTM", "RAN", "SCRN", "SGRN", "STAR", "UGRNN", "WMCLSTM",
)  # fmt: skip
_UNITS = ("gla", "hgrn", "lstm", "min_gru", "mlstm", "retnet", "rg_lru", "s6", "ssd", "delta_net")
_OWN = ("diagonal_rnn", "lru", "rnn", "ssm", "stable_ssm", "orthogonal_rnn", "vanilla_rnn")


def layers(names: Sequence[str] = ()) -> tuple[list[Layer], list[str]]:
    """The layers that can be made here, and why others cannot; of some names, or all."""
    known = registry.names(registry.MODEL)
    wanted = [Layer(f"memsweep:{name}", partial(_own, name, width=WIDTH)) for name in _OWN if name in known]
    wanted += [
        Layer(f"memsweep:residual_stack of {name}", partial(_own, "residual_stack", width=WIDTH, unit={"name": name}))
        for name in _UNITS
    ]
    wanted += [
        Layer("torch:GRU", lambda: Between(nn.GRU(WIDTH, WIDTH, batch_first=True))),
        Layer("torch:GRU of 2 layers", lambda: Between(nn.GRU(WIDTH, WIDTH, 2, batch_first=True))),
        Layer("torch:LSTM", lambda: Between(nn.LSTM(WIDTH, WIDTH, batch_first=True))),
        Layer("torch:RNN", lambda: Between(nn.RNN(WIDTH, WIDTH, batch_first=True))),
        Layer("torch:TransformerEncoderLayer", _causal_attention),
    ]
    wanted += [
        Layer(f"torchrecurrent:{name}", partial(_of, "torchrecurrent", name, WIDTH, WIDTH, batch_first=True))
        for name in _TORCHRECURRENT
    ]
    wanted += [
        Layer("minGRU_pytorch:minGRU", partial(_of, "minGRU_pytorch.minGRU", "minGRU", WIDTH)),
        Layer("minGRU_pytorch:minLSTM", partial(_of, "minGRU_pytorch.minLSTM", "minLSTM", WIDTH)),
        Layer("gateloop_transformer:SimplifiedGateLoop",
              partial(_of, "gateloop_transformer.simplified_gate_loop", "SimpleGateLoopLayer", WIDTH)),
        Layer("ncps:CfC", partial(_of, "ncps.torch", "CfC", WIDTH, WIDTH)),
        Layer("ncps:LTC", partial(_of, "ncps.torch", "LTC", WIDTH, WIDTH)),
        Layer("xlstm:mLSTM", partial(_xlstm, "mlstm")),
        Layer("transformers:Mamba", partial(_transformers, "MambaConfig", "MambaModel", state_size=4)),
        Layer("transformers:Mamba2", partial(_transformers, "Mamba2Config", "Mamba2Model", state_size=4, num_heads=4,
                                             head_dim=4, n_groups=1, chunk_size=16)),
        Layer("transformers:Llama", partial(_transformers, "LlamaConfig", "LlamaModel", intermediate_size=16,
                                            num_attention_heads=2)),
    ]  # fmt: skip
    found, away = [], []
    for layer in wanted:
        if names and layer.name not in names:
            continue
        try:
            module = layer.build().eval()
            with torch.no_grad():
                shape = tuple(module(probe(module, 20)).shape)
            if shape != (2, 20, INPUTS):
                away.append(f"{layer.name}: gives {shape}")
                continue
        except Exception as error:  # a package that is away, or wants a GPU
            away.append(f"{layer.name}: {type(error).__name__}: {' '.join(str(error).split())[:80]}")
            continue
        found.append(layer)
    return found, away
