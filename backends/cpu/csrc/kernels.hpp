// The table of kernels that each instruction set provides, and the choice among them. Signatures are over raw views;
// shapes are in the comments, T rows, float32 unless said. A row's result never depends on another row.
#pragma once

#include "views.hpp"

namespace deepinfer_cpu {

struct Kernels {
    const char* isa;

    // matmul.cpp
    void (*linear)(const float* x, int64_t rows, const Weight& w, bool quantise, float* y);  // [T,in] -> [T,out]
    void (*grouped_linear)(const float* x, int64_t rows, int64_t groups, const Weight& w,
                           float* y);  // [T,G,in] -> [T,out]

    // experts.cpp
    void (*gated_mlp)(const float* x, int64_t rows, const Weight& w1, const Weight& w3, const Weight& w2, float limit,
                      bool quantise, float* y);
    void (*experts)(const float* x, int64_t rows, const int32_t* order, const int32_t* offsets, const float* weights,
                    int64_t top_k, int64_t experts, const Weight& w1, const Weight& w3, const Weight& w2, float limit,
                    bool quantise, float* y);  // weights of the views are those of expert 0, stacked
    void (*route)(const float* x, int64_t rows, const Weight& gate, const float* bias, int64_t top_k, float scale,
                  int32_t* experts, float* weights);
    void (*moe_permute)(const int32_t* experts, int64_t count, int64_t num_experts, int32_t* order, int32_t* offsets);
    void (*moe_combine)(const float* y, const int32_t* order, int64_t rows, int64_t top_k, int64_t dim, float* out);

    // attention.cpp
    void (*sparse_attention)(const float* q, int64_t heads, int64_t dim, const Rows& rows, const Window& window,
                             const Paged* entries, const int32_t* selected, int64_t top_k, const float* sink,
                             float scale, float* out);

    // index.cpp
    void (*index_scores)(const float* q, const float* weights, int64_t heads, int64_t dim, const Paged& keys,
                         const Rows& rows, int64_t num_entries, float* scores);
    void (*select_blocks)(const float* scores, int64_t rows, int64_t num_entries, const int32_t* visible,
                          int64_t block_size, int64_t top_blocks, uint8_t* keep);
    void (*select_topk)(const float* scores, int64_t rows, int64_t num_entries, int64_t top_k, const uint8_t* blocks,
                        int64_t num_blocks, int64_t block_size, int32_t* selected);

    // norm.cpp
    void (*rms_norm)(const float* x, int64_t rows, int64_t dim, const float* weight, float eps, float* y);
    void (*apply_rope)(const float* x, int64_t rows, int64_t heads, int64_t dim, const int32_t* position,
                       const float* inv_freq, int64_t rotated, bool inverse, float* y);

    // hyper_connection.cpp; n streams
    void (*hc_mixes)(const float* streams, int64_t rows, int64_t n, int64_t dim, const float* fn, const float* base,
                     const float* scale, float norm_eps, float hc_eps, int64_t iterations, float* pre, float* post,
                     float* comb);
    void (*hc_collapse)(const float* streams, const float* pre, int64_t rows, int64_t n, int64_t dim, float* y);
    void (*hc_expand)(const float* y, const float* streams, const float* post, const float* comb, int64_t rows,
                      int64_t n, int64_t dim, float* out);
    void (*engram_gate)(const float* streams, const float* key, const float* value, const float* q_weight,
                        const float* k_weight, int64_t rows, int64_t n, int64_t dim, float eps, float* out);

    // cache.cpp
    void (*write_rows)(uint8_t* pool, int64_t row_bytes, const float* x, int64_t rows, int64_t dim, const int64_t* dest,
                       RowFormat format);
    void (*copy_rows)(uint8_t* pool, int64_t row_bytes, const int64_t* source, const int64_t* dest, int64_t count);
    void (*fake_quant)(const float* x, int64_t rows, int64_t dim, RowFormat format, float* y);
    void (*compress_kv)(const float* u, const float* gate, int64_t dim, const uint8_t* pending, const Rows& rows,
                        int64_t ratio, int64_t ring_rows, float* out);

    // lookup.cpp; ids are int64
    void (*embedding)(const int64_t* tokens, int64_t rows, const Weight& w, float* y);
    void (*engram_lookup)(const Weight& table, const int64_t* index, int64_t count, float* y);
    void (*hash_ngrams)(const int64_t* classes, int64_t rows, int64_t n, const int64_t* multipliers,
                        const int64_t* primes, const int64_t* offsets, int64_t columns, int64_t pad, int64_t* out);
    void (*gather_history)(const int64_t* tokens, const Rows& rows, const int64_t* history, int64_t history_rows,
                           int64_t n, int64_t* out);
    void (*read_rows)(const uint8_t* pool, int64_t row_size, const int64_t* index, int64_t count, int64_t dim,
                      RowFormat format, float* y);

    // sampling.cpp
    void (*sample_tokens)(const float* logits, int64_t rows, int64_t vocab, const float* temperature,
                          const float* min_p, const int64_t* seed, const int64_t* sample, const int64_t* position,
                          int64_t* out);
    void (*apply_token_mask)(const float* logits, int64_t rows, int64_t vocab, const int32_t* mask, float* out);
    void (*apply_penalties)(const float* logits, int64_t rows, int64_t vocab, const uint8_t* prompt_seen,
                            const int32_t* counts, const float* repetition, const float* presence,
                            const float* frequency, float* out);
    void (*top_logprobs)(const float* logits, int64_t rows, int64_t vocab, const int64_t* tokens, int64_t k,
                         float* logprob, int32_t* rank, int64_t* ids, float* values);
    void (*verify_drafts)(const int64_t* target, const int64_t* drafts, const int32_t* num_drafts, int64_t rows,
                          int64_t width, int32_t* counts);
};

extern const Kernels kGeneric;
extern const Kernels kAvx2;
extern const Kernels kAvx512;

// The best table that this processor runs, or the one named ("generic", "avx2", "avx512"); null where it cannot run.
const Kernels* choose(const char* isa);

}  // namespace deepinfer_cpu
