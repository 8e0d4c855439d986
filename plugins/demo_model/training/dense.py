"""The dense differentiable V4.1 of tests/oracle, which training runs, and how a new model of it starts."""

from __future__ import annotations

from dataclasses import replace

import torch
from dense_v41 import DenseConfig, DenseModel, Quantisation
from dense_v41.engram import Engram
from dense_v41.hyper import Mixer
from tokenizers import Tokenizer
from torch import nn

from deepinfer_demo_model.spec import ModelSpec
from deepinfer_demo_model.tokenizer_file import token_classes

IN_THE_LOOP = Quantisation(weights=True, activations=True)


def device() -> torch.device:
    """An accelerator where there is one."""
    return torch.device("cuda" if torch.cuda.is_available() else "cpu")


def spec_for(spec: ModelSpec, tokenizer: Tokenizer) -> ModelSpec:
    """The spec with the number of token classes that this tokenizer gives."""
    return replace(spec, engram_compressed_vocab_size=max(token_classes(tokenizer)) + 1)


def new_model(spec: ModelSpec, tokenizer: Tokenizer, dtype: torch.dtype, seed: int = 0) -> DenseModel:
    """A model ready to be trained. `spec` has the tokenizer's number of classes."""
    torch.manual_seed(seed)
    config = DenseConfig.from_text_config(spec.config()["text_config"])
    model = DenseModel(config, torch.tensor(token_classes(tokenizer)), IN_THE_LOOP, dtype)
    with torch.no_grad():
        nn.init.normal_(model.embed.weight, std=0.7)
        for module in model.modules():
            if isinstance(module, Mixer):
                _start_mixer(module)
            elif isinstance(module, Engram):
                module.embed.weight.mul_(0.5)
                module.wkv.weight[-config.hidden_size :].mul_(0.1)  # memories start quiet
        if model.mtp:
            model.mtp[-1].markov_head.head.weight.mul_(0.1)
            model.mtp[-1].confidence_head.proj.weight.zero_()
    return model.to(device())


def _start_mixer(mixer: Mixer) -> None:
    """Streams mostly keep to themselves, and a sublayer reads their sum at a quarter each."""
    n = mixer.streams
    mixer.fn.mul_(0.02)
    mixer.scale.fill_(0.3)
    mixer.base[:n] = -1.1
    mixer.base[2 * n :] = 4 * torch.eye(n).flatten()
