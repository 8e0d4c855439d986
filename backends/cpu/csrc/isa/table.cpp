// The table of this instruction set.
#include "tables.hpp"

#define DEEPINFER_TEXT(x) #x
#define DEEPINFER_NAME(x) DEEPINFER_TEXT(x)

namespace deepinfer_cpu {

const Kernels DEEPINFER_TABLE = {
    DEEPINFER_NAME(DEEPINFER_ISA), DEEPINFER_ISA::linear,           DEEPINFER_ISA::grouped_linear,
    DEEPINFER_ISA::gated_mlp,      DEEPINFER_ISA::experts,          DEEPINFER_ISA::route,
    DEEPINFER_ISA::moe_permute,    DEEPINFER_ISA::moe_combine,      DEEPINFER_ISA::sparse_attention,
    DEEPINFER_ISA::index_scores,   DEEPINFER_ISA::select_blocks,    DEEPINFER_ISA::select_topk,
    DEEPINFER_ISA::rms_norm,       DEEPINFER_ISA::apply_rope,       DEEPINFER_ISA::hc_mixes,
    DEEPINFER_ISA::hc_collapse,    DEEPINFER_ISA::hc_expand,        DEEPINFER_ISA::engram_gate,
    DEEPINFER_ISA::write_rows,     DEEPINFER_ISA::copy_rows,        DEEPINFER_ISA::fake_quant,
    DEEPINFER_ISA::compress_kv,    DEEPINFER_ISA::embedding,        DEEPINFER_ISA::engram_lookup,
    DEEPINFER_ISA::hash_ngrams,    DEEPINFER_ISA::gather_history,   DEEPINFER_ISA::read_rows,
    DEEPINFER_ISA::sample_tokens,  DEEPINFER_ISA::apply_token_mask, DEEPINFER_ISA::apply_penalties,
    DEEPINFER_ISA::top_logprobs,   DEEPINFER_ISA::verify_drafts,
};

}  // namespace deepinfer_cpu
