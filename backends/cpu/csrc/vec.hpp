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

// kLanes E4M3 numbers, each divided by kE4M3Unit: its bits, moved to a half's place, read so, subnormals included. The
// codes of NaN, which no stored number has, read 480.
constexpr float kE4M3Unit = 256;

static inline vf load_e4m3(const uint8_t* p) {
#if defined(__AVX512F__)
    const __m256i wide = _mm256_cvtepi8_epi16(_mm_loadu_si128(reinterpret_cast<const __m128i*>(p)));
    const __m256i half = _mm256_and_si256(_mm256_slli_epi16(wide, 7), _mm256_set1_epi16(short(0xbfff)));
    return (vf)_mm512_cvtph_ps(half);
#elif defined(__AVX2__)
    // Sign extension fills bits 8 .. 15 with the sign; shifted, it stands in bit 15 and, unwanted, in bit 14.
    const __m128i wide = _mm_cvtepi8_epi16(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
    const __m128i half = _mm_and_si128(_mm_slli_epi16(wide, 7), _mm_set1_epi16(short(0xbfff)));
    return (vf)_mm256_cvtph_ps(half);
#else
    vi bits;
    for (int i = 0; i < kLanes; ++i) bits[i] = int32_t(uint32_t(p[i] & 0x7f) << 20 | uint32_t(p[i] & 0x80) << 24);
    return (vf)bits * splat(0x1p112f);
#endif
}

// kLanes E2M1 numbers from kLanes / 2 bytes, low nibble first.
static inline vf load_e2m1(const uint8_t* p) {
#if defined(__AVX512F__)
    const __m512 values = _mm512_setr_ps(0, .5f, 1, 1.5f, 2, 3, 4, 6, -0.0f, -.5f, -1, -1.5f, -2, -3, -4, -6);
    const __m512i halves = _mm512_setr_epi32(0, 0, 0, 0, 0, 0, 0, 0, 1, 1, 1, 1, 1, 1, 1, 1);
    const __m512i shift = _mm512_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28, 0, 4, 8, 12, 16, 20, 24, 28);
    const __m512i packed = _mm512_castsi128_si512(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(p)));
    return (vf)_mm512_permutexvar_ps(_mm512_srlv_epi32(_mm512_permutexvar_epi32(halves, packed), shift), values);
#elif defined(__AVX2__)
    const __m256 magnitude = _mm256_setr_ps(0, .5f, 1, 1.5f, 2, 3, 4, 6);
    int32_t packed;
    std::memcpy(&packed, p, 4);
    const __m256i codes = _mm256_srlv_epi32(_mm256_set1_epi32(packed), _mm256_setr_epi32(0, 4, 8, 12, 16, 20, 24, 28));
    const __m256 sign = (__m256)_mm256_and_si256(_mm256_slli_epi32(codes, 28), _mm256_set1_epi32(INT32_MIN));
    return (vf)_mm256_xor_ps(_mm256_permutevar8x32_ps(magnitude, codes), sign);
#else
    constexpr float magnitude[8] = {0, .5f, 1, 1.5f, 2, 3, 4, 6};
    vf values;
    for (int i = 0; i < kLanes; ++i) {
        const int code = p[i / 2] >> (i % 2 * 4) & 15;
        values[i] = code & 8 ? -magnitude[code & 7] : magnitude[code & 7];
    }
    return values;
#endif
}

// The lanes' sum, halving: lane i is added to lane i + half, until one is left.
static inline float sum(vf v) {
#if defined(__AVX2__)
#if defined(__AVX512F__)
    float halves[16];
    store(halves, v);
    const __m256 eight = _mm256_add_ps(_mm256_loadu_ps(halves), _mm256_loadu_ps(halves + 8));
#else
    const __m256 eight = (__m256)v;
#endif
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

static inline vf maximum(vf a, vf b) {
    return a > b ? a : b;
}

static inline vf absolute(vf v) {
    return (vf)((vi)v & 0x7fffffff);
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
