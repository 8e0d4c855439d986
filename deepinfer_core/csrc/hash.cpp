// SipHash-2-4-128: two rounds for each 8 bytes, four before each half of the output.
#include "hash.hpp"

#include <bit>

namespace deepinfer {
namespace {

class SipState {
  public:
    explicit SipState(const Hash& key)
        : v0_(key.low ^ 0x736f6d6570736575U),
          v1_(key.high ^ 0x646f72616e646f6dU ^ 0xeeU),
          v2_(key.low ^ 0x6c7967656e657261U),
          v3_(key.high ^ 0x7465646279746573U) {}

    void absorb(std::uint64_t word) {
        v3_ ^= word;
        rounds(2);
        v0_ ^= word;
    }

    Hash finish() {
        v2_ ^= 0xeeU;
        rounds(4);
        const std::uint64_t low = v0_ ^ v1_ ^ v2_ ^ v3_;
        v1_ ^= 0xddU;
        rounds(4);
        return {low, v0_ ^ v1_ ^ v2_ ^ v3_};
    }

  private:
    void rounds(int count) {
        for (int i = 0; i < count; ++i) {
            v0_ += v1_;
            v2_ += v3_;
            v1_ = std::rotl(v1_, 13) ^ v0_;
            v3_ = std::rotl(v3_, 16) ^ v2_;
            v0_ = std::rotl(v0_, 32);
            v2_ += v1_;
            v0_ += v3_;
            v1_ = std::rotl(v1_, 17) ^ v2_;
            v3_ = std::rotl(v3_, 21) ^ v0_;
            v2_ = std::rotl(v2_, 32);
        }
    }

    std::uint64_t v0_, v1_, v2_, v3_;
};

// Up to 8 bytes as a little-endian number. With a fixed extent this is one load.
template <std::size_t Extent>
std::uint64_t word_of(std::span<const std::byte, Extent> bytes) {
    std::uint64_t word = 0;
    for (std::size_t i = 0; i < bytes.size(); ++i) word |= std::to_integer<std::uint64_t>(bytes[i]) << (8 * i);
    return word;
}

}  // namespace

Hash siphash128(const Hash& key, std::span<const std::byte> data) {
    SipState state(key);
    const std::uint64_t length = static_cast<std::uint64_t>(data.size()) << 56;
    for (; data.size() >= 8; data = data.subspan(8)) state.absorb(word_of(data.first<8>()));
    state.absorb(length | word_of(data));
    return state.finish();
}

}  // namespace deepinfer
