// The indexer: scores of compressed entries for each row, and the choice of the best. Scores fall in a total order: a
// larger score first, then the lower entry.
#include <limits>

#include "../parallel.hpp"
#include "dot.hpp"
#include "tables.hpp"

namespace deepinfer_cpu::DEEPINFER_ISA {
namespace {

constexpr int64_t kChunk = 64;  // entries whose keys a task decodes at once
constexpr float kNone = -std::numeric_limits<float>::infinity();

// Scores of entries first .. last - 1 for row t: sum over heads, in order, of weight * relu(q . key).
void score(const float* q, const float* weights, int64_t heads, int64_t dim, const Paged& keys, int32_t slot,
           int64_t first, int64_t last, float* out) {
    const int64_t count = last - first, bytes = row_bytes(keys.format, dim);
    float *decoded = scratch(0, kChunk * dim), *products = scratch(1, heads * kChunk);
    for (int64_t j = first; j < last; ++j) {
        const int64_t block = keys.block_table[slot * keys.max_blocks + j / keys.block_rows];
        decode_row(keys.format, keys.pool + (block * keys.block_rows + j % keys.block_rows) * bytes, dim,
                   decoded + (j - first) * dim);
    }
    std::vector<const float*> query(static_cast<size_t>(heads));
    std::vector<float*> at(static_cast<size_t>(heads));
    for (int64_t h = 0; h < heads; ++h) {
        query[size_t(h)] = q + h * dim;
        at[size_t(h)] = products + h * count;
    }
    dot_all(query.data(), heads, decoded, dim, count, dim, at.data());
    for (int64_t n = 0; n < count; ++n) {
        float total = 0;
        for (int64_t h = 0; h < heads; ++h) total += std::max(products[h * count + n], 0.0f) * weights[h];
        out[n] = total;
    }
}

// Leaves the best `keep` of ids[0 .. size) in front, in no order.
void best_first(std::vector<int32_t>& ids, const float* scores, int64_t keep) {
    const auto better = [scores](int32_t a, int32_t b) {
        return scores[a] != scores[b] ? scores[a] > scores[b] : a < b;
    };
    if (keep < int64_t(ids.size())) {
        std::nth_element(ids.begin(), ids.begin() + keep, ids.end(), better);
        ids.resize(size_t(keep));
    }
}

}  // namespace

void index_scores(const float* q, const float* weights, int64_t heads, int64_t dim, const Paged& keys, const Rows& rows,
                  int64_t num_entries, float* scores) {
    const int64_t chunks = (num_entries + kChunk - 1) / kChunk;
    parallel_for(rows.count * chunks, rows.count * num_entries * heads * dim, [&](int64_t task) {
        const int64_t t = task / chunks, first = task % chunks * kChunk, last = std::min(first + kChunk, num_entries);
        const int64_t visible = rows.slot[t] < 0 ? 0 : std::min(num_entries, (rows.position[t] + 1) / keys.ratio);
        const int64_t end = std::max(first, std::min(last, visible));
        float* out = scores + t * num_entries;
        if (end > first)
            score(q + t * heads * dim, weights + t * heads, heads, dim, keys, rows.slot[t], first, end, out + first);
        std::fill(out + end, out + last, kNone);
    });
}

void select_blocks(const float* scores, int64_t rows, int64_t num_entries, const int32_t* visible, int64_t block_size,
                   int64_t top_blocks, uint8_t* keep) {
    const int64_t blocks = (num_entries + block_size - 1) / block_size;
    parallel_for(rows, rows * num_entries * 8, [&](int64_t t) {
        std::vector<float> best(size_t(blocks), kNone);
        const float* row = scores + t * num_entries;
        for (int64_t j = 0; j < num_entries; ++j)
            best[size_t(j / block_size)] = std::max(best[size_t(j / block_size)], row[j]);
        if (visible[t] > 0)  // the block of the newest visible entry is always kept
            best[size_t((visible[t] - 1) / block_size)] = std::numeric_limits<float>::infinity();
        std::vector<int32_t> ids;
        for (int64_t b = 0; b < blocks; ++b)
            if (best[size_t(b)] > kNone) ids.push_back(int32_t(b));
        best_first(ids, best.data(), top_blocks);
        std::fill(keep + t * blocks, keep + (t + 1) * blocks, uint8_t(0));
        for (const int32_t b : ids) keep[t * blocks + b] = 1;
    });
}

void select_topk(const float* scores, int64_t rows, int64_t num_entries, int64_t top_k, const uint8_t* blocks,
                 int64_t num_blocks, int64_t block_size, int32_t* selected) {
    parallel_for(rows, rows * num_entries * 8, [&](int64_t t) {
        const float* row = scores + t * num_entries;
        std::vector<int32_t> ids;
        for (int64_t j = 0; j < num_entries; ++j)
            if (row[j] > kNone && (!blocks || blocks[t * num_blocks + j / block_size])) ids.push_back(int32_t(j));
        best_first(ids, row, top_k);
        std::sort(ids.begin(), ids.end());
        int32_t* out = selected + t * top_k;
        std::fill(std::copy(ids.begin(), ids.end(), out), out + top_k, -1);
    });
}

}  // namespace deepinfer_cpu::DEEPINFER_ISA
