// Dot products straight from the stored weight, for the few rows of a decode step: no decoded copy is written and read
// back. The numbers and their order are those of dot.hpp over decoded rows, so the bits are too.
#pragma once

#include "dot.hpp"

namespace deepinfer_cpu::DEEPINFER_ISA {

constexpr int64_t kFewRows = 3;  // up to here decoding again for each row costs less than storing what was decoded

// How 32 numbers of one matrix row are read: what `load` gives, times the block's scale times `unit`. A scale of 2^120
// or more, whose weights no product of float32 would survive, gives infinity here.
struct StoredFp8 {
    static constexpr int64_t bytes = 32;
    static constexpr float unit = kE4M3Unit;
    static vf load(const uint8_t* block, int64_t i) { return load_e4m3(block + i); }
};

struct StoredFp4 {
    static constexpr int64_t bytes = 16;
    static constexpr float unit = 1;
    static vf load(const uint8_t* block, int64_t i) { return load_e2m1(block + i / 2); }
};

// out[r][c] = x[r] . (row c of w), C rows of w from `first`; w.in is a multiple of 32.
template <class Stored, int R, int C>
static inline void dot_stored_block(const float* const* x, const Weight& w, int64_t first, float* const* out) {
    const int64_t blocks = w.in / 32;
    const uint8_t *data[C], *scale[C];
    for (int c = 0; c < C; ++c) {
        data[c] = w.data + (first + c) * blocks * Stored::bytes;
        scale[c] = w.scale + (w.format == WeightFormat::FP8 ? (first + c) / 32 : first + c) * blocks;
    }
    vf acc[R][C] = {};
    for (int64_t b = 0; b < blocks; ++b) {
        vf factor[C];
        for (int c = 0; c < C; ++c) factor[c] = splat(e8m0(scale[c][b]) * Stored::unit);
        for (int64_t i = 0; i < 32; i += kLanes) {
            vf row[R];
            for (int r = 0; r < R; ++r) row[r] = load(x[r] + 32 * b + i);
            for (int c = 0; c < C; ++c) {
                const vf column = Stored::load(data[c] + b * Stored::bytes, i) * factor[c];
                for (int r = 0; r < R; ++r) acc[r][c] = fma(row[r], column, acc[r][c]);
            }
        }
    }
    for (int r = 0; r < R; ++r)
        for (int c = 0; c < C; ++c) out[r][c] = sum(acc[r][c]);
}

template <class Stored, int R>
static inline void dot_stored_columns(const float* const* x, const Weight& w, int64_t first, int64_t count,
                                      float* const* out) {
    int64_t c = 0;
    float* at[R];
    for (; c + 4 <= count; c += 4) {
        for (int r = 0; r < R; ++r) at[r] = out[r] + c;
        dot_stored_block<Stored, R, 4>(x, w, first + c, at);
    }
    for (; c < count; ++c) {
        for (int r = 0; r < R; ++r) at[r] = out[r] + c;
        dot_stored_block<Stored, R, 1>(x, w, first + c, at);
    }
}

template <class Stored>
static inline void dot_stored_rows(const float* const* x, int64_t rows, const Weight& w, int64_t first, int64_t count,
                                   float* const* out) {
    if (rows == 1)
        dot_stored_columns<Stored, 1>(x, w, first, count, out);
    else if (rows == 2)
        dot_stored_columns<Stored, 2>(x, w, first, count, out);
    else
        dot_stored_columns<Stored, 3>(x, w, first, count, out);
}

// out[r][c] = x[r] . (row first + c of w), c < count, by whichever way suits the number of rows. `slot` is the scratch
// buffer that decoded rows go to.
static inline void dot_weight(const float* const* x, int64_t rows, const Weight& w, int64_t first, int64_t count,
                              float* const* out, int slot = 0) {
    if (rows <= kFewRows && w.format == WeightFormat::FP8 && w.in % 32 == 0)
        return dot_stored_rows<StoredFp8>(x, rows, w, first, count, out);
    if (rows <= kFewRows && w.format == WeightFormat::FP4)
        return dot_stored_rows<StoredFp4>(x, rows, w, first, count, out);
    if (w.format == WeightFormat::F32)
        return dot_all(x, rows, reinterpret_cast<const float*>(w.data) + first * w.in, w.in, count, w.in, out);
    float* decoded = scratch(slot, count * w.in);
    decode_rows(w, first, count, decoded);
    dot_all(x, rows, decoded, w.in, count, w.in, out);
}

}  // namespace deepinfer_cpu::DEEPINFER_ISA
