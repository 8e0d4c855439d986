// Dot products of many rows with many columns, the core of every matrix kernel. Each product is one vector accumulator
// over k in order, then its lanes' sum, then the tail in order: whatever the blocking, and so whatever the number of
// rows.
#pragma once

#include <algorithm>
#include <vector>

#include "../formats.hpp"

namespace deepinfer_cpu::DEEPINFER_ISA {

// out[t][c] = x[t] . w[c] for R rows and C columns of length k.
template <int R, int C>
static inline void dot_block(const float* const* x, const float* w, int64_t stride, int64_t k, float* const* out) {
    vf acc[R][C] = {};
    const int64_t whole = k / kLanes * kLanes;
    for (int64_t i = 0; i < whole; i += kLanes) {
        vf column[C];
        for (int c = 0; c < C; ++c) column[c] = load(w + c * stride + i);
        for (int r = 0; r < R; ++r) {
            const vf row = load(x[r] + i);
            for (int c = 0; c < C; ++c) acc[r][c] = fma(row, column[c], acc[r][c]);
        }
    }
    for (int r = 0; r < R; ++r)
        for (int c = 0; c < C; ++c) {
            float total = sum(acc[r][c]);
            for (int64_t i = whole; i < k; ++i) total += x[r][i] * w[c * stride + i];
            out[r][c] = total;
        }
}

template <int R, int C>
static inline int64_t dot_columns(const float* const* x, const float* w, int64_t stride, int64_t k, int64_t first,
                                  int64_t columns, float* const* out) {
    int64_t c = first;
    for (; c + C <= columns; c += C) {
        float* at[R];
        for (int r = 0; r < R; ++r) at[r] = out[r] + c;
        dot_block<R, C>(x, w + c * stride, stride, k, at);
    }
    return c;
}

// out[t][c] = x[t] . w[c]: `rows` pointers to rows, `columns` rows of w `stride` apart.
static inline void dot_all(const float* const* x, int64_t rows, const float* w, int64_t stride, int64_t columns,
                           int64_t k, float* const* out) {
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4) {
        const int64_t c = dot_columns<4, 3>(x + r, w, stride, k, 0, columns, out + r);
        dot_columns<4, 1>(x + r, w, stride, k, c, columns, out + r);
    }
    for (; r + 2 <= rows; r += 2) {
        const int64_t c = dot_columns<2, 4>(x + r, w, stride, k, 0, columns, out + r);
        dot_columns<2, 1>(x + r, w, stride, k, c, columns, out + r);
    }
    if (r < rows) {
        const int64_t c = dot_columns<1, 8>(x + r, w, stride, k, 0, columns, out + r);
        dot_columns<1, 1>(x + r, w, stride, k, c, columns, out + r);
    }
}

// Matrix rows first .. first + count - 1 as float32, `w.in` apart.
static inline void decode_rows(const Weight& w, int64_t first, int64_t count, float* out) {
    for (int64_t n = first; n < first + count; ++n, out += w.in) {
        switch (w.format) {
            case WeightFormat::F32:
                std::memcpy(out, w.data + 4 * n * w.in, size_t(4 * w.in));
                break;
            case WeightFormat::BF16:
                decode_bf16(w.data + 2 * n * w.in, w.in, out);
                break;
            case WeightFormat::FP8: {
                const uint8_t* scale = w.scale + n / 32 * ((w.in + 31) / 32);
                const uint8_t* data = w.data + n * w.in;
                const int64_t whole = w.in / 32 * 32;
                for (int64_t i = 0; i < whole; i += 32) decode_e4m3(data + i, 32, e8m0(scale[i / 32]), out + i);
                for (int64_t i = whole; i < w.in; ++i) out[i] = e4m3(data[i]) * e8m0(scale[i / 32]);
                break;
            }
            case WeightFormat::FP4: {
                const uint8_t* scale = w.scale + n * (w.in / 32);
                for (int64_t i = 0; i < w.in; i += 32)
                    decode_e2m1(w.data + (n * w.in + i) / 2, 32, e8m0(scale[i / 32]), out + i);
                break;
            }
        }
    }
}

// Expert e of a stack whose view is that of expert 0.
static inline Weight expert_of(const Weight& w, int64_t e) {
    const int64_t numbers = w.out * w.in;
    Weight one = w;
    switch (w.format) {
        case WeightFormat::F32:
            one.data += e * numbers * 4;
            break;
        case WeightFormat::BF16:
            one.data += e * numbers * 2;
            break;
        case WeightFormat::FP8:
            one.data += e * numbers;
            one.scale += e * ((w.out + 31) / 32) * ((w.in + 31) / 32);
            break;
        case WeightFormat::FP4:
            one.data += e * numbers / 2;
            one.scale += e * numbers / 32;
            break;
    }
    return one;
}

// The values that FP8 activation quantisation in blocks of 32 leaves. A last short block counts as filled up with 0.
static inline void quantise_row(const float* x, int64_t k, float* out) {
    const int64_t whole = k / 32 * 32;
    for (int64_t i = 0; i < whole; i += 32) {
        const float scale = fp8_scale(x + i), inverse = 1.0f / scale;  // both powers of two: exact
        for (int64_t j = i; j < i + 32; j += kLanes)
            store(out + j, round_e4m3(load(x + j) * splat(inverse)) * splat(scale));
    }
    if (whole == k) return;
    float block[32] = {};
    std::copy(x + whole, x + k, block);
    quantise_row(block, 32, block);
    std::copy(block, block + (k - whole), out + whole);
}

static inline float sum_squares(const float* x, int64_t n) {
    vf acc = {};
    const int64_t whole = n / kLanes * kLanes;
    for (int64_t i = 0; i < whole; i += kLanes) acc = fma(load(x + i), load(x + i), acc);
    float total = sum(acc);
    for (int64_t i = whole; i < n; ++i) total += x[i] * x[i];
    return total;
}

static inline bool quantised(const Weight& w) {
    return w.format == WeightFormat::FP8 || w.format == WeightFormat::FP4;
}

// A buffer of the calling thread that keeps its size between kernels. `slot` tells apart those in use at once.
static inline float* scratch(int slot, int64_t count) {
    static thread_local std::vector<float> buffers[4];
    auto& buffer = buffers[slot];
    if (int64_t(buffer.size()) < count) buffer.resize(size_t(count));
    return buffer.data();
}

constexpr int64_t kColumns = 24;  // matrix rows that a task decodes at once: a multiple of 3, 4 and 8

}  // namespace deepinfer_cpu::DEEPINFER_ISA
