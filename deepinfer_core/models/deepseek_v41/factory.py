"""The way in: checks a DeepSeek-V4.1 folder, and loads it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from deepinfer_core.interfaces.cache import CacheSpec
from deepinfer_core.interfaces.model import ModelContext, ModelInfo, ModelOptions, WindowReach
from deepinfer_core.interfaces.ops import WeightFormat
from deepinfer_core.loading.expect import compare_tensors
from deepinfer_core.loading.index import Checkpoint, open_checkpoint
from deepinfer_core.loading.reader import CheckpointReader
from deepinfer_core.models.deepseek_v41.assemble import assemble_model
from deepinfer_core.models.deepseek_v41.caches import Caches, choose_formats
from deepinfer_core.models.deepseek_v41.config import DeepseekV41Config
from deepinfer_core.models.deepseek_v41.draft import describe_draft
from deepinfer_core.models.deepseek_v41.engram_map import load_token_classes
from deepinfer_core.models.deepseek_v41.model import DeepseekV41Model
from deepinfer_core.models.deepseek_v41.parse import parse_config
from deepinfer_core.models.deepseek_v41.plan import plan_layers
from deepinfer_core.models.deepseek_v41.sources import LoadingSource, SpecSource
from deepinfer_core.models.deepseek_v41.weights import describe_model

ARCHITECTURE = "DeepseekV41ForCausalLM"
WEIGHT_FORMATS = (WeightFormat.BF16, WeightFormat.FP8, WeightFormat.FP4)
# Image tensors: part of the release, not of the text model.
UNREAD = ("vision.", "aligner.", "image_start", "image_end", "image_newline")


class DeepseekV41Factory:
    """Implements `interfaces.model.ModelFactory`."""

    def inspect(self, folder: Path, config: Mapping[str, Any]) -> ModelInfo:
        """Check config.json and every tensor's header. Raises `CheckpointError` listing all faults; reads no tensor."""
        parsed = parse_config(config)
        return _info(parsed, _checked(folder, parsed))

    def cache_spec(self, config: Mapping[str, Any], options: ModelOptions) -> CacheSpec:
        """The pools of the model with these options, without loading it. Raises `CheckpointError`."""
        parsed = parse_config(config)
        return Caches(parsed, plan_layers(parsed), choose_formats(options)).spec()

    def load(self, folder: Path, config: Mapping[str, Any], context: ModelContext) -> DeepseekV41Model:
        """Read the weights in their stored formats, tables left on disk. Raises `CheckpointError`."""
        parsed = parse_config(config)
        checkpoint = _checked(folder, parsed)
        plan = plan_layers(parsed)
        classes = None
        if parsed.engram is not None:
            classes = load_token_classes(folder, parsed.vocab_size, parsed.engram.compressed_vocab_size)
        with CheckpointReader(checkpoint, context.device) as reader:
            source = LoadingSource(checkpoint, reader, context.device)
            weights = describe_model(source, parsed, plan)
            draft = describe_draft(source, parsed)
        return assemble_model(parsed, plan, _info(parsed, checkpoint), context, weights, draft, classes)


def _checked(folder: Path, config: DeepseekV41Config) -> Checkpoint:
    checkpoint = open_checkpoint(folder)
    source = SpecSource()
    describe_model(source, config, plan_layers(config))
    describe_draft(source, config)
    compare_tensors(checkpoint, source.specs, unread=lambda name: name.startswith(UNREAD))
    return checkpoint


def _reach(config: DeepseekV41Config) -> WindowReach:
    """A layer looks `sliding_window - 1` rows back; the last KV source's keys come from the layers before it."""
    back, layers = config.sliding_window - 1, config.num_hidden_layers
    boundary = plan_layers(config).boundary
    encoder = layers if boundary is None else boundary + 1
    return WindowReach(keys=(encoder - 1) * back, kept=encoder * back, logits=layers * back)


def _info(config: DeepseekV41Config, checkpoint: Checkpoint) -> ModelInfo:
    return ModelInfo(
        architecture=ARCHITECTURE,
        vocab_size=config.vocab_size,
        max_length=config.max_position_embeddings,
        eos_token_ids=config.eos_token_ids,
        bos_token_id=config.bos_token_id,
        image_token_id=config.image_token_id,
        history_rows=config.history_rows,
        decoder_rows=config.window_rows if config.kv_source_layer_ids else 0,
        max_drafts=config.max_drafts,
        reach=_reach(config),
        stored_bytes=sum(entry.nbytes for entry in checkpoint.tensors.values()),
        num_experts=config.n_routed_experts,
        weight_formats=WEIGHT_FORMATS,
    )
