// Philox4x32-10 (Salmon et al., SC 2011) and the Gumbel noise of a word; the meaning is deepinfer_core/ops/philox.py's.
#pragma once

#include <array>
#include <cmath>
#include <cstdint>

namespace deepinfer_cpu::DEEPINFER_ISA {

static inline std::array<uint32_t, 4> philox4x32(std::array<uint32_t, 4> c, uint32_t k0, uint32_t k1) {
    for (int round = 0; round < 10; ++round) {
        const uint64_t p0 = uint64_t(0xD2511F53u) * c[0], p1 = uint64_t(0xCD9E8D57u) * c[2];
        c = {uint32_t(p1 >> 32) ^ c[1] ^ k0, uint32_t(p1), uint32_t(p0 >> 32) ^ c[3] ^ k1, uint32_t(p0)};
        k0 += 0x9E3779B9u;
        k1 += 0xBB67AE85u;
    }
    return c;
}

// -log(-log u) of u = (word + 0.5) / 2^32, in float64, rounded once.
static inline float gumbel(uint32_t word) {
    return float(-std::log(-std::log((double(word) + 0.5) * 0x1p-32)));
}

}  // namespace deepinfer_cpu::DEEPINFER_ISA
