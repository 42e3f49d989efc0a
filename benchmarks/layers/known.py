"""Public recurrent layers that pip installs, each as a module ``[B, T, WIDTH] -> [B, T, outputs]``.

A layer is taken as its package gives it: with the states, masks and step forms that it has. Those whose package is not
installed here are left out, and named.
"""

from __future__ import annotations

import importlib
import importlib.metadata
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from memsweep import registry
from memsweep.config.core.build import config_from
from memsweep.models.base import Signature
from memsweep.models.training_mode import seeded
from memsweep.streams import Stream

WIDTH, HORIZON = 8, 300
_CONTEXT = 512
"""Positions of models that have a table of them, or name their longest sequence."""
_SCALE = 0.4
"""Of initial weights of transformers: 0.02 is for widths of thousands, and at 8 a layer then adds next to nothing."""
_DISTRIBUTIONS = {"minGRU_pytorch": "minGRU-pytorch", "gateloop_transformer": "gateloop-transformer"}


@dataclass(frozen=True)
class Layer:
    """A layer: ``package:name``, and what makes it; ``own`` are its parts among ours, by kind and name."""

    name: str
    make: Callable[[], nn.Module]
    own: tuple[tuple[str, str], ...] = ()

    @property
    def package(self) -> str:
        return self.name.split(":")[0]

    @property
    def version(self) -> str:
        """Of its package, without the build's mark."""
        return importlib.metadata.version(_DISTRIBUTIONS.get(self.package, self.package)).split("+")[0]

    @property
    def settings(self) -> str:
        """The call that makes it, with all arguments."""
        made = self.make
        given = (made.args, made.keywords) if isinstance(made, partial) else ()
        return f"{getattr(made, 'func', made).__qualname__} {given}"

    def parts(self) -> list[type]:
        """Its classes among ours."""
        return [registry.get(kind, name) for kind, name in self.own]

    def build(self) -> nn.Module:
        with seeded(0):
            return self.make()


class Embedded(nn.Module):
    """A model of transformers that reads vectors ``[B, T, WIDTH]`` in the place of ids."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        model.set_input_embeddings(nn.Identity())  # it has no part in reading vectors
        self.model = model

    def forward(
        self, inputs_embeds: Tensor, cache: Any = None, use_cache: Any = None, attention_mask: Any = None
    ) -> Any:
        return self.model(inputs_embeds=inputs_embeds, cache=cache, use_cache=use_cache, attention_mask=attention_mask)


class EmbeddedRwkv(Embedded):
    """The same, of the model whose cache is called a state; it takes no mask."""

    def forward(self, inputs_embeds: Tensor, state: Any = None, use_cache: Any = None) -> Any:  # type: ignore[override]
        return self.model(inputs_embeds=inputs_embeds, state=state, use_cache=use_cache)


class CausalAttention(nn.Module):
    """A layer of torch's encoder under a causal mask."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = nn.TransformerEncoderLayer(WIDTH, 2, 2 * WIDTH, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        mask = nn.Transformer.generate_square_subsequent_mask(x.shape[1], dtype=x.dtype)
        return self.layer(x, mask, is_causal=True)


def _own(name: str, **given: object) -> nn.Module:
    model = registry.get(registry.MODEL, name)
    signature = Signature(WIDTH, WIDTH, HORIZON)
    return model(config_from(model.Config, given, "the layer"), signature, Stream(0, "initial weights").generator())


def _of(package: str, name: str, *given: object, **more: object) -> nn.Module:
    return getattr(importlib.import_module(package), name)(*given, **more)


def _wired(name: str) -> nn.Module:
    from ncps.wirings import AutoNCP

    return _of("ncps.torch", name, WIDTH, AutoNCP(3 * WIDTH, WIDTH))


def _transformers(model: str, **more: object) -> nn.Module:
    import transformers

    ids = {"vocab_size": 8, "pad_token_id": 0, "bos_token_id": 0, "eos_token_id": 0}
    sizes = {"hidden_size": WIDTH, "num_hidden_layers": 2}
    scale = {} if model == "Rwkv" else {"initializer_range": _SCALE}
    settings = getattr(transformers, f"{model}Config")(**ids, **sizes, **scale, **more)
    made = getattr(transformers, f"{model}Model")(settings)
    return EmbeddedRwkv(made) if model == "Rwkv" else Embedded(made)


def _xlstm(kind: str) -> nn.Module:
    import xlstm

    blocks: dict[str, object] = {
        "mlstm_block": xlstm.mLSTMBlockConfig(mlstm=xlstm.mLSTMLayerConfig(num_heads=2)),
        "slstm_block": xlstm.sLSTMBlockConfig(slstm=xlstm.sLSTMLayerConfig(backend="vanilla", num_heads=2)),
    }
    chosen = {f"{kind}_block": blocks[f"{kind}_block"], "slstm_at": [0] if kind == "slstm" else []}
    stack = xlstm.xLSTMBlockStackConfig(context_length=_CONTEXT, num_blocks=1, embedding_dim=WIDTH, **chosen)
    return xlstm.xLSTMBlockStack(stack)


_ATTENTION = {
    "num_attention_heads": 2,
    "num_key_value_heads": 1,
    "intermediate_size": 16,
    "max_position_embeddings": _CONTEXT,
}
_MAMBA = {"mamba_n_heads": 4, "mamba_d_head": 4, "mamba_d_state": 4, "mamba_chunk_size": 16, "mamba_n_groups": 1}
_DELTA = {
    "linear_num_key_heads": 2,
    "linear_num_value_heads": 2,
    "linear_key_head_dim": 4,
    "linear_value_head_dim": 4,
    "layer_types": ["linear_attention", "full_attention"],
}
_SSD = {"num_heads": 4, "head_dim": 4, "n_groups": 1, "chunk_size": 16}
_KIMI = {
    "num_attention_heads": 2,
    "num_key_value_heads": 2,
    "intermediate_size": 16,
    "kv_lora_rank": 8,
    "qk_rope_head_dim": 4,
    "v_head_dim": 4,
    "qk_nope_head_dim": 4,
    "linear_head_dim": 4,
    "linear_num_heads": 2,
    "mlp_layer_types": ["dense", "dense"],
    "layer_types": ["linear_attention", "full_attention"],
}
_TRANSFORMERS: dict[str, dict[str, object]] = {
    "Mamba": {"state_size": 4},
    "FalconMamba": {"state_size": 4},
    "Mamba2": {"state_size": 4, **_SSD},
    "Llama": {"intermediate_size": 16, "num_attention_heads": 2},
    "Bamba": {**_ATTENTION, **_MAMBA, "attn_layer_indices": [1]},
    "FalconH1": {**_ATTENTION, **_MAMBA, "mamba_d_ssm": 16},
    "GraniteMoeHybrid": {
        **_ATTENTION,
        **_MAMBA,
        "num_local_experts": 0,
        "shared_intermediate_size": 16,
        "layer_types": ["mamba", "attention"],
    },
    "Jamba": {
        **_ATTENTION,
        "mamba_d_state": 4,
        "num_experts": 1,
        "num_experts_per_tok": 1,
        "attn_layer_period": 2,
        "attn_layer_offset": 1,
    },
    "KimiLinear": _KIMI,
    "Lfm2": {**_ATTENTION, "layer_types": ["conv", "full_attention"], "block_multiple_of": 8},
    "MiniMax": {
        **_ATTENTION,
        "head_dim": 4,
        "num_local_experts": 1,
        "num_experts_per_tok": 1,
        "block_size": 16,
        "layer_types": ["linear_attention", "full_attention"],
    },
    "OlmoHybrid": {**_ATTENTION, **_DELTA},
    "Qwen3_5Text": {**_ATTENTION, **_DELTA, "head_dim": 4},
    "RecurrentGemma": {
        "num_attention_heads": 2,
        "intermediate_size": 16,
        "attention_window_size": 64,
        "block_types": ["recurrent", "attention"],
    },
    "Rwkv": {"context_length": _CONTEXT},
    "Zamba2": {
        **_ATTENTION,
        "mamba_d_state": 4,
        "n_mamba_heads": 4,
        "chunk_size": 16,
        "layers_block_type": ["mamba", "hybrid"],
    },
}
_TORCHRECURRENT = (
    "ATR", "AntisymmetricRNN", "BR", "CFN", "DSGU", "FastGRNN", "FastRNN", "GatedAntisymmetricRNN", "IndRNN",
    "IntersectionRNN", "JANET", "LEM", "LiGRU", "LightRU", "MCLSTM", "MGU", "MUT1", "MUT2", "MUT3", "MiRU1", "MiRU2",
    "MinimalRNN", "MultiplicativeLSTM", "NAS", "NBR", "OriginalLSTM", "PeepholeLSTM", "RAN", "ResLSTM", "SCRN", "SGRN",
    "SGU", "STAR", "TGRU", "TLSTM", "TRNN", "UGRNN", "UnICORNN", "WMCLSTM", "coRNN", "tauGRU",
)  # fmt: skip
_NOT_ALONE = ("module", "diagonal_rnn", "residual_stack")
"""Models that are here with each module, parameterization and unit."""


def _of_memsweep() -> list[Layer]:
    models = [name for name in registry.names(registry.MODEL) if name not in _NOT_ALONE]
    maps = registry.names(registry.PARAMETERIZATION)
    units = [name for name in registry.names(registry.UNIT) if name != "module"]
    return [
        *(Layer(f"memsweep:{name}", partial(_own, name, width=WIDTH), ((registry.MODEL, name),)) for name in models),
        *(
            Layer(
                f"memsweep:diagonal_rnn, {name}",
                partial(_own, "diagonal_rnn", width=WIDTH, parameterization=name),
                ((registry.MODEL, "diagonal_rnn"), (registry.PARAMETERIZATION, name)),
            )
            for name in maps
        ),
        *(
            Layer(
                f"memsweep:residual_stack of {name}",
                partial(_own, "residual_stack", width=WIDTH, unit={"name": name}),
                ((registry.MODEL, "residual_stack"), (registry.UNIT, name)),
            )
            for name in units
        ),
    ]


def _of_others() -> list[Layer]:
    each = {"batch_first": True}
    return [
        Layer("torch:GRU", partial(nn.GRU, WIDTH, WIDTH, **each)),
        Layer("torch:GRU of 2 layers", partial(nn.GRU, WIDTH, WIDTH, 2, **each)),
        Layer("torch:LSTM", partial(nn.LSTM, WIDTH, WIDTH, **each)),
        Layer("torch:LSTM with a projection", partial(nn.LSTM, WIDTH, WIDTH, proj_size=4, **each)),
        Layer("torch:RNN, tanh", partial(nn.RNN, WIDTH, WIDTH, **each)),
        Layer("torch:RNN, relu", partial(nn.RNN, WIDTH, WIDTH, nonlinearity="relu", **each)),
        Layer("torch:TransformerEncoderLayer", CausalAttention),
        *(
            Layer(f"torchrecurrent:{name}", partial(_of, "torchrecurrent", name, WIDTH, WIDTH, **each))
            for name in _TORCHRECURRENT
        ),
        Layer("minGRU_pytorch:minGRU", partial(_of, "minGRU_pytorch.minGRU", "minGRU", WIDTH)),
        Layer("minGRU_pytorch:minLSTM", partial(_of, "minGRU_pytorch.minLSTM", "minLSTM", WIDTH)),
        Layer(
            "gateloop_transformer:SimpleGateLoopLayer",
            partial(_of, "gateloop_transformer.simplified_gate_loop", "SimpleGateLoopLayer", WIDTH),
        ),
        Layer("ncps:CfC", partial(_of, "ncps.torch", "CfC", WIDTH, WIDTH)),
        Layer("ncps:CfC, wired", partial(_wired, "CfC")),
        Layer("ncps:LTC", partial(_of, "ncps.torch", "LTC", WIDTH, WIDTH)),
        Layer("xlstm:mLSTM", partial(_xlstm, "mlstm")),
        Layer("xlstm:sLSTM", partial(_xlstm, "slstm")),
        *(
            Layer(f"transformers:{name}", partial(_transformers, name, **given))
            for name, given in _TRANSFORMERS.items()
        ),
    ]


def probe(module: nn.Module, length: int) -> Tensor:
    """Two sequences in the precision of a module."""
    return torch.randn(2, length, WIDTH, dtype=next(module.parameters()).dtype)


def outputs_of(answer: Any) -> Tensor:
    """The outputs, where a layer gives states as well."""
    while not isinstance(answer, Tensor):
        answer = answer[0]
    return answer


def layers(names: Sequence[str] = ()) -> tuple[list[Layer], list[str]]:
    """The layers that can be made here, and why others cannot; of some names, or all."""
    found, away = [], []
    for layer in (*_of_memsweep(), *_of_others()):
        if names and layer.name not in names:
            continue
        try:
            module = layer.build().eval()
            with torch.no_grad():
                shape = tuple(outputs_of(module(probe(module, 20))).shape)
            if len(shape) != 3 or shape[:2] != (2, 20):
                away.append(f"{layer.name}: gives {shape}")
                continue
        except Exception as error:  # a package that is away, or wants a GPU
            away.append(f"{layer.name}: {type(error).__name__}: {' '.join(str(error).split())[:80]}")
            continue
        found.append(layer)
    return found, away
