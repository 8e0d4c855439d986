"""OpTable: the ops that a backend resolved to, as attributes that type-check like their references."""

from __future__ import annotations

import inspect
from collections.abc import Mapping

from deepinfer_core.api.errors import PluginError, nearest
from deepinfer_core.interfaces.ops import Kernel
from deepinfer_core.ops import (
    attention,
    cache,
    compress,
    engram,
    hyper_connection,
    index,
    moe,
    norm,
    quant,
    rope,
    sample,
)
from deepinfer_core.ops import linear as linear_ops
from deepinfer_core.ops.catalogue import CATALOGUE


class OpTable:
    """Every op under its name. The class has the references; an instance has a backend's kernels in front of them.

    `fallbacks` names the ops that run on their reference.
    """

    rms_norm = staticmethod(norm.rms_norm)
    apply_rope = staticmethod(rope.apply_rope)
    hc_mixes = staticmethod(hyper_connection.hc_mixes)
    hc_collapse = staticmethod(hyper_connection.hc_collapse)
    hc_expand = staticmethod(hyper_connection.hc_expand)
    linear = staticmethod(linear_ops.linear)
    grouped_linear = staticmethod(linear_ops.grouped_linear)
    embedding = staticmethod(linear_ops.embedding)
    lm_head = staticmethod(linear_ops.lm_head)
    fake_quant = staticmethod(quant.fake_quant)
    route = staticmethod(moe.route)
    moe_permute = staticmethod(moe.moe_permute)
    experts = staticmethod(moe.experts)
    moe_combine = staticmethod(moe.moe_combine)
    gated_mlp = staticmethod(moe.gated_mlp)
    compress_kv = staticmethod(compress.compress_kv)
    index_scores = staticmethod(index.index_scores)
    select_blocks = staticmethod(index.select_blocks)
    select_topk = staticmethod(index.select_topk)
    sparse_attention = staticmethod(attention.sparse_attention)
    hash_ngrams = staticmethod(engram.hash_ngrams)
    engram_lookup = staticmethod(engram.engram_lookup)
    engram_gate = staticmethod(engram.engram_gate)
    write_rows = staticmethod(cache.write_rows)
    read_rows = staticmethod(cache.read_rows)
    copy_rows = staticmethod(cache.copy_rows)
    gather_history = staticmethod(cache.gather_history)
    apply_token_mask = staticmethod(sample.apply_token_mask)
    apply_penalties = staticmethod(sample.apply_penalties)
    sample_tokens = staticmethod(sample.sample_tokens)
    top_logprobs = staticmethod(sample.top_logprobs)
    verify_drafts = staticmethod(sample.verify_drafts)

    def __init__(self, kernels: Mapping[str, Kernel]) -> None:
        for name, kernel in kernels.items():
            setattr(self, name, kernel)
        self.fallbacks: tuple[str, ...] = tuple(name for name in CATALOGUE if name not in kernels)


def resolve(kernels: Mapping[str, Kernel]) -> OpTable:
    """The table of a backend's kernels, with the reference wherever there is none.

    Raises `PluginError` for a kernel whose name is not in the catalogue or whose parameters (names, kinds, defaults)
    are not the reference's.
    """
    for name, kernel in kernels.items():
        if name not in CATALOGUE:
            raise PluginError(f"kernel {name!r} is not an op of the catalogue{nearest(name, CATALOGUE)}")
        _check_signature(name, kernel)
    return OpTable(kernels)


def _check_signature(name: str, kernel: Kernel) -> None:
    expected = inspect.signature(CATALOGUE[name].reference)
    try:
        actual = inspect.signature(kernel)
    except (TypeError, ValueError) as error:
        raise PluginError(
            f"kernel {name!r} has no signature that Python can read: wrap it in a function {name}{_shape(expected)}"
        ) from error
    if _parameters(actual) != _parameters(expected):
        raise PluginError(
            f"kernel {name!r} has parameters {_shape(actual)}, the op has {_shape(expected)}: "
            "names, kinds and defaults must be the same"
        )


def _parameters(signature: inspect.Signature) -> list[tuple[object, ...]]:
    return [(parameter.name, parameter.kind, parameter.default) for parameter in signature.parameters.values()]


def _shape(signature: inspect.Signature) -> str:
    """The parameter list without annotations."""
    bare = [parameter.replace(annotation=inspect.Parameter.empty) for parameter in signature.parameters.values()]
    return str(inspect.Signature(bare))
