// Decoding and encoding of the stored number formats, one row or a run of a row at a time. The meaning is that of
// deepinfer_core/ops/formats.py: E4M3 saturates, scales round up to a power of two, E2M1 ties as listed there.
#pragma once

#include <bit>
#include <cfloat>

#include "vec.hpp"
#include "views.hpp"

namespace deepinfer_cpu::DEEPINFER_ISA {

static inline float from_bits(uint32_t bits) {
    float x;
    std::memcpy(&x, &bits, 4);
    return x;
}

static inline uint32_t to_bits(float x) {
    uint32_t bits;
    std::memcpy(&bits, &x, 4);
    return bits;
}

struct E8m0Table {
    float value[256];
    constexpr E8m0Table() : value{} {
        for (uint32_t byte = 0; byte < 256; ++byte)
            value[byte] = std::bit_cast<float>(byte == 0 ? 0x00400000 : byte == 255 ? 0x7fc00000 : byte << 23);
    }
};

constexpr E8m0Table kE8m0;

// 2^(byte - 127); 0 is the subnormal 2^-127 and 255 is NaN.
static inline float e8m0(uint8_t byte) {
    return kE8m0.value[byte];
}

static inline float bf16(uint16_t half) {
    return from_bits(uint32_t(half) << 16);
}

static inline uint16_t to_bf16(float x) {
    uint32_t bits = to_bits(x);
    if (std::isnan(x)) return 0x7fc0;
    return uint16_t((bits + 0x7fff + ((bits >> 16) & 1)) >> 16);
}

// |x| as E4M3, rounded to nearest even, saturating at 448; NaN stays NaN.
static inline uint8_t to_e4m3(float x) {
    uint32_t bits = to_bits(x);
    const uint8_t sign = uint8_t((bits >> 24) & 0x80);
    bits &= 0x7fffffff;
    const float a = from_bits(bits);
    if (std::isnan(x)) return uint8_t(sign | 0x7f);
    if (a >= 448.0f) return uint8_t(sign | 0x7e);
    if (a < 0x1p-6f) return uint8_t(sign | uint8_t(std::lrintf(a * 512.0f)));
    bits += 0x7ffff + ((bits >> 20) & 1);
    return uint8_t(sign | uint8_t((bits >> 20) - (120u << 3)));
}

static inline float e4m3(uint8_t byte) {
    const int exponent = (byte >> 3) & 15, mantissa = byte & 7;
    if ((byte & 0x7f) == 0x7f) return NAN;
    const float magnitude =
        exponent ? from_bits(uint32_t(exponent + 120) << 23 | uint32_t(mantissa) << 20) : float(mantissa) * 0x1p-9f;
    return byte & 0x80 ? -magnitude : magnitude;
}

// The least power of two that is at least x > 0, never below 2^-126; infinity for NaN, which as a stored scale is NaN.
static inline float pow2_ceil(float x) {
    const uint32_t bits = to_bits(x), exponent = ((bits >> 23) & 255) + ((bits & 0x7fffff) != 0);
    return from_bits((exponent < 1 ? 1 : exponent > 255 ? 255 : exponent) << 23);
}

static inline uint8_t e8m0_byte(float power) {
    return uint8_t(to_bits(power) >> 23);
}

// The largest magnitude of n numbers (n a multiple of kLanes), infinity counting as the largest finite number; NaN
// where there is one. Magnitudes are ordered like their bits, with infinity and then NaN above all.
static inline float max_abs(const float* x, int n) {
    vi most = {};
    for (int i = 0; i < n; i += kLanes) most = maximum((vi)absolute(load(x + i)), most);
    const int32_t bits = largest(most), infinity = 0x7f800000;
    return bits > infinity ? NAN : bits == infinity ? FLT_MAX : from_bits(uint32_t(bits));
}

// The scale of one block of 32 values stored as E4M3.
static inline float fp8_scale(const float* x) {
    const float most = max_abs(x, 32);
    return pow2_ceil((most < 1e-4f ? 1e-4f : most) * float(1.0 / 448.0));
}

static inline float fp4_e8m0_scale(const float* x) {
    const float most = max_abs(x, 32), low = 6 * 0x1p-126f;
    return pow2_ceil((most < low ? low : most) * float(1.0 / 6.0));
}

static inline uint8_t fp4_e4m3_scale(const float* x) {
    const float most = max_abs(x, 16), low = 6 * 0x1p-9f;
    return to_e4m3((most < low ? low : most) / 6.0f);
}

// The E2M1 code of x, |x| clamped to 6. Halfway between two values the even code wins.
static inline uint8_t to_e2m1(float x) {
    const float a = std::fabs(x);
    const uint8_t code =
        uint8_t((a > 0.25f) + (a >= 0.75f) + (a > 1.25f) + (a >= 1.75f) + (a > 2.5f) + (a >= 3.5f) + (a > 5.0f));
    return uint8_t(code | (std::signbit(x) ? 8 : 0));
}

// 32 E4M3 numbers times `scale`. The unit apart, since its product with a large scale would be infinity.
static inline void decode_e4m3(const uint8_t* data, float scale, float* out) {
    vf v[kBlockVectors];
    load_e4m3(data, v);
    for (int i = 0; i < kBlockVectors; ++i) store(out + i * kLanes, v[i] * splat(kE4M3Unit) * splat(scale));
}

// 32 E2M1 numbers, two a byte, low nibble first, times `scale`.
static inline void decode_e2m1(const uint8_t* data, float scale, float* out) {
    vf v[kBlockVectors];
    load_e2m1(data, splat(scale), v);
    for (int i = 0; i < kBlockVectors; ++i) store(out + i * kLanes, v[i]);
}

// The same of 16 numbers.
static inline void decode_half_e2m1(const uint8_t* data, float scale, float* out) {
    uint8_t padded[16] = {};
    float numbers[32];
    std::memcpy(padded, data, 8);
    decode_e2m1(padded, scale, numbers);
    std::memcpy(out, numbers, 16 * sizeof(float));
}

static inline void decode_bf16(const uint8_t* data, int64_t n, float* out) {
    int64_t i = 0;
    for (; i + kLanes <= n; i += kLanes) store(out + i, load_bf16(data + 2 * i));
    for (; i < n; ++i) {
        uint16_t half;
        std::memcpy(&half, data + 2 * i, 2);
        out[i] = bf16(half);
    }
}

static inline int64_t row_bytes(RowFormat format, int64_t dim) {
    switch (format) {
        case RowFormat::F32:
            return 4 * dim;
        case RowFormat::BF16:
            return 2 * dim;
        case RowFormat::FP8_E8M0_32:
            return dim + dim / 32;
        case RowFormat::FP4_E4M3_16:
            return dim / 2 + dim / 16;
        case RowFormat::FP4_E8M0_32:
            return dim / 2 + dim / 32;
    }
    __builtin_unreachable();
}

static inline void decode_row(RowFormat format, const uint8_t* row, int64_t dim, float* out) {
    switch (format) {
        case RowFormat::F32:
            std::memcpy(out, row, size_t(4 * dim));
            return;
        case RowFormat::BF16:
            decode_bf16(row, dim, out);
            return;
        case RowFormat::FP8_E8M0_32:
            for (int64_t i = 0; i < dim; i += 32) decode_e4m3(row + i, e8m0(row[dim + i / 32]), out + i);
            return;
        case RowFormat::FP4_E4M3_16:
            for (int64_t i = 0; i < dim; i += 16) decode_half_e2m1(row + i / 2, e4m3(row[dim / 2 + i / 16]), out + i);
            return;
        case RowFormat::FP4_E8M0_32:
            for (int64_t i = 0; i < dim; i += 32) decode_e2m1(row + i / 2, e8m0(row[dim / 2 + i / 32]), out + i);
            return;
    }
}

static inline void encode_e2m1(const float* x, int n, float scale, uint8_t* out) {
    for (int i = 0; i < n; i += 2) out[i / 2] = uint8_t(to_e2m1(x[i] / scale) | to_e2m1(x[i + 1] / scale) << 4);
}

static inline void encode_row(RowFormat format, const float* x, int64_t dim, uint8_t* row) {
    switch (format) {
        case RowFormat::F32:
            std::memcpy(row, x, size_t(4 * dim));
            return;
        case RowFormat::BF16:
            for (int64_t i = 0; i < dim; ++i) {
                const uint16_t half = to_bf16(x[i]);
                std::memcpy(row + 2 * i, &half, 2);
            }
            return;
        case RowFormat::FP8_E8M0_32:
            for (int64_t i = 0; i < dim; i += 32) {
                const float scale = fp8_scale(x + i);
                row[dim + i / 32] = e8m0_byte(scale);
                for (int j = 0; j < 32; ++j) row[i + j] = to_e4m3(x[i + j] / scale);
            }
            return;
        case RowFormat::FP4_E4M3_16:
            for (int64_t i = 0; i < dim; i += 16) {
                const uint8_t scale = fp4_e4m3_scale(x + i);
                row[dim / 2 + i / 16] = scale;
                encode_e2m1(x + i, 16, e4m3(scale), row + i / 2);
            }
            return;
        case RowFormat::FP4_E8M0_32:
            for (int64_t i = 0; i < dim; i += 32) {
                const float scale = fp4_e8m0_scale(x + i);
                row[dim / 2 + i / 32] = e8m0_byte(scale);
                encode_e2m1(x + i, 32, scale, row + i / 2);
            }
            return;
    }
}

}  // namespace deepinfer_cpu::DEEPINFER_ISA
