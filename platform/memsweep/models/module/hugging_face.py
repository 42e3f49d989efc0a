"""Language models of Hugging Face's transformers as modules that memsweep measures: ids in, scores of ids out.

Only files that lie on this machine are read: a folder, or the local cache. Nothing is downloaded. Weights are read from
safetensors alone, and no code of the model's repository runs, unless the person trusts it.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

from torch import Tensor, nn

from memsweep.config.load.foreign import foreign_code
from memsweep.errors import ModuleError

PREFIX = "hf:"
_PICKLES = (".bin", ".pt", ".pth", ".ckpt")


class LanguageModel(nn.Module):
    """A model of transformers: ids ``[B, T]``, or its embeddings ``[B, T, D]``, to the first of its outputs."""

    def __init__(self, model: nn.Module) -> None:
        super().__init__()
        self.model = model

    def forward(self, inputs: Tensor) -> Tensor:
        """Scores ``[B, T, V]`` of a language model, or the last hidden states of a bare one."""
        name = "inputs_embeds" if inputs.is_floating_point() else "input_ids"
        answer: Any = self.model(**{name: inputs}, use_cache=False, return_dict=True)
        outputs: Tensor = answer.logits if getattr(answer, "logits", None) is not None else answer[0]
        return outputs


def load(target: str, weights: str | None, *, trust: bool) -> tuple[nn.Module, str]:
    """A model with its trained weights, and where they came from.

    Args:
        target: ``hf:FOLDER``, or ``hf:NAME`` of a model in the local cache.
        weights: must be empty: the folder holds them.
        trust: pickles and code of the repository may be used.

    Raises:
        ModuleError: transformers is not installed, the model is not there, or it needs trust.
    """
    name = target.removeprefix(PREFIX)
    if weights:
        raise ModuleError(f"{target} brings its own weights: leave out --weights.")
    folder = Path(name)
    if folder.is_dir():
        _refuse_code(folder, trust)
    try:
        transformers: Any = import_module("transformers")  # no dependency of memsweep
    except ImportError as error:
        raise ModuleError(f"{target} needs the package transformers, which is not installed ({error}).") from error
    options = {"local_files_only": True, "trust_remote_code": trust, "use_safetensors": None if trust else True}

    def sentence(error: str) -> str:
        return (
            f"{target} cannot be loaded from this machine: {error}. Give a folder with config.json and safetensors, or "
            "the name of a model in the local cache; nothing is downloaded."
        )

    with foreign_code(sentence), _offline():
        config = transformers.AutoConfig.from_pretrained(name, local_files_only=True, trust_remote_code=trust)
        causal = any("ForCausalLM" in each for each in (config.architectures or ()))
        kind = transformers.AutoModelForCausalLM if causal else transformers.AutoModel
        model = kind.from_pretrained(name, **options)
    return LanguageModel(model), f"weights: of {name} ({type(model).__name__})"


@contextmanager
def _offline() -> Iterator[None]:
    """No connection is made inside: for a name that is not in the cache, ``local_files_only`` alone asks the hub."""
    hub: Any = import_module("huggingface_hub.constants")
    before = hub.HF_HUB_OFFLINE
    hub.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        hub.HF_HUB_OFFLINE = before


def _refuse_code(folder: Path, trust: bool) -> None:
    """Refuses a folder whose weights are pickles alone, or whose config names code of its own."""
    if trust:
        return
    files = [path.name for path in folder.iterdir()]
    if not any(name.endswith(".safetensors") for name in files):
        pickles = [name for name in files if name.endswith(_PICKLES)]
        what = f"its weights are pickles ({', '.join(pickles[:3])})" if pickles else "it has no safetensors file"
        raise ModuleError(f"{folder}: {what}. Give safetensors, or, where you trust the files, --trust.")
    try:
        config = json.loads((folder / "config.json").read_text())
    except (OSError, ValueError) as error:
        raise ModuleError(f"{folder}: config.json cannot be read ({error}).") from error
    if isinstance(config, dict) and config.get("auto_map"):
        raise ModuleError(
            f"{folder}: its config names code of its own (auto_map), which would run. Read it; to run it, add --trust."
        )
