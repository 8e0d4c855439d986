// SipHash-2-4 with 128 bits of output (Aumasson and Bernstein, 2012): what names a block's content.
#pragma once

#include <compare>
#include <cstddef>
#include <cstdint>
#include <functional>
#include <span>

namespace deepinfer {

struct Hash {
    std::uint64_t low = 0;
    std::uint64_t high = 0;

    friend bool operator==(const Hash&, const Hash&) = default;
};

// Without the key, nobody can look for inputs that collide.
Hash siphash128(const Hash& key, std::span<const std::byte> data);

}  // namespace deepinfer

template <>
struct std::hash<deepinfer::Hash> {
    std::size_t operator()(const deepinfer::Hash& hash) const noexcept { return static_cast<std::size_t>(hash.low); }
};
