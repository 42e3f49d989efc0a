"""``wrap: true``: a layer or a language model of others as a whole model, without a factory written for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor, nn

from memsweep import registry
from memsweep.cli import main
from memsweep.config.core.arguments import Arguments
from memsweep.config.schema.canonical import to_dict, trial_from_dict
from memsweep.config.schema.trial import TrialConfig
from memsweep.errors import ModuleError
from memsweep.models.base import Part, Signature
from memsweep.models.module.anatomy import anatomy, build_module
from memsweep.models.module.config import ModuleConfig
from memsweep.models.module.factory import resolve
from memsweep.models.module.steps import first_state, step_of
from memsweep.models.module.wrapped import Wrapped
from memsweep.sweep.planning.fingerprint import code_closure, code_fingerprint
from memsweep.trial import run_trial
from paths import ROOT

FILE = "tests/support/nets/mixer.py"
SIZES = Signature(inputs=3, outputs=2, horizon=9)
WIDTH = 6
MODELS: dict[str, dict[str, Any]] = {
    "gru": {"factory": "torch.nn:GRU"},
    "lstm": {"factory": "torch.nn:LSTM", "arguments": {"num_layers": 2}},
    "mixer": {"factory": f"{FILE}:Mixer"},
    "heads": {"factory": f"{FILE}:Heads", "arguments": {"heads": 2}},
    "ids": {"factory": "torch.nn:GRU", "tokens": True},
    "speaker": {"factory": f"{FILE}:Speaker", "tokens": True, "arguments": {"config": {"layers": 1}}},
    "reads": {"factory": "torch.nn:GRU", "inputs_argument": "input_size"},
}
MAKE: dict[str, Callable[[Any], nn.Module]] = {
    "gru": lambda net: nn.GRU(WIDTH, WIDTH, batch_first=True),
    "lstm": lambda net: nn.LSTM(WIDTH, WIDTH, 2, batch_first=True),
    "mixer": lambda net: net.Mixer(WIDTH),
    "heads": lambda net: net.Heads(WIDTH, 2),
    "ids": lambda net: nn.GRU(WIDTH, WIDTH, batch_first=True),
    "speaker": lambda net: net.Speaker(net.Settings(4, WIDTH, 1)),
    "reads": lambda net: nn.GRU(3, WIDTH, batch_first=True),
}


class ByHand(nn.Module):
    """The class that anybody would write around a layer."""

    def __init__(self, name: str, make: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.encoder: nn.Module = nn.Embedding(4, WIDTH) if name == "ids" else nn.Linear(3, WIDTH)
        self.layer = make()
        self.readout = nn.Linear(WIDTH, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        answer = self.layer(self.encoder(inputs))
        outputs: Tensor = self.readout(answer[0] if isinstance(answer, tuple) else answer)
        return outputs


class OfSpeaker(nn.Module):
    """A language model whose first scores are those of the task."""

    def __init__(self, make: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.layer = make()

    def forward(self, ids: Tensor) -> Tensor:
        scores: Tensor = self.layer(ids).logits[..., :2]
        return scores


class Reads(nn.Module):
    """A recurrent layer that reads the inputs itself."""

    def __init__(self, make: Callable[[], nn.Module]) -> None:
        super().__init__()
        self.layer, self.readout = make(), nn.Linear(WIDTH, 2)

    def forward(self, inputs: Tensor) -> Tensor:
        outputs: Tensor = self.readout(self.layer(inputs)[0])
        return outputs


def config_of(name: str, **changes: Any) -> ModuleConfig:
    registry.discover(ROOT)
    fields = {**MODELS[name], **changes}
    return ModuleConfig(width=WIDTH, wrap=True, **{**fields, "arguments": Arguments(fields.get("arguments", {}))})


def by_hand(name: str, seed: int) -> nn.Module:
    torch.manual_seed(seed)
    net: Any = resolve(f"{FILE}:Mixer").make.__init__.__globals__
    make = lambda: MAKE[name](type("net", (), net))  # noqa: E731 - after the encoder, which is drawn first
    kinds: dict[str, Callable[[], nn.Module]] = {"speaker": lambda: OfSpeaker(make), "reads": lambda: Reads(make)}
    return kinds.get(name, lambda: ByHand(name, make))()


def inputs_of(name: str) -> Tensor:
    generator = torch.Generator().manual_seed(1)
    if MODELS[name].get("tokens"):
        return torch.randint(4, (5, 9), generator=generator)
    return torch.randn(5, 9, 3, generator=generator, dtype=torch.float64)


@pytest.mark.parametrize("name", MODELS)
def test_a_wrapped_layer_is_the_class_that_one_writes_around_it(name: str) -> None:
    wrapped, own = build_module(config_of(name), SIZES, 3), by_hand(name, 3)
    assert {key: value.shape for key, value in wrapped.named_parameters()} == {
        key: value.shape for key, value in own.named_parameters()
    }
    for key, value in own.named_parameters():
        assert torch.equal(wrapped.get_parameter(key), value), "the same draws from the same seed"
    inputs, found = inputs_of(name), []
    for module in (wrapped.double(), own.double()):
        outputs = module(inputs)
        outputs.square().sum().backward()
        found.append([outputs, *(weight.grad for weight in module.parameters())])
    for one, other in zip(*found, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize("name", ["gru", "lstm", "mixer", "ids"])
def test_its_steps_give_its_outputs(name: str) -> None:
    module, inputs = build_module(config_of(name), SIZES, 0).double().eval(), inputs_of(name)
    step, state, answers = step_of(module), first_state(module, 5), []
    assert step is not None
    for x in inputs.unbind(1):
        answer, state = step(x, state)
        answers.append(answer)
    torch.testing.assert_close(torch.stack(answers, 1), module(inputs), rtol=1e-12, atol=1e-12)
    assert step_of(build_module(config_of("heads"), SIZES, 0)) is None


def test_roles_of_what_is_added_are_known_and_patterns_come_first() -> None:
    tensors = {each.name: each for each in anatomy(config_of("speaker"), SIZES).tensors}
    assert tensors["layer.head.weight"].role.part is Part.READOUT
    assert tensors["layer.embedding.weight"].role.part is Part.ENCODER
    tensors = {each.name: each for each in anatomy(config_of("gru"), SIZES).tensors}
    assert (tensors["encoder.weight"].role.part, tensors["encoder.weight"].guessed) == (Part.ENCODER, False)
    assert tensors["readout.weight"].role.part is Part.READOUT
    roles = dataclasses.replace(ModuleConfig(factory="a:b").roles, gain=("encoder.weight",))
    given = {each.name: each.role.part for each in anatomy(config_of("gru", roles=roles), SIZES).tensors}
    assert given["encoder.weight"] is Part.GAIN


def trial(name: str, wrap: bool = True, **fields: Any) -> TrialConfig:
    registry.discover(ROOT)
    return trial_from_dict(
        {
            "task": {"name": "copying_memory", "encoding": "one_hot", "delay": 3, "length": 2, "symbols": 3},
            "model": {"name": "module", "width": WIDTH, "wrap": wrap, **MODELS[name], **fields},
            "training": {"seeds": 2, "steps": 4, "batch_size": 4, "validation_size": 4, "validate_every": 2},
            "perturbation": {
                "balls": ["recurrent"],
                "radii": {"count": 2},
                "starts": 0,
                "ascent_steps": 1,
                "test_size": 4,
                "stronger_every": 0,
            },
        }
    )


@pytest.mark.parametrize(
    "name", ["speaker", *(pytest.param(n, marks=pytest.mark.more) for n in MODELS if n != "speaker")]
)
def test_it_is_trained_perturbed_and_measured(name: str) -> None:
    config = trial(name)
    assert trial_from_dict(to_dict(config)) == config
    result = run_trial(config)
    assert result.outcome == "done"
    assert (result.tables["curves"].groupby("seed").error.max() > result.tables["replicas"].error.min()).all()


def test_trials_that_wrap_nothing_run_no_code_of_it() -> None:
    plain = {"factory": "tests/support/nets/torch_rnn.py:gru"}
    closures = [code_closure(trial("gru", wrap, **plain)) for wrap in (False, True)]
    rooms = [{module for module, _ in closure} for closure in closures]
    assert [("memsweep.models.module.wrapped" in each) for each in rooms] == [False, True]
    assert closures[0] < closures[1]
    fingerprints = {code_fingerprint(trial("gru", wrap, **plain)) for wrap in (False, True)}
    assert len(fingerprints) == 2


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"arguments": {"input_size": 5}}, "given numbers of shape .2, 9, 6., failed: .*here 6 features .model.width."),
        ({"arguments": {"hiden_size": 5}}, "unexpected keyword argument 'hiden_size'"),
        ({"factory": f"{FILE}:Mixer", "arguments": {"d_modle": 5}}, "Did you mean 'd_model'"),
        ({"factory": f"{FILE}:Speaker", "tokens": True, "arguments": {"config": {"d_modle": 5}}}, "d_modle"),
        ({"factory": "torch.nn:Embedding"}, "language model, which reads ids .it has the argument num_embeddings"),
        ({"factory": "torch.nn:Flatten"}, "gave float32 .2, 54., of which model.wrap can read no outputs"),
        ({"factory": "math:sqrt", "arguments": {}}, "failed"),
        (
            {"factory": f"{FILE}:Speaker", "tokens": True, "arguments": {"config": {"vocab_size": 4, "layers": 0}}},
            "num_layers must be greater than zero",
        ),
    ],
)
def test_what_cannot_be_wrapped_is_told(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(ModuleError, match=message):
        build_module(config_of("gru", **changes), SIZES, 0)


def test_a_layer_that_reads_ids_and_answers_features_gets_a_readout() -> None:
    """Its first features are no scores."""
    module = build_module(config_of("reads", factory=f"{FILE}:Reader", tokens=True, inputs_argument="inputs"), SIZES, 0)
    assert isinstance(module, Wrapped)
    assert isinstance(module.encoder, nn.Embedding) is False
    assert isinstance(module.readout, nn.Linear)


def test_too_few_ids_are_told() -> None:
    few = config_of("speaker", arguments={"config": {"vocab_size": 4}})
    with pytest.raises(ModuleError, match="gave 4 scores, and the task needs 5"):
        build_module(few, Signature(inputs=3, outputs=5, horizon=9), 0)


def test_a_trained_model_is_measured_without_a_new_encoder(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    torch.save(torch.zeros(1), "x.pt")
    np.save("x.npy", np.zeros((2, 3, 4)))
    words = ["measure", "--factory", "torch.nn:GRU", "--sequences", "x.npy", "model.wrap=true"]
    assert main(words) == 2
    assert "that nobody trained" in capsys.readouterr().err
