// Cache rows in and out of their stored formats, and the pooling of a compressed entry from its tokens.
#include <cmath>

#include "../parallel.hpp"
#include "dot.hpp"
#include "tables.hpp"

namespace deepinfer_cpu::DEEPINFER_ISA {

void write_rows(uint8_t* pool, int64_t row_size, const float* x, int64_t rows, int64_t dim, const int64_t* dest,
                RowFormat format) {
    for (int64_t t = 0; t < rows; ++t)
        if (dest[t] >= 0) encode_row(format, x + t * dim, dim, pool + dest[t] * row_size);
}

void copy_rows(uint8_t* pool, int64_t row_size, const int64_t* source, const int64_t* dest, int64_t count) {
    for (int64_t i = 0; i < count; ++i)
        if (dest[i] >= 0 && dest[i] != source[i])
            std::memcpy(pool + dest[i] * row_size, pool + source[i] * row_size, size_t(row_size));
}

void fake_quant(const float* x, int64_t rows, int64_t dim, RowFormat format, float* y) {
    parallel_for((rows + 15) / 16, rows * dim * 16, [&](int64_t task) {
        std::vector<uint8_t> stored(static_cast<size_t>(row_bytes(format, dim)));
        for (int64_t t = task * 16; t < std::min(rows, task * 16 + 16); ++t) {
            encode_row(format, x + t * dim, dim, stored.data());
            decode_row(format, stored.data(), dim, y + t * dim);
        }
    });
}

void compress_kv(const float* u, const float* gate, int64_t dim, const uint8_t* pending, const Rows& rows,
                 int64_t ratio, int64_t ring_rows, float* out) {
    std::vector<const float*> values(static_cast<size_t>(ratio)), gates(static_cast<size_t>(ratio));
    for (int64_t t = 0; t < rows.count; ++t, out += dim) {
        const int64_t last = rows.position[t], first = rows.first_position[t];
        if (rows.slot[t] < 0 || (last + 1) % ratio != 0) {
            std::fill(out, out + dim, 0.0f);
            continue;
        }
        for (int64_t i = 0; i < ratio; ++i) {
            const int64_t position = last - ratio + 1 + i;
            if (position >= first) {
                const int64_t row = rows.first_row[t] + (position - first);
                values[size_t(i)] = u + row * dim;
                gates[size_t(i)] = gate + row * dim;
            } else {
                const auto* held = reinterpret_cast<const float*>(pending) +
                                   (rows.slot[t] * ring_rows + position % ring_rows) * 2 * dim;
                values[size_t(i)] = held;
                gates[size_t(i)] = held + dim;
            }
        }
        for (int64_t d = 0; d < dim; ++d) {
            float most = gates[0][d], total = 0, mixed = 0;
            for (int64_t i = 1; i < ratio; ++i) most = std::max(most, gates[size_t(i)][d]);
            for (int64_t i = 0; i < ratio; ++i) {
                const float weight = std::exp(gates[size_t(i)][d] - most);
                total += weight;
                mixed += weight * values[size_t(i)][d];
            }
            out[d] = mixed / total;
        }
    }
}

}  // namespace deepinfer_cpu::DEEPINFER_ISA
