// Table look-ups: token embeddings, n-gram hashes and the table rows that they name, past tokens, pool rows.
#include "dot.hpp"
#include "tables.hpp"

namespace deepinfer_cpu::DEEPINFER_ISA {

void embedding(const int64_t* tokens, int64_t rows, const Weight& w, float* y) {
    for (int64_t t = 0; t < rows; ++t) decode_rows(w, std::max<int64_t>(tokens[t], 0), 1, y + t * w.in);
}

void engram_lookup(const Weight& table, const int64_t* index, int64_t count, float* y) {
    for (int64_t i = 0; i < count; ++i, y += table.in) {
        if (table.format == WeightFormat::FP8)  // one scale for each 32 numbers of a row, not for a block of rows
            for (int64_t d = 0; d < table.in; d += 32)
                decode_e4m3(table.data + index[i] * table.in + d, e8m0(table.scale[(index[i] * table.in + d) / 32]),
                            y + d);
        else
            decode_rows(table, index[i], 1, y);
        for (int64_t d = 0; d < table.in; ++d) y[d] = bf16(to_bf16(y[d]));
    }
}

void hash_ngrams(const int64_t* classes, int64_t rows, int64_t n, const int64_t* multipliers, const int64_t* primes,
                 const int64_t* offsets, int64_t columns, int64_t pad, int64_t* out) {
    const int64_t heads = columns / (n - 1);
    for (int64_t t = 0; t < rows; ++t, classes += n, out += columns) {
        bool dead = classes[0] < 0;
        // Products of a class and its multiplier are below 2^63 by construction; unsigned, so that nothing else traps.
        uint64_t rolling = uint64_t(dead ? pad : classes[0]) * uint64_t(multipliers[0]);
        for (int64_t older = 1; older < n; ++older) {
            dead = dead || classes[older] < 0;
            rolling ^= uint64_t(dead ? pad : classes[older]) * uint64_t(multipliers[older]);
            for (int64_t c = (older - 1) * heads; c < older * heads; ++c) {
                const int64_t left = int64_t(rolling) % primes[c];
                out[c] = (left < 0 ? left + primes[c] : left) + offsets[c];
            }
        }
    }
}

void gather_history(const int64_t* tokens, const Rows& rows, const int64_t* history, int64_t history_rows, int64_t n,
                    int64_t* out) {
    for (int64_t t = 0; t < rows.count; ++t)
        for (int64_t k = 0; k < n; ++k) {
            const int64_t position = rows.position[t] - k, first = rows.first_position[t];
            int64_t& token = out[t * n + k];
            if (position < 0 || rows.slot[t] < 0)
                token = -1;
            else if (position >= first)
                token = tokens[rows.first_row[t] + (position - first)];
            else
                token = history[rows.slot[t] * history_rows + position % history_rows];
        }
}

void read_rows(const uint8_t* pool, int64_t row_size, const int64_t* index, int64_t count, int64_t dim,
               RowFormat format, float* y) {
    for (int64_t i = 0; i < count; ++i) {
        if (index[i] < 0)
            std::fill(y + i * dim, y + (i + 1) * dim, 0.0f);
        else
            decode_row(format, pool + index[i] * row_size, dim, y + i * dim);
    }
}

}  // namespace deepinfer_cpu::DEEPINFER_ISA
