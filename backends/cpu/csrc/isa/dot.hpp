// Dot products of many rows with many columns, the core of every matrix kernel. Each product is one vector accumulator
// over k in order, then its lanes' sum, then the tail in order: whatever the blocking, and so whatever the number of
// rows.
#pragma once

#include <algorithm>
#include <memory>
#include <new>
#include <vector>

#include "../formats.hpp"
#include "../parallel.hpp"

namespace deepinfer_cpu::DEEPINFER_ISA {

// What the vectors of a row leave: products from `whole` to k, added in order.
template <int R, int C>
[[gnu::noinline]] static void add_tail(const float* const* x, const float* w, int64_t stride, int64_t whole, int64_t k,
                                       float* const* out, int64_t first) {
    for (int r = 0; r < R; ++r)
        for (int c = 0; c < C; ++c)
            for (int64_t i = whole; i < k; ++i) out[r][first + c] += x[r][i] * w[c * stride + i];
}

// out[r][first + c] = the sum of the lanes of acc[r * C + c]. Unrolled, so that accumulators stay in registers.
template <int R, int C>
[[gnu::always_inline]] static inline void write_sums(const vf (&acc)[R * C], float* const* out, int64_t first) {
    float sums[R * C];
    constexpr int kFours = R * C / 4 * 4;
#pragma GCC unroll 24
    for (int i = 0; i < kFours; i += 4) sum_four(acc[i], acc[i + 1], acc[i + 2], acc[i + 3], sums + i);
#pragma GCC unroll 24
    for (int i = kFours; i < R * C; ++i) sums[i] = sum(acc[i]);
#pragma GCC unroll 24
    for (int i = 0; i < R * C; ++i) out[i / C][first + i % C] = sums[i];
}

// out[r][first + c] = x[r] . w[c] for R rows and C columns of length k.
template <int R, int C>
static inline void dot_block(const float* const* x, const float* w, int64_t stride, int64_t k, float* const* out,
                             int64_t first) {
    vf acc[R * C];
#pragma GCC unroll 24
    for (vf& a : acc) a = vf{};
    const int64_t whole = k / kLanes * kLanes;
    for (int64_t i = 0; i < whole; i += kLanes) {
        vf column[C];
#pragma GCC unroll 24
        for (int c = 0; c < C; ++c) column[c] = load(w + c * stride + i);
#pragma GCC unroll 24
        for (int r = 0; r < R; ++r) {
            const vf row = load(x[r] + i);
#pragma GCC unroll 24
            for (int c = 0; c < C; ++c) acc[r * C + c] = fma(row, column[c], acc[r * C + c]);
        }
    }
    write_sums<R, C>(acc, out, first);
    if (whole < k) add_tail<R, C>(x, w, stride, whole, k, out, first);
}

// R rows, C columns at a time and the rest one by one; results go to out[r][first] and on.
template <int R, int C>
static inline void dot_columns(const float* const* x, const float* w, int64_t stride, int64_t columns, int64_t k,
                               float* const* out, int64_t first) {
    int64_t c = 0;
    for (; c + C <= columns; c += C) dot_block<R, C>(x, w + c * stride, stride, k, out, first + c);
    for (; c < columns; ++c) dot_block<R, 1>(x, w + c * stride, stride, k, out, first + c);
}

constexpr int kWide = kLanes == 16 ? 6 : 3;  // columns that, with four rows, fill the registers with accumulators

// out[t][first + c] = x[t] . w[c]: `rows` pointers to rows, `columns` rows of w `stride` apart.
static inline void dot_all(const float* const* x, int64_t rows, const float* w, int64_t stride, int64_t columns,
                           int64_t k, float* const* out, int64_t first = 0) {
    int64_t r = 0;
    for (; r + 4 <= rows; r += 4) dot_columns<4, kWide>(x + r, w, stride, columns, k, out + r, first);
    if (rows - r == 3)
        dot_columns<3, kWide>(x + r, w, stride, columns, k, out + r, first);
    else if (rows - r == 2)
        dot_columns<2, 6>(x + r, w, stride, columns, k, out + r, first);
    else if (rows - r == 1)
        dot_columns<1, 6>(x + r, w, stride, columns, k, out + r, first);
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
                for (int64_t i = 0; i < whole; i += 32) decode_e4m3(data + i, e8m0(scale[i / 32]), out + i);
                for (int64_t i = whole; i < w.in; ++i) out[i] = e4m3(data[i]) * e8m0(scale[i / 32]);
                break;
            }
            case WeightFormat::FP4: {
                const uint8_t* scale = w.scale + n * (w.in / 32);
                for (int64_t i = 0; i < w.in; i += 32)
                    decode_e2m1(w.data + (n * w.in + i) / 2, e8m0(scale[i / 32]), out + i);
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

// Numbers on a cache line's boundary: a vector that straddles two lines costs as much as two.
constexpr std::align_val_t kLine{64};

struct FreeFloats {
    void operator()(float* numbers) const { ::operator delete(numbers, kLine); }
};

using Floats = std::unique_ptr<float[], FreeFloats>;

static inline Floats floats(int64_t count) {
    return Floats(static_cast<float*>(::operator new(size_t(count) * sizeof(float), kLine)));
}

// x [rows, k] quantised, in memory that `held` owns.
static inline const float* quantise_rows(const float* x, int64_t rows, int64_t k, Floats& held) {
    held = floats(rows * k);
    float* out = held.get();
    parallel_for((rows + 7) / 8, rows * k * 8, [&](int64_t task) {
        for (int64_t t = task * 8; t < std::min(rows, task * 8 + 8); ++t) quantise_row(x + t * k, k, out + t * k);
    });
    return out;
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
    static thread_local struct {
        Floats numbers;
        int64_t size = 0;
    } buffers[4];
    auto& buffer = buffers[slot];
    if (buffer.size < count) {
        buffer.numbers = floats(count);
        buffer.size = count;
    }
    return buffer.numbers.get();
}

// Matrix rows of one task. One activation row gains from those that share FP8 scales; several from full blocks of
// dot_all.
static inline int64_t task_columns(int64_t rows) {
    return rows == 1 ? 32 : 24;
}

}  // namespace deepinfer_cpu::DEEPINFER_ISA
