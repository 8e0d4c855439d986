// The vector type of the instruction set that a file is compiled for. Each file in isa/ is compiled once for each set,
// in its own namespace; nothing here may be inlined across them, so everything lives in DEEPINFER_ISA.
#pragma once

#include <cmath>
#include <cstdint>
#include <cstring>

#if defined(__AVX512F__) || defined(__AVX2__)
#include <immintrin.h>
#endif

namespace deepinfer_cpu::DEEPINFER_ISA {

#if defined(__AVX512F__)
constexpr int kLanes = 16;
#else
constexpr int kLanes = 8;
#endif

typedef float vf __attribute__((vector_size(kLanes * 4)));
typedef int32_t vi __attribute__((vector_size(kLanes * 4)));

static inline vf load(const float* p) {
    vf v;
    std::memcpy(&v, p, sizeof v);
    return v;
}

static inline void store(float* p, vf v) {
    std::memcpy(p, &v, sizeof v);
}

static inline vf splat(float x) {
    return x - vf{};
}

// a * b + c, fused where the instruction set has it. Never left to the compiler: a result must not depend on how a loop
// happens to be unrolled.
static inline vf fma(vf a, vf b, vf c) {
#if defined(__AVX512F__)
    return (vf)_mm512_fmadd_ps((__m512)a, (__m512)b, (__m512)c);
#elif defined(__FMA__)
    return (vf)_mm256_fmadd_ps((__m256)a, (__m256)b, (__m256)c);
#else
    return a * b + c;
#endif
}

// kLanes bfloat16 numbers.
static inline vf load_bf16(const uint8_t* p) {
#if defined(__AVX512F__)
    return (vf)_mm512_slli_epi32(_mm512_cvtepu16_epi32(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(p))), 16);
#elif defined(__AVX2__)
    return (vf)_mm256_slli_epi32(_mm256_cvtepu16_epi32(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p))), 16);
#else
    vi bits;
    for (int i = 0; i < kLanes; ++i) {
        uint16_t half;
        std::memcpy(&half, p + 2 * i, 2);
        bits[i] = int32_t(uint32_t(half) << 16);
    }
    return (vf)bits;
#endif
}

// Stored numbers are decoded in blocks of 32.
constexpr int kBlock = 32;
constexpr int kBlockVectors = kBlock / kLanes;

// 32 E4M3 numbers, each divided by kE4M3Unit: its bits, moved to a half's place, read so, subnormals included. The
// codes of NaN, which no stored number has, read 480.
constexpr float kE4M3Unit = 256;

static inline void load_e4m3(const uint8_t* p, vf (&v)[kBlockVectors]) {
#if defined(__AVX2__)
    for (int i = 0; i < 2; ++i) {
        // Sign extension fills bits 8 .. 15 with the sign; shifted, it stands in bit 15 and, unwanted, in bit 14.
        const __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p + 16 * i)));
        const __m256i half = _mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16(short(0xbfff)));
#if defined(__AVX512F__)
        v[i] = (vf)_mm512_cvtph_ps(half);
#else
        v[2 * i] = (vf)_mm256_cvtph_ps(_mm256_castsi256_si128(half));
        v[2 * i + 1] = (vf)_mm256_cvtph_ps(_mm256_extracti128_si256(half, 1));
#endif
    }
#else
    for (int i = 0; i < kBlockVectors; ++i, p += kLanes) {
        vi bits;
        for (int j = 0; j < kLanes; ++j) bits[j] = int32_t(uint32_t(p[j] & 0x7f) << 20 | uint32_t(p[j] & 0x80) << 24);
        v[i] = (vf)bits * splat(0x1p112f);
    }
#endif
}

// 32 E2M1 numbers from 16 bytes, low nibble first, times `factor`: looked up among the products, which are exact.
static inline void load_e2m1(const uint8_t* p, vf factor, vf (&v)[kBlockVectors]) {
#if defined(__AVX512F__)
    const __m512 values = _mm512_setr_ps(0, .5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -.5f, -1, -1.5f, -2, -3, -4, -6);
    const __m512 products = _mm512_mul_ps(values, (__m512)factor);
    const __m512i halves = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    const __m512i shift = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
    for (int i = 0; i < kBlockVectors; ++i) {
        const __m512i packed = _mm512_castsi128_si512(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p + 8 * i)));
        const __m512i codes = _mm512_srlv_epi32(_mm512_permutexvar_epi32(halves, packed), shift);
        v[i] = (vf)_mm512_permutexvar_ps(codes, products);
    }
#elif defined(__AVX2__)
    const __m256 products = _mm256_mul_ps(_mm256_setr_ps(0, .5f, 1, 1.5f, 2, 3, 4, 6), (__m256)factor);
    const __m256i shift = _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28);
    for (int i = 0; i < kBlockVectors; ++i) {
        int32_t packed;
        std::memcpy(&packed, p + 4 * i, 4);
        const __m256i codes = _mm256_srlv_epi32(_mm256_set1_epi32(packed), shift);
        const __m256i sign = _mm256_and_si256(_mm256_slli_epi32(codes, 28), _mm256_set1_epi32(INT32_MIN));
        v[i] = (vf)_mm256_xor_ps(_mm256_permutevar8x32_ps(products, codes), (__m256)sign);
    }
#else
    constexpr float magnitude[8] = {0, .5f, 1, 1.5f, 2, 3, 4, 6};
    for (int i = 0; i < kBlock; ++i) {
        const int code = p[i / 2] >> (i % 2 * 4) & 15;
        const float number = magnitude[code & 7] * factor[0];
        v[i / kLanes][i % kLanes] = code & 8 ? -number : number;
    }
#endif
}

#if defined(__AVX2__)
// Lane i + lane i + 8 where there are sixteen.
static inline __m256 fold_to_eight(vf v) {
#if defined(__AVX512F__)
    const __m512d halves = _mm512_castps_pd((__m512)v);
    return _mm256_add_ps(_mm512_castps512_ps256((__m512)v), _mm256_castpd_ps(_mm512_extractf64x4_pd(halves, 1)));
#else
    return (__m256)v;
#endif
}
#endif

// The lanes' sum, halving: lane i is added to lane i + half, until one is left.
static inline float sum(vf v) {
#if defined(__AVX2__)
    const __m256 eight = fold_to_eight(v);
    const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
    const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
    return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
#else
    float x[kLanes];
    store(x, v);
    for (int half = kLanes / 2; half > 0; half /= 2)
        for (int i = 0; i < half; ++i) x[i] += x[i + half];
    return x[0];
#endif
}

// out[i] = sum(v_i), bit for bit, in fewer instructions than four sums.
static inline void sum_four(vf v0, vf v1, vf v2, vf v3, float* out) {
#if defined(__AVX2__)
    const __m256 a = fold_to_eight(v0), b = fold_to_eight(v1), c = fold_to_eight(v2), d = fold_to_eight(v3);
    // Four lanes of a, then four of b; likewise c and d.
    const __m256 ab = _mm256_add_ps(_mm256_blend_ps(a, b, 0xf0), _mm256_permute2f128_ps(a, b, 0x21));
    const __m256 cd = _mm256_add_ps(_mm256_blend_ps(c, d, 0xf0), _mm256_permute2f128_ps(c, d, 0x21));
    // Two lanes of a, c, b and d.
    const __m256 two = _mm256_add_ps(_mm256_shuffle_ps(ab, cd, 0x44), _mm256_shuffle_ps(ab, cd, 0xee));
    const __m256 one = _mm256_add_ps(two, _mm256_movehdup_ps(two));
    const __m128 ac = _mm256_castps256_ps128(one), bd = _mm256_extractf128_ps(one, 1);
    _mm_storeu_ps(out, _mm_unpacklo_ps(_mm_shuffle_ps(ac, ac, 0x08), _mm_shuffle_ps(bd, bd, 0x08)));
#else
    out[0] = sum(v0);
    out[1] = sum(v1);
    out[2] = sum(v2);
    out[3] = sum(v3);
#endif
}

static inline vf absolute(vf v) {
    return (vf)((vi)v & 0x7fffffff);
}

static inline vi maximum(vi a, vi b) {
    return a > b ? a : b;
}

// The largest lane.
static inline int32_t largest(vi v) {
#if defined(__AVX2__)
#if defined(__AVX512F__)
    const __m256i eight =
        _mm256_max_epi32(_mm512_castsi512_si256((__m512i)v), _mm512_extracti64x4_epi64((__m512i)v, 1));
#else
    const __m256i eight = (__m256i)v;
#endif
    const __m128i four = _mm_max_epi32(_mm256_castsi256_si128(eight), _mm256_extracti128_si256(eight, 1));
    const __m128i two = _mm_max_epi32(four, _mm_shuffle_epi32(four, 0x4e));
    return _mm_cvtsi128_si32(_mm_max_epi32(two, _mm_shuffle_epi32(two, 0xb1)));
#else
    int32_t most = v[0];
    for (int i = 1; i < kLanes; ++i) most = v[i] > most ? v[i] : most;
    return most;
#endif
}

// Each lane rounded to an E4M3 number, nearest even, saturating at 448.
static inline vf round_e4m3(vf v) {
    const vf a = absolute(v), capped = a > 448.0f ? splat(448.0f) : a;
    const vi bits = (vi)capped;
    const vf normal = (vf)((bits + 0x7ffff + ((bits >> 20) & 1)) & ~0xfffff);
    const vf tiny = (capped + splat(24576.0f)) - splat(24576.0f);  // below 2^-6 the numbers are multiples of 2^-9
    const vf rounded = capped < 0x1p-6f ? tiny : normal;
    return (vf)((vi)rounded | ((vi)v & INT32_MIN));
}

}  // namespace deepinfer_cpu::DEEPINFER_ISA
