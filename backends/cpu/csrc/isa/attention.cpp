// Attention of each row over its sliding window and its selected compressed entries, with a sink in the denominator.
// The keys are the values, shared by all heads.
#include <cmath>

#include "../parallel.hpp"
#include "dot.hpp"
#include "tables.hpp"

namespace deepinfer_cpu::DEEPINFER_ISA {
namespace {

struct Sources {
    const Rows& rows;
    const Window& window;
    const Paged* entries;
    const int32_t* selected;  // [rows, top_k]
    int64_t top_k;
    int64_t dim;
};

const uint8_t* window_row(const Sources& s, int64_t t, int64_t position) {
    const Window& w = s.window;
    const int64_t first = s.rows.first_position[t];
    const int64_t row = position >= first ? w.fresh_base + s.rows.first_row[t] + (position - first)
                                          : w.base + s.rows.slot[t] * w.ring_rows + position % w.ring_rows;
    return w.pool + row * row_bytes(w.format, s.dim);
}

const uint8_t* entry_row(const Sources& s, int64_t t, int64_t entry) {
    const Paged& p = *s.entries;
    const int64_t block = p.block_table[s.rows.slot[t] * p.max_blocks + entry / p.block_rows];
    return p.pool + (block * p.block_rows + entry % p.block_rows) * row_bytes(p.format, s.dim);
}

// Decodes the keys that row t sees, window first, each in order of position. Returns how many.
int64_t gather(const Sources& s, int64_t t, float* keys) {
    int64_t count = 0;
    const int64_t position = s.rows.position[t];
    const int64_t lowest = std::max<int64_t>(s.rows.floor[t], position - s.window.window + 1);
    for (int64_t p = std::max<int64_t>(lowest, 0); p <= position; ++p)
        decode_row(s.window.format, window_row(s, t, p), s.dim, keys + count++ * s.dim);
    for (int64_t j = 0; s.entries && j < s.top_k; ++j)
        if (const int32_t entry = s.selected[t * s.top_k + j]; entry >= 0)
            decode_row(s.entries->format, entry_row(s, t, entry), s.dim, keys + count++ * s.dim);
    return count;
}

// Turns one head's scores into weights that, with the sink's, sum to 1.
void softmax(float* scores, int64_t count, float scale, float sink) {
    float most = sink;
    for (int64_t n = 0; n < count; ++n) {
        scores[n] *= scale;
        most = std::max(most, scores[n]);
    }
    float total = std::exp(sink - most);
    for (int64_t n = 0; n < count; ++n) {
        scores[n] = std::exp(scores[n] - most);
        total += scores[n];
    }
    for (int64_t n = 0; n < count; ++n) scores[n] /= total;
}

// out[h] = sum over n of weights[h][n] * keys[n], n in order, for H heads.
template <int H>
void mix(const float* weights, const float* keys, int64_t count, int64_t dim, float* out) {
    int64_t d = 0;
    for (; d + 2 * kLanes <= dim; d += 2 * kLanes) {
        vf acc[H][2] = {};
        for (int64_t n = 0; n < count; ++n) {
            const vf low = load(keys + n * dim + d), high = load(keys + n * dim + d + kLanes);
            for (int h = 0; h < H; ++h) {
                const vf w = splat(weights[h * count + n]);
                acc[h][0] = fma(w, low, acc[h][0]);
                acc[h][1] = fma(w, high, acc[h][1]);
            }
        }
        for (int h = 0; h < H; ++h) {
            store(out + h * dim + d, acc[h][0]);
            store(out + h * dim + d + kLanes, acc[h][1]);
        }
    }
    for (; d < dim; ++d)
        for (int h = 0; h < H; ++h) {
            float total = 0;
            for (int64_t n = 0; n < count; ++n) total += weights[h * count + n] * keys[n * dim + d];
            out[h * dim + d] = total;
        }
}

// Heads first .. first + heads - 1 of row t. q and out point at the first of them.
void attend(const Sources& s, int64_t t, const float* q, int64_t heads, const float* sink, float scale, float* out) {
    float* keys = scratch(0, (s.window.window + s.top_k) * s.dim);
    const int64_t count = gather(s, t, keys);
    float* scores = scratch(1, heads * count);
    std::vector<const float*> query(static_cast<size_t>(heads));
    std::vector<float*> at(static_cast<size_t>(heads));
    for (int64_t h = 0; h < heads; ++h) {
        query[size_t(h)] = q + h * s.dim;
        at[size_t(h)] = scores + h * count;
    }
    dot_all(query.data(), heads, keys, s.dim, count, s.dim, at.data());
    for (int64_t h = 0; h < heads; ++h) softmax(at[size_t(h)], count, scale, sink[h]);
    int64_t h = 0;
    for (; h + 4 <= heads; h += 4) mix<4>(scores + h * count, keys, count, s.dim, out + h * s.dim);
    for (; h < heads; ++h) mix<1>(scores + h * count, keys, count, s.dim, out + h * s.dim);
}

}  // namespace

void sparse_attention(const float* q, int64_t heads, int64_t dim, const Rows& rows, const Window& window,
                      const Paged* entries, const int32_t* selected, int64_t top_k, const float* sink, float scale,
                      float* out) {
    const Sources s{rows, window, entries, selected, entries ? top_k : 0, dim};
    // With few rows the heads are split too; a head's arithmetic is its own, so no bit changes.
    const int64_t splits = rows.count < threads() && heads % 8 == 0 ? 2 : 1, part = heads / splits;
    const int64_t work = 2 * rows.count * heads * dim * (window.window + s.top_k);
    parallel_for(rows.count * splits, work, [&](int64_t task) {
        const int64_t t = task / splits, first = task % splits * part;
        float* result = out + (t * heads + first) * dim;
        if (rows.slot[t] < 0)
            std::fill(result, result + part * dim, 0.0f);
        else
            attend(s, t, q + (t * heads + first) * dim, part, sink + first, scale, result);
    });
}

}  // namespace deepinfer_cpu::DEEPINFER_ISA
