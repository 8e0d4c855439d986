// Dot products straight from the stored weight, for the one row of a request that decodes alone: no decoded copy is
// written and read back. The numbers and their order are those of dot.hpp over decoded rows, so the bits are too.
#pragma once

#include "dot.hpp"

namespace deepinfer_cpu::DEEPINFER_ISA {

// How 32 numbers of one matrix row are read, times `factor`.
struct StoredBf16 {
    static constexpr int64_t bytes = 64;
    static void load(const uint8_t* block, vf, vf (&v)[kBlockVectors]) {
        for (int i = 0; i < kBlockVectors; ++i) v[i] = load_bf16(block + 2 * i * kLanes);
    }
};

// Without its scale and divided by kE4M3Unit: `scale_row` gives the activations both.
struct StoredFp8 {
    static constexpr int64_t bytes = 32;
    static void load(const uint8_t* block, vf, vf (&v)[kBlockVectors]) { load_e4m3(block, v); }
};

struct StoredFp4 {
    static constexpr int64_t bytes = 16;
    static void load(const uint8_t* block, vf factor, vf (&v)[kBlockVectors]) { load_e2m1(block, factor, v); }
};

// out[c] = x . (row first + c of w) for C rows of w; w.in is a multiple of 32. `scale` has a byte for each 32 numbers
// of these rows, or is null.
template <class Stored, int C>
static inline void dot_stored_block(const float* x, const Weight& w, int64_t first, const uint8_t* scale, float* out) {
    const int64_t blocks = w.in / kBlock, stride = blocks * Stored::bytes;
    const uint8_t* data = w.data + first * stride;
    vf acc[C];
#pragma GCC unroll 8
    for (vf& a : acc) a = vf{};
    for (int64_t b = 0; b < blocks; ++b, data += Stored::bytes, x += kBlock) {
#pragma GCC unroll 8
        for (int c = 0; c < C; ++c) {
            vf numbers[kBlockVectors];
            Stored::load(data + c * stride, splat(scale ? e8m0(scale[c * blocks + b]) : 1.0f), numbers);
            for (int i = 0; i < kBlockVectors; ++i) acc[c] = fma(load(x + i * kLanes), numbers[i], acc[c]);
        }
    }
    write_sums<1, C>(acc, &out, 0);
}

template <class Stored>
static inline void dot_stored(const float* x, const Weight& w, int64_t first, int64_t count, const uint8_t* scale,
                              float* out) {
    constexpr int kAtOnce = 4;
    int64_t c = 0;
    const auto scale_of = [&](int64_t row) { return scale ? scale + row * (w.in / kBlock) : nullptr; };
    for (; c + kAtOnce <= count; c += kAtOnce)
        dot_stored_block<Stored, kAtOnce>(x, w, first + c, scale_of(first + c), out + c);
    for (; c < count; ++c) dot_stored_block<Stored, 1>(x, w, first + c, scale_of(first + c), out + c);
}

// out = x times the FP8 scales of one block of matrix rows, so that the products need none. Both ways give the same
// bits while neither a scaled activation nor a scaled weight leaves the normal numbers; false where one could.
static inline bool scale_row(const float* x, const uint8_t* scale, int64_t blocks, float* out) {
    constexpr uint8_t least = 10, most = 246;  // 2^-9 times the scale is normal; 448 times the scale is finite
    vi outside = {};
    for (int64_t b = 0; b < blocks; ++b) {
        if (scale[b] < least || scale[b] > most) return false;
        const vf factor = splat(e8m0(scale[b]) * kE4M3Unit);
        for (int64_t i = b * kBlock; i < (b + 1) * kBlock; i += kLanes) {
            const vf number = load(x + i), scaled = number * factor;
            const vi bits = (vi)absolute(scaled);
            outside |= (bits < 0x00800000 && number != 0.0f) | (bits >= 0x7f800000);
            store(out + i, scaled);
        }
    }
    return largest(-outside) == 0;
}

// dot_stored of FP8 rows; false, and nothing written that counts, where the scales cannot go to the activations.
static inline bool dot_stored_fp8(const float* x, const Weight& w, int64_t first, int64_t count, float* out) {
    const int64_t blocks = w.in / kBlock;
    float* scaled = scratch(0, w.in);
    for (int64_t n = first, end; n < first + count; n = end) {
        end = std::min((n / 32 + 1) * 32, first + count);
        if (!scale_row(x, w.scale + n / 32 * blocks, blocks, scaled)) return false;
        dot_stored<StoredFp8>(scaled, w, n, end - n, nullptr, out + (n - first));
    }
    return true;
}

// out[c] = x . (row first + c of w) for the one row x; false where that takes a decoded copy.
static inline bool dot_one(const float* x, const Weight& w, int64_t first, int64_t count, float* out) {
    if (w.in % kBlock != 0) return false;
    if (w.format == WeightFormat::FP8) return dot_stored_fp8(x, w, first, count, out);
    if (w.format == WeightFormat::BF16)
        dot_stored<StoredBf16>(x, w, first, count, nullptr, out);
    else
        dot_stored<StoredFp4>(x, w, first, count, w.scale, out);
    return true;
}

// Matrix rows to decode at a time: what takes a third of a first-level cache of 32 KiB, which another hardware thread
// may share; a multiple of the columns of every block in dot_all.
static inline int64_t tile_columns(int64_t k) {
    return std::max<int64_t>(2560 / std::max<int64_t>(k, 1) / 6, 1) * 6;
}

// out[r][c] = x[r] . (row first + c of w), c < count, by whichever way suits the number of rows.
static inline void dot_weight(const float* const* x, int64_t rows, const Weight& w, int64_t first, int64_t count,
                              float* const* out) {
    if (w.format == WeightFormat::F32)
        return dot_all(x, rows, reinterpret_cast<const float*>(w.data) + first * w.in, w.in, count, w.in, out);
    if (rows == 1 && dot_one(*x, w, first, count, *out)) return;
    const int64_t tile = std::min(tile_columns(w.in), count);
    float* decoded = scratch(0, tile * w.in);
    for (int64_t c = 0; c < count; c += tile) {
        const int64_t columns = std::min(tile, count - c);
        decode_rows(w, first + c, columns, decoded);
        dot_all(x, rows, decoded, w.in, columns, w.in, out, c);
    }
}

}  // namespace deepinfer_cpu::DEEPINFER_ISA
