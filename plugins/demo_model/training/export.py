"""Writes a trained model as a checkpoint folder in the official format.

python -m training.export --work FOLDER --out FOLDER [--tiny]
"""

from __future__ import annotations

import argparse
import json
import re
from pathlib import Path

import torch
from tokenizers import Tokenizer
from torch import Tensor

from deepinfer_demo_model.checkpoint import TOKEN_MAP_FILE, stored_tensors, write_checkpoint
from deepinfer_demo_model.layout import checkpoint_tensors
from deepinfer_demo_model.spec import ModelSpec
from deepinfer_demo_model.tokenizer_file import token_classes, write_tokenizer
from training.backbone import STATE
from training.dense import spec_for
from training.prepare import tokenizer_of
from training.shape import FULL, TINY_RUN

SHARDS = 4  # each under 16 MB


def export(folder: Path, spec: ModelSpec, tokenizer: Tokenizer, state: dict[str, Tensor]) -> None:
    """Write config.json, the shards and their index, tokenizer.json and the Engram token map.

    `spec` has the tokenizer's number of classes; `state` is a DenseModel's state_dict.
    """
    tensors: dict[str, Tensor] = {}
    plans = sorted(checkpoint_tensors(spec), key=lambda plan: plan.name == "head.weight")  # far from the embedding
    for plan in plans:
        tensors |= stored_tensors(plan.name, parameter(state, plan.name).cpu(), plan.stored)
    write_checkpoint(folder, spec.config(), tensors, SHARDS)
    (folder / TOKEN_MAP_FILE).write_text(json.dumps(token_classes(tokenizer)) + "\n", encoding="utf-8")
    write_tokenizer(tokenizer, folder)


def parameter(state: dict[str, Tensor], stored_name: str) -> Tensor:
    """The parameter, or one expert's part of it, that the checkpoint stores under this name."""
    expert = re.fullmatch(r"(.*\.experts)\.(\d+)\.(w[123])\.weight", stored_name)
    if expert:
        return state[f"{expert[1]}.{expert[3]}"][int(expert[2])]
    return state[re.sub(r"\.hc_(attn|ffn)_", r".hc_\1.", stored_name)]


def main() -> None:
    """The command line."""
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--work", type=Path, required=True, help="folder of training.backbone")
    parser.add_argument("--out", type=Path, required=True, help="folder for the checkpoint")
    parser.add_argument("--tiny", action="store_true", help="the tiny twin")
    options = parser.parse_args()
    recipe = TINY_RUN if options.tiny else FULL
    tokenizer = tokenizer_of(options.work, recipe)
    spec = spec_for(recipe.spec, tokenizer)
    state = torch.load(options.work / STATE, map_location="cpu")["model"]
    export(options.out, spec, tokenizer, state)


if __name__ == "__main__":
    main()
