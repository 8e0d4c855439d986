// Content by hash, and the line of blocks without an owner.
#include "prefix_cache.hpp"

#include <algorithm>
#include <array>
#include <cstring>

namespace deepinfer {

namespace {

constexpr Block NOT_IN_LINE = -1;

std::size_t at(Block block) {
    return static_cast<std::size_t>(block);
}

}  // namespace

Hash chain_hash(const Hash& key, const Hash& parent, std::span<const Token> tokens) {
    const std::array<std::uint64_t, 2> before{parent.low, parent.high};
    std::vector<std::byte> data(sizeof before + tokens.size_bytes());
    std::memcpy(data.data(), before.data(), sizeof before);
    std::memcpy(data.data() + sizeof before, tokens.data(), tokens.size_bytes());
    return siphash128(key, data);
}

PrefixCache::PrefixCache(std::int32_t num_blocks, std::int32_t block_size)
    : block_size_(block_size),
      entries_(at(num_blocks)),
      tokens_(at(num_blocks) * at(block_size)),
      next_(at(num_blocks) + 1, NOT_IN_LINE),
      previous_(at(num_blocks) + 1, NOT_IN_LINE) {
    next_.back() = previous_.back() = num_blocks;
}

Block PrefixCache::find(const BlockContent& content) const {
    const auto found = by_hash_.find(content.hash);
    if (found == by_hash_.end()) return -1;
    const Block block = found->second;
    const bool same = entries_[at(block)].parent == content.parent && std::ranges::equal(tokens(block), content.tokens);
    return same ? block : -1;
}

void PrefixCache::insert(Block block, const BlockContent& content) {
    require(content.tokens.size() == at(block_size_), "a block that is not full is cached");
    require(!knows(block), "a block is cached twice");
    if (!by_hash_.emplace(content.hash, block).second) return;
    entries_[at(block)] = {.known = true, .parent = content.parent, .hash = content.hash};
    std::ranges::copy(content.tokens, tokens(block).begin());
}

void PrefixCache::forget(Block block) {
    Entry& entry = entries_.at(at(block));
    if (!entry.known) return;
    by_hash_.erase(entry.hash);
    entry = {};
}

bool PrefixCache::keep(Block block) {
    if (!knows(block)) return false;
    const auto end = static_cast<Block>(entries_.size());
    const Block newest = previous_[at(end)];
    next_[at(newest)] = previous_[at(end)] = block;
    next_[at(block)] = end;
    previous_[at(block)] = newest;
    return true;
}

void PrefixCache::reuse(Block block) {
    unlink(block);
}

Block PrefixCache::evict() {
    const Block oldest = next_.back();
    require(at(oldest) < entries_.size(), "a block is evicted and none is in line");
    unlink(oldest);
    forget(oldest);
    ++evictions_;
    return oldest;
}

void PrefixCache::check(std::int32_t cached) const {
    std::int32_t in_line = 0;
    for (Block block = next_.back(); at(block) < entries_.size(); block = next_[at(block)]) {
        require(next_[at(previous_[at(block)])] == block, "the line of cached blocks is broken");
        require(knows(block), "a block in line has no content");
        require(++in_line <= cached, "more blocks are in line than are cached");
    }
    require(in_line == cached, "fewer blocks are in line than are cached");
    std::size_t known = 0;
    for (const Entry& entry : entries_) known += entry.known ? 1 : 0;
    require(known == by_hash_.size(), "a cached block has no name, or two");
    for (const auto& [hash, block] : by_hash_) {
        require(knows(block) && entries_[at(block)].hash == hash, "a name leads to a block of other content");
    }
}

std::span<Token> PrefixCache::tokens(Block block) {
    return std::span(tokens_).subspan(at(block) * at(block_size_), at(block_size_));
}

std::span<const Token> PrefixCache::tokens(Block block) const {
    return std::span(tokens_).subspan(at(block) * at(block_size_), at(block_size_));
}

void PrefixCache::unlink(Block block) {
    require(next_.at(at(block)) != NOT_IN_LINE, "a block that is not in line is taken out of it");
    next_[at(previous_[at(block)])] = next_[at(block)];
    previous_[at(next_[at(block)])] = previous_[at(block)];
    next_[at(block)] = previous_[at(block)] = NOT_IN_LINE;
}

}  // namespace deepinfer
